// Data: all training samples, filtered and sorted by what was found about them, decided about with keys. Styles: data.css.
import { el, clear, named, rename, count } from "../dom.js";
import { jobOf, ready } from "../parts/jobs.js";
import { virtualGrid } from "../parts/virtual_grid.js";
import { thumbnails, paint } from "../parts/sheets.js";
import { sampleList } from "../parts/sample_list.js";
import { decider, badge } from "../parts/decide.js";
import { filters, readQuery, SCORES } from "../parts/filters.js";
import { samplePanel } from "../parts/sample_panel.js";
import { trouble } from "../parts/trouble.js";

export const title = "Data";

/** An empty tile; `fill` puts a sample in. */
function emptyTile() {
  return el("div", { class: "vg-tile" },
    el("div", { class: "vg-picture" }, el("span", { class: "vg-check", "aria-hidden": "true" }), el("span", { class: "vg-badge" }), el("span", { class: "vg-group" })),
    el("div", { class: "vg-words" }, named("", "vg-label"), el("span", { class: "vg-score num" }), named("", "vg-suggested")));
}

/** A name into a tile, where it is not there yet: tiles are drawn anew on every move. */
function written(node, text, title = text) {
  if (node.textContent !== text || node.title !== title) rename(node, text, title);
}

/** Why pictures are missing, and what can be done; nothing where all are there, or none may be seen. */
function lacking({ samples, exposure, input, training_pictures: { available, facts } }) {
  const missing = samples - available;
  if (!missing || exposure === "ids" || !input.picture) return "";
  const words = available ? `${count(missing)} of ${count(samples)} pictures are not there or have changed` : "The training pictures are not there";
  return el("p", { class: "note small" }, `${words}${facts.length ? ` (${facts.join("; ")})` : ""}. If they were moved, start provnet app again with --data and the place where they are now.`);
}

/** Shows the view; the address holds every filter and where in the list one stands. */
export function show(root, context, query) {
  const { api, run, toast } = context;
  let wanted = readQuery(query), list = null, turn = 0, stopped = false;
  const longest = Math.max(...run.classes.map((one) => one.label.length)), brief = longest <= 3; // digits: both labels fit a line
  const job = el("div", { class: "jobs-here" });
  const total = el("p", { class: "total", role: "status" }, "Loading …");
  const empty = el("div", { class: "empty", hidden: true });
  const thumbs = thumbnails(context, () => grid.refresh(), 100, (error) => toast(`Pictures could not be loaded: ${error.message}`, "bad"));

  const grid = virtualGrid({
    label: "Training samples", tile: { width: longest > 9 ? 128 : 104, height: brief ? 126 : 142 }, make: emptyTile, fill, settled: fetchVisible,
    change(current, selected) {
      bar.enable(selected.size);
      panel.show(current >= 0 ? list.item(current) : null, selected.size);
      if (current >= 0 && !list.item(current)) list.want([current]);
      remember();
    },
  });
  const bar = decider(context, async () => (list ? list.take(grid.selected()) : []), onward, decided);
  const panel = samplePanel(context, (kind, label) => bar.decide(kind, label));
  const choice = filters(context, (next, soon) => {
    wanted = next;
    // a change that is over is one step for the back button; typing and sliding are not
    if (soon) context.replace(wanted); else context.push(wanted);
    start();
  });
  const work = el("div", { class: "data-work", onKeydown: (event) => bar.key(event) },
    el("div", { class: "data-main" }, bar.node, el("div", { class: "row apart" }, total, bar.status), empty, grid.node), panel.node);
  root.append(el("h1", { class: "visually-hidden" }, "Data"), lacking(run), job, choice.node, work);

  function fill(tile, position) {
    const item = list?.item(position) ?? null, [picture, words] = tile.children, [, mark, group] = picture.children;
    tile.classList.toggle("waiting", !item);
    if (!item) {
      paint(picture, null);
      for (const one of [...words.children, mark, group]) one.textContent = "";
      tile.setAttribute("aria-label", `sample ${position + 1}, loading`);
      missing.add(position);
      return;
    }
    const there = paint(picture, item.shown ? thumbs.find(item.sha256) : null);
    if (!there && item.shown) unpainted.add(position);
    picture.classList.toggle("none", !item.shown || thumbs.none);
    picture.dataset.hash = item.sha256.slice(0, 8);
    const wrong = item.flags.includes("mislabel") && item.suggested !== null, [label, score, instead] = words.children;
    written(label, wrong && brief ? `${item.label} → ${item.suggested}?` : item.label);
    written(instead, wrong && !brief ? item.suggested : "", wrong ? `suggested: ${item.suggested}` : "");
    const by = SCORES[wanted.sort] ? wanted.sort : item.mislabel === null ? null : "mislabel";
    score.textContent = by && item[by] !== null && (by === wanted.sort || wrong) ? item[by].toFixed(2) : "";
    words.classList.toggle("wrong", wrong);
    words.classList.toggle("brief", brief);
    const decision = badge(item);
    mark.textContent = decision ? `${decision.sign} ${decision.words}` : "";
    mark.className = `vg-badge ${decision?.kind ?? ""}`;
    tile.classList.toggle("dropped", decision?.kind === "drop");
    const grouped = wanted.sort === "group" && item.group !== null;
    group.textContent = grouped ? `group ${item.group}` : "";
    tile.classList.toggle("odd-group", grouped && item.group % 2 === 1);
    tile.setAttribute("aria-label", [item.label, item.sample_id, wrong ? `suggested ${item.suggested}` : "", by && item[by] !== null ? `${SCORES[by]} ${item[by].toFixed(2)}` : "", decision ? `decision ${decision.words}` : ""].filter(Boolean).join(", "));
  }

  // tiles say while they are drawn what they lack; it is asked for once scrolling rests, in whole pages
  const missing = new Set(), unpainted = new Set();
  let asked = 0;
  function fetchVisible() {
    if (stopped) return;
    const inSight = new Set(grid.visible());
    const lost = [...missing].filter((i) => inSight.has(i)), bare = [...unpainted].filter((i) => inSight.has(i));
    missing.clear();
    unpainted.clear();
    if (lost.length) list.want(lost);
    if (bare.length) {
      thumbs.forget();
      const pages = new Set(bare.map((i) => list.around(i)));
      for (const page of pages) thumbs.want(page.filter((one) => one.shown).map((one) => one.sha256));
      thumbs.want(bare.map((i) => list.item(i)?.sha256).filter(Boolean));
    }
  }
  const later = setInterval(() => { // also where nothing scrolls: a page of samples arrived, a window grew
    asked = missing.size || unpainted.size ? asked + 1 : 0;
    if (asked) fetchVisible();
  }, 120);

  let remembering = 0;
  function remember() {
    clearTimeout(remembering);
    remembering = setTimeout(() => context.replace({ ...wanted, at: grid.current() > 0 ? grid.current() : null }), 300);
  }

  async function start(at = -1) {
    const mine = (turn += 1);
    clearTimeout(remembering);
    list?.stop();
    missing.clear();
    unpainted.clear();
    const next = sampleList(api, wanted, () => {
      grid.refresh();
      if (grid.current() >= 0) panel.show(list.item(grid.current()), grid.selected().length);
    }, (error) => toast(error.message, "bad"));
    try {
      await next.reload(at);
    } catch (error) {
      if (mine !== turn || stopped || error.name === "AbortError") return;
      list = next;
      told(0, error.code === "unknown_hash" || error.status === 404 ? "This selection is gone: the server was started again, or made many since. Draw it again on the map." : trouble(error, () => start(at)));
      return;
    }
    if (mine !== turn || stopped) return;
    list = next;
    told(list.total(), "No sample fits these filters.");
    grid.count(list.total(), Math.min(at, list.total() - 1));
    bar.enable(grid.selected().length);
    panel.show(grid.current() >= 0 ? list.item(grid.current()) : null, grid.selected().length);
  }

  function told(n, words) {
    total.textContent = n ? `${count(n)} ${n === 1 ? "sample" : "samples"}` : "";
    empty.hidden = n > 0;
    clear(empty).append(n ? "" : words);
    grid.node.hidden = n === 0;
    if (!n) { grid.count(0); panel.show(null, 0); bar.enable(0); }
  }

  /** To the next sample, at once, so that the next key is about that one; gives the way back. */
  function onward() {
    const at = grid.current(), mine = list;
    if (grid.selected().length !== 1) return () => {};
    grid.pick(at + 1);
    return ([item]) => {
      if (stopped || list !== mine || grid.current() <= at) return;
      let place = at; // samples that left the list since then have moved it
      while (item && place > 0 && list.item(place)?.sample_id !== item.sample_id) place -= 1;
      grid.pick(item && list.item(place)?.sample_id === item.sample_id ? place : at);
    };
  }

  async function decided({ kind, items }) {
    if (!list || stopped) return;
    const before = list.total(), mine = list;
    await list.reload(grid.current());
    if (list !== mine) return;
    const gone = before - list.total();
    if (wanted.decision && gone) { // those decided about have left, or come back
      const one = kind !== "undo" && items.length === 1, at = one ? grid.current() - gone : grid.selected()[0] ?? 0;
      told(list.total(), "No sample fits these filters.");
      grid.count(list.total(), Math.min(Math.max(0, at), list.total() - 1));
    }
    grid.refresh();
    const now = grid.current();
    if (now >= 0) {
      const [item] = await list.take([now]);
      if (!stopped) panel.show(item ?? null, grid.selected().length);
    }
  }

  async function scored() {
    const found = await api.get("/summary", null, { signal: context.signal });
    choice.summary(found);
    if (found.scores) return;
    if ((await jobOf(context, "scores")).can) {
      await ready(context, "scores", job);
      choice.summary(await api.get("/summary", null, { signal: context.signal }));
      await start(grid.current());
    } else await ready(context, "scores", job);
  }
  function scores() {
    clear(job);
    scored().catch((error) => { if (error.name !== "AbortError") clear(job).append(trouble(error, scores)); });
  }

  choice.show(wanted);
  const at = /^\d{1,9}$/.test(query.at ?? "") ? Number(query.at) : wanted.id ? 0 : -1; // one sample alone is the one that is meant
  start(at);
  scores();

  return () => {
    stopped = true;
    clearInterval(later);
    clearTimeout(remembering);
    list?.stop();
    grid.stop();
    panel.stop();
    choice.stop();
    thumbs.stop();
    clear(job);
  };
}

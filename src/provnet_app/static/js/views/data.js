// Data: all training samples, filtered and sorted by what was found about them, decided about with keys. Styles: data.css.
import { append, el, clear, named, rename, count } from "../dom.js";
import { trainAgain } from "../parts/again.js";
import { ready } from "../parts/jobs.js";
import { KINDS, noun, SUSPICIOUS } from "../parts/kinds.js";
import { virtualGrid } from "../parts/virtual_grid.js";
import { thumbnails, paint } from "../parts/sheets.js";
import { sampleList } from "../parts/sample_list.js";
import { decider, badge, offered } from "../parts/decide.js";
import { filters, readQuery, SCORES } from "../parts/filters.js";
import { issues } from "../parts/issues.js";
import { samplePanel } from "../parts/sample_panel.js";
import { tagStore } from "../parts/tags.js";
import { trouble } from "../parts/trouble.js";
import { zoom } from "../parts/zoom.js";

export const title = "Data";
const SUSPECTS = { sort: "issue", order: "desc" };
const LINE = 74; // pixels of a row of text
const SIZE = "provnet-tile"; // how large pictures are, from one visit to the next

/** An empty tile; `fill` puts a sample in. */
function emptyTile() {
  return el("div", { class: "vg-tile" },
    el("div", { class: "vg-picture" }, el("span", { class: "vg-check", "aria-hidden": "true" }), el("span", { class: "vg-badge" }), el("span", { class: "vg-group" }), el("span", { class: "vg-kind" }), el("span", { class: "vg-text" })),
    el("div", { class: "vg-words" }, named("", "vg-label"), el("span", { class: "vg-score num" }), named("", "vg-suggested")));
}

/** A name into a tile, where it is not there yet: tiles are drawn anew on every move. */
function written(node, text, title = text) {
  if (node.textContent !== text || node.title !== title) rename(node, text, title);
}

/** Why samples are missing, and what can be done; nothing where all are there, or none may be seen. */
function lacking(run) {
  const { samples, exposure, training_pictures: { available, facts } } = run, missing = samples - available;
  if (!missing || exposure === "ids") return "";
  const words = available ? `${count(missing)} of ${count(samples)} ${noun(run, true)} are missing or have changed` : `The training ${noun(run, true)} are missing`;
  return el("p", { class: "note small" }, `${words}${facts.length ? ` (${facts.join("; ")})` : ""}. If they were moved, start provnet app again with --data and the place where they are now.`);
}

function stored() {
  try { return localStorage.getItem(SIZE); } catch { return null; }
}

/** Shows the view; the address holds every filter and where in the list one stands. */
export function show(root, context, query) {
  const { api, run, toast } = context;
  let wanted = readQuery(query), list = null, turn = 0, stopped = false;
  const longest = Math.max(...run.classes.map((one) => one.label.length)), brief = longest <= 3; // digits: both labels fit a line
  const job = el("div", { class: "jobs-here" }), next = el("div", { class: "what-next" });
  const total = el("p", { class: "total", role: "status" }, "Loading …");
  const empty = el("div", { class: "empty", hidden: true });
  const rows = !run.input.picture; // texts and rows of a table stand one below the other
  const sized = (side) => (rows ? { width: 1e6, height: LINE } : { width: Math.max(longest > 9 ? 128 : 104, side + 16), height: side + (brief ? 38 : 54) });
  let side = Math.max(64, Math.min(240, Number(stored()) || (run.input.large ? 144 : 88)));
  const made = () => thumbnails(context, () => grid.refresh(), 100, (error) => toast(`Pictures could not be loaded: ${error.message}`, "bad"), side * (devicePixelRatio || 1) > 160 ? 256 : 128);
  let thumbs = made();

  const grid = virtualGrid({
    label: "Training samples", tile: sized(side), make: emptyTile, fill, settled: fetchVisible,
    change(current, selected) {
      bar.enable(selected.size);
      look(selected.size);
      if (current >= 0 && !list.item(current)) list.want([current]);
      remember();
    },
  });
  const again = trainAgain(context);
  const bar = decider(context, async () => (list ? list.take(grid.selected()) : []), onward, decided);
  const tags = tagStore(context, async () => {
    choice.tags(tags.known());
    await decided({ kind: "undo", items: [] });
  });
  const panel = samplePanel(context, (kind, label) => bar.decide(kind, label), tags, async () => (list ? list.take(grid.selected()) : []));
  const choice = filters(context, (next, soon) => {
    wanted = next;
    // a change that is over is one step for the back button; typing and sliding are not
    if (soon) context.replace(wanted); else context.push(wanted);
    start();
  });
  const stage = el("div", { class: "stage", hidden: true });
  const review = el("button", { type: "button", class: "button small", title: `One large ${noun(run)} at a time (key V)`, "aria-pressed": "false", onClick: () => reviewing(!isReview()) }, "Review one by one");
  const slider = el("input", { type: "range", min: "64", max: "240", step: "8", value: String(side), "aria-label": "Size of the pictures", onInput: () => resize(Number(slider.value)) });
  const classes = el("div", {});
  const work = el("div", { class: rows ? "data-work as-rows" : "data-work", onKeydown: keys },
    el("div", { class: "data-main" }, bar.node,
      el("div", { class: "row apart" }, el("div", { class: "row" }, total, bar.status), el("div", { class: "row" }, review, rows ? null : el("label", { class: "row small muted tile-size" }, "Size", slider))),
      stage, empty, grid.node), panel.node);
  root.append(el("h1", { class: "visually-hidden" }, "Data"), lacking(run), job, again.node, next, choice.node, classes, work);
  tiles();
  grid.node.addEventListener("dblclick", () => { const item = list?.item(grid.current()); if (item?.shown) zoom(context, { ...item, known: true }); });

  function tiles() {
    work.style.setProperty("--tile", `${side}px`);
    work.classList.toggle("small-tiles", side < 104);
  }

  function resize(to) {
    side = to;
    try { localStorage.setItem(SIZE, String(to)); } catch { /* kept for this page alone */ }
    tiles();
    const before = thumbs;
    thumbs = made();
    if (thumbs.side === before.side) { thumbs.stop(); thumbs = before; } else before.stop();
    unpainted.clear();
    const { width, height } = sized(side);
    grid.size(width, height);
  }

  const isReview = () => work.classList.contains("review");
  /** One large picture at a time, with a strip of the others below it. */
  function reviewing(on) {
    work.classList.toggle("review", on);
    root.classList.toggle("review-on", on);
    review.setAttribute("aria-pressed", String(on));
    stage.hidden = !on;
    if (on && grid.current() < 0) grid.pick(0);
    grid.refresh();
    look(grid.selected().length);
    grid.node.focus({ preventScroll: true });
  }

  function look(selected) {
    const item = grid.current() >= 0 ? list?.item(grid.current()) ?? null : null;
    panel.show(item, selected, isReview());
    if (isReview()) panel.stage(stage, item);
  }

  /** To the next sample, or the one before, that nobody has decided about. */
  async function onTo(step) {
    const mine = list;
    for (let at = grid.current() + step; at >= 0 && at < mine.total(); at += step) {
      const item = mine.item(at) ?? (await mine.take([at]))[0];
      if (list !== mine || stopped) return;
      if (item && !item.decision) { grid.pick(at); return; }
    }
    toast(step > 0 ? "No undecided sample comes after this one." : "No undecided sample comes before this one.");
  }

  function keys(event) {
    const key = event.key.toLowerCase(), item = list?.item(grid.current());
    if (!event.ctrlKey && !event.metaKey && !event.altKey && !event.target.closest("input, select, textarea, dialog")) {
      const does = {
        n: () => onTo(1), p: () => onTo(-1), v: () => reviewing(!isReview()), t: () => work.querySelector("#tag-field")?.focus(),
        z: () => item?.shown && zoom(context, { ...item, known: true }),
        escape: () => isReview() && grid.selected().length < 2 && reviewing(false),
      }[key];
      if (does && list) {
        if (key !== "escape") event.preventDefault();
        Promise.resolve(does()).catch((error) => toast(error.message, "bad"));
        return;
      }
    }
    bar.key(event);
  }

  function fill(tile, position) {
    const item = list?.item(position) ?? null, [picture, words] = tile.children, [, mark, group, kind, text] = picture.children;
    tile.classList.toggle("waiting", !item);
    if (!item) {
      paint(picture, null);
      for (const one of [...words.children, mark, group, kind, text]) one.textContent = "";
      tile.setAttribute("aria-label", `sample ${position + 1}, loading`);
      missing.add(position);
      return;
    }
    const there = paint(picture, item.shown ? thumbs.find(item.sha256) : null);
    if (!there && item.shown && !rows) unpainted.add(position);
    picture.classList.toggle("none", !item.shown || (thumbs.none && !item.text));
    text.textContent = item.text ?? "";
    picture.dataset.hash = item.sha256.slice(0, 8);
    const wrong = offered(item) !== null, [label, score, instead] = words.children;
    written(label, wrong && brief ? `${item.label} → ${item.suggested}?` : item.label);
    written(instead, wrong && !brief ? item.suggested : "", wrong ? `suggested: ${item.suggested}` : "");
    kind.textContent = item.kind && wanted.flag !== item.kind ? KINDS[item.kind][0] : "";
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
    tile.setAttribute("aria-label", [item.label, item.sample_id, item.kind ? KINDS[item.kind][0] : "", wrong ? `suggested ${item.suggested}` : "", by && item[by] !== null ? `${SCORES[by]} ${item[by].toFixed(2)}` : "", decision ? `decision ${decision.words}` : ""].filter(Boolean).join(", "));
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
      if (grid.current() >= 0) look(grid.selected().length);
    }, (error) => toast(error.message, "bad"));
    try {
      await next.reload(at);
    } catch (error) {
      if (mine !== turn || stopped || error.name === "AbortError") return;
      list = next;
      told(0, error.code === "unknown_hash" || error.status === 404 ? "This selection is gone: the server keeps the newest 32 until it ends. Draw it again on the map." : trouble(error, () => start(at)));
      return;
    }
    if (mine !== turn || stopped) return;
    list = next;
    told(list.total(), "No sample fits these filters.");
    grid.count(list.total(), Math.min(at, list.total() - 1));
    if (isReview() && list.total() && grid.current() < 0) grid.pick(0);
    bar.enable(grid.selected().length);
    look(grid.selected().length);
  }

  function told(n, words) {
    total.textContent = n ? `${count(n)} ${n === 1 ? "sample" : "samples"}` : "";
    empty.hidden = n > 0;
    clear(empty).append(n ? "" : words);
    grid.node.hidden = n === 0;
    if (!n) { grid.count(0); look(0); bar.enable(0); }
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
      await list.take([now]);
      if (!stopped) look(grid.selected().length);
    }
  }

  async function scored() {
    let found = await api.get("/summary", null, { signal: context.signal });
    if (!found.scores) {
      choice.summary(found);
      if (unasked) start(); // what comes first is shown while nothing is known of it
      await ready(context, "scores", job);
      found = await api.get("/summary", null, { signal: context.signal });
    }
    if (unasked && !Object.keys(wanted).length) { // the most suspicious first, where nothing else was asked for
      wanted = found.suspects ? { ...SUSPECTS, flag: "suspect" } : { ...SUSPECTS };
      context.replace(wanted);
      choice.show(wanted);
    }
    choice.summary(found);
    append(clear(classes), issues(context, found));
    whatNext(found);
    if (unasked || SCORES[wanted.sort]) await start(grid.current());
  }

  /** What there is to do now, in words. */
  function whatNext(found) {
    const n = found.suspects, kinds = SUSPICIOUS.filter((kind) => found.kinds[kind]).map((kind) => `${count(found.kinds[kind])} ${KINDS[kind][found.kinds[kind] === 1 ? 0 : 1]}`);
    const words = n ? `${count(n)} ${n === 1 ? "sample is" : "samples are"} suspicious: ${kinds.join(", ")}. The most suspicious come first. ` : "Nothing is suspicious enough for a flag. The most suspicious samples come first. ";
    const doubt = found.cannot_tell ? el("details", { class: "small" }, el("summary", {}, `How many labels are wrong cannot be told: at least ${count(found.certainly_wrong)}, at most about ${count(found.most_wrong)}.`), el("p", {}, `Why: ${found.cannot_tell}. Few flags do not mean few wrong labels.`)) : null;
    append(clear(next), el("div", {}, doubt, el("p", { class: "small" }, el("strong", {}, words), "Review them with keys: ",
      [["S", "takes the suggestion"], ["R", "relabels"], ["K", "keeps"], ["D", "drops"], ["N", "goes to the next"]].map(([key, does], i) => [i ? ", " : "", el("kbd", {}, key), ` ${does}`]), ". Then train again.")),
      el("div", { class: "row" }, el("button", { type: "button", class: "button primary small", onClick: () => reviewing(true) }, n ? "Review the suspects" : "Review one by one"),
        el("button", { type: "button", class: "button small", onClick: again.ask }, "Train again …")));
  }
  function scores() {
    clear(job);
    scored().catch((error) => { if (error.name !== "AbortError") clear(job).append(trouble(error, scores)); });
  }

  const unasked = !Object.keys(query).length;
  choice.show(wanted);
  const at = /^\d{1,9}$/.test(query.at ?? "") ? Number(query.at) : wanted.id ? 0 : -1; // one sample alone is the one that is meant
  if (!unasked) start(at);
  tags.load().then(() => choice.tags(tags.known())).catch(() => {});
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

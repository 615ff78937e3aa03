// One sample in full: its picture, what was found about it, and what the model names for it.
import { el, clear, named, count, percent, short, bar } from "../dom.js";
import { badge, offered } from "./decide.js";
import { SCORES } from "./filters.js";
import { kindChip, noun } from "./kinds.js";
import { tagRow } from "./tags.js";
import { inWords } from "./words.js";
import { similarButton, zoomable } from "./zoom.js";

const WAIT = 160; // milliseconds that a sample stays current before the model is asked about it

/**
 * The side panel; `decide(kind, label)` for its button, `tags` the store of tags, `chosen()` what a new tag is for.
 * Gives {node, show(item, selected), stage(root, item), stop()}; the stage is the large picture of a review.
 */
export function samplePanel(context, decide, tags, chosen) {
  const { api, run } = context;
  const body = el("div", { class: "panel-body" });
  const node = el("aside", { class: "card panel", "aria-label": "The sample" }, body);
  const named_ = el("div", { class: "panel-named", role: "status", "aria-label": "Training samples that the network recognises in it" });
  let stop = new AbortController(), timer = 0, shown = null, at = "";

  function scores(item) {
    if (item.mislabel === null) return null;
    return el("dl", { class: "scores" }, Object.entries(SCORES).filter(([name]) => name !== "issue").map(([name, words]) => [
      el("dt", {}, words), el("dd", {}, bar(item[name], words, name === "typicality" ? "good" : item[name] >= 0.5 ? "bad" : ""), el("span", { class: "num" }, item[name].toFixed(2)))]));
  }

  function decision(item) {
    const mark = badge(item);
    return mark && el("p", { class: `verdict ${mark.kind}` }, el("span", { "aria-hidden": "true" }, `${mark.sign} `), mark.kind === "relabel" ? ["relabel to ", named(mark.words, "flow")] : mark.kind);
  }

  function suggestion(item) {
    if (item.advised === "drop") return el("button", { type: "button", class: "button suggestion", title: `The same ${noun(run)} has another label: at least one of the two is wrong, and nothing says which (key D)`, onClick: () => decide("drop") },
      "Drop", el("kbd", { "aria-hidden": "true" }, "D"));
    if (offered(item) === null) return null;
    return el("button", { type: "button", class: "button suggestion", title: `Relabel to ${item.suggested} (key S)`, onClick: () => decide("relabel", item.suggested) },
      "Relabel to ", named(item.suggested), el("kbd", { "aria-hidden": "true" }, "S"));
  }

  function show(item, selected, large = false) {
    const key = item ? `${item.sample_id}\0${item.sha256}` : "";
    const head = selected > 1 ? el("p", { class: "chip accent" }, `${count(selected)} selected`) : null;
    clear(body);
    if (!item) {
      stop.abort();
      clearTimeout(timer);
      at = "";
      body.append(el("p", { class: "muted" }, "Choose a sample: click it, or move with the arrow keys. Hold Shift to select several."));
      return;
    }
    const picture = large ? null : inWords(item) ?? (item.shown && run.input.picture
      ? zoomable(context, { ...item, known: true }, { size: 560, alt: `the sample ${item.sample_id}` })
      : el("div", { class: "picture none" }, run.exposure === "ids" ? "this run shows no samples, only ids" : `this ${noun(run)} is missing`));
    const links = el("div", { class: "row panel-links small" },
      item.shown ? similarButton(context, { sha256: item.sha256, sample_id: item.sample_id }) : null,
      el("a", { href: context.link("explain", { hash: item.sha256, id: item.sample_id }) }, "Explain it"),
      item.group === null ? null : el("a", { href: context.link("data", { sort: "group", group: item.group }) }, `${item.exact ? "Equal" : "Nearly equal"}: ${count(item.group_size)} in group ${item.group}`));
    body.append(...[head, picture,
      el("div", { class: "panel-title" }, el("span", { class: "over" }, "label"), named(item.label, "panel-label")),
      decision(item), suggestion(item), item.kind || item.flags.includes("added") ? el("div", { class: "row flags" }, kindChip(item), item.flags.includes("added") ? el("span", { class: "chip" }, "added after training") : null) : null,
      scores(item), tagRow(tags, item, chosen, (error) => context.toast(error.message, "bad")), el("div", { class: "stack tight" }, named(item.sample_id, "mono small"), el("span", { class: "hash", title: item.sha256 }, short(item.sha256, 16)), item.source ? named(`from ${item.source}`, "small muted") : null), links, named_].filter(Boolean));
    shown = item;
    if (key === at) return; // only its decision changed: the answer of the model is there
    at = key;
    stop.abort();
    stop = new AbortController();
    clearTimeout(timer);
    clear(named_);
    const { signal } = stop;
    timer = setTimeout(() => explain(item, signal), WAIT);
  }

  async function explain(item, signal) {
    if (!item.shown) return;
    try {
      const found = await api.post("/explain/known", { sha256: item.sha256, sample_id: item.sample_id, k: 6 }, undefined, { signal });
      if (signal.aborted || shown?.sample_id !== item.sample_id) return;
      clear(named_).append(el("h2", {}, "The network recognises"), el("ol", { class: run.input.picture ? "named" : "named in-words" }, found.exemplars.map((one) => el("li", {},
        el("a", { href: context.link("data", { id: one.sample_id }), "aria-label": `${one.sample_id}, label ${one.label}, weight ${percent(one.weight)}` },
          one.text ? el("span", { class: "picture none words" }, one.text.slice(0, 80)) : one.shown ? el("span", { class: "picture" }, el("img", { src: api.picture(one.sha256, run.exposure === "full" ? 160 : undefined), alt: "", loading: "lazy" })) : el("span", { class: "picture none" }, "–"),
          el("span", { class: "named-words small" }, named(one.label), el("span", { class: "num muted" }, `${one.sample_id === item.sample_id ? "itself " : one.sha256 === item.sha256 ? "equal " : ""}${one.weight < 0.005 ? "" : percent(one.weight, 0)}`)))))),
        el("p", { class: "small muted" }, "Its answer: ", named(found.predicted.label, "flow"), ` (${percent(found.confidence)}).`));
    } catch (error) {
      if (error.name === "AbortError") return;
      at = ""; // chosen again, it is asked about again
      clear(named_).append(el("p", { class: "small muted" }, error.message));
    }
  }

  const typical = new Map(); // class -> the promise of its most typical samples

  /** The picture as large as there is room, with typical samples of the label that it has and of the one suggested. */
  function stage(root, item) {
    const key = item ? `${item.sample_id}\0${item.sha256}\0${item.decision}\0${item.new_label}` : "";
    if (root.dataset.key === key) return;
    root.dataset.key = key;
    clear(root);
    if (!item) return;
    const other = offered(item), mark = badge(item);
    const large = inWords(item) ? el("div", { class: "stage-text" }, inWords(item)) : item.shown && run.input.picture ? zoomable(context, { ...item, known: true }, { size: 1024, alt: `the sample ${item.sample_id}` }) : el("div", { class: "picture none" }, `this ${noun(run)} is not shown`);
    const words = el("div", { class: "stage-words" }, el("span", { class: "over" }, "label"), named(item.label, "panel-label"),
      mark ? el("p", { class: `verdict ${mark.kind}` }, `${mark.sign} ${mark.kind === "relabel" ? `relabel to ${mark.words}` : mark.kind}`) : null, alike(item.class, "Typical of this label"));
    if (other !== null) words.append(el("span", { class: "over" }, "more probable"), named(other, "panel-label bad"), alike(item.suggested_class, "Typical of that label"));
    root.append(large, words);
  }

  function alike(number, words) {
    const place = el("ol", { class: run.input.picture ? "typical" : "typical as-words", "aria-label": words });
    if (!typical.has(number)) typical.set(number, api.get("/samples", { class: number, sort: "typicality", order: "desc", limit: 4 }, { signal: context.signal }).catch(() => ({ items: [] })));
    typical.get(number).then(({ items }) => place.append(...items.filter((one) => one.shown).map((one) => el("li", {}, one.text ? el("span", { class: "small" }, one.text.slice(0, 140)) : zoomable(context, { ...one, known: true }, { size: 160 })))));
    return place;
  }

  return { node, show, stage, stop() { stop.abort(); clearTimeout(timer); } };
}

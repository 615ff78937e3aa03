// The training samples behind an answer: cards with weights, beside the query or as the difference from it.
import { bar, el, named, percent, scrolling, short } from "../dom.js";
import { difference } from "./difference.js";
import { noun } from "./kinds.js";
import { inWords } from "./words.js";
import { zoomable } from "./zoom.js";

export const MODES = [["sample", "Samples"], ["beside", "Side by side"], ["difference", "Difference"]];

/** Buttons for the ways of showing; `chosen(mode)` is called. */
export function modeButtons(now, chosen) {
  return el("div", { class: "row modes", role: "group", "aria-label": "How the samples are shown" }, MODES.map(([mode, words]) =>
    el("button", { type: "button", class: "button small", "aria-pressed": String(mode === now), onClick: () => chosen(mode) }, words)));
}

/**
 * The list of cards. `answer` is the server's explanation; `before` the one without anything left out, or null.
 * `leaveOut(exemplar)` is called by its button; without it there is none.
 */
export function exemplars(context, answer, { mode = "sample", before = null, leaveOut = null } = {}) {
  const places = new Map((before?.exemplars ?? []).map((one) => [one.index, one]));
  if (answer.query.cells && answer.exemplars.some((one) => one.cells)) return rows(context, answer, leaveOut, before ? places : null);
  const unsupported = answer.supported ? "" : " unsupported";
  const words = answer.exemplars.some((one) => one.text) ? " in-words" : "";
  return el("ol", { class: `exemplars mode-${mode}${unsupported}${words}`, "aria-label": "Training samples behind the answer" },
    answer.exemplars.map((one) => card(context, answer, one, mode, before ? (places.get(one.index) ?? "new") : null, leaveOut)));
}

/** Rows of a table, beside the one that was asked about: a line for each of its columns, equal values marked. */
function rows(context, answer, leaveOut, before) {
  const { query, exemplars: list, supported } = answer;
  const values = list.map((one) => new Map(one.cells ?? []));
  const head = (one) => el("th", { scope: "col", class: "exemplar", dataset: { index: one.index, hash: one.sha256 } },
    named(one.label, "label"), el("div", { class: "weight" }, bar(one.weight, `Weight of ${one.sample_id}`, supported ? "" : "faint"), el("span", { class: "num" }, percent(one.weight))),
    moved(one, before ? before.get(one.index) ?? "new" : null),
    el("a", { class: "mono", href: context.link("explain", { hash: one.sha256, id: one.sample_id }), title: "Explain it" }, named(one.sample_id, "mono")), same(context.run, one), leaveOut ? button(one, leaveOut) : null);
  const value = (given, found) => el("td", {}, found === undefined ? "" : found === given ? el("mark", {}, found) : found);
  return scrolling("Training samples", el("table", { class: "table side-by-side exemplars" },
    el("thead", {}, el("tr", {}, el("td", {}), el("th", { scope: "col" }, "asked about"), list.map(head))),
    el("tbody", {}, query.cells.map(([name, given]) => el("tr", {}, el("th", { scope: "row", class: "cell-name" }, name), el("td", {}, given), values.map((one) => value(given, one.get(name))))))));
}

function card(context, answer, one, mode, was, leaveOut) {
  const face = picture(context, answer, one, mode);
  const link = (view, query, label, words) => el("a", { href: context.link(view, query), "aria-label": label }, words);
  return el("li", { class: "exemplar", dataset: { index: one.index, hash: one.sha256 } },
    face,
    el("div", { class: "body" },
      named(one.label, "label"),
      el("div", { class: "weight" },
        bar(one.weight, `Weight of ${one.sample_id}`, answer.supported ? "" : "faint"),
        el("span", { class: "num" }, percent(one.weight))),
      moved(one, was),
      named(one.sample_id, "mono"),
      el("div", { class: "hash", title: one.sha256 }, short(one.sha256)),
      same(context.run, one),
      el("div", { class: "row small links" },
        link("data", { id: one.sample_id }, `${one.sample_id} in the data`, "data"),
        link("map", { query: one.sha256 }, `${one.sample_id} on the map`, "map"),
        link("explain", { hash: one.sha256, id: one.sample_id }, `Explain ${one.sample_id}`, "explain")),
      leaveOut ? button(one, leaveOut) : null));
}

function button(one, leaveOut) {
  const words = `Leave out ${one.sample_id}: what changes?`;
  return el("button", { type: "button", class: "button small face", title: words, "aria-label": words, onClick: () => leaveOut(one) }, "Leave out");
}

function moved(one, was) {
  if (was === null) return null;
  if (was === "new") return el("p", { class: "small moved new" }, "newly listed");
  return el("p", { class: "small moved" }, `was ${percent(was.weight)}, place ${was.rank}`);
}

/** Other samples of the same content; all have the same weight. */
function same(run, one) {
  if (!one.duplicate_count) return null;
  const ids = one.duplicates.slice(0, 3);
  const more = one.duplicate_count - ids.length;
  return el("p", { class: "small same" }, `same ${noun(run)} as ${ids.join(", ")}${more ? ` and ${more} more` : ""}`);
}

function picture(context, answer, one, mode) {
  const words = inWords(one, answer.query);
  if (words) return words;
  if (!one.shown || !context.run.input.picture) return el("span", { class: "picture none" }, `${noun(context.run)} not shown`);
  const image = () => zoomable(context, { ...one, known: true }, { size: 360 });
  if (mode === "difference" && answer.picture) {
    return el("span", { class: "picture" }, difference(answer.picture, `${context.api.picture(one.sha256)}?view=network`));
  }
  if (mode === "beside" && answer.picture) {
    const { query } = answer, seen = answer.distorted || query.origin === "pixels";
    return el("span", { class: "pair" },
      el("span", { class: "picture" }, el("img", { src: seen ? answer.picture : context.api.picture(query.sha256, context.run.exposure === "full" ? 360 : null), alt: "" })),
      image());
  }
  return image();
}

/** Weight of the listed samples by their label, heaviest first: what the samples speak for. */
export function byLabel(answer) {
  const found = new Map();
  for (const one of answer.exemplars) found.set(one.label, (found.get(one.label) ?? 0) + one.weight);
  return [...found].sort((a, b) => b[1] - a[1]);
}

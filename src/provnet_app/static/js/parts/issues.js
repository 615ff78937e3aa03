// What was found, class by class: every number leads to its samples.
import { el, named, count, percent, scrolling } from "../dom.js";
import { KINDS, SUSPICIOUS } from "./kinds.js";

const COLUMNS = [...["wrong", "foreign", "bad", "ambiguous", "conflict", "duplicate"].map((kind) => [kind, KINDS[kind][1]]), ["decided", "decided"]];
const weight = (one) => SUSPICIOUS.reduce((sum, kind) => sum + one[kind], 0);

/** The table of classes and of what is taken for what; nothing where nothing is known. */
export function issues(context, { classes, suggestions }) {
  if (!classes?.length) return null;
  const link = (n, query, words) => (n ? el("a", { href: context.link("data", query), "aria-label": words }, count(n)) : el("span", { class: "muted" }, "0"));
  const of = (one, name) => (name === "decided" ? { sort: "index", class: one.class, decision: "any" } : { sort: "issue", order: "desc", class: one.class, flag: name });
  const worst = [...classes].sort((a, b) => weight(b) - weight(a) || b.samples - a.samples);
  const columns = COLUMNS.filter(([name]) => ["wrong", "duplicate", "decided"].includes(name) || classes.some((one) => one[name]));
  const label = (number) => context.run.classes[number].label;
  return el("details", { class: "card issues" },
    el("summary", {}, el("h2", {}, "Issues by class")),
    el("div", { class: "issues-parts" },
      scrolling("Issues by class", el("table", { class: "table" },
        el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "class"), el("th", { scope: "col", class: "num" }, "samples"), columns.map(([, words]) => el("th", { scope: "col", class: "num" }, words)))),
        el("tbody", {}, worst.map((one) => el("tr", {},
          el("th", { scope: "row", class: "cell-name" }, el("a", { href: context.link("data", { sort: "issue", order: "desc", class: one.class }) }, named(one.label))),
          el("td", { class: "num" }, count(one.samples)),
          columns.map(([name, words]) => el("td", { class: "num" }, link(one[name], of(one, name), `${one.label}: ${count(one[name])} ${words}`),
            name === "wrong" && one.wrong ? el("span", { class: "muted small" }, ` ${percent(one.wrong / one.samples, 0)}`) : null))))))),
      suggestions.length ? el("div", { class: "stack tight" }, el("h3", {}, "Label → more probable label"),
        el("ul", { class: "pairs" }, suggestions.slice(0, 12).map(({ class: given, suggested: other, samples: n }) => el("li", {},
          el("a", { href: context.link("data", { sort: "issue", order: "desc", class: given, suggested: other }) }, named(label(given), "flow"), " → ", named(label(other), "flow")), el("span", { class: "num muted" }, count(n)))))) : null));
}

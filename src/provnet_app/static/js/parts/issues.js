// What was found, class by class: every number leads to its samples.
import { el, named, count, percent, scrolling } from "../dom.js";

const COLUMNS = [["mislabel", "labels look wrong"], ["anomaly", "odd pictures"], ["duplicate", "duplicates"], ["conflict", "same picture, two labels"], ["decided", "decided"]];

/** The table of classes and of what is taken for what; nothing where nothing is known. */
export function issues(context, { classes, suggestions }) {
  if (!classes?.length) return null;
  const link = (n, query, words) => (n ? el("a", { href: context.link("data", query), "aria-label": words }, count(n)) : el("span", { class: "muted" }, "0"));
  const of = (one, name) => (name === "decided" ? { sort: "index", class: one.class, decision: "any" } : { sort: name === "anomaly" ? "anomaly" : "mislabel", order: "desc", class: one.class, flag: name });
  const worst = [...classes].sort((a, b) => b.mislabel + b.anomaly + b.conflict - a.mislabel - a.anomaly - a.conflict || b.samples - a.samples);
  const label = (number) => context.run.classes[number].label;
  return el("details", { class: "card issues" },
    el("summary", {}, el("h2", {}, "Issues by class")),
    el("div", { class: "issues-parts" },
      scrolling("Issues by class", el("table", { class: "table" },
        el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "class"), el("th", { scope: "col", class: "num" }, "samples"), COLUMNS.map(([, words]) => el("th", { scope: "col", class: "num" }, words)))),
        el("tbody", {}, worst.map((one) => el("tr", {},
          el("th", { scope: "row", class: "cell-name" }, el("a", { href: context.link("data", { sort: "mislabel", order: "desc", class: one.class }) }, named(one.label))),
          el("td", { class: "num" }, count(one.samples)),
          COLUMNS.map(([name, words]) => el("td", { class: "num" }, link(one[name], of(one, name), `${one.label}: ${count(one[name])} ${words}`),
            name === "mislabel" && one.mislabel ? el("span", { class: "muted small" }, ` ${percent(one.mislabel / one.samples, 0)}`) : null))))))),
      suggestions.length ? el("div", { class: "stack tight" }, el("h3", {}, "Labelled as … , looks like …"),
        el("ul", { class: "pairs" }, suggestions.slice(0, 12).map(({ class: given, suggested: other, samples: n }) => el("li", {},
          el("a", { href: context.link("data", { sort: "mislabel", order: "desc", class: given, suggested: other }) }, named(label(given), "flow"), " → ", named(label(other), "flow")), el("span", { class: "num muted" }, count(n)))))) : null));
}

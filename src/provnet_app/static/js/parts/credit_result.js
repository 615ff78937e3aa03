// Whose samples stand behind the answers: figures, bars with intervals, the curve, the samples, and the table.
import { el, named, count, percent, interval, range, scrolling, short } from "../dom.js";
import { lorenz } from "./lorenz.js";
import { save } from "./map_data.js";

const BARS = 12; // contributors drawn; the table has all
const ROWS = 200; // of the table, until all are asked for

/** A cell of a CSV file; what a spreadsheet would take for a formula is made text. */
function cell(value) {
  const text = String(value ?? ""), safe = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** The table as CSV text. */
export function creditCsv(found) {
  const head = ["rank", "rank_low", "rank_high", "contributor", "share", "share_low", "share_high", "samples", "lift", "first"];
  const rows = found.contributors.map((one) => [one.rank, one.rank_low, one.rank_high, one.name, one.share.value, one.share.low, one.share.high, one.samples, one.lift, one.first]);
  return [head, ...rows].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

function bars(found) {
  const most = Math.max(...found.contributors.slice(0, BARS).map((one) => one.share.high ?? one.share.value), 1e-9);
  return el("ol", { class: "credit-bars" }, found.contributors.slice(0, BARS).map((one) => {
    const at = (value) => `${(100 * value) / most}%`, { value, low, high } = one.share;
    return el("li", {}, named(one.name, one.listed ? "" : "muted"),
      el("span", { class: "credit-bar", "aria-hidden": "true" }, el("i", { class: one.listed ? "" : "unlisted", style: { width: at(value) } }),
        low === null ? null : el("b", { style: { left: at(low), width: at(high - low) } })),
      el("span", { class: "num" }, percent(value), el("span", { class: "muted small" }, low === null ? "" : ` ${range(low, high)}`)));
  }));
}

function table(found) {
  const body = el("tbody");
  const row = (one) => el("tr", {},
    el("td", { class: "num" }, one.rank_low === one.rank_high ? one.rank : `${one.rank} (${one.rank_low} to ${one.rank_high})`),
    el("td", { class: "who" }, named(one.name, one.listed ? "" : "muted")), el("td", { class: "num" }, percent(one.share.value)),
    el("td", { class: "num muted" }, one.share.low === null ? "–" : range(one.share.low, one.share.high)),
    el("td", { class: "num" }, count(one.samples)), el("td", { class: "num" }, one.lift === null ? "–" : one.lift.toFixed(2)), el("td", { class: "num" }, percent(one.first, 0)));
  body.append(...found.contributors.slice(0, ROWS).map(row));
  const rest = found.contributors.length - ROWS;
  const more = rest > 0 ? el("button", { type: "button", class: "button small", onClick: () => { body.append(...found.contributors.slice(ROWS).map(row)); more.remove(); } }, `Show ${count(rest)} more`) : null;
  const head = [["Rank", "num", "with the ranks that hold 95 % of the draws"], ["Contributor", "", ""], ["Credit", "num", ""], ["95 % interval", "num", ""], ["Samples", "num", ""], ["Lift", "num", "credit over share of the samples: 1 is what size alone gives"], ["First", "num", "share of the draws in which they are first"]];
  return el("div", { class: "stack" }, scrolling("Credit of all contributors",
    el("table", { class: "table" }, el("caption", { class: "visually-hidden" }, "Credit of all contributors"), el("thead", {}, el("tr", {}, head.map(([words, kind, about]) => el("th", { scope: "col", class: kind, title: about || null }, words)))), body)), more);
}

function leading(context, found) {
  const shown = (one) => (context.run.exposure === "ids" || !context.run.input.picture ? el("span", { class: "picture none" }, short(one.sha256, 6))
    : el("span", { class: "picture" }, el("img", { src: context.api.picture(one.sha256, context.run.exposure === "full" ? 160 : undefined), alt: "", loading: "lazy" })));
  return el("div", { class: "leading" }, found.top.filter((one) => one.samples.length).map((one) => el("section", {}, named(one.name, "leading-name"), el("ol", { class: "leading-samples" }, one.samples.map((sample) =>
    el("li", {}, el("a", { href: context.link("data", { id: sample.sample_id }), title: sample.sample_id, "aria-label": `${sample.sample_id}, label ${sample.label}, ${percent(sample.share, 2)} of all credit` }, shown(sample), el("span", { class: "num small muted" }, percent(sample.share, 2)))))))));
}

/** Everything that was found, as nodes. */
export function creditResult(context, found) {
  const tile = (value, words) => el("div", { class: "tile" }, el("b", {}, value), el("span", {}, words));
  const apart = [found.unsupported ? `${count(found.unsupported)} without a supporting sample credit nobody` : "", found.unnamed ? `${count(found.unnamed)} have only withheld samples` : ""].filter(Boolean).join("; ");
  const [first] = found.contributors;
  const words = `Lorenz curve. Gini of the credit ${interval(found.gini, true)}, of the samples ${found.gini_samples.toFixed(3)}.`;
  return [
    el("div", { class: "tiles" },
      tile(`${count(found.supported)} of ${count(found.queries)}`, `answers share their credit${apart ? `; ${apart}` : ""}`),
      tile(count(found.contributors.filter((one) => one.listed).length), "contributors with a sample that may be named"),
      tile(found.gini.value === null ? "–" : found.gini.value.toFixed(3), found.gini.low === null ? found.gini.why ?? "Gini of the credit" : `Gini of the credit (${found.gini.low.toFixed(3)} to ${found.gini.high.toFixed(3)})`),
      tile(found.gini_samples.toFixed(3), "Gini of the number of samples")),
    first ? el("div", { class: "credit-figures" },
      el("section", { class: "card stack" }, el("h2", {}, "Credit of the contributors"), bars(found), el("p", { class: "muted small" }, `The line over a bar is the 95 % interval over draws of the queries. Counted: ${found.counted ?? (found.k ? `the ${found.k} largest weights` : "all weights")}.`)),
      el("section", { class: "card stack" }, el("h2", {}, "How equal it is"), lorenz(found.lorenz, found.lorenz_samples, words))) : el("p", { class: "empty" }, "Nobody is credited: no answer has a sample that may be named."),
    found.top.some((one) => one.samples.length) ? el("section", { class: "card stack" }, el("h2", {}, "Samples with the most credit"), leading(context, found)) : null,
    first ? el("section", { class: "card stack" }, el("div", { class: "row apart" }, el("h2", {}, "All contributors"),
      el("button", { type: "button", class: "button small", onClick: () => save(creditCsv(found), "credit.csv", "text/csv") }, "Save CSV")), table(found)) : null,
  ].filter(Boolean);
}

// The ROC of a run: how well members are told from others, linear and logarithmic, with what is found at few false alarms.
import { clear, count, el, interval, percent, scrolling } from "../dom.js";
import { chart, whisker } from "./plots.js";

const SHOWN = 6; // curves in one chart

/** The card for the server's answer to /membership/roc. */
export function rocCard(roc) {
  const place = el("div", { class: "two" });
  const decides = roc.curves.find((one) => one.decides) ?? roc.curves[0];
  const every = el("input", { type: "checkbox", onChange: draw });
  function draw() {
    clear(place).append(...charts(every.checked ? roc.curves.slice(0, SHOWN) : [decides], roc.nonmembers));
  }
  draw();
  return el("section", { class: "card stack roc", "aria-label": "ROC of the run" },
    el("div", { class: "row apart" },
      el("h2", {}, "How well this run tells members from others"),
      el("label", { class: "row small" }, every, "Compare every score")),
    el("p", { class: "muted small" },
      `${count(roc.members)} training pictures against ${count(roc.nonmembers)} pictures that were not trained on. `,
      `Curve: how many members are found when so many others are taken for members; dotted: guessing. The verdicts above go by ${decides.words}.`),
    place,
    table("Figures of every score", ["Score", "AUC", "from 0 to 1", ...decides.at.map((one) => `found at ${Number((one.fpr * 100).toPrecision(6))} % false alarms`)],
      roc.curves.map((one) => row([one.words, one.decides ? el("span", { class: "chip accent" }, "decides") : null], one.auc, one.at))),
    table("Changed copies of members", ["Changed copies of members", "AUC", "from 0 to 1"],
      [...roc.distorted.map((one) => row(one.name, one.auc)), row("a network that saw neither (0.5 is chance)", roc.null_auc)]));
}

function charts(curves, nonmembers) {
  const floor = Math.max(1e-4, 1 / Math.max(10, nonmembers)); // one false alarm: less cannot be seen
  const shown = (value) => percent(value, 0);
  const x = { label: "others taken for members", min: 0, max: 1, shown };
  const y = { label: "members found", min: 0, max: 1, shown };
  const said = curves.map((one) => `${one.words}, AUC ${interval(one.auc, true)}`).join("; ");
  const lines = curves.map((one) => ({ name: one.words, points: one.points }));
  const reached = curves.map((one) => ({ name: one.words, points: from(one.points, floor) }));
  return [
    el("div", {}, el("h3", {}, "Linear"),
      chart({ lines, x, y, words: `ROC curve, linear axis: ${said}`, diagonal: true })),
    el("div", {}, el("h3", {}, "Few false alarms (logarithmic)"),
      chart({ lines: reached, x: { ...x, min: floor, log: true }, y, words: `ROC curve, logarithmic axis: ${said}`, diagonal: true })),
  ];
}

// a curve that starts below the logarithmic axis enters it at its floor
function from(points, floor) {
  const before = points.filter(([x]) => x <= floor).at(-1);
  return [...(before ? [[floor, before[1]]] : []), ...points.filter(([x]) => x > floor)];
}

function table(label, head, rows) {
  return scrolling(label, el("table", { class: "table" },
    el("thead", {}, el("tr", {}, head.map((words) => el("th", { scope: "col" }, words)))), el("tbody", {}, rows)));
}

function row(name, auc, at = []) {
  const few = (one) => el("span", { class: "muted small", title: one.why ?? "" }, "too few pictures");
  return el("tr", {},
    el("th", { scope: "row", class: "cell-name" }, name),
    el("td", {}, interval(auc, true)),
    el("td", {}, whisker(auc, `AUC ${interval(auc, true)}`)),
    at.map((one) => el("td", {}, one.value === null ? few(one) : interval(one))));
}

// How a run was trained, epoch by epoch: curves, and the same as a table.
import { el, scrolling } from "../dom.js";
import { chart } from "./plots.js";

/** The curves of /run/curves; series of one kind share a chart. */
export function trainingCard(found) {
  const { epochs, series, history } = found;
  if (!epochs.length && !history) return el("p", { class: "empty" }, "No log was kept with this run.");
  const of = (kind) => series.filter((one) => kind.test(one.name)).map((one) => line(readable(one.name), epochs, one.values));
  const charts = [
    { name: "Loss", lines: of(/loss|divergence|reconstruction/), over: epochs, y: { min: 0 } },
    { name: "Accuracy", lines: of(/accuracy/), over: epochs, y: { min: 0, max: 1 } },
  ];
  if (history) {
    const lines = [line("median", history.epochs, history.median), line("highest tenth", history.epochs, history.p90)];
    charts.push({ name: "Class loss over all samples", lines, over: history.epochs, y: { min: 0 } });
  }
  return [
    el("div", { class: "three" }, charts.filter((one) => one.lines.length).map(drawn)),
    el("details", {}, el("summary", { class: "small" }, "As a table"), table(epochs, series)),
  ];
}

function drawn({ name, lines, over, y }) {
  const x = { label: "epoch", min: over[0], max: over.at(-1), whole: true };
  const words = `${name} by epoch: ${lines.map((one) => `${one.name} ends at ${last(one.points)}`).join(", ")}`;
  return el("div", {}, el("h3", {}, name), chart({ lines, x, y, height: 210, words }));
}

function table(epochs, series) {
  const head = ["epoch", ...series.map((one) => readable(one.name))].map((name) => el("th", { scope: "col" }, name));
  const row = (epoch, i) => el("tr", {}, el("th", { scope: "row" }, epoch), series.map((one) => el("td", {}, rounded(one.values[i]))));
  return scrolling("Every epoch",
    el("table", { class: "table" }, el("thead", {}, el("tr", {}, head)), el("tbody", {}, epochs.map(row))));
}

const line = (name, epochs, values) => ({ name, points: epochs.map((epoch, i) => [epoch, values[i] ?? null]) });
const readable = (name) => name.replaceAll("_", " ");
const rounded = (value) => (value === null || value === undefined ? "–" : Number(value.toPrecision(4)));
const last = (points) => rounded(points.filter((point) => point[1] !== null).at(-1)?.[1]);

// How unequal the credit is: the Lorenz curve, beside the one of the samples themselves.
import { el, svg } from "../dom.js";

const SIDE = 260, PAD = 34;
const x = (value) => PAD + value * (SIDE - PAD - 8);
const y = (value) => SIDE - PAD - value * (SIDE - PAD - 8);
const line = (points) => points.map(([a, b], i) => `${i ? "L" : "M"}${x(a).toFixed(1)} ${y(b).toFixed(1)}`).join("");

/** The figure; the curves are [[share of contributors, share of credit], …] from (0, 0) to (1, 1). */
export function lorenz(credit, samples, words) {
  const ticks = [0, 0.5, 1].flatMap((value) => [
    svg("text", { x: x(value), y: SIDE - PAD + 16, "text-anchor": value === 0 ? "start" : value === 1 ? "end" : "middle" }, `${100 * value} %`),
    svg("text", { x: PAD - 6, y: y(value) + 4, "text-anchor": "end" }, `${100 * value}`),
    svg("path", { d: `M${x(0)} ${y(value)}H${x(1)}`, class: "rule" }),
  ]);
  return el("figure", { class: "lorenz" },
    svg("svg", { viewBox: `0 0 ${SIDE} ${SIDE}`, role: "img", "aria-label": words }, ticks,
      svg("path", { d: line([[0, 0], [1, 1]]), class: "even" }), svg("path", { d: line(samples), class: "samples" }), svg("path", { d: line(credit), class: "credit" }),
      svg("text", { x: x(0.5), y: SIDE - 2, "text-anchor": "middle" }, "contributors, the smallest first")),
    el("figcaption", { class: "row small muted lorenz-key" }, key("credit", "credit"), key("samples", "samples"), key("even", "equal")));
}

const key = (kind, words) => el("span", { class: "row" }, svg("svg", { viewBox: "0 0 24 8", width: 24, height: 8, "aria-hidden": "true" }, svg("path", { d: "M0 4H24", class: kind })), words);

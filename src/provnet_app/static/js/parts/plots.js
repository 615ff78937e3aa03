// Curves as SVG, drawn at the width they get, so that their text keeps its size on a phone.
import { clear, el, svg } from "../dom.js";
import { number, scale } from "./scales.js";

const NUMBERS = 46; // left of the axis, with its numbers
const NAME = 18; // more, for what the axis is
const RIGHT = 22;
const TOP = 10;
const BOTTOM = 38;
const STYLES = 6; // kinds of lines: colour and dashes, see the style sheet

/**
 * A chart with a legend. `lines`: [{name, points: [[x, y], …]}]; `x`, `y`: {label, min, max, log, shown};
 * `words` describes it to those who do not see it; `diagonal` draws the line of chance.
 */
export function chart({ lines, x, y, words, height = 240, diagonal = false }) {
  const picture = svg("svg", { class: "plot", role: "img", "aria-label": words, height });
  const read = el("p", { class: "readout small num", "aria-hidden": "true" });
  const box = el("figure", { class: "chart" }, legend(lines), picture, read);
  const all = lines.flatMap((line) => line.points);
  const xs = scale(x, all.map((point) => point[0]));
  const ys = scale(y, all.map((point) => point[1]));
  const floor = height - BOTTOM, left = NUMBERS + (y.label ? NAME : 0);
  let width = 0;
  const across = (value) => left + xs.place(value) * (width - left - RIGHT);
  const down = (value) => floor - ys.place(value) * (floor - TOP);
  const mark = svg("line", { class: "cursor", y1: TOP, y2: floor, visibility: "hidden" });

  function draw() {
    clear(picture).setAttribute("viewBox", `0 0 ${width} ${height}`);
    picture.setAttribute("width", width);
    for (const value of xs.ticks) {
      const at = across(value);
      picture.append(svg("line", { class: "rule", x1: at, x2: at, y1: TOP, y2: floor }));
      picture.append(svg("text", { x: at, y: floor + 16, "text-anchor": "middle" }, xs.shown(value)));
    }
    for (const value of ys.ticks) {
      const at = down(value);
      picture.append(svg("line", { class: "rule", x1: left, x2: width - RIGHT, y1: at, y2: at }));
      picture.append(svg("text", { x: left - 6, y: at + 4, "text-anchor": "end" }, ys.shown(value)));
    }
    if (diagonal) picture.append(svg("path", { class: "chance", d: path(xs.between(60).map((value) => [value, value])) }));
    lines.forEach((line, i) => {
      picture.append(svg("path", { class: `line line-${i % STYLES}`, d: path(line.points) }));
      const there = line.points.filter(seen);
      if (there.length === 1) picture.append(svg("circle", { class: `line point line-${i % STYLES}`, r: 3, cx: across(there[0][0]), cy: down(there[0][1]) }));
    });
    const middle = (left + width - RIGHT) / 2;
    if (y.label) picture.append(svg("text", { class: "axis", transform: `translate(12 ${(TOP + floor) / 2}) rotate(-90)`, "text-anchor": "middle" }, y.label));
    picture.append(svg("text", { class: "axis", x: middle, y: height - 4, "text-anchor": "middle" }, x.label), mark);
  }
  // a point that is missing, or that a logarithmic axis cannot show, leaves a gap
  const seen = ([a, b]) => b !== null && Number.isFinite(b) && (!x.log || a > 0) && (!y.log || b > 0);
  function path(points) {
    return points.map((point, i) => {
      if (!seen(point)) return "";
      const go = i > 0 && seen(points[i - 1]) ? "L" : "M";
      return `${go}${across(point[0]).toFixed(1)} ${down(point[1]).toFixed(1)}`;
    }).join("");
  }
  function nearest(points, place) {
    const far = (point) => Math.abs(xs.place(point[0]) - place);
    return points.filter(seen).reduce((best, point) => (best && far(best) <= far(point) ? best : point), null);
  }

  picture.addEventListener("pointermove", (event) => {
    const place = (event.clientX - picture.getBoundingClientRect().left - left) / (width - left - RIGHT);
    const near = lines.map((line) => [line.name, nearest(line.points, place)]).filter(([, point]) => point);
    if (!near.length) return;
    const at = near[0][1][0];
    for (const end of ["x1", "x2"]) mark.setAttribute(end, across(at));
    mark.setAttribute("visibility", "visible");
    const values = near.map(([name, point]) => `${lines.length > 1 ? `${name} ` : ""}${number(point[1])}`);
    read.textContent = `${x.label} ${number(at)}: ${values.join(", ")}`;
  });
  picture.addEventListener("pointerleave", () => {
    mark.setAttribute("visibility", "hidden");
    read.textContent = "";
  });
  new ResizeObserver(() => {
    const now = Math.floor(box.clientWidth);
    if (now <= 80 || now === width) return;
    width = now;
    draw();
  }).observe(box);
  return box;
}

function legend(lines) {
  const key = (i) => svg("svg", { width: 22, height: 10, "aria-hidden": "true" },
    svg("path", { class: `line line-${i % STYLES}`, d: "M1 5H21" }));
  return el("ul", { class: "legend small" }, lines.length > 1 ? lines.map((line, i) => el("li", {}, key(i), line.name)) : null);
}

/** A share with its interval as a dot on a line from 0 to 1. */
export function whisker(figure, words) {
  const at = (value) => `${Math.max(0, Math.min(1, value)) * 100}%`;
  if (figure.value === null || figure.value === undefined) {
    return el("span", { class: "muted small" }, figure.why ?? "not measured");
  }
  const known = figure.low !== null && figure.low !== undefined;
  const span = { left: at(figure.low), width: `${Math.max(0, figure.high - figure.low) * 100}%` };
  return el("div", { class: "whisker", role: "img", "aria-label": words },
    known ? el("i", { class: "span", style: span }) : null,
    el("i", { class: "dot", style: { left: at(figure.value) } }));
}

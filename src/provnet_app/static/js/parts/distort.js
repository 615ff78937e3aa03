// Distorting the query: which sliders there are, and their card.
import { el } from "../dom.js";
import { slider } from "./sliders.js";

const share = (x) => `${Math.round(x * 100)} %`;
const signed = (x) => `${x > 0 ? "+" : ""}${Math.round(x * 100)} %`;

/** Name in the interface of the server, words, range, value of rest, and how the value is written. */
export const DISTORTIONS = [
  { name: "noise", label: "Noise", min: 0, max: 1, step: 0.01, value: 0, shown: share },
  { name: "shift_x", label: "Shift right", min: -0.5, max: 0.5, step: 0.01, value: 0, shown: signed },
  { name: "shift_y", label: "Shift down", min: -0.5, max: 0.5, step: 0.01, value: 0, shown: signed },
  { name: "rotation", label: "Rotation", min: -180, max: 180, step: 1, value: 0, shown: (x) => `${x}°` },
  { name: "blur", label: "Blur", min: 0, max: 10, step: 0.1, value: 0, shown: (x) => `${x.toFixed(1)} px` },
  { name: "occlusion", label: "Occlusion", min: 0, max: 1, step: 0.01, value: 0, shown: share },
  { name: "occlusion_x", label: "… from left", min: 0, max: 1, step: 0.01, value: 0.5, shown: share, of: "occlusion" },
  { name: "occlusion_y", label: "… from top", min: 0, max: 1, step: 0.01, value: 0.5, shown: share, of: "occlusion" },
];

/** The card; `values` is changed in place and `changed()` called. Some sliders matter only while another is not at rest. */
export function distortCard(values, changed) {
  const sliders = DISTORTIONS.map((one) => ({
    ...one,
    ...slider({ ...one, value: values[one.name] ?? one.value, moved: (value) => { values[one.name] = value; tidy(); changed(); } }),
  }));
  const reset = el("button", { type: "button", class: "button small", onClick: () => {
    for (const one of sliders) {
      delete values[one.name];
      one.set(one.value);
    }
    tidy();
    changed();
  } }, "Reset");
  function tidy() {
    for (const one of sliders) if (one.of) one.node.hidden = !values[one.of];
    reset.disabled = sliders.every((one) => (values[one.name] ?? one.value) === one.value);
  }
  tidy();
  // on a phone the sliders would push the answer off the screen: closed until asked for
  const open = matchMedia("(min-width: 861px)").matches || !reset.disabled;
  const node = el("details", { class: "card distort", open }, el("summary", {}, el("h2", {}, "Distort it")),
    el("div", { class: "stack tight" }, sliders.map((one) => one.node), el("div", { class: "row" }, reset)));
  return { node };
}

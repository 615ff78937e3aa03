// How exemplars are weighed: by the index branch alone, or jointly with the class branch.
import { el } from "../dom.js";

const WORDS = { plain: "plain weights", joint: "joint weights" };

/** What joint weights are, in a sentence. */
export const JOINT = "A weight is the probability of the sample's class times its share among the samples of that class.";

/** A choice that calls `chosen(weights)`; null for a run whose weights are the same either way. */
export function weightsChoice(run, now, chosen) {
  if (run.weights.length < 2) return null;
  return el("select", { name: "weights", "aria-label": "How samples are weighed", onChange: (event) => chosen(event.target.value) },
    run.weights.map((one) => el("option", { value: one, selected: one === now }, WORDS[one])));
}

// How exemplars are weighed: by the index branch alone, or jointly with the class branch.
import { el } from "../dom.js";

/** Weights -> [their name in the choice, the heading above the samples, what a weight says]. Three questions, never mixed. */
const WEIGHTS = {
  plain: ["recognised", "The network recognises these training samples", "A weight says how much of what the network recognises goes to a sample. It does not say what the answer would be without it."],
  joint: ["recognised, with the class", "The network recognises these training samples", "A weight is the probability of the sample's class times its share among the samples of that class. It does not say what the answer would be without it."],
  influence: ["depends on", "The answer depends on these training samples", "A weight foretells how the answer would change if the network had been trained without the sample."],
};

/** The heading above samples with such weights. */
export const heading = (weights) => WEIGHTS[weights]?.[1] ?? "Training samples";

/** What such a weight says, in a sentence. */
export const meaning = (weights) => WEIGHTS[weights]?.[2] ?? "";

/** A choice that calls `chosen(weights)`; null for a run whose weights are the same either way. */
export function weightsChoice(run, now, chosen) {
  if (run.weights.length < 2) return null;
  return el("select", { name: "weights", "aria-label": "What the weights say", onChange: (event) => chosen(event.target.value) },
    run.weights.map((one) => el("option", { value: one, selected: one === now }, WEIGHTS[one]?.[0] ?? one)));
}

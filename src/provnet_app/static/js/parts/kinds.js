// Kinds of suspects: what each is called, and what it means. Samples that are no pictures have names of their own.
import { el } from "../dom.js";

/** Kind -> [its name, the name of many, what it means], the most urgent first. */
export const KINDS = {
  conflict: ["several labels", "under several labels", "The same content stands under several labels: at least one of them is wrong."],
  wrong: ["wrong label", "wrong labels", "Another label is more probable than the one given."],
  bad: ["bad picture", "bad pictures", "The picture shows next to nothing: one colour, or no detail."],
  foreign: ["something else", "of no class", "It probably belongs to none of the classes."],
  ambiguous: ["between two classes", "between two classes", "It lies between two classes: people may disagree about it, too."],
  duplicate: ["duplicate", "duplicates", "It is the same as another sample, or nearly the same."],
};
export const SUSPICIOUS = Object.keys(KINDS).filter((kind) => kind !== "duplicate");

/** The kind of a sample as a chip; nothing where nothing is wrong. */
export function kindChip(item) {
  if (!item.kind) return null;
  const [name, , about] = KINDS[item.kind];
  return el("span", { class: `chip ${item.kind === "duplicate" ? "" : "bad"}`, title: about }, name);
}

const NOUNS = { image: ["picture", "pictures"], text: ["text", "texts"], table: ["row", "rows"] };

/** What one sample of a run is called, or `many` of them. */
export function noun(run, many = false) {
  return (NOUNS[run.input.kind] ?? ["sample", "samples"])[many ? 1 : 0];
}

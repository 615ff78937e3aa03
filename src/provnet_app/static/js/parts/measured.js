// What was measured of a run: shares with their intervals, and trust checks with what they must reach.
import { count, el, interval, scrolling } from "../dom.js";
import { whisker } from "./plots.js";

const UNSEEN = "On samples it never saw";
const OWN = "On its own training samples";
const SEEN = "test_in_training"; // no measure: how many of the test samples are not unseen
/** Where a measure belongs, and what it says. */
const MEASURES = {
  class_accuracy: [UNSEEN, "Class accuracy", "The answer is the given label."],
  any_at_1: [UNSEEN, "First sample fits", "The first exemplar is of the right class."],
  any_at_5: [UNSEEN, "One of five fits", "At least one of five exemplars is of the right class."],
  any_at_10: [UNSEEN, "One of ten fits", "At least one of ten exemplars is of the right class."],
  majority_at_1: [UNSEEN, "Majority of one", "The first exemplar is of the right class."],
  majority_at_5: [UNSEEN, "Majority of five", "Most of five exemplars are of the right class."],
  majority_at_10: [UNSEEN, "Majority of ten", "Most of ten exemplars are of the right class."],
  index_accuracy: [OWN, "Finds itself", "Given a training sample, the network names that very sample first."],
  index_at_5: [OWN, "Among the first five", "Given a training sample, that sample is among the first five."],
  index_accuracy_perturbed: [OWN, "Finds itself", "Given a changed copy of a training sample, the network names that sample first."],
  index_accuracy_learned: [OWN, "Finds itself, learned keys", "By the keys that the network learned, before it was told its features."],
  index_ceiling: [OWN, "Largest possible", "Equal samples cannot be told apart."],
  class_accuracy_train: [OWN, "Class accuracy", "The predicted class is the right one."],
  stage_1: [OWN, "Stage 1", "The class is right."],
  stage_2: [OWN, "Stage 2", "The sample is right, given the class."],
  end_to_end: [OWN, "End to end", "Class and sample are right."],
  supported: ["Support", "Supported", "The share of answers that training samples support."],
};
const GROUPS = { noise: "under noise", shift: "moved", jpeg: "as JPEG", test: "test", train: "training" };

/** Tables of the evaluation, one for each kind of data. */
export function evaluationCard({ measures: all }) {
  const seen = all.find((one) => one.name === SEEN)?.value ?? 0;
  const measures = all.filter((one) => one.name !== SEEN);
  if (!measures.length) return el("p", { class: "empty" }, "Not evaluated yet: run ", el("code", {}, "provnet evaluate RUN"), " in a terminal.");
  const parts = new Map();
  for (const one of measures) {
    const joint = one.name.startsWith("joint_"), known = MEASURES[joint ? one.name.slice(6) : one.name];
    const [part, name, words] = known ? [known[0], joint ? `${known[1]}, with the class` : known[1], known[2]] : ["Other", one.name.replaceAll("_", " "), ""];
    const shown = one.group ? `${name}, ${GROUPS[one.group] ?? one.group}` : name;
    parts.set(part, [...(parts.get(part) ?? []), { ...one, words, shown }]);
  }
  const order = [...Object.keys(MEASURES).flatMap((name) => [name, `joint_${name}`]), ...all.map((one) => one.name)]; // what has no name here comes last
  return [...parts].sort((a, b) => order.indexOf(a[1][0].name) - order.indexOf(b[1][0].name)).map(([part, rows]) => el("div", {},
    el("h3", {}, part === UNSEEN && seen ? `On test samples, ${count(seen)} of them trained on` : part),
    scrolling(part, el("table", { class: "table measures" }, el("tbody", {},
      rows.sort((a, b) => order.indexOf(a.name) - order.indexOf(b.name)).map((one) => el("tr", {},
        el("th", { scope: "row", class: "cell-name", title: one.words }, one.shown),
        el("td", { class: "whisker-cell" }, isShare(one) ? whisker(one, `${one.shown}: ${interval(one)}`) : null),
        el("td", { class: "small" }, interval(one, !isShare(one))))))))));
}

function isShare(one) {
  return one.value === null || (one.value >= 0 && one.value <= 1);
}

/** The trust checks: what each says, whether it holds, its figure and its bar. */
export function checksCard({ outcomes, current, how }) {
  if (!outcomes.length) return el("p", { class: "empty" }, "Not checked yet: run ", el("code", {}, how), " in a terminal.");
  const groups = [...new Set(outcomes.map((one) => one.group))];
  return [
    current ? null : el("p", { class: "note small" },
      "The samples of the run changed since these checks: run ", el("code", {}, how), " again."),
    groups.map((group) => el("div", {},
      group ? el("h3", {}, group[0].toUpperCase() + group.slice(1)) : null,
      el("ul", { class: "checks" }, outcomes.filter((one) => one.group === group).map(check)))),
  ];
}

function check(one) {
  const [kind, words] = one.passed === null ? ["", "not judged"] : one.passed ? ["good", "passed"] : ["bad", "failed"];
  const about = [one.figure ? interval(one.figure, !one.percent) : "", one.bar ? `must be ${one.bar}` : "", one.note ?? ""];
  return el("li", {},
    el("span", { class: `chip ${kind}` }, words),
    el("div", {},
      el("p", {}, one.words || one.name),
      el("p", { class: "muted small" }, about.filter(Boolean).join("; "))));
}

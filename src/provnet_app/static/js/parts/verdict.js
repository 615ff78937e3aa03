// The verdict on a picture: was it in, how sure, which sample, what agrees.
import { count, el, named } from "../dom.js";
import { noun } from "./kinds.js";
import { inWords } from "./words.js";
import { zoomable } from "./zoom.js";

/** What the server calls a verdict: the words for it, the words in a count, the colour. */
const VERDICTS = {
  member: ["Trained on", "trained on", "accent", "="],
  "distorted copy of a member": ["A changed copy of a training sample", "changed copies", "warn", "≈"],
  "added after training": ["Added after training", "added after training", "warn", "="],
  "not a member": ["Not trained on", "not trained on", "", "?"],
  "cannot say": ["Cannot say", "undecided", "", "?"],
};

/** How many there are of each verdict; `open` of them wait for the audit. */
export function summary(items, open = 0) {
  const counts = Object.entries(VERDICTS)
    .map(([name, [, words, kind]]) => [items.filter((one) => one.verdict === name).length - (name === "cannot say" ? open : 0), words, kind])
    .filter(([n]) => n);
  return el("p", { class: "row" },
    el("strong", {}, `${items.length} asked about:`),
    counts.map(([n, words, kind]) => el("span", { class: `chip ${kind}` }, `${n} ${words}`)), open ? el("span", { class: "chip" }, `${open} not a training sample as ${open === 1 ? "it is" : "they are"}`) : null);
}

/** Samples that are no training sample byte for byte; whether they are changed copies is not known before the audit. */
export function undecided(context, items, names) {
  const { run } = context, one = items.length === 1;
  return el("section", { class: "card stack", "aria-label": "Not decided yet" },
    el("p", {}, `${one ? `This ${noun(run)} is` : `These ${items.length} ${noun(run, true)} are`} not among the training samples: no bytes and no pixels are the same. Whether ${one ? "it is a changed copy" : "one of them is a changed copy"} takes the audit above; the answer then appears here.`),
    el("ol", { class: "own-pictures" }, items.map((item) => el("li", {}, el("div", { class: "small-face" }, face(context, item, item.origin === "upload" || run.exposure !== "ids", names.get(item.sha256) ?? `The ${noun(run)} asked about`))))));
}

/** The card of one verdict; `name` is the file's, where it was a file. */
export function verdict(context, one, name) {
  const { run, link } = context;
  const [words, , kind, sign] = VERDICTS[one.verdict] ?? [one.verdict, "", "", "?"];
  const shown = one.origin === "upload" || run.exposure !== "ids";
  return el("li", { class: "card judged", dataset: { verdict: one.verdict } },
    el("div", { class: "pictures" },
      face(context, one, shown, `The ${noun(run)} asked about`),
      one.match ? el("span", { class: "muted", "aria-hidden": "true" }, sign) : null,
      one.match ? face(context, one.match, one.match.shown, "The training sample") : null),
    el("div", { class: "stack tight" },
      el("div", { class: "row" }, el("span", { class: `chip ${kind}` }, words), name ? named(name, "muted small flow") : null),
      el("p", { class: "small" }, sentence(one.why)),
      sure(one) ? el("p", { class: "small muted" }, sure(one)) : null,
      one.match ? matched(one) : null,
      el("div", { class: "row small links" },
        el("a", { href: link("explain", { hash: one.sha256 }) }, "Explain it"),
        one.match ? el("a", { href: link("data", { id: one.match.sample_id }) }, "Show the sample in the data") : null)));
}

function matched({ verdict: found, match }) {
  const line = (words, ...rest) => el("p", { class: "small row label-line" }, el("span", { class: "none-shrink" }, words), rest);
  return [
    line(found === "cannot say" ? "Nearest candidate:" : "Sample:", named(match.sample_id, "mono")),
    line("Its label:", named(match.label), match.equal > 1 ? el("span", { class: "chip none-shrink" }, `${count(match.equal)} times in the data`) : null),
  ];
}

function sure(one) {
  if (one.p_value === null) return "";
  const value = one.p_value < 0.001 ? "< 0.001" : `= ${one.p_value.toFixed(one.p_value < 0.1 ? 3 : 2)}`;
  return `p ${value}, from ${count(one.heldout)} held-out samples.`;
}

function face(context, one, shown, words) {
  const text = inWords(one);
  if (text) return text;
  if (!shown || !context.run.input.picture) return el("span", { class: "picture none" }, "not shown");
  return zoomable(context, { sha256: one.sha256 }, { size: 160, alt: words });
}

function sentence(words) {
  return words ? `${words[0].toUpperCase()}${words.slice(1)}${/[.!?]$/.test(words) ? "" : "."}` : "";
}

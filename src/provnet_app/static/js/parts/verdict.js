// The verdict on a picture: was it in, how sure, which sample, what agrees.
import { count, el, named } from "../dom.js";
import { zoomable } from "./zoom.js";

/** What the server calls a verdict: the words for it, the words in a count, the colour. */
const VERDICTS = {
  member: ["It was in", "in", "accent", "="],
  "distorted copy of a member": ["A changed copy of one that was in", "changed copies", "warn", "≈"],
  "added after training": ["Added after training", "added later", "warn", "="],
  "not a member": ["It was not in", "not in", "", "?"],
  "cannot say": ["Cannot say", "cannot say", "", "?"],
};
const AGREES = {
  bytes: "every byte", pixels: "every pixel", content: "the content, not every pixel", nothing: "neither bytes nor pixels",
};

/** How many were in, and how many were not. */
export function summary(items) {
  const counts = Object.entries(VERDICTS)
    .map(([name, [, words, kind]]) => [items.filter((one) => one.verdict === name).length, words, kind])
    .filter(([n]) => n);
  return el("p", { class: "row" },
    el("strong", {}, `${items.length} ${items.length === 1 ? "picture" : "pictures"}:`),
    counts.map(([n, words, kind]) => el("span", { class: `chip ${kind}` }, `${n} ${words}`)));
}

/** The card of one verdict; `name` is the file's, where it was a file. */
export function verdict(context, one, name) {
  const { run, link } = context;
  const [words, , kind, sign] = VERDICTS[one.verdict] ?? [one.verdict, "", "", "?"];
  const shown = one.origin === "upload" || run.exposure !== "ids";
  return el("li", { class: "card judged", dataset: { verdict: one.verdict } },
    el("div", { class: "pictures" },
      face(context, one.sha256, shown, "The picture asked about"),
      one.match ? el("span", { class: "muted", "aria-hidden": "true" }, sign) : null,
      one.match ? face(context, one.match.sha256, one.match.shown, "The training sample") : null),
    el("div", { class: "stack tight" },
      el("div", { class: "row" }, el("span", { class: `chip ${kind}` }, words), name ? named(name, "muted small flow") : null),
      el("p", { class: "small" }, sentence(one.why)),
      el("p", { class: "small muted" }, sure(one)),
      one.match ? matched(one) : null,
      el("div", { class: "row small links" },
        el("a", { href: link("explain", { hash: one.sha256 }) }, "explain it"),
        one.match ? el("a", { href: link("data", { id: one.match.sample_id }) }, "show the sample in the data") : null)));
}

function matched({ verdict: found, match }) {
  const line = (words, ...rest) => el("p", { class: "small row label-line" }, el("span", { class: "none-shrink" }, words), rest);
  return [
    line(found === "cannot say" ? "Nearest candidate:" : "Sample:", named(match.sample_id, "mono")),
    line("Its label:", named(match.label), match.equal > 1 ? el("span", { class: "chip none-shrink" }, `${count(match.equal)} times in the data`) : null),
  ];
}

function sure(one) {
  const agrees = `What agrees: ${AGREES[one.agrees] ?? one.agrees}.`;
  if (one.p_value === null) return `${agrees} No p-value yet: whether it is a changed copy takes the audit above.`;
  const value = one.p_value < 0.001 ? "< 0.001" : `= ${one.p_value.toFixed(one.p_value < 0.1 ? 3 : 2)}`;
  return `${agrees} p ${value} against ${count(one.heldout)} held-out pictures.`;
}

function face(context, hash, shown, words) {
  if (!shown || !context.run.input.picture) return el("span", { class: "picture none" }, "not shown");
  return zoomable(context, { sha256: hash }, { size: 160, alt: words });
}

function sentence(words) {
  return words ? `${words[0].toUpperCase()}${words.slice(1)}${/[.!?]$/.test(words) ? "" : "."}` : "";
}

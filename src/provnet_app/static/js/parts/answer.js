// What was asked, what the network answers, and what changes when samples are left out.
import { bar, el, named, percent, scrolling } from "../dom.js";
import { byLabel } from "./exemplars.js";
import { noun } from "./kinds.js";
import { inWords } from "./words.js";
import { similarButton, zoomable } from "./zoom.js";

const ORIGINS = { upload: "Your", training: "Training sample", test: "Test sample", pixels: "Your values" };

/** What is explained, with ways to go on from it; `asked` is what the server was asked about. */
export function queryCard(context, answer, asked) {
  const { run, link } = context;
  const { query, picture, distorted } = answer;
  const origin = query.origin === "upload" ? `Your ${noun(run)}` : ORIGINS[query.origin];
  const from = query.resized_from;
  return [
    el("div", { class: "row apart" }, el("h2", {}, origin), distorted ? el("span", { class: "chip accent" }, "distorted") : null),
    inWords(query) ?? (!picture ? el("div", { class: "picture none" }, `${noun(run)} not shown`)
      : query.origin === "pixels" ? el("div", { class: "picture" }, el("img", { src: picture, alt: origin }))
      : zoomable(context, { ...query, similar: false }, distorted ? { src: picture, alt: `What the network saw: ${origin}` } : { size: 520, alt: origin })),
    el("div", { class: "stack tight small" },
      query.sample_id ? named(query.sample_id, "mono") : null,
      query.label === null ? null : el("div", { class: "row label-line" },
        el("span", { class: "none-shrink" }, "Label:"), named(query.label)),
      from ? el("span", { class: "muted" }, `${from[1]} × ${from[0]} pixels; the network sees ${query.width} × ${query.height}.`) : null,
      run.training_pictures.available && (picture || query.text) ? el("div", { class: "row" }, similarButton(context, asked)) : null,
      query.origin === "pixels" ? null : el("div", { class: "row links" },
        el("a", { href: link("map", { query: query.sha256 }) }, "On the map"),
        el("a", { href: link("membership", { hash: query.sha256 }) }, "Was it trained on?"),
        query.origin === "training" ? el("a", { href: link("data", { id: query.sample_id }) }, "In the data") : null,
        run.views.includes("generate") ? el("a", { href: link("generate", { hash: query.sha256 }) }, "Make others from it") : null)),
  ];
}

/** Prediction, confidence, whether any training sample supports it, the best classes. */
export function answerCard(answer) {
  const { query, predicted, classes } = answer;
  const long = predicted.label.length > 24 ? " long" : "";
  return el("section", { class: "card answer", "aria-label": "Answer" },
    el("div", { class: "stack" },
      el("span", { class: "over" }, "Predicted"),
      el("div", { class: "row" },
        named(predicted.label, `lines predicted${long}`),
        query.class === null ? null : rightOrWrong(query, predicted)),
      el("div", { class: "meter" }, bar(answer.confidence, "Confidence"),
        el("span", { class: "num" }, percent(answer.confidence), el("span", { class: "muted" }, " confidence"))),
      answer.supported ? el("p", { class: "muted small support" }, el("strong", {}, "Supported. "), evidence(answer)) : unsupported(answer),
      answer.warning ? el("p", { class: "note small" }, answer.warning) : null),
    classes.length ? el("ol", { class: "classes", "aria-label": "Best classes" }, classes.map((one) => el("li", {},
      named(one.label),
      bar(one.share, `Probability of ${one.label}`, one.class === predicted.class ? "" : "faint"),
      el("span", { class: "num" }, percent(one.share))))) : null);
}

function rightOrWrong(query, predicted) {
  const right = query.class === predicted.class;
  return el("span", { class: `chip ${right ? "good" : "bad"}` }, right ? "agrees with the label" : ["label: ", named(query.label, "flow")]);
}

function evidence({ right }) {
  return typeof right === "number" ? `Held-out answers with such evidence are right in ${right > 0.995 ? "more than 99 %" : percent(right, 0)} of cases.` : "It is as close to the training samples of its class as slightly changed training samples are.";
}

function unsupported({ right, threshold }) {
  const why = typeof right !== "number" ? "Nothing in the training data is close enough. The samples below are the nearest ones, not evidence."
    : right === 0 ? "It looks like nothing in the training data. The samples below are the nearest ones, not evidence."
    : `Held-out answers with such evidence are right in ${percent(right, 0)} of cases; ${percent(threshold, 0)} are needed. The samples below are the nearest ones.`;
  return el("p", { class: "note support" }, el("strong", {}, right ? "Not supported" : "No supporting sample"), why);
}

/** Before and after: what was left out, what the samples speak for now. `back(hash)` takes one back, `back()` all. */
export function changesCard(context, before, now, without, back) {
  const [then, after] = [new Map(byLabel(before)), new Map(byLabel(now))];
  const labels = [...new Set([...then.keys(), ...after.keys()])].slice(0, 6);
  const same = before.predicted.class === now.predicted.class;
  return el("section", { class: "card stack changes", "aria-label": "What changes" },
    el("div", { class: "row apart" }, el("h2", {}, "Without these samples"),
      el("button", { type: "button", class: "button small", onClick: () => back() }, "Take all back")),
    el("ul", { class: "left-out", "aria-label": "Samples left out" },
      without.map((one) => el("li", {}, leftOut(context, one, back)))),
    el("p", {}, `They had ${percent(now.without.weight)} of the weight. `,
      same
        ? "The answer stays the same; "
        : ["The answer changes from ", named(before.predicted.label, "flow"), " to ", named(now.predicted.label, "flow"), "; "],
      "their weight goes to the other samples. Nothing was trained again."),
    scrolling("Weight before and now", el("table", { class: "table" },
      el("thead", {}, el("tr", {},
        ["Listed samples of class", "Weight before", "Weight now"].map((words) => el("th", { scope: "col" }, words)))),
      el("tbody", {}, labels.map((label) => el("tr", {},
        el("th", { scope: "row", class: "cell-name" }, named(label)),
        cell(then.get(label) ?? 0, `Before, ${label}`, "faint"),
        cell(after.get(label) ?? 0, `Now, ${label}`)))))));
}

function leftOut(context, one, back) {
  const words = `Take ${one.sample_id} back`;
  return el("button", { type: "button", class: "chip", "aria-label": words, title: words, onClick: () => back(one.sha256) },
    one.shown ? el("img", { src: context.api.picture(one.sha256), alt: "", width: 28, height: 28 }) : null,
    named(one.sample_id, "mono"),
    el("span", { "aria-hidden": "true" }, "×"));
}

function cell(weight, words, kind = "") {
  return el("td", {}, el("div", { class: "weight" }, bar(weight, words, kind), el("span", { class: "num" }, percent(weight))));
}

/** The answer in one sentence, for those who hear the page. */
export function sayIt(answer) {
  const first = answer.exemplars[0];
  const sure = `Predicted ${answer.predicted.label.slice(0, 60)}, confidence ${percent(answer.confidence)}. `;
  if (!answer.supported) return `${sure}No supporting sample.`;
  return first ? `${sure}First sample ${first.sample_id}, weight ${percent(first.weight)}.` : sure;
}

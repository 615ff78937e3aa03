// Answers: what the run says of its test samples, which classes it takes for which, and what the run beside it says.
import { el, clear, named, count, percent, interval, scrolling } from "../dom.js";
import { ready } from "../parts/jobs.js";
import { trouble } from "../parts/trouble.js";
import { zoomable } from "../parts/zoom.js";

export const title = "Answers";
const PAGE = 24;
const LARGEST = 40; // classes of a table that can still be read
const PAIRS = 24;
const POINTS = 1; // of a percentage

/** Shows the view; query: class, predicted, right, beside_right: which answers are listed. */
export async function show(root, context, query) {
  const { api, run, signal } = context;
  const job = el("div", { class: "jobs-here" }), place = el("div", { class: "stack wide-gap" });
  root.append(el("h1", {}, run.beside ? "Answers to the test samples, of two runs" : "Answers to the test samples"), job, place);
  const load = () => ready(context, "answers", clear(job)).then(async () => {
    const [found, both] = await Promise.all([api.get("/confusion", null, { signal }), run.beside ? api.get("/compare", null, { signal }) : null]);
    drawn(place, context, query, found, both);
  }).catch((error) => { if (!api.stopped(error)) clear(job).append(trouble(error, load)); });
  load();
}

function drawn(place, context, query, found, both) {
  const { run, link } = context, label = (number) => run.classes[number]?.label ?? `class ${number}`;
  const wrong = found.cells.filter((one) => one.class !== one.predicted);
  const list = answerList(context, query);
  const pairs = el("ul", { class: "pairs" }, wrong.slice(0, PAIRS).map(({ class: truth, predicted, samples: n }) => el("li", {},
    el("a", { href: link("answers", { class: truth, predicted }) }, named(label(truth), "flow"), " → ", named(label(predicted), "flow")), el("span", { class: "num muted" }, count(n)))));
  place.append(
    both ? compared(context, both) : null,
    el("section", { class: "card stack", "aria-label": "Confusion" },
      el("div", { class: "row apart" }, el("h2", {}, "Which class is taken for which"),
        el("span", { class: "muted small" }, `${count(found.right)} of ${count(found.n)} are right (${percent(found.right / found.n)}). Choose a cell to see its samples.`)),
      el("div", { class: "confusion-parts" },
        run.classes.length <= LARGEST ? matrix(context, found) : el("p", { class: "muted small" }, `A table of ${count(run.classes.length)} × ${count(run.classes.length)} cells cannot be read: the most frequent mistakes stand beside it.`),
        el("div", { class: "stack tight" }, el("h3", {}, wrong.length ? "Most frequent mistakes" : "No mistakes"), pairs))),
    list);
  if (Object.keys(query).length) list.scrollIntoView({ block: "start" });
}

/** The table: a row for each true class, a column for each predicted one. */
function matrix({ run, link }, { cells }) {
  const n = run.classes.length, counts = new Map(cells.map((one) => [one.class * n + one.predicted, one.samples]));
  const rows = Array.from({ length: n }, (_, truth) => Array.from({ length: n }, (_, predicted) => counts.get(truth * n + predicted) ?? 0));
  const most = rows.map((row) => Math.max(1, row.reduce((a, b) => a + b, 0)));
  const cell = (many, truth, predicted) => el("td", { class: truth === predicted ? "diagonal" : null, style: { "--share": String(many / most[truth]) } },
    many ? el("a", { href: link("answers", { class: truth, predicted }), title: `${run.classes[truth].label} → ${run.classes[predicted].label}: ${count(many)}` }, count(many)) : null);
  return scrolling("Confusion", el("table", { class: "confusion" },
    el("thead", {}, el("tr", {}, el("td", {}), run.classes.map((one) => el("th", { scope: "col" }, el("span", {}, named(one.label)))))),
    el("tbody", {}, rows.map((row, truth) => el("tr", {}, el("th", { scope: "row" }, named(run.classes[truth].label)), row.map((many, predicted) => cell(many, truth, predicted)))))));
}

/** The answers that the address asks for, with the training sample that each names first. */
function answerList(context, query) {
  const { run, api, link, signal, toast } = context;
  const wanted = Object.fromEntries(["class", "predicted", "right", "beside_right"].filter((name) => /^(\d{1,9}|true|false)$/.test(query[name] ?? "")).map((name) => [name, query[name]]));
  if (!Object.keys(wanted).length) wanted.right = "false";
  const words = [
    wanted.class === undefined ? "" : run.classes[Number(wanted.class)]?.label ?? "",
    wanted.predicted === undefined ? "" : `taken for ${run.classes[Number(wanted.predicted)]?.label ?? ""}`,
    wanted.right === undefined ? "" : wanted.right === "true" ? "right here" : "wrong here",
    wanted.beside_right === undefined ? "" : wanted.beside_right === "true" ? `right in ${run.beside}` : `wrong in ${run.beside}`,
  ].filter(Boolean).join(", ");
  const grid = el("ol", { class: "answers" }), told = el("p", { class: "muted small", role: "status" }, "Loading …");
  const more = el("button", { type: "button", class: "button small", hidden: true, onClick: () => load() }, "More");
  const picture = (one, known) => (run.exposure === "ids" || !run.input.picture ? el("span", { class: "picture none" }, "not shown") : zoomable(context, { ...one, known }, { size: 240 }));

  async function load() {
    const offset = grid.children.length;
    try {
      const { total, items } = await api.get("/answers", { ...wanted, offset, limit: PAGE }, { signal });
      told.textContent = `${count(total)} ${total === 1 ? "sample" : "samples"}, the surest first; to the right of each the training sample that the run names first`;
      more.hidden = offset + items.length >= total;
      grid.append(...items.map((one) => el("li", {},
        el("div", { class: "pair" }, picture(one, false), picture(one.first, true)),
        el("div", { class: "answer-words small" },
          el("p", { class: "row" }, el("a", { href: link("explain", { test: one.position }) }, named(one.label, "flow")), el("span", { class: "muted" }, "test")),
          el("p", { class: "row" }, el("span", { class: one.predicted.class === one.class ? "good" : "bad" }, named(one.predicted.label, "flow")), el("span", { class: "num muted" }, percent(one.confidence, 0))),
          el("p", { class: "row" }, el("a", { href: link("data", { id: one.first.sample_id }) }, named(one.first.label, "flow")), el("span", { class: "muted" }, "its first sample")),
          one.beside ? el("p", { class: "row" }, named(one.beside.label, "flow"), el("span", { class: "muted" }, "in "), named(run.beside, "flow muted")) : null))));
    } catch (error) {
      if (!api.stopped(error)) toast(error.message, "bad");
    }
  }
  load();
  return el("section", { class: "card stack", "aria-label": "Samples" },
    el("div", { class: "row apart" }, el("h2", {}, words ? words[0].toUpperCase() + words.slice(1) : "Samples"),
      Object.keys(query).length ? el("a", { class: "small", href: link("answers") }, "all mistakes") : null),
    told, grid, el("div", { class: "row" }, more));
}

/** Two runs side by side: what they got right, what was measured, which settings differ. */
function compared(context, { name, settings, measures, answers }) {
  const { run, link } = context, figure = (one) => (one ? interval(one, one.value !== null && (one.value < 0 || one.value > 1)) : "–");
  const cells = answers && [["both", "right in both", { right: true, beside_right: true }], ["this", `right here, wrong in ${name}`, { right: true, beside_right: false }],
    ["beside", `wrong here, right in ${name}`, { right: false, beside_right: true }], ["neither", "wrong in both", { right: false, beside_right: false }]];
  const table = (words, head, rows) => scrolling(words, el("table", { class: "table" }, el("thead", {}, el("tr", {}, head.map((one) => el("th", { scope: "col" }, one)))), el("tbody", {}, rows)));
  return el("section", { class: "card stack", "aria-label": "Two runs" },
    el("div", { class: "row" }, el("h2", {}, "Side by side:"), named(run.name, "flow"), el("span", { class: "muted" }, "and"), named(name, "flow")),
    answers ? el("div", { class: "tiles" }, cells.map(([key, words, asked]) => el("a", { class: "tile", href: link("answers", asked) }, el("b", {}, count(answers[key])), el("span", {}, words))))
      : el("p", { class: "muted small" }, "The two have no test sample in common."),
    answers ? el("p", {}, el("strong", {}, `${answers.gain.value >= 0 ? "+" : "−"}${(100 * Math.abs(answers.gain.value)).toFixed(POINTS)} points`), ` class accuracy here, 95 %: ${(100 * answers.gain.low).toFixed(POINTS)} to ${(100 * answers.gain.high).toFixed(POINTS)}, ${count(answers.n)} test samples that both answered.`) : null,
    measures.length ? table("Measures of both runs", ["measure", run.name, name], measures.map((one) => el("tr", {}, el("th", { scope: "row", class: "cell-name" }, [one.name, one.group].filter(Boolean).join(", ").replaceAll("_", " ")), el("td", { class: "small" }, figure(one.this)), el("td", { class: "small" }, figure(one.beside))))) : null,
    settings.length ? el("details", {}, el("summary", {}, `${count(settings.length)} settings differ`), table("Settings that differ", ["setting", run.name, name], settings.map((one) => el("tr", {}, el("th", { scope: "row", class: "cell-name" }, one.name), el("td", {}, one.this ?? "–"), el("td", {}, one.beside ?? "–"))))) : el("p", { class: "muted small" }, "No setting differs."));
}

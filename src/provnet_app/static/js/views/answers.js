// Answers: what the run says of its test samples, which classes it takes for which, and what the run beside it says.
import { append, bar, el, clear, named, count, percent, interval, scrolling } from "../dom.js";
import { ready } from "../parts/jobs.js";
import { trouble } from "../parts/trouble.js";
import { inWords } from "../parts/words.js";
import { zoomable } from "../parts/zoom.js";

export const title = "Answers";
const PAGE = 24;
const LARGEST = 40; // classes of a table that can still be read
const FEW = 8; // classes whose names stand side by side
const PAIRS = 24;
const POINTS = 1; // of a percentage

/** Shows the view; query: class, predicted, right, beside_right: which answers are listed. */
export async function show(root, context, query) {
  const { api, run, signal } = context;
  const job = el("div", { class: "jobs-here" }), place = el("div", { class: "stack wide-gap" });
  root.append(el("h1", {}, run.beside ? "Answers of two runs to the test samples" : "Answers to the test samples"), job, place);
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
    el("a", { href: link("answers", { class: truth, predicted }) }, named(label(truth), "lines"), el("span", { class: "muted" }, " answered "), named(label(predicted), "lines")), el("span", { class: "num muted" }, count(n)))));
  append(place,
    both ? compared(context, both) : null,
    el("section", { class: "card stack", "aria-label": "Confusion" },
      el("div", { class: "row apart" }, el("h2", {}, "Labels and answers"),
        el("span", { class: "muted small" }, `${count(found.right)} of ${count(found.n)} answers agree with the label (${percent(found.right / found.n)}). Choose a number to see its samples.`)),
      el("div", { class: "confusion-parts" },
        run.classes.length <= LARGEST ? matrix(context, found) : byClass(context, found),
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
  return scrolling("Confusion", el("table", { class: n <= FEW ? "confusion few" : "confusion" },
    el("thead", {}, el("tr", {}, el("td", {}), run.classes.map((one) => el("th", { scope: "col" }, el("span", {}, named(one.label)))))),
    el("tbody", {}, rows.map((row, truth) => el("tr", {}, el("th", { scope: "row" }, named(run.classes[truth].label)), row.map((many, predicted) => cell(many, truth, predicted)))))));
}

/** Where a table of all pairs would be too large: how often each class is answered right, the worst first. */
function byClass({ run, link }, { cells }) {
  const rows = run.classes.map((one) => ({ ...one, n: 0, right: 0, wrong: [0, null] }));
  for (const { class: truth, predicted, samples } of cells) {
    const row = rows[truth];
    if (!row) continue;
    row.n += samples;
    if (truth === predicted) row.right = samples;
    else if (samples > row.wrong[0]) row.wrong = [samples, predicted];
  }
  rows.sort((a, b) => a.right / Math.max(1, a.n) - b.right / Math.max(1, b.n) || b.n - a.n);
  return scrolling("Answers by class", el("table", { class: "table by-class" },
    el("thead", {}, el("tr", {}, ["label", "test samples", "answered right", "most often answered instead"].map((words, i) => el("th", { scope: "col", class: i === 1 ? "num" : null }, words)))),
    el("tbody", {}, rows.filter((one) => one.n).map((one) => el("tr", {},
      el("th", { scope: "row", class: "cell-name" }, el("a", { href: link("answers", { class: one.class }) }, named(one.label))),
      el("td", { class: "num" }, count(one.n)),
      el("td", {}, el("div", { class: "weight" }, bar(one.right / one.n, `${one.label}: answered right`, "good"), el("span", { class: "num" }, percent(one.right / one.n, 0)))),
      el("td", {}, one.wrong[1] === null ? null : el("a", { href: link("answers", { class: one.class, predicted: one.wrong[1] }) }, named(run.classes[one.wrong[1]].label, "lines"))))))));
}

/** The answers that the address asks for, with the training sample that each names first. */
function answerList(context, query) {
  const { run, api, link, signal, toast } = context;
  const wanted = Object.fromEntries(["class", "predicted", "right", "beside_right"].filter((name) => /^(\d{1,9}|true|false)$/.test(query[name] ?? "")).map((name) => [name, query[name]]));
  if (!Object.keys(wanted).length) wanted.right = "false";
  const words = [
    wanted.class === undefined ? "" : run.classes[Number(wanted.class)]?.label ?? "",
    wanted.predicted === undefined ? "" : `answered ${run.classes[Number(wanted.predicted)]?.label ?? ""}`,
    wanted.right === undefined ? "" : wanted.right === "true" ? "right answers" : "wrong answers",
    wanted.beside_right === undefined ? "" : wanted.beside_right === "true" ? `right in ${run.beside}` : `wrong in ${run.beside}`,
  ].filter(Boolean).join(", ");
  const grid = el("ol", { class: "answers" }), told = el("p", { class: "muted small", role: "status" }, "Loading …");
  const more = el("button", { type: "button", class: "button small", hidden: true, onClick: () => load() }, "More");
  const picture = (one, known) => inWords(one) ?? (run.exposure === "ids" || !run.input.picture ? el("span", { class: "picture none" }, "not shown") : zoomable(context, { ...one, known }, { size: 240 }));

  const line = (words, ...rest) => [el("span", { class: "muted" }, words), el("p", {}, rest)];

  async function load() {
    const offset = grid.children.length;
    try {
      const { total, items } = await api.get("/answers", { ...wanted, offset, limit: PAGE }, { signal });
      told.textContent = `${count(total)} ${total === 1 ? "test sample" : "test samples"}, the most confident answers first. On the right of each: the training sample that the network recognises first.`;
      more.hidden = offset + items.length >= total;
      grid.append(...items.map((one) => el("li", {},
        el("div", { class: "pair" }, picture(one, false), picture(one.first, true)),
        el("div", { class: "answer-words small" },
          line("label", el("a", { href: link("explain", { test: one.position }) }, named(one.label, "lines"))),
          line("answer", el("span", { class: one.predicted.class === one.class ? "good" : "bad" }, named(one.predicted.label, "lines")), el("span", { class: "num muted" }, percent(one.confidence, 0))),
          one.beside ? line("other run", el("span", { class: one.beside.class === one.class ? "good" : "bad" }, named(one.beside.label, "lines"))) : null,
          line("recognised", el("a", { href: link("data", { id: one.first.sample_id }) }, named(one.first.label, "lines")))))));
    } catch (error) {
      if (!api.stopped(error)) toast(error.message, "bad");
    }
  }
  load();
  return el("section", { class: "card stack", "aria-label": "Samples" },
    el("div", { class: "row apart" }, el("h2", {}, words ? words[0].toUpperCase() + words.slice(1) : "Samples"),
      Object.keys(query).length ? el("a", { class: "small", href: link("answers") }, "All wrong answers") : null),
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
      : el("p", { class: "muted small" }, "The two runs have no test sample in common."),
    answers ? el("p", {}, el("strong", {}, `${answers.gain.value >= 0 ? "+" : "−"}${(100 * Math.abs(answers.gain.value)).toFixed(POINTS)} points`), ` accuracy here, 95 %: ${(100 * answers.gain.low).toFixed(POINTS)} to ${(100 * answers.gain.high).toFixed(POINTS)}, on the same ${count(answers.n)} test samples.`) : null,
    measures.length ? table("Measures of both runs", ["measure", run.name, name], measures.map((one) => el("tr", {}, el("th", { scope: "row", class: "cell-name" }, [one.name, one.group].filter(Boolean).join(", ").replaceAll("_", " ")), el("td", { class: "small" }, figure(one.this)), el("td", { class: "small" }, figure(one.beside))))) : null,
    settings.length ? el("details", {}, el("summary", {}, `${count(settings.length)} settings differ`), table("Settings that differ", ["setting", run.name, name], settings.map((one) => el("tr", {}, el("th", { scope: "row", class: "cell-name" }, one.name), el("td", {}, one.this ?? "–"), el("td", {}, one.beside ?? "–"))))) : el("p", { class: "muted small" }, "No setting differs."));
}

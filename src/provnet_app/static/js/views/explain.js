// Explain: one picture, the answer to it, and the training samples that stand behind the answer.
import { answerCard, changesCard, queryCard, sayIt } from "../parts/answer.js";
import { DISTORTIONS, distortCard } from "../parts/distort.js";
import { exemplars, modeButtons, MODES } from "../parts/exemplars.js";
import { noun } from "../parts/kinds.js";
import { heading, meaning, weightsChoice } from "../parts/weights.js";
import { newest } from "../parts/sliders.js";
import { strip } from "../parts/strip.js";
import { trouble } from "../parts/trouble.js";
import { ways } from "../parts/ways.js";

export const title = "Explain";
const HASH = /^[0-9a-f]{64}$/;
const MANY = [5, 10, 20, 50];
const GONE = "What you give is kept until the server ends: give it again.";

/** Shows the view; `query`: test or hash (and id, of equal training samples), distortions by name, without (hashes), k, weights, mode. */
export async function show(root, context, query) {
  const { run, api, dom } = context;
  const { el, clear } = dom;
  const state = asked(query, run);
  let before = null; // the answer with nothing left out, while something is
  let now = null;

  const picture = el("section", { class: "card stack query", "aria-label": "What was asked about" });
  const answers = el("div", { class: "stack wide-gap" }, el("p", { class: "empty" }, "Asking the network …"));
  const said = el("p", { class: "visually-hidden", role: "status" });
  const distort = run.input.picture ? distortCard(state.distort, () => live.later()) : null;
  const picks = run.test.samples > 0 ? strip(context, (item) => choose({ test: item.position })) : null;
  const given = ways(context, choose);
  const result = el("div", { class: "explain-grid" },
    el("div", { class: "stack wide-gap" }, picture, distort?.node), answers);
  root.append(
    el("h1", { class: "visually-hidden" }, title),
    el("section", { class: `card choose${run.input.picture ? "" : " in-words"}`, "aria-label": `Choose a ${noun(run)}` },
      given.node, picks?.node ?? el("p", { class: "muted small" }, `There are no test samples to choose from: ${run.test.why || "the run has no test split"}.`)),
    result,
    said,
  );
  const live = newest(ask, arrived, (error) => {
    const given = error.code === "unknown_hash" && state.source.sha256 && !state.source.sample_id;
    answers.removeAttribute("aria-busy");
    clear(answers).append(given ? el("div", { class: "error", role: "alert" }, `${error.message}. ${GONE}`) : trouble(error, () => live.now()));
  });

  function choose(source) {
    state.source = source;
    state.without = [];
    if (!result.isConnected) root.querySelector(".empty").replaceWith(result);
    return live.now();
  }
  function leaveOut(one) {
    if (state.without.length >= run.limits.without) {
      return context.toast(`At most ${run.limits.without} samples can be left out at once.`, "bad");
    }
    state.without.push({ sha256: one.sha256, sample_id: one.sample_id, shown: one.shown });
    return live.now();
  }
  function takeBack(hash) {
    state.without = hash ? state.without.filter((one) => one.sha256 !== hash) : [];
    live.now();
  }

  async function ask(signal) {
    const body = { ...state.source, k: state.k, weights: state.weights, distort: state.distort };
    const without = state.without.map((one) => one.sha256);
    answers.setAttribute("aria-busy", "true");
    const both = [api.post("/explain/known", body, null, { signal })];
    if (without.length) both.push(api.post("/explain/known", { ...body, without }, null, { signal }));
    return Promise.all(both);
  }
  function arrived([whole, changed]) {
    before = changed ? whole : null;
    now = changed ?? whole;
    draw();
    context.replace(address(state));
    picks?.mark(state.source.test ?? -1);
    said.textContent = sayIt(now);
  }

  function draw() {
    const focus = focusPlace(answers); // what had the focus is drawn anew
    answers.removeAttribute("aria-busy");
    if (now.query.origin !== "upload") given.fill(now.query);
    dom.append(clear(picture), queryCard(context, now, { ...state.source, distort: state.distort }));
    dom.append(clear(answers),
      answerCard(now),
      before ? changesCard(context, before, now, state.without, takeBack) : null,
      el("section", { class: "card stack", "aria-label": "Training samples" },
        head(), exemplars(context, now, { mode: state.mode, before, leaveOut }), el("p", { class: "muted small" }, foot())));
    if (focus) (answers.querySelector(focus) ?? answers.querySelector(".exemplar .face"))?.focus({ preventScroll: true });
  }
  function head() {
    const modes = modeButtons(state.mode, (mode) => {
      state.mode = mode;
      draw();
      context.replace(address(state));
    });
    const weighed = weightsChoice(run, state.weights, (weights) => {
      state.weights = weights;
      live.now();
    });
    const changed = (event) => {
      state.k = Number(event.target.value);
      live.now();
    };
    const many = el("select", { name: "k", "aria-label": "How many samples", onChange: changed },
      MANY.filter((k) => k <= run.limits.k).map((k) => el("option", { value: String(k), selected: k === state.k }, `${k} samples`)));
    return el("div", { class: "row apart" },
      el("h2", {}, now.supported ? heading(state.weights) : "The nearest training samples"),
      el("div", { class: "row" }, now.picture ? modes : null, weighed, many));
  }
  function foot() {
    return [
      meaning(state.weights),
      `All other samples together: ${dom.percent(now.rest)}.`,
      now.withheld ? `${dom.count(now.withheld)} samples of the run are withheld and never named.` : "",
      state.mode === "difference" ? "Orange: the query is brighter there; blue: the sample is." : "",
      now.picture ? "Click a picture to enlarge it." : "", "“Leave out” shows who gets a sample's weight.",
    ].filter(Boolean).join(" ");
  }

  if (state.source) await live.now();
  else if (run.test.samples > 0) await choose({ test: 0 });
  else result.replaceWith(el("p", { class: "empty" }, `Give a ${noun(run)} to see the answer, and the training samples that the network recognises in it.`));
  return () => live.stop();
}

/** Where the focus goes after everything in `place` is drawn anew; null where it was elsewhere. */
function focusPlace(place) {
  const has = document.activeElement;
  if (!place.contains(has)) return null;
  if (has.matches("select")) return `select[name=${has.name}]`;
  if (has.closest(".modes")) return ".modes [aria-pressed=true]";
  return has.closest(".changes") ? ".left-out button" : ".exemplar .face";
}

/** What an address asks for; what cannot be is left out. */
function asked(query, run) {
  const distort = {};
  for (const { name, min, max } of DISTORTIONS) {
    const value = Number(query[name]);
    if (query[name] !== undefined && value >= min && value <= max) distort[name] = value;
  }
  const without = (query.without ?? "").split(",").filter((one) => HASH.test(one)).slice(0, run.limits.without);
  const shown = run.exposure !== "ids" && run.input.picture;
  let source = null;
  if (/^\d{1,9}$/.test(query.test ?? "")) source = { test: Number(query.test) };
  else if (HASH.test(query.hash ?? "")) source = { sha256: query.hash, ...(query.id ? { sample_id: query.id } : {}) };
  return {
    source,
    distort,
    without: without.map((sha256) => ({ sha256, sample_id: `${sha256.slice(0, 12)}…`, shown })),
    k: MANY.includes(Number(query.k)) ? Number(query.k) : MANY[0],
    weights: run.weights.includes(query.weights) ? query.weights : "plain",
    mode: MODES.some(([mode]) => mode === query.mode) ? query.mode : "sample",
  };
}

function address({ source, distort, without, k, weights, mode }) {
  const moved = DISTORTIONS.filter((one) => (distort[one.name] ?? one.value) !== one.value);
  return {
    test: source.test,
    hash: source.sha256,
    id: source.sample_id,
    ...Object.fromEntries(moved.map((one) => [one.name, distort[one.name]])),
    without: without.map((one) => one.sha256).join(","),
    k: k === MANY[0] ? null : k,
    weights: weights === "plain" ? null : weights,
    mode: mode === "sample" ? null : mode,
  };
}

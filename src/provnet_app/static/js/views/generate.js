// Generate: a picture out of the latents of the run, and the training samples behind it, while the sliders move.
import { answerCard, sayIt } from "../parts/answer.js";
import { exemplars, modeButtons, MODES } from "../parts/exemplars.js";
import { newest, slider } from "../parts/sliders.js";
import { trouble } from "../parts/trouble.js";

export const title = "Generate";
const HASH = /^[0-9a-f]{64}$/;
const LARGEST = 2 ** 31 - 1; // of seeds
const FARTHEST = 6; // the server takes positions up to here

/** Shows the view; `query`: seed or hash to start from, class, latent (numbers with commas between), mode. */
export async function show(root, context, query) {
  const { run, api, dom } = context;
  const { el, clear } = dom;
  const found = await api.get("/generate", null, { signal: context.signal });
  const state = asked(query, found, run);
  let now = null;
  const made = el("section", { class: "card stack query", "aria-label": "The picture that was made" });
  const behind = el("div", { class: "stack wide-gap" }, el("p", { class: "empty" }, "Asking the network …"));
  const said = el("p", { class: "visually-hidden", role: "status" });
  const sliders = found.range.map(([min, max], i) => slider({
    name: `latent-${i}`,
    label: `Direction ${i + 1}`,
    min,
    max,
    step: 0.05,
    value: state.latent?.[i] ?? found.start[i],
    shown: (x) => `${x > 0 ? "+" : ""}${x.toFixed(2)}`,
    moved: (value) => {
      state.latent = (state.latent ?? now.latent).map((x) => Math.max(-FARTHEST, Math.min(FARTHEST, x)));
      state.latent[i] = value;
      asking.later();
    },
  }));
  const asking = newest(
    (signal) => api.post("/generate", wanted(state), null, { signal }),
    arrived,
    (error) => clear(behind).append(trouble(error, () => asking.now())),
  );

  function arrived(answer) {
    now = answer;
    moving.disabled = false;
    if (!state.latent) sliders.forEach((one, i) => one.set(answer.latent[i]));
    draw();
    context.replace(address(state));
    said.textContent = sayIt(answer);
  }
  function begin(from) {
    Object.assign(state, { seed: null, hash: null, latent: null }, from);
    seed.value = state.seed ?? "";
    asking.now();
  }

  const typed = () => begin({ seed: seed.value === "" ? null : Math.min(LARGEST, Math.max(0, Math.round(Number(seed.value)))) });
  const seed = el("input", { type: "number", min: 0, max: LARGEST, step: 1, value: state.seed ?? "", "aria-label": "Seed" });
  seed.addEventListener("change", typed);
  const picked = () => {
    state.class = kind.value === "" ? null : Number(kind.value);
    asking.now();
  };
  const kind = el("select", { "aria-label": "Class of the picture", onChange: picked },
    el("option", { value: "" }, "any class"),
    run.classes.filter((one) => one.samples).map((one) =>
      el("option", { value: String(one.class), selected: one.class === state.class }, one.label.slice(0, 60))));
  // until the first answer nobody knows where the sliders stand
  const moving = el("fieldset", { class: "stack tight", disabled: true, "aria-label": "Directions" }, sliders.map((one) => one.node));
  const anew = () => begin({ seed: Math.floor(Math.random() * 1e6) });
  const controls = el("section", { class: "card stack", "aria-label": "What to make" },
    el("div", { class: "row apart" }, el("h2", {}, "Move it"),
      el("button", { type: "button", class: "button small", onClick: () => begin({}) }, "Middle")),
    el("div", { class: "row make" },
      el("label", { class: "field" }, "Seed", seed),
      el("button", { type: "button", class: "button primary", onClick: anew }, "New picture"),
      found.conditional ? el("label", { class: "field" }, "Class", kind) : null),
    moving,
    el("p", { class: "muted small" }, "The directions in which the training samples differ most, in standard deviations."));

  function draw() {
    clear(made).append(
      el("h2", {}, state.hash ? "Made from a known picture" : "Made by the network"),
      el("div", { class: "picture" }, el("img", { src: now.picture, alt: "The picture that was made" })),
      el("a", { class: "small", href: now.picture, download: "generated.png" }, "Save the picture"),
    );
    const answer = { ...now, query: { class: null }, classes: [], warning: null };
    const modes = modeButtons(state.mode, (mode) => {
      state.mode = mode;
      draw();
      behind.querySelector(".modes [aria-pressed=true]").focus();
      context.replace(address(state));
    });
    const rest = `All other samples together: ${dom.percent(now.rest)}.`;
    const withheld = now.withheld ? ` ${dom.count(now.withheld)} samples of the run are withheld and never named.` : "";
    clear(behind).append(answerCard(answer), el("section", { class: "card stack", "aria-label": "Training samples" },
      el("div", { class: "row apart" },
        el("h2", {}, now.supported ? "The network recognises these training samples" : "The nearest training samples"), modes),
      exemplars(context, answer, { mode: state.mode }),
      el("p", { class: "muted small" }, rest, withheld)));
  }
  root.append(
    el("h1", { class: "visually-hidden" }, title),
    el("div", { class: "explain-grid" }, el("div", { class: "stack wide-gap" }, made, controls), behind),
    said,
  );
  await asking.now();
  return () => asking.stop();
}

/** The question to the server: a known picture goes before a seed. */
function wanted({ hash, seed, class: number, latent }) {
  const body = { k: 5 };
  if (hash) body.sha256 = hash;
  else if (seed !== null) body.seed = seed;
  if (number !== null) body.class = number;
  if (latent) body.latent = latent;
  return body;
}

function asked(query, found, run) {
  const latent = (query.latent ?? "").split(",").map(Number);
  const fits = query.latent && latent.length === found.latent && latent.every((x) => Math.abs(x) <= FARTHEST);
  const seed = /^\d{1,10}$/.test(query.seed ?? "") && Number(query.seed) <= LARGEST ? Number(query.seed) : null;
  return {
    hash: HASH.test(query.hash ?? "") ? query.hash : null,
    seed: seed ?? (query.hash || query.latent ? null : 1),
    class: run.classes.some((one) => String(one.class) === query.class) ? Number(query.class) : null,
    latent: fits ? latent : null,
    mode: MODES.some(([mode]) => mode === query.mode) ? query.mode : "sample",
  };
}

function address({ hash, seed, class: number, latent, mode }) {
  return {
    seed: hash ? null : seed,
    hash,
    class: number,
    latent: latent?.map((x) => Number(x.toFixed(2))).join(","),
    mode: mode === "sample" ? null : mode,
  };
}

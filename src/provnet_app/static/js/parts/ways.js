// The ways to give a picture to Explain: a file, a drawing, the hash of a training sample.
import { el } from "../dom.js";
import { board } from "./draw.js";
import { dropzone, uploaded } from "./dropzone.js";
import { typed } from "./typed.js";

const HASH = /^[0-9a-f]{64}$/;

/** All ways that this run allows: {node, fill(query)}; `choose({sha256})` gets what was given. */
export function ways(context, choose) {
  const { run, api } = context;

  const sent = el("p", { class: "muted small", role: "status" });
  async function give(files) {
    try {
      const [found] = await uploaded(api, files, context.signal, (file, error) =>
        context.toast(`${file.name || "The picture"}: ${error.message}`, "bad"), (words) => { sent.textContent = words; });
      if (found) await choose({ sha256: found.sha256 });
    } catch (error) {
      if (!api.stopped(error)) throw error;
    } finally {
      sent.textContent = "";
    }
  }
  const zone = () => dropzone({
    bytes: run.limits.upload_bytes,
    words: "or drop it anywhere on this page, or paste it",
    take: give,
    refuse: (words) => context.toast(words, "bad"),
    signal: context.signal,
  });
  const form = typed(context, choose);
  const node = el("div", { class: "stack ways" },
    run.input.picture ? [zone(), sent] : null,
    form?.node,
    run.input.drawable ? drawing(run.input, give) : null,
    el("details", { class: "small" }, el("summary", { class: "muted" }, "By SHA-256"), byHash(context, "SHA-256 of a training sample", "Show", (sha256) => choose({ sha256 }))));
  return { node, fill: (query) => form?.fill(query) };
}

function drawing({ width, height }, give) {
  const place = el("div", { hidden: true });
  const button = el("button", { type: "button", class: "button small", "aria-expanded": "false", onClick: toggle }, "Draw one");
  function toggle() {
    const take = (blob) => give([new File([blob], "drawing", { type: "image/png" })]);
    if (!place.firstChild) place.append(board({ width, height, take }));
    place.hidden = !place.hidden;
    button.setAttribute("aria-expanded", String(!place.hidden));
  }
  return el("div", { class: "stack tight" }, el("div", {}, button), place);
}

/** A field for a hash; `take(hash)` only gets one that is a hash. */
export function byHash(context, words, action, take) {
  const field = el("input", { type: "text", "aria-label": words, placeholder: words, spellcheck: "false", autocomplete: "off" });
  const submit = (event) => {
    event.preventDefault();
    const hash = field.value.trim().toLowerCase();
    if (HASH.test(hash)) take(hash);
    else context.toast("A SHA-256 has 64 characters: 0 to 9 and a to f.", "bad");
  };
  return el("form", { class: "row by-hash", onSubmit: submit }, field,
    el("button", { type: "submit", class: "button small" }, action));
}

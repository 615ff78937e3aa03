// What did not work, in words, with a way to try again where nothing came back; and pictures that did not come.
import { el } from "../dom.js";

const WAITS = [1000, 4000, 15000]; // milliseconds before a picture is asked for again

/** Whether a later try may go better: the server did not answer, or was too busy. */
export function passes(error) {
  return [0, 429, 502, 503, 504].includes(error?.status);
}

/** An alert with the words of an error; `again()` is called by its button. */
export function trouble(error, again, before = null) {
  const button = passes(error) ? el("p", {}, el("button", { type: "button", class: "button small", onClick: again }, "Try again")) : null;
  return el("div", { class: "error", role: "alert" }, before, error.message, button);
}

/** Ask again, a few times, for pictures of the server that failed to load: a browser never does by itself. */
export function watchPictures(base) {
  document.addEventListener("error", ({ target }) => {
    if (!(target instanceof HTMLImageElement) || !target.getAttribute("src")?.startsWith(base)) return;
    const tried = Number(target.dataset.tried ?? 0), src = target.getAttribute("src");
    if (tried >= WAITS.length) return;
    target.dataset.tried = String(tried + 1);
    setTimeout(() => { if (target.isConnected && target.getAttribute("src") === src) target.src = src; }, WAITS[tried]);
  }, true); // errors of pictures do not bubble
}

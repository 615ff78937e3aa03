// Messages at the foot of the page: announced, closed by hand or by Escape; what went wrong stays until then.
import { el } from "./dom.js";

const MOST = 3; // at once: the oldest makes room
const LEAST = 6000; // milliseconds that any message stays
const LETTER = 80; // more for each letter: time to read it

/** Show a message; kind "bad" for what went wrong. It waits while it is pointed at or has the focus. */
export function toast(text, kind = "") {
  const place = document.getElementById("toast");
  for (const old of [...place.children]) if (old.dataset.text === text) old.remove(); // said again: not twice
  while (place.children.length >= MOST) (place.querySelector(".toast:not(.bad)") ?? place.firstChild).remove();
  let timer = 0;
  const close = () => { clearTimeout(timer); node.remove(); };
  const wait = () => {
    clearTimeout(timer);
    if (kind !== "bad") timer = setTimeout(close, LEAST + LETTER * text.length);
  };
  const button = el("button", { type: "button", class: "close", "aria-label": "Close the message", onClick: close }, "×");
  const node = el("div", { class: `toast ${kind}`.trim(), dataset: { text } }, el("p", {}, text), button);
  for (const event of ["pointerenter", "focusin"]) node.addEventListener(event, () => clearTimeout(timer));
  for (const event of ["pointerleave", "focusout"]) node.addEventListener(event, wait);
  place.append(node);
  wait();
}

/** Take all messages away: the view that they were about is left. */
export function quiet() {
  document.getElementById("toast").replaceChildren();
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !document.querySelector("dialog[open]")) document.getElementById("toast").lastChild?.remove();
});

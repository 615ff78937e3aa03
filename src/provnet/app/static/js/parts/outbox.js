// Decisions on their way: one request after the other. What has no answer yet when the page is left is sent once more.
import * as api from "../api.js";

const MOST = 60_000; // letters; a browser lets 64 KiB out of a page that is gone
const waiting = []; // steps without an answer, in their order: {decision, new_label, items} or {decision: "undo"}
let line = Promise.resolve();

/** Do work when all that was begun before is over: undo goes back through the order of steps. */
export function inTurn(work) {
  const mine = line.then(work);
  line = mine.catch(() => {});
  return mine;
}

/**
 * Send a step in its turn; `ask()` makes the request. Its `items` may come later, as those of a long selection do.
 * Resolves to the answer, or to null where the step was sent already because the page was left.
 */
export function sent(step, ask) {
  waiting.push(step);
  return inTurn(async () => {
    if (!waiting.includes(step)) return null;
    try {
      return await ask();
    } catch (error) {
      if (waiting.includes(step)) throw error;
      return null;
    } finally {
      if (waiting.includes(step)) waiting.splice(waiting.indexOf(step), 1);
    }
  });
}

/** What the server has to hear: the last word about each sample, so that it is all the same which request comes first. */
function rest() {
  const steps = [];
  for (const step of waiting) {
    if (step.decision === "undo") steps.pop();
    else if (step.items) steps.push(step);
  }
  const last = new Map(), bodies = new Map();
  for (const { items, decision, new_label } of steps) for (const one of items) last.set(JSON.stringify(one), { one, decision, new_label });
  for (const { one, decision, new_label } of last.values()) {
    const key = JSON.stringify([decision, new_label]);
    if (!bodies.has(key)) bodies.set(key, { items: [], decision, new_label });
    bodies.get(key).items.push(one);
  }
  return [...bodies.values()];
}

window.addEventListener("pagehide", () => {
  for (const body of rest()) api.post("/decisions", body, null, { keepalive: true }).catch(() => {});
  waiting.length = 0;
});
window.addEventListener("beforeunload", (event) => { // too much to be sent from a page that is gone: the person is asked
  if (waiting.length && JSON.stringify(rest()).length > MOST) event.preventDefault();
});

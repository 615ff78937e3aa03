// Decisions on their way: one request after the other. What has no answer yet when the page is left is sent once more.
import * as api from "../api.js";

const MOST = 60_000; // bytes; a browser lets 64 KiB out of a page that is gone
// steps without an answer, in their order: {step: {decision, new_label, items}, begun}, decision "undo" and "redo" too
const waiting = [];
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
  const mine = { step, begun: false };
  waiting.push(mine);
  return inTurn(async () => {
    if (!waiting.includes(mine)) return null;
    mine.begun = true;
    try {
      return await ask();
    } catch (error) {
      if (waiting.includes(mine)) throw error;
      return null;
    } finally {
      if (waiting.includes(mine)) waiting.splice(waiting.indexOf(mine), 1);
    }
  });
}

/**
 * What the server has to hear: the last word about each sample, so that it is all the same which request comes first.
 * `unsure` where that cannot be told: samples that are not known yet, a step back from what is on its way already.
 */
function rest() {
  const done = [], undone = [];
  let unsure = false;
  for (const { step, begun } of waiting) {
    if (step.decision === "undo" || step.decision === "redo") {
      const [from, to] = step.decision === "undo" ? [done, undone] : [undone, done];
      if (begun || !from.length || from.at(-1).begun) unsure = true;
      else to.push(from.pop());
    } else {
      done.push({ step, begun });
      undone.length = 0;
    }
  }
  const steps = done.map((one) => one.step).filter((one) => one.items);
  if (steps.length < done.length) unsure = true;
  const last = new Map(), bodies = new Map();
  for (const { items, decision, new_label } of steps) for (const one of items) last.set(JSON.stringify(one), { one, decision, new_label });
  for (const { one, decision, new_label } of last.values()) {
    const key = JSON.stringify([decision, new_label]);
    if (!bodies.has(key)) bodies.set(key, { items: [], decision, new_label });
    bodies.get(key).items.push(one);
  }
  return { bodies: [...bodies.values()], unsure };
}

window.addEventListener("pagehide", () => {
  for (const body of rest().bodies) api.post("/decisions", body, null, { keepalive: true }).catch(() => {});
  waiting.length = 0;
});
window.addEventListener("beforeunload", (event) => { // what cannot be sent from a page that is gone: the person is asked
  const { bodies, unsure } = rest();
  if (unsure || (bodies.length && new Blob([JSON.stringify(bodies)]).size > MOST)) event.preventDefault();
});

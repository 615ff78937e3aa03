// Sliders that say their value, and the rule for live answers: wait a moment, stop the older question, show the newest alone.
import { el } from "../dom.js";

const MOMENT = 70;

/** One slider. `shown(value)` writes the value for people; `moved(value)` is called while it moves. */
export function slider({ name, label, min, max, step, value, shown, moved }) {
  const said = el("output", { class: "num small" }, shown(value));
  const input = el("input", { type: "range", name, min, max, step, value, "aria-label": label, "aria-valuetext": shown(value) });
  input.addEventListener("input", () => {
    write();
    moved(Number(input.value));
  });
  function write() {
    said.textContent = shown(Number(input.value));
    input.setAttribute("aria-valuetext", said.textContent);
  }
  const node = el("div", { class: "slider" }, el("span", { class: "small", "aria-hidden": "true" }, label), input, said);
  return { node, set(next) { input.value = next; write(); } };
}

/**
 * Calls to a costly question. `ask(signal)` is called a moment after the last change; an older one is stopped, and
 * `show(answer)` only ever gets the answer to the newest. `later()` schedules, `now()` asks at once, `stop()` ends it.
 */
export function newest(ask, show, failed) {
  let asked = 0;
  let timer = 0;
  let running = null;
  async function now() {
    clearTimeout(timer);
    running?.abort();
    running = new AbortController();
    const mine = (asked += 1);
    try {
      const answer = await ask(running.signal);
      if (mine === asked) show(answer);
    } catch (error) {
      if (mine === asked && error?.name !== "AbortError") failed(error);
    }
  }
  return {
    now,
    later() {
      clearTimeout(timer);
      timer = setTimeout(now, MOMENT);
    },
    stop() {
      clearTimeout(timer);
      asked += 1;
      running?.abort();
    },
  };
}

// A row of test samples to pick from: the arrow keys walk along it, one stop for the tabulator.
import { clear, el, named } from "../dom.js";

const STEP = 40;

/** The strip. `picked(item)` gets a test sample. Pictures are shown where the run lets them be seen. */
export function strip(context, picked) {
  const { run, api } = context;
  const shown = run.input.picture && run.exposure !== "ids";
  const list = el("div", { class: "strip", role: "group", "aria-label": "Test samples" });
  let marked = -1; // the one that is looked at, whether it is listed yet or not
  let turn = 0; // of several questions on their way only the last is listed
  const more = el("button", { type: "button", class: "button small strip-more", hidden: true, onClick: () => load() }, "More");
  const choice = el(
    "select", { "aria-label": "Class of the test samples", onChange: () => { clear(list); load(); } },
    el("option", { value: "" }, "All classes"),
    run.classes.map((one) => el("option", { value: String(one.class) }, one.label.slice(0, 60))),
  );

  async function load() {
    const mine = (turn += 1);
    try {
      await listed(() => mine === turn);
    } catch (error) {
      if (api.stopped(error) || mine !== turn) return;
      context.toast(error.message, "bad");
      list.append(more); // it asks once more
      more.hidden = false;
    }
  }
  async function listed(isNewest) {
    const offset = list.querySelectorAll("button[data-position]").length;
    const { total, items } = await api.get("/test", { offset, limit: STEP, class: choice.value }, { signal: context.signal });
    if (!isNewest()) return;
    more.remove();
    list.append(...items.map(one), more);
    more.hidden = offset + items.length >= total;
    if (!list.querySelector("[tabindex='0']")) list.querySelector("button")?.setAttribute("tabindex", 0);
    if (!total) list.append(el("p", { class: "muted small" }, "There is no test sample of this class."));
  }
  function one(item) {
    const words = `Test sample ${item.position}, class ${item.label}`;
    const about = { title: words, "aria-label": words, "aria-pressed": String(item.position === marked), dataset: { position: item.position } };
    return el("button", { type: "button", tabindex: -1, ...about, onClick: () => picked(item) },
      shown ? el("img", { src: api.picture(item.sha256, 96), alt: "", loading: "lazy", width: 48, height: 48 }) : item.text ? el("span", { class: "strip-words" }, el("b", {}, item.label), ` ${item.text.slice(0, 90)}`) : named(item.label),
    );
  }
  list.addEventListener("keydown", (event) => {
    const buttons = [...list.querySelectorAll("button:not([hidden])")];
    const next = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    const place = Math.max(0, Math.min(buttons.length - 1, buttons.indexOf(document.activeElement) + next));
    for (const button of buttons) button.setAttribute("tabindex", -1);
    buttons[place].setAttribute("tabindex", 0);
    buttons[place].focus();
  });
  load();
  return {
    node: el("div", { class: "strip-box" }, el("div", { class: "row apart" }, el("h2", {}, "Test samples"), choice), list),
    mark(position) {
      marked = position;
      for (const button of list.querySelectorAll("button[data-position]")) {
        button.setAttribute("aria-pressed", String(Number(button.dataset.position) === position));
      }
    },
  };
}

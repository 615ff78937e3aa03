// Keep, relabel, drop: the buttons, the keys, undo, and the file with all decisions.
import { el, count } from "../dom.js";
import { askLabel } from "./labels.js";
import { inTurn, sent } from "./outbox.js";

const MOST = 5000; // samples in one step, as the server takes them
const KEYS = [
  ["← → ↑ ↓", "move; with Shift, extend the selection"],
  ["Space", "add to the selection, or take away"],
  ["Ctrl A", `select all (at most ${MOST.toLocaleString("en")})`],
  ["K", "keep as it is"],
  ["R, then a label", "relabel"],
  ["S", "relabel to the suggested label"],
  ["D", "drop"],
  ["N, P", "next or previous undecided sample"],
  ["V", "one large sample, or many small ones"],
  ["Z", "enlarge the picture"],
  ["T", "add a tag"],
  ["C", "clear the decision"],
  ["U", "undo"],
  ["Shift U", "redo"],
  ["Esc", "select the current one alone; leave the review"],
  ["?", "these keys"],
];

/** The window with the keys. */
function keysDialog() {
  const rows = KEYS.map(([key, words]) => el("div", { class: "key-row" }, el("dt", {}, el("kbd", {}, key)), el("dd", {}, words)));
  const close = el("button", { type: "button", class: "button", onClick: () => box.close() }, "Close");
  const box = el("dialog", { class: "dialog", "aria-label": "Keys" }, el("h2", {}, "Keys"), el("p", { class: "muted small" }, "They work while the grid or its buttons have the focus."),
    el("dl", { class: "keys" }, rows), close);
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
}

/**
 * The bar of decisions. `chosen()` gives a promise of the samples in question, `onward()` goes to the next one as soon as
 * a key is pressed and gives a function that comes back with the samples, for a step that failed; `changed(done)` is told
 * after every step: {kind, items}, kind "undo" for steps back and again.
 * Gives {node, status, key(event), decide(kind, label), enable(n)}.
 */
export function decider(context, chosen, onward, changed) {
  const { api, toast } = context;
  const status = el("span", { class: "decided muted small", role: "status" });
  const button = (words, key, act, more = {}) =>
    el("button", { type: "button", class: "button", title: `${words} (key ${key})`, "aria-keyshortcuts": key, onClick: act, ...more }, words, el("kbd", { "aria-hidden": "true" }, key));
  const keep = button("Keep", "K", () => decide("keep"));
  const relabel = button("Relabel", "R", () => ask());
  const drop = button("Drop", "D", () => decide("drop"));
  const wipe = button("Clear", "C", () => decide("clear"));
  const undo = button("Undo", "U", () => step("undo"));
  const redo = button("Redo", "⇧U", () => step("redo"));
  const file = el("a", { class: "button", href: api.address("/decisions.csv"), download: "decisions.csv", title: "All decisions as a CSV file, for provnet train --apply or provnet fix --decisions" }, "Export CSV");
  const help = el("button", { type: "button", class: "button quiet", "aria-label": "Show the keys", title: "Keys (?)", onClick: keysDialog }, "?");
  const node = el("div", { class: "decide", role: "toolbar", "aria-label": "Decide about the selected samples" },
    el("div", { class: "decide-group" }, keep, relabel, drop, wipe), el("div", { class: "decide-group" }, undo, redo), el("div", { class: "decide-group end" }, file, help));
  let known = -1; // the revision of the decisions that are shown

  function show(record) {
    const { keep: k, relabel: r, drop: d } = record.counts;
    known = record.revision;
    undo.disabled = !record.undo;
    redo.disabled = !record.redo;
    file.toggleAttribute("data-empty", !record.total);
    status.textContent = record.total ? `${count(k)} keep, ${count(r)} relabel, ${count(d)} drop${record.saved ? "" : " (not saved: the file cannot be written)"}` : "nothing decided yet";
    return record;
  }

  // another tab, another window, or another app of this run, may have decided meanwhile
  const again = () => document.hidden || inTurn(async () => {
    const record = await api.get("/decisions", null, { signal: context.signal });
    if (record.revision === known) return;
    show(record);
    await changed({ kind: "undo", items: [] });
  }).catch(wrong);
  window.addEventListener("focus", again, { signal: context.signal });
  document.addEventListener("visibilitychange", again, { signal: context.signal });

  function wrong(error) {
    if (!api.stopped(error)) toast(error.message, "bad");
  }

  async function decide(kind, label = null, about = chosen()) {
    const step = { decision: kind, items: null, ...(kind === "relabel" ? { new_label: label } : {}) };
    let items = [];
    // what is selected now, however long the steps before take
    const named = about.then((found) => { items = found; step.items = found.map(({ sample_id, sha256 }) => ({ sample_id, sha256 })); });
    named.catch(() => {}); // said in its turn
    const back = onward();
    try {
      const done = await sent(step, async () => {
        await named;
        if (items.length) return show(await api.post("/decisions", step));
        toast("Select a sample first: click it, or use the arrow keys.");
        return null;
      });
      if (!done) return;
      const what = kind === "relabel" ? `relabelled to ${label.length > 40 ? `${label.slice(0, 39)}…` : label}` : { keep: "kept", drop: "dropped", clear: "cleared" }[kind];
      toast(`${items.length === 1 ? "1 sample" : `${count(items.length)} samples`} ${what}. U takes it back.`);
      await inTurn(() => changed({ kind, items }));
    } catch (error) {
      if (!api.stopped(error)) back(items);
      wrong(error);
    }
  }

  const ask = () => asked().catch(wrong);
  const suggested = () => suggestion().catch(wrong);

  async function asked() {
    const items = await chosen();
    if (!items.length) { toast("Select a sample first: click it, or use the arrow keys."); return; }
    const label = await askLabel(context.run.classes.map((one) => one.label), items.length === 1 ? offered(items[0]) : null, items.length);
    if (label !== null) await decide("relabel", label, Promise.resolve(items));
  }

  async function suggestion() {
    const items = await chosen();
    const labels = new Set(items.map(offered)), [label] = labels;
    if (labels.size === 1 && label !== null) await decide("relabel", label, Promise.resolve(items));
    else toast(items.length ? "There is no single suggestion for the selected samples." : "Select a sample first.");
  }

  async function step(which) {
    try {
      const done = await sent({ decision: which, items: null }, async () => {
        if (which === "undo" ? !undo.disabled : !redo.disabled) return show(await api.post(`/decisions/${which}`));
        toast(`Nothing to ${which}.`);
        return null;
      });
      if (!done) return;
      toast(which === "undo" ? "Undone. Shift U redoes it." : "Redone.");
      await inTurn(() => changed({ kind: "undo", items: [] }));
    } catch (error) {
      wrong(error);
    }
  }

  function key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, dialog")) return;
    const does = { k: () => decide("keep"), r: ask, s: suggested, d: () => decide("drop"), c: () => decide("clear"), u: () => step(event.shiftKey ? "redo" : "undo"), "?": keysDialog }[event.key.toLowerCase()];
    if (!does || event.repeat) return;
    event.preventDefault();
    does();
  }

  api.get("/decisions").then(show, wrong);
  return { node, status, key, decide, enable(n) { for (const one of [keep, relabel, drop, wipe]) one.disabled = !n; } };
}

/** The label that is suggested for a sample; null where its own is not in doubt. */
export function offered(item) {
  return item.flags.includes("mislabel") && item.suggested !== item.label ? item.suggested : null;
}

/** A decision in words and its mark, for a tile. */
export function badge(item) {
  if (!item.decision) return null;
  const words = { keep: "keep", drop: "drop", relabel: item.new_label }[item.decision];
  const sign = { keep: "✓", drop: "✕", relabel: "→" }[item.decision];
  return { kind: item.decision, sign, words };
}


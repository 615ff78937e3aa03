// A sample that is typed: a text, or a row of a table with a field for each column.
import { el } from "../dom.js";

const FIRST = 12; // columns in sight at once

/** The form for a run whose samples can be typed; null for others. `choose({sha256})` gets what was typed; `fill(query)` takes over a sample. */
export function typed(context, choose) {
  const { run, api } = context;
  if (!run.input.typed) return null;
  const form = run.input.kind === "text" ? text() : row(run.input.columns);
  const node = el("form", { class: "stack tight typed", "aria-label": run.input.kind === "text" ? "Type a text" : "Type a row", onSubmit: send },
    form.node, el("div", { class: "row" }, el("button", { type: "submit", class: "button primary small" }, "Explain it"), el("span", { class: "muted small" }, form.about)));

  async function send(event) {
    event.preventDefault();
    const item = form.read();
    if (item === "") { context.toast("Type a text first.", "bad"); return; }
    try {
      const found = await api.post("/queries/item", { item }, null, { signal: context.signal });
      await choose({ sha256: found.sha256 });
    } catch (error) {
      if (!api.stopped(error)) context.toast(error.message, "bad");
    }
  }
  return { node, fill: form.fill };
}

function text() {
  const box = el("textarea", { class: "wide", rows: "5", maxlength: "20000", "aria-label": "Text to explain", placeholder: "Type or paste a text" });
  box.addEventListener("keydown", (event) => { // Ctrl Enter asks, as in other places where texts are typed
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) box.form.requestSubmit();
  });
  return { node: box, about: "Ctrl Enter", read: () => box.value.trim(), fill() {} };
}

function row(columns) {
  const fields = columns.map((column) => {
    const id = `column-${columns.indexOf(column)}`;
    const input = column.kind === "number" ? el("input", { id, type: "text", inputmode: "decimal", autocomplete: "off" })
      : el("select", { id }, el("option", { value: "" }, "missing"), column.values.map((value) => el("option", { value }, value)));
    return { name: column.name, input, node: el("div", { class: "field" }, el("label", { for: id }, column.name), input) };
  });
  const grid = (some) => el("div", { class: "columns" }, some.map((one) => one.node));
  const node = el("div", { class: "stack tight" }, grid(fields.slice(0, FIRST)), fields.length > FIRST ? el("details", { class: "small" }, el("summary", {}, `${fields.length - FIRST} more columns`), grid(fields.slice(FIRST))) : null);
  return {
    node,
    about: "An empty field is a missing value.",
    read: () => Object.fromEntries(fields.map(({ name, input }) => [name, input.value.trim() || null])),
    fill({ cells }) {
      const values = new Map(cells ?? []);
      if (values.size) for (const { name, input } of fields) input.value = values.get(name) === "–" ? "" : values.get(name) ?? "";
    },
  };
}

// Asking for a label: type part of it; a label that can be no other one is taken at once, so that "r" "7" is enough.
import { el, clear, named, reveal } from "../dom.js";

const SHOWN = 60; // labels listed at a time; typing brings up the rest

/** Opens a small window and gives the label, or null where it was closed. `first` is offered on top. */
export function askLabel(labels, first, many) {
  return new Promise((done) => {
    const list = el("ul", { id: "label-list", class: "label-list", role: "listbox", "aria-label": "Labels" });
    const input = el("input", { type: "text", class: "wide", role: "combobox", autocomplete: "off", spellcheck: "false", "aria-controls": "label-list", "aria-expanded": "true", "aria-label": "New label", placeholder: "type a label" });
    const box = el("dialog", { class: "dialog", "aria-label": "Choose a label" },
      el("h2", {}, many === 1 ? "New label" : `New label for ${many.toLocaleString("en")} samples`), input, list,
      el("div", { class: "row" }, el("button", { type: "button", class: "button", onClick: () => box.close() }, "Cancel")));
    let found = [], at = 0, answer = null;

    function choose(label) {
      answer = label;
      box.close();
    }

    function show() {
      const part = input.value.trim().toLocaleLowerCase();
      const order = first !== null && labels.includes(first) ? [first, ...labels.filter((one) => one !== first)] : labels;
      const fits = order.filter((one) => one.toLocaleLowerCase().includes(part));
      fits.sort((a, b) => Number(b.toLocaleLowerCase() === part) - Number(a.toLocaleLowerCase() === part));
      found = fits.slice(0, SHOWN);
      at = part || (first !== null && fits[0] === first) ? 0 : -1; // nothing is chosen that nobody asked for
      clear(list).append(...found.map((label, i) => el("li", { id: `label-${i}`, role: "option", "aria-selected": String(i === at), onClick: () => choose(label) },
        named(label), label === first ? el("span", { class: "muted small" }, "suggested") : null)));
      if (!found.length) list.append(el("li", { class: "muted" }, "no such label"));
      if (fits.length > SHOWN) list.append(el("li", { class: "muted small", role: "presentation" }, `and ${(fits.length - SHOWN).toLocaleString("en")} more: type to find one`));
      mark();
    }

    function mark() {
      for (const [i, row] of [...list.children].entries()) if (row.id) row.setAttribute("aria-selected", String(i === at));
      if (found[at] !== undefined) input.setAttribute("aria-activedescendant", `label-${at}`);
      else input.removeAttribute("aria-activedescendant");
      if (list.children[at]) reveal(list.children[at], list);
    }

    input.addEventListener("input", () => {
      show();
      const typed = input.value.trim();
      const alike = labels.filter((one) => one.startsWith(typed));
      if (typed && alike.length === 1 && alike[0] === typed) choose(typed);
    });
    input.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown" || event.key === "ArrowUp") {
        event.preventDefault();
        if (found.length) at = event.key === "ArrowDown" ? (at + 1) % found.length : (Math.max(at, 0) + found.length - 1) % found.length;
        mark();
      } else if (event.key === "Enter") {
        event.preventDefault();
        if (found[at] !== undefined) choose(found[at]);
      }
    });
    box.addEventListener("click", (event) => { if (event.target === box) box.close(); }); // beside the window
    const before = document.activeElement;
    box.addEventListener("close", () => { box.remove(); before?.focus?.({ preventScroll: true }); done(answer); });
    document.body.append(box);
    show();
    box.showModal();
    input.focus();
  });
}

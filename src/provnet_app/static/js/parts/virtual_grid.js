// A grid of very many tiles: only the rows in sight are in the document. A list box, so that a screen reader can follow.
import { el } from "../dom.js";

const SPARE = 2; // rows kept above and below what is in sight
const TALLEST = 15e6; // pixels: browsers cannot scroll further, so a longer list is scrolled in larger steps

/**
 * Makes the grid.
 * `make(slot)` gives an empty tile, `fill(tile, position, state)` puts a position into it (state: {current, selected}),
 * `change(current, selected)` is told of every move, `act(event)` gets the keys that the grid itself does not use.
 * Gives {node, count(n), size(width, height), current(), selected(), go(position), pick(...), refresh(), visible(), stop()}.
 */
export function virtualGrid({ label, tile, most = 5000, make, fill, change, act, settled }) {
  const paper = el("div", { class: "vg-paper" });
  const node = el("div", { class: "vg", role: "listbox", tabindex: "0", "aria-multiselectable": "true", "aria-label": label }, paper);
  const tiles = []; // those in the document, reused
  let n = 0, columns = 1, width = tile.width, rows = 0, scale = 1;
  let current = -1, anchor = -1, selected = new Set(), queued = false, rest = 0;

  const rowsInSight = () => Math.ceil(node.clientHeight / tile.height);
  const top = () => node.scrollTop * scale;

  function measure() {
    const space = node.clientWidth;
    if (!space) return;
    const keep = current >= 0 ? current : Math.floor(top() / tile.height) * columns;
    const before = columns;
    columns = Math.max(1, Math.floor(space / tile.width));
    width = space / columns;
    rows = Math.ceil(n / columns);
    const tall = rows * tile.height;
    scale = tall > TALLEST ? (tall - node.clientHeight) / (TALLEST - node.clientHeight) : 1;
    paper.style.height = `${Math.min(tall, TALLEST)}px`;
    if (before !== columns && n) reveal(Math.min(keep, n - 1));
    ask();
  }

  function ask() {
    if (!queued) { queued = true; requestAnimationFrame(() => { queued = false; draw(); }); }
  }

  function draw() {
    if (!node.isConnected) return;
    const from = Math.max(0, Math.floor(top() / tile.height) - SPARE);
    const to = Math.min(rows, Math.ceil(top() / tile.height) + rowsInSight() + SPARE);
    const first = from * columns, last = Math.min(n, to * columns);
    const shift = top() - node.scrollTop;
    while (tiles.length < last - first) {
      const made = make();
      made.id = `vg-${tiles.length}`;
      made.setAttribute("role", "option");
      tiles.push(made);
      paper.append(made);
    }
    // a position keeps its tile while it stays in sight: nothing flickers
    const count = Math.max(tiles.length, 1);
    const used = new Set();
    for (let i = first; i < last; i++) {
      const one = tiles[i % count];
      used.add(one);
      one.hidden = false;
      one.style.width = `${width}px`;
      one.style.height = `${tile.height}px`;
      one.style.transform = `translate(${(i % columns) * width}px, ${Math.floor(i / columns) * tile.height - shift}px)`;
      one.dataset.at = String(i);
      one.setAttribute("aria-posinset", String(i + 1));
      one.setAttribute("aria-setsize", String(n));
      one.setAttribute("aria-selected", String(selected.has(i)));
      one.classList.toggle("selected", selected.has(i));
      one.classList.toggle("current", i === current);
      fill(one, i);
      if (i === current) node.setAttribute("aria-activedescendant", one.id);
    }
    for (const one of tiles) if (!used.has(one)) { one.hidden = true; delete one.dataset.at; }
    if (current < first || current >= last) node.removeAttribute("aria-activedescendant");
  }

  function reveal(position) {
    const row = Math.floor(position / columns) * tile.height, high = node.clientHeight;
    if (row < top()) node.scrollTop = row / scale;
    else if (row + tile.height > top() + high) node.scrollTop = (row + tile.height - high) / scale;
  }

  function tell() {
    ask();
    change?.(current, selected);
  }

  /** Moves to a position; `extend` selects from the anchor on, `toggle` adds or removes one. */
  function pick(position, { extend = false, toggle = false, quiet = false } = {}) {
    if (!n) return;
    const to = Math.max(0, Math.min(n - 1, position));
    if (extend && anchor >= 0) {
      const [low, high] = anchor < to ? [anchor, to] : [to, anchor];
      selected = new Set();
      for (let i = low; i <= high && selected.size < most; i++) selected.add(i);
    } else if (toggle) {
      if (selected.has(to)) selected.delete(to);
      else if (selected.size < most) selected.add(to);
      anchor = to;
    } else {
      selected = new Set([to]);
      anchor = to;
    }
    current = to;
    reveal(to);
    if (quiet) ask(); else tell();
  }

  const place = (event) => {
    const one = event.target.closest?.("[data-at]");
    return one ? Number(one.dataset.at) : -1;
  };
  node.addEventListener("click", (event) => {
    const at = place(event);
    if (at < 0) return;
    node.focus({ preventScroll: true });
    pick(at, { extend: event.shiftKey, toggle: event.ctrlKey || event.metaKey || event.target.closest(".vg-check") !== null });
  });
  node.addEventListener("mousedown", (event) => { if (event.shiftKey) event.preventDefault(); }); // no text is marked
  node.addEventListener("scroll", () => {
    ask();
    clearTimeout(rest);
    rest = setTimeout(() => settled?.(), 90);
  }, { passive: true });
  node.addEventListener("keydown", (event) => {
    const page = Math.max(1, Math.floor(node.clientHeight / tile.height)) * columns;
    const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns, PageUp: -page, PageDown: page, Home: -Infinity, End: Infinity }[event.key];
    if (by !== undefined && !event.altKey) {
      event.preventDefault();
      const next = current < 0 ? 0 : current + by;
      pick(next, { extend: event.shiftKey });
    } else if (event.key === " ") {
      event.preventDefault();
      pick(Math.max(0, current), { toggle: true });
    } else if (event.key === "a" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      selected = new Set(Array.from({ length: Math.min(n, most) }, (_, i) => i));
      tell();
    } else if (event.key === "Escape" && selected.size > 1) {
      selected = new Set(current >= 0 ? [current] : []);
      tell();
    } else act?.(event);
  });

  const watch = new ResizeObserver(measure);
  watch.observe(node);

  return {
    node,
    pick,
    refresh: ask,
    /** Tiles of another size. */
    size(wide, high) {
      tile = { width: wide, height: high };
      measure();
      if (current >= 0) reveal(current);
    },
    current: () => current,
    selected: () => [...selected].sort((a, b) => a - b),
    /** How many tiles there are; starts over at the top unless told where to stand. */
    count(total, at = -1) {
      n = total;
      selected = new Set();
      current = anchor = -1;
      rows = Math.ceil(n / columns);
      measure();
      if (at >= 0 && n) pick(at, { quiet: true });
      else node.scrollTop = 0;
      ask();
    },
    /** The positions that are in sight now. */
    visible: () => tiles.filter((one) => !one.hidden).map((one) => Number(one.dataset.at)),
    stop: () => { watch.disconnect(); clearTimeout(rest); },
  };
}

// Very many points on a canvas, moved and zoomed by wheel, fingers and keys. All points are written into one picture
// (no call a point), so that 60,000 follow the hand; a grid of cells finds the one under the pointer.
import { trail } from "./lasso.js";
import { halfWidths } from "./marks.js";

const CELLS = 128;

/** Points by cell: which lie within `reach` of a place is then a matter of a few cells. */
function cellIndex(xs, ys, n) {
  const cell = (i) => Math.min(CELLS - 1, Math.floor(ys[i] * CELLS)) * CELLS + Math.min(CELLS - 1, Math.floor(xs[i] * CELLS));
  const start = new Uint32Array(CELLS * CELLS + 1), points = new Uint32Array(n);
  for (let i = 0; i < n; i++) start[cell(i) + 1] += 1;
  for (let c = 0; c < CELLS * CELLS; c++) start[c + 1] += start[c];
  const next = start.slice();
  for (let i = 0; i < n; i++) points[next[cell(i)]++] = i;
  return { start, points };
}

/**
 * A view on points (xs, ys in 0..1) in a canvas.
 * hooks: over(brush, place, zoom, inSight) draws on top; hover(i, px, py); click(px, py); lassoed(polygon in 0..1); rest().
 * Gives {paint({tint, order, back, colours}), draw, zoomBy, whole, goTo, nearest, inView, mode, stop, look}.
 */
export function scatter(canvas, xs, ys, hooks) {
  const n = xs.length, brush = canvas.getContext("2d", { alpha: false }), index = cellIndex(xs, ys, n), path = trail();
  const reduce = (list, pick, empty) => { let out = empty; for (const value of list) out = pick(out, value); return out; };
  const box = { left: reduce(xs, Math.min, 1), right: reduce(xs, Math.max, 0), top: reduce(ys, Math.min, 1), bottom: reduce(ys, Math.max, 0) };
  let width = 1, height = 1, ratio = 1, frame = null, pixels = null, queued = false, fit = 1, resting = 0;
  let view = { x: 0.5, y: 0.5, scale: 1 }, tint = new Uint32Array(n), order = null, back = 0, mode = "move", drawing = false, colours = { ink: "#000", paper: "#fff" };

  const place = (x, y) => [(x - view.x) * view.scale + width / 2, (y - view.y) * view.scale + height / 2];
  const world = (px, py) => [(px - width / 2) / view.scale + view.x, (py - height / 2) / view.scale + view.y];

  function ask() {
    if (!queued) { queued = true; requestAnimationFrame(() => { queued = false; draw(); }); }
  }

  function moved() {
    ask();
    clearTimeout(resting);
    resting = setTimeout(() => hooks.rest?.(), 140);
  }

  function resize() {
    const room = canvas.getBoundingClientRect();
    if (!room.width || !room.height) return;
    ratio = Math.min(window.devicePixelRatio || 1, 2);
    const zoom = view.scale / fit, first = frame === null;
    width = canvas.width = Math.max(1, Math.round(room.width * ratio));
    height = canvas.height = Math.max(1, Math.round(room.height * ratio));
    frame = brush.createImageData(width, height);
    pixels = new Uint32Array(frame.data.buffer);
    fit = 0.9 * Math.min(width / Math.max(box.right - box.left, 1e-6), height / Math.max(box.bottom - box.top, 1e-6));
    if (first) whole(); else view.scale = fit * zoom;
    moved();
  }

  function draw() {
    if (!frame || !order) return;
    const began = performance.now();
    pixels.fill(back);
    const s = view.scale, ox = width / 2 - view.x * s, oy = height / 2 - view.y * s, zoom = s / fit;
    const size = Math.max(0.8 * ratio, Math.min(4 * ratio, 0.145 * Math.sqrt((width * height) / n))); // many points, small dots
    const r = Math.max(1, Math.min(7, Math.round(size * Math.sqrt(Math.min(zoom, 30)))));
    const half = halfWidths(r);
    const right = width - r - 1, bottom = height - r - 1, seen = [];
    for (let j = 0; j < n; j++) {
      const i = order[j], px = (xs[i] * s + ox) | 0, py = (ys[i] * s + oy) | 0;
      if (px < r || py < r || px > right || py > bottom) continue;
      if (seen.length <= 300) seen.push(i);
      const colour = tint[i];
      for (let dy = -r; dy <= r; dy++) {
        const from = (py + dy) * width + px - half[dy + r];
        for (let q = from, end = from + 2 * half[dy + r]; q <= end; q++) pixels[q] = colour;
      }
    }
    brush.putImageData(frame, 0, 0);
    hooks.over?.(brush, place, { zoom, ratio, seen: seen.length <= 300 ? seen : null, width, height, keyboard });
    path.draw(brush, colours.ink, colours.paper, ratio);
    canvas.dataset.ms = (performance.now() - began).toFixed(2);
  }

  function zoomBy(factor, px = width / 2, py = height / 2) {
    const [x, y] = world(px, py);
    view.scale = Math.min(fit * 400, Math.max(fit * 0.5, view.scale * factor));
    view.x = x - (px - width / 2) / view.scale;
    view.y = y - (py - height / 2) / view.scale;
    moved();
  }

  function whole() {
    view = { x: (box.left + box.right) / 2, y: (box.top + box.bottom) / 2, scale: fit };
    moved();
  }

  function goTo(x, y, zoom) {
    view = { x, y, scale: Math.max(view.scale, fit * zoom) };
    moved();
  }

  /** The point that is closest to a pixel, at most `most` pixels away; -1 where there is none. */
  function nearest(px, py, most, allowed = null) {
    const [x, y] = world(px, py), reach = most / view.scale;
    const c0 = Math.max(0, Math.floor((x - reach) * CELLS)), c1 = Math.min(CELLS - 1, Math.floor((x + reach) * CELLS));
    const r0 = Math.max(0, Math.floor((y - reach) * CELLS)), r1 = Math.min(CELLS - 1, Math.floor((y + reach) * CELLS));
    let best = -1, least = reach * reach;
    for (let r = r0; r <= r1; r++) {
      for (let k = index.start[r * CELLS + c0] ?? 0, end = index.start[r * CELLS + c1 + 1] ?? 0; k < end; k++) {
        const i = index.points[k], d = (xs[i] - x) ** 2 + (ys[i] - y) ** 2;
        if (d <= least && (!allowed || allowed(i))) { least = d; best = i; }
      }
    }
    return best;
  }

  const at = (event) => { const room = canvas.getBoundingClientRect(); return [(event.clientX - room.left) * ratio, (event.clientY - room.top) * ratio]; };
  const fingers = new Map();
  let travelled = 0, gap = 0, look = null, keyboard = false;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button > 0) return;
    canvas.setPointerCapture(event.pointerId);
    const here = at(event);
    fingers.set(event.pointerId, here);
    gap = 0;
    keyboard = false;
    if (fingers.size === 1) { travelled = 0; drawing = mode === "lasso" || event.shiftKey; if (drawing) path.start(...here); }
    else if (drawing) { drawing = false; path.end(); } // a second finger: it is a pinch
    hooks.hover?.(-1);
    canvas.classList.add("moving");
  });
  canvas.addEventListener("pointermove", (event) => {
    const here = at(event), before = fingers.get(event.pointerId);
    if (!before) {
      if (event.pointerType !== "mouse") return;
      if (!look) requestAnimationFrame(() => { hooks.hover?.(nearest(look[0], look[1], 14 * ratio), look[0] / ratio, look[1] / ratio); look = null; });
      look = here;
      return;
    }
    fingers.set(event.pointerId, here);
    travelled += Math.abs(here[0] - before[0]) + Math.abs(here[1] - before[1]);
    if (fingers.size === 1 && drawing) { path.add(...here); ask(); }
    else if (fingers.size === 1) {
      view.x -= (here[0] - before[0]) / view.scale;
      view.y -= (here[1] - before[1]) / view.scale;
      moved();
    } else {
      const [a, b] = [...fingers.values()], now = Math.hypot(a[0] - b[0], a[1] - b[1]);
      if (gap) zoomBy(now / gap, (a[0] + b[0]) / 2, (a[1] + b[1]) / 2);
      gap = now;
      travelled = Infinity;
    }
  });
  const lift = (event) => {
    if (!fingers.delete(event.pointerId)) return;
    if (drawing) {
      drawing = false;
      const drawn = path.end();
      if (event.type === "pointerup" && travelled > 12 * ratio && drawn.length > 2) hooks.lassoed?.(drawn.map(([px, py]) => world(px, py)));
      ask();
    }
    if (event.type === "pointerup" && travelled < 6 * ratio) hooks.click?.(...at(event));
    if (!fingers.size) canvas.classList.remove("moving");
    gap = 0;
  };
  canvas.addEventListener("pointerup", lift);
  canvas.addEventListener("pointercancel", lift);
  canvas.addEventListener("pointerleave", () => { look = look && [-1e9, -1e9]; hooks.hover?.(-1); });
  canvas.addEventListener("wheel", (event) => { event.preventDefault(); hooks.hover?.(-1); zoomBy(Math.exp(-Math.max(-120, Math.min(120, event.deltaY)) / 240), ...at(event)); }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const step = (60 * ratio) / view.scale, key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const does = {
      ArrowLeft: () => { view.x -= step; }, ArrowRight: () => { view.x += step; }, ArrowUp: () => { view.y -= step; }, ArrowDown: () => { view.y += step; },
      "+": () => zoomBy(1.4), "=": () => zoomBy(1.4), "-": () => zoomBy(1 / 1.4), 0: whole, Home: whole,
      Enter: () => hooks.click?.(width / 2, height / 2, 1e9),
    }[key];
    if (!does) { hooks.key?.(event, key); return; }
    event.preventDefault();
    keyboard = true;
    does();
    moved();
  });
  const watch = new ResizeObserver(resize);
  watch.observe(canvas);

  return {
    draw: ask, zoomBy, whole, goTo, nearest, place,
    paint(next) { ({ tint, order, back, colours } = next); ask(); },
    mode(next) { mode = next; canvas.classList.toggle("lasso", next === "lasso"); },
    inView(i) { const [px, py] = place(xs[i], ys[i]); return px >= 0 && py >= 0 && px < width && py < height; },
    ratio: () => ratio,
    stop() { watch.disconnect(); clearTimeout(resting); },
  };
}

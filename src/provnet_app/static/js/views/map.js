// Map: all samples on a plane. Hover, lasso, colours by what was found; a query is put where it belongs. Styles: data.css.
import { el, clear, ends, named, count } from "../dom.js";
import { ready } from "../parts/jobs.js";
import { within } from "../parts/lasso.js";
import { scatter } from "../parts/scatter.js";
import { thumbnails } from "../parts/sheets.js";
import { loadMap, middles } from "../parts/map_data.js";
import { roomFor } from "../parts/marks.js";
import { byPlace, isDark, palette, pixel, rampPixels, variable } from "../parts/colours.js";
import { COLOURS, legend, pointCard, selectionCard } from "../parts/map_panel.js";
import { trouble } from "../parts/trouble.js";

export const title = "Map";
const HASH = /^[0-9a-f]{64}$/;
let chosen = null; // the last selection, still there when one comes back from the grid: {run, id, samples, points}

/** Shows the view; query: colour, only (class), query (hash of what was explained). */
export function show(root, context, query) {
  let leave = () => {}, left = false;
  const job = el("div", { class: "jobs-here" });
  root.append(el("h1", { class: "visually-hidden" }, "Map"), job);
  const load = () => ready(context, "map", clear(job)).then(() => {
    job.append(el("p", { class: "empty", role: "status" }, "Loading the map …"));
    return loadMap(context);
  }).then((map) => {
    clear(job);
    if (!left) leave = drawn(root, context, query, map);
  }).catch((error) => {
    clear(job);
    if (!left && error.name !== "AbortError") job.append(trouble(error, load));
  });
  load();
  return () => { left = true; leave(); };
}

function drawn(root, context, query, map) {
  const { run, api, toast } = context;
  const state = { by: COLOURS.some(([one]) => one === query.colour) ? query.colour : "class", only: /^\d+$/.test(query.only ?? "") && Number(query.only) < run.classes.length ? Number(query.only) : -1, crosses: map.wrong.length < map.n / 10, lit: -1, hovered: -1, picked: -1, cross: null, query: null };
  if (!map.mislabel && !["class", "cluster"].includes(state.by)) state.by = "class";
  if (chosen?.run !== run) chosen = null;
  let selected = null; // per point, 1 inside
  const centre = middles(map, run.classes.length), thumbs = thumbnails(context, () => plane.draw(), 12, (error) => toast(`Pictures could not be loaded: ${error.message}`, "bad"));
  const byName = run.classes.map((one) => one.class).filter((c) => centre[c]).sort((a, b) => centre[b][2] - centre[a][2]); // where there is no room for all, those that lie together are named
  const canvas = el("canvas", { class: "map-canvas", tabindex: "0", role: "application", "aria-label": `Map of ${count(map.n)} samples`, "aria-describedby": "map-help" });
  const tip = el("div", { class: "map-tip", hidden: true, "aria-hidden": "true" });
  const button = (words, about, act, more = {}) => el("button", { type: "button", class: "button", title: about, "aria-label": /\p{L}/u.test(words) ? null : about, onClick: act, ...more }, words);
  const move = button("Move", "Move the map by dragging", () => mode("move"), { "aria-pressed": "true" });
  const lasso = button("Lasso", "Select by drawing around points (key L)", () => mode("lasso"), { "aria-pressed": "false" });
  const by = el("select", { id: "map-colour", onChange: () => { state.by = by.value; remember(); paint(); } }, COLOURS.map(([value, words]) => el("option", { value, disabled: !map.mislabel && !["class", "cluster"].includes(value) }, words)));
  by.value = state.by;
  const crosses = el("input", { type: "checkbox", checked: state.crosses, onChange: () => { state.crosses = crosses.checked; plane.draw(); } });
  const top = el("div", { class: "map-top row" },
    el("div", { class: "row joined", role: "group", "aria-label": "What dragging does" }, move, lasso),
    button("Select in view", "Select the samples that are in view", () => select(points().filter((i) => plane.inView(i)))),
    el("div", { class: "field inline" }, el("label", { for: by.id }, "Colour by"), by),
    map.wrong.length ? el("label", { class: "row small check" }, crosses, `× ${count(map.wrong.length)} test samples recognised as another class`) : null);
  const zoom = el("div", { class: "map-zoom" }, button("+", "Zoom in", () => plane.zoomBy(1.6)), button("−", "Zoom out", () => plane.zoomBy(1 / 1.6)), button("⤢", "Show everything", () => plane.whole()));
  const card = selectionCard(context, () => select([])), point = pointCard(context);
  const tones = () => (run.classes.length <= palette().length ? palette() : byPlace(centre));
  const keys = legend(context, map, tones, (lit) => { if (state.lit !== lit) { state.lit = lit; paint(true); } }, (only) => { state.only = only; remember(); paint(); }, (c, k) => select(points().filter((i) => map.label[i] === c && map.cluster[i] === k)));
  const help = el("p", { class: "muted small", id: "map-help" }, "Drag or arrow keys move, wheel, pinch, + and − zoom, 0 shows everything, Enter picks the middle, L changes to the lasso, Esc clears.",
    map.left ? ` ${count(map.left)} samples are not on the map.` : "");
  root.append(top, el("div", { class: "map-work" }, el("div", { class: "stack tight" }, el("div", { class: "map-box" }, canvas, zoom, tip), help), el("div", { class: "map-side" }, card.node, point.node, keys.node)));

  const all = Array.from({ length: map.n }, (_, i) => i);
  const points = () => (state.only < 0 ? all : all.filter((i) => map.label[i] === state.only));
  const remember = () => context.replace({ colour: state.by === "class" ? null : state.by, only: state.only < 0 ? null : state.only, query: HASH.test(query.query ?? "") ? query.query : null });

  const plane = scatter(canvas, map.xs, map.ys, {
    over,
    hover,
    click(px, py, most = 16 * plane.ratio()) {
      const mark = crossAt(px, py, most === 1e9 ? 0 : most), next = mark ? -1 : plane.nearest(px, py, most, (i) => state.only < 0 || map.label[i] === state.only);
      state.cross = mark;
      state.picked = next;
      if (mark) point.test(mark); else if (next >= 0) point.sample(map.hash(next), run.classes[map.label[next]].label, map.index[next]); else point.none();
      plane.draw();
    },
    lassoed(polygon) {
      const inside = within(polygon, map.xs, map.ys, map.n).filter((i) => state.only < 0 || map.label[i] === state.only);
      if (inside.length) select(inside); else toast("No sample is inside that line.");
    },
    rest() {
      if (seen && !thumbs.none) thumbs.want(seen.map((i) => map.hash(i)));
    },
    key(event, key) {
      if (key === "l") mode(lasso.getAttribute("aria-pressed") === "true" ? "move" : "lasso");
      else if (key === "v") select(points().filter((i) => plane.inView(i)));
      else if (key === "Escape") { state.picked = -1; state.cross = null; point.none(); select([]); }
      else return;
      event.preventDefault();
    },
  });
  let seen = null;

  function mode(next) {
    plane.mode(next);
    move.setAttribute("aria-pressed", String(next === "move"));
    lasso.setAttribute("aria-pressed", String(next === "lasso"));
  }

  /** A selection is known to the server, so that the grid can be filtered by it. */
  async function select(inside) {
    if (!inside.length) { chosen = null; selected = null; card.show(null); paint(); return; }
    mark(inside);
    try {
      const found = await api.post("/selections", { index: inside.map((i) => map.index[i]) }, null, { signal: context.signal });
      chosen = { run, id: found.selection, samples: found.samples, points: inside };
      card.show(chosen);
    } catch (error) {
      if (error.name !== "AbortError") toast(error.message, "bad");
    }
  }

  function mark(inside) {
    selected = new Uint8Array(map.n);
    for (const i of inside) selected[i] = 1;
    paint();
  }

  /** `brief`: only a class is pointed at; the legend stays as it is. */
  function paint(brief = false) {
    const dark = isDark(), pale = pixel(variable("--line")), shades = palette().map(pixel), own = tones().map(pixel), ramp = rampPixels(dark), score = map[state.by === "class" || state.by === "cluster" ? "" : state.by];
    const tint = new Uint32Array(map.n), weight = new Float32Array(map.n), one = state.only >= 0 ? state.only : state.lit;
    for (let i = 0; i < map.n; i++) {
      const value = score ? (state.by === "typicality" ? 1 - score[i] : score[i]) : 0;
      const faint = (one >= 0 && map.label[i] !== one) || (selected && !selected[i]);
      tint[i] = faint ? pale : score ? ramp[Math.round(255 * value)] : state.by === "class" ? own[map.label[i]] : shades[(map.cluster[i] + (state.only < 0 ? map.label[i] * 3 : 0)) % shades.length];
      // what should be seen is drawn last; among equals in a scattered order, so that no class lies on top of all others
      weight[i] = (faint ? -2 : 0) + (score ? value : 0) + 0.001 * (((i * 7919) % 1009) / 1009);
    }
    const order = Uint32Array.from(all).sort((a, b) => weight[a] - weight[b]);
    plane.paint({ tint, order, back: pixel(variable("--card")), colours: { ink: variable("--fg"), paper: variable("--card") } });
    if (!brief) keys.show(state.by, state.only, dark);
  }

  function hover(i, px, py) {
    if (i === state.hovered && i >= 0) { put(px, py); return; }
    state.hovered = i;
    tip.hidden = i < 0;
    plane.draw();
    if (i < 0) return;
    const label = run.classes[map.label[i]].label;
    clear(tip);
    if (run.exposure !== "ids" && run.input.picture) tip.append(el("img", { src: api.picture(map.hash(i), run.exposure === "full" ? 96 : undefined), alt: "", width: "96", height: "96" }));
    tip.append(named(label));
    put(px, py);
  }

  function put(px, py) {
    const room = canvas.getBoundingClientRect();
    tip.style.left = `${px + (px > room.width - 140 ? -128 : 16)}px`;
    tip.style.top = `${Math.max(4, py + (py > room.height - 150 ? -142 : 16))}px`;
  }

  function crossAt(px, py, most) {
    if (!state.crosses) return null;
    let best = null, least = most * most;
    for (const one of map.wrong) {
      const [x, y] = plane.place(one.x, one.y), d = (x - px) ** 2 + (y - py) ** 2;
      if (d < least) { least = d; best = one; }
    }
    return best;
  }

  function over(brush, place, sight) {
    const { ratio } = sight, ink = variable("--fg"), paper = variable("--card"), pictured = sight.seen && sight.zoom > 3;
    seen = pictured ? sight.seen : null;
    if (pictured) for (const i of seen) thumbnail(brush, i, place(map.xs[i], map.ys[i]), ratio);
    const outlined = (path, width, colour = ink) => {
      for (const [stroke, wide] of [[paper, width + 2.5], [colour, width]]) {
        brush.beginPath(); path(); brush.strokeStyle = stroke; brush.lineWidth = wide * ratio; brush.stroke();
      }
    };
    if (state.crosses) outlined(() => {
      const a = ratio * Math.min(6, 2.6 + sight.zoom / 2);
      for (const one of map.wrong) {
        if (state.only >= 0 && one.class !== state.only) continue;
        const [x, y] = place(one.x, one.y);
        brush.moveTo(x - a, y - a); brush.lineTo(x + a, y + a); brush.moveTo(x + a, y - a); brush.lineTo(x - a, y + a);
      }
    }, 1.5);
    const ring = (x, y, radius, width) => { const [px, py] = place(x, y); outlined(() => brush.arc(px, py, radius * ratio, 0, 7), width); };
    for (const i of new Set([state.hovered, state.picked])) if (i >= 0) ring(map.xs[i], map.ys[i], pictured ? (run.input.large ? 29 : 21) : 8, 2.2);
    if (state.cross) ring(state.cross.x, state.cross.y, 12, 2.2);
    names(brush, place, sight, ink, paper);
    if (state.query) {
      const { x, y, near } = state.query, [px, py] = place(x, y);
      brush.setLineDash([4 * ratio, 3 * ratio]);
      outlined(() => { for (const one of near) { const i = map.pointOf(one.index); if (i >= 0) { brush.moveTo(px, py); brush.lineTo(...place(map.xs[i], map.ys[i])); } } }, 1);
      brush.setLineDash([]);
      ring(x, y, 13, 3);
      brush.beginPath(); brush.arc(px, py, 5 * ratio, 0, 7); brush.fillStyle = variable("--accent"); brush.fill();
    }
    if (sight.keyboard && document.activeElement === canvas) outlined(() => {
      const x = sight.width / 2, y = sight.height / 2, a = 10 * ratio;
      brush.moveTo(x - a, y); brush.lineTo(x + a, y); brush.moveTo(x, y - a); brush.lineTo(x, y + a);
    }, 1);
  }

  function thumbnail(brush, i, [px, py], ratio) {
    const tile = thumbs.find(map.hash(i)), size = Math.round((run.input.large ? 46 : 30) * ratio);
    if (!tile || (selected && !selected[i]) || (state.only >= 0 && map.label[i] !== state.only)) return;
    brush.imageSmoothingEnabled = run.input.large;
    brush.drawImage(tile.image, tile.x * tile.side, tile.y * tile.side, tile.side, tile.side, px - size / 2, py - size / 2, size, size);
    brush.strokeStyle = tones()[map.label[i]];
    brush.lineWidth = 1.5 * ratio;
    brush.strokeRect(px - size / 2, py - size / 2, size, size);
  }

  // a class is named at the middle of its samples, as far as there is room: colour alone does not have to tell
  function names(brush, place, { ratio, zoom, width, height }, ink, paper) {
    const crowded = run.classes.length > 12, tall = crowded ? 12 : 14, one = state.only >= 0 ? state.only : state.lit;
    brush.font = `600 ${tall * ratio}px system-ui, sans-serif`;
    brush.textAlign = "center"; brush.textBaseline = "middle"; brush.lineJoin = "round";
    const wanted = byName.filter((c) => one < 0 || one === c).map((c) => {
      const [start, end] = ends(run.classes[c].label), letters = [...start], most = end ? 12 : 24;
      const text = letters.length > most ? `${letters.slice(0, most - 1).join("")}…${end}` : start + end, [x, y] = place(centre[c][0], centre[c][1]);
      return { text, x, y, wide: brush.measureText(text).width };
    });
    for (const { text, x, y } of roomFor(wanted, { width, height, line: (tall + 4) * ratio, right: 56 * ratio, most: zoom > 3 || run.classes.length <= 40 ? Infinity : 36 })) {
      brush.strokeStyle = paper; brush.lineWidth = 4 * ratio; brush.strokeText(text, x, y);
      brush.fillStyle = ink; brush.fillText(text, x, y);
    }
  }

  async function placeQuery(hash) {
    try {
      const found = await api.post("/map/place", { sha256: hash }, null, { signal: context.signal });
      state.query = { ...found, y: 1 - found.y };
      point.query(found, hash);
      plane.goTo(state.query.x, state.query.y, 3);
    } catch (error) {
      if (error.name !== "AbortError") toast(error.code === "unknown_hash" ? "The query is no longer known to the server: explain it again." : error.message, "bad");
    }
  }

  if (chosen) { card.show(chosen); mark(chosen.points); } else paint();
  if (HASH.test(query.query ?? "")) placeQuery(query.query);
  const themed = () => paint();
  window.addEventListener("provnet:theme", themed);
  return () => { window.removeEventListener("provnet:theme", themed); plane.stop(); thumbs.stop(); };
}

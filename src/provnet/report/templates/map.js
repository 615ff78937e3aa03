(() => {
  const at = (id) => document.getElementById(id);
  const data = JSON.parse(at("data").textContent);
  const unpack = (text, Kind) => {
    const raw = atob(text), out = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) out[i] = raw.charCodeAt(i);
    return new Kind(out.buffer);
  };
  const n = data.places, train = data.train, k = data.k;
  const xy = unpack(data.xy, Uint16Array), label = unpack(data.label, Int32Array);
  const cluster = unpack(data.cluster, Uint16Array), near = unpack(data.near, Int32Array);
  if (!(n > 0) || xy.length < 2 * n || label.length < n || near.length < n * k) throw new Error("its data are not whole");
  const xs = new Float32Array(n), ys = new Float32Array(n);
  for (let i = 0; i < n; i++) { xs[i] = xy[2 * i]; ys[i] = 65535 - xy[2 * i + 1]; }

  // drawn in a scattered order, so that no class lies on top of all others
  const order = new Uint32Array(train);
  for (let i = 0, j = 0, step = 7919; i < train; i++, j = (j + step) % train) order[i] = j;
  if (train % 7919 === 0) for (let i = 0; i < train; i++) order[i] = i;

  const canvas = at("map"), brush = canvas.getContext("2d", { alpha: false });
  const { parse } = marks, { sheetOf, drawFrom, picture } = thumbnails(data, () => ask());
  const { centre, largest } = marks.middles(data.names.length, label, xs, ys, train);
  let palette = marks.palette("#ffffff"), tones = palette; // tones: of the classes
  const pixel = ([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  let width = 0, height = 0, ratio = 1, frame = null, pixels = null;
  let view = { x: 32767, y: 32767, scale: 0.01 }, fit = 0.01;
  let only = -1, lit = -1, picked = -1, hovered = -1, keyboard = false, crosses = true, waiting = false;
  let pictured = false, tint = new Uint32Array(train), byClass = true, back = 0, ink = "#000", soft = "#888", card = "#fff";

  function paint() {
    card = style("--card"); ink = style("--ink"); soft = style("--soft");
    const paper = parse(card), pale = parse(style("--line"));
    back = pixel(paper);
    palette = marks.palette(card);
    tones = data.names.length <= palette.length ? palette : marks.byPlace(centre, card);
    for (const [c, dot] of [...document.querySelectorAll(".key i")].entries()) dot.style.background = tones[c];
    const shades = palette.map((hex) => pixel(parse(hex))), own = tones.map((hex) => pixel(parse(hex))), one = only >= 0 ? only : lit, dim = pixel(pale);
    byClass = at("by").value === "class";
    at("keys").classList.toggle("plain", !byClass);
    for (let i = 0; i < train; i++) {
      tint[i] = one >= 0 && label[i] !== one ? dim : byClass ? own[label[i]] : shades[(cluster[i] + (only < 0 ? label[i] * 3 : 0)) % shades.length];
    }
    ask();
  }

  function resize() {
    const box = canvas.getBoundingClientRect();
    ratio = Math.min(window.devicePixelRatio || 1, 2);
    const before = width, was = fit;
    width = canvas.width = Math.max(1, Math.round(box.width * ratio));
    height = canvas.height = Math.max(1, Math.round(box.height * ratio));
    frame = brush.createImageData(width, height);
    pixels = new Uint32Array(frame.data.buffer);
    fit = 0.94 * Math.min(width, height) / 65535;
    view.scale = before ? (view.scale * fit) / was : fit;
    ask();
  }

  function ask() {
    if (!waiting) { waiting = true; requestAnimationFrame(() => { waiting = false; draw(); }); }
  }

  function draw() {
    const began = performance.now();
    pixels.fill(back);
    const s = view.scale, ox = width / 2 - view.x * s, oy = height / 2 - view.y * s;
    const zoom = s / fit, r = Math.max(1, Math.min(6, Math.round(ratio * (train > 20000 ? 0.8 : 1.6) * Math.sqrt(Math.min(zoom, 30)))));
    const spans = marks.halfWidths(r);
    const right = width - r - 1, bottom = height - r - 1;
    const seen = [];
    let count = 0;
    for (let j = 0; j < train; j++) {
      const i = order[j], px = (xs[i] * s + ox) | 0, py = (ys[i] * s + oy) | 0;
      if (px < r || py < r || px > right || py > bottom) continue;
      count++;
      if (count <= 400) seen.push(i);
      const colour = tint[i];
      for (let dy = -r; dy <= r; dy++) {
        const half = spans[dy + r], from = (py + dy) * width + px - half;
        for (let q = from, end = from + 2 * half; q <= end; q++) pixels[q] = colour;
      }
    }
    brush.putImageData(frame, 0, 0);
    pictured = data.side > 0 && count <= 400 && zoom > 3;
    if (pictured) for (const i of seen) thumbnail(i, xs[i] * s + ox, ys[i] * s + oy);
    if (crosses) markCrosses(s, ox, oy, zoom);
    names(s, ox, oy, zoom);
    mark(s, ox, oy);
    canvas.dataset.ms = (performance.now() - began).toFixed(2);
  }

  function thumbnail(i, px, py) {
    const size = Math.round(28 * ratio), sheet = sheetOf(i);
    if (!sheet) return;
    drawFrom(brush, sheet, i, px - size / 2, py - size / 2, size);
    brush.strokeStyle = tones[label[i]];
    brush.lineWidth = ratio;
    brush.strokeRect(px - size / 2, py - size / 2, size, size);
  }

  function markCrosses(s, ox, oy, zoom) {
    const a = ratio * Math.min(7, 3 + zoom / 2);
    for (const [colour, wide] of [[card, 3.5], [ink, 1.6]]) {
      brush.beginPath();
      for (let i = train; i < n; i++) {
        if (only >= 0 && label[i] !== only) continue;
        const px = xs[i] * s + ox, py = ys[i] * s + oy;
        brush.moveTo(px - a, py - a); brush.lineTo(px + a, py + a);
        brush.moveTo(px + a, py - a); brush.lineTo(px - a, py + a);
      }
      brush.strokeStyle = colour; brush.lineWidth = wide * ratio; brush.stroke();
    }
  }

  // a class is named at the middle of its samples: colour alone does not have to tell

  function names(s, ox, oy, zoom) {
    brush.font = `600 ${14 * ratio}px system-ui, sans-serif`;
    brush.textAlign = "center"; brush.textBaseline = "middle"; brush.lineJoin = "round";
    const wanted = largest.filter((c) => centre[c] && (only < 0 || only === c)).map((c) => {
      const text = marks.short(data.names[c]), [x, y] = centre[c];
      return { text, x: x * s + ox, y: y * s + oy, wide: brush.measureText(text).width };
    });
    for (const { text, x, y } of marks.roomFor(wanted, { width, height, line: 18 * ratio, most: zoom > 3 || data.names.length <= 40 ? Infinity : 16, right: 52 * ratio })) {
      brush.strokeStyle = card; brush.lineWidth = 4 * ratio; brush.strokeText(text, x, y);
      brush.fillStyle = ink; brush.fillText(text, x, y);
    }
  }

  function ring(i, radius, colour, s, ox, oy) {
    brush.beginPath(); brush.arc(xs[i] * s + ox, ys[i] * s + oy, radius * ratio, 0, 7);
    brush.strokeStyle = colour; brush.stroke();
  }

  function mark(s, ox, oy) {
    const i = picked >= 0 ? picked : hovered;
    if (i >= 0) {
      brush.strokeStyle = ink; brush.lineWidth = ratio; brush.setLineDash([4 * ratio, 3 * ratio]); brush.beginPath();
      for (const j of others(i)) if (j < train) { brush.moveTo(xs[i] * s + ox, ys[i] * s + oy); brush.lineTo(xs[j] * s + ox, ys[j] * s + oy); }
      brush.stroke(); brush.setLineDash([]);
      brush.lineWidth = 1.5 * ratio;
      for (const j of others(i)) if (j < train) ring(j, pictured ? 21 : 5, ink, s, ox, oy);
      const wide = pictured ? 22 : 9;
      brush.lineWidth = 5 * ratio; ring(i, wide, card, s, ox, oy);
      brush.lineWidth = 2.5 * ratio; ring(i, wide, ink, s, ox, oy);
    }
    if (keyboard && document.activeElement === canvas) {
      brush.strokeStyle = ink; brush.lineWidth = ratio; brush.beginPath();
      const x = width / 2, y = height / 2, a = 9 * ratio;
      brush.moveTo(x - a, y); brush.lineTo(x + a, y); brush.moveTo(x, y - a); brush.lineTo(x, y + a); brush.stroke();
    }
  }

  const others = (i) => Array.from(near.subarray(i * k, i * k + k)).filter((j) => j >= 0);

  const make = (tag, name, text) => { const e = document.createElement(tag); if (name) e.className = name; if (text !== undefined) e.textContent = text; return e; };
  let shown = -1;
  function tell(i) {
    if (i < 0 || i === shown) return;
    shown = i;
    const box = at("one");
    box.replaceChildren();
    if (data.side) box.append(picture(i, 264));
    box.append(make("div", "over", i < train ? "training sample" : "test sample, misattributed"));
    box.append(make("h2", "", data.names[label[i]] + (i < train ? `, group ${cluster[i] + 1}` : " (true class)")));
    box.append(make("div", "where", data.ids[i]));
    const list = make("ol", "others"), rest = others(i);
    box.append(make("div", "help", rest.length ? "Named for it" + (i < train ? " besides itself" : "") : "No other sample is named for it"));
    for (const j of rest) {
      const line = make("li"), button = make("button");
      button.type = "button";
      if (data.side) button.append(picture(j, 88));
      const words = make("span", "", data.names[label[j]]);
      words.append(document.createElement("br"), make("span", "where", data.ids[j]));
      button.append(words);
      button.disabled = j >= n;
      button.addEventListener("click", () => go(j));
      line.append(button); list.append(line);
    }
    box.append(list);
  }

  function go(i) {
    picked = i; tell(i);
    view.x = xs[i]; view.y = ys[i];
    view.scale = Math.max(view.scale, fit * 6);
    ask();
  }
  function nearest(px, py, most) {
    const s = view.scale, ox = width / 2 - view.x * s, oy = height / 2 - view.y * s;
    let best = -1, least = most * most;
    for (let i = 0; i < n; i++) {
      if ((only >= 0 && label[i] !== only) || (i >= train && !crosses)) continue;
      const dx = xs[i] * s + ox - px, dy = ys[i] * s + oy - py, d = dx * dx + dy * dy - (i >= train ? 4 : 0);
      if (d < least) { least = d; best = i; }
    }
    return best;
  }
  function zoomBy(factor, px = width / 2, py = height / 2) {
    const next = Math.min(fit * 400, Math.max(fit * 0.6, view.scale * factor)), f = 1 / view.scale - 1 / next;
    view.x += (px - width / 2) * f; view.y += (py - height / 2) * f; view.scale = next;
    ask();
  }
  const inside = (e) => { const box = canvas.getBoundingClientRect(); return [(e.clientX - box.left) * ratio, (e.clientY - box.top) * ratio]; };

  const fingers = new Map();
  let moved = 0, gap = 0, look = null;
  canvas.addEventListener("pointerdown", (e) => { canvas.setPointerCapture(e.pointerId); fingers.set(e.pointerId, inside(e)); moved = 0; gap = 0; keyboard = false; canvas.classList.add("moving"); });
  canvas.addEventListener("pointermove", (e) => {
    const here = inside(e), before = fingers.get(e.pointerId);
    if (!before) {
      if (picked >= 0) return;
      if (!look) requestAnimationFrame(() => { const next = nearest(look[0], look[1], 14 * ratio); look = null; if (next !== hovered) { hovered = next; tell(next); ask(); } });
      look = here;
      return;
    }
    fingers.set(e.pointerId, here);
    if (fingers.size === 1) {
      view.x -= (here[0] - before[0]) / view.scale; view.y -= (here[1] - before[1]) / view.scale;
      moved += Math.abs(here[0] - before[0]) + Math.abs(here[1] - before[1]);
      ask();
    } else {
      const [a, b] = [...fingers.values()], now = Math.hypot(a[0] - b[0], a[1] - b[1]);
      if (gap) zoomBy(now / gap, (a[0] + b[0]) / 2, (a[1] + b[1]) / 2);
      gap = now; moved = 99;
    }
  });
  const lift = (e) => {
    if (fingers.delete(e.pointerId) && e.type === "pointerup" && moved < 5 * ratio) {
      const [px, py] = inside(e), next = nearest(px, py, 16 * ratio);
      picked = next === picked ? -1 : next;
      hovered = next; tell(next); ask();
    }
    if (!fingers.size) canvas.classList.remove("moving");
    gap = 0;
  };
  canvas.addEventListener("pointerup", lift);
  canvas.addEventListener("pointercancel", lift);
  canvas.addEventListener("wheel", (e) => { e.preventDefault(); zoomBy(Math.exp(-Math.max(-120, Math.min(120, e.deltaY)) / 240), ...inside(e)); }, { passive: false });
  canvas.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const step = 60 * ratio / view.scale;
    const does = {
      ArrowLeft: () => { view.x -= step; }, ArrowRight: () => { view.x += step; }, ArrowUp: () => { view.y -= step; }, ArrowDown: () => { view.y += step; },
      "+": () => zoomBy(1.4), "=": () => zoomBy(1.4), "-": () => zoomBy(1 / 1.4), 0: all, Home: all,
      Enter: () => { const i = nearest(width / 2, height / 2, 1e9); if (i >= 0) { picked = i; tell(i); } },
      n: () => walk(1), p: () => walk(-1), Escape: () => { picked = hovered = -1; },
    }[e.key.length === 1 ? e.key.toLowerCase() : e.key];
    if (!does) return;
    e.preventDefault(); keyboard = true; does(); ask();
  });
  function walk(by) {
    for (let i = (picked < 0 ? -1 : picked) + by, tries = 0; tries < n; i += by, tries++) {
      const j = ((i % n) + n) % n;
      if ((only < 0 || label[j] === only) && (j < train || crosses)) { go(j); return; }
    }
  }
  function all() { view = { x: 32767, y: 32767, scale: fit }; ask(); }
  canvas.addEventListener("blur", ask);

  at("in").addEventListener("click", () => zoomBy(1.6));
  at("out").addEventListener("click", () => zoomBy(1 / 1.6));
  at("all").addEventListener("click", all);
  at("by").addEventListener("change", paint);
  if (at("crosses")) at("crosses").addEventListener("change", (e) => { crosses = e.target.checked; ask(); });

  data.names.forEach((name, c) => {
    const button = make("button", "key"), dot = make("i");
    button.type = "button"; button.title = name; button.setAttribute("aria-pressed", "false");
    button.append(dot, make("span", "", marks.short(name)));
    button.addEventListener("click", () => {
      only = only === c ? -1 : c;
      for (const [i, one] of [...at("keys").children].entries()) one.setAttribute("aria-pressed", String(i === only));
      paint();
    });
    for (const [event, to] of [["pointerenter", c], ["pointerleave", -1], ["focus", c], ["blur", -1]]) button.addEventListener(event, () => { lit = to; paint(); });
    at("keys").append(button);
  });

  if (data.names.length > palette.length) {
    at("repeats").textContent = "Classes that lie near each other have like colours: point at a name to see its samples, press it to see them alone.";
  }

  finder(data, n, go);
  window.addEventListener("resize", resize);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  resize(); paint();
  at("state").hidden = true;
})();

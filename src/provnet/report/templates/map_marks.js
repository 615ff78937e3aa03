"use strict";
// Colours and places of names: what tells classes apart on the map. The app's map follows the same rules.
const marks = (() => {
  // ten for each ground: all stand out from it, any two are told apart also without full colour vision
  const PALETTES = {
    light: ["#0099dd", "#772200", "#227700", "#ff33bb", "#0000dd", "#bb8811", "#660099", "#aa5577", "#004455", "#7755ff"],
    dark: ["#33eeff", "#dd0000", "#00ee00", "#ff66aa", "#2255ff", "#bb9900", "#bb00bb", "#ffccaa", "#337766", "#8899ff"],
  };

  const parse = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  const palette = (ground) => PALETTES[parse(ground).reduce((sum, part) => sum + part) < 384 ? "dark" : "light"];

  // a colour for each of very many classes, by where they lie: regions are seen, a sample among strangers stands out
  const byPlace = (middles, ground) => middles.map((at) => {
    if (!at) return "#808080";
    const [x, y] = at.map((value) => value / 65536 - 0.5), far = Math.min(1, 2 * Math.hypot(x, y)), dark = palette(ground) === PALETTES.dark;
    const hue = ((Math.atan2(y, x) * 180) / Math.PI + 360) % 360, saturation = 0.45 + 0.4 * far, light = dark ? 0.68 - 0.1 * far : 0.36 + 0.08 * far;
    const part = (m) => {
      const q = (m + hue / 30) % 12, value = light - saturation * Math.min(light, 1 - light) * Math.max(-1, Math.min(q - 3, 9 - q, 1));
      return Math.round(255 * value).toString(16).padStart(2, "0");
    };
    return `#${part(0)}${part(8)}${part(4)}`;
  });

  // half the width of a disc in each of its 2 r + 1 rows
  const halfWidths = (r) => Array.from({ length: 2 * r + 1 }, (_, row) => Math.floor(Math.sqrt(r * r + r * 0.6 - (row - r) ** 2)));

  // names that find room inside the picture (less what its buttons cover on the right) and beside each other, the most
  // important first
  function roomFor(wanted, { width, height, line, most, right }) {
    const placed = [];
    for (const one of wanted) {
      if (placed.length >= most) break;
      if (one.x < 0 || one.y < 0 || one.x > width || one.y > height) continue; // its samples are not in view
      const half = one.wide / 2, x = Math.max(half + 4, Math.min(width - right - half - 4, one.x));
      const free = (y) => y >= line / 2 && y <= height - line / 2
        && placed.every((other) => Math.abs(other.y - y) >= line || Math.abs(other.x - x) >= half + other.wide / 2 + 6);
      const tried = Math.max(line / 2, Math.min(height - line / 2, one.y));
      const y = [tried, tried - line, tried + line].find(free);
      if (y !== undefined) placed.push({ ...one, x, y });
    }
    return placed;
  }

  // where each of `classes` classes is most by itself (many of its own, few of others: middles of all would pile up where
  // classes mix), and the classes by their number of samples, largest first
  function middles(classes, label, xs, ys, train) {
    const across = train / classes < 200 ? 8 : 20, cells = across * across, all = new Float32Array(cells), sizes = new Uint32Array(classes);
    const mine = Array.from({ length: classes }, () => null), column = (value) => Math.min(across - 1, Math.floor((value / 65536) * across));
    for (let i = 0; i < train; i++) {
      const c = column(ys[i]) * across + column(xs[i]), own = (mine[label[i]] ??= [new Float32Array(cells), new Float64Array(cells), new Float64Array(cells)]);
      sizes[label[i]] += 1; all[c] += 1;
      own[0][c] += 1; own[1][c] += xs[i]; own[2][c] += ys[i];
    }
    const centre = mine.map((own) => {
      if (!own) return null;
      const [count, x, y] = own, worth = (c) => count[c] ** 2 / Math.max(1, all[c]);
      let best = 0;
      for (let c = 1; c < cells; c++) if (worth(c) > worth(best)) best = c;
      return [x[best] / count[best], y[best] / count[best]];
    });
    return { centre, largest: Array.from(sizes.keys()).sort((a, b) => sizes[b] - sizes[a]) };
  }

  // a long name keeps its start and its end
  const short = (name) => { const letters = [...name]; return letters.length > 22 ? letters.slice(0, 11).join("") + "…" + letters.slice(-9).join("") : name; };
  return { parse, palette, byPlace, halfWidths, roomFor, middles, short };
})();

// what goes wrong is said where the map would be, never only in the console
const failed = (words) => {
  const place = document.getElementById("state");
  if (!place) return;
  place.hidden = false;
  place.className = "support no";
  place.textContent = words;
};
window.addEventListener("error", (event) => failed(`The map could not be drawn (${event.error?.message ?? event.message}). map.png shows the same places, map.csv lists them; provnet map makes this file anew.`));

// Colours that are told apart also without full colour vision, on light and on dark, as numbers for a canvas.

/**
 * Ten colours for each ground, chosen so that all stand out from it (3 to 1) and any two are told apart also without full
 * colour vision; tests/report/test_colours.py measures both. More classes are coloured by where they lie.
 */
export const PALETTES = {
  light: ["#0099dd", "#772200", "#227700", "#ff33bb", "#0000dd", "#bb8811", "#660099", "#aa5577", "#004455", "#7755ff"],
  dark: ["#33eeff", "#dd0000", "#00ee00", "#ff66aa", "#2255ff", "#bb9900", "#bb00bb", "#ffccaa", "#337766", "#8899ff"],
};

/** The colours for the page as it is now. */
export function palette() {
  return PALETTES[isDark() ? "dark" : "light"];
}

/**
 * A colour for each of very many classes, by where they lie on the map: neighbours are alike, so that regions are seen, and
 * a sample among strangers stands out. `middles`: [x, y] in 0..1 or null. Names, the legend and a pointer tell the rest.
 */
export function byPlace(middles) {
  const dark = isDark();
  return middles.map((at) => {
    if (!at) return "#808080";
    const [x, y] = [at[0] - 0.5, at[1] - 0.5], far = Math.min(1, 2 * Math.hypot(x, y));
    return hex(((Math.atan2(y, x) * 180) / Math.PI + 360) % 360, 0.45 + 0.4 * far, dark ? 0.68 - 0.1 * far : 0.36 + 0.08 * far);
  });
}

function hex(hue, saturation, light) {
  const part = (n) => {
    const k = (n + hue / 30) % 12, value = light - saturation * Math.min(light, 1 - light) * Math.max(-1, Math.min(k - 3, 9 - k, 1));
    return Math.round(255 * value).toString(16).padStart(2, "0");
  };
  return `#${part(0)}${part(8)}${part(4)}`;
}

// from what can be overlooked to what should be seen; lightness alone tells them apart
const RAMPS = {
  light: ["#cdd3de", "#c9b27c", "#d9851a", "#a83a12", "#4a0a0a"],
  dark: ["#3a4150", "#6f5a3a", "#c47a2a", "#f2ac4e", "#fff6c2"],
};

const parts = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));

/** A colour as the 32 bits that an ImageData holds. */
export function pixel(hex) {
  const [r, g, b] = parts(hex);
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
}

/** A variable of the style sheet, as #rrggbb. */
export function variable(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** Whether the page is dark now. */
export function isDark() {
  const [r, g, b] = parts(variable("--card"));
  return r + g + b < 384;
}

/** The ramp of scores as CSS, for its legend. */
export function rampCss(dark) {
  return `linear-gradient(to right, ${RAMPS[dark ? "dark" : "light"].join(", ")})`;
}

/** 256 colours of the ramp, as pixels. */
export function rampPixels(dark) {
  const stops = RAMPS[dark ? "dark" : "light"].map(parts);
  return Uint32Array.from({ length: 256 }, (_, i) => {
    const at = (i / 255) * (stops.length - 1), from = Math.min(Math.floor(at), stops.length - 2), share = at - from;
    const [r, g, b] = stops[from].map((value, k) => Math.round(value + (stops[from + 1][k] - value) * share));
    return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
  });
}

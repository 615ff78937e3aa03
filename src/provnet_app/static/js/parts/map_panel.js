// Beside the map: the selection and what can be done with it, the legend, and the sample that was pointed at.
import { el, clear, named, count, percent, short } from "../dom.js";
import { palette, rampCss } from "./colours.js";
import { zoomable } from "./zoom.js";
import { save, selectionJson } from "./map_data.js";

export const COLOURS = [["class", "class"], ["cluster", "group within its class"], ["mislabel", "wrong label"], ["anomaly", "of no class"], ["typicality", "typical of its class"]];
const ENDS = { mislabel: ["label right", "label wrong"], anomaly: ["of its class", "of no class"], typicality: ["typical", "untypical"] };

/** The card of the selection: {node, show(selection or null)}; selection: {id, samples}. */
export function selectionCard(context, drop) {
  const node = el("section", { class: "card stack tight", "aria-label": "Selection" });
  const told = el("p", { class: "muted small" }, "Draw around points with the lasso, or hold Shift and draw. With the keyboard: choose a class or a group below, then “Select in view”.");

  async function json(found, button) {
    button.disabled = true;
    try {
      save(await selectionJson(context, found.id, found.samples), "selection.json", "application/json");
    } catch (error) {
      if (error.name !== "AbortError") context.toast(error.message, "bad");
    }
    button.disabled = false;
  }

  function show(found) {
    clear(node).append(el("h2", {}, "Selection"));
    if (!found) { node.append(told); return; }
    const asJson = el("button", { type: "button", class: "button small", onClick: () => json(found, asJson) }, "Save JSON");
    node.append(
      el("p", { class: "selected-count", role: "status" }, el("b", {}, count(found.samples)), ` ${found.samples === 1 ? "sample" : "samples"}`),
      el("div", { class: "row" },
        el("a", { class: "button primary small", href: context.link("data", { selection: found.id }) }, "Show in data"),
        el("a", { class: "button small", href: context.api.address(`/selections/${found.id}.csv`), download: "selection.csv" }, "Save CSV"), asJson,
        el("button", { type: "button", class: "button small quiet", onClick: drop }, "Clear")));
  }
  show(null);
  return { node, show };
}

const MANY = 10; // classes; beyond that a legend is searched

/**
 * The legend: which colour is what; a class can be pointed at, or shown alone. `tones()` the colours of the classes,
 * `light(class or -1)`, `choose(class or -1)`, `take(class, cluster)`.
 */
export function legend(context, map, tones, light, choose, take) {
  const node = el("section", { class: "card stack tight", "aria-label": "Legend" });
  const dot = (colour) => el("i", { class: "dot", style: { background: colour }, "aria-hidden": "true" });
  const classes = context.run.classes.length;
  // what colour cannot tell is said
  const alike = classes <= palette().length ? "" : " Classes that lie close together have similar colours: point at a name to see its samples.";

  const keys = el("div", { class: "legend-keys" });
  const find = el("input", { type: "search", "aria-label": "Find a class", placeholder: "part of a class name", autocomplete: "off", spellcheck: "false", onInput: narrowed });
  function narrowed() {
    const part = find.value.trim().toLocaleLowerCase();
    context.run.classes.forEach((one, i) => { if (keys.children[i]) keys.children[i].hidden = !one.label.toLocaleLowerCase().includes(part); });
  }

  function show(by, only, dark) {
    const inside = [...node.querySelectorAll("button, input")].indexOf(document.activeElement);
    const scrolled = keys.scrollTop;
    clear(node).append(el("h2", {}, "Legend"));
    if (ENDS[by]) {
      node.append(el("div", { class: "ramp", style: { background: rampCss(dark) }, "aria-hidden": "true" }), el("div", { class: "row apart small" }, el("span", {}, ENDS[by][0]), el("span", {}, ENDS[by][1])));
    }
    if (by === "cluster") {
      const groups = only < 0 ? map.clusters : map.clusters.filter((one) => one.class === only);
      node.append(el("p", { class: "muted small" }, "Choose a group to select its samples. Colours repeat."), el("div", { class: "legend-keys" }, groups.map((one) =>
        el("button", { type: "button", class: "button small", onClick: () => take(one.class, one.cluster) }, dot(palette()[(one.cluster + (only < 0 ? one.class * 3 : 0)) % palette().length]), named(`${context.run.classes[one.class].label}, ${one.cluster + 1}`), el("span", { class: "num muted" }, count(one.samples))))));
    } else {
      node.append(el("p", { class: "muted small" }, "Choose a class to see it alone.", by === "class" ? alike : ""), ...(classes > MANY ? [find] : []), keys);
      const shades = tones();
      keys.replaceChildren(...context.run.classes.map((one) =>
        el("button", { type: "button", class: "button small", title: one.label, "aria-pressed": String(only === one.class), onPointerenter: () => light(one.class), onPointerleave: () => light(-1), onFocus: () => light(one.class), onBlur: () => light(-1), onClick: () => choose(only === one.class ? -1 : one.class) }, by === "class" ? dot(shades[one.class]) : null, named(one.label), el("span", { class: "num muted" }, count(one.samples)))));
      narrowed();
      keys.scrollTop = scrolled;
    }
    if (inside >= 0) node.querySelectorAll("button, input")[inside]?.focus();
  }
  return { node, show };
}

/** One point in full: {node, sample(hash, label, index), test(mark), query(place, hash), none()}. */
export function pointCard(context) {
  const { api, run } = context;
  const node = el("section", { class: "card stack tight point", "aria-label": "The point", "aria-live": "polite" });
  const picture = (hash, shown = run.exposure !== "ids") => (shown && run.input.picture
    ? el("div", { class: "picture" }, el("img", { src: api.picture(hash, run.exposure === "full" ? 160 : undefined), alt: "" })) : el("div", { class: "picture none" }, short(hash, 8)));
  let turn = 0;

  function frame(over, hash, title, ...rest) {
    const shown = run.exposure !== "ids" && run.input.picture;
    clear(node).append(el("div", { class: "point-head" }, shown ? zoomable(context, { sha256: hash }, { size: 192 }) : picture(hash), el("div", { class: "stack tight" }, el("span", { class: "over" }, over), title, ...rest)));
  }

  async function sample(hash, label, index) {
    const mine = (turn += 1);
    frame("training sample", hash, named(label, "panel-label"));
    try {
      const { items } = await api.get(`/samples/${hash}`, null, { signal: context.signal });
      if (mine !== turn || !items.length) return;
      const one = items.find((item) => item.index === index) ?? items[0]; // equal pictures may have other labels
      frame("training sample", hash, named(one.label, "panel-label"), named(one.sample_id, "mono small"),
        one.text ? el("span", { class: "small" }, one.text.slice(0, 240)) : null,
        one.mislabel === null ? null : el("span", { class: "small muted" }, `wrong label ${one.mislabel.toFixed(2)}, of no class ${one.anomaly.toFixed(2)}, typical ${one.typicality.toFixed(2)}`),
        one.flags.includes("mislabel") && one.suggested !== null ? el("span", { class: "chip bad" }, named(`suggested: ${one.suggested}`)) : null,
        el("div", { class: "row small" }, el("a", { href: context.link("data", { id: one.sample_id }) }, "Show in data"), el("a", { href: context.link("explain", { hash, id: one.sample_id }) }, "Explain it")));
    } catch (error) {
      if (error.name !== "AbortError") context.toast(error.message, "bad");
    }
  }

  function test(one) {
    turn += 1;
    frame("test sample, recognised as another class", one.sha256, named(one.label, "panel-label"), el("span", { class: "small" }, "its first exemplar: ", named(one.predicted, "flow")),
      el("div", { class: "row small" }, el("a", { href: context.link("explain", { test: one.position }) }, "Explain it")));
  }

  function query(place, hash) {
    turn += 1;
    frame("the query", hash, el("span", { class: "small muted" }, "It lies among the samples that the model names for it."), el("div", { class: "row small" }, el("a", { href: context.link("explain", { hash }) }, "Explain it")));
    node.append(el("ol", { class: "named" }, place.near.slice(0, 6).map((one) => el("li", {},
      el("a", { href: context.link("explain", { hash: one.sha256, id: one.sample_id }) }, picture(one.sha256), el("span", { class: "named-words small" }, named(one.label), el("span", { class: "num muted" }, percent(one.share, 0))))))));
  }

  function none() {
    turn += 1;
    clear(node).append(el("p", { class: "muted small" }, "Point at the map to see a picture; click, or press Enter for the middle of the map, to keep it here."));
  }
  none();
  return { node, sample, test, query, none };
}

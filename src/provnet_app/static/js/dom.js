// Making nodes. Names come from data, so text is only ever put in as text: there is no way here to give markup.

const SVG = "http://www.w3.org/2000/svg";
const SAFE_LINK = /^(#|\/(?!\/)|blob:|data:image\/png;base64,)/;

/**
 * An element. `props`: class, dataset {}, style {}, on<Event> functions, aria-*, any property or attribute;
 * null, undefined and false leave a property out. Children: nodes, text, numbers, arrays of them.
 * @example el("button", {class: "button", type: "button", onClick: save}, "Save")
 */
export function el(tag, props, ...children) {
  return filled(document.createElement(tag), props, children);
}

/** The same for SVG. */
export function svg(tag, props, ...children) {
  return filled(document.createElementNS(SVG, tag), props, children);
}

function filled(node, props, children) {
  for (const [key, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined) continue;
    if (key.startsWith("on") && typeof value === "function") node.addEventListener(key.slice(2).toLowerCase(), value);
    else if (key === "class") node.setAttribute("class", value);
    else if (key === "dataset") Object.assign(node.dataset, value);
    else if (key === "style") styled(node, value);
    else if (key === "text") node.textContent = value;
    else if (key === "href" && !SAFE_LINK.test(String(value))) throw new Error(`not a link within the page: ${value}`);
    else if (key.startsWith("aria-")) node.setAttribute(key, String(value));
    else if (typeof value === "boolean" && key in node && !(node instanceof SVGElement)) node[key] = value;
    else if (typeof value === "boolean") node.toggleAttribute(key, value);
    else if (key === "value") node.value = value;
    else node.setAttribute(key, String(value));
  }
  append(node, children);
  return node;
}

// an attribute `style` is refused by the page's content policy; the property is not
function styled(node, value) {
  if (typeof value === "string") node.style.cssText = value;
  else for (const [name, one] of Object.entries(value)) {
    if (name.startsWith("--")) node.style.setProperty(name, one);
    else node.style[name] = one;
  }
}

/** Add children to a node: text becomes text nodes, null and false nothing. */
export function append(node, ...children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false || child === true) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

/** Take everything out of a node, and give it back. */
export function clear(node) {
  node.replaceChildren();
  return node;
}

const SHORTEST = 16; // a name of so many letters is not cut in two
const END = 9; // letters at the end that stay: they tell the samples of a folder apart
// a cut would tear accents, joined emoji and flags from their letter, and swap halves that run from right to left
const WHOLE = /[\p{M}\p{Cf}\p{Emoji_Modifier}\p{Regional_Indicator}\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;

/** A long name in two parts, so that a narrow place can cut its middle, as the reports do; else the name and "". */
export function ends(text) {
  const letters = [...text];
  return letters.length <= SHORTEST || WHOLE.test(text) ? [text, ""] : [letters.slice(0, -END).join(""), letters.slice(-END).join("")];
}

/** A name from the data: one line, cut in its middle, whole in its title, its direction kept to itself. */
export function named(text, more = "") {
  return rename(el("bdi", { class: `name ${more}`.trim() }), text);
}

/**
 * Put another name into a node that `named` made; names over several lines are never cut in the middle.
 * The two parts are drawn by the style sheet: what is read aloud, found and copied is the whole name, in one piece.
 */
export function rename(node, text, title = text) {
  const [start, end] = node.classList.contains("lines") ? [text, ""] : ends(text);
  const part = (name, shown) => el("span", { class: name, dataset: { shown }, "aria-hidden": "true" });
  node.classList.toggle("cut", end !== "");
  node.title = title;
  node.replaceChildren(...(end ? [el("span", { class: "visually-hidden", text }), part("a", start), part("z", end)] : [text]));
  return node;
}

/** A box that scrolls sideways or down: the keyboard can reach it, and it says what it holds. */
export function scrolling(label, ...children) {
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, children);
}

/** A meter: a bar that is also read aloud. `label` says of what. */
export function bar(share, label, kind = "") {
  const whole = Math.max(0, Math.min(1, share));
  const read = { "aria-valuemin": 0, "aria-valuemax": 1, "aria-valuenow": whole.toFixed(4), "aria-valuetext": percent(share) };
  return el("div", { class: `bar ${kind}`.trim(), role: "meter", "aria-label": label, ...read },
    el("i", { style: { width: `${whole * 100}%` } }));
}

const FLOAT = 1e-9; // nearer to all or to none than this is an error of arithmetic

/** 0.9812 as "98.1 %", never rounded to all or to none (the rule of report/text.py); a dash where there is none. */
export function percent(x, digits = 1) {
  if (x === null || x === undefined || !Number.isFinite(x)) return "–";
  if (Math.abs(x) < FLOAT || Math.abs(x - 1) < FLOAT) return `${Math.round(x * 100)} %`;
  for (let places = digits; places <= digits + 2; places += 1) {
    const written = (x * 100).toFixed(places);
    if (Number(written) !== 0 && Number(written) !== 100) return `${written} %`;
  }
  const least = 10 ** -(digits + 2);
  return x < 0.5 ? `< ${least.toFixed(digits + 2)} %` : `> ${(100 - least).toFixed(digits + 2)} %`;
}

/** Two ends of an interval as "97.1 to 98.8", by the same rule. */
export function range(low, high) {
  return [low, high].map((x) => percent(x).replace(" %", "")).join(" to ");
}

/** A count with its thousands apart. */
export function count(n) {
  return n === null || n === undefined ? "–" : Math.round(n).toLocaleString("en-US");
}

/** {value, low, high, n, why} as "98.1 % (97.1 to 98.8, n 1,000)"; `plain` for figures that are not shares. */
export function interval(figure, plain = false) {
  if (!figure || figure.value === null || figure.value === undefined) return figure?.why || "not measured";
  const number = (x) => Number(x).toFixed(3), { value, low, high, n } = figure;
  const inside = [];
  if (low !== null && low !== undefined) inside.push(plain ? `${number(low)} to ${number(high)}` : range(low, high));
  if (n) inside.push(`n ${count(n)}`);
  return `${plain ? number(value) : percent(value)}${inside.length ? ` (${inside.join(", ")})` : ""}`;
}

/** Scroll `box` as far as it takes to see `node` in it. `scrollIntoView` would also move the place that Tab goes on from. */
export function reveal(node, box) {
  const inner = node.getBoundingClientRect(), outer = box.getBoundingClientRect();
  for (const [start, end, scrolled] of [["left", "right", "scrollLeft"], ["top", "bottom", "scrollTop"]]) {
    if (inner[start] < outer[start]) box[scrolled] -= outer[start] - inner[start];
    else if (inner[end] > outer[end]) box[scrolled] += inner[end] - outer[end];
  }
}

/** The first digits of a hash, for people. */
export function short(hash, digits = 12) {
  return hash ? `${hash.slice(0, digits)}…` : "";
}

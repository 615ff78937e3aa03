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

/** A name from the data: one line, cut with an ellipsis, whole in its title, its direction kept to itself. */
export function named(text, more = "") {
  return el("bdi", { class: `name ${more}`.trim(), title: text, text });
}

/** A meter: a bar that is also read aloud. `label` says of what. */
export function bar(share, label, kind = "") {
  const whole = Math.max(0, Math.min(1, share));
  const read = { "aria-valuemin": 0, "aria-valuemax": 1, "aria-valuenow": whole.toFixed(4), "aria-valuetext": percent(share) };
  return el("div", { class: `bar ${kind}`.trim(), role: "meter", "aria-label": label, ...read },
    el("i", { style: { width: `${whole * 100}%` } }));
}

/** 0.9812 as "98.1 %"; a dash where there is none. */
export function percent(x, digits = 1) {
  if (x === null || x === undefined || !Number.isFinite(x)) return "–";
  if (x > 0 && x < 0.5 * 10 ** -(digits + 2)) return `< ${(10 ** -digits).toFixed(digits)} %`;
  return `${(x * 100).toFixed(digits)} %`;
}

/** A count with its thousands apart. */
export function count(n) {
  return n === null || n === undefined ? "–" : Math.round(n).toLocaleString("en-US");
}

/** {value, low, high, n, why} as "98.1 % (97.1 to 98.8, n 1,000)"; `plain` for figures that are not shares. */
export function interval(figure, plain = false) {
  if (!figure || figure.value === null || figure.value === undefined) return figure?.why || "not measured";
  const number = (x) => (plain ? Number(x).toFixed(3) : (x * 100).toFixed(1));
  const inside = [];
  if (figure.low !== null && figure.low !== undefined) inside.push(`${number(figure.low)} to ${number(figure.high)}`);
  if (figure.n) inside.push(`n ${count(figure.n)}`);
  return `${number(figure.value)}${plain ? "" : " %"}${inside.length ? ` (${inside.join(", ")})` : ""}`;
}

/** The first digits of a hash, for people. */
export function short(hash, digits = 12) {
  return hash ? `${hash.slice(0, digits)}…` : "";
}

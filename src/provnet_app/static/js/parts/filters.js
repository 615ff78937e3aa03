// Which samples: the quick choices with their counts, the filters, and the range of the score that is sorted by.
import { el, svg, clear, count } from "../dom.js";
import { KINDS, SUSPICIOUS } from "./kinds.js";

export const SCORES = { issue: "suspicion", mislabel: "wrong label", anomaly: "of no class", typicality: "typical of its class" };
const FLAGS = [["", "any"], ["suspect", "any suspect"], ...Object.entries(KINDS).map(([kind, [name]]) => [kind, name]), ["added", "added after training"]];
const DECISIONS = [["", "any"], ["none", "undecided"], ["any", "decided"], ["keep", "keep"], ["relabel", "relabel"], ["drop", "drop"]];
const SORTS = [["index", "order in the data"], ["selection", "likeness"], ["issue", "suspicion"], ["mislabel", "wrong label"], ["anomaly", "of no class"], ["typicality", "typical of its class"], ["label", "label"], ["group", "duplicate groups"]];
const NAMES = ["sort", "order", "class", "suggested", "flag", "tag", "decision", "minimum", "maximum", "selection", "group", "text", "id"];

/** Only what GET /samples takes, out of an address; what it does not know is left out. */
export function readQuery(query) {
  const known = Object.fromEntries(NAMES.filter((name) => query[name]).map((name) => [name, query[name]]));
  const one = (name, list) => { if (known[name] && !list.some(([value]) => value === known[name])) delete known[name]; };
  known.flag = { mislabel: "wrong", anomaly: "foreign" }[known.flag] ?? known.flag; // as older addresses have them
  if (!known.flag) delete known.flag;
  one("sort", SORTS); one("flag", FLAGS); one("decision", DECISIONS); one("order", [["asc"], ["desc"]]);
  for (const name of ["minimum", "maximum"]) if (known[name] && (!(Number(known[name]) >= 0 && Number(known[name]) <= 1) || !SCORES[known.sort])) delete known[name];
  if (known.sort === "selection" && !known.selection) delete known.sort;
  for (const name of ["class", "suggested", "group"]) if (known[name] && !/^\d{1,9}$/.test(known[name])) delete known[name];
  if (known.selection && !/^[0-9a-f]{16}$/.test(known.selection)) delete known.selection;
  if (known.text) known.text = known.text.slice(0, 200).replaceAll("\0", "");
  return known;
}

/**
 * The filters of a view. `changed(query, soon)` is called with the whole new query; soon: still typing or sliding.
 * Gives {node, show(query), summary(record)}.
 */
export function filters(context, changed) {
  const { run } = context;
  let now = {}, record = null, timer = 0;

  const set = (change, soon = false) => {
    const next = { ...now, ...change };
    for (const [name, value] of Object.entries(next)) if (value === "" || value === null) delete next[name];
    if (!SCORES[next.sort]) { delete next.minimum; delete next.maximum; }
    show(next);
    changed(next, soon);
  };
  const later = (change) => {
    clearTimeout(timer);
    timer = setTimeout(() => set(change, true), 250);
  };
  const options = (list) => list.map(([value, words]) => el("option", { value }, words));
  const select = (name, words, list, change = (value) => ({ [name]: value })) => {
    const box = el("select", { id: `filter-${name}`, onChange: () => set(change(box.value)) }, options(list));
    return [box, el("div", { class: "field" }, el("label", { for: box.id }, words), box)];
  };
  const cut = (text) => (text.length > 40 ? `${text.slice(0, 39)}…` : text);
  const classes = run.classes.map((one) => [String(one.class), `${cut(one.label)} (${count(one.samples)})`]);
  // most wanted first: what is most suspicious, or what is least typical
  const first = (sort) => ({ sort, order: ["issue", "mislabel", "anomaly"].includes(sort) ? "desc" : "asc", minimum: "", maximum: "" });
  const [sort, sortField] = select("sort", "Sort by", SORTS, first);
  const [klass, classField] = select("class", "Class", [["", "all"], ...classes]);
  const [flag, flagField] = select("flag", "What is wrong", FLAGS);
  const [decision, decisionField] = select("decision", "Decision", DECISIONS);
  const [tag, tagField] = select("tag", "Tag", [["", "any"]]);
  const order = el("button", { type: "button", class: "button order", onClick: () => set({ order: now.order === "desc" ? "asc" : "desc" }) });
  const text = el("input", { id: "filter-text", type: "search", maxlength: "200", autocomplete: "off", spellcheck: "false", placeholder: "part of a sample id", onInput: () => later({ text: text.value.trim() }) });
  const low = slider("minimum", "Least score"), high = slider("maximum", "Greatest score");
  const said = el("output", { class: "num small" });
  const bins = svg("svg", { viewBox: "0 0 100 24", preserveAspectRatio: "none", class: "bins", "aria-hidden": "true" });
  const range = el("div", { class: "range", role: "group", "aria-label": "Range of the score" }, el("div", { class: "range-words small muted" }, el("span", {}, "Score from "), said), bins, low, high);
  const quick = el("div", { class: "quick", role: "group", "aria-label": "Quick filters" });
  const fixed = el("div", { class: "row fixed-filters" });
  const fields = el("details", { class: "filters", open: matchMedia("(min-width: 861px)").matches },
    el("summary", { class: "button small" }, "Filter and sort"),
    el("div", { class: "filter-fields" }, sortField, order, classField, flagField, decisionField, tagField, el("label", { class: "field grow" }, "Sample id", text), range));
  const node = el("div", { class: "filter-bar" }, quick, fields, fixed);

  function slider(name, words) {
    const box = el("input", { type: "range", min: "0", max: "1", step: "0.01", "aria-label": words, onInput: () => {
      const ends = [Math.min(Number(low.value), Number(high.value)), Math.max(Number(low.value), Number(high.value))];
      tell(...ends);
      later({ minimum: ends[0] > 0 ? String(ends[0]) : "", maximum: ends[1] < 1 ? String(ends[1]) : "" });
    } });
    return box;
  }
  const tell = (from, to) => { said.textContent = `${from.toFixed(2)} to ${to.toFixed(2)}`; };

  function histogram() {
    const counts = record?.histograms?.[now.sort];
    clear(bins);
    if (!counts) return;
    const most = Math.max(...counts, 1), from = Number(now.minimum ?? 0), to = Number(now.maximum ?? 1);
    counts.forEach((n, i) => {
      const high = n ? Math.max(1.5, (24 * Math.log1p(n)) / Math.log1p(most)) : 0; // logarithmic: the few suspicious ones are seen
      const inside = (i + 1) / counts.length > from && i / counts.length < to;
      bins.append(svg("rect", { x: (100 * i) / counts.length + 0.4, width: 100 / counts.length - 0.8, y: 24 - high, height: high, class: inside ? "in" : "out" }));
    });
  }

  function chip(words, number, query) {
    const same = JSON.stringify(query) === JSON.stringify(Object.fromEntries(Object.entries(now).filter(([name]) => name in query))) && Object.keys(now).every((name) => name in query || ["class", "text"].includes(name));
    return el("button", { type: "button", class: "button small", "aria-pressed": String(same), onClick: () => { now = {}; set(query); } }, words, number === null ? null : el("b", { class: "num" }, number));
  }

  function quickChoices() {
    const chips = [chip("All", count(run.samples), { sort: "index" })];
    if (record?.scores) {
      const upper = (words) => words[0].toUpperCase() + words.slice(1);
      const kinds = SUSPICIOUS.filter((kind) => record.kinds[kind]).map((kind) => {
        const one = chip(upper(kind === "conflict" ? "several labels" : KINDS[kind][1]), count(record.kinds[kind]), kind === "conflict" ? { sort: "group", order: "asc", flag: kind } : { sort: "issue", order: "desc", flag: kind });
        one.title = KINDS[kind][2];
        return one;
      });
      chips.push(chip("Suspects", count(record.suspects), { sort: "issue", order: "desc", flag: "suspect" }), ...kinds,
        ...(record.kinds.duplicate ? [chip("Duplicates", count(record.kinds.duplicate), { sort: "group", order: "asc" })] : []),
        chip("Least typical", null, { sort: "typicality", order: "asc" }));
    }
    chips.push(chip("Decided", null, { sort: "index", decision: "any" }));
    clear(quick).append(...chips);
  }

  function show(query) {
    const inside = quick.contains(document.activeElement) ? [...quick.children].indexOf(document.activeElement) : -1;
    now = { sort: "index", ...query };
    sort.value = now.sort ?? "index";
    for (const one of sort.options) one.hidden = one.disabled = one.value === "selection" && !now.selection;
    klass.value = now.class ?? "";
    flag.value = now.flag ?? "";
    decision.value = now.decision ?? "";
    if (now.tag && ![...tag.options].some((one) => one.value === now.tag)) tag.append(el("option", { value: now.tag }, cut(now.tag)));
    tag.value = now.tag ?? "";
    if (document.activeElement !== text) text.value = now.text ?? "";
    const down = now.order === "desc";
    order.textContent = down ? "↓" : "↑";
    order.title = down ? "largest first" : "smallest first";
    order.setAttribute("aria-label", `Order: ${order.title}`);
    range.hidden = !SCORES[now.sort];
    const scored = Boolean(record?.scores);
    for (const box of [sort, flag]) for (const one of box.options) if (one.value !== "selection") one.disabled = !scored && (one.value in SCORES || one.value in KINDS || ["group", "suspect"].includes(one.value));
    const from = Number(now.minimum ?? 0), to = Number(now.maximum ?? 1);
    if (document.activeElement !== low) low.value = String(from);
    if (document.activeElement !== high) high.value = String(to);
    tell(from, to);
    clear(fixed);
    if (now.selection) fixed.append(gone(now.sort === "selection" ? "Most alike first" : "From the map", "selection"));
    if (now.suggested) fixed.append(gone(`Suggested: ${cut(run.classes[Number(now.suggested)]?.label ?? now.suggested)}`, "suggested"));
    if (now.id) fixed.append(gone(`Only ${cut(now.id)}`, "id"));
    if (now.group) fixed.append(gone(`Duplicate group ${now.group}`, "group"));
    histogram();
    quickChoices();
    if (inside >= 0) quick.children[inside]?.focus();
  }

  const gone = (words, name) => el("button", { type: "button", class: "chip accent", "aria-label": `${words}: take this filter away`, onClick: () => set({ [name]: "" }) }, words, " ✕");

  /** The tags that can be chosen. */
  function tags(known) {
    const list = [["", "any"], ...known.map((one) => [one.tag, `${cut(one.tag)} (${count(one.samples)})`])];
    if (now.tag && !known.some((one) => one.tag === now.tag)) list.push([now.tag, cut(now.tag)]);
    clear(tag).append(...options(list));
    tag.value = now.tag ?? "";
  }

  return { node, show, set, tags, summary(found) { record = found; show(now); }, stop: () => clearTimeout(timer) };
}

// Run: what the model is, how it was trained, what was measured of it, and whether its files are what they were.
import { checksCard, evaluationCard } from "../parts/measured.js";
import { markdown } from "../parts/markdown.js";
import { trainingCard } from "../parts/training.js";
import { trouble } from "../parts/trouble.js";

export const title = "Run";
const MANY = 12; // classes that are in sight at once
const EXPOSED = { full: "in full", thumb: "small, at most 32 pixels or 60 characters", ids: "not at all, only ids and hashes" };

/** Shows the view; every part loads by itself, so that one that fails does not take the others with it. */
export async function show(root, context) {
  const { run, api, dom } = context;
  const { el, clear } = dom;

  function part(name, path, draw) {
    const inside = el("div", { class: "stack" });
    const load = () => {
      inside.setAttribute("aria-busy", "true");
      clear(inside).append(el("p", { class: "muted small" }, "Loading …"));
      api.get(path, null, { signal: context.signal }).then((found) => dom.append(clear(inside), draw(found))).catch((error) => {
        if (!api.stopped(error)) clear(inside).append(trouble(error, load));
      }).finally(() => inside.removeAttribute("aria-busy"));
    };
    load();
    return el("section", { class: "card stack", "aria-label": name }, el("h2", {}, name), inside);
  }

  root.append(
    el("h1", {}, dom.named(run.name)),
    tiles(context),
    ...run.training_pictures.facts.map((words) => el("p", { class: "note small" }, words)),
    el("div", { class: "run-grid" },
      el("div", { class: "stack wide-gap" },
        part("Training", "/run/curves", trainingCard),
        part("Evaluation", "/run/evaluation", evaluationCard),
        part("Trust checks", "/run/checks", checksCard),
        part("Files", "/run/files", (found) => files(context, found))),
      el("div", { class: "stack wide-gap" },
        classes(context),
        part("Model card", "/run/card", (found) => el("div", { class: "markdown stack", tabindex: 0, role: "region", "aria-label": "Text of the model card" }, markdown(found.markdown))))),
  );
}

function tiles({ run, dom: { el, count } }) {
  const facts = [
    [count(run.samples), "training samples"],
    [count(run.classes.length), run.classes.length === 1 ? "class" : "classes"],
    [count(run.parameters), "parameters"],
    [run.input.shape.join(" × "), "input"],
    [run.network, "network"],
    [`${run.backbone}, ${run.head}`, "backbone, head"],
  ];
  const kept = [[run.withheld, "withheld: never named"], [run.added, "added after training"], [run.erased, "erased"]];
  for (const [n, words] of kept) if (n) facts.push([count(n), words]);
  return el("div", { class: "tiles" }, facts.map(([value, words]) =>
    el("div", { class: "tile" }, el("b", { class: value.length > 9 ? "long" : null }, value), el("span", {}, words))));
}

function files({ run, dom: { el, count } }, { verified, files: found, data, model_sha256: model, data_fingerprint: print }) {
  const words = verified ? "All files are unchanged" : found.length ? "Files have changed" : "No file to check";
  const facts = [...data.facts];
  if (data.left_out) facts.push(`${count(data.left_out)} training samples are missing or have changed, and are not shown.`);
  const hashes = [["model", model], ["data", print]].filter(([, hash]) => hash);
  return [
    el("div", { class: "row" },
      el("span", { class: `chip ${verified ? "good" : "bad"}` }, words), el("span", { class: "muted small" }, "checked just now")),
    el("ul", { class: "files" }, found.map((one) => el("li", {},
      el("span", { class: one.ok ? "good" : "bad", "aria-hidden": "true" }, one.ok ? "✓" : "✗"),
      el("span", { class: "mono" }, one.name),
      el("span", { class: "visually-hidden" }, one.ok ? "verified" : "not verified"),
      one.ok ? null : el("span", { class: "small bad" }, one.why)))),
    el("p", { class: "small" },
      `${count(data.available)} of ${count(run.samples)} training samples are there; they are shown ${EXPOSED[run.exposure]}.`),
    facts.map((fact) => el("p", { class: "note small" }, fact)),
    hashes.map(([name, hash]) => el("p", { class: "small" }, el("span", { class: "muted" }, `SHA-256 of the ${name}: `),
      el("code", {}, hash.slice(0, 32), el("wbr"), hash.slice(32)))),
  ];
}

function classes({ run, link, dom: { el, named, bar, count } }) {
  const sizes = run.classes.map((one) => one.samples), most = Math.max(1, ...sizes), least = Math.min(...sizes);
  const rows = run.classes.map((one) => [one.label.toLocaleLowerCase(), el("li", {},
    el("a", { href: link("data", { class: one.class }) }, named(one.label)),
    bar(one.samples / most, `Samples of ${one.label}`, "faint"),
    el("span", { class: "num" }, count(one.samples)))]);
  const none = el("p", { class: "muted small", role: "status" });
  const find = el("input", { type: "search", "aria-label": "Find a class", placeholder: "part of a class name", autocomplete: "off", spellcheck: "false", onInput: () => {
    const part = find.value.trim().toLocaleLowerCase();
    for (const [name, row] of rows) row.hidden = !name.includes(part);
    const shown = rows.filter(([, row]) => !row.hidden).length;
    none.textContent = part ? `${count(shown)} of ${count(rows.length)} shown` : "";
  } });
  const many = rows.length > MANY;
  return el("section", { class: "card stack", "aria-label": "Classes" },
    el("div", { class: "row apart" }, el("h2", {}, "Classes"),
      el("span", { class: "muted small num" }, `${count(rows.length)}, with ${least === most ? `${count(most)} samples each` : `${count(least)} to ${count(most)} samples`}`)),
    many ? find : null,
    el("ol", { class: "classes tall", ...(many ? { tabindex: 0, "aria-label": "All classes" } : {}) }, rows.map(([, row]) => row)),
    many ? none : null);
}

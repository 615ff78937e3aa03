// Train again: apply what was decided to a copy, train beside this run, show what changed, and undo it.
import { el, append, clear, named, count, percent, scrolling } from "../dom.js";
import { said } from "./jobs.js";
import { zoomable } from "./zoom.js";

const EVERY = 700; // milliseconds between two looks
const SHOWN = 12; // answers that changed, before all are asked for
const points = (x) => `${x > 0 ? "+" : x < 0 ? "−" : ""}${Math.abs(100 * x).toFixed(1)}`;

const beside = () => window.dispatchEvent(new CustomEvent("provnet:run")); // another run stands beside this one now, or none

/** The card of a new run, empty while there is none, and `ask()`: the window that starts it. */
export function trainAgain(context) {
  const { api, run, toast, signal } = context;
  const node = el("section", { class: "again", "aria-label": "The run that was trained again" });
  let following = false;

  const look = () => api.get("/again", null, { signal });
  const wrong = (error) => { if (!api.stopped(error)) toast(error.message, "bad"); };

  /** Draw how far it is, until it is done. */
  async function follow(found) {
    if (following) return;
    following = true;
    const began = found.job.state === "running";
    try {
      while (found.job.state === "running") {
        drawRunning(found.job);
        await new Promise((done) => setTimeout(done, EVERY));
        if (signal.aborted) return;
        found = await look();
      }
      draw(found);
      if (began && found.made) beside();
    } finally {
      following = false;
    }
  }

  function drawRunning(job) {
    const share = job.total > 0 ? job.done / job.total : 0;
    const bar = el("div", { class: `job-bar ${job.total > 0 ? "" : "unknown"}`, role: "progressbar", "aria-label": "Training again", "aria-valuemin": "0", "aria-valuemax": "100", "aria-valuenow": job.total > 0 ? String(Math.round(100 * share)) : null }, el("i", { style: { width: job.total > 0 ? `${(100 * share).toFixed(1)}%` : "" } }));
    clear(node).append(el("div", { class: "card job" }, el("div", { class: "job-text" }, el("h2", {}, "Training again"), el("p", { class: "muted small job-words", role: "status" }, said(job))), bar));
  }

  function draw({ job, made }) {
    clear(node);
    if (job.state === "failed") node.append(el("div", { class: "error", role: "alert" }, el("strong", {}, "Training again failed. "), job.error));
    if (made) node.append(outcome(made));
  }

  function outcome(made) {
    const { difference: gain } = made, tested = made.tested > 0;
    const surely = gain.low > 0 ? "good" : gain.high < 0 ? "bad" : "";
    const changed = [made.relabelled ? `${count(made.relabelled)} relabelled` : "", made.dropped ? `${count(made.dropped)} dropped` : ""].filter(Boolean).join(", ");
    const tile = (value, words, kind = "") => el("div", { class: "tile" }, el("b", { class: kind }, value), el("span", {}, words));
    const of = ({ value, low, high }) => [percent(value), `(${percent(low).replace(" %", "")} to ${percent(high)})`];
    return el("div", { class: "card stack" },
      el("div", { class: "row apart" },
        el("div", { class: "row" }, el("h2", {}, "Trained again:"), named(made.name, "flow"), el("span", { class: "muted small" }, `${changed}, same settings and seeds`)),
        el("div", { class: "row" },
          tested && made.beside ? el("a", { class: "button small", href: context.link("answers") }, "Compare side by side") : null,
          el("button", { type: "button", class: "button small", title: "Removes the new run. This one, your decisions and your files are as they were.", onClick: back }, "Undo: remove it"))),
      tested ? el("div", { class: "tiles" },
        tile(of(made.before)[0], `test accuracy before ${of(made.before)[1]}`), tile(of(made.after)[0], `test accuracy after ${of(made.after)[1]}`),
        tile(`${points(gain.value)} points`, `difference on the same ${count(made.tested)} test samples, 95 %: ${points(gain.low)} to ${points(gain.high)}${surely ? "" : gain.value ? "; it may be chance" : ""}`, surely),
        tile(count(made.answers.length), made.answers.length === 1 ? "answer that changed" : "answers that changed"))
        : el("p", { class: "note small" }, "The run has no test samples, so nothing says whether the new one is better. Train with --holdout or --test to find out."),
      made.answers.length ? el("details", {}, el("summary", { class: "small" }, "Answers that changed"), answers(made.answers)) : null,
      el("details", {}, el("summary", { class: "small" }, "Changes to the data"), scrolling("Changes to the data", el("table", { class: "table" },
        el("thead", {}, el("tr", {}, ["sample", "label", "in the new run"].map((words) => el("th", { scope: "col" }, words)))),
        el("tbody", {}, made.changes.map((one) => el("tr", {},
          el("th", { scope: "row", class: "cell-name" }, el("a", { href: context.link("data", { id: one.sample_id }) }, named(one.sample_id, "mono"))),
          el("td", {}, named(one.label)), el("td", {}, one.decision === "drop" ? "dropped" : named(one.new)))))))),
      el("p", { class: "muted small" }, "To open it by itself: ", el("code", {}, `provnet app …/${made.name}`), made.beside ? "" : ["; side by side with this one: ", el("code", {}, `provnet app …/${run.name} --beside …/${made.name}`)], ". The test labels are taken as they are given, wrong ones among them."));
  }

  function answers(list) {
    const grid = el("ol", { class: "changed-answers" });
    const more = el("button", { type: "button", class: "button small", onClick: () => { grid.append(...list.slice(SHOWN).map(one)); more.remove(); } }, `Show all ${count(list.length)}`);
    const one = (item) => {
      const mark = (label) => el("span", { class: label === item.label ? "good" : "bad" }, named(label, "flow"));
      return el("li", {}, run.input.picture && run.exposure !== "ids" && item.sha256 ? zoomable(context, { sha256: item.sha256, sample_id: item.sample_id, label: item.label }, { size: 160 }) : null,
        el("div", { class: "small" }, item.position === null ? named(item.sample_id, "mono") : el("a", { href: context.link("explain", { test: item.position }) }, named(item.sample_id, "mono")),
          el("p", { class: "muted" }, "labelled ", named(item.label, "flow")), el("p", {}, mark(item.before), " → ", mark(item.after))));
    };
    grid.append(...list.slice(0, SHOWN).map(one));
    return el("div", { class: "stack tight" }, grid, list.length > SHOWN ? el("div", { class: "row" }, more) : null);
  }

  async function back() {
    try {
      const found = await api.remove("/again", null, { signal });
      draw(found);
      beside();
      toast("The new run is removed. This one and your decisions are as they were.");
    } catch (error) {
      wrong(error);
    }
  }

  /** The window that says what would be applied, and starts it. */
  async function ask() {
    let found;
    try {
      found = await look();
    } catch (error) {
      wrong(error);
      return;
    }
    if (found.job.state === "running") { toast("Training is on its way: see above."); return; }
    const [own, ...levels] = found.choices;
    const many = ({ relabel, drop }) => [relabel ? `${count(relabel)} to relabel` : "", drop ? `${count(drop)} to drop` : ""].filter(Boolean).join(", ") || "none";
    const also = el("input", { type: "checkbox", disabled: !levels.length, onChange: tell });
    const level = el("select", { "aria-label": "Certainty of a suggestion", disabled: !levels.length, onChange: tell }, levels.map((one) => el("option", { value: String(one.certainty), selected: one.certainty === 0.9 }, `${Math.round(100 * one.certainty)} %`)));
    const leave = el("input", { type: "checkbox", disabled: !found.doubtful, onChange: tell });
    const told = el("p", { class: "small", role: "status" });
    const go = el("button", { type: "submit", class: "button primary" }, "Train again");
    const chosen = () => (also.checked ? levels.find((one) => String(one.certainty) === level.value) : own);
    function tell() {
      const now = chosen(), any = now.relabel + now.drop > 0 || leave.checked;
      append(clear(told), any ? ["In all: ", el("strong", {}, many(now)), leave.checked ? ", and undecided suspects left out." : "."] : "Nothing would change yet. Relabel or drop samples, or apply suggestions.");
      go.disabled = !any || !found.job.can || Boolean(found.made);
    }
    const form = el("form", { class: "stack", onSubmit: async (event) => {
      event.preventDefault();
      try {
        const begun = await api.post("/again", { certainty: also.checked ? chosen().certainty : null, leave_out: leave.checked });
        box.close();
        node.scrollIntoView({ block: "nearest" });
        await follow(begun);
      } catch (error) {
        wrong(error);
      }
    } },
      el("h2", {}, "Train again with corrected data"),
      el("p", { class: "small" }, "A new run is trained beside this one, with the same settings and seeds. This run, your decisions and your files stay as they are."),
      el("p", { class: "small" }, "Your decisions: ", el("strong", {}, many(own)), "."),
      el("label", { class: "row small check" }, also, el("span", {}, "Also apply suggestions that are right with a probability of at least"), level),
      el("label", { class: "row small check" }, leave, el("span", {}, `Leave out suspects that are then neither decided about nor corrected (at most ${count(found.doubtful)})`)),
      told,
      found.made ? el("p", { class: "note small" }, "There is a new run already: undo it first.") : null,
      found.job.can ? null : el("p", { class: "note small" }, `It cannot be done here: ${found.job.why}.`),
      el("div", { class: "row" }, go, el("button", { type: "button", class: "button", onClick: () => box.close() }, "Cancel")));
    const box = el("dialog", { class: "dialog", "aria-label": "Train again" }, form);
    box.addEventListener("close", () => box.remove());
    signal.addEventListener("abort", () => box.close());
    document.body.append(box);
    tell();
    box.showModal();
  }

  look().then(follow).catch(wrong);
  return { node, ask };
}

// Costly work on the server: offered with a button, followed with a bar, over when it is ready.
import { el, clear } from "../dom.js";

const WORDS = {
  scores: ["Scores of the samples", "Finds wrong labels, samples of no class, bad pictures and duplicates."],
  answers: ["Answers to the test samples", "Asks the network about every test sample, and which training sample it recognises in it first."],
  map: ["The map", "Lays all samples out on a plane, so that samples that the network takes for alike lie close together."],
  membership: ["The membership audit", "Measures how well training samples can be told from samples that the network never saw."],
};
const EVERY = 700; // milliseconds between two looks

const pause = (time) => new Promise((done) => setTimeout(done, time));

const clock = (seconds) => (seconds < 59.5 ? `${Math.max(1, Math.round(seconds))} s` : `${Math.floor(seconds / 60 + 1 / 120)}:${String(Math.round(seconds) % 60).padStart(2, "0")} min`);

/** How far a job that runs is, with the time that its step still takes. */
export function said({ words, done, total, seconds, left }) {
  if (!(total > 0)) return `${words || "starting"} …`;
  const steps = total > 1 ? `: ${done.toLocaleString("en")} of ${total.toLocaleString("en")}` : "";
  return `${words}${steps}, ${left === null ? `${clock(seconds)} so far` : `about ${clock(left)} left`}`;
}

/** The record of one job as the server has it now. */
export async function jobOf(context, name) {
  const { jobs } = await context.api.get("/jobs");
  return jobs.find((job) => job.name === name);
}

/**
 * Draws into `root` how far a job is, with a button to start it, and resolves once it is ready (the root is then empty).
 * It never resolves where the job cannot be done or the root has left the page: nothing that follows would make sense.
 */
export async function ready(context, name, root) {
  let job = await jobOf(context, name);
  if (job.state === "ready") return job;
  const [title, about] = WORDS[name] ?? [name, ""];
  const bar = el("i"), meter = el("div", { class: "job-bar", role: "progressbar", "aria-label": title, "aria-valuemin": "0", "aria-valuemax": "100" }, bar);
  const words = el("p", { class: "muted small job-words", role: "status" });
  const start = el("button", { type: "button", class: "button primary", onClick: () => begin() }, "Compute now");
  const card = el("section", { class: "card job", dataset: { job: name } },
    el("div", { class: "job-text" }, el("h2", {}, title), el("p", { class: "muted small" }, about), words), start, meter);
  clear(root);
  root.append(card);

  async function begin() {
    start.disabled = true;
    try {
      job = await context.api.post(`/jobs/${name}`);
    } catch (error) {
      context.toast(error.message, "bad");
    }
    show();
  }

  function show() {
    const running = job.state === "running", share = job.total > 0 ? job.done / job.total : 0;
    start.hidden = running || !job.can;
    start.disabled = false;
    start.textContent = job.state === "failed" ? "Try again" : "Compute now";
    meter.hidden = !running;
    meter.classList.toggle("unknown", !(job.total > 0));
    bar.style.width = job.total > 0 ? `${(100 * share).toFixed(1)}%` : "";
    if (job.total > 0) meter.setAttribute("aria-valuenow", String(Math.round(100 * share)));
    else meter.removeAttribute("aria-valuenow");
    card.classList.toggle("failed", job.state === "failed" || !job.can);
    const next = !job.can ? `It cannot be computed: ${job.why}`
      : job.state === "failed" ? `It failed: ${job.error}`
      : !running ? "Not computed yet. The result is kept for the next time."
      : said(job);
    if (words.textContent !== next) words.textContent = next; // a screen reader hears a change only
  }

  show();
  for (;;) {
    await pause(EVERY);
    if (!root.isConnected) return new Promise(() => {});
    if (job.state !== "running" && job.state !== "ready") continue; // waits for the button
    if (job.state === "running") {
      try {
        job = await jobOf(context, name);
      } catch (error) {
        words.textContent = error.message;
        continue;
      }
      show();
    }
    if (job.state === "ready") {
      clear(root);
      return job;
    }
  }
}

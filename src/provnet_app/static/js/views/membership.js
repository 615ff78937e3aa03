// Membership: was a picture trained on, how sure is that, which sample is it; and how well this run tells at all.
import { dropzone, uploaded } from "../parts/dropzone.js";
import { noun } from "../parts/kinds.js";
import { typed } from "../parts/typed.js";
import { ready } from "../parts/jobs.js";
import { rocCard } from "../parts/roc.js";
import { trouble } from "../parts/trouble.js";
import { summary, undecided, verdict } from "../parts/verdict.js";
import { byHash } from "../parts/ways.js";

export const title = "Membership";
const HASH = /^[0-9a-f]{64}$/;
const TRY = 6; // samples that a button tries
const LINKED = 8; // so many hashes still fit into an address
/** What can come out: how each verdict is reached. */
const STEPS = [
  ["Trained on", "Its bytes, or its pixels in another file, are those of a training sample. This is certain, and takes no audit."],
  ["A changed copy", "It matches a training sample better than nearly all samples that the network never saw. How many match as well is the p-value. This takes the audit."],
  ["Not trained on", "Samples that the network never saw match as well. This takes the audit, too."],
];

/** Shows the view; `query.hash`: one or more hashes, with commas between. */
export async function show(root, context, query) {
  const { run, api, dom, signal } = context;
  const { el, clear } = dom;
  const found = el("div", { class: "stack", "aria-live": "polite" });
  const job = el("div", { class: "jobs-here" }), roc = el("div", {});
  const busy = (words) => clear(found).append(el("p", { class: "muted" }, words));

  let judged = null; // the pictures whose verdicts are shown, while some lack a p-value
  let chosen = false; // whether somebody asked for something: no examples come in its place
  let turn = 0; // what was asked for last is shown, however late older answers come

  // `given(step)` resolves to pictures {sha256, name}, and may say how far it is; without any there is nothing to say
  async function judge(given, words = "Comparing …") {
    const mine = (turn += 1);
    busy(words);
    try {
      const pictures = await given((next) => mine === turn && busy(next));
      if (mine !== turn) return;
      if (!pictures.length) return clear(found);
      const hashes = pictures.map((one) => one.sha256);
      busy("Comparing …");
      const { items } = await api.post("/membership", { sha256: hashes }, null, { signal });
      if (mine !== turn) return;
      context.replace({ hash: hashes.length <= LINKED ? hashes.join(",") : null });
      judged = items.some((one) => one.p_value === null) ? pictures : null;
      const names = new Map(pictures.map((one) => [one.sha256, one.name]));
      const open = items.filter((one) => one.verdict === "cannot say" && one.p_value === null), told = items.filter((one) => !open.includes(one));
      dom.append(clear(found), summary(items, open.length), told.length ? el("ol", { class: "judgements" }, told.map((one) => verdict(context, one, names.get(one.sha256)))) : null,
        open.length ? undecided(context, open, names) : null);
    } catch (error) {
      if (mine !== turn || api.stopped(error)) return;
      clear(found).append(trouble(error, () => judge(given, words)));
    }
  }
  const known = (hashes) => { chosen = true; return judge(async () => hashes.map((sha256) => ({ sha256 }))); };
  function give(files) {
    chosen = true;
    const refused = (file, error) => context.toast(`${file.name || "The picture"}: ${error.message}`, "bad");
    return judge((step) => uploaded(api, files, signal, refused, step), "Sending …");
  }
  const some = async (path, total, limit) => (await api.get(path, { limit, offset: Math.floor(Math.random() * Math.max(1, total - limit)) }, { signal })).items;
  const attempt = (path, total) => { chosen = true; return judge(() => some(path, total, TRY)); };
  /** Some of each kind, so that the view says at once what it can. */
  const examples = (audited) => judge(async () => (await Promise.all([
    run.training_pictures.available ? some("/samples", run.samples, audited ? TRY / 2 : 4) : [], audited && run.test.samples ? some("/test", run.test.samples, TRY / 2) : []])).flat());

  const trying = (words, path, total) =>
    el("button", { type: "button", class: "button small", onClick: () => attempt(path, total) }, words);
  const zone = () => dropzone({
    multiple: true,
    most: run.limits.batch,
    bytes: run.limits.upload_bytes,
    words: `or drop them anywhere on this page, or paste them; ${run.limits.batch} at once`,
    take: give,
    refuse: (words) => context.toast(words, "bad"),
    signal,
  });
  root.append(
    el("h1", {}, `Was this ${noun(run)} trained on?`),
    el("section", { class: "card choose", "aria-label": `Choose ${noun(run, true)}` },
      el("div", { class: "stack ways" },
        run.input.picture ? zone() : null,
        typed(context, ({ sha256 }) => known([sha256]))?.node,
        el("details", { class: "small" }, el("summary", { class: "muted" }, "By SHA-256"), byHash(context, `SHA-256 of a ${noun(run)}`, "Check", (hash) => known([hash])))),
      el("div", { class: "stack" }, el("div", { class: "three" }, STEPS.map(([name, words]) => el("div", { class: "stack tight" }, el("h2", {}, name), el("p", { class: "muted small" }, words)))), el("div", { class: "row" },
        run.training_pictures.available ? trying("Try training samples", "/samples", run.samples) : null,
        run.test.samples ? trying("Try test samples", "/test", run.test.samples) : null))),
    job,
    found,
    roc,
  );
  const asked = (query.hash ?? "").split(",").filter((one) => HASH.test(one)).slice(0, run.limits.batch);
  if (asked.length) await known(asked);
  else examples(false);
  // not waited for: the view is of use without it
  const audit = () => ready(context, "membership", clear(job))
    .then(() => { if (!asked.length && !chosen) examples(true); })
    .then(() => clear(roc).append(el("p", { class: "empty" }, "Loading the curves …")))
    .then(() => api.get("/membership/roc", null, { signal }))
    .then((curves) => {
      clear(roc).append(rocCard(curves));
      if (judged) judge(async () => judged); // the audit has what they are compared with
    })
    .catch((error) => !api.stopped(error) && clear(roc).append(trouble(error, audit)));
  audit();
}

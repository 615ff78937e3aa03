// Membership: was a picture trained on, how sure is that, which sample is it; and how well this run tells at all.
import { dropzone, uploaded } from "../parts/dropzone.js";
import { ready } from "../parts/jobs.js";
import { rocCard } from "../parts/roc.js";
import { trouble } from "../parts/trouble.js";
import { summary, verdict } from "../parts/verdict.js";
import { byHash } from "../parts/ways.js";

export const title = "Membership";
const HASH = /^[0-9a-f]{64}$/;
const TRY = 6; // samples that a button tries
const LINKED = 8; // so many hashes still fit into an address
const HOW = `Equal bytes or pixels settle it. Otherwise the picture is compared with pictures that the model never saw:
the fewer of them match a training sample as well, the surer it is a copy.`;

/** Shows the view; `query.hash`: one or more hashes, with commas between. */
export async function show(root, context, query) {
  const { run, api, dom, signal } = context;
  const { el, clear } = dom;
  const found = el("div", { class: "stack", "aria-live": "polite" });
  const job = el("div", { class: "jobs-here" }), roc = el("div", {});
  const busy = (words) => clear(found).append(el("p", { class: "muted" }, words));

  let judged = null; // the pictures whose verdicts are shown, while some lack a p-value
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
      clear(found).append(summary(items),
        el("ol", { class: "judgements" }, items.map((one) => verdict(context, one, names.get(one.sha256)))));
    } catch (error) {
      if (mine !== turn || api.stopped(error)) return;
      clear(found).append(trouble(error, () => judge(given, words)));
    }
  }
  const known = (hashes) => judge(async () => hashes.map((sha256) => ({ sha256 })));
  function give(files) {
    const refused = (file, error) => context.toast(`${file.name || "The picture"}: ${error.message}`, "bad");
    return judge((step) => uploaded(api, files, signal, refused, step), "Sending …");
  }
  const some = async (path, total, limit) => (await api.get(path, { limit, offset: Math.floor(Math.random() * Math.max(1, total - limit)) }, { signal })).items;
  const attempt = (path, total) => judge(() => some(path, total, TRY));
  /** Some of each kind, so that the view says at once what it can. */
  const examples = () => judge(async () => (await Promise.all([
    run.training_pictures.available ? some("/samples", run.samples, TRY / 2) : [], run.test.samples ? some("/test", run.test.samples, TRY / 2) : []])).flat());

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
    el("h1", {}, "Was it trained on?"),
    el("section", { class: "card choose", "aria-label": "Choose pictures" },
      el("div", { class: "stack ways" },
        run.input.picture ? zone() : null,
        el("details", { class: "small" }, el("summary", { class: "muted" }, "By its SHA-256"), byHash(context, "SHA-256 of a picture", "Check", (hash) => known([hash])))),
      el("div", { class: "stack" }, el("p", { class: "muted" }, HOW), el("div", { class: "row" },
        run.training_pictures.available ? trying("Try training samples", "/samples", run.samples) : null,
        run.test.samples ? trying("Try test samples", "/test", run.test.samples) : null))),
    job,
    found,
    roc,
  );
  const asked = (query.hash ?? "").split(",").filter((one) => HASH.test(one)).slice(0, run.limits.batch);
  if (asked.length) await known(asked);
  // not waited for: the view is of use without it
  const audit = () => ready(context, "membership", clear(job))
    .then(() => { if (!asked.length && !turn) examples(); })
    .then(() => clear(roc).append(el("p", { class: "empty" }, "Loading the curves …")))
    .then(() => api.get("/membership/roc", null, { signal }))
    .then((curves) => {
      clear(roc).append(rocCard(curves));
      if (judged) judge(async () => judged); // the audit has what they are compared with
    })
    .catch((error) => !api.stopped(error) && clear(roc).append(trouble(error, audit)));
  audit();
}

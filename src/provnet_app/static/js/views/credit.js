// Credit: whose samples stand behind the answers to some queries. Styles: data.css.
import { el, clear, named, count } from "../dom.js";
import { dropzone, uploaded } from "../parts/dropzone.js";
import { creditResult } from "../parts/credit_result.js";

export const title = "Credit";
const SENT = "sources.csv"; // what the server calls a file that was sent
let sent = ""; // what it is called here, as long as the page is open
const MOST = 500; // test samples in one question

const whole = (text, low, high, otherwise) => (/^\d{1,9}$/.test(text ?? "") ? Math.max(low, Math.min(high, Number(text))) : otherwise);

/** What comes out, where nobody has said yet who contributed what. */
function about() {
  const parts = [["Shares", "The weights that each answer gives to training samples are added up by contributor: each contributor's share with its interval, beside their share of the samples."],
    ["Inequality", "A curve shows whether a few samples take most of the credit, and whether credit follows the number of samples."],
    ["Leading samples", "For each leading contributor: the samples with the most credit, with links to the data."]];
  return el("section", { class: "card stack", "aria-label": "What you get" }, el("h2", {}, "What you get"),
    el("div", { class: "three" }, parts.map(([name, words]) => el("div", { class: "stack tight" }, el("h3", {}, name), el("p", { class: "muted small" }, words)))));
}

/** Shows the view; query: first, count (test samples), k, weights. With a count the answer is asked for at once. */
export async function show(root, context, query) {
  const { api, run, toast, signal } = context;
  const tests = run.test.samples, state = { from: tests ? "test" : "own", own: [], turn: 0 };
  const people = el("section", { class: "card stack", "aria-label": "Who contributed" });
  const result = el("div", { class: "stack credit-result", "aria-live": "polite" });
  const number = (id, value, low, high) => el("input", { id, type: "number", min: String(low), max: String(high), step: "1", value: String(value), inputmode: "numeric" });
  const first = number("credit-first", whole(query.first, 0, Math.max(0, tests - 1), 0), 0, Math.max(0, tests - 1));
  const many = number("credit-count", whole(query.count, 1, MOST, Math.min(200, tests || 1)), 1, Math.min(MOST, Math.max(1, tests)));
  const option = (list, value) => list.map(([one, words]) => el("option", { value: one, selected: one === value }, words));
  const k = el("select", { id: "credit-k" }, option([["0", "all weights"], ["1", "the largest weight"], ["5", "the 5 largest"], ["10", "the 10 largest"]], ["1", "5", "10"].includes(query.k) ? query.k : "0"));
  const weights = el("select", { id: "credit-weights" }, option([["plain", "recognised"], ["joint", "recognised, with the class"]], run.weights.includes(query.weights) ? query.weights : "plain"));
  const pictures = el("ol", { class: "own-pictures" });
  const zone = dropzone({ multiple: true, most: run.limits.batch, bytes: run.limits.upload_bytes, words: `or drop them anywhere on this page, or paste them; ${run.limits.batch} at once`, take, refuse: (words) => toast(words, "bad"), signal });
  const go = el("button", { type: "submit", class: "button primary" }, "Share the credit");
  const radio = (value, words, disabled) => el("label", { class: "row radio" }, el("input", { type: "radio", name: "credit-from", value, checked: state.from === value, disabled, onChange: () => { state.from = value; sides(); } }), words);
  const ofTest = el("div", { class: "row" }, el("label", { class: "field" }, "First sample", first), el("label", { class: "field" }, "Number", many));
  const ofOwn = el("div", { class: "stack tight" }, zone, pictures);
  const ask = el("form", { class: "card stack credit-ask", "aria-label": "For which answers", novalidate: "", onSubmit: (event) => { event.preventDefault(); share(); } },
    el("h2", {}, "For which answers"),
    el("fieldset", { class: "row" }, el("legend", { class: "visually-hidden" }, "Queries"), radio("test", tests ? `test samples (${count(tests)})` : `test samples: ${run.test.why || "none"}`, !tests), radio("own", "my own pictures", false)),
    ofOwn,
    el("div", { class: "row" }, ofTest, el("div", { class: "field" }, el("label", { for: k.id }, "Weights counted"), k), run.weights.length > 1 ? el("div", { class: "field" }, el("label", { for: weights.id }, "What the weights say"), weights) : null), el("div", { class: "row" }, go));
  root.append(el("h1", { class: "visually-hidden" }, "Credit"), el("div", { class: "credit-top" }, people, ask), result);

  function sides() {
    ofTest.hidden = state.from !== "test";
    ofOwn.hidden = state.from === "test";
  }

  async function take(files) {
    state.from = "own";
    ask.querySelector('[value="own"]').checked = true;
    sides();
    try {
      const step = (words) => clear(pictures).append(el("li", { class: "muted small" }, words));
      const found = await uploaded(api, files, signal, (file, error) => toast(`${file.name}: ${error.message}`, "bad"), step);
      state.own = [...found, ...state.own].slice(0, run.limits.batch);
    } catch (error) {
      if (!api.stopped(error)) toast(error.message, "bad");
    }
    clear(pictures).append(...state.own.map((one) => el("li", {}, el("img", { src: api.picture(one.sha256, 48), alt: one.name || "a picture", title: one.name || null, width: "48", height: "48" }))));
  }

  function shown(record) {
    const file = el("input", { type: "file", accept: ".csv,text/csv", class: "visually-hidden", "aria-label": "Choose a CSV file of sources", onChange: () => { if (file.files.length) send(file.files[0]); file.value = ""; } });
    const choose = el("label", { class: record.known ? "button small filed" : "button primary filed" }, file, record.known ? "Use another file" : "Choose a CSV file");
    clear(people).append(el("h2", {}, "Contributors"));
    go.disabled = !record.known;
    if (!record.known) {
      people.append(el("p", {}, "This run does not say who contributed its samples. Give a CSV file with one line per sample:"),
        el("pre", { class: "sample-csv" }, "sample_id,contributor\ntrain/0,Ann\ntrain/1,Bob"), el("p", { class: "muted small" }, "It stays in memory on this machine until the server ends."), el("div", { class: "row" }, choose));
      return;
    }
    const notes = [record.unlisted ? `${count(record.unlisted)} samples are not listed` : "", record.strangers ? `${count(record.strangers)} lines name samples that the run does not have` : ""].filter(Boolean).join("; ");
    people.append(
      el("p", {}, el("b", {}, count(record.total)), ` ${record.total === 1 ? "contributor" : "contributors"} from `, named(record.about === SENT && sent ? sent : record.about, "flow"), notes ? el("span", { class: "muted small" }, ` ${notes}.`) : null),
      el("ul", { class: "people" }, record.items.slice(0, 12).map((one) => el("li", { class: "chip" }, named(one.name), el("span", { class: "num muted" }, count(one.samples)))), record.total > 12 ? el("li", { class: "muted small" }, `and ${count(record.total - 12)} more`) : null),
      el("div", { class: "row" }, choose, el("button", { type: "button", class: "button small quiet", onClick: forget }, run.contributors ? "Use the run's own" : "Forget it")));
  }

  async function send(file) {
    if (file.size > run.limits.upload_bytes) { toast(`${file.name} is too large: at most ${count(run.limits.upload_bytes / 1e6)} MB can be sent.`, "bad"); return; }
    try {
      const record = await api.send("/credit/sources", file, "text/csv", null, { signal });
      sent = file.name;
      shown(record);
      clear(result);
      toast("The file is read.");
    } catch (error) {
      if (!api.stopped(error)) toast(error.message.replace(SENT, file.name), "bad");
    }
  }

  async function forget() {
    try {
      shown(await api.remove("/credit/sources", null, { signal }));
      clear(result);
    } catch (error) {
      if (!api.stopped(error)) toast(error.message, "bad");
    }
  }

  async function share() {
    const mine = (state.turn += 1), body = { k: Number(k.value), weights: weights.value };
    if (state.from === "test") {
      first.value = String(whole(first.value, 0, tests - 1, 0));
      many.value = String(whole(many.value, 1, MOST, 200));
      body.test = { first: Number(first.value), count: Number(many.value) };
      context.replace({ first: first.value, count: many.value, k: k.value === "0" ? null : k.value, weights: weights.value === "plain" ? null : weights.value });
    } else if (state.own.length) {
      body.sha256 = state.own.map((one) => one.sha256);
    } else { toast("Choose a picture first.", "bad"); return; }
    go.disabled = true;
    clear(result).append(el("p", { class: "empty" }, "Asking the network …"));
    try {
      const found = await api.post("/credit", body, null, { signal });
      if (mine === state.turn) clear(result).append(...creditResult(context, found));
    } catch (error) {
      if (!api.stopped(error)) clear(result).append(el("div", { class: "error", role: "alert" }, error.message));
    }
    go.disabled = false;
  }

  sides();
  const record = await api.get("/credit/contributors", { limit: 100 }, { signal });
  shown(record);
  if (record.known && tests) await share();
  else if (!record.known) result.append(about());
  else result.append(el("p", { class: "empty" }, "Choose pictures, then share the credit for their answers."));
}

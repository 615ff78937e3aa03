// The shell: who may look (the token), which run, which view. A view is a module with `title` and `show`.
import * as api from "./api.js";
import * as dom from "./dom.js";
import { trouble, watchPictures } from "./parts/trouble.js";
import { quiet, toast } from "./toast.js";

const { el, clear } = dom;
const ORDER = ["explain", "data", "answers", "map", "membership", "credit", "generate", "run"];
const TITLES = {
  explain: "Explain", data: "Data", answers: "Answers", map: "Map", membership: "Membership", credit: "Credit", generate: "Generate", run: "Run",
};
const main = document.getElementById("main");

let run = null;
let turn = 0; // every change of view has a number: an answer to an older one is dropped
let address = ""; // of the view that is shown
let leave = null;
let stop = new AbortController();

/** What the address asks for: "#/data?class=3" is {view: "data", query: {class: "3"}}. */
function wanted() {
  const [path, text] = location.hash.replace(/^#/, "").split("?");
  return { view: path.replace(/^\/+|\/+$/g, ""), query: Object.fromEntries(new URLSearchParams(text ?? "")) };
}

function linkTo(view, query) {
  const given = Object.entries(query ?? {}).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const text = new URLSearchParams(given).toString();
  return `#/${view}${text ? `?${text}` : ""}`;
}

/** Whether the run on disk is still the one that is shown, and its decisions can be read; no answer says nothing about it. */
async function look() {
  if (!run || document.hidden) return;
  const found = await api.get("/run/state").catch(() => null), place = document.getElementById("changed");
  const notes = found ? [found.changed, found.decisions].filter(Boolean) : [];
  if (found && notes.join("") !== place.textContent) clear(place).append(...notes.map((words) => el("p", { class: "note" }, words)));
}

async function route(first = false) {
  look();
  const { view, query } = wanted();
  const there = ORDER.filter((one) => run.views.includes(one));
  if (!there.includes(view)) {
    history.replaceState(null, "", linkTo(there[0]));
    if (view) toast(`There is no view “${view.slice(0, 40)}” for this run.`, "bad");
    return route(first);
  }
  const mine = (turn += 1);
  address = location.hash;
  stop.abort();
  stop = new AbortController();
  leave?.();
  leave = null;
  const root = el("div", { class: `view view-${view}` });
  clear(main).append(root);
  document.title = `${TITLES[view]} · ${run.name} · provnet`;
  for (const link of document.querySelectorAll("#nav a")) {
    if (link.dataset.view === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  dom.reveal(document.querySelector("#nav [aria-current]"), document.querySelector(".top nav"));
  if (!first) {
    window.scrollTo(0, 0);
    main.focus({ preventScroll: true });
  }
  const rewrite = (way, more) => { // not where a link was followed: its view comes next, though this one is still there
    if (mine !== turn || ![address, "#main"].includes(location.hash)) return;
    history[way](null, "", linkTo(view, more));
    address = location.hash;
  };
  const context = {
    run, api, dom, toast, signal: stop.signal, link: linkTo,
    go: (name, more) => { location.hash = linkTo(name, more); },
    replace: (more) => rewrite("replaceState", more),
    push: (more) => rewrite("pushState", more),
  };
  try {
    const module = await import(`./views/${view}.js`).catch((error) => { // a view is fetched when it is first opened
      if (!(error instanceof TypeError)) throw error;
      if (mine === turn) failed(root, api.unreachable(), () => anew(root));
      return null;
    });
    if (mine !== turn || module === null) return undefined;
    const found = await module.show(root, context, query);
    if (typeof found === "function") mine === turn ? (leave = found) : found();
  } catch (error) {
    if (mine === turn && !api.stopped(error)) failed(root, error);
  }
  return undefined;
}

/** Browsers may keep a module that could not be fetched as failed for as long as the page lives: it is loaded anew. */
async function anew(root) {
  try {
    await api.get("/run/state"); // a page that is left while the server is down is gone
    location.reload();
  } catch (error) {
    failed(clear(root), error, () => anew(root));
  }
}

function failed(root, error, again = () => (run ? route() : start())) {
  if (!(error instanceof api.ApiError)) console.error(error);
  dom.append(root, trouble(error, again, el("strong", {}, "This did not work. ")));
}

function asksForToken(words) {
  const field = el("input", { id: "token", type: "password", autocomplete: "off", required: true, class: "wide" });
  const said = el("p", { class: "error", role: "alert", hidden: !words }, words);
  const form = el(
    "form",
    { class: "card stack narrow", onSubmit: async (event) => {
      event.preventDefault();
      try {
        await api.signIn(field.value.trim().replace(/^.*#t=/, ""));
        await start();
      } catch (error) {
        said.hidden = false;
        said.textContent = error.message;
      }
    } },
    el("h1", {}, "Open the link that provnet app printed"),
    el("p", { class: "muted" }, "Only who has the link may look at the run. Open it from the terminal, or paste it here."),
    el("label", { class: "field", for: "token" }, "Link or token", field),
    said,
    el("div", { class: "row" }, el("button", { class: "button primary", type: "submit" }, "Open")),
  );
  clear(main).append(form);
  field.focus();
}

function navigation() {
  dom.rename(document.getElementById("run-name"), run.name);
  const there = ORDER.filter((one) => run.views.includes(one));
  const link = (one) => el("li", {}, el("a", { href: `#/${one}`, dataset: { view: one } }, TITLES[one]));
  clear(document.getElementById("nav")).append(...there.map(link));
}

function themeButton() {
  const system = matchMedia("(prefers-color-scheme: dark)");
  document.getElementById("theme").addEventListener("click", () => {
    const now = document.documentElement.dataset.theme ?? (system.matches ? "dark" : "light");
    const next = now === "dark" ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    try {
      localStorage.setItem("provnet-theme", next);
    } catch {
      /* kept for this page alone */
    }
    window.dispatchEvent(new CustomEvent("provnet:theme"));
  });
  system.addEventListener("change", () => window.dispatchEvent(new CustomEvent("provnet:theme")));
}

/** The token of the link is exchanged for a cookie once, and taken out of the address at once. */
async function session() {
  const found = /(^#|[&?])t=([^&]*)/.exec(location.hash);
  if (!found) return;
  const rest = location.hash.replace(/([&?]|(?<=^#))t=[^&]*&?/, (all, before) => (all.endsWith("&") ? before : "")).replace(/^#$/, "");
  history.replaceState(null, "", `${location.pathname}${rest}`);
  await api.signIn(found[2]);
}

async function start() {
  try {
    await session();
    run = await api.get("/run");
  } catch (error) {
    if (error.status === 401 || error.status === 429) return asksForToken(error.code === "no_token" ? "" : error.message);
    return failed(clear(main), error);
  }
  navigation();
  document.documentElement.classList.toggle("large", run.input.large); // photographs are not shown as squares
  return route(true);
}

window.addEventListener("hashchange", () => {
  if (/(^#|[&?])t=/.test(location.hash)) start();
  else if (run && location.hash !== "#main") {
    quiet();
    route();
  }
});
window.addEventListener("provnet:run", async () => {
  run = await api.get("/run").catch(() => run);
});
window.addEventListener("provnet:no-token", () => {
  if (!run) return; // at the start the form is shown anyway
  run = null;
  turn += 1;
  stop.abort();
  leave?.();
  leave = null;
  asksForToken("The server was started again, and its old link no longer holds.");
});
document.addEventListener("visibilitychange", look);
window.addEventListener("focus", look);
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
watchPictures(api.picture(""));
themeButton();
start();

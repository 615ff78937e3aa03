// A picture at full size in a window of its own, and what the network receives of it.
import { el, clear, named } from "../dom.js";

/**
 * A picture that is enlarged when it is clicked. `one`: {sha256, sample_id, label}, as far as they are known;
 * `src` where it is another one than the server's, `size` of the picture that is fetched for its small form.
 */
export function zoomable(context, one, { size = null, src = null, alt = "" } = {}) {
  const words = `Enlarge ${one.sample_id ?? "the picture"}`;
  return el("button", { type: "button", class: "picture zoomable", title: `${words} (click)`, "aria-label": words, onClick: () => zoom(context, one, src) },
    el("img", { src: src ?? context.api.picture(one.sha256, context.run.exposure === "full" ? size : null), alt, loading: "lazy", draggable: "false" }));
}

/** Opens the window. `seen`: the network's view, where the server cannot make it (a picture that was distorted). */
export function zoom(context, one, seen = null) {
  const { api } = context, address = api.picture(one.sha256);
  const image = el("img", { alt: one.sample_id ?? "the picture" }), size = el("span", { class: "num muted small" });
  image.addEventListener("load", () => {
    size.textContent = `${image.naturalWidth} × ${image.naturalHeight} pixels`;
    box.classList.toggle("crisp", Math.max(image.naturalWidth, image.naturalHeight) <= 96);
  });
  const views = [["The whole picture", address], ["What the network sees", seen ?? `${address}?view=network`]];
  const buttons = views.map(([words, source]) => el("button", { type: "button", class: "button small", onClick: () => shown(source) }, words));
  const shown = (source) => {
    image.src = source;
    views.forEach(([, other], i) => buttons[i].setAttribute("aria-pressed", String(other === source)));
  };
  const close = el("button", { type: "button", class: "button small", onClick: () => box.close() }, "Close");
  const box = el("dialog", { class: "dialog zoom", "aria-label": "The picture" },
    el("div", { class: "zoom-picture" }, image),
    el("div", { class: "row apart" },
      el("div", { class: "stack tight grow" }, one.label ? named(one.label, "label") : null, el("div", { class: "row small" }, one.sample_id ? named(one.sample_id, "mono") : null, size)),
      el("div", { class: "row" }, buttons, one.similar === false ? null : similarButton(context, { sha256: one.sha256, ...(one.known ? { sample_id: one.sample_id } : {}) }), close)));
  box.addEventListener("click", (event) => { if (event.target === box) box.close(); }); // beside the window
  const before = document.activeElement;
  box.addEventListener("close", () => { box.remove(); before?.focus?.({ preventScroll: true }); });
  context.signal.addEventListener("abort", () => box.close()); // the view is left
  shown(address);
  document.body.append(box);
  box.showModal();
}

/** A button that lists the training samples most like a picture; `asked` as POST /similar takes it. */
export function similarButton(context, asked, words = "Find similar") {
  const button = el("button", { type: "button", class: "button small", title: "List the training samples that are most alike", onClick: async () => {
    const { api, signal, toast } = context;
    button.disabled = true;
    try {
      for (;;) {
        const job = await api.post("/jobs/features");
        if (job.state === "ready") break;
        if (job.state === "failed" || !job.can) throw new Error(job.error ?? job.why);
        button.textContent = job.total ? `Reading ${Math.round((100 * job.done) / job.total)} % …` : "Reading …";
        await new Promise((done) => setTimeout(done, 500));
        if (signal.aborted) return;
      }
      const { selection } = await api.post("/similar", asked, null, { signal });
      context.go("data", { selection, sort: "selection" });
    } catch (error) {
      if (!api.stopped(error)) toast(error.message, "bad");
    }
    clear(button).append(words);
    button.disabled = false;
  } }, words);
  return button;
}

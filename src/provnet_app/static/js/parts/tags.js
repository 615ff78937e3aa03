// Tags: words that a person gives to samples, kept beside the decisions.
import { el, named, count } from "../dom.js";

/** The tags of the run: {load(), known(), set(items, tag, on)}; `changed()` is told after every change. */
export function tagStore(context, changed) {
  const { api, toast } = context;
  let all = [];
  const take = ({ items, saved }) => { all = items; return saved; };
  return {
    known: () => all,
    async load() { take(await api.get("/tags", null, { signal: context.signal })); },
    async set(items, tag, on = true) {
      if (!items.length) { toast("Select a sample first: click it, or use the arrow keys."); return; }
      const saved = take(await api.post("/tags", { items: items.map(({ sample_id, sha256 }) => ({ sample_id, sha256 })), tag, on }));
      toast(`${items.length === 1 ? "1 sample" : `${count(items.length)} samples`}: tag “${tag}” ${on ? "given" : "taken away"}.${saved ? "" : " Not saved: the file cannot be written."}`);
      await changed();
    },
  };
}

/** Chips of one sample's tags, with a field for another. `chosen()` gives the samples that a new tag is for. */
export function tagRow(store, item, chosen, wrong) {
  const list = el("datalist", { id: "tags-known" }, store.known().map((one) => el("option", { value: one.tag })));
  const field = el("input", { id: "tag-field", type: "text", maxlength: "60", list: "tags-known", placeholder: "add a tag", "aria-label": "Add a tag to what is selected (key T)", autocomplete: "off", spellcheck: "false" });
  const give = async (event) => {
    event.preventDefault();
    const tag = field.value.trim();
    if (tag) await store.set(await chosen(), tag).catch(wrong);
  };
  const chip = (tag) => el("button", { type: "button", class: "chip", "aria-label": `Take the tag ${tag} away`, onClick: () => store.set([item], tag, false).catch(wrong) }, named(tag, "flow"), el("span", { "aria-hidden": "true" }, "✕"));
  return el("form", { class: "row tags", onSubmit: give }, item.tags.map(chip), field, list);
}

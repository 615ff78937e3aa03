// Pictures from a person: dropped anywhere on the page, pasted, or chosen as files.
import { count, el } from "../dom.js";

const TYPES = ["image/png", "image/jpeg", "image/webp", "image/bmp", "image/tiff"];
const OTHER_NAMES = { "image/x-ms-bmp": "image/bmp", "image/x-bmp": "image/bmp", "image/jpg": "image/jpeg" };

/**
 * A place for pictures. `take(files)` gets those that may be sent, `refuse(words)` hears why others may not.
 * Dropping and pasting work on the whole page until `signal` says that the view is left.
 */
export function dropzone({ multiple = false, most = 1, bytes, words, take, refuse, signal }) {
  const name = multiple ? "Choose pictures" : "Choose a picture";
  const input = el("input", { type: "file", accept: TYPES.join(","), multiple, class: "visually-hidden", "aria-label": name });
  input.addEventListener("change", () => {
    given([...input.files]);
    input.value = ""; // the same file may be chosen again
  });
  const zone = el("label", { class: "dropzone" }, input,
    el("span", { class: "button small" }, name), el("span", { class: "muted small" }, words),
    el("span", { class: "muted small" }, `PNG, JPEG, WebP, BMP or TIFF, at most ${count(bytes / 1e6)} MB each`));

  function given(files) {
    const good = [];
    for (const file of files) {
      const type = OTHER_NAMES[file.type] ?? file.type;
      const called = file.name || "What was given";
      if (!TYPES.includes(type)) refuse(`${called} is no picture that can be read: PNG, JPEG, WebP, BMP and TIFF can.`);
      else if (file.size > bytes) refuse(`${called} has ${count(file.size / 1e6)} MB; at most ${count(bytes / 1e6)} MB can be sent.`);
      else good.push(new File([file], file.name, { type }));
    }
    if (good.length > most) refuse(`The first ${most} of ${good.length} pictures are taken.`);
    if (good.length) take(good.slice(0, most));
  }

  const over = (event) => {
    if (![...(event.dataTransfer?.types ?? [])].includes("Files")) return;
    event.preventDefault();
    zone.classList.add("over");
  };
  document.addEventListener("dragover", over, { signal });
  document.addEventListener("dragleave", (event) => event.relatedTarget === null && zone.classList.remove("over"), { signal });
  document.addEventListener("drop", (event) => {
    if (!event.dataTransfer?.files.length) return;
    event.preventDefault();
    zone.classList.remove("over");
    given([...event.dataTransfer.files]);
  }, { signal });
  document.addEventListener("paste", (event) => {
    const files = [...(event.clipboardData?.files ?? [])];
    if (!files.length) return;
    event.preventDefault();
    given(files);
  }, { signal });
  return zone;
}

/**
 * Send pictures to the server one by one, so that a batch is no burst; gives their keys. `failed(file, error)` hears of
 * those that were refused, `step(words)` of every one that is sent.
 */
export async function uploaded(api, files, signal, failed, step = () => {}) {
  const found = [];
  for (const [i, file] of files.entries()) {
    step(files.length === 1 ? "Sending the picture …" : `Sending picture ${i + 1} of ${files.length} …`);
    try {
      found.push({ ...(await api.send("/queries", file, file.type, null, { signal })), name: file.name });
    } catch (error) {
      if (api.stopped(error)) throw error;
      failed(file, error);
    }
  }
  return found;
}

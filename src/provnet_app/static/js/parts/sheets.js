// Thumbnails: many hashes are asked for at once, the answer is one picture ("sheet"); the sheets used last are kept.
import { passes } from "./trouble.js";

const ACROSS = 20; // tiles in a row of a sheet, as the server lays them
const MOST = 60; // tiles in one request: small enough to be there soon
const AT_ONCE = 3; // requests under way
const AGAIN = [2000, 4000, 8000, 16000, 30000]; // milliseconds before a sheet that did not come is asked for again

/**
 * A store of thumbnails.
 * `want(hashes, first)` asks for what is missing, `find(hash)` gives {image, url, x, y, side, across, down} or null,
 * `stop()` frees everything. `arrived` is called whenever new ones are there, `failed(error)` once where a sheet does not come.
 */
export function thumbnails(context, arrived, keep = 100, failed = () => {}, wanted = 64) {
  const { run, api } = context;
  const none = run.exposure === "ids" || !run.input.picture;
  const least = Math.max(run.input.height || 32, run.input.width || 32);
  // a 28 px digit is sent as it is and enlarged by the browser without blur; a photograph is sent as large as it is shown
  const side = Math.max(16, run.exposure === "thumb" ? 32 : run.input.large ? Math.min(256, wanted) : Math.min(64, least));
  const places = new Map(); // hash -> {sheet, slot}
  const sheets = new Set(); // in the order of their last use
  const waiting = new Set();
  const flying = new Set();
  let busy = 0, stopped = false, asked = false, failures = 0, timer = 0;

  function want(hashes) {
    if (none || stopped) return;
    for (const hash of hashes) if (!places.has(hash) && !flying.has(hash)) waiting.add(hash);
    if (waiting.size && !asked) {
      asked = true;
      queueMicrotask(() => { asked = false; pump(); });
    }
  }

  function pump() {
    while (busy < AT_ONCE && waiting.size && !stopped) {
      // the newest wishes first: what was scrolled past can wait
      const batch = [...waiting].slice(-MOST);
      for (const hash of batch) { waiting.delete(hash); flying.add(hash); }
      busy += 1;
      load(batch).then(() => { failures = 0; return null; }, (error) => error).then((error) => {
        busy -= 1;
        for (const hash of batch) flying.delete(hash);
        if (stopped) return;
        if (error) lost(error, batch); else pump();
      });
    }
  }

  // said once until pictures come again; all of them wait for the same moment
  function lost(error, batch) {
    if (!failures) failed(error);
    failures += 1;
    if (!passes(error)) { pump(); return; }
    for (const hash of batch) waiting.add(hash);
    clearTimeout(timer);
    timer = setTimeout(pump, AGAIN[Math.min(failures, AGAIN.length) - 1]);
  }

  async function load(batch) {
    const found = await api.blob("/sheet", { sha256: batch, side });
    if (stopped) return;
    const url = URL.createObjectURL(found), image = new Image();
    image.src = url;
    await image.decode();
    if (stopped) { URL.revokeObjectURL(url); return; }
    const across = Math.min(ACROSS, batch.length), tile = image.naturalWidth / across;
    const sheet = { image, url, side: tile, across, down: Math.round(image.naturalHeight / tile), hashes: batch };
    batch.forEach((hash, slot) => places.set(hash, { sheet, slot }));
    sheets.add(sheet);
    for (const old of sheets) {
      if (sheets.size <= keep) break;
      drop(old);
    }
    arrived();
  }

  function drop(sheet) {
    sheets.delete(sheet);
    for (const hash of sheet.hashes) if (places.get(hash)?.sheet === sheet) places.delete(hash);
    URL.revokeObjectURL(sheet.url);
  }

  function find(hash) {
    const place = places.get(hash);
    if (!place) return null;
    const { sheet, slot } = place;
    sheets.delete(sheet); sheets.add(sheet);
    return { image: sheet.image, url: sheet.url, side: sheet.side, across: sheet.across, down: sheet.down, x: slot % ACROSS, y: Math.floor(slot / ACROSS) };
  }

  function stop() {
    stopped = true;
    clearTimeout(timer);
    waiting.clear();
    for (const sheet of [...sheets]) drop(sheet);
  }

  return { want, find, stop, none, side, forget: () => waiting.clear() };
}

/** Puts a thumbnail as the background of a node; false where it is not there yet. */
export function paint(node, tile) {
  if (!tile) { node.style.backgroundImage = ""; return false; }
  const share = (at, of) => (of > 1 ? (100 * at) / (of - 1) : 0);
  node.style.backgroundImage = `url("${tile.url}")`;
  node.style.backgroundSize = `${100 * tile.across}% ${100 * tile.down}%`;
  node.style.backgroundPosition = `${share(tile.x, tile.across)}% ${share(tile.y, tile.down)}%`;
  return true;
}

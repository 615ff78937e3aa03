// A very long list of samples, fetched in pages when somebody looks at them.
import { passes } from "./trouble.js";

const PAGE = 100;
const KEPT = 400; // pages
const AGAIN = 2000; // milliseconds before a page that did not come is asked for again

/**
 * The list that fits some parameters of GET /samples.
 * `item(i)` gives a sample or null (not there yet), `want(positions)` fetches what is missing and calls `arrived`,
 * `take(positions)` waits for samples, `reload()` asks again and gives the new total.
 */
export function sampleList(api, params, arrived, failed) {
  const pages = new Map(); // number -> items, or the promise of them
  const stop = new AbortController();
  let total = 0, scores = false, age = 0, failing = false;

  const asked = (number) => api.get("/samples", { ...params, offset: number * PAGE, limit: PAGE }, { signal: stop.signal });

  function kept(number, found) {
    total = found.total;
    scores = found.scores;
    pages.set(number, found.items);
    for (const old of pages.keys()) {
      if (pages.size <= KEPT) break;
      if (Array.isArray(pages.get(old))) pages.delete(old);
    }
  }

  async function fetchPage(number) {
    const born = age, found = await asked(number);
    if (born === age) kept(number, found);
    else if (!Array.isArray(pages.get(number))) pages.delete(number); // asked before a reload: only who waits has it
    return found.items;
  }

  function load(number) {
    const there = pages.get(number);
    if (there) return Promise.resolve(there);
    const coming = fetchPage(number);
    pages.set(number, coming);
    coming.catch(() => { if (pages.get(number) === coming) pages.delete(number); });
    return coming;
  }

  // said once until pages come again; whoever still looks there asks when `arrived` draws anew
  function lost(error) {
    if (error.name === "AbortError") return;
    if (!failing) failed(error);
    failing = true;
    if (passes(error)) setTimeout(() => stop.signal.aborted || arrived(), AGAIN);
  }

  return {
    total: () => total,
    scored: () => scores,
    item(position) {
      const page = pages.get(Math.floor(position / PAGE));
      return Array.isArray(page) ? page[position % PAGE] ?? null : null;
    },
    /** The whole page that a position lies on: its pictures are asked for together. */
    around(position) {
      const page = pages.get(Math.floor(position / PAGE));
      return Array.isArray(page) ? page : [];
    },
    want(positions) {
      for (const number of new Set(positions.map((i) => Math.floor(i / PAGE)))) {
        if (!pages.has(number)) load(number).then(() => { failing = false; arrived(); }, lost);
      }
    },
    async take(positions) {
      const numbers = [...new Set(positions.map((i) => Math.floor(i / PAGE)))];
      const found = new Map(), then = total;
      for (const number of numbers) found.set(number, await load(number));
      if (total !== then) throw new Error("The list has changed meanwhile; select them again.");
      return positions.map((i) => found.get(Math.floor(i / PAGE))[i % PAGE]).filter(Boolean);
    },
    async reload(position = 0) {
      const mine = (age += 1), number = Math.floor(Math.max(0, position) / PAGE);
      const found = await asked(number); // what is there stays until then: a tile that is decided about is not empty
      if (mine !== age) return total;
      pages.clear();
      kept(number, found);
      return total;
    },
    stop: () => stop.abort(),
  };
}

// The points of the map as the canvas wants them, and what selections are made of.
let kept = null; // a map is large and does not change while the server runs: coming back to it costs nothing

/** Loads the map: typed arrays, hashes by position. Needs the job "map" to be ready. */
export async function loadMap(context) {
  if (kept && kept.run === context.run && kept.mislabel) return kept;
  const [record, bytes] = await Promise.all([context.api.get("/map", null, { signal: context.signal }), context.api.blob("/map/hashes", null, { signal: context.signal }).then((found) => found.arrayBuffer())]);
  const hashes = new Uint8Array(bytes), { n } = record;
  const column = (values) => values && Float32Array.from(values);
  const at = new Map(record.index.map((index, i) => [index, i]));
  kept = {
    run: context.run, n, engine: record.engine, left: record.left_out, withheld: record.withheld,
    xs: Float32Array.from(record.x), ys: Float32Array.from(record.y, (y) => 1 - y), // up is up
    index: record.index, label: Uint32Array.from(record.class), cluster: Int32Array.from(record.cluster),
    mislabel: column(record.mislabel), anomaly: column(record.anomaly), typicality: column(record.typicality),
    clusters: record.clusters, wrong: record.misattributed.map((one) => ({ ...one, y: 1 - one.y })),
    /** The point of a sample, -1 where it is not on the map. */
    pointOf: (index) => at.get(index) ?? -1,
    hash(i) {
      let text = "";
      for (let k = 32 * i; k < 32 * i + 32; k++) text += hashes[k].toString(16).padStart(2, "0");
      return text;
    },
  };
  return kept;
}

/** [x, y, how much so] where every class is most by itself: its name is written there. */
export function middles(map, classes) {
  const across = map.n / classes < 200 ? 8 : 20, all = new Float32Array(across * across), mine = Array.from({ length: classes }, () => null);
  const cell = (i) => Math.min(across - 1, Math.floor(map.ys[i] * across)) * across + Math.min(across - 1, Math.floor(map.xs[i] * across));
  for (let i = 0; i < map.n; i++) {
    const c = cell(i), own = (mine[map.label[i]] ??= { count: new Float32Array(across * across), x: new Float32Array(across * across), y: new Float32Array(across * across) });
    all[c] += 1;
    own.count[c] += 1; own.x[c] += map.xs[i]; own.y[c] += map.ys[i];
  }
  return mine.map((own) => {
    if (!own) return null;
    let best = 0;
    // many of the class, few of others
    for (let c = 0; c < own.count.length; c++) if (all[c] && own.count[c] ** 2 / all[c] > own.count[best] ** 2 / Math.max(1, all[best])) best = c;
    return [own.x[best] / own.count[best], own.y[best] / own.count[best], own.count[best] ** 2 / all[best]];
  });
}

/** All samples of a selection as JSON text, page by page: the ids are the server's to give. */
export async function selectionJson(context, selection, total) {
  const items = [];
  for (let offset = 0; offset < total; offset += 500) {
    const page = await context.api.get("/samples", { selection, offset, limit: 500 }, { signal: context.signal });
    items.push(...page.items.map(({ sample_id, sha256, label, mislabel, anomaly, typicality }) => ({ sample_id, sha256, label, mislabel, anomaly, typicality })));
    if (!page.items.length) break;
  }
  return JSON.stringify({ run: context.run.name, samples: items.length, items }, null, 1);
}

/** Hands text to the browser as a file to save. */
export function save(text, name, type) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

"""Retrieval on a CPU beside faiss, in one run: our exact scan, a class slice, and our faiss engine; table and JSON.

    python benchmarks/retrieval.py [--part exact | --part engine] [--out FILE] [--turns 9] [--quick]

Exact: top 10 of 60,000 keys with 128 features, ours against faiss IndexFlatIP at batch 256 and 1, and one class of ten
(`top_k_within`) against the flat faiss search at batch 1. Each library runs in a process of its own, with one thread
and with all cores; the processes take turns, and what the machine itself reaches is measured in every turn, too. A
ratio is that of the two libraries, each with its best number of threads: quartiles over the turns, judged by the
median. The ratio with one thread each, and that of the quickest call of all, stand beside it. See turns.py. On a
machine that others use only the figures with one thread, which are processor time, mean much: see the load.

Engine: a million keys around 20,000 centres, queries that are noisy copies of keys, `ann_top_k` against our exact scan
at batch 256, one thread each, taking turns in one process; recall@10 is measured on these queries, which the index was
not tuned on. Keys that hardly cluster are shown, too: there an index gains little.

Bars: batch 256 at most 1, batch 1 at most 1.1, slice at most 1/5, engine at most 1/20 at recall@10 of 0.99 or more;
where one is missed the exit status is 1. `--quick` is small, without bars: it shows that it runs.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from turns import TRIED, Times, clock, compared, in_turn, repeated

K, WIDTH, BATCH, TURNS = 10, 128, 256, 15
SMALL = 10_000  # fewer keys are a trial
SPREADS = {"clustered": 0.7, "hardly clustered": 0.9}  # length of the noise around a centre of length 1
Calls = dict[str, Callable[[], Any]]


def made(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Keys and queries of length one, the same in every process."""
    rows = np.random.default_rng(0).standard_normal((n + BATCH, WIDTH), dtype=np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows[:n].copy(), rows[n:].copy()


def with_faiss(n: int, threads: int) -> Calls:
    """The flat index of faiss; torch is not even loaded."""
    import faiss

    faiss.omp_set_num_threads(threads)
    keys, queries = made(n)
    index = faiss.IndexFlatIP(WIDTH)
    index.add(keys)
    return {"many": lambda: index.search(queries, K)[1], "one": lambda: index.search(queries[:1], K)[1]}


def with_ours(n: int, threads: int) -> Calls:
    """Our scan of all keys, and of the keys of one class; faiss is not loaded."""
    import torch

    from provnet.heads.retrieval import top_k, top_k_within

    torch.set_num_threads(threads)
    keys, queries = (torch.from_numpy(part) for part in made(n))
    starts, sizes, label = torch.arange(10) * (n // 10), torch.full((10,), n // 10), torch.tensor([3])
    return {
        "many": lambda: top_k(queries, keys, K).row,
        "one": lambda: top_k(queries[:1], keys, K).row,
        "slice": lambda: top_k_within(queries[:1], keys, starts, sizes, label, K).row,
    }


def alone(library: str, threads: int, n: int) -> dict[str, Any]:
    """What one process reports: milliseconds of its calls and the rows found, or what the machine reaches."""
    if library == "machine":
        import torch
        from machine import cpu_rates

        torch.set_num_threads(threads)
        rates = cpu_rates(n * WIDTH) if n > SMALL else cpu_rates(1024, 1024, 64, tried=0.01)
        return {"ms": {name: (rate, rate) for name, rate in rates.items()}}
    calls = {"ours": with_ours, "faiss": with_faiss}[library](n, threads)
    times = {name: repeated(call, threads, TRIED if n > SMALL else 0) for name, call in calls.items()}
    return {"ms": times, "rows": calls["many"]().tolist()}


def exact(n: int, threads: list[int], turns: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Rows of our scan and of a class slice beside IndexFlatIP, and what the machine reached at best."""
    found = in_turn(__file__, ("ours", "faiss", "machine"), threads, turns, n)
    pairs = [pair for rows in found["rows"] for pair in zip(rows, found["rows"][0], strict=True)]
    same = sum(len(set(one) & set(other)) for one, other in pairs)
    assert same > 0.999 * K * len(pairs), "ours and faiss do not find the same keys"

    def sides(ours: str, other: str) -> list[dict[str, Times]]:
        names = (("ours", ours), ("faiss", other))
        return [{count: each[name] for count, each in found[library].items()} for library, name in names]

    rows = [
        compared(f"{n:,} keys, batch {BATCH}", "faiss flat", sides("many", "many"), 1.0),
        compared(f"{n:,} keys, batch 1", "faiss flat", sides("one", "one"), 1.1),
        compared(f"a class of {n // 10:,}, batch 1", "faiss flat", sides("slice", "one"), 0.2),
    ]
    best = {count: {name: max(values)[0] for name, values in each.items()} for count, each in found["machine"].items()}
    return rows, {f"cpu, {count} thread{'s' * (count != '1')}": rates for count, rates in best.items()}


def engine(n: int, kind: str, turns: int) -> dict[str, Any]:
    """The faiss engine beside our own scan."""
    import faiss
    import torch
    from torch.nn.functional import normalize

    from provnet.heads.retrieval import ann_top_k, build_ann, recall, top_k

    torch.manual_seed(1)
    centres = normalize(torch.randn(n // 50, WIDTH))
    keys = torch.randn(n, WIDTH).mul_(SPREADS[kind] / math.sqrt(WIDTH))
    keys = normalize(keys.add_(centres[torch.randint(0, len(centres), (n,))]), out=keys)
    queries = normalize(keys[torch.randint(0, n, (BATCH,))] + 0.3 / math.sqrt(WIDTH) * torch.randn(BATCH, WIDTH))
    start = time.perf_counter()
    ann = build_ann(keys)
    seconds = round(time.perf_counter() - start, 1)
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    calls: Calls = {"ours": lambda: ann_top_k(queries, ann, K), "scan": lambda: top_k(queries, keys, K)}
    times: dict[str, Times] = {name: [] for name in calls}
    for _ in range(turns):
        for name, call in calls.items():
            time.sleep(0.005)  # the other library's threads come to rest
            call()
            times[name].append((taken := clock(call, 1), taken))
    bar = 1 / 20 if kind == "clustered" else None
    sides = [{"1": each} for each in times.values()]
    row = compared(f"{n:,} keys, {kind}, batch {BATCH}", "our scan", sides, bar)
    right = round(recall(calls["ours"](), calls["scan"]()), 4)
    row |= {"lists": ann.lists, "probes": ann.probes, "recall_when_built": round(ann.recall, 4), "recall": right}
    return row | {"build_seconds": seconds, "spread": SPREADS[kind], "met": bar and row["met"] and right >= 0.99}


def shown(row: dict[str, Any]) -> str:
    """A row of the table."""
    bar = "" if row["bar"] is None else f"{row['bar']:.3g} {'met' if row['met'] else 'MISSED'}"
    note = f"recall {row['recall']:.4f}, {row['probes']} of {row['lists']} lists" if "recall" in row else ""
    times = [" / ".join(f"{each['ms']:.4g}" for each in row[side].values()) for side in ("ours_ms", "other_ms")]
    ratios = "".join(f"{row[name][1]:>9.3f}" for name in ("ratio", "ratio_one_thread"))
    ratios += f"{row['ratio_of_the_quickest']:>9.3f}"
    return f"{row['what']:<44}{times[0]:>20}{times[1]:>16}  {row['other']:<11}{ratios}  {bar:<12}{note}".rstrip()


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--part", choices=("exact", "engine"), default=None, help="one part; default: both")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="small and without bars")
    parser.add_argument("--alone", nargs=3, help=argparse.SUPPRESS)  # library, threads, keys: in this process
    given = parser.parse_args()
    if given.alone:
        print(json.dumps(alone(given.alone[0], *map(int, given.alone[1:]))))
        return
    load, threads = os.getloadavg()[0], [1] if given.quick else sorted({1, os.cpu_count() or 1})
    few, many, turns, later = (2_000, 3_000, 1, 2) if given.quick else (60_000, 1_000_000, given.turns, TURNS)
    label = " / ".join(f"{count} thr" for count in threads)
    head = f"{'milliseconds':<44}{'ours ' + label:>20}{label:>16}  {'other':<11}"
    print(head + f"{'ratio':>9}{'1 thread':>9}{'quickest':>9}  bar", flush=True)
    first, rates = ([], None) if given.part == "engine" else exact(few, threads, turns)
    rows = []
    for row in chain(first, (engine(many, kind, later) for kind in SPREADS if given.part != "exact")):
        rows.append(row | ({"bar": None, "met": None} if given.quick else {}))
        print(shown(rows[-1]), flush=True)
    if given.out is not None:
        import faiss
        from machine import machine

        about = machine(rates=rates is None) | {"faiss": faiss.__version__, "threads": threads, "load": round(load, 2)}
        about |= {"load_after": round(os.getloadavg()[0], 2), "turns": turns, "rows": rows}
        about |= {} if rates is None else {"rates": rates}
        given.out.write_text(json.dumps(about, indent=1) + "\n", "utf-8")
    sys.exit(1 if any(row["met"] is False for row in rows) else 0)


if __name__ == "__main__":
    main()

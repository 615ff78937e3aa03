"""Retrieval on a CPU beside faiss, in one run: our exact scan, a class slice, and our faiss engine; table and JSON.

    python benchmarks/retrieval.py [--out FILE] [--threads 1] [--repeats 41] [--quick]

Exact: top 10 of 60,000 keys with 128 features, ours against faiss IndexFlatIP at batch 256 and 1, and one class of ten
(`top_k_within`) against the flat faiss search at batch 1. Engine: a million keys around 20,000 centres, queries that
are noisy copies of keys, `ann_top_k` against our exact scan at batch 256; recall@10 is measured on these queries, which
the index was not tuned on. Keys that hardly cluster are shown, too: there an index gains little.

Calls take turns, each after a pause that lets the other library's threads come to rest and a call that is not timed. A
ratio is the median over turns of one time through the other, with quartiles. With one thread a busy neighbour core does
not decide it. Bars: batch 256 at most 1, batch 1 at most 1.1, slice at most 1/5, engine at most 1/20 at recall@10 of
0.99 or more; where one is missed the exit status is 1. `--quick` is small, without bars: it shows that it runs.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import torch
from machine import machine
from torch.nn.functional import normalize

from provnet.ann import ann_top_k, build_ann
from provnet.retrieval import TopK, recall, top_k, top_k_within

K, WIDTH = 10, 128
SPREADS = {"clustered": 0.7, "hardly clustered": 0.9}  # length of the noise around a centre of length 1


def in_turn(calls: dict[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Milliseconds of each call in each turn."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            time.sleep(0.005)
            call()
            start = time.perf_counter()
            call()
            times[name].append(1e3 * (time.perf_counter() - start))
    return times


def quartiles(values: list[float]) -> list[float]:
    """Lower quartile, median, upper quartile."""
    return [float(f"{value:.4g}") for value in np.quantile(values, (0.25, 0.5, 0.75))]


def compared(what: str, times: dict[str, list[float]], ours: str, other: str, bar: float | None) -> dict[str, Any]:
    """One row of the table."""
    ratio = quartiles([a / b for a, b in zip(times[ours], times[other], strict=True)])
    row = {"what": what, "threads": torch.get_num_threads(), "ours_ms": quartiles(times[ours])}
    row |= {"other": other, "other_ms": quartiles(times[other]), "ratio": ratio, "bar": bar}
    return row | {"met": None if bar is None else ratio[1] <= bar}


def exact(n: int, repeats: int) -> list[dict[str, Any]]:
    """Our scan and a class slice beside IndexFlatIP."""
    torch.manual_seed(0)
    keys, queries = normalize(torch.randn(n, WIDTH)), normalize(torch.randn(256, WIDTH))
    index = faiss.IndexFlatIP(WIDTH)
    index.add(keys.numpy())
    single, sizes = queries[:1].clone(), torch.full((10,), n // 10)
    starts, label = torch.arange(10) * (n // 10), torch.tensor([3])
    score, row = (torch.from_numpy(part) for part in index.search(queries.numpy(), K))
    assert recall(top_k(queries, keys, K), TopK(score, row)) > 0.999, "ours and faiss do not find the same keys"
    many = {"ours": lambda: top_k(queries, keys, K), "faiss flat": lambda: index.search(queries.numpy(), K)}
    one = {
        "ours": lambda: top_k(single, keys, K),
        "faiss flat": lambda: index.search(single.numpy(), K),
        "slice": lambda: top_k_within(single, keys, starts, sizes, label, K),
    }
    many_times, one_times = in_turn(many, repeats), in_turn(one, 3 * repeats)
    return [
        compared(f"{n:,} keys, batch 256", many_times, "ours", "faiss flat", 1.0),
        compared(f"{n:,} keys, batch 1", one_times, "ours", "faiss flat", 1.1),
        compared(f"a class of {n // 10:,}, batch 1", one_times, "slice", "faiss flat", 0.2),
    ]


def engine(n: int, kind: str, threads: list[int], repeats: int) -> list[dict[str, Any]]:
    """The faiss engine beside our own scan."""
    torch.manual_seed(1)
    centres = normalize(torch.randn(n // 50, WIDTH))
    keys = torch.randn(n, WIDTH).mul_(SPREADS[kind] / math.sqrt(WIDTH))
    keys = normalize(keys.add_(centres[torch.randint(0, len(centres), (n,))]), out=keys)
    queries = normalize(keys[torch.randint(0, n, (256,))] + 0.3 / math.sqrt(WIDTH) * torch.randn(256, WIDTH))
    use(max(threads))
    start = time.perf_counter()
    ann = build_ann(keys)
    built = {"lists": ann.lists, "probes": ann.probes, "recall_when_built": round(ann.recall, 4)}
    built |= {"build_seconds": round(time.perf_counter() - start, 1), "spread": SPREADS[kind]}
    built["recall"] = round(recall(ann_top_k(queries, ann, K), top_k(queries, keys, K)), 4)
    rows = []
    for count in threads:
        use(count)
        calls: dict[str, Callable[[], object]] = {"engine": lambda: ann_top_k(queries, ann, K)}
        calls["our scan"] = lambda: top_k(queries, keys, K)
        bar = 1 / 20 if kind == "clustered" else None
        row = compared(f"{n:,} keys, {kind}, batch 256", in_turn(calls, repeats), "engine", "our scan", bar)
        rows.append(row | {"met": bar and row["met"] and built["recall"] >= 0.99, **built})
    return rows


def use(threads: int) -> None:
    """Give both libraries the same number of threads."""
    torch.set_num_threads(threads)
    faiss.omp_set_num_threads(threads)


def shown(row: dict[str, Any]) -> str:
    """A row of the table."""
    low, middle, high = row["ratio"]
    bar = "" if row["bar"] is None else f"{row['bar']:.3g} {'met' if row['met'] else 'MISSED'}"
    note = f"recall {row['recall']:.4f}, {row['probes']} of {row['lists']} lists" if "recall" in row else ""
    times = f"{row['ours_ms'][1]:>9.3f}{row['other_ms'][1]:>10.3f}  {row['other']:<11}"
    return f"{row['what']:<44}{row['threads']:>3}{times}{middle:>7.3f} ({low:.3f} to {high:.3f})  {bar:<12}{note}"


def told(rows: list[dict[str, Any]], quick: bool) -> list[dict[str, Any]]:
    """Print rows as soon as they are there; small ones have no bars."""
    rows = [row | ({"bar": None, "met": None} if quick else {}) for row in rows]
    for row in rows:
        print(shown(row), flush=True)
    return rows


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--repeats", type=int, default=41)
    parser.add_argument("--quick", action="store_true", help="small and without bars")
    given = parser.parse_args()
    few, many = (2_000, 3_000) if given.quick else (60_000, 1_000_000)
    repeats = 2 if given.quick else given.repeats
    report: dict[str, Any] = {**machine(), "faiss": faiss.__version__, "threads": given.threads, "repeats": repeats}
    print(f"{'':<44}{'thr':>3}{'ours':>9}{'other':>10}  {'ms':<11}{'ratio (quartiles)':>25}  bar")
    rows: list[dict[str, Any]] = []
    for threads in given.threads:
        use(threads)
        rows += told(exact(few, repeats), given.quick)
    for kind in SPREADS:
        rows += told(engine(many, kind, given.threads, max(repeats // 5, 1)), given.quick)
    if given.out is not None:
        given.out.write_text(json.dumps(report | {"rows": rows}, indent=1) + "\n", "utf-8")
    sys.exit(1 if any(row["met"] is False for row in rows) else 0)


if __name__ == "__main__":
    main()

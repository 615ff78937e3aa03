"""What results were made on and how long it took, as lines of Markdown."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence

from provnet.experiments.markdown import table
from provnet.experiments.records import Results


def origins(results: Results) -> list[str]:
    """What the results were made on; a row a machine and state of the source."""
    made: dict[tuple[str, ...], list[str]] = {}
    for cell, seeds in results.cells.items():
        for seed, one in seeds.items():
            about = one.origin
            commit = str(about.get("commit") or "not kept")[:12] + (" with changes" if about.get("dirty") else "")
            names = ("device", "cores", "jobs", "torch")
            key = (*(str(about.get(name, "")) for name in names), commit, str(about.get("source_sha256", ""))[:12])
            made.setdefault(key, []).append(f"{cell} {seed}")
    rows = [(*key, str(len(cells))) for key, cells in made.items()]
    return table(("device", "cores", "at a time", "torch", "commit", "source", "cells × seeds"), rows, left=6)


def time_taken(results: Results) -> list[str]:
    """How long a seed took, from the cells that were run with it."""
    took = {
        cell: statistics.fmean(float(one.told["seconds"]["all"]) for one in seeds.values())
        for cell, seeds in results.cells.items()
    }
    slowest = max(took, key=lambda cell: took[cell])
    words = f"A seed of the {len(took)} cells that were run took {sum(took.values()):,.0f} s, added up"
    lines = ["", f"{words}; the longest, `{slowest}`, {took[slowest]:,.0f} s."]
    taken = sum("take" in one.told["seconds"] for seeds in results.cells.values() for one in seeds.values())
    if taken:
        lines.append(
            f"{taken} took networks that another experiment had trained (--networks), which is not in these times."
        )
    timed = [
        (seed, one.told["at"]) for seeds in results.cells.values() for seed, one in seeds.items() if "at" in one.told
    ]
    share: dict[int, list[float]] = {}
    for (seed, _), seconds in zip(timed, shares([at for _, at in timed]), strict=True):
        share.setdefault(seed, []).append(seconds)
    if share:
        each = (f"seed {seed} {sum(share[seed]):,.0f} s ({len(share[seed])} cells)" for seed in sorted(share))
        lines.append(f"Each second of the device shared alike by the cells under way: {', '.join(each)}.")
    return lines


def shares(spans: Sequence[Sequence[float]]) -> list[float]:
    """Seconds of each (begin, end), where those under way at a time share it alike.

    >>> shares([(0, 10), (5, 12), (20, 21)])
    [7.5, 4.5, 1.0]
    """
    moments = sorted({float(time) for span in spans for time in span})
    found = [0.0] * len(spans)
    for since, until in itertools.pairwise(moments):
        under_way = [place for place, (begin, end) in enumerate(spans) if begin <= since and end >= until]
        for place in under_way:
            found[place] += (until - since) / len(under_way)
    return found

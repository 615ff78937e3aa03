"""Whether the interval of the expected number of wrong labels holds the true number, and how wide it is.

    python benchmarks/photo_expected.py CACHE --out FILE [--draws 40]

Draws alternate between pets and CIFAR-10 (2,000 pictures), 2, 10 and 20 % wrong labels, flipped to similar classes
or to any. CACHE is made by photo_sets.py. Corrections and flags of the same draws are counted, too.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import photo_sets
import torch
from machine import machine

from provnet.tools.debug.assess import assess
from provnet.tools.debug.compute import certain

RATES = (0.02, 0.1, 0.2)


def one(cache: Path, number: int) -> dict[str, Any]:
    """One draw."""
    name, rate, similar = ("pets", "cifar10")[number % 2], RATES[number // 2 % 3], number // 6 % 2 == 0
    seed = 500 + number
    if name == "pets":
        data = photo_sets.pets(cache, seed, rate, similar=similar)
    else:
        data = photo_sets.cifar10(cache, seed, rate, similar=similar)
    found = assess(torch.from_numpy(data.x), data.given, data.classes, seed=seed, draws=20)
    wrong, rows, expected = int(data.wrong.sum()), certain(found.sure, found.foreign, 0.9), found.expected
    return {
        "set": name,
        "rate": rate,
        "flips": "similar" if similar else "any",
        "wrong": wrong,
        **vars(expected),
        "holds": bool(expected.low <= wrong <= expected.high),
        "half_width": (expected.high - expected.low) / 2 / expected.number,
        "cannot_tell": found.doubt,
        "changed": len(rows),
        "right": int((found.suggested[rows] == data.right[rows]).sum()),
        "broke": int((data.right[rows] == data.given[rows]).sum()),
    }


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By set and rate."""
    found = []
    for name in ("pets", "cifar10"):
        for rate in RATES:
            mine = [row for row in rows if row["set"] == name and row["rate"] == rate]
            if not mine:
                continue
            widths = [row["half_width"] for row in mine]
            total = {key: sum(row[key] for row in mine) for key in ("wrong", "changed", "right", "broke")}
            about = {"draws": len(mine), "holds": sum(row["holds"] for row in mine)}
            told = {"cannot_tell": sum(bool(row["cannot_tell"]) for row in mine)}
            width = {"half_width": float(np.mean(widths)), "widest": max(widths)}
            found.append({"set": name, "rate": rate, **about, **width, **told, **total})
    return found


def main() -> None:
    """Measure, print, write."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("cache", type=Path)
    asked.add_argument("--out", type=Path, required=True)
    asked.add_argument("--draws", type=int, default=40)
    given = asked.parse_args()
    rows = []
    for number in range(given.draws):
        rows.append(one(given.cache, number))
        print(json.dumps(rows[-1]), flush=True)
        found = {"machine": machine(rates=False), "by": summary(rows), "draws": rows}
        given.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(summary(rows), indent=1))


if __name__ == "__main__":
    main()

"""Two libraries compared on a machine that others use, too: processes of their own that take turns.

Thread pools of two libraries in one process disturb each other, so each runs alone in a new process, with one thread
and with all cores. With one thread a time is processor time, which does not count while others have the core: a long
call is hardly ever left alone, a short one often, so that a clock on the wall would favour what is short. With more
threads it is a clock on the wall, as their waiting for each other counts, and on a machine that others use it can be
many times too long. Other users only ever make a call slower, so a turn counts by its fastest call; figures are medians
over the turns, so that no single lucky turn decides.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

TRIED = 1.5  # seconds that a call is repeated
Times = list[tuple[float, float]]  # milliseconds of the fastest and the median call of each turn
Figures = dict[str, dict[str, Times]]  # threads -> name of the call -> times


def clock(call: Callable[[], object], threads: int) -> float:
    """Milliseconds of a call: processor time of one thread, or on the wall."""
    now = time.process_time if threads == 1 else time.perf_counter
    start = now()
    call()
    return 1e3 * (now() - start)


def repeated(call: Callable[[], object], threads: int, tried: float = TRIED) -> tuple[float, float]:
    """Milliseconds of the fastest and of the median call, after two that load libraries and start threads."""
    taken = [clock(call, threads) for _ in range(2)]
    while len(taken) < 7 or sum(taken) < 1e3 * tried:
        taken.append(clock(call, threads))
    return min(taken[2:]), float(np.median(taken[2:]))


def in_turn(script: str, libraries: tuple[str, ...], threads: list[int], turns: int, *more: object) -> dict[str, Any]:
    """Library -> figures, and "rows" -> what each process found, from `script --alone LIBRARY THREADS *more`."""
    found: dict[str, Any] = {name: {str(count): {} for count in threads} for name in libraries} | {"rows": []}
    for _ in range(turns):
        for count in threads:
            for library in libraries:
                command = [sys.executable, script, "--alone", library, str(count), *map(str, more)]
                env = os.environ | {"OMP_NUM_THREADS": str(count)}
                done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
                if done.returncode:
                    sys.exit(f"{library} with {count} threads failed\n{done.stderr}")
                report = json.loads(done.stdout)
                found["rows"] += [report["rows"]] if "rows" in report else []
                for name, times in report["ms"].items():
                    found[library][str(count)].setdefault(name, []).append(times)
    return found


def typical(times: Times) -> float:
    """The median over turns of the fastest call: no single lucky turn decides.

    >>> typical([(1.0, 2.0), (0.5, 9.0), (1.5, 3.0)])
    1.0
    """
    return float(np.median([each[0] for each in times]))


def compared(what: str, other: str, sides: list[dict[str, Times]], bar: float | None) -> dict[str, Any]:
    """One row from the times of ours and of the other by number of threads, and whether it meets its bar.

    >>> row = compared("a", "b", [{"1": [(3.0, 3.0)], "2": [(1.0, 1.0)]}, {"1": [(2.0, 2.0)], "2": [(4.0, 4.0)]}], 0.4)
    >>> row["ratio"], row["ratio_one_thread"], row["best_threads"], row["met"]
    ([0.5, 0.5, 0.5], [1.5, 1.5, 1.5], [2, 1], False)
    """
    best = [min(side, key=lambda count: typical(side[count])) for side in sides]

    def ratio(ours: str, others: str) -> list[float]:
        pairs = zip(sides[0][ours], sides[1][others], strict=True)
        return [rounded(value) for value in np.quantile([a[0] / b[0] for a, b in pairs], (0.25, 0.5, 0.75))]

    quickest = [min(min(times) for times in side.values())[0] for side in sides]
    row: dict[str, Any] = {"what": what, "other": other, "ours_ms": by_threads(sides[0])}
    row |= {"other_ms": by_threads(sides[1]), "best_threads": [int(count) for count in best]}
    row |= {
        "ratio": ratio(*best),
        "ratio_one_thread": ratio("1", "1"),
        "ratio_of_the_quickest": rounded(quickest[0] / quickest[1]),
    }
    return row | {"bar": bar, "met": None if bar is None else row["ratio"][1] <= bar}


def by_threads(side: dict[str, Times]) -> dict[str, dict[str, Any]]:
    """Number of threads -> milliseconds: the median over turns of the fastest call, and every turn's fastest."""
    return {
        count: {"ms": rounded(typical(times)), "turns": [rounded(each[0]) for each in times]}
        for count, times in side.items()
    }


def rounded(value: float) -> float:
    """Four digits."""
    return float(f"{value:.4g}")

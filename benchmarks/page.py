"""Write docs/speed.md from benchmarks/results/*.json, and from nothing else.

    python benchmarks/page.py [--results benchmarks/results] [--out docs/speed.md] [--check]

A section a benchmark; one whose result is not there is left out, and a result that no section knows is passed over.
`--check` writes nothing and ends with 1 where the page is not the one that the results make.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from on_cpu import folders, kept_memory, loss_memory, retrieval
from on_gpu import knn, paper, robust, scale, speed
from records import Result, Row, Section

ROOT = Path(__file__).resolve().parents[1]
HEAD = """# Measured: speed, memory, scale

`python benchmarks/page.py` writes this page from the results in `benchmarks/results`; no figure is typed by hand. A
section is the result of one command. If a bar was set, the table says whether it was met or MISSED.

*Limit* is the best that the task and the machine allow: the bytes that must be read, at the machine's reading rate, or
the operations, at its rate of matrix products. `benchmarks/machine.py` measures these rates in the same run; the
section says so if they come from another run on the same kind of device. *Of limit* is our figure divided by the limit:
a time or a memory is at least 1, a share of right answers at most 1. *Load* is the number of processes that wanted a
core when the run began; on a loaded machine times are longer. Shares have 95 % Wilson intervals.

![An epoch of the paper's layers, and how often a sample finds itself among up to ten million](images/measured.png)

The picture is drawn from the same results by `python benchmarks/plots.py`.
"""
COLUMNS = ("what", "ours", "other", "ratio", "bar", "met", "limit", "of limit")


# a result's name up to its first dash -> its sections, from the results of that name and from all
SECTIONS: dict[str, Callable[[dict[str, Result], dict[str, Result]], list[Section]]] = {
    "robust": robust,
    "knn": knn,
    "scale": scale,
    "speed": speed,
    "retrieval": retrieval,
    "kept_memory": kept_memory,
    "loss_memory": loss_memory,
    "folders": folders,
    "paper_mnist": paper,
}


def page(results: Path) -> str:
    """The whole page."""
    known = [path for path in sorted(results.glob("*.json")) if path.stem.split("-")[0] in SECTIONS]
    found = {path.stem: json.loads(path.read_text("utf-8")) for path in known}
    lend_rates(found)
    parts = [HEAD]
    for name, make in SECTIONS.items():
        parts += [
            shown(section) for section in make({k: v for k, v in found.items() if k.split("-")[0] == name}, found)
        ]
    return "\n".join(parts)


def lend_rates(found: dict[str, Result]) -> None:
    """Give results without rates the best that other runs on the same kind of device reached, with their names."""
    abouts = {stem: about_of(result) for stem, result in found.items()}
    full = {stem: about for stem, about in abouts.items() if "rates" in about}
    for about in abouts.values():
        alike = [
            stem
            for stem, other in full.items()
            if all(about.get(name, other[name]) == other[name] for name in ("device", "cores"))
        ]
        if "rates" not in about and alike:
            lent: Result = {}
            for stem in alike:
                lent = best_of(lent, full[stem]["rates"])
            about |= {"rates": lent, "rates_from": " and ".join(alike)}


def best_of(one: Result, other: Result) -> Result:
    """The larger of each rate, parts within parts.

    >>> best_of({"a": {"x": 1}, "b": 2}, {"a": {"x": 3, "y": 4}})
    {'a': {'x': 3, 'y': 4}, 'b': 2}
    """
    if not isinstance(other, dict):
        return max(one, other)
    return one | {name: best_of(one[name], value) if name in one else value for name, value in other.items()}


def about_of(result: Result) -> Result:
    """The part of a result that says what it was measured on."""
    first = result[0] if isinstance(result, list) else result
    return first.get("machine", first)


def shown(section: Section) -> str:
    """A section as Markdown: what it was measured on, then its rows."""
    about = section.about
    commit = str(about.get("commit") or "not kept")
    commit = commit.rstrip("+")[:12] + (" with changes" if about.get("dirty") or commit.endswith("+") else "")
    device = str(about.get("device", "not kept"))
    device = f"cpu, {about['processor']}" if device == "cpu" and about.get("processor") else device
    threads = about.get("threads", "not kept")
    threads = " and ".join(str(count) for count in threads) if isinstance(threads, list) else threads
    cells = (device, about.get("cores", "not kept"), threads, about.get("load", "not kept"))
    lent = f" The machine's rates are the best of {about['rates_from']}." if "rates_from" in about else ""
    load = f"{float(cells[3]):.1f}" if isinstance(cells[3], int | float) else cells[3]
    return "\n".join(
        [
            f"## {section.title}",
            "",
            textwrap.fill(section.words + lent, 120),
            "",
            *table(
                ("device", "cores", "threads", "load", "torch", "commit", "command"),
                [(*cells[:3], load, about.get("torch", "not kept"), commit, f"`{section.command}`")],
            ),
            "",
            *table(COLUMNS, [cells_of(row) for row in section.rows]),
            "",
        ]
    )


def cells_of(row: Row) -> tuple[str, ...]:
    """The cells of a row."""
    met = "" if row.met is None else "yes" if row.met else "**MISSED**"
    times = "" if row.value is None or not row.limit.value else f"{row.value / row.limit.value:.2f}"
    return (row.what, row.ours, row.other, row.ratio, row.bar, met, row.limit.words, times)


def table(head: tuple[str, ...], rows: list[tuple[Any, ...]]) -> list[str]:
    """Lines of a Markdown table; columns that are empty in every row are left out."""
    kept = [place for place in range(len(head)) if any(str(row[place]) for row in rows)]
    lines = [tuple(head[place] for place in kept), ("---",) * len(kept)]
    lines += [tuple(str(row[place]).replace("|", "\\|") for place in kept) for row in rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def main() -> None:
    """Write the page, or say whether it is current."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks/results")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/speed.md")
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    text = page(given.results)
    if given.check:
        same = given.out.exists() and given.out.read_text("utf-8") == text
        print("current" if same else f"{given.out} is not what the results make: run python benchmarks/page.py")
        sys.exit(0 if same else 1)
    given.out.write_text(text, "utf-8")


if __name__ == "__main__":
    main()

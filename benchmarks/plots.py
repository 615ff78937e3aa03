"""Draw docs/images/measured.png from benchmarks/results: an epoch step by step, and finding among millions.

    python benchmarks/plots.py [--results benchmarks/results] [--out docs/images/measured.png]

Left: seconds an epoch of the paper's layers as a share of plain PyTorch, from speed.json. Right: how often a training
sample finds itself among all, by their number, from the MNIST rows of robust.json (25 epochs) and scale-*.json (fewer).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

ROOT = Path(__file__).resolve().parents[1]
OTHER, OURS = "#9aa5b1", "#0072b2"  # told apart by everyone, also in print
FOUND = {"exact": ("as it is", "#0072b2", "o"), "noise": ("noise, σ 0.1", "#d55e00", "s")}
FOUND["shift"] = ("moved by a pixel", "#009e73", "^")


def epoch(axes: Axes, result: Any) -> None:
    """Bars, the plain way first."""
    rows = result["rows"][::-1]
    names, ratios = [row["what"] for row in rows], [row["ratio"] for row in rows]
    colours = [OURS if "bar" in row else OTHER for row in rows]
    axes.barh(names, ratios, color=colours)
    for place, (row, ratio) in enumerate(zip(rows, ratios, strict=True)):
        axes.text(ratio + 0.01, place, f"{ratio:.2f}  ({row['seconds']:.2f} s)", va="center", fontsize=8)
    axes.axvline(0.5, color="black", linewidth=0.8, linestyle=":")
    axes.set(xlim=(0, max(ratios) * 1.22), xlabel="of plain eager (dotted: bar)", title="An epoch, MNIST, batch 128")


def finding(axes: Axes, results: list[Any]) -> None:
    """Lines over the number of samples."""
    results = sorted(results, key=lambda each: int(each["n"]))
    sizes = [each["n"] for each in results]
    for name, (words, colour, marker) in FOUND.items():
        shares = [[100 * each[name][end] for each in results] for end in ("value", "low", "high")]
        axes.plot(sizes, shares[0], color=colour, marker=marker, label=words)
        axes.fill_between(sizes, shares[1], shares[2], color=colour, alpha=0.25)
    labels = [f"{each['n']:,}\n{each['epochs']} epochs\n{each['seconds']:.0f} s" for each in results]
    axes.set_xscale("log")
    axes.set_xticks(sizes, labels)
    axes.minorticks_off()
    axes.set(ylim=(0, 104), ylabel="finds itself among all, %", xlabel="training samples", title="Finding among many")
    axes.legend(loc="lower left", frameon=False)


def main() -> None:
    """Read, draw, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks/results")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/images/measured.png")
    given = parser.parse_args()

    def read(path: Path) -> Any:
        return json.loads(path.read_text("utf-8"))

    digits = next(row for row in read(given.results / "robust.json")["rows"] if row["data"] == "mnist")
    many = [read(path) for path in given.results.glob("scale-*.json")]
    found = [digits | {"epochs": digits["training"]["epochs"]}]
    found += [each | {"n": each["samples"], "epochs": each["training"]["epochs"]} for each in many]
    plt.rcParams |= {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained", width_ratios=(1.25, 1))
    speed = read(given.results / "speed.json")
    epoch(left, speed)
    finding(right, found)
    figure.suptitle(f"{speed['device']}, commits in the tables", fontsize=8, x=0.99, ha="right")
    figure.savefig(given.out, dpi=130)


if __name__ == "__main__":
    main()

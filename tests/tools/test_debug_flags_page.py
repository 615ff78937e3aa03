"""The table of weak features in docs/debugging.md is what benchmarks/debug_flags.py wrote."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
NAMES = {"embedded": "digits", "mnist": "MNIST", "fashion-mnist": "FashionMNIST", "cifar10": "CIFAR-10"}


def change(one: dict[str, Any], name: str) -> str:
    before, after = (one[when][name] for when in ("before", "after"))
    if after is None:
        return f"{100 * before['value']:.1f} % to none"
    both = [f"{100 * rate['value']:.1f}".removesuffix(".0") if rate["value"] in (0, 1) else f"{100 * rate['value']:.1f}"
            for rate in (before, after)]  # fmt: skip
    return f"{both[0]} to {both[1]} %"


def row(one: dict[str, Any]) -> list[str]:
    """The cells of a row but for the last, whose signs of zero are typed."""
    wrong = f"{one['wrong']}{' next' if one['flips'] == 'next' else ''}"
    counts = [f"{one['before'][name]:,.0f} to {one['after'][name]:,.0f}" for name in ("flagged", "expected")]
    rates = [change(one, name) for name in ("right", "found")] if one["wrong"] else ["", ""]
    return [f"{NAMES[one['data']]}, {one['recipe']}", wrong, *counts, *rates]


def test_the_table_is_what_was_measured() -> None:
    measured = json.loads((ROOT / "benchmarks/results/debug-flags.json").read_text("utf-8"))["rows"]
    lines = (ROOT / "docs/debugging.md").read_text("utf-8").splitlines()
    kinds = "|".join(NAMES.values())
    table = [line for line in lines if re.match(rf"\| ({kinds}), (own|fast|robust) \|", line)]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    assert [one[:-1] for one in cells] == [row(one) for one in measured]
    for shown, one in zip(cells, measured, strict=True):
        if "ap_difference" in one:
            value, gap = (f"{number['value']:.4f}" for number in (one["after"]["ap"], one["ap_difference"]))
            assert shown[-1].startswith(value.removeprefix("0"))
            assert "none" in shown[-1] if one["ap_difference"]["value"] == 0 else gap.lstrip("-0") in shown[-1]

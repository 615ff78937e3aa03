"""The figures of `debugging.py` for people, and whether they meet the bars."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from provnet.base.stats import wilson

BARS = {
    "mnist": {"auroc": 0.998, "ap": 0.98, "suggested": 0.95, "seconds": 180.0},
    "fashion": {"auroc": 0.97},
    "anomalies": {"auroc": 0.97},
}


def show(result: dict[str, Any]) -> None:
    """The chief figures as lines."""
    planted = f"{result['odd']} odd" if "odd" in result else f"{result['flipped']} flipped"
    print(f"\n{result['case']}: {result['samples']:,} samples, {planted}")
    for one in result["results"]:
        times = one["seconds"]
        print(f"  recipe {one['recipe']} {one['settings']}: train {times['train']} s, debug {times['debug']} s")
        for name, row in {
            "provnet debug": one["ours"],
            **one.get("contributions", {}),
            **one.get("baselines", {}),
        }.items():
            apart = one.get("ours_minus", {}).get(name, {}).get("average precision")
            words = f"   AP, ours minus this: {with_ends(apart, '+.4f')}" if apart else ""
            print(f"    {name:52s} AUROC {with_ends(row['auroc'])}  AP {with_ends(row['ap'])}{words}")
        for name in (
            "fitted_wrong_labels",
            "flagged",
            "by_kind",
            "parts",
            "entropy_low_is_odd",
            "entropy_low_is_wrong",
        ):
            if name in one:
                print(f"    {name}: {json.dumps(rounded(one[name]))}")
        if "calibration" in one:
            found = one["calibration"]
            print(f"    expected wrong {found['expected_wrong']}, planted {found['wrong']}, ECE {found['error']:.4f}")
    for name, bar in result["bars"].items():
        print(f"  {'met ' if bar['met'] else 'MISS'} {name}: {bar['value']:.4f} against {bar['bar']}")


def with_ends(figure: dict[str, Any], form: str = ".4f") -> str:
    """A figure with its interval."""
    value, low, high = (format(figure[part], form) for part in ("value", "low", "high"))
    return f"{value} ({low} to {high})"


def rounded(value: Any) -> Any:
    """Figures short enough for a line."""
    if isinstance(value, dict) and {"value", "n"} <= set(value):
        return value["value"] and round(value["value"], 4)
    return {name: rounded(part) for name, part in value.items()} if isinstance(value, dict) else value


def judged(result: dict[str, Any]) -> dict[str, Any]:
    """Which bars are met by the recommended recipe; `as good as the best` is for every recipe."""
    bars, first = BARS[result["case"]], result["results"][0]
    values = {
        "auroc": first["ours"]["auroc"]["value"],
        "ap": first["ours"]["ap"]["value"],
        "seconds": first["seconds"]["both"],
    }
    if "flagged" in first and "suggested_right" in first["flagged"]:
        values["suggested"] = first["flagged"]["suggested_right"]["value"] or 0.0
    found = {
        name: {
            "bar": bar,
            "value": values[name],
            "met": values[name] <= bar if name == "seconds" else values[name] >= bar,
        }
        for name, bar in bars.items()
    }
    for one in result["results"]:
        apart = one.get("ours_minus", {})
        worst = {
            measure: min((part[measure] for part in apart.values()), key=lambda part: part["high"], default=None)
            for measure in ("auc", "average precision")
        }
        for measure, part in worst.items():
            if part is not None:
                found[f"{one['recipe']}: not below the best, {measure}"] = {
                    "bar": 0.0,
                    "value": part["high"],
                    "met": part["high"] >= 0,
                }
    return found


def calibration_table(score: np.ndarray, wrong: np.ndarray) -> list[dict[str, Any]]:
    """For bins of the score: how many, its mean, and the share that is wrong."""
    rows = []
    for low, high in (
        (0, 0.01),
        (0.01, 0.1),
        (0.1, 0.3),
        (0.3, 0.5),
        (0.5, 0.7),
        (0.7, 0.9),
        (0.9, 0.99),
        (0.99, 1.01),
    ):
        mine = (score >= low) & (score < high)
        if mine.any():
            rows.append(
                {
                    "from": low,
                    "to": min(high, 1),
                    "mean": float(score[mine].mean()),
                    "wrong": wilson(int(wrong[mine].sum()), int(mine.sum())).to_json(),
                }
            )
    return rows

"""docs/speed.md is what the results of the benchmarks make, and the maker skips what is not there."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cases import cases

ROOT = Path(__file__).parents[1]
KNOWN = ("robust", "knn", "scale", "speed", "retrieval", "kept_memory", "loss_memory", "folders", "paper_mnist")
RESULTS = [path for path in sorted((ROOT / "benchmarks/results").glob("*.json")) if path.stem.split("-")[0] in KNOWN]
MACHINE = {
    "device": "NVIDIA H200",
    "cores": 16,
    "threads": 16,
    "load": 0.5,
    "torch": "2.11.0",
    "commit": "0123456789abcdef",
    "dirty": False,
    "rates": {"cuda": {"memory_gb_s": 4000.0, "bf16_gflop_s": 800_000.0}},
}
SHARE = {"value": 0.9995, "low": 0.9993, "high": 0.9997, "n": 100_000}


def run(*options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", str(ROOT / "benchmarks/page.py"), *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def made(folder: Path, **results: Any) -> str:
    """The page of some results, file names with `_` for `-`."""
    (folder / "results").mkdir(exist_ok=True)
    for name, result in results.items():
        (folder / "results" / f"{name}.json").write_text(json.dumps(result))
    done = run("--results", folder / "results", "--out", folder / "page.md")
    assert (done.returncode, done.stderr) == (0, "")
    return (folder / "page.md").read_text("utf-8")


def scale(**changes: Any) -> dict[str, Any]:
    training = {"epochs": 2, "batch_size": 4096, "negatives": 16_384}
    shares = dict.fromkeys(("exact", "noise", "shift", "class", "class_through_index"), SHARE)
    sizes = {"samples": 1_200_000, "seconds": 50.0, "peak_gb": 9.0, "key_gb": 0.614}
    return {"machine": MACHINE, "training": training, **shares, **sizes, **changes}


def robust(**changes: Any) -> dict[str, Any]:
    shares = dict.fromkeys(("class", "plain_at_1", "plain_at_5", "joint_at_1", "joint_at_5", "exact", "noise"), SHARE)
    row = {"data": "mnist", "n": 60_000, "seed": 0, "seconds": 25.0, "training": {"epochs": 20}, "met": {}, **shares}
    return {**MACHINE, "rows": [row | {"bars": {"class": 0.996, "seconds": 30.0}} | changes]}


def speed(ratio: float) -> dict[str, Any]:
    plain = {"what": "plain eager", "seconds": 2.0, "ratio": 1.0}
    ours = {"what": "provnet fit", "seconds": 2 * ratio, "ratio": ratio, "bar": 0.5, "met": ratio <= 0.5}
    return {**MACHINE, "batch": 128, "rows": [plain, ours]}


def test_the_page_is_current() -> None:
    done = run("--check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_another_page_is_not_current(tmp_path: Path) -> None:
    made(tmp_path, robust=robust())
    options = ("--check", "--results", tmp_path / "results", "--out", tmp_path / "page.md")
    assert run(*options).returncode == 0
    (tmp_path / "results/robust.json").write_text(json.dumps(robust(seconds=26.0)))
    assert run(*options).returncode == 1
    (tmp_path / "page.md").unlink()
    assert "run python benchmarks/page.py" in run(*options).stdout


def test_no_results_make_a_page_without_sections(tmp_path: Path) -> None:
    assert "\n## " not in made(tmp_path)


@cases("path", RESULTS, ids=lambda path: path.stem)
def test_each_result_makes_its_section_alone(path: Path, tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    shutil.copy(path, tmp_path / "results")
    assert made(tmp_path).count("\n## ") >= 1


def test_a_result_that_no_section_knows_is_passed_over(tmp_path: Path) -> None:
    page = made(tmp_path, robust=robust())
    assert made(tmp_path, robustness=[["anything"]]) == page


def test_bars_are_met_or_missed(tmp_path: Path) -> None:
    assert "MISSED**" not in made(tmp_path, scale=scale(), robust=robust(), speed=speed(0.4))
    low = {**SHARE, "value": 0.9}
    text = made(tmp_path, scale=scale(noise=low, seconds=61.0, peak_gb=12.5), robust=robust(seconds=31.0))
    assert text.count("MISSED**") == 4
    assert made(tmp_path, speed=speed(0.6)).count("MISSED**") == 5


def test_limits_are_counted_from_what_was_measured(tmp_path: Path) -> None:
    weights = {
        "setting": "single-0",
        "parameters": 1_000_000,
        "cells": {},
        "preset": "paper",
        "epochs": 1,
        "batch_size": 128,
    }
    paper = [{**weights, "train_seconds": 1.0, "seconds_measured": "alone", "device": "NVIDIA H200"}]
    text = made(tmp_path, speed=speed(0.4), paper_mnist=paper, scale=scale())
    assert "| single-0, preset paper, 1 epochs, batches of 128: training |" in text
    assert "468 x 1,000,000 x 28 = 13.1 GB at 4 TB/s: 3.28 ms | 244.20 |" in text  # 0.8 s of ours
    assert "3 x 2 x 2 x 1,200,000 x 16,384 x 128 = 30.2 Tflop at 800 Tflop/s: 37.7 ms" in text
    assert "The machine's rates are the best of scale" in text.replace("\n", " ")  # lent to the paper's table
    unmeasured = scale(machine={**MACHINE, "device": "another", "rates": {}})
    assert "30.2 Tflop; the rate was not measured in that run" in made(tmp_path, scale=unmeasured)


@pytest.mark.parametrize("name", ["limits", "page", "records", "turns"])
def test_examples_in_the_benchmarks_are_right(name: str) -> None:
    command = [sys.executable, "-m", "doctest", f"{name}.py"]
    done = subprocess.run(command, cwd=ROOT / "benchmarks", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")

"""docs/peers.md is what benchmarks/peers.json makes, what it says in words holds there, and the score is right."""

from __future__ import annotations

import copy
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/peers.md"
RESULT: dict[str, Any] = {
    **json.loads((ROOT / "benchmarks/results/peers.json").read_text("utf-8")),
    "influence": json.loads((ROOT / "benchmarks/results/influence-lds.json").read_text("utf-8")),
}
METHODS, LDS, WRONG = RESULT["methods"], RESULT["lds"]["methods"], RESULT["wrong_labels"]["scores"]
GRADIENTS = [name for name, row in METHODS.items() if "package" in row]
OURS = "provnet, plain weights"


@pytest.fixture(autouse=True)
def beside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")


def module(name: str) -> ModuleType:
    return importlib.import_module(name)


def test_the_page_is_what_the_result_makes() -> None:
    text = PAGE.read_text("utf-8")
    page = module("peers_page")
    assert page.rewritten(text, RESULT) == text
    assert {found[1] for found in page.MARK.findall(text)} == set(page.BLOCKS)
    other = copy.deepcopy(RESULT)
    other["methods"][OURS]["shift"]["value"] -= 0.05
    assert page.rewritten(text, other) != text


def test_no_figure_of_the_page_is_typed() -> None:
    prose = module("peers_page").MARK.sub("", PAGE.read_text("utf-8"))
    assert re.findall(r"\d+", prose) == []


def above(figure: str, name: str, others: list[str]) -> bool:
    """The whole interval of one lies above those of the others."""
    return all(METHODS[each][figure]["high"] < METHODS[name][figure]["low"] for each in others)


def test_what_the_page_says_in_words_was_measured() -> None:
    joint, features, pixels = "provnet, joint weights", "kNN on features of the plain CNN", "kNN on pixels"
    assert above("shift", joint, [*GRADIENTS, features, pixels])
    assert all(METHODS[each]["exact"]["value"] < 0.5 for each in GRADIENTS), "rarely name a sample shown as it is"
    for figure in ("class_top_1", "class_top_5"):
        assert METHODS[joint][figure]["value"] > max(
            METHODS[each][figure]["value"] for each in METHODS if each != joint
        )
    right = {name: one["value"] for name, one in RESULT["class_accuracy"].items()}
    assert right["provnet"] > right["cnn"]
    assert METHODS[OURS]["class_top_1"]["value"] < METHODS[features]["class_top_1"]["value"]
    for figure in ("exact", "noise", "shift", "class_top_1", "class_top_5"):  # plain weights are neighbours
        assert METHODS[OURS][figure] == METHODS["kNN on features of provnet's network"][figure]
    for figure in ("ms_1", "ms_256"):
        times = {name: row[figure] for name, row in METHODS.items()}
        assert all(times[OURS] < times[each] for each in GRADIENTS)
        assert times[features] < min(times[OURS], times[pixels])
        assert times[pixels] < times[OURS]
    assert METHODS[OURS]["train_seconds"] > 10 * METHODS[features]["train_seconds"]
    assert all(row["ours_minus"]["low"] > 0 for name, row in WRONG.items() if name != "provnet debug")
    best = sorted(LDS, key=lambda name: -LDS[name]["value"])[:2]
    assert best == ["TRAK, three networks", "kronfluence EK-FAC"]
    highest = max(LDS[name]["high"] for name in LDS if name.startswith("provnet"))
    assert all(LDS[name]["value"] > LDS["provnet, joint weights"]["value"] for name in GRADIENTS)
    assert all(LDS[name]["low"] > 2 * highest for name in best)
    assert abs(LDS["provnet, joint weights"]["value"] - LDS["kNN on pixels"]["value"]) < 0.02
    many = {name: found["methods"] for name, found in RESULT["influence"].items() if "TRAK x10" in found["methods"]}
    assert many
    for name, found in many.items():  # influence weights
        whole, compact = (found[f"influence, snapshots, {kind}"] for kind in ("whole", "compact"))
        best = max(row["high"] for method, row in found.items() if not method.startswith("influence"))
        assert (min(whole["low"], compact["low"]) > best) is (name != "dattri-regression"), name
        assert (compact["high"] < whole["low"]) is (name == "small-cifar10"), name
    assert (
        many["dattri-regression"]["TRAK x10"]["value"]
        > many["dattri-regression"]["influence, snapshots, whole"]["value"]
    )
    for ours, library in (("TRAK x1", "TRAK, one network"), ("TRAK x3", "TRAK, three networks")):
        assert abs(many["small-mnist"][ours]["value"] - many["small-mnist"][library]["value"]) < 0.01
    loss, debug = WRONG["mean loss over its epochs"], WRONG["provnet debug"]
    assert loss["seconds"] < debug["seconds"] / 5


def test_a_library_that_is_not_there_has_a_row_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    peers, page = module("peers"), module("peers_page")
    monkeypatch.setitem(peers.PEERS, "nowhere", ("nowhere-on-pypi", "nowhere_at_all", 1, None))
    row = peers.peer("nowhere", lambda networks: pytest.fail("nothing to train"), lambda method: {})
    shown = {**RESULT, "methods": {OURS: METHODS[OURS], "nowhere": row}}
    for table in (page.results_table(shown), page.times_table(shown)):
        assert "| nowhere | not installed: nowhere-on-pypi |" in table
        assert len({line.count("|") for line in table.splitlines()}) == 1


def test_the_score_is_one_where_margins_are_sums_of_scores() -> None:
    lds = module("peers_lds")
    scores = np.random.default_rng(0).normal(size=(6, 40))
    subsets = lds.halves(40, 30, 1)
    assert (subsets.sum(1) == 20).all()
    margins = np.stack([scores[:, each].sum(1) for each in subsets], 1)
    assert lds.spearman(lds.foretold(scores, subsets), margins) == pytest.approx(1)
    assert lds.spearman(lds.foretold(-scores, subsets), np.exp(margins)) == pytest.approx(-1)
    assert lds.spearman(lds.foretold(np.ones((6, 40)), subsets), margins) == pytest.approx(0), "says nothing"
    chance = lds.averaged(lds.spearman(lds.foretold(scores[::-1], subsets), margins), 0)
    assert abs(chance["value"]) < 0.5


def test_rank_correlation_is_that_of_scipy_with_ties() -> None:
    chance = np.random.default_rng(2)
    one, other = chance.integers(0, 6, (20, 15)).astype(float), chance.normal(size=(20, 15)).round(1)
    expected = [spearmanr(a, b).statistic for a, b in zip(one, other, strict=True)]
    assert module("peers_lds").spearman(one, other) == pytest.approx(expected)


def test_the_interval_of_the_mean_covers_it_and_narrows() -> None:
    averaged, values = module("peers_lds").averaged, np.random.default_rng(3).normal(size=400)
    few, many = averaged(values[:25], 0), averaged(values, 0)
    assert few["low"] < few["value"] < few["high"]
    assert many["high"] - many["low"] < few["high"] - few["low"]


def test_margins_are_log_odds() -> None:
    logits, classes = torch.randn(7, 5, generator=torch.Generator().manual_seed(4)), torch.arange(7) % 5
    share = torch.softmax(logits, 1).gather(1, classes.unsqueeze(1)).squeeze(1)
    assert torch.allclose(module("peers_cnn").margins(logits, classes), torch.log(share / (1 - share)), atol=1e-5)


def test_a_network_is_a_function_of_its_seed_and_keeps_its_checkpoints() -> None:
    cnn = module("peers_cnn")
    inputs, labels = torch.randn(70, 1, 28, 28), torch.arange(70) % 3
    one, same, other = (cnn.train_cnn(inputs, labels, 3, epochs=4, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(one.net.classes.weight, same.net.classes.weight)
    assert not torch.equal(one.net.classes.weight, other.net.classes.weight)
    assert one.course.shape == (4, 70)
    assert (one.course > 0).all()
    assert len(one.checkpoints) == cnn.PARTS
    assert torch.equal(one.checkpoints[-1][0]["classes.weight"], one.net.classes.weight)
    assert all(rate > 0 for _, rate in one.checkpoints)


@pytest.mark.parametrize("name", ["peers_cnn", "peers_lds", "peers_page"])
def test_examples_are_right(name: str) -> None:
    command = [sys.executable, "-m", "doctest", f"{name}.py"]
    done = subprocess.run(command, cwd=ROOT / "benchmarks", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")

"""The README's figures are those of the committed results."""

from __future__ import annotations

from pathlib import Path

from provnet.experiments.beside import mean
from provnet.experiments.glance import numbers
from provnet.experiments.markdown import number
from provnet.experiments.paper import printed
from provnet.experiments.store import read_results
from provnet.experiments.table2_ours import section

ROOT = Path(__file__).parents[2]
DATA = {"MNIST": "mnist", "FashionMNIST": "fashion-mnist", "CIFAR-10": "cifar10"}
FIGURES = ("class_accuracy", *(f"index_accuracy_perturbed_{way}" for way in ("noise", "shift", "jpeg")))


def test_what_it_reaches() -> None:
    told = (ROOT / "README.md").read_text("utf-8").split("## What it reaches")[1].split("\n## ")[0]
    ours = read_results(ROOT / "results/table2-ours.json")
    paper = {(f"{one.data}/{one.setting}", one.figure): one.text for one in printed()}
    for words, data in DATA.items():
        cell = f"{data}/class-independent"
        found = [mean(ours, cell, figure) for figure in FIGURES]
        assert None not in found
        first, *copies = (number(one[0]) for one in found if one is not None)
        row = " | ".join([words, first, paper[cell, "class_accuracy"], *copies])
        assert f"| {row} |" in told
    assert numbers(section(ours)).startswith("29 met, 1 missed")
    assert "29 of the paper's 30 numbers" in told
    missed = mean(ours, "fashion-mnist/class-conditional", "class_accuracy")
    assert missed is not None
    assert f"where ours is {number(missed[0])}" in told.replace("\n", " ")

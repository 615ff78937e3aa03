"""What the README and the pages say of the paper's experiments is what the committed results say."""

from __future__ import annotations

import re
from pathlib import Path

from provnet_paper.beside import mean, number
from provnet_paper.page import numbers
from provnet_paper.store import read_results
from provnet_paper.table2 import section as with_the_papers_recipe
from provnet_paper.table2 import section_of_ours as with_ours

ROOT = Path(__file__).parents[2]


def test_how_much_label_mixing() -> None:
    text = (ROOT / "docs/networks.md").read_text("utf-8").split("## How much label mixing")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if re.match(r"\| [\d.]+ \|", line)]
    results = read_results(ROOT / "results/mixing.json")
    assert len(rows) == 4
    for alpha, *told in rows:
        cells = [(figure, data) for figure in ("index_accuracy", "any_at_1") for data in ("mnist", "fashion-mnist")]
        found = [mean(results, f"{data}/{alpha}", figure) for figure, data in cells]
        assert told == [f"{number(one[0])} %" for one in found if one is not None]
    table2 = read_results(ROOT / "results/table2.json")
    printed = [mean(table2, f"{data}/single-0.5", "index_accuracy") for data in ("mnist", "fashion-mnist")]
    digits, clothes = (number(one[0]) for one in printed if one is not None)
    words = f"the own index at .5 is found for {digits} % (MNIST) and {clothes} % (FashionMNIST) only"
    assert words in " ".join(text.split())
    assert min(len(table2.cells[f"{data}/single-0.5"]) for data in ("mnist", "fashion-mnist")) == 3


def test_beside_the_paper() -> None:
    text = " ".join((ROOT / "README.md").read_text("utf-8").split())
    told = text.split("Beside the paper: ")[1].split(" ## ")[0]
    ours, paper = (read_results(ROOT / f"results/{name}.json") for name in ("table2-ours", "table2"))
    lines = with_ours(ours)
    assert numbers(lines).startswith("MNIST, FashionMNIST and CIFAR-10: 29 met, 1 missed; ")
    (counted,) = (line for line in lines if line.startswith("Of the "))
    assert counted.startswith(
        "Of the 18 class numbers 17 are met. The 9 numbers of the own index are met by construction"
    )
    assert told.startswith(
        "of its 18 class numbers on MNIST, FashionMNIST and CIFAR-10 our recipes meet 17 (one H200, seed 0;"
    )
    assert "of its 12 index numbers all, mostly by construction" in told
    assert {len(seeds) for seeds in ours.cells.values()} == {1}, "say another number of seeds"
    missed = mean(ours, "fashion-mnist/class-conditional", "class_accuracy")
    assert missed is not None
    assert f"96.01 % on FashionMNIST, ours is {number(missed[0])} %" in told
    first = next(line for line in with_the_papers_recipe(paper) if "strictly above" in line)
    met, within = (int(n) for n in re.findall(r"(\d+) (?:met|within)", first))
    assert f"recipe {met + within} of the 30 are met or within the interval" in told

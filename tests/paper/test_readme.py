"""What the README and the pages say of the paper's experiments is what the committed results say."""

from __future__ import annotations

import re

from provnet_paper.frame import EXPERIMENTS
from provnet_paper.measures import Known, mean, number
from provnet_paper.networks import MAIN
from provnet_paper.page import Told as Page
from provnet_paper.records import Printed

from .made import ROOT, real


def test_how_much_label_mixing() -> None:
    text = (ROOT / "docs/networks.md").read_text("utf-8").split("## How much label mixing")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if re.match(r"\| [\d.]+ \|", line)]
    results = real("mixing")
    assert len(rows) == 4
    for alpha, *told in rows:
        cells = [(figure, data) for figure in ("index_accuracy", "any_at_1") for data in ("mnist", "fashion-mnist")]
        found = [mean(results, f"{data}/{alpha}", figure) for figure, data in cells]
        assert told == [f"{number(one[0])} %" for one in found if one is not None]
    table2 = real("table2")
    printed = [mean(table2, f"{data}/single-0.5", "index_accuracy") for data in ("mnist", "fashion-mnist")]
    digits, clothes = (number(one[0]) for one in printed if one is not None)
    words = f"only {digits} % (MNIST) and {clothes} % (FashionMNIST) of the samples find themselves"
    assert words in " ".join(text.split())
    assert min(len(table2.cells[f"{data}/single-0.5"]) for data in ("mnist", "fashion-mnist")) == 3


def beside(name: str) -> dict[Printed, Known | None]:
    """The paper's numbers on the three data sets, and ours."""
    found = Page(EXPERIMENTS[name], real(name), ROOT / "results").numbers
    return {one: ours for one, ours in found.items() if one.data in MAIN}

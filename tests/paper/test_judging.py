"""What is told of chance and of what was not run: seeds that lie apart, answers alike, verdicts so far."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from provnet.tools.robustness.conditions import CONDITIONS
from provnet_paper.beside import summary
from provnet_paper.frame import EXPERIMENTS
from provnet_paper.judge import CHANCE, ONE_SEED, PAIRED, counted, headline, told
from provnet_paper.page import in_short, page, section
from provnet_paper.records import SCALES, Results
from provnet_paper.robustness import OWN
from provnet_paper.samples import packed, unpacked
from provnet_paper.store import _text

from .made import cost, table2
from .made_others import made

N = 10_000


def test_a_verdict_on_a_part_of_the_cases_says_so() -> None:
    lines = [
        "- It works: **confirmed**: surely so in 2, of 2 compared, 3 not run.",
        "- Never: **not tested**: 3 not run.",
    ]
    assert in_short(lines) == ["", "**Confirmed so far**: It works.", "**Not tested**: Never."]
    assert counted([None, None]) == "2 not run"


def test_where_a_sentence_stands_is_said_in_the_list_and_not_again_in_short() -> None:
    lines = [
        '- "It works" (mostly) (app. 7.6): **confirmed**: so.',
        "- Never (within a point; sec. 3.1): **undecided**: 0.",
    ]
    assert in_short(lines)[1:] == [
        '**Confirmed**: "It works" (mostly).',
        "**Undecided**: Never (within a point; sec. 3.1).",
    ]


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_key_figures_have_intervals_and_stand_before_verdicts(name: str) -> None:
    results = cost() if name == "cost" else table2(name=name) if name.startswith("table2") else made(name)
    text = headline(results, EXPERIMENTS[name].headline)
    assert re.search(r"[\ds] \([-+]?[\d.]+ to [-+]?[\d.]+\)", text) and text.endswith(".")
    assert in_short([]) == [""] and headline(replace(results, scale="tiny"), EXPERIMENTS[name].headline) == ""
    assert headline(replace(results, cells={}), EXPERIMENTS[name].headline) == ""
    page = section(EXPERIMENTS[name], results, Path("nowhere"))
    (place,) = [place for place, line in enumerate(page) if line.startswith("*Found.* ")]
    before, after = " ".join(page[place].split()).split(text)
    assert before == "*Found.* " or before.startswith("*Found.* The paper's numbers: ")
    assert after == "" and page[place + 1] == "" and page[place + 2].startswith("- **")  # verdicts


def test_networks_that_are_compared_in_pairs_are_said_to_be() -> None:
    (note,) = [
        line for line in EXPERIMENTS["robustness"].section(made("robustness")) if "chance of the samples" in line
    ]
    assert PAIRED in note and CHANCE not in note


def test_one_training_is_told_wherever_something_is_judged() -> None:
    for name in ("sharing", "membership", "debugging", "vae"):
        assert any(ONE_SEED in line for line in EXPERIMENTS[name].section(made(name)))
    assert not any(ONE_SEED in line for line in EXPERIMENTS["vae"].section(made("vae", seeds=2)))
    assert told([], made("vae")) == [""]


def test_numbers_far_above_the_papers_are_counted() -> None:
    def far(rate: float) -> str:
        results = made("subsets", only="mnist")
        cells = {name: dict(seeds) for name, seeds in results.cells.items()}
        one = cells["mnist/stratified-10"][0]
        cells["mnist/stratified-10"][0] = replace(one, figures={**one.figures, "any_at_1": (rate, N)})
        return summary(replace(results, cells=cells), "subsets")

    assert far(0.6832 + 0.06).endswith("so the two set-ups differ: 1.")
    assert "set-ups differ" not in far(0.6832 + 0.04)


def test_what_was_not_run_is_named_and_the_luck_of_training_is_at_the_head(tmp_path: Path) -> None:
    results = made("sharing")
    few = {name: seeds for name, seeds in results.cells.items() if "xlarge-4" not in name}
    sharing = EXPERIMENTS["sharing"]

    def left(**changes: Any) -> str:
        lines = section(sharing, replace(results, cells=few, **changes), tmp_path)
        return " ".join(line for line in lines if "Not run" in line).replace("\n", " ")

    seconds = sum(cell.seconds for cell in sharing.cells(SCALES["full"]) if "xlarge-4" in cell.name)
    more = f"about {math.ceil(seconds / 60)} min more of an H200, by estimate; the command runs only what is not kept."
    assert left() == f"**Not run**: `mnist/xlarge-4`, `fashion-mnist/xlarge-4`: {more}"
    told = left(absent={"mnist/xlarge-4": "mnist is not in the data folder. Expected: two files"})
    assert "`fashion-mnist/xlarge-4`: about 4 min" in told
    assert told.endswith("`mnist/xlarge-4`: mnist is not in the data folder.")
    (tmp_path / "table2.json").write_text(_text(table2()), "utf-8")
    text = page(tmp_path, tmp_path / "page.md")
    assert "*Luck of training.*" in text.split("\n## Table 2")[0]
    (tmp_path / "table2.json").unlink()
    assert "*Luck of training.*" not in page(tmp_path, tmp_path / "page.md")


def alike(results: Results, condition: str, share: float) -> Results:
    """Two networks that are right on the very same pictures under a condition, so many of them."""
    cells = {name: dict(seeds) for name, seeds in results.cells.items()}
    number = list(CONDITIONS).index(condition)
    for alpha in ("0.2", "0.3"):
        one = cells[f"mnist/{alpha}"][0]
        right = unpacked(one.told["right"]).copy()
        right[number] = np.arange(right.shape[1]) < share * right.shape[1]
        cells[f"mnist/{alpha}"][0] = replace(one, told={**one.told, "right": packed(right)})
    return replace(results, cells=cells)


def test_networks_that_answer_alike_whatever_they_see_are_named() -> None:
    def lines(results: Results) -> list[str]:
        return [line for line in EXPERIMENTS["robustness"].section(results) if "the very same pictures" in line]

    assert not lines(made("robustness"))
    (line,) = lines(alike(made("robustness"), "blur-2", 0.1))
    assert "Gaussian blur, σ 2, α = 0.2, 0.3: " in line
    assert not lines(alike(made("robustness"), "blur-2", 0.9))  # most are right: they may well agree


def test_where_some_mixing_beats_the_cnn_is_told() -> None:
    def evidence(results: Results) -> str:
        return OWN["some mixing"](results)[1]

    results = made("robustness")
    cells = {name: seeds for name, seeds in results.cells.items() if name in ("mnist/cnn", "mnist/0.2", "mnist/0.3")}
    few = replace(results, cells=cells)
    assert evidence(few).startswith("surely so in 0, ") and "MNIST" not in evidence(few)
    better = evidence(alike(few, "noise-0.2", 1.0))
    assert better.startswith("surely so in 1, ") and "; MNIST, Gaussian noise, σ 0.2, α = 0.2: +" in better

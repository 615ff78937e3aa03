"""Rates of changed copies stand in the column under their own names, also after they were read from a file."""

from __future__ import annotations

from pathlib import Path

from provnet_paper.records import Cell, Result
from provnet_paper.samples import HEAD, PREFIX, copies_of
from provnet_paper.store import keep, kept


def test_a_kept_result_has_its_rates_in_the_order_of_the_heading(tmp_path: Path) -> None:
    cell = Cell("mnist/0", {}, lambda job: {})
    figures = {f"{PREFIX}noise": (0.5, 10), f"{PREFIX}shift": (0.25, 10), f"{PREFIX}jpeg": (0.75, 10)}
    made = Result(figures, {}, {})
    keep(tmp_path, "mixing", "full", cell, 0, made)
    read = kept(tmp_path, "mixing", "full", [cell])["mnist/0"][0]
    assert HEAD == "noise / shift / JPEG"
    assert copies_of(read) == copies_of(made) == "50.00 / 25.00 / 75.00"


def test_a_kind_that_was_not_measured_leaves_its_place_empty() -> None:
    assert copies_of(Result({f"{PREFIX}jpeg": (0.75, 10)}, {}, {})) == "– / – / 75.00"

"""Kept results are found again, whole, and only under the config that made them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from provnet.base.errors import IntegrityError, UnsafeFileError
from provnet.data.modalities.augment import POLICIES, Policy
from provnet_paper import vae
from provnet_paper.frame import EXPERIMENTS
from provnet_paper.records import SCALES, Cell, Result
from provnet_paper.store import cell_file, keep, kept_cells, read_results, results_file, write_results

RESULT = Result({"rate": (1 / 3, 7)}, {"seconds": {"all": 1.5}, "words": "ä"}, {"device": "cpu", "dirty": None})


def cell(name: str = "a/x", **config: Any) -> Cell:
    return Cell(name, {"pair": (1, 2), **config}, lambda job: {})


def write(out: Path, *seeds: int, scale: str = "full", **config: Any) -> None:
    for seed in seeds:
        keep(out, "swift", scale, cell(**config), seed, RESULT)


def test_round_trip_through_cells_and_through_the_one_file(tmp_path: Path) -> None:
    write(tmp_path, 0, 2)
    assert kept_cells(tmp_path, "swift", "full", [cell()]) == {"a/x": {0: RESULT, 2: RESULT}}
    whole = write_results(tmp_path, "swift", "full", [cell()], {"b": "no data", "a/x": "not so"})
    path = results_file(tmp_path, "swift", "full")
    assert read_results(path) == whole
    assert whole.absent == {"b": "no data"}
    for file in (tmp_path / "cells/swift").iterdir():
        file.unlink()
    assert kept_cells(tmp_path, "swift", "full", [cell()]) == {"a/x": {0: RESULT, 2: RESULT}}


def test_one_line_a_seed(tmp_path: Path) -> None:
    write(tmp_path, 0, 1)
    write_results(tmp_path, "swift", "full", [cell()], {})
    lines = (tmp_path / "swift.json").read_text("utf-8").splitlines()
    assert sum('"rate": [' in line for line in lines) == 2
    assert sum('"device": "cpu"' in line for line in lines) == 1  # said once
    assert json.loads("\n".join(lines))["experiment"] == "swift"


def test_results_of_another_config_are_not_used(tmp_path: Path) -> None:
    write(tmp_path, 0)
    write_results(tmp_path, "swift", "full", [cell()], {})
    assert kept_cells(tmp_path, "swift", "full", [cell(epochs=2)]) == {"a/x": {}}
    assert write_results(tmp_path, "swift", "full", [cell(epochs=2)], {}).cells == {}


def test_a_newer_cell_replaces_what_the_one_file_says(tmp_path: Path) -> None:
    write(tmp_path, 0)
    write_results(tmp_path, "swift", "full", [cell()], {})
    newer = Result({"rate": (0.9, 7)}, RESULT.told, RESULT.origin)
    keep(tmp_path, "swift", "full", cell(), 0, newer)
    assert kept_cells(tmp_path, "swift", "full", [cell()])["a/x"][0] == newer


def test_scales_lie_apart(tmp_path: Path) -> None:
    write(tmp_path, 0, scale="tiny")
    assert kept_cells(tmp_path, "swift", "full", [cell()]) == {"a/x": {}}
    assert cell_file(tmp_path, "swift", "tiny", "a/x", 0).is_relative_to(tmp_path / "tiny")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{", IntegrityError),
        ("[]", IntegrityError),
        ('{"cell": "a/x"}', IntegrityError),
        ('{"cell": NaN}', UnsafeFileError),
    ],
)
def test_a_damaged_cell_is_an_error_and_not_a_result(tmp_path: Path, text: str, error: type[Exception]) -> None:
    write(tmp_path, 0)
    cell_file(tmp_path, "swift", "full", "a/x", 0).write_text(text)
    with pytest.raises(error):
        kept_cells(tmp_path, "swift", "full", [cell()])


@pytest.mark.parametrize(
    "text", ["{}", '{"experiment": "a", "scale": "full", "absent": {}, "cells": {"x": 1}, "origins": {}}']
)
def test_other_files_are_not_results(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(IntegrityError, match="not a file of results"):
        read_results(tmp_path / "x.json")


def test_a_cell_is_run_again_where_its_augmentation_or_its_judge_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    def configs(name: str) -> dict[str, Any]:
        return {one.name: dict(one.config) for one in EXPERIMENTS[name].cells(SCALES["full"])}

    before, generators = configs("instance"), configs("vae")
    monkeypatch.setitem(POLICIES, "digits", Policy(shift=3))
    monkeypatch.setattr(vae, "JUDGED", 9)
    changed = {name for name, config in configs("instance").items() if config != before[name]}
    assert changed == {"mnist/index-augmented", "fashion-mnist/index-augmented"}
    assert all(config != generators[name] for name, config in configs("vae").items())

"""A run with each named backbone, written once and kept for ever, is read and says what it said."""

from __future__ import annotations

import json
import tarfile
import tempfile
from pathlib import Path

import pytest
import torch

from provnet.models.backbones import BACKBONES, SHARING
from provnet.models.vae import GENERATORS
from provnet.runs.run import read_run
from tests.golden.make import LABELS

from .make import ELSEWHERE, HERE, NAMES, said

CLOSE = {"rtol": 1e-5, "atol": 1e-5}


@pytest.mark.parametrize("name", NAMES)
def test_a_run_with_this_backbone_says_what_it_said(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:  # up to 180 MB, unpacked
        with tarfile.open(HERE / f"{name}.tar.xz") as archive:
            archive.extractall(folder, filter="data")
        run = read_run(folder)
    told = json.loads((HERE / f"{name}.json").read_text("utf-8"))
    assert run.config.network.backbone == name
    assert len(run.samples) == len(LABELS)
    now = said(run.network, torch.tensor(told["inputs"], dtype=torch.uint8))
    assert now.pop("exemplars") == told["exemplars"]
    assert now.keys() | {"inputs", "exemplars"} == told.keys()
    for what, values in now.items():
        torch.testing.assert_close(torch.tensor(values), torch.tensor(told[what]), **CLOSE)
    assert len({tuple(row) for row in told["exemplars"]}) > 1  # a network that says one thing of all proves nothing
    assert len(set(told["classes"])) > 1


def test_every_name_that_a_file_may_hold_has_its_run_and_no_other() -> None:
    assert set(NAMES) | ELSEWHERE == {*BACKBONES, *SHARING, *GENERATORS}, "python -m tests.backbones.make NAME"
    kept = {path.name for path in Path(HERE).iterdir() if path.suffix in (".xz", ".json")}
    assert kept == {f"{name}{end}" for name in NAMES for end in (".tar.xz", ".json")}


@pytest.mark.parametrize("name", NAMES)
def test_it_is_small(name: str) -> None:
    assert (HERE / f"{name}.tar.xz").stat().st_size < 100_000

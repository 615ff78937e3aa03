"""A sample table of another run would name wrong samples: it is refused, even where its hashes were made to fit."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import provnet
from provnet.base.errors import IntegrityError
from provnet.data.dataset import ImageData
from provnet.runs.bank import add, erase, withhold
from provnet.runs.run import Run, read_run, read_samples, write_run
from provnet.runs.verify import verify
from provnet.training.config import train_config
from provnet.training.subset import IndexSubset
from tests.fitting import fit

from .hostile import change_tensors, refused
from .made import remake_manifest

N = 12


def data(seed: int, n: int = N) -> ImageData:
    images = np.random.default_rng(seed).integers(0, 256, (n, 4), dtype=np.uint8)
    return provnet.open_data(images.astype(np.float32), np.arange(n) % 3, ids=[f"{seed}/{i}" for i in range(n)])


def trained(seed: int, subset: IndexSubset | None = None) -> Run:
    wishes = {"network": "class-independent", "head": "exemplar", "backbone": "mlp"}
    return fit(data(seed), config=train_config("fast", epochs=1), index_subset=subset, **wishes)


@pytest.fixture(scope="module")
def run() -> Run:
    return trained(0)


CHANGED: dict[str, Callable[[Run], Run]] = {
    "as trained": lambda run: run,
    "withheld": lambda run: withhold(run, ["0/3"]),
    "added": lambda run: add(run, data(2, 3)),
}


@pytest.mark.parametrize("kind", CHANGED)
def test_rows_that_changed_places_are_refused(tmp_path: Path, run: Run, kind: str) -> None:
    """The hashes of 0 and 3, which are of one class, are exchanged: shapes and labels still fit."""
    write_run(CHANGED[kind](run), tmp_path)
    read_run(tmp_path)

    def exchange(tensors: dict[str, torch.Tensor]) -> None:
        for name in ("sha256", "pixel_sha256"):
            tensors[name][[0, 3]] = tensors[name][[3, 0]]

    change_tensors(tmp_path / "samples.safetensors", exchange)
    remake_manifest(tmp_path)
    refused(tmp_path, 6, "samples.safetensors", "is not the sample table of this run")
    with pytest.raises(IntegrityError, match="is not the sample table"):
        read_samples(tmp_path)
    assert [check.name for check in verify(tmp_path).files if check.why != "ok"] == ["contents"]


def test_the_table_of_another_run_is_refused(tmp_path: Path, run: Run) -> None:
    other = trained(1)
    for each, name in ((run, "one"), (other, "other")):
        write_run(each, tmp_path / name)
    shutil.copy(tmp_path / "other" / "samples.safetensors", tmp_path / "one")
    refused(tmp_path / "one", 6, "samples.safetensors")
    remake_manifest(tmp_path / "one")
    refused(tmp_path / "one", 6, "is not the sample table of this run")
    with pytest.raises(IntegrityError, match="is not the sample table"):
        write_run(replace(run, samples=other.samples), tmp_path / "new")


@pytest.mark.parametrize("classes_on", ["all", "subset"])
def test_what_the_fingerprint_does_not_say_is_no_reason_to_refuse(tmp_path: Path, run: Run, classes_on: str) -> None:
    part = trained(0, IndexSubset(np.arange(6), classes_on))
    kept = (part, withhold(part, ["0/1"]), add(part, data(2, 3)), add(erase(part, ["0/1"]), data(2, 3)))
    for number, one in enumerate((*kept, erase(run, ["0/1"]))):
        write_run(one, tmp_path / str(number))
        assert read_run(tmp_path / str(number)).samples.sample_ids == one.samples.sample_ids

"""Verification of files and data, in words and exit codes."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from provnet import open_data
from provnet.answers.attributor import explain
from provnet.answers.evaluation import evaluate
from provnet.base.errors import DataError, UsageError
from provnet.data.dataset import DataSpec, ImageData
from provnet.runs.run import read_run, write_run
from provnet.runs.verify import verify
from provnet.samples.identity import SampleTable
from provnet.tools.copies.compute import attribute_generated
from provnet.training.config import train_config
from provnet.training.subset import IndexSubset
from tests.cases import cases
from tests.fitting import fit

from .made import make_run, remake_manifest, sample_table


def data_of(samples: SampleTable) -> ImageData:
    return ImageData(torch.zeros(len(samples), 4), samples, DataSpec("arrays", "arrays"))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_run(make_run(), tmp_path)
    return tmp_path


def test_a_whole_run_is_well(run: Path) -> None:
    found = verify(run)
    assert found.ok
    assert found.exit_code == 0
    assert found.verdict is None
    assert found.lines()[0] == "manifest.json: ok"
    assert len(found.lines()) == 7


def test_a_damaged_file_is_named_and_the_others_are_well(run: Path) -> None:
    (run / "README.md").write_text("another card")
    found = verify(run)
    assert found.exit_code == 6
    assert [check.name for check in found.files if check.why != "ok"] == ["README.md"]


def test_an_unsafe_file_has_its_own_exit_code(run: Path) -> None:
    (run / "model.safetensors").write_bytes(b"\x80\x04K\x01.")
    assert verify(run).exit_code == 7


def test_whole_files_that_contradict_each_other_are_found(run: Path) -> None:
    text = (run / "config.json").read_text().replace('"class-conditional"', '"single"')
    (run / "config.json").write_text(text)
    remake_manifest(run)
    found = verify(run)
    assert found.exit_code == 6
    assert found.files[-1].name == "contents"
    assert "index head" in found.files[-1].why


def changed(kind: str) -> SampleTable:
    table = sample_table()
    if kind == "re-ordered":
        return table.select(np.arange(len(table))[::-1])
    if kind == "moved":
        paths = tuple(f"new/{i}" for i in range(len(table)))
        return dataclasses.replace(table, sample_ids=paths, paths=paths)
    if kind == "edited":
        hashes, pixels = table.sha256.copy(), table.pixel_sha256.copy()
        hashes[3], pixels[3] = 0, 0
        return dataclasses.replace(table, sha256=hashes, pixel_sha256=pixels)
    if kind == "decoded differently":
        return dataclasses.replace(table, pixel_sha256=255 - table.pixel_sha256)
    if kind == "other":
        return dataclasses.replace(table, sha256=255 - table.sha256, pixel_sha256=255 - table.pixel_sha256)
    return table


@cases(
    ("kind", "code"),
    [("same", 0), ("re-ordered", 0), ("moved", 0), ("decoded differently", 6), ("edited", 6), ("other", 6)],
)
def test_the_data_are_told_apart(run: Path, kind: str, code: int) -> None:
    found = verify(run, data_of(changed(kind)))
    assert found.verdict == kind
    assert found.exit_code == code
    assert any(line.startswith("data: ") for line in found.lines())
    assert all("\n" not in line and line.isprintable() for line in found.lines())


def test_a_backbone_of_ones_own_is_verified_without_the_object(run: Path) -> None:
    text = (run / "config.json").read_text().replace('"mlp"', '"custom"')
    (run / "config.json").write_text(text)
    remake_manifest(run)
    found = verify(run, data_of(sample_table()))
    assert found.ok
    assert found.verdict == "same"
    assert "not loaded" in found.files[-1].why


def test_data_opened_with_other_options_are_refused_with_those_of_training(tmp_path: Path) -> None:
    """A run that was trained on one page of its files knows nothing of the other; nor of another background."""
    draw = np.random.default_rng(0)
    for i in range(6):
        pages = [Image.fromarray(draw.integers(0, 256, (8, 8, 4), dtype=np.uint8)) for _ in range(2)]
        place = tmp_path / "data" / "ab"[i % 2] / f"{i}.tif"
        place.parent.mkdir(parents=True, exist_ok=True)
        pages[0].save(place, save_all=True, append_images=pages[1:])
    trained = open_data(tmp_path / "data", frame=0, background="black")
    other = open_data(tmp_path / "data", frame=1)
    fit(trained, config=train_config("fast", epochs=1), out=tmp_path / "run")
    run = read_run(tmp_path / "run")
    found = verify(tmp_path / "run", other)
    assert (found.verdict, found.ok, found.exit_code) == ("decoded differently", False, 6)
    way = "open them as at training, with background='black', frame=0 instead of background='white', frame=1"
    assert found.lines()[-1] == f"data: {way}"
    with pytest.raises(UsageError, match=re.escape(way)):
        evaluate(run, train=other)
    with pytest.raises(DataError, match=re.escape(way)):
        attribute_generated(other.images[:2], run, data=other)
    assert explain(run, trained.images[:2], k=2).show(trained).html.count("<img ") == 6
    assert explain(run, trained.images[:2], k=2).show(other).html.count("<img ") == 2  # the inputs alone


def test_samples_without_an_index_opened_with_other_options_are_not_called_the_same(tmp_path: Path) -> None:
    """Of those the run keeps a hash of their bytes alone; the indexed ones may look the same under both options."""
    for i in range(8):
        place = tmp_path / "data" / "ab"[i % 2] / f"{i}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGBA", (8, 8), (i, 9, 9, 255 if i < 4 else 0)).save(place)
    data = open_data(tmp_path / "data", background="black")
    opaque = np.flatnonzero([int(Path(name).stem) < 4 for name in data.samples.sample_ids])
    fit(data, config=train_config("fast", epochs=1), index_subset=IndexSubset(opaque), out=tmp_path / "run")
    assert verify(tmp_path / "run", data).lines()[-1].startswith("data: the same data")
    found = verify(tmp_path / "run", open_data(tmp_path / "data"))
    assert found.verdict == "same"
    assert "cannot be compared: open them as at training, with background='black' instead of" in found.unsure

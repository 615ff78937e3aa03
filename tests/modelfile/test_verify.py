"""Verification of files and data, in words and exit codes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from provnet.data.identity import SampleTable
from provnet.data.imagedata import DataSpec, ImageData
from provnet.modelfile import write_run
from provnet.verify import verify

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
    if kind == "other":
        return dataclasses.replace(table, sha256=255 - table.sha256, pixel_sha256=255 - table.pixel_sha256)
    return table


@pytest.mark.parametrize(("kind", "code"), [("same", 0), ("re-ordered", 0), ("moved", 0), ("edited", 6), ("other", 6)])
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

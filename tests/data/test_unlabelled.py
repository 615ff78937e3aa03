"""Samples without labels: everything that identity alone can do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import save_file

import provnet
from provnet.base.errors import IntegrityError, UsageError
from provnet.data.compare import compare
from provnet.data.select import holdout
from provnet.runs.files import read_samples_file, samples_to_tensors
from provnet.samples.identity import Groups, SampleTable, duplicate_facts, named
from provnet.training.config import train_config
from provnet.training.fit import fit

DATA = provnet.open_data("embedded", limit=20)
BARE = replace(DATA.samples, grouping=None)


def test_they_are_selected_compared_and_named() -> None:
    turned = BARE.select(np.arange(20)[::-1])
    found = compare(BARE, turned)
    assert found.verdict == "re-ordered"
    assert found.positions.tolist() == list(range(20))[::-1]
    assert named(BARE, 3, 0.5).label == ""
    assert BARE.conflicts() == [] == duplicate_facts(BARE)
    assert BARE.class_names == ()
    assert repr(BARE) == "SampleTable(20 samples, no labels)"


def test_labels_belong_to_the_fingerprint() -> None:
    zeros = replace(BARE, grouping=Groups(("all",), np.zeros(20, np.int64)))
    assert len({BARE.fingerprint, zeros.fingerprint, DATA.samples.fingerprint}) == 3
    assert replace(BARE, labels=DATA.samples.labels, class_names=DATA.class_names).fingerprint == (
        DATA.samples.fingerprint
    )


def test_they_are_written_and_read(tmp_path: Path) -> None:
    save_file(samples_to_tensors(BARE), tmp_path / "samples")
    with (tmp_path / "samples").open("rb") as file:
        back = read_samples_file(file)
    assert back.grouping is None
    assert (back.fingerprint, back.sample_ids) == (BARE.fingerprint, BARE.sample_ids)


def test_half_a_grouping_is_damage(tmp_path: Path) -> None:
    tensors = samples_to_tensors(DATA.samples)
    del tensors["labels"]
    save_file(tensors, tmp_path / "samples")
    with (tmp_path / "samples").open("rb") as file, pytest.raises(IntegrityError, match="labels"):
        read_samples_file(file)


def test_they_are_held_out_by_content_alone() -> None:
    train, test = holdout(replace(DATA, samples=BARE), 0.2)
    assert (len(train), len(test)) == (16, 4)


def test_classification_refuses_them_in_words() -> None:
    bare = replace(DATA, samples=BARE)
    with pytest.raises(UsageError, match="these samples have no labels; give them when the data are opened"):
        fit(bare, train_config("fast", epochs=1))
    assert isinstance(bare.samples, SampleTable)

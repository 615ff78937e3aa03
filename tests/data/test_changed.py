"""Data that are written to after they were opened: no run comes to name a sample by the label or hash of another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import provnet
from provnet import ImageData
from provnet.base.errors import DataError
from provnet.data import dataset as imagedata
from provnet.data.dataset import refuse_changed
from provnet.runs import bank
from provnet.runs.run import read_run, write_run
from provnet.samples.identity import FLAGS
from provnet.training.config import train_config
from tests.cases import cases
from tests.fitting import fit


def opened() -> ImageData:
    chance = np.random.default_rng(0)
    return provnet.open_data(chance.integers(0, 256, (12, 6, 6), dtype=np.uint8), np.arange(12) % 3)


@cases("name", ["labels", "sha256", "pixel_sha256", *FLAGS])
def test_a_table_that_data_and_their_run_share_cannot_be_written_to(name: str) -> None:
    data = opened()
    for table in (data.samples, data.select([3, 1]).samples):
        with pytest.raises(ValueError, match="read-only"):
            getattr(table, name)[0] = 1


def test_labels_are_changed_in_a_table_of_its_own(tmp_path: Path) -> None:
    data, config = opened(), train_config("fast", epochs=1)
    run = fit(data, config=config)
    labels = data.labels
    labels[0] = 2
    now = replace(data, samples=replace(data.samples, labels=labels.numpy()))
    assert (int(run.samples.labels[0]), int(now.samples.labels[0])) == (0, 2)
    assert now.samples.fingerprint != data.samples.fingerprint
    for one, label in ((run, 0), (fit(now, config=config), 2)):
        write_run(one, tmp_path / str(label))
        assert int(read_run(tmp_path / str(label)).samples.labels[0]) == label


def test_labels_that_are_used_for_a_second_table_leave_the_first_run_as_it_is(tmp_path: Path) -> None:
    data, config = opened(), train_config("fast", epochs=1)
    labels = data.labels
    runs = []
    for place in (0, 1):
        labels[place] = 2
        runs.append(fit(replace(data, samples=replace(data.samples, labels=labels.numpy())), config=config))
    assert [run.samples.labels[:2].tolist() for run in runs] == [[2, 1], [2, 2]]
    write_run(runs[0], tmp_path / "first")
    assert read_run(tmp_path / "first").samples.labels[:2].tolist() == [2, 1]


CHANGES: dict[str, Callable[[torch.Tensor], object]] = {
    "one value": lambda images: images[7, 0, 2].fill_(1),
    "the order": lambda images: images.copy_(images.flip(0)),
    "all": lambda images: images.div_(2, rounding_mode="floor"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_pictures_that_were_written_to_are_not_trained_on_and_not_added(change: str) -> None:
    run = fit(opened().select(np.arange(6)), head="exemplar", config=train_config("fast", epochs=1))
    data = opened()
    CHANGES[change](data.images)
    said = r'the values of "train/\d+" have changed since they were opened, .*open_data\(images, labels, ids='
    with pytest.raises(DataError, match=f"the training data: {said}"):
        fit(data, config=train_config("fast", epochs=1))
    with pytest.raises(DataError, match=f"the samples to add: {said}"):
        bank.add(run, data.select(np.arange(6, 12)) if change == "one value" else data)
    again = provnet.open_data(data.images, data.labels, ids=data.samples.sample_ids)
    assert fit(again, config=train_config("fast", epochs=1)).samples.sample_ids == data.samples.sample_ids


def test_pictures_of_another_type_are_others() -> None:
    data = opened()
    with pytest.raises(DataError, match='the values of "train/0"'):
        refuse_changed("the data", replace(data, images=data.images.float()))


def test_of_very_large_data_as_many_are_looked_at_as_take_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imagedata, "HASHED", 6 * 36)
    data = opened()
    data.images[3] = 0  # every second one is looked at
    refuse_changed("the data", data)
    data.images[4] = 0
    with pytest.raises(DataError, match='"train/4"'):
        refuse_changed("the data", data)

"""The real data sets, where PROVNET_DATA names the folder that holds them."""

from __future__ import annotations

import os

import numpy as np
import pytest

from provnet import open_data
from provnet.base.errors import UsageError
from provnet.data.sources.known import data_folder, locate
from provnet.samples.identity import duplicate_facts

pytestmark = pytest.mark.skipif(
    not os.environ.get("PROVNET_DATA"), reason="PROVNET_DATA is not set: it names the folder of the real data sets"
)

SETS = {
    "mnist": (60_000, 10_000, (1, 28, 28), 10),
    "fashion-mnist": (60_000, 10_000, (1, 28, 28), 10),
    "cifar10": (50_000, 10_000, (3, 32, 32), 10),
}


def need(name: str) -> None:
    try:
        locate(name, data_folder(None))
    except UsageError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", SETS)
def test_counts_shapes_and_duplicates(name: str) -> None:
    need(name)
    n_train, n_test, shape, classes = SETS[name]
    for split, n in (("train", n_train), ("test", n_test)):
        data = open_data(name, split=split)
        assert (len(data), data.shape, len(data.class_names)) == (n, shape, classes)
        assert set(data.labels.tolist()) == set(range(classes))
        assert duplicate_facts(data.samples) == []
    if name != "mnist":
        assert np.bincount(open_data(name).labels).tolist() == [n_train // classes] * classes


def test_the_embedded_digits_are_real_ones() -> None:
    need("mnist")
    known = set(open_data("mnist", split="all").samples.places)
    assert set(open_data("embedded", split="all").samples.places) <= known


def test_lfw() -> None:
    need("lfw")
    data = open_data("lfw", size=64)
    assert (len(data), data.shape, len(data.class_names)) == (13_233, (3, 64, 64), 5749)
    assert data.class_names[data.labels[0]] == data.samples.sample_ids[0].split("/")[0]
    conflicts = [{data.samples.sample_ids[i] for i in group} for group in data.samples.conflicts()]
    assert {"Bart_Hendricks/Bart_Hendricks_0001.jpg", "Ricky_Ray/Ricky_Ray_0001.jpg"} in conflicts
    assert {"Carlos_Beltran/Carlos_Beltran_0001.jpg", "Raul_Ibanez/Raul_Ibanez_0001.jpg"} in conflicts
    assert data.samples.index_ceiling == 13_231 / 13_233  # the two pairs above, equal byte for byte


def test_stanford_dogs() -> None:
    need("stanford-dogs")
    train, test = (open_data("stanford-dogs", split=split, size=64) for split in ("train", "test"))
    assert train.shape == test.shape == (3, 64, 64)
    assert train.class_names == test.class_names
    assert len(train.class_names) == 120
    assert np.bincount(train.labels).tolist() == [100] * 120
    assert np.bincount(test.labels).min() > 0
    assert duplicate_facts(train.samples) == []
    assert not set(train.samples.places) & set(test.samples.places)

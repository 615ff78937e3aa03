"""Parquet, Datasets of Hugging Face in memory and on disk: pictures, classes, splits and ids as they stand there."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from provnet import open_data
from provnet.base.errors import DataError, UsageError
from provnet.data.evidence import evidence
from provnet.data.open import reopen
from tests.data.made import noise

SIZES = [(12, 9, 3), (8, 8), (20, 30, 3), (12, 9, 3), (7, 16), (9, 9, 3)]
PICTURES = [noise(shape, i) for i, shape in enumerate(SIZES)]
NAMES = ["cat", "dog", "owl"]  # nobody is an owl
LABELS = [0, 1, 0, 1, 0, 1]


def png(picture: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "PNG")
    return buffer.getvalue()


def hugging_face() -> Any:
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=NAMES)})
    rows = {"image": [{"bytes": png(one), "path": None} for one in PICTURES], "label": LABELS}
    return datasets.Dataset.from_dict(rows, features=features)


def check(data: Any, names: tuple[str, ...] = tuple(NAMES)) -> None:
    assert data.class_names == names
    assert [data.class_names[i] for i in data.labels.tolist()] == [NAMES[i] for i in LABELS]
    assert data.shape[0] == 3
    assert any("2 grey pictures brought to rgb" in line for line in data.notes)
    for seen, picture in zip(evidence(data.samples, data, range(6)), PICTURES, strict=True):
        assert seen.picture is not None
        assert np.array_equal(seen.picture, picture)


def test_a_dataset_in_memory() -> None:
    data = open_data(hugging_face())
    check(data)
    assert data.samples.sample_ids[0] == "train/0"
    assert open_data(hugging_face(), limit=2).samples.sample_ids == ("train/0", "train/1")


def test_splits_of_a_dataset_dict(tmp_path: Path) -> None:
    both = datasets.DatasetDict({"train": hugging_face(), "test": hugging_face().select([1, 2])})
    check(open_data(both))
    assert len(open_data(both, split="test")) == 2
    with pytest.raises(UsageError, match="one split at a time"):
        open_data(datasets.DatasetDict({"a": hugging_face(), "b": hugging_face()}))
    both.save_to_disk(str(tmp_path / "saved"))
    data = open_data(tmp_path / "saved")
    check(data)
    assert reopen(data.spec).samples.fingerprint == data.samples.fingerprint
    assert data.samples.fingerprint == open_data(both).samples.fingerprint
    assert open_data(tmp_path / "saved", split="test").labels.tolist() == [1, 0]


def test_a_saved_dataset(tmp_path: Path) -> None:
    hugging_face().save_to_disk(str(tmp_path / "saved"))
    check(open_data(tmp_path / "saved"))


def test_parquet_of_hugging_face_keeps_the_classes(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    hugging_face().to_parquet(str(folder / "train-00000-of-00001.parquet"))
    hugging_face().select([0]).to_parquet(str(folder / "test-00000-of-00001.parquet"))
    data = open_data(tmp_path)
    check(data)
    assert len(open_data(tmp_path, split="test")) == 1
    check(open_data(folder / "train-00000-of-00001.parquet"))
    (tmp_path / "plain").mkdir()
    hugging_face().to_parquet(str(tmp_path / "plain" / "train.parquet"))  # a name that files of texts have, too
    check(open_data(tmp_path / "plain"))


def test_plain_parquet_with_columns_of_other_names(tmp_path: Path) -> None:
    ids = [f"no-{i}" for i in range(6)]
    columns = {"photo_of": [png(one) for one in PICTURES], "what": [NAMES[i] for i in LABELS], "key": ids}
    table = pa.table({**columns, "who": ["Ann"] * 6})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=2)
    data = open_data(tmp_path / "x.parquet", columns="label=what,id=key,source=who")
    check(data, ("cat", "dog"))
    assert data.samples.sample_ids == tuple(ids)
    assert set(data.samples.sources) == {"Ann"}
    with pytest.raises(UsageError, match="which column holds the labels"):
        open_data(tmp_path / "x.parquet")
    with pytest.raises(UsageError, match='no column "whom" for label'):
        open_data(tmp_path / "x.parquet", columns={"label": "whom"})


def test_what_changed_since_is_not_shown(tmp_path: Path) -> None:
    def write(pictures: list[np.ndarray]) -> None:
        table = pa.table({"image": [png(one) for one in pictures], "label": [NAMES[i] for i in LABELS]})
        pq.write_table(table, tmp_path / "x.parquet")

    write(PICTURES)
    data = open_data(tmp_path / "x.parquet")
    write([*PICTURES[:5], PICTURES[0]])
    now = open_data(tmp_path / "x.parquet")
    assert [one.picture is not None for one in evidence(data.samples, now, range(6))] == [True] * 5 + [False]


def test_rows_without_label_or_picture_are_named(tmp_path: Path) -> None:
    table = pa.table({"image": [png(PICTURES[0]), None], "label": ["cat", "dog"]})
    pq.write_table(table, tmp_path / "x.parquet")
    with pytest.raises(DataError, match="row 1: there is no picture in it"):
        open_data(tmp_path / "x.parquet")
    pq.write_table(table.set_column(1, "label", pa.array(["cat", None])), tmp_path / "x.parquet")
    with pytest.raises(DataError, match="row 1 has no label"):
        open_data(tmp_path / "x.parquet")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 nothing else")
    with pytest.raises(DataError, match="cannot be read as parquet"):
        open_data(tmp_path / "bad.parquet")

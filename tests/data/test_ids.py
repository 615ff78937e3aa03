"""Ids and sources of arrays, Datasets and .npz files: kept in runs and when opened again; what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import TensorDataset

import provnet
from provnet import open_data
from provnet.base.errors import DataError, UsageError
from provnet.cli import main
from provnet.data.compare import compare
from provnet.runs.run import read_run
from provnet.tools.credit.compute import read_contributors
from tests.cases import cases
from tests.data.made import noise

IMAGES, LABELS = noise((4, 6, 5)), [0, 1, 0, 1]
IDS, SOURCES = ["scan é", "b", "a", "train/0"], ["ann", None, "bob", "ann"]

FORMS: dict[str, Any] = {
    "list": IDS,
    "tuple": tuple(IDS),
    "array": np.array(IDS),
    "objects": np.array(IDS, dtype=object),
    "series": pd.Series(IDS, index=[3, 2, 1, 0]),
}


@cases("ids", FORMS.values(), ids=FORMS)
def test_ids_of_arrays(ids: Any) -> None:
    data = open_data(IMAGES, LABELS, ids=ids, sources=SOURCES)
    assert data.samples.sample_ids == tuple(IDS)
    assert data.samples.sources == tuple(SOURCES)
    assert {type(text) for text in data.samples.sample_ids} == {str}
    assert data.samples.fingerprint == open_data(IMAGES, LABELS).samples.fingerprint


@pytest.mark.parametrize("ids", [[40, 7, 8, 9], np.array([40, 7, 8, 9], np.uint16), torch.tensor([40, 7, 8, 9])])
def test_whole_numbers_are_ids_as_text(ids: Any) -> None:
    assert open_data(IMAGES, LABELS, ids=ids).samples.sample_ids == ("40", "7", "8", "9")


def test_ids_of_a_dataset() -> None:
    pairs = TensorDataset(torch.from_numpy(IMAGES), torch.tensor(LABELS))
    data = open_data(pairs, ids=IDS, sources=SOURCES)
    assert (data.samples.sample_ids, data.samples.sources) == (tuple(IDS), tuple(SOURCES))


def test_one_without_the_other() -> None:
    assert open_data(IMAGES, LABELS, ids=IDS).samples.sources == (None,) * 4
    assert open_data(IMAGES, LABELS, sources=SOURCES).samples.sample_ids[2] == "train/2"


def test_a_limit_keeps_ids_with_their_samples() -> None:
    whole = open_data(IMAGES, [0, 0, 0, 1], ids=IDS, sources=SOURCES)
    some = open_data(IMAGES, [0, 0, 0, 1], ids=IDS, sources=SOURCES, limit=2)
    assert (some.samples.sample_ids, some.samples.sources) == (("scan é", "train/0"), ("ann", "ann"))
    assert (some.samples.sha256 == whole.samples.sha256[[0, 3]]).all()


BAD_IDS: dict[str, tuple[Any, str]] = {
    "count": (IDS[:3], "4 samples but 3 ids"),
    "twice": (["a", "b", "c", "a"], "ids 0 and 3 are both 'a'; 4 samples have 3 different ids"),
    "number and text": ([1, "b", "c", "1"], "ids 0 and 3 are both '1'"),
    "empty": (["a", "", "c", "d"], "non-empty text or whole numbers; id 1 is ''"),
    "blank": (["a", "b", " ", "d"], "id 2 is ' '"),
    "none": (["a", "b", "c", None], "id 3 is None"),
    "fraction": ([0.5, 1.0, 2.0, 3.0], "id 0 is 0.5"),
    "truth": ([True, "b", "c", "d"], "id 0 is True"),
    "half a character": (["a", "b", "c", "\ud800"], "id 3 is"),
    "bytes": (np.array(["a", "b", "c", "d"], "S1"), "id 0 is b'a'"),
}


@cases(("ids", "words"), BAD_IDS.values(), ids=BAD_IDS)
def test_ids_refused(ids: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        open_data(IMAGES, LABELS, ids=ids)


@cases("why", ["count", "twice", "empty", "fraction", "bytes"])
def test_ids_of_npz_refused(why: str, tmp_path: Path) -> None:
    ids, words = BAD_IDS[why]
    np.savez(tmp_path / "x.npz", images=IMAGES, labels=LABELS, ids=ids)
    with pytest.raises(DataError, match=rf"x\.npz: .*{words}"):
        open_data(tmp_path / "x.npz")


@pytest.mark.parametrize(
    ("sources", "words"), [(["ann"], "4 samples but 1 sources"), (["ann", 3, None, ""], "source 1 is 3")]
)
def test_sources_refused(sources: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        open_data(IMAGES, LABELS, sources=sources)


@pytest.mark.parametrize("ids", ["abcd", 4, np.array([["a", "b"], ["c", "d"]])])
def test_ids_that_are_no_list(ids: Any) -> None:
    with pytest.raises(UsageError, match="ids must be a list with one entry per sample; got"):
        open_data(IMAGES, LABELS, ids=ids)


@pytest.mark.parametrize("source", ["embedded", Path("x.npz"), open_data(IMAGES, LABELS)])
def test_ids_of_data_that_have_their_own(source: Any) -> None:
    for given in ({"ids": IDS}, {"sources": SOURCES}):
        with pytest.raises(UsageError, match=r"are for arrays and Datasets; a manifest .* an \.npz"):
            open_data(source, **given)


def test_npz_with_ids_and_sources(tmp_path: Path) -> None:
    path, texts = tmp_path / "x.npz", [source or "" for source in SOURCES]
    arrays: dict[str, Any] = {"images": IMAGES, "labels": LABELS, "ids": IDS, "sources": texts}
    np.savez(path, **arrays)
    given = open_data(IMAGES, LABELS, ids=IDS, sources=SOURCES).samples
    found = open_data(path).samples
    assert (found.sample_ids, found.sources) == (given.sample_ids, given.sources)
    assert compare(given, found).verdict == "same"
    tests = {"test_images": noise((2, 6, 5)), "test_labels": [0, 1], "test_sources": ["cid", ""]}
    np.savez(path, **arrays, **tests)
    both = open_data(path, split="all").samples
    assert (both.sample_ids, both.sources) == ((*IDS, "test/0", "test/1"), (*SOURCES, "cid", None))
    assert open_data(path, split="test").samples.sample_ids == ("test/0", "test/1")
    np.savez(path, **arrays, **tests, test_ids=["b", "z"])
    assert open_data(path, split="test").samples.sample_ids == ("b", "z")
    with pytest.raises(DataError, match=r'x\.npz: .*"b" occurs more than once'):
        open_data(path, split="all")


def test_ids_are_named_by_a_run_and_verified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images, labels = noise((12, 6, 5)), np.arange(12) % 2
    ids = [f"scan-{n}" for n in range(12)]
    data = open_data(images, labels, ids=ids, sources=["ann"] * 12)
    folder = provnet.ProvenanceClassifier(backbone="small", epochs=1).fit(data).save(tmp_path / "run")
    run = read_run(folder)
    assert (run.samples.sample_ids, run.samples.sources) == (tuple(ids), ("ann",) * 12)
    assert provnet.explain(run, images[:1, None])[0].exemplars[0].sample_id in ids
    for given, verdict in (({"ids": ids}, "same"), ({}, "moved")):
        np.savez(tmp_path / "data.npz", images=images, labels=labels, **given)  # type: ignore[arg-type]
        assert main(["verify", str(folder), "--data", str(tmp_path / "data.npz")]) == 0
        assert verdict in capsys.readouterr().out


NUL = ["a", "a\0", "b", "b\0c"]
LABELS_WITH_NUL: dict[str, Any] = {
    "list": NUL,
    "objects": np.array(NUL, dtype=object),
    "series": pd.Series(NUL),
    "column": [[label] for label in NUL],
    "numpy's own text": np.array(NUL, dtype=np.dtypes.StringDType()),  # type: ignore[attr-defined]
    "inside": np.array(["a", "a\0c", "b", "b"]),  # not at the end, where numpy has dropped it
}


@cases("labels", LABELS_WITH_NUL.values(), ids=LABELS_WITH_NUL)
def test_labels_that_numpy_would_make_one_class_are_refused(labels: Any) -> None:
    values = IMAGES.reshape(4, -1).astype(np.float32)
    for use in (open_data, provnet.ProvenanceClassifier(epochs=1).fit):
        with pytest.raises(DataError, match="must not hold a NUL character, got 'a"):
            use(values, labels)


def test_names_with_nul_are_refused(tmp_path: Path) -> None:
    ways: list[tuple[str, Any, dict[str, Any]]] = [
        ("sample ids", LABELS, {"ids": NUL}),
        ("sources", LABELS, {"sources": NUL}),
        ("class names", LABELS, {"class_names": ["a", "a\0"]}),
    ]
    for what, labels, options in ways:
        with pytest.raises(DataError, match=f"{what} must not hold a NUL character"):
            open_data(IMAGES, labels, **options)
    (tmp_path / "by.csv").write_bytes(b"sample_id,contributor\na,ann\nb,ann\0\n")
    with pytest.raises(DataError, match=r"by\.csv row 3: holds a NUL byte"):
        read_contributors(tmp_path / "by.csv")


def test_whole_numbers_that_floats_make_one_class_are_refused() -> None:
    with pytest.raises(DataError, match="floats must lie below"):
        open_data(IMAGES, [2**53, 2**53 + 1, 1.0, 2.0])
    assert open_data(IMAGES, [2**53, 2**53 + 1, 1, 2]).class_names[2:] == (str(2**53), str(2**53 + 1))

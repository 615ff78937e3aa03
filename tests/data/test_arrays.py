"""Arrays, tensors and torch Datasets: types, layouts, labels, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset

from provnet import open_data
from provnet.base.errors import DataError, NonFiniteError, UsageError
from tests.cases import cases
from tests.data.made import noise

LABELS = [0, 1, 0, 1]


@cases(
    ("shape", "expected"),
    [((4, 6, 5), (1, 6, 5)), ((4, 6, 5, 3), (3, 6, 5)), ((4, 3, 6, 5), (3, 6, 5)), ((4, 6, 5, 1), (1, 6, 5)),
     ((4, 1, 6, 5), (1, 6, 5)), ((4, 3, 3, 3), (3, 3, 3)), ((4, 1, 1), (1, 1, 1))],
)  # fmt: skip
def test_layouts(shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    values = noise(shape)
    data = open_data(values, LABELS)
    assert data.shape == expected
    assert data.images.dtype == torch.uint8
    channels_last = values.ndim == 4 and values.shape[1] not in (1, 3)
    wanted = values.transpose(0, 3, 1, 2) if channels_last else values.reshape(4, *expected)
    assert (data.images.numpy() == wanted).all()


FLOATS = np.random.default_rng(0).normal(size=(4, 6, 5))
FLOAT_FORMS: dict[str, Any] = {
    "float64": FLOATS,
    "float16": FLOATS.astype(np.float16),
    "big-endian": FLOATS.astype(">f8"),
    "non-contiguous": np.repeat(FLOATS, 2, axis=2)[:, :, ::2],
    "Fortran order": np.asfortranarray(FLOATS),
    "tensor": torch.from_numpy(FLOATS),
    "bfloat16 tensor": torch.from_numpy(FLOATS).bfloat16(),
    "tensor with gradient": torch.from_numpy(FLOATS).requires_grad_(),
}


@cases("values", FLOAT_FORMS.values(), ids=FLOAT_FORMS)
def test_floats_become_float32(values: Any) -> None:
    data = open_data(values, LABELS)
    assert data.images.dtype == torch.float32
    assert data.shape == (1, 6, 5)
    assert np.allclose(data.images[:, 0].numpy(), FLOATS, atol=0.02)


@cases("shape", [(4, 4, 8, 8), (4, 16, 4, 4), (4, 2, 5, 6), (4, 4, 4, 4), (4, 8, 2, 8), (4, 6, 5, 7)])
def test_floats_with_channels_first_may_have_any_number_of_them(shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    assert (open_data(values, LABELS).images.numpy() == values).all()


def test_the_ways_out_of_channels_last_are_ways() -> None:
    values = np.random.default_rng(0).normal(size=(4, 8, 6, 4))
    for axes in ((0, 3, 1, 2), (0, 1, 3, 2)):
        assert open_data(values.transpose(axes), LABELS).shape == values.transpose(axes).shape[1:]


def test_read_only_input_is_copied_and_left_alone() -> None:
    values = noise((4, 6, 5))
    values.setflags(write=False)
    data = open_data(values, LABELS)
    data.images[:] = 0
    assert values.any()
    writable = noise((4, 1, 6, 5))
    open_data(writable, LABELS).images[:] = 0
    assert writable.any()


def test_whole_numbers_are_bytes_where_they_fit() -> None:
    assert open_data(noise((4, 6, 5)).astype(np.int64), LABELS).images.dtype == torch.uint8
    assert open_data(noise((4, 6, 5)).astype(">i4"), LABELS).images.dtype == torch.uint8
    assert open_data(np.full((4, 6, 5), 40000, np.uint16), LABELS).images.dtype == torch.float32
    flags = open_data(noise((4, 6, 5)) > 127, LABELS)
    assert sorted(flags.images.unique().tolist()) == [0, 255]


def test_vectors() -> None:
    data = open_data(np.arange(12).reshape(4, 3), LABELS)
    assert data.images.dtype == torch.float32
    assert data.shape == (3,)
    assert open_data([[1.0, 2.0], [3.0, 4.0]], [0, 1]).shape == (2,)
    frame = pd.DataFrame({"x": [1.0, 2.0], "y": [3.0, 4.0]})
    assert open_data(frame, pd.Series(["a", "b"])).class_names == ("a", "b")


REFUSED: dict[str, tuple[Any, str]] = {
    "object": (np.array([[{}]] * 4), "Python objects not supported"),
    "complex": (FLOATS + 1j, "Complex data not supported"),
    "text": (np.array([["a"]] * 4), "text not supported"),
    "0-d": (np.array(3.0), "got 0D array"),
    "1-d": (np.zeros(4), "got 1D array.*Reshape your data"),
    "5-d": (np.zeros((4, 1, 1, 1, 1)), "got 5D array"),
    "no samples": (np.zeros((0, 3)), r"0 sample\(s\)"),
    "no features": (np.zeros((4, 0)), r"0 feature\(s\)"),
    "two channels": (noise((4, 6, 5, 2)), "1 or 3 channels"),
    "channels last": (noise((4, 8, 8, 4)) / 255, r"4 channels last.*\(N, 4, 8, 8\): \.transpose\(0, 3, 1, 2\)"),
    "few channels last": (noise((4, 8, 6, 2)).astype(np.int64) * 999, "2 channels last"),
    "many channels last": (torch.from_numpy(noise((4, 4, 4, 16)) / 255), r"16 channels last.*tensor \.permute"),
    "ragged": ([[1, 2], [3]], "do not form an array"),
    "date": (np.zeros((4, 2), "datetime64[s]"), "not supported"),
}


@cases(("values", "words"), REFUSED.values(), ids=REFUSED)
def test_refused_in_words(values: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        open_data(values, LABELS)


@pytest.mark.parametrize(("bad", "words"), [(np.nan, "contains NaN"), (np.inf, "infinity"), (-np.inf, "infinity"),
                                            (1e39, "too large for float32")])  # fmt: skip
def test_non_finite_values_are_refused(bad: float, words: str) -> None:
    values = FLOATS.copy()
    values[2, 3, 1] = bad
    with pytest.raises(NonFiniteError, match=words):
        open_data(values, LABELS)


@cases(
    ("labels", "names", "encoded"),
    [
        (["b", "a", "b", "nan"], ("a", "b", "nan"), [1, 0, 1, 2]),
        ([5, -1, 5, 7], ("-1", "5", "7"), [1, 0, 1, 2]),
        (np.array([1.0, 0.0, 1.0, 1.0]), ("0", "1"), [1, 0, 1, 1]),
        (np.array([True, False, True, True]), ("False", "True"), [1, 0, 1, 1]),
        (np.array(["x", "y", "x", "x"], dtype=object), ("x", "y"), [0, 1, 0, 0]),
        (torch.tensor([3, 2, 3, 3]), ("2", "3"), [1, 0, 1, 1]),
        (np.array([[1], [0], [1], [1]]), ("0", "1"), [1, 0, 1, 1]),
    ],
    ids=["text", "numbers", "whole floats", "booleans", "object text", "tensor", "column"],
)
def test_labels(labels: Any, names: tuple[str, ...], encoded: list[int]) -> None:
    data = open_data(FLOATS, labels)
    assert data.class_names == names
    assert data.labels.tolist() == encoded


@cases(
    ("labels", "words"),
    [
        ([0, 1, 0], "4 images but 3 labels"),
        ([0.5, 1, 0, 1], "whole numbers"),
        ([np.nan, 1, 0, 1], "whole numbers"),
        (np.array([1, "1", 1, 1], dtype=object), "all text or all whole numbers"),
        (np.zeros((4, 2)), "one-dimensional"),
        (np.zeros(4, complex), "whole numbers or text"),
    ],
)
def test_labels_refused(labels: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        open_data(FLOATS, labels)


def test_class_names_for_numbers() -> None:
    data = open_data(FLOATS, [0, 2, 0, 2], class_names=["a", "b", "c"])
    assert data.class_names == ("a", "b", "c")
    with pytest.raises(DataError, match=r"must lie in 0\.\.1"):
        open_data(FLOATS, [0, 2, 0, 2], class_names=["a", "b"])
    with pytest.raises(DataError, match="not among the 2 class names"):
        open_data(FLOATS, ["a", "z", "a", "a"], class_names=["a", "b"])


def test_arrays_may_have_no_labels_and_cannot_be_reopened() -> None:
    assert open_data(FLOATS).samples.grouping is None
    with pytest.raises(UsageError, match="pass them again"):
        open_data(open_data(FLOATS, LABELS).spec)


def test_ids_hashes_and_size() -> None:
    import hashlib

    values = noise((4, 6, 5))
    data = open_data(values, LABELS, split="test")
    assert data.samples.sample_ids == ("test/0", "test/1", "test/2", "test/3")
    assert data.samples.hex(2) == hashlib.sha256(values[2].tobytes()).hexdigest()
    assert data.samples.paths == (None,) * 4
    small = open_data(values, LABELS, size=3, mode="rgb")
    assert small.shape == (3, 3, 3)
    assert (small.samples.sha256 == data.samples.sha256).all()
    assert (small.samples.pixel_sha256 == data.samples.pixel_sha256).all()  # the whole picture names a sample
    assert small.spec.options["fit"] == "stretch"
    with pytest.raises(DataError, match="size and mode apply to pictures of bytes"):
        open_data(FLOATS, LABELS, size=3)


class Pairs(Dataset[tuple[Any, Any]]):
    def __init__(self, pictures: list[Any], labels: list[Any], classes: list[str] | None = None) -> None:
        self.pictures, self.labels = pictures, labels
        if classes is not None:
            self.classes = classes

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, i: int) -> tuple[Any, Any]:
        return self.pictures[i], self.labels[i]


def test_datasets_of_arrays_tensors_and_pil_images_agree() -> None:
    values = noise((4, 6, 5, 3))
    forms = [list(values), [torch.from_numpy(v).permute(2, 0, 1) for v in values], [Image.fromarray(v) for v in values]]
    for form in forms:
        data = open_data(Pairs(form, [1, 0, 1, 0]))
        assert (data.images.numpy() == values.transpose(0, 3, 1, 2)).all()
        assert data.labels.tolist() == [1, 0, 1, 0]
    named = open_data(Pairs(forms[0], [torch.tensor(2), 0, 2, 0], ["a", "b", "c"]))
    assert named.class_names == ("a", "b", "c")
    assert open_data(Pairs(forms[0], ["x", "y", "x", "y"])).class_names == ("x", "y")


def test_datasets_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UsageError, match="is empty"):
        open_data(Pairs([], []))
    with pytest.raises(DataError, match="differ in type or shape"):
        open_data(Pairs([noise((6, 5)), noise((6, 6))], [0, 1]))
    with pytest.raises(UsageError, match="only for arrays"):
        open_data(Pairs([noise((6, 5))], [0]), [0])

    class Single(Pairs):
        def __getitem__(self, i: int) -> Any:
            return self.pictures[i]

    with pytest.raises(DataError, match="item 0 of the Dataset must be a pair"):
        open_data(Single([noise((6, 5))], [0]))


@pytest.mark.parametrize("source", [3, None, {"a": 1}, iter(())])
def test_other_objects_are_refused(source: Any) -> None:
    with pytest.raises(UsageError, match="cannot open"):
        open_data(source)

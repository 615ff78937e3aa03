"""Arrays for `provnet explain`: the file that a run was trained from is taken back, whatever its size and mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from provnet.answers import attributor
from provnet.answers.queries import as_batch
from provnet.base.errors import DataError
from provnet.data.open import open_data
from tests.cases import cases

from .conftest import Call

FAST = ["--epochs", "1", "--batch-size", "8"]


def pictures(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


@cases(
    ("shape", "options"),
    [
        ((8, 12, 14, 3), ["--size", "8"]),
        ((8, 12, 14, 3), ["--mode", "grey"]),
        ((8, 3, 12, 14), ["--size", "8x6", "--mode", "grey"]),
        ((8, 12, 14), ["--size", "8", "--mode", "rgb"]),
        ((8, 12, 14), ["--size", "8"]),
        ((8, 12, 14, 3), []),
    ],
)
def test_the_file_trained_from_is_explained(
    shape: tuple[int, ...], options: list[str], tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, labels = pictures(*shape), np.arange(8) % 2
    np.savez(tmp_path / "d.npz", images=images, labels=labels)
    np.save(tmp_path / "one.npy", images[3:4] if shape[1] == 3 else images[3])  # not to be taken for three
    assert call("train", tmp_path / "d.npz", *options, "--out", tmp_path / "run", *FAST).code == 0
    seen: list[np.ndarray] = []
    real = attributor.explain

    def seeing(run: Any, given: np.ndarray, **more: Any) -> Any:
        seen.append(given)
        return real(run, given, **more)

    monkeypatch.setattr("provnet.cli.explain.explain_images", seeing)
    found = call("explain", tmp_path / "run", tmp_path / "d.npz", tmp_path / "one.npy", "--json")
    assert found.code == 0
    assert [one["input"] for one in found.json][-2:] == [f"{tmp_path / 'd.npz'}:7", str(tmp_path / "one.npy")]
    size = (
        {"size": tuple(map(int, options[1].split("x"))) * (1 if "x" in options[1] else 2)}
        if "--size" in options
        else {}
    )
    mode = {"mode": options[options.index("--mode") + 1]} if "--mode" in options else {}
    trained = open_data(tmp_path / "d.npz", **size, **mode).images.numpy()
    np.testing.assert_array_equal(seen[0], np.concatenate([trained, trained[3:4]]))  # as training saw them


def test_arrays_of_the_run_s_shape_stay_as_they_are() -> None:
    given = pictures(5, 3, 8, 8)
    for batch in as_batch(given, (3, 8, 8), "a.npy", {"size": [8, 8]}):
        np.testing.assert_array_equal(batch, given)


def test_one_picture_channels_last_is_not_taken_for_many_narrow_ones() -> None:
    raw, batch = as_batch(pictures(12, 12, 3), (1, 8, 8), "a.npy", {"size": [8, 8], "mode": "grey"})
    assert (raw.shape, batch.shape) == ((1, 3, 12, 12), (1, 1, 8, 8))


def test_what_may_be_three_grey_pictures_or_one_in_colour_is_asked_back() -> None:
    with pytest.raises(DataError, match="may be 3 grey pictures or one in colour; give"):
        as_batch(pictures(3, 12, 12), (1, 8, 8), "a.npy", {"size": [8, 8], "mode": "grey"})
    assert as_batch(pictures(3, 12, 12), (1, 8, 8), "a.npy", {"size": [8, 8]})[1].shape == (3, 1, 8, 8)
    assert as_batch(pictures(3, 12, 12), (3, 8, 8), "a.npy", {"size": [8, 8]})[1].shape == (1, 3, 8, 8)


def test_floats_cannot_be_brought_to_a_size_and_are_told_so() -> None:
    with pytest.raises(DataError, match=r"the run takes samples of shape \(1, 8, 8\).*--size .*holds for bytes alone"):
        as_batch(np.random.default_rng(0).random((4, 12, 12)), (1, 8, 8), "a.npy", {"size": [8, 8]})
    with pytest.raises(DataError, match=r"one or many \(n, \.\.\.\)$"):
        as_batch(pictures(4, 12, 12, 3), (1, 8, 8), "a.npy", {"mode": "grey"})

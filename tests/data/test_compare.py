"""Data that changed since training: every kind of change is told, none leads to a wrong sample."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from provnet import ImageData, open_data
from provnet.data.compare import Comparison, compare, find_held
from provnet.data.evidence import evidence
from tests.cases import cases
from tests.data.made import encode, noise, pictures, write_folder

NAMES = tuple(f"{c}/{i}.png" for c in "ab" for i in range(4))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "root", pictures(*NAMES))


def changed(then: ImageData, root: Path) -> Comparison:
    return compare(then.samples, open_data(root).samples)


def test_nothing_changed(root: Path) -> None:
    then = open_data(root)
    assert changed(then, root).verdict == "same"
    os.utime(root / "a/0.png", (1, 1))
    found = changed(then, root)
    assert found.verdict == "same"
    assert found.lines() == ["the same data: 8 samples at training, 8 now"]


def test_a_moved_root_is_the_same_data(root: Path, tmp_path: Path) -> None:
    then = open_data(root)
    assert changed(then, root.rename(tmp_path / "elsewhere")).verdict == "same"


def test_renamed_files(root: Path) -> None:
    then = open_data(root)
    (root / "a/0.png").rename(root / "a/zz.png")
    found = changed(then, root)
    assert found.verdict == "moved"
    assert found.status[0] == "moved"
    assert found.positions.tolist() == [3, 0, 1, 2, 4, 5, 6, 7]
    assert found.lines()[1] == "1 moved or renamed: a/0.png"


def test_another_order_of_the_same_names(root: Path) -> None:
    then = open_data(root)
    found = compare(then.samples, then.samples.select(np.arange(8)[::-1]))
    assert found.verdict == "re-ordered"
    assert set(found.status) == {"same"}
    assert found.positions.tolist() == list(range(8))[::-1]


def test_another_order_of_arrays() -> None:
    images, labels = noise((6, 4, 4)), np.array([0, 1, 2, 0, 1, 2])
    then = open_data(images, labels)
    found = compare(then.samples, open_data(images[::-1], labels[::-1]).samples)
    assert found.verdict == "re-ordered"
    assert found.positions.tolist() == [5, 4, 3, 2, 1, 0]


def test_two_files_swapped(root: Path) -> None:
    then = open_data(root)
    one, two = (root / "a/0.png").read_bytes(), (root / "a/1.png").read_bytes()
    (root / "a/0.png").write_bytes(two)
    (root / "a/1.png").write_bytes(one)
    found = changed(then, root)
    assert found.verdict == "moved"
    assert found.positions.tolist()[:2] == [1, 0]
    shown = evidence(then.samples, open_data(root), [0, 1])
    assert (shown[0].picture == noise((6, 5), 0)).all()
    assert (shown[1].picture == noise((6, 5), 1)).all()


def test_swapped_across_classes_is_a_new_label(root: Path) -> None:
    then = open_data(root)
    one, two = (root / "a/0.png").read_bytes(), (root / "b/0.png").read_bytes()
    (root / "a/0.png").write_bytes(two)
    (root / "b/0.png").write_bytes(one)
    found = changed(then, root)
    assert found.verdict == "edited"
    assert [found.status[0], found.status[4]] == ["relabelled", "relabelled"]


def test_one_byte_edited(root: Path) -> None:
    then = open_data(root)
    (root / "a/0.png").write_bytes(encode(noise((6, 5), 0) ^ np.uint8(1)))
    found = changed(then, root)
    assert (found.verdict, found.status[0], found.positions[0], found.added) == ("edited", "edited", -1, 0)
    assert evidence(then.samples, open_data(root), [0])[0].note == "changed since training"


def test_deleted_and_added(root: Path) -> None:
    then = open_data(root)
    (root / "a/0.png").unlink()
    found = changed(then, root)
    assert (found.verdict, found.status[0], found.positions[0]) == ("edited", "missing", -1)
    assert evidence(then.samples, open_data(root), [0])[0].note == "picture not available"
    write_folder(root, {"a/new.png": noise((6, 5), 99)})
    found = changed(then, root)
    assert found.added == 1
    assert found.lines()[1:] == ["1 missing: a/0.png", "1 added since training"]


def test_added_only(root: Path) -> None:
    then = open_data(root)
    write_folder(root, {"a/new.png": noise((6, 5), 99)})
    found = changed(then, root)
    assert (found.verdict, set(found.status), found.added) == ("edited", {"same"}, 1)


def test_reencoded(root: Path) -> None:
    then = open_data(root)
    (root / "b/3.png").write_bytes(encode(noise((6, 5), 7), compress_level=0))
    found = changed(then, root)
    assert (found.verdict, found.status[7], found.positions[7]) == ("edited", "re-encoded", 7)
    shown = evidence(then.samples, open_data(root), [7])[0]
    assert shown.picture is None
    assert shown.note == "changed since training (the same picture to the pixel, in another file)"


def test_relabelled(root: Path) -> None:
    then = open_data(root)
    (root / "a/0.png").rename(root / "b/0-was-a.png")
    found = changed(then, root)
    assert (found.verdict, found.status[0]) == ("edited", "relabelled")
    assert found.lines()[1] == "1 carry another label: a/0.png"


def test_another_data_set_of_the_same_size_and_names(root: Path) -> None:
    then = open_data(root)
    write_folder(root, {name: noise((6, 5), 100 + i) for i, name in enumerate(NAMES)})
    found = changed(then, root)
    assert found.verdict == "other"
    assert set(found.status) == {"edited"}
    assert (found.positions == -1).all()
    assert all(shown.picture is None for shown in evidence(then.samples, open_data(root), range(8)))


def test_a_small_part_is_not_another_data_set(root: Path) -> None:
    then = open_data(root)
    found = compare(then.samples, then.samples.select(np.array([5])))
    assert found.verdict == "edited"
    assert found.status.count("missing") == 7


def test_duplicates_prefer_their_own_name(tmp_path: Path) -> None:
    same = noise((6, 5))
    root = write_folder(tmp_path, {"a/1.png": same, "a/2.png": same, "b/3.png": same, "b/4.png": noise((6, 5), 1)})
    then = open_data(root)
    assert changed(then, root).positions.tolist() == [0, 1, 2, 3]
    (root / "a/1.png").rename(root / "a/9.png")
    found = changed(then, root)
    assert found.status == ("moved", "same", "same", "same")
    assert found.positions.tolist() == [1, 0, 2, 3]
    (root / "a/9.png").unlink()
    found = changed(then, root)
    assert found.verdict == "edited"
    assert found.positions[0] in (0, 1)  # its bytes are still there, under the name of a copy
    assert (evidence(then.samples, open_data(root), [0])[0].picture == same).all()


def equal_ones(rows: np.ndarray, labels: np.ndarray) -> ImageData:
    """Arrays: a few pictures, some of them several times."""
    return open_data(noise((8, 6, 6))[rows], labels, class_names=["0", "1", "2"])


@cases("seed", range(20))
def test_another_order_of_equal_pictures_with_different_labels(seed: int) -> None:
    chance = np.random.default_rng(seed)
    rows, labels = chance.integers(0, 8, 16), chance.integers(0, 3, 16)
    then, order = equal_ones(rows, labels), chance.permutation(16)
    now = equal_ones(rows[order], labels[order])
    found = compare(then.samples, now.samples)
    assert found.verdict in ("same", "re-ordered")
    assert sorted(found.positions.tolist()) == list(range(16))
    assert (now.samples.labels[found.positions] == labels).all()


def test_a_new_label_of_one_of_two_equal_pictures_is_told_of_that_one() -> None:
    rows, labels = np.array([0, 1, 1, 1, 2]), np.array([0, 1, 1, 2, 2])
    for which, new in ((1, 0), (2, 0), (3, 0), (1, 2), (3, 1)):
        other = labels.copy()
        other[which] = new
        found = compare(equal_ones(rows, labels).samples, equal_ones(rows, other).samples)
        assert found.verdict == "edited"
        assert [i for i, status in enumerate(found.status) if status == "relabelled"] == [which]
        assert found.positions.tolist() == list(range(5))


def test_evidence_reads_the_file_again(root: Path) -> None:
    then = open_data(root)
    stale = open_data(root)
    (root / "a/0.png").write_bytes(encode(noise((6, 5), 50)))
    (root / "a/1.png").unlink()
    (root / "a/2.png").write_bytes((root / "a/3.png").read_bytes())
    shown = evidence(then.samples, stale, np.arange(4))
    assert [s.note for s in shown] == ["changed since training", "picture not available", "changed since training", ""]
    assert (shown[3].picture == noise((6, 5), 3)).all()


def test_evidence_without_data_or_pictures() -> None:
    data = open_data(noise((4, 3)).astype(float), [0, 1, 0, 1])
    assert [s.note for s in evidence(data.samples, None, [0, 1])] == ["picture not available"] * 2
    assert evidence(data.samples, data, [0])[0].note.startswith("picture not available")


def test_evidence_from_arrays_is_hashed_again() -> None:
    images, labels = noise((4, 6, 5, 3)), [0, 1, 0, 1]
    then = open_data(images, labels)
    now = open_data(images[::-1], labels[::-1])
    assert all((e.picture == images[i]).all() for i, e in enumerate(evidence(then.samples, now, range(4))))
    now.images[3] ^= 1  # the memory behind sample 0 changes after the table was made
    shown = evidence(then.samples, now, range(4))
    assert shown[0].note == "changed since training"
    assert all(e.picture is not None for e in shown[1:])


def test_evidence_is_the_whole_picture_and_its_view_what_the_network_received(tmp_path: Path) -> None:
    write_folder(tmp_path, {"a/1.png": encode(Image.new("RGBA", (8, 4), (9, 9, 9, 0))), "a/2.png": noise((4, 8, 3))})
    data = open_data(tmp_path, size=4, background="black")
    shown = evidence(data.samples, data, [0, 1])
    assert [one.picture.shape for one in shown if one.picture is not None] == [(4, 8, 3)] * 2
    for i in (0, 1):
        assert (shown[i].view.transpose(2, 0, 1) == data.images[i].numpy()).all()  # type: ignore[union-attr]
    shutil.rmtree(tmp_path / "a")
    assert [s.note for s in evidence(data.samples, data, [0, 1])] == ["picture not available"] * 2


@pytest.mark.parametrize(
    ("then", "now"),
    [
        ({"background": "black"}, {}),
        ({"frame": 0}, {"frame": 1}),
    ],
)
def test_the_same_files_opened_otherwise_are_no_evidence(
    then: dict[str, Any], now: dict[str, Any], tmp_path: Path
) -> None:
    for i in range(8):
        first, second = (Image.fromarray(noise((6, 5, 4), seed)) for seed in (i, 8 + i))
        pages = encode(first, "TIFF", save_all=True, append_images=[second] if "frame" in then else [])
        write_folder(tmp_path, {f"{'ab'[i % 2]}/{i}.tif": pages})
    trained, opened = open_data(tmp_path, **then), open_data(tmp_path, **now)
    found = compare(trained.samples, opened.samples)
    assert (found.verdict, found.added) == ("decoded differently", 0)
    assert not found.holds
    assert set(found.status) == {"decoded differently"}
    assert (found.positions == -1).all()
    assert find_held(trained.samples, opened.samples).tolist() == list(range(8))
    assert all(
        one.picture is None and one.note.startswith("decoded differently")
        for one in evidence(trained.samples, opened, range(8))
    )


@pytest.mark.parametrize("now", [{"mode": "grey"}, {"size": 4}, {"size": 4, "fit": "crop"}, {"size": 9, "fit": "pad"}])
def test_another_view_of_the_same_pictures_is_the_same_data(now: dict[str, Any], tmp_path: Path) -> None:
    write_folder(tmp_path, {f"{'ab'[i % 2]}/{i}.png": noise((6, 5, 3), i) for i in range(8)})
    trained, opened = open_data(tmp_path), open_data(tmp_path, **now)
    assert compare(trained.samples, opened.samples).verdict == "same"
    shown = evidence(trained.samples, opened, range(8))
    assert all((one.picture.transpose(2, 0, 1) == trained.images[i].numpy()).all() for i, one in enumerate(shown))  # type: ignore[union-attr]


def test_evidence_is_decoded_as_the_network_received_it(tmp_path: Path) -> None:
    """The table of the data says nothing of what the file is decoded to now: another version of a decoder, say."""
    write_folder(tmp_path, {f"{c}/{i}.png": noise((6, 5, 4), i) for i, c in enumerate("ab")})
    then = open_data(tmp_path, background="black")
    now = ImageData(then.images, then.samples, open_data(tmp_path).spec)
    assert [one.picture is None for one in evidence(then.samples, then, [0, 1])] == [False, False]
    assert [one.note.split(" (")[0] for one in evidence(then.samples, now, [0, 1])] == [
        "decoded differently from training"
    ] * 2

"""Choices that a reader makes for its user are said: what is left out, what is kept apart, what is missing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.utils.data import Dataset

from provnet import open_data
from provnet.base.errors import DataError, ProvnetError
from provnet.base.files import DataWarning
from provnet.data.sources.folder import unique_names
from tests.cases import cases
from tests.data.made import noise, pictures, write_folder


def told(root: Path, **options: Any) -> list[str]:
    """The warnings of opening a folder; there must be some."""
    with pytest.warns(DataWarning) as found:
        open_data(root, **options)
    return [str(one.message) for one in found]


def test_pictures_beside_the_class_folders(tmp_path: Path) -> None:
    write_folder(tmp_path, pictures("a/1.png", "b/2.png", "stray.png"))
    assert told(tmp_path) == ["1 left out, pictures beside the class folders, in none of them: stray.png"]


def test_other_files_beside_the_class_folders(tmp_path: Path) -> None:
    write_folder(tmp_path, pictures("train/a/1.png", "train/b/2.png", "test/a/3.png") | {"notes.txt": b"words"})
    (tmp_path / "train" / "classes.csv").write_text("a,b")
    assert told(tmp_path) == ["2 left out, not pictures: notes.txt, train/classes.csv"]


def test_classes_that_differ_in_how_an_accent_is_kept(tmp_path: Path) -> None:
    write_folder(tmp_path, pictures("caf\u00e9/1.png", "cafe\u0301/2.png", "tea/3.png"))
    words = "class names that differ in how accents are kept (Unicode NFC and NFD) only, kept as two classes: "
    assert told(tmp_path) == [words + r"'cafe\u0301' and 'caf\xe9'"]
    with pytest.warns(DataWarning, match="how accents are kept"):
        open_data(np.zeros((2, 3)), ["caf\u00e9", "cafe\u0301"])


def test_pictures_beside_the_classes_of_a_split(tmp_path: Path) -> None:
    write_folder(tmp_path, pictures("train/a/1.png", "train/x.png", "test/a/2.png", "test/y.png", "z.png"))
    words = "2 left out, pictures beside the class folders, in none of them: "
    assert told(tmp_path) == [words + "z.png, train/x.png"]
    assert told(tmp_path, split="test") == [words + "z.png, test/y.png"]


@cases("hidden", ["a/.b.png", ".c.png", ".d/1.png", "a/.e/1.png", "a/._1.png"])
def test_hidden_pictures(tmp_path: Path, hidden: str) -> None:
    write_folder(tmp_path, pictures("a/1.png", hidden))
    shown = hidden.removesuffix("/1.png")
    assert told(tmp_path) == [f"1 left out, hidden, as their names begin with a dot: {shown}"]


def test_hidden_things_that_are_no_pictures_are_nobodys_loss(tmp_path: Path) -> None:
    write_folder(tmp_path, pictures("a/1.png") | {".DS_Store": b"x", "a/.DS_Store": b"x", ".cache/pixels.bin": b"x"})
    assert len(open_data(tmp_path)) == 1  # a warning would be an error


def test_a_second_test_folder(tmp_path: Path) -> None:
    write_folder(tmp_path, pictures("train/a/1.png", "test/a/2.png", "val/a/3.png"))
    assert told(tmp_path) == ["val/ left out: the test split is test/"]
    assert told(tmp_path, split="all") == ["val/ left out: the test split is test/"]


def test_splits_that_are_taken_for_classes(tmp_path: Path) -> None:
    write_folder(tmp_path, pictures("train/a/1.png", "test/a/2.png", "more/3.png"))
    (words,) = told(tmp_path)
    assert words == "train/ and test/ are read as classes, not as splits, because other folders lie beside them: more/"


def test_labels_that_differ_in_blanks(tmp_path: Path) -> None:
    words = "class names that differ in blanks only, kept as two classes: 'cat' and 'cat '"
    with pytest.warns(DataWarning, match=words):
        assert open_data(noise((3, 4, 4)), ["cat ", "cat", "dog"]).class_names == ("cat", "cat ", "dog")
    write_folder(tmp_path, pictures("cat/1.png", "cat /2.png"))
    assert told(tmp_path) == [words]
    (tmp_path / "m.csv").write_text("path,label\ncat/1.png,big  cat\ncat /2.png,big cat\n", encoding="utf-8")
    assert told(tmp_path / "m.csv") == [words.replace("'cat' and 'cat '", "'big  cat' and 'big cat'")]
    assert open_data(noise((2, 4, 4)), ["cat ", "cat"], class_names=["cat", "cat "]).labels.tolist() == [1, 0]


@pytest.mark.parametrize("labels", [[1, "1", 2], ("1", 1, 1), [np.int64(1), "a", "b"]])
def test_text_and_numbers_are_not_mixed(labels: Any) -> None:
    with pytest.raises(DataError, match="labels must be all text or all whole numbers, got int"):
        open_data(noise((3, 4, 4)), labels)


@pytest.mark.parametrize("which", ["samples", "labels"])
def test_masked_values_are_missing(which: str) -> None:
    given = {"samples": noise((3, 4, 4)), "labels": np.arange(3)}
    given[which] = np.ma.masked_array(given[which], given[which] == given[which].flat[0])
    count = int(np.ma.getmaskarray(given[which]).sum())
    with pytest.raises(DataError, match=f"{count} values are masked, so they are missing"):
        open_data(given["samples"], given["labels"])
    given[which] = np.ma.masked_array(np.asarray(given[which]))  # nothing is masked: nothing is missing
    assert len(open_data(given["samples"], given["labels"])) == 3


class Raising(Dataset[Any]):
    def __init__(self, error: Exception) -> None:
        self.error = error

    def __len__(self) -> int:
        return 3

    def __getitem__(self, i: int) -> Any:
        if i == 2:
            raise self.error
        return noise((4, 4), i), i


def test_a_dataset_that_fails_is_named_with_the_item() -> None:
    with pytest.raises(DataError, match=r"item 2 of the Dataset cannot be read \(KeyError: 'gone'\)"):
        open_data(Raising(KeyError("gone")))
    with pytest.raises(ProvnetError, match=r"^own words$"):
        open_data(Raising(ProvnetError("own words")))


def test_a_name_that_another_file_has_already_is_not_given_twice() -> None:
    odd = os.fsdecode(b"a\xff.png")
    first = unique_names([odd, "a\\xff.png"])[odd]
    assert first.startswith("a\\xff.png~")
    found = unique_names([odd, "a\\xff.png", first])
    assert len(set(found.values())) == 3
    assert found[first] == first
    assert found[odd].startswith(first)


def test_a_link_to_itself_beside_the_class_folders(tmp_path: Path) -> None:
    write_folder(tmp_path, pictures("a/1.png", "b/2.png"))
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert len(open_data(tmp_path)) == 2


def test_labels_of_different_lengths() -> None:
    with pytest.raises(DataError, match="lists of different lengths"):
        open_data(np.zeros((4, 1, 2, 2), np.uint8), [[0], [1, 2], [0], [1]])

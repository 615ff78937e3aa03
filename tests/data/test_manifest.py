"""CSV manifests: what is parsed, what is refused, always with the row."""

from __future__ import annotations

import codecs
from pathlib import Path

import pytest

from provnet import open_data
from provnet.base.errors import DataError
from provnet.base.files import DataWarning
from tests.data.made import noise, pictures, write_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path, pictures("1.png", "2.png", "sub/3.png", "a,b.png"))


def write(folder: Path, text: str | bytes) -> Path:
    path = folder / "list.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
    return path


def test_order_labels_ids_and_sources(folder: Path) -> None:
    path = write(folder, "path,label,id,source\n2.png,dog,second,ann\n1.png,cat,,\n./sub/../sub/3.png,dog,third,bob\n")
    data = open_data(path)
    assert data.samples.sample_ids == ("second", "1.png", "third")
    assert data.samples.paths == ("2.png", "1.png", "sub/3.png")
    assert data.samples.sources == ("ann", None, "bob")
    assert data.class_names == ("cat", "dog")
    assert data.labels.tolist() == [1, 0, 1]
    assert (data.images[0, 0].numpy() == noise((6, 5), 1)).all()
    assert data.spec.kind == "csv"


def test_bom_crlf_quotes_blank_lines_and_column_order(folder: Path) -> None:
    path = write(folder, codecs.BOM_UTF8 + b'Label, Path\r\n"x, y","a,b.png"\r\n\r\n"say ""hi""",1.png\r\n')
    data = open_data(path)
    assert data.class_names == ('say "hi"', "x, y")
    assert data.samples.paths == ("a,b.png", "1.png")


def test_labels_are_text(folder: Path) -> None:
    data = open_data(write(folder, 'path,label\n1.png,none\n2.png,"1"\nsub/3.png,1\n"a,b.png",1.0\n'))
    assert data.class_names == ("1", "1.0", "none")
    assert data.labels.tolist() == [2, 0, 0, 1]


@pytest.mark.parametrize("label", ["nan", "NaN", "NAN", " nan "])
def test_a_label_that_stands_for_a_missing_value_is_refused_with_its_row(folder: Path, label: str) -> None:
    path = write(folder, f"path,label\n1.png,cat\n\n2.png,{label}\n")
    with pytest.raises(DataError, match=f'list.csv row 4: the label "{label}" stands for a missing value'):
        open_data(path)
    assert open_data(path, class_names=["cat", label]).labels.tolist() == [0, 1]  # named as a class, it is one


def test_a_name_that_has_nan_in_it_is_a_class(folder: Path) -> None:
    assert open_data(write(folder, "path,label\n1.png,nana\n2.png,banan\n")).class_names == ("banan", "nana")


def test_numbers_are_in_order_of_value(folder: Path) -> None:
    assert open_data(write(folder, "path,label\n1.png,10\n2.png,9\n")).class_names == ("9", "10")


def test_hostile_labels_stay_as_they_are(folder: Path) -> None:
    labels = ["=cmd|' /C calc'!A0", "<script>alert(1)</script>", "\x1b[31mred"]
    rows = "".join(f'{path},"{label}"\n' for path, label in zip(("1.png", "2.png", "sub/3.png"), labels, strict=True))
    assert set(open_data(write(folder, "path,label\n" + rows)).class_names) == set(labels)


REFUSED = {
    "no header": ("1.png,cat\n2.png,dog\n", "row 1: the header must be"),
    "semicolons": ("path;label\n1.png;cat\n", "'path;label'.*; save the file with commas between the cells"),
    "tabs": ("path\tlabel\n1.png\tcat\n", "save the file with commas between the cells"),
    "empty file": ("", "row 1: the header must be"),
    "header twice": ("path,label,label\n1.png,a,b\n", "row 1: the header must be"),
    "no rows": ("path,label\n", "names no pictures"),
    "duplicate row": (
        "path,label\n1.png,cat\n2.png,cat\n1.png,cat\n",
        r"row 4: the file 1\.png stands in row 2 already",
    ),
    "duplicate path": ("path,label\n1.png,cat\n./1.png,dog\n", r"row 3: the file 1\.png stands in row 2 already"),
    "duplicate id": ("path,label,id\n1.png,cat,x\n2.png,dog,x\n", "row 3: the id x stands in row 2 already"),
    "unknown file": ("path,label\n1.png,cat\nno.png,cat\n", r"row 3: no\.png is not a file"),
    "too few cells": ("path,label\n1.png\n", "row 2: 1 cells"),
    "too many cells": ("path,label\na,b.png,cat\n", "row 2: 3 cells"),
    "empty label": ("path,label\n1.png,\n", "row 2: path and label must not be empty"),
    "huge cell": ("path,label\n1.png,cat\n2.png," + "x" * 10_000_000 + "\n", "row 3: cannot be parsed"),
    "open quote": ('path,label\n1.png,"cat\n', "row 2: cannot be parsed"),
    "absolute": ("path,label\n/etc/hostname,cat\n", "row 2: /etc/hostname is an absolute path"),
    "outside": ("path,label\nsub/../../1.png,cat\n", "row 2: .* leads out of the folder"),
    "a folder": ("path,label\nsub,cat\n", "row 2: sub is not a file"),
    "not UTF-8": (b"path,label\n1.png,caf\xe9\n", "row 2: not UTF-8"),
    "UTF-16": ("path,label\n1.png,cat\n".encode("utf-16"), "row 1: not UTF-8"),
    "NUL": ("path,label\n1.png,c\x00t\n", "row 2: holds a NUL"),
}


@pytest.mark.parametrize(("text", "words"), REFUSED.values(), ids=REFUSED)
def test_refused_with_the_row(folder: Path, text: str | bytes, words: str) -> None:
    with pytest.raises(DataError, match=words) as caught:
        open_data(write(folder, text).rename(folder / "list.csv"))
    assert str(caught.value).startswith("list.csv")
    assert "\n" not in str(caught.value)


def test_a_link_that_leads_out_is_refused(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = write_folder(tmp_path_factory.mktemp("outside"), pictures("x.png"))
    (folder / "link.png").symlink_to(outside / "x.png")
    with pytest.raises(DataError, match="through a link"):
        open_data(write(folder, "path,label\nlink.png,cat\n"))


def test_bad_rows_are_counted(folder: Path) -> None:
    (folder / "2.png").write_bytes(b"")
    data = open_data(write(folder, "path,label\n1.png,cat\nno.png,cat\n2.png,dog\n"), skip_bad=True)
    assert data.samples.sample_ids == ("1.png",)
    assert len(data.skipped) == 2
    assert data.class_names == ("cat", "dog")


def test_columns_that_are_not_used_are_named(folder: Path) -> None:
    with pytest.warns(DataWarning, match="columns not used: souce"):
        open_data(write(folder, "path,label,souce\n1.png,cat,ann\n"))

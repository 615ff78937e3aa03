"""Rows 40 to 51: the data set changed under the model."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from provnet.data.evidence import evidence
from provnet.data.open import open_data
from provnet.runs.data import find_data
from provnet.runs.run import read_run
from tests.data.made import encode, noise, write_folder

from .entry import Entry, Place, Said
from .made import NETWORK, SIDE, digits

ONE, OTHER = "train/digit-0/0.png", "train/digit-1/2.png"
Change = Callable[[Path], object]


def reorder(data: Path) -> Path:
    """A manifest that lists the same files backwards."""
    files = sorted((data / "train").rglob("*.png"), reverse=True)
    lines = [f"{path.relative_to(data).as_posix()},{path.parent.name}" for path in files]
    manifest = data / "list.csv"
    manifest.write_text("path,label\n" + "\n".join(lines) + "\n")
    return manifest


def rename(data: Path) -> None:
    """Every file gets the name of another, in another order."""
    for number, path in enumerate(sorted((data / "train").rglob("*.png"))):
        path.rename(path.with_name(f"z{99 - number}.png"))


def edit(data: Path) -> None:
    """One pixel, one step."""
    pixels = np.asarray(Image.open(data / ONE)).copy()
    pixels[0, 0] ^= 1
    (data / ONE).write_bytes(encode(pixels))


def append(data: Path) -> None:
    """One byte after the end of the picture: the pixels are the same, the file is not."""
    (data / ONE).write_bytes((data / ONE).read_bytes() + b"\0")


def swap(data: Path) -> None:
    """Two files of one class."""
    other = data / "train" / "digit-0" / "4.png"
    one, two = (data / ONE).read_bytes(), other.read_bytes()
    (data / ONE).write_bytes(two)
    other.write_bytes(one)


def swap_classes(data: Path) -> None:
    """Two files of two classes."""
    one, two = (data / ONE).read_bytes(), (data / OTHER).read_bytes()
    (data / ONE).write_bytes(two)
    (data / OTHER).write_bytes(one)


def delete(data: Path) -> None:
    (data / ONE).unlink()


def add(data: Path) -> None:
    write_folder(
        data, {"train/digit-0/00.png": noise((SIDE, SIDE), 900), "train/digit-3/new.png": noise((SIDE, SIDE), 901)}
    )


def re_encode(data: Path) -> None:
    (data / ONE).write_bytes(encode(Image.open(data / ONE), compress_level=0))


def relabel(data: Path) -> None:
    shutil.move(data / ONE, data / "train" / "digit-3" / "moved.png")


def replace_all(data: Path) -> None:
    write_folder(data, digits(seed=1))


def touch(data: Path) -> None:
    """Times of the past and of the future."""
    for number, path in enumerate(sorted(data.rglob("*.png"))):
        os.utime(path, (10**9 * (number % 5), 10**9 * (number % 5)))


def moved_root(place: Place) -> Path:
    return Path(shutil.move(place.data(), place.tmp / "elsewhere"))


def changed(place: Place, change: Change) -> Path:
    data = place.data()
    found = change(data)
    return found if isinstance(found, Path) else data


def verified(change: Change, *options: object) -> Callable[[Place], list[object]]:
    return lambda place: ["verify", place.kit.run, "--data", changed(place, change), *options]


def explained(change: Change, *options: object) -> Callable[[Place], list[object]]:
    """All twenty samples are asked for, and drawn."""

    def given(place: Place) -> list[object]:
        query = place.kit.data / "test" / "digit-2" / "0.png"
        data = changed(place, change)
        return ["explain", place.kit.run, query, "-k", 20, "--data", data, "--html", place.tmp / "out.html", *options]

    return given


def pictures_are_right(hidden: dict[str, str]) -> Callable[[Place, Said], None]:
    """Every picture that is shown is the one trained on; those not shown are exactly the hidden ones, with a note."""

    def after(place: Place, said: Said) -> None:
        run = read_run(place.kit.run)
        then = open_data(place.kit.data)
        where = next(
            p for p in (place.tmp / "data" / "list.csv", place.tmp / "elsewhere", place.tmp / "data") if p.exists()
        )
        now = find_data(run.config, run.samples, str(where)).data
        notes = {}
        for index, found in enumerate(evidence(run.samples, now, np.arange(len(run.samples)))):
            if found.picture is None:
                notes[run.samples.sample_ids[index]] = found.note
            else:
                assert np.array_equal(found.picture, then.images[index, 0].numpy())
        assert notes == hidden
        page = place.tmp / "out.html"
        assert page.exists() == (said.code == 0)
        if page.exists():
            assert all(note in page.read_text("utf-8") for note in notes.values())

    return after


def resolved(row: int, words: str, change: Change, verdict: str, strict: int) -> list[Entry]:
    """Nothing is lost: every picture is found again by its hash, with and without --strict."""
    whole = pictures_are_right({})
    return [
        Entry(row, words, verified(change), 0, (verdict, "verified")),
        Entry(row, f"{words}, --strict", verified(change, "--strict"), strict, (verdict,)),
        Entry(row, f"{words}, explained --strict", explained(change, "--strict"), after=whole),
    ]


def named(row: int, words: str, change: Change, verdict: str, hidden: dict[str, str], *says: str) -> list[Entry]:
    """Something is lost: it is named, never shown as evidence, and refused with --strict."""
    notes = (f"{len(hidden)} of 20 exemplars are not shown", *(f"{ONE} ({note})" for note in [*hidden.values()][:1]))
    return [
        Entry(row, words, verified(change), 6, (verdict, *says, "not verified (exit code 6)")),
        Entry(row, f"{words}, --strict", verified(change, "--strict"), 6, (verdict, *says)),
        Entry(row, f"{words}, explained", explained(change), 0, notes, pictures_are_right(hidden)),
        Entry(row, f"{words}, explained --strict", explained(change, "--strict"), 6, (*notes, "restore the data")),
    ]


def orphaned(place: Place, *command: object) -> list[object]:
    """A run whose training data are gone."""
    data = place.data()
    run = place.tmp / "out"
    assert place.call("train", data, "--out", run, *NETWORK, "--epochs", 1).code == 0
    shutil.rmtree(data)
    return [command[0], run, *command[1:]]


def unpictured(place: Place, *options: object) -> list[object]:
    query = place.kit.data / ONE
    return orphaned(place, "explain", query, "--html", place.tmp / "out.html", *options)


def hashes_stand_for_them(place: Place, said: Said) -> None:
    kept = {place.kit.data / item["path"]: item["sha256"] for item in said.json[0]["exemplars"]}
    then = open_data(place.kit.data).samples
    assert len(kept) == 5
    for item in said.json[0]["exemplars"]:
        assert item["sha256"] == then.hex(then.id_places[item["sample_id"]])
    assert "picture not available" in (place.tmp / "out.html").read_text("utf-8")


def only_test_is_measured(_: Place, said: Said) -> None:
    assert said.json["class_accuracy"]["n"] == 4
    assert said.json["index_accuracy"]["n"] == 0


CHANGED, MISSING = "changed since training", "picture not available"
EDITED = "the data changed since training"
ROWS = [
    *resolved(40, "re-ordered listing", reorder, "the same samples in another order", 6),
    *resolved(41, "renamed files", rename, "the same samples under other names", 6),
    Entry(
        42, "moved root", lambda p: ["verify", p.kit.run, "--data", moved_root(p), "--strict"], 0, ("the same data",)
    ),
    *resolved(42, "copied root", lambda data: None, "the same data", 0),
    *named(43, "one pixel edited", edit, EDITED, {ONE: CHANGED}, f"1 edited (the name holds other content now): {ONE}"),
    *named(
        43,
        "one byte appended",
        append,
        EDITED,
        {ONE: f"{CHANGED} (the same picture to the pixel, in another file)"},
        f"1 are the same picture to the pixel, in another file: {ONE}",
    ),
    *resolved(44, "two files of a class swapped", swap, "the same samples under other names", 6),
    Entry(
        44,
        "two files of two classes swapped",
        verified(swap_classes),
        6,
        (EDITED, f"2 carry another label: {ONE}, {OTHER}"),
    ),
    Entry(
        44,
        "two files of two classes swapped, explained",
        explained(swap_classes),
        after=pictures_are_right({}),
    ),
    *named(45, "file deleted", delete, EDITED, {ONE: MISSING}, f"1 missing: {ONE}", "19 now"),
    Entry(46, "files added", verified(add), 6, (EDITED, "2 added since training", "22 now")),
    Entry(46, "files added, explained --strict", explained(add, "--strict"), after=pictures_are_right({})),
    *named(
        47,
        "re-encoded, same pixels",
        re_encode,
        EDITED,
        {ONE: f"{CHANGED} (the same picture to the pixel, in another file)"},
        f"1 are the same picture to the pixel, in another file: {ONE}",
    ),
    Entry(48, "relabelled", verified(relabel), 6, (EDITED, f"1 carry another label: {ONE}")),
    Entry(48, "relabelled, explained --strict", explained(relabel, "--strict"), after=pictures_are_right({})),
    *named(
        49,
        "other data of the same names",
        replace_all,
        "another data set",
        dict.fromkeys([name for name in digits() if name.startswith("train/")], CHANGED),
        "20 edited",
    ),
    *resolved(50, "times of files changed", touch, "the same data", 0),
    Entry(
        51, "training data gone", lambda place: unpictured(place, "--json"), 0, (MISSING[:0],), hashes_stand_for_them
    ),
    Entry(
        51,
        "training data gone, --strict",
        lambda place: unpictured(place, "--strict"),
        6,
        ("no exemplar can be checked",),
    ),
    Entry(51, "training data gone, verify", lambda place: orphaned(place, "verify"), 0, ("not compared",)),
    Entry(
        51,
        "training data gone, verify --strict",
        lambda place: orphaned(place, "verify", "--strict"),
        6,
        ("not compared",),
    ),
    Entry(
        51,
        "training data gone, evaluate",
        lambda place: orphaned(place, "evaluate", place.kit.data, "--json"),
        0,
        ("the training data cannot be opened, so index accuracy is not measured",),
        only_test_is_measured,
    ),
]

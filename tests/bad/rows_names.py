"""Rows 21 and 33: names of files and of classes that somebody may trip over."""

from __future__ import annotations

import csv
import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from provnet.runs.run import read_samples
from tests.data.made import encode, noise

from .entry import Entry, Place, Said
from .made import NETWORK, SIDE, folder, train

NAMES = {
    "emoji": "\U0001f600\U0001f9d1\u200d\U0001f680.png".encode(),
    "composed accent": "caf\u00e9.png".encode(),
    "combining accent": "cafe\u0301.png".encode(),
    "right to left": "\u05d0\u05d1\u202egnp.exe.png".encode(),
    "newline": b"two\nlines.png",
    "escape": b"\x1b[2Jclear.png",
    "255 bytes": b"x" * 251 + b".png",
    "no UTF-8": b"\xff\xfe\x80.png",
    "leading dash": b"--help.png",
    "a device of Windows": b"con.png",
    "trailing dot": b"dot.png.",
    "space and quote": b" 'a\" b .png",
    "markup": b"<img src=x onerror=alert(1)>&amp;[bold]x[bold].png",
    "comma": b"a,b;c\td.png",
    "formula": b"=1+1.png",
}
LABELS = {
    "formula": "=cmd|' /C calc'!A0",
    "script": "<script>alert(1)</script>",
    "function": "@SUM(1+1)",
    "sum": "+1",
    "tab": "\t=1+1",
    "escape": "\x1b[31mred\x1b[0m",
    "markup of the terminal": "[bold red]x[/bold red]",
}


def with_name(name: bytes) -> Callable[[Place], list[object]]:
    """A data set with a picture of that name."""
    return lambda place: train(place, named_folder(place, name))


def named_folder(place: Place, *names: bytes) -> Path:
    data = folder(place, {})
    for number, name in enumerate(names):
        with open(os.path.join(os.fsencode(data), b"a", name), "wb") as file:  # noqa: PTH118, PTH123 - bytes
            file.write(encode(noise((SIDE, SIDE), 80 + number)))
    return data


def round_trip(name: bytes) -> Callable[[Place, Said], None]:
    """The name comes back whole in JSON, harmless on terminal and page; the file is found and can be asked about."""

    def after(place: Place, _: Said) -> None:
        file = os.path.join(os.fsencode(place.tmp), b"data/a", name)  # noqa: PTH118 - bytes
        digest = hashlib.sha256(Path(os.fsdecode(file)).read_bytes()).hexdigest()
        page = place.tmp / "out.html"
        asked = ("explain", place.out, "-k", 7, "--html", page)
        picture = os.fsdecode(file)
        found = place.call(*asked, "--json", "--strict", picture)
        assert found.code == 0, found.err
        assert os.fsencode(found.json[0]["input"]) == file
        paths = {os.fsencode(item["path"]): item["sha256"] for item in found.json[0]["exemplars"]}
        assert paths[b"a/" + name] == digest
        ids = [item["sample_id"] for item in found.json[0]["exemplars"]]
        assert len(set(ids)) == 7
        assert all(text.encode("utf-8") for text in ids)  # raises where it is no Unicode
        assert not any(harmful(line) for line in place.call(*asked, picture).out.splitlines())
        text = page.read_text("utf-8")
        assert "\x1b" not in text
        assert "<img src=x" not in text
        assert place.call("verify", place.out).code == 0
        again = place.call("evaluate", place.out, "--json")
        assert again.json["index_accuracy"]["n"] == 7
        harmless_card(place)

    return after


def harmful(line: str) -> bool:
    """Whether a terminal would do anything but show it."""
    return not line.isprintable()


def harmless_card(place: Place) -> None:
    card = (place.out / "README.md").read_text("utf-8")
    assert "\x1b" not in card
    assert "<script" not in card
    assert "<img" not in card


def two_forms(place: Place) -> list[object]:
    return train(place, named_folder(place, NAMES["composed accent"], NAMES["combining accent"]))


def both_forms(place: Place, _: Said) -> None:
    ids = read_samples(place.out)[1].sample_ids
    assert {f"a/{NAMES[form].decode()}" for form in ("composed accent", "combining accent")} <= set(ids)


def dashed(place: Place) -> list[object]:
    place.write("--help.png", encode(noise((SIDE, SIDE), 1)))
    place.patch.chdir(place.tmp)
    return ["explain", place.kit.run, "--json", "--", "--help.png"]


def is_answered(_: Place, said: Said) -> None:
    assert said.json[0]["input"] == "--help.png"


def labelled(place: Place, labels: Mapping[str, str]) -> list[object]:
    """A manifest with such labels, three pictures each, and a class folder's worth of plain ones."""
    lines = ["path,label"]
    for number, label in enumerate([*labels.values(), "plain"] * 3):
        place.write(f"{number}.png", encode(noise((SIDE, SIDE), number)))
        lines.append(f'{number}.png,"{label}"')
    return ["train", place.write("list.csv", "\n".join(lines)), "--out", place.out, *NETWORK, "--epochs", 1]


def label_is_escaped(label: str) -> Callable[[Place, Said], None]:
    """Exact in JSON, escaped on terminal, page and card, no formula in any table."""

    def after(place: Place, said: Said) -> None:
        assert not any(harmful(line) for line in said.out.splitlines())
        page = place.tmp / "out.html"
        found = place.call("explain", place.out, place.tmp / "0.png", "-k", 6, "--json", "--html", page)
        assert label in {item["label"] for item in found.json[0]["exemplars"]}
        text = page.read_text("utf-8")
        assert "\x1b" not in text
        assert "<script>alert" not in text
        for command in (("explain", place.out, place.tmp / "0.png", "-k", 6), ("info", place.out)):
            shown = place.call(*command)
            assert not any(harmful(line) for line in (shown.out + shown.err).splitlines())
            assert label.replace("\x1b", "\\x1b").replace("\t", "\\t") in shown.out  # told, not acted upon
        harmless_card(place)
        tables_are_defused(place)

    return after


def tables_are_defused(place: Place) -> None:
    """No cell of a table is computed by a spreadsheet."""
    tables, picture = place.tmp / "tables", place.tmp / "0.png"
    by = place.write("by.csv", "sample_id,contributor\n" + "".join(f"{n}.png,=1+{n}\n" for n in range(6)))
    for command in (
        ("debug", place.out, "--review", "--threshold", 1e-9),
        ("map", place.out, "--engine", "scikit-learn"),
        ("credit", place.out, picture, "--by", by),
        ("attribute", place.out, picture),
    ):
        said = place.call(*command, "--out", tables)
        assert said.code == 0, said.err
    names = {"samples", "corrected", "decisions", "map", "credit", "attribution", "sources"}
    assert {path.stem for path in tables.glob("*.csv")} == names
    for path in tables.glob("*.csv"):
        with path.open(encoding="utf-8", newline="") as file:
            for cell in (cell for row in csv.reader(file) for cell in row):
                assert not cell.startswith(("=", "+", "@", "\t", "\r", "\n", "\x1b")), (path.name, cell)
                assert not cell.startswith("-") or float(cell) <= 0, (path.name, cell)


ROWS = [
    *(Entry(21, f"file name: {words}", with_name(name), after=round_trip(name)) for words, name in NAMES.items()),
    Entry(21, "file names: both forms of one accent", two_forms, after=both_forms),
    Entry(21, "picture with a leading dash to be explained", dashed, after=is_answered),
    *(
        Entry(
            33,
            f"label: {words}",
            lambda place, label=label: labelled(place, {"x": label}),
            after=label_is_escaped(label),
        )
        for words, label in LABELS.items()
    ),
]

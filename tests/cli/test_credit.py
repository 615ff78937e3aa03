"""`provnet credit`: files, intervals, who is not listed, what is withheld, and what is refused."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import provnet

from .conftest import CLASSES, PER_CLASS, Call

HOSTILE = "<script>alert(1)</script> \u202eevil"
IDS = [f"train/digit-{label}/{number}.png" for label in range(CLASSES) for number in range(PER_CLASS)]


def sources(folder: Path, ids: list[str] = IDS, names: tuple[str, ...] = ("Ann", "Bob", "Cid")) -> Path:
    path = folder / "sources.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["sample_id", "contributor"])
        lines.writerows([name, names[number % len(names)]] for number, name in enumerate(ids))
    return path


def test_every_file_is_written(run: Path, tmp_path: Path, call: Call) -> None:
    out = tmp_path / "out"
    found = call("credit", run, "test:0..7", "--by", sources(tmp_path), "--out", out, "--json")
    assert found.code == 0, found.err
    values = found.json
    assert values == json.loads((out / "credit.json").read_text())
    assert values["queries"] == values["supported"] + values["unsupported"] == 8
    assert values["counted"] == "all weights"
    assert sum(one["share"]["value"] for one in values["contributors"]) == pytest.approx(1)
    assert sum(one["samples"] for one in values["contributors"]) == PER_CLASS * CLASSES
    assert 0 <= values["gini"]["value"] <= 2 / 3
    with (out / "credit.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["contributor"] for row in rows] == [one["name"] for one in values["contributors"]]
    assert float(rows[0]["share"]) == pytest.approx(values["contributors"][0]["share"]["value"], abs=1e-7)


def test_the_page_stands_alone_and_trusts_no_name(run: Path, tmp_path: Path, call: Call) -> None:
    by = sources(tmp_path, names=(HOSTILE, "=1+1", "Cid"))
    assert call("credit", run, "test:0..7", "--by", by, "--out", tmp_path / "out").code == 0
    page = (tmp_path / "out/report.html").read_text("utf-8")
    assert "default-src 'none'" in page
    assert not re.search(r"(?:src|href)=\"(?!data:|#)", page)
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "data:image/png;base64," in page
    assert "Lorenz curve" in page
    assert "'=1+1" in (tmp_path / "out/credit.csv").read_text("utf-8")


def test_queries_may_be_a_folder_arrays_or_positions(run: Path, data: Path, tmp_path: Path, call: Call) -> None:
    by = sources(tmp_path)
    images = provnet.open_data("embedded", split="test", limit=12).images[:, 0].numpy()
    np.savez(tmp_path / "plain.npz", images=images)
    np.savez(tmp_path / "labelled.npz", images=images, labels=np.zeros(12, dtype=np.int64))
    for given, count in (
        ([data], 8),
        ([tmp_path / "plain.npz"], 12),
        ([tmp_path / "labelled.npz"], 12),
        (["test:0..2", data / "test/digit-1/0.png"], 4),
        ([data / "test/digit-1"], 2),
        ([data / "test/digit-0", "test:0", data / "test/digit-1", data], 2 + 1 + 2 + 8),
    ):
        found = call("credit", run, *given, "--by", by, "--json")
        assert found.code == 0, found.err
        assert found.json["queries"] == count


def test_a_table_for_people(run: Path, tmp_path: Path, call: Call) -> None:
    found = call("credit", run, "test:0..7", "--by", sources(tmp_path), "-k", 3)
    assert found.code == 0
    for words in ("contributor", "95 % interval", "Ann", "Bob", "Cid", "Gini"):
        assert words in found.out


def test_training_samples_as_queries_are_noticed(run: Path, data: Path, tmp_path: Path, call: Call) -> None:
    found = call("credit", run, data / "train/digit-0/0.png", "--by", sources(tmp_path), "--json")
    assert "1 of 1 queries are training samples" in found.err


def test_of_many_queries_out_of_range_a_few_are_named(run: Path, data: Path, tmp_path: Path, call: Call) -> None:
    paths = [tmp_path / f"{i}.npy" for i in range(5)]
    for i, path in enumerate(paths):
        np.save(path, np.full((28, 28), 300.0 + i, np.float32))
    found = call("credit", run, *paths, "--by", sources(tmp_path), "--json")
    assert found.json["queries"] == 5
    assert found.err.count("this run was trained on 0..255") == 3
    assert "2 more inputs of 5 are out of range, too" in found.err


def test_who_is_not_listed_and_ids_of_nobody_are_counted(run: Path, tmp_path: Path, call: Call) -> None:
    found = call("credit", run, "test:0..7", "--by", sources(tmp_path, [*IDS[:20], "train/ghost.png"]), "--json")
    assert found.code == 0
    assert (found.json["unlisted_samples"], found.json["unknown_ids"]) == (4, 1)
    assert [one["name"] for one in found.json["contributors"] if not one["listed"]] == ["(not listed)"]
    assert "4 of 24 samples have no contributor" in found.err
    assert "1 ids of sources.csv are not samples of the run" in found.err


def test_withheld_samples_are_never_credited_nor_shown(place: Path, tmp_path: Path, call: Call) -> None:
    secret = IDS[:12]
    arguments = [part for name in secret for part in ("--id", name)]
    assert call("withhold", place / "run", *arguments).code == 0
    by = sources(tmp_path)
    out = tmp_path / "out"
    found = call("credit", place / "run", "test:0..7", "--by", by, "--out", out, "--json", "--top", 9)
    assert found.code == 0, found.err
    assert found.json["withheld"] == 12
    assert sum(one["samples"] for one in found.json["contributors"]) == 12
    assert "12 samples are withheld" in found.err
    written = [path.read_text("utf-8") for path in out.iterdir()]
    assert not [name for name in secret if any(name in text for text in (*written, found.out))]
    assert any(name in text for name in IDS[12:] for text in written)


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("sample_id,contributor\ntrain/digit-0/0.png,Ann\ntrain/digit-0/0.png,Bob\n", 3, "stands in row 2 already"),
        ("sample_id,contributor\nsomewhere.png,Ann\n", 3, "none of its 1 ids is a sample of the run"),
        ("name,contributor\na,Ann\n", 3, "the header must name sample_id, contributor"),
        (None, 3, "sources.csv"),
    ],
)
def test_files_that_are_refused(text: str | None, code: int, words: str, run: Path, tmp_path: Path, call: Call) -> None:
    by = tmp_path / "sources.csv"
    if text is not None:
        by.write_text(text)
    found = call("credit", run, "test:0..7", "--by", by, "--out", tmp_path / "out")
    assert found.code == code, found.err
    assert words in found.last_line
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["test:0..7"], "the run does not know who contributed its samples; give --by FILE"),
        (["test:0..7", "-k", "-1"], "-k and --top must be 0 or more"),
        (["test:0..7", "--weights", "none"], 'unknown weights "none"'),
        (["test:900", "--by", "BY"], "test:900 is not there"),
        (["test:0..7", "--by", "BY", "--out", "BY"], "--out names a folder"),
    ],
)
def test_what_cannot_be_credited(arguments: list[str], words: str, run: Path, tmp_path: Path, call: Call) -> None:
    by = sources(tmp_path)
    given = [str(by) if one == "BY" else one for one in arguments]
    if "none" in given:
        given += ["--by", str(by)]
    found = call("credit", run, *given)
    assert found.code == 2
    assert words in found.last_line


def test_without_the_training_data_ids_stand_for_pictures(run: Path, data: Path, tmp_path: Path, call: Call) -> None:
    images = provnet.open_data("embedded", split="test", limit=12).images[:, 0].numpy()
    np.savez(tmp_path / "queries.npz", images=images)
    aside = Path(shutil.move(data, tmp_path / "gone"))
    try:
        found = call(
            "credit", run, tmp_path / "queries.npz", "--by", sources(tmp_path), "--out", tmp_path / "out", "--json"
        )
    finally:
        shutil.move(aside, data)
    assert found.code == 0
    assert "ids and hashes stand for them" in found.err
    assert "picture not available" in (tmp_path / "out/report.html").read_text("utf-8")


def test_a_folder_of_pictures_is_the_same_as_its_files(run: Path, data: Path, tmp_path: Path, call: Call) -> None:
    by, folder = sources(tmp_path), tmp_path / "flat"
    shutil.copytree(data / "test/digit-2", folder)
    (folder / "notes.txt").write_text("mine")
    whole = call("credit", run, folder, "--by", by, "--json")
    single = call("credit", run, *sorted(folder.glob("*.png")), "--by", by, "--json")
    assert whole.code == single.code == 0
    assert whole.json["contributors"] == single.json["contributors"]
    assert whole.json["about"]["queries"] == f"2 pictures in {folder}"
    (tmp_path / "empty").mkdir()
    assert "no pictures found under" in call("credit", run, tmp_path / "empty", "--by", by).last_line


def test_training_samples_beside_floats_are_noticed(run: Path, data: Path, tmp_path: Path, call: Call) -> None:
    own = data / "train/digit-0/0.png"
    pixels = np.asarray(Image.open(own)).astype(np.float32)
    np.save(tmp_path / "same.npy", pixels)
    np.save(tmp_path / "odd.npy", pixels * 0.9)
    given = (own, tmp_path / "same.npy", tmp_path / "odd.npy")
    found = call("credit", run, *given, "test:0..1", "--by", sources(tmp_path), "--out", tmp_path / "out")
    assert found.code == 0, found.err
    assert "2 of 5 queries are training samples" in found.err

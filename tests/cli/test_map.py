"""`provnet map`: the page, the table, samples withheld, and what is refused."""

from __future__ import annotations

import base64
import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import provnet
from provnet.runs.run import read_run
from tests.cases import cases

from ..report.reading import Page
from .conftest import CLASSES, PER_CLASS, Call

QUICK = ("--engine", "scikit-learn", "--perplexity", 4, "--groups", 2, "--device", "cpu")


def payload(folder: Path) -> dict:  # type: ignore[type-arg]
    text = (folder / "report.html").read_text("utf-8")
    found: dict = json.loads(re.findall(r'id="data">(.*?)</script>', text, re.DOTALL)[0])  # type: ignore[type-arg]
    return found


def rows(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((folder / "map.csv").read_text("utf-8").splitlines()))


def test_page_table_and_picture(run: Path, tmp_path: Path, call: Call) -> None:
    pytest.importorskip("matplotlib", reason="figures need the extra plots")
    found = call("map", run, "--out", tmp_path, *QUICK, "--json")
    assert found.code == 0, found.err
    values = found.json
    assert (values["samples"], values["withheld"], values["left_out"]) == (24, 0, 0)
    assert values["engine"].startswith("scikit-learn")
    assert values["html_bytes"] == (tmp_path / "report.html").stat().st_size
    assert values["thumbnail_pixels"] == 28
    assert values["misattributed"]["n"] == 8
    wrong = round(values["misattributed"]["value"] * 8)
    lines = rows(tmp_path)
    assert list(lines[0]) == ["id", "sha256", "x", "y", "class", "cluster", "kind"]
    assert len(lines) == 24 + wrong
    training = [line for line in lines if line["kind"] == "train"]
    samples = read_run(run).samples
    hashes = {name: samples.hex(row) for row, name in enumerate(samples.sample_ids)}
    assert {line["id"]: line["sha256"] for line in training} == hashes
    assert {(line["class"], line["cluster"]) for line in training} == {
        (f"digit-{label}", group) for label in range(CLASSES) for group in "12"
    }
    data = payload(tmp_path)
    assert sorted(data["ids"][:24]) == sorted(line["id"] for line in training)
    assert data["places"] == 24 + wrong
    page = Page((tmp_path / "report.html").read_text("utf-8"))
    assert page.unbalanced == page.open == []
    assert len(page.all("article", "explained")) == wrong
    with Image.open(tmp_path / "map.png") as picture:
        picture.verify()


def test_a_limit_keeps_exemplars_that_are_not_on_the_map(run: Path, tmp_path: Path, call: Call) -> None:
    assert call("map", run, "--out", tmp_path, *QUICK, "--limit", 8, "--test", "none").code == 0
    data = payload(tmp_path)
    assert (data["places"], data["train"]) == (8, 8)
    assert len(data["ids"]) > 8
    assert len(rows(tmp_path)) == 8
    assert "Misattributed" not in (tmp_path / "report.html").read_text("utf-8")


def test_classes_of_fewer_samples_than_exemplars_that_are_shown(tmp_path: Path, call: Call) -> None:
    folder, out = tmp_path / "run", tmp_path / "map"
    assert call("train", "embedded", "--limit", 20, "--out", folder, "--epochs", 1, "--device", "cpu").code == 0
    found = call("map", folder, "--out", out, *QUICK, "--json")
    assert found.code == 0, found.err
    assert found.json["misattributed"]["value"] > 0
    data, loaded = payload(out), read_run(folder)
    near = np.frombuffer(base64.b64decode(data["near"]), "<i4").reshape(data["places"], data["k"])
    test = provnet.open_data("embedded", split="test")
    place = {name: row for row, name in enumerate(test.samples.sample_ids)}
    for row in range(data["train"], data["places"]):
        (one,) = provnet.explain(loaded, test.images[[place[data["ids"][row]]]], k=5)
        assert [data["ids"][i] for i in near[row] if i >= 0] == [x.sample_id for x in one.exemplars]


def test_withheld_samples_are_nowhere(place: Path, tmp_path: Path, call: Call) -> None:
    hidden = "train/digit-1/3.png"
    assert call("withhold", place / "run", "--id", hidden).code == 0
    found = call("map", place / "run", "--out", tmp_path / "out", *QUICK, "--json")
    assert found.code == 0, found.err
    assert (found.json["samples"], found.json["withheld"]) == (CLASSES * PER_CLASS - 1, 1)
    for name in ("report.html", "map.csv"):
        text = (tmp_path / "out" / name).read_text("utf-8")
        assert hidden not in text
        assert "train/digit-1/2.png" in text


def test_a_small_page_has_ids_instead_of_thumbnails(run: Path, tmp_path: Path, call: Call) -> None:
    found = call("map", run, "--out", tmp_path, *QUICK, "--size", 0.1, "--cards", 0)
    assert found.code == 0
    named = found.out.rsplit(": ", 1)[1].strip().split(", ")
    assert sorted(named) == sorted(path.name for path in tmp_path.iterdir())
    page = (tmp_path / "report.html").read_text("utf-8")
    assert len(page.encode()) < 150_000
    assert payload(tmp_path)["side"] in (0, 14, 20, 28)
    assert call("map", run, "--out", tmp_path, *QUICK, "--size", 0).code == 2


def test_changed_and_missing_samples_are_left_out(own_run: Path, own_data: Path, tmp_path: Path, call: Call) -> None:
    (own_data / "train" / "digit-0" / "0.png").unlink()
    found = call("map", own_run, "--out", tmp_path / "out", *QUICK, "--data", own_data, "--json")
    assert found.code == 0, found.err
    assert (found.json["samples"], found.json["left_out"]) == (23, 1)
    ids = {line["id"] for line in rows(tmp_path / "out")}
    assert "train/digit-0/1.png" in ids
    assert "train/digit-0/0.png" not in ids


def test_without_training_data_there_is_no_map(own_data: Path, tmp_path: Path, call: Call) -> None:
    assert call("train", own_data, "--out", tmp_path / "fresh", "--epochs", 1, "--limit", 8).code == 0
    own_data.rename(tmp_path / "gone")
    found = call("map", tmp_path / "fresh", "--out", tmp_path / "out", *QUICK)
    assert found.code == 3
    assert "the training data cannot be opened" in found.last_line
    assert not (tmp_path / "out").exists()


@cases(
    "more",
    [
        ["--engine", "umap"],
        ["--groups", "0"],
        ["--cards", "-1"],
        ["--perplexity", "0"],
        ["--limit", "0"],
        ["--limit", "-1"],
        ["--limit", "1"],
        ["--seed", "-1"],
        ["--seed", str(2**32)],
    ],
)
def test_wrong_wishes_are_refused(run: Path, tmp_path: Path, call: Call, more: list[str]) -> None:
    assert call("map", run, "--out", tmp_path / "out", *more).code == 2
    assert not (tmp_path / "out").exists()


def test_test_samples_that_the_run_knows_are_pointed_out(run: Path, data: Path, tmp_path: Path, call: Call) -> None:
    found = call("map", run, "--out", tmp_path, *QUICK, "--test", data / "train")
    assert found.code == 0
    assert "24 of 24 test samples are also samples of the run" in found.err

"""`provnet robustness`: the files, the comparison with an isolated CNN, and what is refused."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import provnet
from provnet.report.records import percent
from provnet.runs.bank import withhold
from provnet.runs.run import write_run
from provnet.training.config import train_config
from tests.fitting import fit

from ..report.reading import Page
from .conftest import Call

QUICK = ("--attacks", "none", "--conditions", "blur-1,occlusion-4", "--device", "cpu")


@pytest.fixture(scope="session")
def runs(trained: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `cnn`, `a0`, `a05` and `a1` on the small folder of digits; made once."""
    root = tmp_path_factory.mktemp("robust")
    data, test = (provnet.open_data(trained[0], split=split) for split in ("train", "test"))
    common = {"test": test.spec, "device": "cpu"}
    quick = {"epochs": 2, "batch_size": 8}
    fit(data, config=train_config("fast", **quick, index_weight=0.0), out=root / "cnn", **common)
    for name, alpha in (("a0", 0.0), ("a05", 0.5), ("a1", 1.0)):
        fit(data, network="single", alpha=alpha, config=train_config("fast", **quick), out=root / name, **common)
    return root


def test_files_hold_every_network_condition_and_figure(runs: Path, tmp_path: Path, call: Call) -> None:
    folders = [runs / name for name in ("cnn", "a0", "a05", "a1")]
    found = call("robustness", *folders, "--out", tmp_path / "out", "--conditions", "blur-1", "--attacked", 4, "--json")
    assert found.code == 0, found.err
    words = Page((tmp_path / "out" / "report.html").read_text("utf-8")).words
    assert "attacks (*) are made against each network, on 4 of the pictures" in words
    assert "n = 8" in words and "n = 4" in words
    kept = json.loads((tmp_path / "out" / "robustness.json").read_text())
    assert kept == found.json
    assert [(one["name"], one["isolated"], one["alpha"]) for one in kept["networks"]] == [
        ("cnn", True, 0.0),
        ("a0", False, 0.0),
        ("a05", False, 0.5),
        ("a1", False, 1.0),
    ]
    for one in kept["networks"]:
        assert set(one["conditions"]) == {"clean", "blur-1", "fgsm", "pgd"}
        assert one["conditions"]["clean"]["top_1"]["n"] == 8
        assert one["conditions"]["pgd"]["top_1"]["n"] == 4
        assert ("same_exemplar" in one["conditions"]["clean"]) != one["isolated"]
    assert len(kept["against_isolated"]) == 3 * 4
    assert kept["about"]["n"] == 8
    assert set(kept["about"]["model_sha256"]) == {"cnn", "a0", "a05", "a1"}
    lines = list(csv.DictReader((tmp_path / "out" / "robustness.csv").read_text("utf-8").splitlines()))
    figures = sum(len(rates) - 1 for one in kept["networks"] for rates in one["conditions"].values())  # `fixed` apart
    assert len(lines) == figures
    same = [
        line for line in lines if (line["network"], line["condition"], line["figure"]) == ("a05", "blur-1", "top_1")
    ]
    assert float(same[0]["value"]) == kept["networks"][2]["conditions"]["blur-1"]["top_1"]["value"]


def test_pages_and_pictures_are_drawn(runs: Path, tmp_path: Path, call: Call) -> None:
    pytest.importorskip("matplotlib", reason="figures need the extra plots")
    found = call("robustness", runs / "a1", runs / "a0", runs / "a05", runs / "cnn", "--out", tmp_path, *QUICK)
    assert found.code == 0, found.err
    assert "same exemplar" in found.out
    page = Page((tmp_path / "report.html").read_text("utf-8"))
    assert page.unbalanced == page.open == []
    heads = [attributes["title"] for attributes in page.all("th") if attributes.get("scope") == "col"][:4]
    assert heads[0].startswith("isolated CNN")  # first, then by label mixing
    assert [words.rsplit(" ", 1)[1] for words in heads[1:]] == ["0", "0.5", "1"]
    assert len(page.all("figure", "panel")) == 3  # a curve a condition
    for name in ("conditions.png", "heatmap.png", "curves.png"):
        with Image.open(tmp_path / name) as picture:
            picture.verify()
    named = found.out.split(f"written to {tmp_path}: ")[1].strip().split(", ")
    assert sorted(named) == sorted(path.name for path in tmp_path.iterdir())


def test_without_an_isolated_cnn_nothing_is_compared(runs: Path, tmp_path: Path, call: Call) -> None:
    found = call("robustness", runs / "a0", "--out", tmp_path, *QUICK, "--json")
    assert found.code == 0
    assert found.json["against_isolated"] == []
    clean = found.json["networks"][0]["conditions"]["clean"]["top_1"]
    ends = " to ".join(percent(clean[end]).removesuffix(" %") for end in ("low", "high"))
    assert ends in Page((tmp_path / "report.html").read_text("utf-8")).words  # not only where one points
    assert "no run is an isolated CNN" in found.err
    assert "Better or worse" not in (tmp_path / "report.html").read_text("utf-8")


def test_pictures_without_an_exemplar_are_told(trained: tuple[Path, Path], tmp_path: Path, call: Call) -> None:
    data, test = (provnet.open_data(trained[0], split=split) for split in ("train", "test"))
    run = fit(data, head="exemplar", config=train_config("fast", epochs=2, batch_size=8))
    gone = int(np.bincount(provnet.explain(run, test.images, k=1).predicted).argmax())
    ids = [name for name, label in zip(run.samples.sample_ids, run.samples.labels, strict=True) if label == gone]
    run = replace(run, config=replace(run.config, test=test.spec))
    write_run(withhold(run, ids), tmp_path / "hidden")
    write_run(run, tmp_path / "whole")
    found = call("robustness", tmp_path / "hidden", tmp_path / "whole", "--out", tmp_path / "out", *QUICK)
    assert found.code == 0, found.err
    said = " ".join(found.err.split())
    assert "hidden: for up to" in said and "no sample may be named" in said and "whole: for up to" not in said
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "All samples of the predicted class are withheld." in page
    assert "not measured: nothing is withheld" in page
    kept = json.loads((tmp_path / "out" / "robustness.json").read_text())["networks"]
    assert ["unnamed" in one["conditions"]["clean"] for one in kept] == [True, False]


def test_the_same_seed_gives_the_same_figures_whatever_the_order(runs: Path, tmp_path: Path, call: Call) -> None:
    one, other = (
        call("robustness", *order, "--out", tmp_path, *QUICK, "--seed", 3, "--json").json
        for order in ((runs / "cnn", runs / "a05"), (runs / "a05", runs / "cnn"))
    )
    assert one["networks"] == other["networks"][::-1]


def test_data_and_limit_choose_the_test_samples(runs: Path, data: Path, tmp_path: Path, call: Call) -> None:
    found = call("robustness", runs / "a0", "--out", tmp_path, *QUICK, "--json", "--data", data / "train", "--limit", 5)
    assert found.json["about"]["n"] == 5
    assert "5 of 5 test samples are also training samples" in found.err


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        (["--conditions", "fog"], 2, 'unknown condition "fog"'),
        (["--attacks", "cw"], 2, 'unknown attack "cw"'),
        (["--epsilon", "2", "--conditions", "clean"], 2, "epsilon must lie above 0"),
        (["--limit", "0"], 2, "--limit must be 1 or more"),
        (["--data", "nowhere"], 2, "nowhere"),
    ],
)
def test_wrong_wishes_are_one_line(
    runs: Path, tmp_path: Path, call: Call, more: list[str], code: int, words: str
) -> None:
    found = call("robustness", runs / "a0", "--out", tmp_path / "out", *more)
    assert found.code == code
    assert words in found.last_line
    assert not (tmp_path / "out").exists()


def test_a_run_given_twice_or_of_other_classes_is_refused(runs: Path, tmp_path: Path, call: Call) -> None:
    assert "given twice" in call("robustness", runs / "a0", runs / "a0", "--out", tmp_path).last_line
    small = provnet.open_data("embedded").select(range(20))
    fit(small, config=train_config("fast", epochs=1), out=tmp_path / "other", device="cpu")
    found = call("robustness", runs / "a0", tmp_path / "other", "--out", tmp_path / "out", *QUICK)
    assert found.code == 2
    assert "classes" in found.last_line
    assert not (tmp_path / "out").exists()

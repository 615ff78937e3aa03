"""`provnet influence` and `provnet without`: what is foretold, what trainings find, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import provnet
from provnet.cli.app import main
from provnet.influence.of_run import about_influence, with_unit
from provnet.runs.run import read_run
from provnet.tools.credit.compute import credit
from provnet.tools.without import Without, compared
from tests.cases import cases


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    assert main(["train", "embedded", "--limit", "60", "--preset", "fast", "--epochs", "2", "--out", str(out)]) == 0
    assert main(["influence", str(out)]) == 0
    return out


def test_foretold_changes_are_minus_the_influence_of_the_group(
    folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run = read_run(folder)
    images = provnet.open_data("embedded", split="test").images[:5]
    capsys.readouterr()
    ids = ["--id", "train/0", "--id", "train/10"]
    assert main(["without", str(folder), "test:0..4", *ids, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    scores = run.scores(images, weights="influence")
    assert np.allclose(found["foretold"], -scores[:, [0, 10]].sum(1), atol=1e-4)
    assert found["group"] == 2 and found["found"] is None and found["unit"] is False
    assert main(["without", str(folder), "test:0..4", *ids, "--retrain", "2"]) == 0
    words = capsys.readouterr()
    assert "found change" in words.out and "rank correlation" in words.err and "2 trainings" in words.err


def test_the_unit_scales_all_weights(folder: Path, tmp_path: Path) -> None:
    run = read_run(folder)
    images = provnet.open_data("embedded", split="test").images[:3]
    twice = read_run(with_unit(run, (2.0, 1.0, 3.0), "a test").save(tmp_path / "kept"))
    assert about_influence(twice)["unit_high"] == 3.0
    plain = run.scores(images, weights="influence")
    assert np.allclose(twice.scores(images, weights="influence"), 2 * plain, atol=1e-3)
    assert provnet.explain(twice, images, weights="influence").in_log_odds
    again = with_unit(twice, (0.5, 0.1, 1.0), "another")
    assert np.allclose(again.scores(images, weights="influence"), plain, atol=1e-3)


def test_found_and_foretold_are_compared() -> None:
    foretold = Without(1, ("a",) * 5, np.zeros(5), np.array([1.0, 2.0, -1.0, 0.5, 3.0]), unit=False)
    changes = np.stack([2.9 * foretold.foretold, 3.1 * foretold.foretold])
    found = compared(foretold, changes)
    assert found.slope is not None and found.slope[0] == pytest.approx(3) and found.slope[1] < 3 < found.slope[2]
    assert found.rank == pytest.approx(1) and found.found is not None
    assert np.allclose(found.found[:, 0], 3 * foretold.foretold)


def test_credit_by_influence_goes_to_those_above_chance(folder: Path) -> None:
    run = read_run(folder)
    images = provnet.open_data("embedded", split="test").images[:20].numpy()
    people = ["even" if i % 2 == 0 else "odd" for i in range(60)]
    found = credit(run, images, people, weights="influence")
    named = provnet.explain(run, images, k=60, weights="influence")
    even = [sum(x.weight for x in one.depends_on if x.index % 2 == 0) for one in named if one.supported]
    whole = [sum(x.weight for x in one.depends_on) for one in named if one.supported]
    expected = np.mean([a / b for a, b in zip(even, whole, strict=True) if b > 0])
    share = next(one.share.value for one in found.ranking if one.name == "even")
    assert share == pytest.approx(expected, abs=0.02)


@cases(
    ("words", "said"),
    [
        (["--id", "train/nobody"], 'no sample "train/nobody"'),
        (["--source", "nobody"], "say nothing of sources"),
        ([], "no sample was named"),
        (["--id", "train/0", "--retrain", "1"], "2 or more"),
        (["--id", "train/0", "--keep"], "give both"),
    ],
)
def test_what_cannot_be_left_out_is_refused(
    folder: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["without", str(folder), "test:0", *words]) == 2
    assert said in capsys.readouterr().err

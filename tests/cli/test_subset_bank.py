"""Runs that index some samples, and whose bank changed since: what is said of samples that taught the network."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from provnet.runs.run import read_run

from .conftest import Call

WEIGHTS = "The trained weights still carry what they learned from it"
MAYBE = "The trained weights may carry what they learned from it"
SIZES = "the run was trained on 24 samples, of which 12 were indexed"


@pytest.fixture(scope="module")
def made(trained: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with keys over half of its data, in a folder with the data; copy before changing."""
    from provnet.cli import main

    root = tmp_path_factory.mktemp("subset-bank")
    shutil.copytree(trained[0], root / "data")
    wishes = ("--network", "class-independent", "--head", "exemplar", "--index-subset", "50%")
    words = ("train", root / "data", "--out", root / "run", *wishes, "--epochs", 1, "--batch-size", 8)
    assert main([str(word) for word in words]) == 0
    return root


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made / "run", tmp_path / "run"))


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    """The data, to be changed; `--data` leads there."""
    return Path(shutil.copytree(made / "data", tmp_path / "copy"))


def without_index(run: Path, data: Path) -> list[Path]:
    """The training files that the run does not list."""
    known = set(read_run(run).samples.paths)
    return [path for path in sorted(data.glob("train/*/*.png")) if path.relative_to(data).as_posix() not in known]


def test_what_was_trained_on_without_an_index_is_not_called_untrained(made: Path, run: Path, call: Call) -> None:
    found = call("add", run, made / "data", "--skip-known")
    assert "added 12 samples" in found.out
    assert "was not trained on" not in found.out
    assert f"may have been trained on what was added, which it cannot tell: {SIZES}" in found.out
    card = (run / "README.md").read_text()
    assert "never trained on" not in card
    assert "of these added since training, may have been trained on" in card
    assert SIZES in card
    other = without_index(run=made / "run", data=made / "data")[0].relative_to(made / "data").as_posix()
    found = call("withhold", run, "--id", other, "--erase")
    assert found.code == 0
    assert f"{MAYBE}, although it was added after training: {SIZES}" in found.err


def test_add_says_it_as_json(made: Path, run: Path, place: Path, call: Call) -> None:
    assert call("add", run, made / "data", "--skip-known", "--json").json["may_have_been_trained_on"] == SIZES
    assert "may_have_been_trained_on" not in call("add", run, made / "data", "--skip-known", "--json").json
    assert "may_have_been_trained_on" not in call("add", place / "run", place / "more", "--json").json


def test_an_erased_sample_that_comes_back_was_trained_on(place: Path, data: Path, call: Call) -> None:
    gone = "train/digit-2/3.png"
    assert WEIGHTS in call("withhold", place / "run", "--id", gone, "--erase").err
    found = call("add", place / "run", data, "--skip-known")
    assert "may have been trained on what was added, which it cannot tell: 1 was erased since training" in found.out
    assert "never trained on" not in (place / "run" / "README.md").read_text()
    assert MAYBE in call("withhold", place / "run", "--id", gone, "--erase").err


def test_what_was_surely_not_trained_on_leaves_nothing(place: Path, call: Call) -> None:
    assert "The network was not trained on what was added" in call("add", place / "run", place / "more").out
    found = call("withhold", place / "run", "--id", "more/train/digit-1/1.png", "--erase")
    assert found.code == 0
    assert "weights" not in found.err


def erased_one(run: Path, call: Call) -> None:
    assert call("withhold", run, "--id", read_run(run).samples.sample_ids[0], "--erase").code == 0


def test_verify_sees_an_edit_without_an_index_after_erasing(run: Path, copy: Path, call: Call) -> None:
    gone = copy / read_run(run).samples.sample_ids[0]
    erased_one(run, call)
    gone.unlink()
    assert call("verify", run, "--data", copy, "--strict").code == 0
    other = without_index(run, copy)[-1]
    held = other.read_bytes()
    other.write_bytes((copy / "test/digit-0/0.png").read_bytes())
    found = call("verify", run, "--data", copy)
    assert found.code == 6
    assert "the other samples, which have no index, are not those of training time: 12 now" in found.out
    other.write_bytes(held)
    assert call("verify", run, "--data", copy, "--strict").code == 0
    other.unlink()
    assert call("verify", run, "--data", copy).code == 6


def test_erased_samples_that_are_still_among_the_data_are_not_called_verified(
    run: Path, copy: Path, call: Call
) -> None:
    erased_one(run, call)
    found = call("verify", run, "--data", copy)
    assert found.code == 0
    assert "cannot be compared: 1 of 13 were erased or added, unknown which; remove what was erased" in found.out
    assert found.out.splitlines()[-1] == "the files are whole; the data are not verified, or not all of them"
    assert call("verify", run, "--data", copy, "--strict").code == 6
    assert "cannot be compared" in call("verify", run, "--data", copy, "--json").json["rest_not_compared"]
    without_index(run, copy)[-1].unlink()  # as many as at training time, but not those
    assert call("verify", run, "--data", copy).code == 6


def test_the_app_says_what_cannot_be_compared(
    run: Path, copy: Path, call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    from provnet.cli.app_command import gather

    erased_one(run, call)
    served = gather(run, None, str(copy), None, "cpu")
    assert any("cannot be compared: 1 of 13 were erased or added" in line for line in served.facts)
    assert "training data: the other samples, which have no index, cannot be compared" in capsys.readouterr().err


def test_verify_knows_added_samples_that_had_no_index(made: Path, run: Path, copy: Path, call: Call) -> None:
    assert call("add", run, made / "data", "--skip-known").code == 0
    assert call("verify", run, "--data", copy, "--strict").code == 0
    other = without_index(made / "run", copy)[0]
    other.unlink()
    assert call("verify", run, "--data", copy).code == 6


def test_added_samples_put_beside_the_training_data(run: Path, copy: Path, place: Path, call: Call) -> None:
    assert call("add", run, place / "more").code == 0
    for path in (place / "more").rglob("*.png"):
        shutil.copy(path, copy / "train" / path.parent.name / f"more-{path.name}")
    shutil.rmtree(place / "more")
    assert call("verify", run, "--data", copy).code == 0
    gone = copy / read_run(run).samples.sample_ids[0]
    erased_one(run, call)
    gone.unlink()
    found = call("verify", run, "--data", copy, "--json")
    assert found.code == 0
    assert "rest" not in found.json and "rest_not_compared" not in found.json
    next(path for path in without_index(run, copy)[1:] if not path.name.startswith("more-")).unlink()
    found = call("verify", run, "--data", copy, "--strict")  # an added one might have been trained on in its place
    assert found.code == 6
    assert "which have no index, cannot be compared" in found.out

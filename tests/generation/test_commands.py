"""train --task generate, generate, interpolate, explain, evaluate, info on one small run."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from PIL import Image

from provnet.cli import main
from tests.cases import cases
from tests.cli.conftest import Call, call, write_digits  # noqa: F401

TRAIN = ("--task", "generate", "--generator", "faces", "--epochs", "2", "--batch-size", "8")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with digits and a run, made once."""
    root = tmp_path_factory.mktemp("generating")
    write_digits(root / "data")
    assert main(["train", str(root / "data"), "--out", str(root / "run"), *TRAIN]) == 0
    return root


def test_pictures_with_their_sources(place: Path, tmp_path: Path, call: Call) -> None:  # noqa: F811
    done = call("generate", place / "run", "-n", 3, "--seed", 5, "--out", tmp_path / "made")
    assert done.code == 0, done.err
    names = sorted(p.name for p in (tmp_path / "made").iterdir())
    assert names == ["generated.json", "pictures", "report.html", "sheet.png"]
    values = json.loads((tmp_path / "made" / "generated.json").read_text())
    assert [len(one["exemplars"]) for one in values["pictures"]] == [5, 5, 5]
    assert values["about"]["seed"] == 5
    page = (tmp_path / "made" / "report.html").read_text("utf-8")
    assert page.count('class="explained') == 3
    assert "Index accuracy" in page
    assert "<script" not in page
    with Image.open(tmp_path / "made" / "sheet.png") as sheet:
        assert sheet.width > 1000
    pictures = sorted((tmp_path / "made" / "pictures").iterdir())
    assert [path.name for path in pictures] == ["generated-1.png", "generated-2.png", "generated-3.png"]
    again = call("generate", place / "run", "-n", 3, "--seed", 5, "--out", tmp_path / "again", "--json")
    assert again.json == values
    assert all(p.read_bytes() == (tmp_path / "again" / "pictures" / p.name).read_bytes() for p in pictures)


def test_pictures_of_an_earlier_call_do_not_stay_among_the_new(place: Path, tmp_path: Path, call: Call) -> None:  # noqa: F811
    pictures = tmp_path / "made" / "pictures"
    assert call("generate", place / "run", "-n", 4, "--out", tmp_path / "made").code == 0
    (pictures / "mine.png").write_bytes((pictures / "generated-4.png").read_bytes())
    assert call("generate", place / "run", "-n", 2, "--out", tmp_path / "made").code == 0
    assert sorted(path.name for path in pictures.iterdir()) == ["generated-1.png", "generated-2.png", "mine.png"]
    assert call("generate", place / "run", "-n", 10, "--out", tmp_path / "made").code == 0
    assert sorted(path.name for path in pictures.iterdir())[::10] == ["generated-01.png", "mine.png"]


def test_a_path_with_an_animation(place: Path, tmp_path: Path, call: Call) -> None:  # noqa: F811
    ends = sorted((place / "data" / "test").rglob("*.png"))[:2]
    done = call("interpolate", place / "run", *ends, "--steps", 4, "--out", tmp_path / "path", "--json")
    assert done.code == 0, done.err
    assert len(done.json["steps"]) == 4
    firsts = [one["exemplars"][0]["sample_id"] for one in done.json["steps"]]
    changes = sum(one != other for one, other in itertools.pairwise(firsts))
    assert changes < 3  # else whole records, weights included, would pass for ids
    assert done.json["about"]["changes"] == changes
    with Image.open(tmp_path / "path" / "path.gif") as moving:
        assert moving.is_animated  # type: ignore[attr-defined]
        assert moving.n_frames > 10  # type: ignore[attr-defined]
    assert "data:image/gif" in (tmp_path / "path" / "report.html").read_text("utf-8")
    assert (tmp_path / "path" / "sheet.png").is_file()


def test_explain_rebuilds_and_names_sources(place: Path, tmp_path: Path, call: Call) -> None:  # noqa: F811
    done = call(
        "explain", place / "run", "test:0", "--html", tmp_path / "a.html", "--png", tmp_path / "a.png", "--json"
    )
    assert done.code == 0, done.err
    (record,) = done.json
    assert 0 < record["reconstruction_mse"] < 1
    assert record["exemplars"]
    assert "rebuilt from its latents" in (tmp_path / "a.html").read_text("utf-8")
    assert "rebuilt from its latents with a mean square error" in call("explain", place / "run", "test:0").out


def test_evaluate_and_info_tell_what_a_generator_is_worth(place: Path, call: Call) -> None:  # noqa: F811
    done = call("evaluate", place / "run", "--json")
    assert done.code == 0, done.err
    made = done.json["generation"]
    assert made["train"]["index_accuracy_drawn"]["n"] == 24
    assert made["test"]["reconstruction_bce"]["n"] == 8
    assert made["frechet"]["distance"]["value"] > 0
    told = call("info", place / "run").out
    assert "Fréchet distance, in latents of this run" in told
    assert "vae-faces" in told
    assert call("verify", place / "run").code == 0


@cases(
    ("arguments", "words"),
    [
        (
            ("generate", "RUN", "--label", "digit-9"),
            'unknown label "digit-9"; this run has digit-0, digit-1, digit-2, digit-3',
        ),
        (("generate", "RUN", "-n", "0"), "-n must lie in 1..10,000, got 0"),
        (("generate", "RUN", "-k", "0"), "-k must be 1 or more, got 0"),
        (("interpolate", "RUN", "test:0", "test:99"), "test:99 is not there: the test split has 8 samples"),
        (("interpolate", "RUN", "test:0", "test:1", "--steps", "1"), "steps must lie in 2..200, got 1"),
        (("train", "DATA", "--generator", "paper"), "--generator goes with --task generate"),
        (("train", "DATA", "--task", "generate", "--generator", "gan"), 'unknown generator "gan"'),
        (("train", "DATA", "--task", "dream"), 'unknown task "dream"'),
        (
            ("train", "DATA", "--task", "generate", "--network", "single"),
            "leave --network out, choose with --generator",
        ),
    ],
)
def test_refused(place: Path, tmp_path: Path, call: Call, arguments: tuple[str, ...], words: str) -> None:  # noqa: F811
    names = {"RUN": str(place / "run"), "DATA": str(place / "data")}
    done = call(*(names.get(text, text) for text in arguments), "--out", tmp_path / "out")
    assert done.code == 2
    assert words in done.last_line
    assert not (tmp_path / "out").exists()


def test_train_draws_its_course_and_says_what_comes_next(place: Path) -> None:
    with Image.open(place / "run" / "course.png") as course:
        assert course.width > 1000

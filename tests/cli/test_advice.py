"""What commands advise: files that went with a changed run, data of another shape, what comes after debugging."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from .conftest import Call


def test_each_file_that_went_is_named_with_the_command_that_makes_it(place: Path, call: Call) -> None:
    run = place / "run"
    for name in ("evaluation.json", "membership.json", "report.html", "course.png"):
        (run / name).write_text("{}")
    found = call("withhold", run, "--id", "train/digit-2/3.png")
    assert found.code == 0, found.err
    words = " ".join(found.err.split())
    assert "removed evaluation.json, membership.json and report.html," in words
    assert f"evaluation.json: provnet evaluate {run};" in words
    assert f"membership.json: provnet audit {run} --out DIR;" in words
    assert (run / "course.png").exists()  # the course of training is still what it was
    (run / "membership.json").write_text("{}")
    words = call("withhold", run, "--id", "train/digit-2/3.png", "--restore").err
    assert "removed membership.json," in words
    assert "provnet evaluate" not in words


def test_the_course_of_training_goes_with_a_run_that_is_replaced(place: Path, data: Path, call: Call) -> None:
    (place / "run" / "course.png").write_text("")
    assert call("train", data, "--out", place / "run", "--epochs", "1", "--overwrite").code == 0
    assert not (place / "run" / "course.png").exists()


@pytest.mark.parametrize(
    "command",
    [
        ("evaluate", "RUN", "MESSY"),
        ("audit", "RUN", "--nonmembers", "MESSY", "--out", "OUT"),
        ("check", "RUN", "--other", "MESSY", "--out", "OUT"),
        ("map", "RUN", "--test", "MESSY", "--out", "OUT"),
        ("add", "RUN", "MESSY"),
    ],
)
def test_pictures_of_other_shapes_are_refused_with_what_the_command_can_do(
    place: Path, call: Call, command: tuple[str, ...]
) -> None:
    for number, (mode, side) in enumerate((("L", 28), ("RGB", 28), ("L", 40))):
        (place / "messy" / "digit-0").mkdir(parents=True, exist_ok=True)
        Image.new(mode, (side, side)).save(place / "messy" / "digit-0" / f"{number}.png")
    names = {"RUN": place / "run", "MESSY": place / "messy", "OUT": place / "out"}
    found = call(*(names.get(word, word) for word in command))
    assert found.code == 3
    assert "28 x 28: 2, 40 x 40: 1" in found.last_line
    assert "Pictures for a run that is trained must have its shape (provnet info RUN)" in found.last_line
    assert "pass size (train --size)" in found.last_line
    assert "(--" not in found.last_line  # such would be options of this command
    assert "input 1 x 28 x 28" in call("info", place / "run").out

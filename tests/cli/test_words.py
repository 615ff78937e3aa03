"""What the command line says: options by their own names, one range of a batch, class names of any length."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import provnet
from provnet.base.errors import UsageError
from provnet.cli import main
from provnet.training.config import TrainConfig, train_config
from tests.cases import cases

from .conftest import Call

LONG = "x" * 2_000 + "y" * 1_995 + " tail"


def set_of(folder: Path, *pictures: tuple[np.ndarray, str]) -> Path:
    """A picture a class."""
    for number, (pixels, ending) in enumerate(pictures):
        (folder / f"class-{number}").mkdir(parents=True)
        Image.fromarray(pixels).save(folder / f"class-{number}" / f"0.{ending}", append_images=[], save_all=False)
    return folder


GREY, COLOUR = np.zeros((9, 9), np.uint8), np.zeros((9, 9, 3), np.uint8)
FLOATS, LARGE = np.zeros((9, 9), np.float32), np.zeros((12, 9), np.uint8)


@cases(
    ("pictures", "given", "words"),
    [
        ([(FLOATS, "tif")], [], "pass value_range (train --value-range)"),
        ([(GREY, "png")], ["--size", "0"], "--size N or HxW"),
        ([(GREY, "png")], ["--value-range", "2", "1"], "value_range (--value-range) must"),
        ([(GREY, "png")], ["--cache", ""], "must be a folder (--cache DIR)"),
        ([(GREY, "png"), (GREY, "png")], ["--head", "exemplar", "--key-width", "9999"], "key_width (--key-width) must"),
        ([(GREY, "png"), (GREY, "png")], ["--head", "exemplar", "--keys", "fp8"], 'unknown key_type (--keys) "fp8"'),
        (
            [(GREY, "png"), (GREY, "png")],
            ["--backbone", "sharing-small", "--head", "plain"],
            "conditional off (--no-conditional)",
        ),
    ],
)
def test_advice_names_the_option(
    pictures: list[tuple[np.ndarray, str]], given: list[str], words: str, tmp_path: Path, call: Call
) -> None:
    data = set_of(tmp_path / "data", *pictures)
    found = call("train", data, "--out", tmp_path / "run", "--epochs", 1, *given)
    assert found.code in (2, 3)
    assert words in found.last_line


def test_advice_on_one_frame_of_many_names_the_option(tmp_path: Path, call: Call) -> None:
    (tmp_path / "data" / "a").mkdir(parents=True)
    frames = [Image.new("L", (9, 9), grey) for grey in (0, 255)]
    frames[0].save(tmp_path / "data" / "a" / "0.tif", save_all=True, append_images=frames[1:])
    found = call("train", tmp_path / "data", "--out", tmp_path / "run")
    assert "choose one of 0..1 with frame (train --frame)" in found.last_line


def test_data_given_as_arrays_are_asked_for_as_a_file(tmp_path: Path, call: Call) -> None:
    images, labels = np.arange(8 * 64, dtype=np.uint8).reshape(8, 8, 8), np.arange(8) % 2
    provnet.ProvenanceClassifier(epochs=1).fit(images, labels).save(tmp_path / "run")
    found = call("debug", tmp_path / "run", "--out", tmp_path / "out")
    assert "on the command line as an .npz file" in found.last_line
    np.savez(tmp_path / "data.npz", images=images, labels=labels)
    assert call("debug", tmp_path / "run", "--out", tmp_path / "out", "--data", tmp_path / "data.npz").code == 0


@pytest.mark.parametrize("size", [-1, 0, 1, 1_000_001])
def test_one_range_of_a_batch_everywhere(size: int, data: Path, tmp_path: Path, call: Call) -> None:
    words = f"batch_size (--batch-size) must be a whole number from 2 to 1,000,000, got {size}; leave it out"
    for task in ("classify", "generate"):
        found = call("train", data, "--out", tmp_path / "run", "--task", task, "--batch-size", size)
        assert found.code == 2
        assert words in found.last_line
    with pytest.raises(UsageError) as error:
        train_config("fast", batch_size=size)
    assert words in str(error.value)
    if size != 0:  # in a recipe: chosen by the number of samples
        with pytest.raises(UsageError) as error:
            TrainConfig(batch_size=size)
        assert words in str(error.value)
    assert "2 to 1,000,000" in " ".join(call("train", "--help-all").out.replace("│", " ").split())


@pytest.fixture(scope="module")
def long_named(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a class of 4,000 characters."""
    folder = tmp_path_factory.mktemp("long")
    pixels = np.random.default_rng(0).integers(0, 256, (16, 8, 8), dtype=np.uint8)
    names = np.array([LONG, "cat"] * 8)
    held = {"test_images": pixels[12:], "test_labels": names[12:]}
    np.savez(folder / "data.npz", images=pixels[:12], labels=names[:12], **held)
    assert main(["train", str(folder / "data.npz"), "--out", str(folder / "run"), "--epochs", "1"]) == 0
    return folder


@pytest.mark.parametrize("command", [["explain", "test:0..3"], ["info"], ["member", "test:0..3"]])
def test_long_names_of_classes_are_cut_on_the_terminal(command: list[str], long_named: Path, call: Call) -> None:
    found = call(command[0], long_named / "run", *command[1:])
    assert found.code == 0, found.err
    whole = found.out + found.err
    assert "x" * 100 not in whole
    assert "x…" in whole
    assert "y tail" in whole


def test_long_names_stay_whole_in_json(long_named: Path, call: Call) -> None:
    found = call("explain", long_named / "run", "test:0..3", "-k", 12, "--json")
    assert LONG in {item["label"] for one in found.json for item in one["exemplars"]} | {
        one["predicted"] for one in found.json
    }


def test_long_names_are_cut_in_errors(long_named: Path, tmp_path: Path, call: Call) -> None:
    np.savez(tmp_path / "other.npz", images=np.zeros((2, 8, 8), np.uint8), labels=np.array(["z" * 4_000, "cat"]))
    found = call("evaluate", long_named / "run", tmp_path / "other.npz")
    assert found.code == 2
    assert "classes that the run does not know" in found.last_line
    assert len(found.last_line) < 500

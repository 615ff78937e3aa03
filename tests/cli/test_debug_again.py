"""From debugging back to training: the suggested command keeps the test split, the network and the recipe."""

from __future__ import annotations

import csv
import html
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import provnet
from provnet.runs.run import read_run, read_samples
from provnet.tools.debug.files import recipe_options, subset_options
from provnet.tools.debug.signals import Anomalies, anomalies

from .conftest import CLASSES, PER_CLASS, Call

pytestmark = pytest.mark.usefixtures("telling")
WISHES = ("--network", "class-independent", "--key-width", "16", "--epochs", "2", "--batch-size", "8", "--seed", "3")
LOW = ("--threshold", "0.000001")  # flags every label


def suggested(out: str) -> list[str]:
    (line,) = [line for line in out.splitlines() if line.startswith("next: provnet ")]
    words = shlex.split(line)
    assert words[-2:] == ["--out", "RUN"]
    return words[2:-1]


def unseen(run: Path) -> set[str]:
    test = read_run(run).test()
    assert test is not None
    return set(test.samples.sample_ids)


@pytest.mark.parametrize("review", [False, True])
def test_what_was_held_out_stays_held_out(call: Call, data: Path, tmp_path: Path, review: bool) -> None:
    first, out = tmp_path / "first", tmp_path / "d"
    assert call("train", data / "train", "--holdout", 0.2, *WISHES, "--out", first).code == 0
    found = call("debug", first, "--out", out, *LOW, *(["--review"] if review else []))
    assert found.code == 0, found.err
    words = suggested(found.out)
    name = "decisions.csv" if review else "relabel.csv"
    assert words[1:-1] == [str(data / "train"), "--holdout", "0.2", *WISHES, "--apply", str(out / name)]
    assert (out / "relabel.csv").exists() != review
    again = call(*words, tmp_path / "again")
    assert again.code == 0, again.err
    with (out / name).open(encoding="utf-8", newline="") as file:
        relabelled = {row["sample_id"]: row["new_label"] for row in csv.DictReader(file) if row["new_label"]}
    assert relabelled
    before, (config, after) = read_samples(first)[1], read_samples(tmp_path / "again")
    assert unseen(tmp_path / "again") == unseen(first) != set()
    assert set(after.sample_ids) == set(before.sample_ids)
    for name, label in relabelled.items():
        assert after.class_names[after.labels[after.id_places[name]]] == label
    assert (config.network.head, config.network.key_width) == ("exemplar", 16)
    assert call("verify", tmp_path / "again", "--strict").code == 0


def test_the_test_split_of_a_folder_stays(call: Call, run: Path, tmp_path: Path) -> None:
    found = call("debug", run, "--out", tmp_path / "d", *LOW)
    assert call(*suggested(found.out), tmp_path / "again", "--epochs", 1).code == 0
    assert unseen(tmp_path / "again") == unseen(run) != set()


def test_what_was_erased_is_not_trained_on_again(call: Call, data: Path, tmp_path: Path) -> None:
    first, gone = tmp_path / "first", "digit-2/3.png"
    assert call("train", data / "train", *WISHES, "--out", first).code == 0
    assert call("withhold", first, "--id", gone, "--erase").code == 0
    found = call("debug", first, "--out", tmp_path / "d", *LOW)
    words = suggested(found.out)
    assert words[1] == str(tmp_path / "d" / "corrected.csv")
    assert call(*words, tmp_path / "again").code == 0
    after = read_samples(tmp_path / "again")[1]
    assert len(after) == PER_CLASS * CLASSES - 1
    assert gone not in after.sample_ids


@pytest.mark.parametrize("way", [(), ("--erase",)])
def test_decisions_to_edit_are_applied_to_data_with_withheld_samples(
    call: Call, data: Path, tmp_path: Path, way: tuple[str, ...]
) -> None:
    first, out = tmp_path / "first", tmp_path / "d"
    assert call("train", data / "train", "--holdout", 0.2, *WISHES, "--out", first).code == 0
    before = read_samples(first)[1].sample_ids
    gone, other = before[0], before[-1]
    assert call("withhold", first, "--id", gone, *way).code == 0
    found = call("debug", first, "--out", out, "--review", *LOW)
    words = suggested(found.out)
    assert words[1:-1] == [str(data / "train"), "--holdout", "0.2", *WISHES, "--apply", str(out / "decisions.csv")]
    edited(out / "decisions.csv", other, "digit-0")
    assert call(*words, tmp_path / "again").code == 0
    after = read_samples(tmp_path / "again")[1]
    assert set(after.sample_ids) == set(before) - {gone}
    assert after.class_names[after.labels[after.id_places[other]]] == "digit-0"
    assert unseen(tmp_path / "again") == unseen(first) != set()


def test_decisions_after_decisions_go_on_with_what_is_held_out_anew(call: Call, data: Path, tmp_path: Path) -> None:
    first = tmp_path / "first"
    assert call("train", data / "train", "--holdout", 0.2, *WISHES, "--out", first).code == 0
    assert call("debug", first, "--out", tmp_path / "d", *LOW).code == 0
    wishes = ("--apply", tmp_path / "d" / "relabel.csv", "--holdout", 0.2, *WISHES)
    assert call("train", data / "train", *wishes, "--out", tmp_path / "second").code == 0
    words = suggested(call("debug", tmp_path / "second", "--out", tmp_path / "e", *LOW).out)
    assert words[1] == str(tmp_path / "e" / "corrected.csv")
    assert words[4:6] == ["--holdout", "0.2"]
    assert call(*words, tmp_path / "third").code == 0
    assert unseen(tmp_path / "third")
    found = call("debug", tmp_path / "second", "--out", tmp_path / "f", "--review", *LOW)
    assert suggested(found.out)[1] == str(tmp_path / "f" / "corrected.csv")
    assert "takes corrected.csv alone, without what you change in decisions.csv" in " ".join(found.err.split())


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("--index-subset", "50%"),) * 2,
        (("--index-subset", "8", "--select", "prototypes", "--subset-classes-on", "subset"),) * 2,
        (("--index-subset", "50%", "--subset-classes-on", "all"), ("--index-subset", "50%")),
    ],
)
def test_the_index_is_over_as_many_samples_again(
    call: Call, data: Path, tmp_path: Path, asked: tuple[str, ...], said: tuple[str, ...]
) -> None:
    assert call("train", data, *WISHES, *asked, "--out", tmp_path / "run").code == 0
    words = suggested(call("debug", tmp_path / "run", "--out", tmp_path / "d", *LOW).out)
    assert words[2:-3] == [*WISHES, *said]
    assert call(*words, tmp_path / "again").code == 0
    (first, _), (second, _) = read_samples(tmp_path / "run"), read_samples(tmp_path / "again")
    for name in ("asked", "select", "classes_on", "of"):  # with other labels a percentage may be another number
        assert first.training["subset"][name] == second.training["subset"][name]


def test_what_no_option_names_is_said_as_near_as_can_be(call: Call, data: Path, run: Path, tmp_path: Path) -> None:
    wishes = ("--index-subset", "50%", "--select", "boundary", "--select-from", run)
    assert call("train", data, *WISHES, *wishes, "--out", tmp_path / "run").code == 0
    words = suggested(call("debug", tmp_path / "run", "--out", tmp_path / "d", *LOW).out)
    assert words[2:-3] == [*WISHES, *wishes[:-1], "FEATURES_RUN"]
    config = read_samples(tmp_path / "run")[0]
    given = {"classes_on": "all", "indexed": 12, "of": 24}  # of positions
    training = {**config.training, "subset": given, "machine": {"processes": 2}}
    assert subset_options(replace(config, training=training)) == " --index-subset 12"
    assert recipe_options(replace(config, training=training)).endswith(" --seed 3 --devices 2")
    assert subset_options(replace(config, training={"subset": [1, 2]})) == ""


def test_a_generator_is_suggested_as_one(call: Call, data: Path, tmp_path: Path) -> None:
    wishes = ("--task", "generate", "--generator", "faces", "--epochs", "1", "--batch-size", "8")
    assert call("train", data, *wishes, "--out", tmp_path / "run").code == 0
    words = suggested(call("debug", tmp_path / "run", "--out", tmp_path / "d", *LOW).out)
    assert words[2:-3] == list(wishes)


def edited(path: Path, name: str, label: str) -> None:
    """Decide about one sample of decisions.csv, as in an editor."""
    lines = path.read_text("utf-8").splitlines()
    (row,) = [line for line in lines if line.startswith(f"{name},")]
    cells = row.split(",")
    cells[2:4] = ["relabel", label]
    path.write_text("\n".join([",".join(cells) if line == row else line for line in lines]) + "\n", "utf-8")


def all_odd(*given: Any) -> Anomalies:
    found = anomalies(*given)
    return replace(found, score=np.ones_like(found.score))


@pytest.mark.parametrize("kind", ["folder", "array file"])
def test_decisions_that_are_edited_are_what_is_applied(
    call: Call, data: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where nothing is sure enough to be suggested, and where corrected.csv holds decisions, too."""
    monkeypatch.setattr("provnet.tools.debug.compute.anomalies", all_odd)
    source = data / "train"
    if kind == "array file":
        opened = provnet.open_data(source)
        source = tmp_path / "few.npz"
        labels = [opened.class_names[label] for label in opened.labels]
        np.savez(source, images=opened.images.numpy(), labels=labels, ids=opened.samples.sample_ids)
    assert call("train", source, *WISHES, "--out", tmp_path / "first").code == 0
    found = call("debug", tmp_path / "first", "--out", tmp_path / "d", "--review", "--device", "cpu")
    assert found.code == 0, found.err
    assert "labels flagged          0 " in found.out
    doubt = f"{PER_CLASS * CLASSES} samples are odd, and a network can memorise wrong labels"
    assert doubt in found.err
    assert f"No label reaches 50 %. Still, {doubt}" in (tmp_path / "d" / "report.html").read_text("utf-8")
    words = suggested(found.out)
    decisions = tmp_path / "d" / "decisions.csv"
    assert f"edit {decisions} first" in found.out
    assert words[1] == str(source)
    assert words[words.index("--apply") + 1] == str(decisions)
    assert words[-3:-1] == ["--device", "cpu"]
    name = read_samples(tmp_path / "first")[1].sample_ids[0]
    edited(decisions, name, "digit-3")
    assert call(*words, tmp_path / "again").code == 0
    after = read_samples(tmp_path / "again")[1]
    assert after.class_names[after.labels[after.id_places[name]]] == "digit-3"


def test_the_device_that_was_asked_for_is_repeated(call: Call, run: Path, tmp_path: Path) -> None:
    without = suggested(call("debug", run, "--out", tmp_path / "d", *LOW).out)
    words = suggested(call("debug", run, "--out", tmp_path / "d", *LOW, "--device", "cpu").out)
    assert words == [*without[:-1], "--device", "cpu", "--out"]
    assert call(*words, tmp_path / "again", "--epochs", 1).code == 0


def steps(page: Path) -> list[str]:
    """The commands that the page suggests."""
    part = "".join(re.findall(r'<ul class="steps">(.*?)</ul>', page.read_text("utf-8"), re.DOTALL))
    return [html.unescape(re.sub("<[^>]+>", "", code)) for code in re.findall("<code>(.*?)</code>", part, re.DOTALL)]


def test_the_commands_of_the_page_can_be_pasted(call: Call, run: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "my findings"
    given = ("--data", data, "--threshold", "0.25", "--device", "cpu")
    assert call("debug", run, "--out", out, *given).code == 0
    (review,) = steps(out / "report.html")
    words = shlex.split(review)
    assert words == [
        "provnet",
        "debug",
        str(run),
        "--out",
        str(out),
        *map(str, given[:4]),
        "--review",
        "--device",
        "cpu",
    ]
    assert call(*words[1:]).code == 0
    assert (out / "decisions.csv").exists()
    assert steps(out / "report.html") == []  # once more it would be refused, as the file may be edited by now


def test_where_no_command_is_suggested_for_decisions_to_edit_it_is_said_why(
    call: Call, data: Path, tmp_path: Path
) -> None:
    pictures = shutil.copytree(data / "train", tmp_path / "pictures")
    shutil.copy(pictures / "digit-0" / "0.png", pictures / "digit-1" / "same.png")  # two labels for one picture
    first, decisions = tmp_path / "first", tmp_path / "decisions.csv"
    assert call("train", pictures, *WISHES, "--out", first).code == 0
    sample = read_run(first).samples
    row = sample.sample_ids.index("digit-2/1.png")
    decisions.write_text(f"sample_id,sha256,decision,new_label\ndigit-2/1.png,{sample.hex(row)},relabel,digit-3\n")
    assert call("train", pictures, "--apply", decisions, *WISHES, "--out", tmp_path / "second").code == 0
    found = call("debug", tmp_path / "second", "--out", tmp_path / "e", "--review", "--threshold", 0.99)
    assert (tmp_path / "e" / "decisions.csv").read_bytes().count(b"\n") > 1
    assert "next: " not in found.out
    assert "apply the edited decisions.csv to corrected.csv" in " ".join(found.err.split())

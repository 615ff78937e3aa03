"""What `provnet debug` suggests after samples were withheld, erased or added: they are not trained on again."""

from __future__ import annotations

import csv
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from torch import nn

import provnet
import provnet.data.apply
from provnet.cli import main
from provnet.runs.run import read_run, read_samples
from provnet.tools.debug.files import held_rows
from provnet.training.config import train_config
from tests.fitting import fit

from .conftest import CLASSES, PER_CLASS, Call
from .test_debug_again import LOW, WISHES, suggested, unseen

COUNT = 40
pytestmark = pytest.mark.usefixtures("telling")
WAYS = [pytest.param(["--erase"], id="erased"), pytest.param([], id="withheld")]


def write_npz(place: Path, images: np.ndarray, labels: np.ndarray, *, names: bool = True) -> None:
    ids = {"ids": np.array([f"id{i:03}" for i in range(len(images))])} if names else {}
    np.savez(place, images=images, labels=labels, **ids)


def digits(count: int = COUNT) -> tuple[np.ndarray, np.ndarray]:
    data = provnet.open_data("embedded", limit=count)
    return data.images[:, 0].numpy(), data.labels.numpy()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data as one file, with and without names, and a run on each; copy before changing."""
    root = tmp_path_factory.mktemp("after")
    for name in ("named", "plain"):
        write_npz(root / f"{name}.npz", *digits(), names=name == "named")
        assert main([str(word) for word in ("train", root / f"{name}.npz", *WISHES, "--out", root / name)]) == 0
    return root


@pytest.fixture
def own(made: Path, tmp_path: Path) -> Path:
    """A copy of these runs; their data stay where they are."""
    for name in ("named", "plain"):
        shutil.copytree(made / name, tmp_path / name)
    return tmp_path


def contents(run: Path) -> set[str]:
    table = read_samples(run)[1]
    return {table.hex(i) for i in range(len(table))}


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("way", WAYS)
def test_samples_of_arrays_stay_out(call: Call, own: Path, way: list[str]) -> None:
    run, before = own / "named", read_samples(own / "named")[1]
    assert call("withhold", run, "--id", "id007", *way).code == 0
    found = call("debug", run, "--out", own / "d", *LOW, "--json")
    assert found.json["corrected_left_out"] == 1
    kind = "not in the run, where erased ones could be among them" if way else "withheld"
    assert f"corrected.csv drops 1 sample: {kind}; training with it would do without" in found.err
    again = call(*suggested(call("debug", run, "--out", own / "d", *LOW).out), own / "again")
    assert again.code == 0, again.err
    after = read_samples(own / "again")[1]
    assert set(before.sample_ids) - set(after.sample_ids) == {"id007"}
    assert len(after) == COUNT - 1
    dropped = [row for row in rows(own / "d" / "corrected.csv") if row["decision"] == "drop"]
    assert [(row["sample_id"], row["sha256"]) for row in dropped] == [("id007", before.hex(before.id_places["id007"]))]
    page = (own / "d" / "report.html").read_text("utf-8")
    assert "exported decisions do not drop them" in page
    assert "id007" not in page


def test_nothing_is_dropped_where_nothing_was_withheld(call: Call, own: Path) -> None:
    found = call("debug", own / "named", "--out", own / "d", *LOW)
    assert "drops" not in found.err
    assert {row["decision"] for row in rows(own / "d" / "corrected.csv")} == {"relabel"}
    assert "exported decisions do not drop" not in (own / "d" / "report.html").read_text("utf-8")


@pytest.mark.parametrize("way", WAYS)
def test_decisions_to_edit_drop_them_too(call: Call, made: Path, own: Path, way: list[str]) -> None:
    assert call("withhold", own / "named", "--id", "id007", *way).code == 0
    assert call("debug", own / "named", "--out", own / "d", *LOW, "--review").code == 0
    path = own / "d" / "decisions.csv"
    (row,) = [row for row in rows(path) if row["decision"] == "drop"]
    assert (row["sample_id"], row["reason"]) == ("id007", "not in the run" if way else "withheld")
    assert row["label"] == row["best_other_label"] == row["mislabel"] == ""
    assert call("train", made / "named.npz", "--apply", path, "--epochs", 1, "--out", own / "again").code == 0
    assert "id007" not in read_samples(own / "again")[1].sample_ids


@pytest.mark.parametrize("way", WAYS)
def test_what_is_held_out_is_not_taken_for_erased(call: Call, tmp_path: Path, way: list[str]) -> None:
    first = tmp_path / "first"
    assert call("train", "embedded", "--limit", 60, "--holdout", 0.2, *WISHES, "--out", first).code == 0
    names = read_samples(first)[1].sample_ids
    assert call("withhold", first, "--id", names[4], *way).code == 0
    found = call("debug", first, "--out", tmp_path / "d", *LOW)
    assert "corrected.csv drops 1 sample: " in found.err
    assert call(*suggested(found.out), tmp_path / "again").code == 0
    assert set(read_samples(tmp_path / "again")[1].sample_ids) == set(names) - {names[4]}
    assert unseen(tmp_path / "again") == unseen(first) != set()


def test_without_names_they_are_found_by_content(call: Call, own: Path) -> None:
    images, labels = digits()
    gone = read_samples(own / "plain")[1].hex(3)
    assert call("withhold", own / "plain", "--id", "train/3", "--id", "train/9").code == 0
    order = np.random.default_rng(0).permutation(COUNT)
    write_npz(own / "moved.npz", images[order], labels[order], names=False)
    assert call("debug", own / "plain", "--data", own / "moved.npz", "--out", own / "d").code == 0
    now = provnet.open_data(own / "moved.npz").samples
    dropped = [row for row in rows(own / "d" / "corrected.csv") if row["decision"] == "drop"]
    assert {row["sample_id"] for row in dropped} == {f"train/{order.tolist().index(i)}" for i in (3, 9)}
    assert gone in {row["sha256"] for row in dropped} <= {now.hex(i) for i in range(COUNT)}


def test_an_erased_sample_under_the_name_of_another_is_dropped(call: Call, own: Path) -> None:
    images, labels = digits()
    gone = read_samples(own / "plain")[1].hex(3)
    assert call("withhold", own / "plain", "--id", "train/3", "--erase").code == 0
    images[5], images[3] = images[3].copy(), 255 - images[3]
    write_npz(own / "edited.npz", images, labels, names=False)
    found = call("debug", own / "plain", "--data", own / "edited.npz", "--out", own / "d", *LOW)
    assert "corrected.csv drops 2 samples: not in the run" in found.err
    words = suggested(found.out)
    assert words[1] == str(own / "edited.npz")  # the data that were looked at
    assert call(*words, own / "again").code == 0
    assert gone not in contents(own / "again")
    assert len(contents(own / "again")) == COUNT - 2


@pytest.mark.parametrize("way", WAYS)
def test_files_with_added_ones_beside_them(call: Call, place: Path, way: list[str]) -> None:
    gone = read_samples(place / "run")[1].sample_ids[5]
    assert call("withhold", place / "run", "--id", gone, *way).code == 0
    assert call("add", place / "run", place / "more").code == 0
    found = call("debug", place / "run", "--out", place / "d", *LOW)
    assert "the suggested command does without 8 samples added after training: not among its data" in found.err
    assert call(*suggested(found.out), place / "again").code == 0
    after = read_samples(place / "again")[1].sample_ids
    assert gone not in after
    assert len(after) == PER_CLASS * CLASSES - 1


def test_no_command_where_it_cannot_be_told(call: Call, tmp_path: Path) -> None:
    """A limit chooses other samples of data that changed, and perhaps the withheld one."""
    images, labels = digits()
    write_npz(tmp_path / "d.npz", images, labels)
    assert call("train", tmp_path / "d.npz", "--limit", 20, *WISHES, "--out", tmp_path / "run").code == 0
    name = read_samples(tmp_path / "run")[1].sample_ids[2]
    assert call("withhold", tmp_path / "run", "--id", name).code == 0
    images[int(read_samples(tmp_path / "run")[1].sample_ids[0][2:])] = 7
    write_npz(tmp_path / "d.npz", images, labels)
    found = call("debug", tmp_path / "run", "--out", tmp_path / "d", *LOW, "--review")
    assert found.code == 0, found.err
    why = "withheld or erased samples may be among the data, and cannot be told"
    assert "next:" not in found.out
    assert f"no command to train again is suggested: {why}" in found.err
    assert f"decisions.csv cannot keep all of them out: {why}" in found.err
    page = (tmp_path / "d" / "report.html").read_text("utf-8")
    assert f"No command to train again: {why}" in page
    assert "train again with the suggested labels" not in page


def test_no_command_for_more_than_a_run_remembers(call: Call, own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provnet.tools.debug.files.MOST", 3)
    assert call("withhold", own / "named", "--id", "id007").code == 0
    found = call("debug", own / "named", "--out", own / "d", *LOW)
    assert "next:" not in found.out
    assert "a run remembers at most 3" in found.err


def test_samples_without_an_index_are_not_told_from_erased_ones(call: Call, tmp_path: Path) -> None:
    first = tmp_path / "first"
    assert call("train", "embedded", "--limit", 60, "--index-subset", "50%", *WISHES, "--out", first).code == 0
    names = read_samples(first)[1].sample_ids
    assert call("withhold", first, "--id", names[0], "--erase").code == 0
    found = call("debug", first, "--out", tmp_path / "d", *LOW)
    assert f"corrected.csv drops {60 - len(names) + 1} samples: not in the run" in found.err
    words = suggested(found.out)
    assert "--index-subset" not in words  # all that is left had an index
    assert call(*words, tmp_path / "again").code == 0
    assert set(read_samples(tmp_path / "again")[1].sample_ids) == set(names[1:])


@pytest.mark.parametrize("withheld", [0, 1])
@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_of_two_with_one_content_the_withheld_one_counts(own: Path, withheld: int, name: str) -> None:
    """a and b are equal, one is withheld, and the data have one of them under its name or another: only the name of
    the other makes sure that it is not the withheld one."""
    run = read_run(own / "named")
    two = run.samples.select([0, 1])
    same = np.repeat(two.sha256[:1], 2, 0)
    twins = replace(two, sample_ids=("a", "b"), sha256=same, pixel_sha256=same, withheld=np.arange(2) == withheld)
    twins = replace(twins, labels=np.zeros(2, dtype=np.int64))
    held = held_rows(replace(run, samples=twins), replace(twins.select([0]), sample_ids=(name,)))
    assert held.withheld.tolist() == [name != "ba"[withheld]]
    assert held.used.tolist() == ([0] if name == "ba"[withheld] else [])


def test_a_backbone_that_was_given_as_an_object_is_not_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 8), nn.ReLU())
    data = provnet.open_data("embedded", limit=60)
    fit(data, config=train_config("fast", epochs=1), backbone=body, out=tmp_path / "run")
    words = ["debug", str(tmp_path / "run"), "--out", str(tmp_path / "d"), *LOW]
    capsys.readouterr()
    assert main(words, backbone=body) == 0
    told = capsys.readouterr()
    assert rows(tmp_path / "d" / "corrected.csv")
    assert "next:" not in told.out
    why = "the backbone was given as an object, which no command can name; in Python train again with"
    assert f"no command to train again is suggested: {why} {tmp_path / 'd' / 'corrected.csv'}" in told.err
    assert "train_config(backbone=module)" in told.err
    page = (tmp_path / "d" / "report.html").read_text("utf-8")
    assert why in page
    assert "train again with the suggested labels" not in page

"""`provnet debug` from run to files, and the way back: `provnet train --apply` and the corrected manifest."""

from __future__ import annotations

import csv
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import provnet
from provnet.base.atomic import write_bytes
from provnet.cli.debug import _summary
from provnet.runs.data import Kept
from tests.cli.conftest import CLASSES, PER_CLASS, Call
from tests.tools import planted

LOW = "0.000001"  # flags every label
COLUMNS = ["index", "sample_id", "label", "suggested_label", "mislabel", "anomaly", "typicality", "duplicate_group"]


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_every_file_is_written(call: Call, run: Path, tmp_path: Path) -> None:
    found = call("debug", run, "--out", tmp_path / "d", "--json")
    assert found.code == 0, found.err
    assert found.json["samples"] == PER_CLASS * CLASSES
    assert found.json["flagged"]["n"] == PER_CLASS * CLASSES
    assert sorted(path.name for path in (tmp_path / "d").iterdir()) == found.json["files"]
    samples = rows(tmp_path / "d" / "samples.csv")
    assert len(samples) == PER_CLASS * CLASSES
    assert set(COLUMNS) <= set(samples[0])
    for row in samples:
        assert 0 <= float(row["mislabel"]) <= 1
        assert 0 <= float(row["anomaly"]) <= 1
        assert 0 <= float(row["typicality"]) <= 1


def test_the_page_stands_alone(call: Call, run: Path, tmp_path: Path) -> None:
    assert call("debug", run, "--out", tmp_path / "d", "--threshold", "0.000001").code == 0
    page = (tmp_path / "d" / "report.html").read_text("utf-8")
    assert "default-src 'none'" in page
    assert not re.search(r"(?:src|href)=\"(?!data:|#)", page)
    assert page.count("<script>") == 1
    assert "data:image/png;base64," in page
    assert "most typical" in page


def test_an_idle_terminal_gets_a_summary(call: Call, run: Path, tmp_path: Path) -> None:
    found = call("debug", run, "--out", tmp_path / "d")
    assert "labels flagged          0 of 24, which does not say how many are wrong" in found.out
    assert "next:" not in found.out  # the same labels once more would change nothing


@pytest.mark.usefixtures("telling")
def test_a_run_that_can_tell_suggests_to_train_again(call: Call, run: Path, tmp_path: Path) -> None:
    found = call("debug", run, "--out", tmp_path / "d", "--threshold", LOW)
    assert "next: provnet train" in found.out


def test_where_it_cannot_tell_no_flag_leads_to_a_relabel(call: Call, run: Path, own_data: Path, tmp_path: Path) -> None:
    """Training on the suggestions would train on guesses."""
    found = call("debug", run, "--data", own_data, "--out", tmp_path / "d", "--threshold", LOW)
    assert found.code == 0, found.err
    assert "24 of 24, which does not say how many are wrong" in found.out
    assert "next:" not in found.out and ", probably " not in found.out
    out = tmp_path / "e"
    reviewed = call("debug", run, "--data", own_data, "--out", out, "--threshold", LOW, "--review")
    assert "as it is it relabels nothing" in reviewed.out
    samples = rows(out / "samples.csv")
    given = {row["sample_id"]: row["label"] for row in samples}
    assert [row["suggested_label"] for row in samples] == list(given.values())
    assert {row["id"]: row["label"] for row in rows(out / "corrected.csv")} == given
    assert not (tmp_path / "d" / "relabel.csv").exists()
    decided = rows(out / "decisions.csv")
    assert len(decided) == 24 and {row["decision"] for row in decided} == {"keep"}
    page = (out / "report.html").read_text("utf-8")
    assert page.count('value="keep" checked') == 24 and " struck " not in page and "<small>suggested" not in page
    assert "Labels that may be wrong: this run cannot tell" in page and "probably wrong</span>" not in page
    assert "of 24, which does not say that they are wrong" in page and "No label is suggested." in page


def test_the_contributions_add_up_to_the_score(call: Call, run: Path, tmp_path: Path) -> None:
    assert call("debug", run, "--out", tmp_path / "d").code == 0
    for row in rows(tmp_path / "d" / "samples.csv"):
        odds = sum(float(value) for name, value in row.items() if name.startswith("from_"))
        assert 1 / (1 + np.exp(-odds)) == pytest.approx(float(row["mislabel"]), abs=1e-5)


def test_what_cannot_be_told_is_said_everywhere(call: Call, run: Path, tmp_path: Path) -> None:
    found = call("debug", run, "--out", tmp_path / "d")
    assert "wrong labels expected   cannot tell; at least 0" in found.out
    assert "cannot tell how many labels are wrong: the signals have a power of" in " ".join(found.err.split())
    told = call("debug", run, "--out", tmp_path / "e", "--json").json
    assert told["expected_wrong"] is None and told["cannot_tell"].startswith("the signals have a power of")
    assert (told["flagged"]["low"], told["flagged"]["high"], told["certainly_wrong"]) == (None, None, 0)
    assert told["memorised"] is None
    page = (tmp_path / "d" / "report.html").read_text("utf-8")
    assert "Cannot tell how many labels are wrong." in page and told["cannot_tell"].split(";")[0] in page
    assert "the sum of all probabilities" not in page


def test_what_can_be_told_is_told() -> None:
    told = _summary(planted.found(), 0.5, 0.9, Kept(planted.digits()[0], np.arange(planted.SAMPLES), (), 0))
    assert told["cannot_tell"] is None and told["flagged"]["low"] > 0
    assert told["expected_wrong"] == round(float(planted.found().mislabels.score.sum()), 3)


def test_equal_pictures_under_two_labels_are_not_both_kept(call: Call, own_data: Path, tmp_path: Path) -> None:
    shutil.copy(own_data / "train" / "digit-0" / "0.png", own_data / "train" / "digit-1" / "same.png")
    assert call("train", own_data, "--out", tmp_path / "r", "--epochs", "1", "--batch-size", "8").code == 0
    found = call("debug", tmp_path / "r", "--out", tmp_path / "d", "--review")
    assert found.code == 0, found.err
    assert "wrong labels expected   cannot tell; at least 1" in found.out
    first = rows(tmp_path / "d" / "decisions.csv")[:2]
    names = {"train/digit-0/0.png", "train/digit-1/same.png"}
    assert {row["sample_id"] for row in first} == names
    assert [(row["decision"], row["reason"]) for row in first] == [("drop", "conflict")] * 2
    assert set(re.findall(r"train/digit-\d/\w+\.png", found.out)[:2]) == names
    page = (tmp_path / "d" / "report.html").read_text("utf-8")
    assert set(re.findall(r'class="suspect"[^>]* data-id="([^"]+)"', page)[:2]) == names
    assert page.count('value="drop" checked') == 2
    cards = [card for card in page.split('<article class="suspect"')[1:] if 'value="drop" checked' in card]
    for card in cards:  # one picture: neither label is struck, none is suggested, and the copy is no evidence
        card = card.split("</article>")[0]
        assert " struck " not in card and "<small>suggested" not in card and "<small>or else" not in card
        assert 'class="exemplars"' not in card and "nothing says which is right" in card
    corrected = {row["id"]: row["label"] for row in rows(tmp_path / "d" / "corrected.csv")}
    assert (corrected["train/digit-0/0.png"], corrected["train/digit-1/same.png"]) == ("digit-0", "digit-1")


@pytest.mark.usefixtures("telling")
def test_the_next_command_opens_the_data_as_they_were(call: Call, tmp_path: Path) -> None:
    train = ["train", "embedded", "--limit", "60", "--holdout", "0.2", "--epochs", "1", "--out", tmp_path / "r"]
    assert call(*train).code == 0
    found = call("debug", tmp_path / "r", "--out", tmp_path / "d", "--threshold", LOW)
    (line,) = [line for line in found.out.splitlines() if line.startswith("next: ")]
    assert line.startswith("next: provnet train embedded --limit 60 --holdout 0.2 --apply ")
    assert line.endswith("corrected.csv --network class-conditional --epochs 1 --out RUN")
    again = [*line.split()[2:-1], str(tmp_path / "again"), "--epochs", "1"]
    assert call(*again).code == 0


@pytest.mark.usefixtures("telling")
def test_decisions_on_decisions_are_not_suggested(call: Call, tmp_path: Path) -> None:
    """Applied to the data as they were before, they would make right labels wrong."""
    data = provnet.open_data("embedded", limit=60)
    rows_ = [f"{data.samples.sample_ids[i]},{data.samples.hex(i)},relabel,{9 - i % 10}" for i in range(5)]
    (tmp_path / "wrong.csv").write_text("\n".join(["sample_id,sha256,decision,new_label", *rows_]) + "\n", "utf-8")
    train = ["train", "embedded", "--limit", "60", "--apply", tmp_path / "wrong.csv", "--epochs", "1"]
    trained = call(*train, "--out", tmp_path / "r")
    assert trained.code == 0, trained.err
    found = call("debug", tmp_path / "r", "--out", tmp_path / "d")
    assert found.code == 0
    assert "next:" not in found.out
    assert "no command" not in found.err  # nothing is flagged
    found = call("debug", tmp_path / "r", "--out", tmp_path / "d", "--threshold", LOW)
    assert "next:" not in found.out
    assert "no command to train again is suggested: decisions changed the data before" in found.err
    assert "train again with the suggested labels" not in (tmp_path / "d" / "report.html").read_text("utf-8")


@pytest.mark.usefixtures("telling")
def test_a_corrected_manifest_trains(call: Call, data: Path, tmp_path: Path) -> None:
    assert call("train", data / "train", "--out", tmp_path / "run", "--epochs", 2, "--batch-size", 8).code == 0
    found = call("debug", tmp_path / "run", "--out", tmp_path / "d", "--threshold", LOW)
    command = next(line for line in found.out.splitlines() if line.startswith("next: ")).split()[2:]
    assert command[0] == "train"
    assert command[2:4] == ["--root", str(data / "train")]
    assert command[4:-2] == ["--network", "class-conditional", "--epochs", "2", "--batch-size", "8"]
    corrected = rows(tmp_path / "d" / "corrected.csv")
    assert list(corrected[0]) == ["path", "label", "id", "source"]
    assert len(corrected) == PER_CLASS * CLASSES
    command[-1] = str(tmp_path / "again")
    again = call(*command, "--epochs", 1, "--batch-size", 8, "--json")
    assert again.code == 0, again.err
    assert again.json["samples"] == PER_CLASS * CLASSES


def test_a_manifest_above_the_pictures_needs_no_root(call: Call, run: Path, own_data: Path) -> None:
    found = call("debug", run, "--data", own_data, "--out", own_data.parent)
    assert found.code == 0, found.err
    assert "--root" not in found.out
    assert rows(own_data.parent / "corrected.csv")[0]["path"].startswith("data/train/")


def test_a_review_that_was_killed_is_done_again(
    call: Call, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(path: Path, content: bytes) -> None:
        if path.name == "report.html":
            raise KeyboardInterrupt
        write_bytes(path, content)

    with monkeypatch.context() as patch:
        patch.setattr("provnet.cli.targets.write_bytes", killed)
        assert call("debug", run, "--out", tmp_path / "d", "--review").code == 130
    found = call("debug", run, "--out", tmp_path / "d", "--review")
    assert found.code == 0, found.err
    assert {"decisions.csv", "report.html"} <= {path.name for path in (tmp_path / "d").iterdir()}


def test_decisions_are_reviewed_and_applied(call: Call, run: Path, data: Path, tmp_path: Path) -> None:
    assert call("debug", run, "--out", tmp_path / "d", "--review", "--threshold", "0.000001").code == 0
    path = tmp_path / "d" / "decisions.csv"
    decided = rows(path)
    assert {"sample_id", "sha256", "decision", "new_label", "label", "mislabel"} <= set(decided[0])
    table = {row["sample_id"]: row for row in rows(tmp_path / "d" / "samples.csv")}
    assert all(row["sha256"] == table[row["sample_id"]]["sha256"] for row in decided)

    first, second, third = decided[0], decided[1], decided[2]
    new = next(f"digit-{n}" for n in range(CLASSES) if f"digit-{n}" != first["label"])
    first.update(decision="relabel", new_label=new)
    second.update(decision="drop", new_label="")
    third.update(decision="keep", new_label="")
    write(path, [first, second, third])
    again = tmp_path / "again"
    found = call("train", data, "--apply", path, "--out", again, "--epochs", 1, "--batch-size", 8, "--json")
    assert found.code == 0, found.err
    assert "1 relabelled, 1 dropped by decision" in found.err
    assert found.json["samples"] == PER_CLASS * CLASSES - 1

    verified = call("verify", again, "--json")
    assert verified.code == 0, verified.out
    assert verified.json["data"]["verdict"] == "same"
    measured = call("evaluate", again, "--json")
    assert measured.code == 0, measured.err
    assert measured.json["index_accuracy"]["n"] == PER_CLASS * CLASSES - 1
    debugged = call("debug", again, "--out", tmp_path / "more", "--json")
    assert debugged.json["left_out"] == 0
    relabelled = {row["sample_id"]: row["label"] for row in rows(tmp_path / "more" / "samples.csv")}
    assert relabelled[first["sample_id"]] == new
    assert second["sample_id"] not in relabelled


def write(path: Path, decided: list[dict[str, str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(decided[0]))
        writer.writeheader()
        writer.writerows(decided)


def test_decisions_go_with_a_holdout(call: Call, run: Path, data: Path, tmp_path: Path) -> None:
    assert call("debug", run, "--out", tmp_path / "d", "--review", "--threshold", "0.000001").code == 0
    path = tmp_path / "d" / "decisions.csv"
    one = rows(path)[0] | {"decision": "drop", "new_label": ""}
    write(path, [one])
    where = tmp_path / "again"
    arguments = ("--apply", path, "--holdout", 0.2, "--out", where, "--epochs", 1, "--batch-size", 8)
    assert call("train", data, *arguments).code == 0
    assert call("verify", where).code == 0
    assert call("evaluate", where, "--json").json["class_accuracy"]["n"] > 0


def test_a_decision_on_other_content_is_refused(call: Call, run: Path, own_data: Path, tmp_path: Path) -> None:
    assert call("debug", run, "--out", tmp_path / "d", "--review", "--threshold", "0.000001").code == 0
    path = tmp_path / "d" / "decisions.csv"
    name = rows(path)[0]["sample_id"]
    Image.new("L", (28, 28), 99).save(own_data / name)
    found = call("train", own_data, "--apply", path, "--out", tmp_path / "again", "--epochs", 1)
    assert found.code == 3
    assert name in found.last_line
    assert "other content" in found.last_line
    assert not (tmp_path / "again").exists()


def test_edits_are_not_overwritten(call: Call, run: Path, tmp_path: Path) -> None:
    assert call("debug", run, "--out", tmp_path / "d", "--review").code == 0
    found = call("debug", run, "--out", tmp_path / "d", "--review")
    assert found.code == 2
    assert "may hold your edits" in found.last_line
    assert call("debug", run, "--out", tmp_path / "d").code == 0


@pytest.mark.parametrize(("option", "value"), [("--threshold", "0"), ("--threshold", "1.5"), ("--top", "-1")])
def test_options_that_make_no_sense(call: Call, run: Path, tmp_path: Path, option: str, value: str) -> None:
    assert call("debug", run, "--out", tmp_path / "d", option, value).code == 2


def test_data_that_are_gone(call: Call, own_run: Path, tmp_path: Path) -> None:
    assert call("debug", own_run, "--out", tmp_path / "d", "--data", tmp_path / "nowhere").code == 2
    (tmp_path / "file").write_text("x")
    assert call("debug", own_run, "--out", tmp_path / "file").code == 2


def test_edited_samples_are_left_out_and_counted(call: Call, run: Path, own_data: Path, tmp_path: Path) -> None:
    Image.new("L", (28, 28), 99).save(own_data / "train" / "digit-0" / "0.png")
    found = call("debug", run, "--data", own_data, "--out", tmp_path / "d", "--json")
    assert found.code == 0, found.err
    assert found.json["left_out"] == 1
    assert found.json["samples"] == PER_CLASS * CLASSES - 1


def test_withheld_samples_appear_nowhere_but_where_they_are_dropped(call: Call, place: Path, tmp_path: Path) -> None:
    samples = call("debug", place / "run", "--out", tmp_path / "all")
    assert samples.code == 0, samples.err
    name = rows(tmp_path / "all" / "samples.csv")[3]
    assert call("withhold", place / "run", "--id", name["sample_id"]).code == 0
    found = call("debug", place / "run", "--out", tmp_path / "d", "--review", "--threshold", "0.000001", "--json")
    assert found.json["withheld"] == 1
    for path in (tmp_path / "d").iterdir():
        text = path.read_text("utf-8")
        if path.name == "decisions.csv":
            (line,) = [line for line in text.splitlines() if name["sample_id"] in line or name["sha256"] in line]
            assert line == f"{name['sample_id']},{name['sha256']},drop,,withheld,,,,,"
            continue
        assert name["sample_id"] not in text, path.name
        assert name["sha256"] not in text, path.name


@pytest.mark.usefixtures("telling")
def test_arrays_and_names_get_decisions_instead_of_a_manifest(call: Call, tmp_path: Path) -> None:
    where = tmp_path / "run"
    assert call("train", "embedded", "--limit", 60, "--epochs", 2, "--out", where).code == 0
    found = call("debug", where, "--out", tmp_path / "d", "--threshold", LOW)
    assert f"provnet train embedded --limit 60 --apply {tmp_path / 'd' / 'corrected.csv'}" in found.out
    shutil.copy(tmp_path / "d" / "corrected.csv", tmp_path / "c.csv")
    again = call(
        "train", "embedded", "--limit", 60, "--apply", tmp_path / "c.csv", "--epochs", 1, "--out", tmp_path / "r"
    )
    assert again.code == 0, again.err
    assert call("verify", tmp_path / "r").code == 0
    assert call("evaluate", tmp_path / "r", "--json").json["class_accuracy"]["n"] > 0


def test_flags_in_classes_of_few_samples_are_warned_of(call: Call, run: Path, tmp_path: Path) -> None:
    low = call("debug", run, "--out", tmp_path / "a", "--threshold", "0.000001")
    assert "24 flagged labels are of classes with fewer than 20 samples" in " ".join(low.err.split())
    assert "fewer than 20 samples" not in call("debug", run, "--out", tmp_path / "b", "--threshold", 1).err

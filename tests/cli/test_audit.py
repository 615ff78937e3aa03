"""`provnet audit` and `provnet member`: files, verdicts, what is kept beside the run, and what is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import provnet
from provnet.cli.rundata import open_others
from provnet.runs.run import read_run, verify_files
from provnet.tools.membership.member import HELDOUT
from provnet.tools.membership.shadows import simulated

from .conftest import Call, write_digits


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """120 digits in an .npz that the run never saw."""
    path = tmp_path_factory.mktemp("strangers") / "others.npz"
    data = provnet.open_data("embedded", split="test", limit=130).select(np.arange(10, 130))
    np.savez(path, images=data.images[:, 0].numpy(), labels=data.samples.labels)
    return path


@pytest.fixture(scope="module")
def audited(banked: Path, strangers: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `run`, which was audited, and `out`."""
    from provnet.cli import main

    place = Path(shutil.copytree(banked, tmp_path_factory.mktemp("audited") / "place"))
    arguments = ["--nonmembers", str(strangers), "--out", str(place / "out"), "--figure", str(place / "out/roc.png")]
    assert main(["audit", str(place / "run"), *arguments]) == 0
    return place


def test_an_audit_writes_what_it_says(audited: Path) -> None:
    values = json.loads((audited / "out/audit.json").read_text())
    assert (values["members"], values["nonmembers"]) == (24, 120)
    assert values["scores"]["similarity"]["auc"]["value"] == 1.0
    assert values["null"]["auc"]["similarity"]["value"] < 1.0
    assert values["null_keys"]["auc"]["similarity"]["value"] > 0.95  # keys that are stored need no training
    assert values["about"]["seed"] == 0
    assert set(values["distorted"]) == {"noise-0.05", "noise-0.1", "shift", "jpeg-50", "crop"}
    assert (audited / "out/report.html").read_text().startswith("<!doctype html>")
    with Image.open(audited / "out/roc.png") as figure:
        assert figure.width > 1000
    kept = json.loads((audited / "run" / HELDOUT).read_text())
    assert (kept["score"], len(kept["others"]), len(kept["copies"])) == ("contrast", 120, 24 * 5)


def test_json_leaves_curves_out_and_defaults_are_the_runs_own_data(run: Path, tmp_path: Path, call: Call) -> None:
    own = Path(shutil.copytree(run, tmp_path / "run"))
    found = call("audit", own, "--out", tmp_path / "out", "--json", "--no-distort", "--limit", 5)
    assert found.code == 0
    assert (found.json["members"], found.json["nonmembers"]) == (5, 5)
    assert set(found.json["scores"]["index_confidence"]) == {"auc", "tpr_at_fpr"}
    assert found.json["lookup"]["bytes"]["members"]["value"] == 1.0
    assert not (own / HELDOUT).exists()  # nothing to keep without copies


def test_the_figures_stand_in_the_card_unless_it_is_left_alone(
    banked: Path, audited: Path, strangers: Path, tmp_path: Path, call: Call
) -> None:
    card = (audited / "run/README.md").read_text("utf-8")
    assert "| similarity / AUC | 1.0000 |" in card
    assert "How well 24 members of the training data are told from 120 nonmembers" in card
    assert [check.why for check in verify_files(audited / "run")] == ["ok"] * 7
    own = Path(shutil.copytree(banked / "run", tmp_path / "run"))
    before = (own / "manifest.json").read_bytes()
    given = ("--nonmembers", strangers, "--out", tmp_path / "out", "--limit", 20, "--no-distort", "--no-card")
    assert call("audit", own, *given).code == 0
    assert (own / "manifest.json").read_bytes() == before


def test_text_for_people(audited: Path, strangers: Path, tmp_path: Path, call: Call) -> None:
    own = Path(shutil.copytree(audited / "run", tmp_path / "run"))
    found = call("audit", own, "--nonmembers", strangers, "--out", tmp_path / "out", "--limit", 20)
    assert found.code == 0
    for words in ("best match, similarity", "hash of the bytes is in the table", "one pixel aside: AUC", "report.html"):
        assert words in found.out
    assert "would rest on fewer than ten nonmembers" in found.err


def test_members_that_are_none_are_noticed(run: Path, strangers: Path, tmp_path: Path, call: Call) -> None:
    own = Path(shutil.copytree(run, tmp_path / "run"))
    arguments = ["--members", strangers, "--no-distort", "--out", tmp_path / "out"]
    found = call("audit", own, *arguments)
    assert found.code == 0
    assert "are all of them members?" in found.err


def test_other_pictures_are_not_looked_for_among_the_training_pictures(data: Path, tmp_path: Path, call: Call) -> None:
    names = [f"digit-{label}/{number}.png" for label in range(4) for number in range(2)]
    listed = "path,label\n" + "".join(f"{name},{name[:7]}\n" for name in names)
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists/own.csv").write_text(listed)
    (tmp_path / "strange").mkdir()
    shutil.copytree(data / "test", tmp_path / "strange", dirs_exist_ok=True)
    (tmp_path / "strange/other.csv").write_text(listed)
    own = tmp_path / "run"
    arguments = ["--root", data / "train", "--out", own, "--epochs", 1]
    assert call("train", tmp_path / "lists/own.csv", *arguments).code == 0
    found = open_others(read_run(own), str(tmp_path / "strange/other.csv"), None)
    wanted = provnet.open_data(data / "test").samples
    assert found.samples.content_root == wanted.content_root
    assert "root" not in found.spec.options


def test_a_null_run_must_have_seen_neither(run: Path, banked: Path, tmp_path: Path, call: Call) -> None:
    found = call("audit", run, "--out", tmp_path, "--null", banked / "run", "--no-distort")
    assert found.code == 2
    assert "give a run that saw neither" in found.last_line
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--limit", "1"], 2, "--limit must be 2 or more"),
        (["--seed", "-1"], 2, "--seed must lie in 0..2^63-1, got -1"),
        (["--figure", "roc.bmp"], 2, 'not "bmp"'),
        (["--nonmembers", "nowhere.npz"], 2, "nowhere.npz"),
    ],
)
def test_what_cannot_be_audited(
    arguments: list[str], code: int, words: str, run: Path, tmp_path: Path, call: Call
) -> None:
    found = call("audit", run, "--out", tmp_path / "out", "--no-distort", *arguments)
    assert found.code == code
    assert words in found.last_line
    assert not (tmp_path / "out").exists()


def test_member_tells_bytes_pixels_and_content(audited: Path, data: Path, tmp_path: Path, call: Call) -> None:
    own = data / "train/digit-1/2.png"
    pixels = np.asarray(Image.open(own))
    Image.fromarray(pixels).save(tmp_path / "again.png", compress_level=0)
    changed = pixels.copy()
    changed[14, 14] ^= 1
    Image.fromarray(changed).save(tmp_path / "touched.png")
    names = [own, tmp_path / "again.png", tmp_path / "touched.png"]
    found = call("member", audited / "run", *names, "--json")
    assert found.code == 0
    assert [one["input"] for one in found.json] == [str(name) for name in names]
    assert [(one["verdict"], one["agrees"]) for one in found.json] == [
        ("member", "bytes"),
        ("member", "pixels"),
        ("distorted copy of a member", "content"),
    ]
    assert {one["match"]["sample_id"] for one in found.json} == {"train/digit-1/2.png"}
    assert found.json[2]["p_value"] == pytest.approx(1 / 121)
    shown = call("member", audited / "run", tmp_path / "touched.png")
    assert "content agrees with train/digit-1/2.png, digit-1" in shown.out


def test_strangers_are_no_members(audited: Path, strangers: Path, call: Call) -> None:
    found = call("member", audited / "run", strangers, "--json")
    verdicts = [one["verdict"] for one in found.json]
    assert "member" not in verdicts
    assert verdicts.count("distorted copy of a member") <= 1  # p <= .01, and they are those compared with
    assert all(one["match"] is None for one in found.json if one["verdict"] == "not a member")


def test_without_an_audit_the_test_split_is_compared_with(run: Path, data: Path, call: Call) -> None:
    found = call("member", run, "test:0", data / "train/digit-0/0.png", "--json")
    assert found.code == 0
    assert [one["verdict"] for one in found.json] == ["cannot say", "member"]
    assert found.json[0]["heldout"] == 8
    assert "provnet audit" in found.err


def test_scores_of_the_run_before_are_not_used(audited: Path, strangers: Path, tmp_path: Path, call: Call) -> None:
    place = Path(shutil.copytree(audited, tmp_path / "place"))
    kept = (place / "run" / HELDOUT).read_bytes()
    assert call("withhold", place / "run", "--id", "train/digit-1/2.png").code == 0
    assert not (place / "run" / HELDOUT).exists()
    (place / "run" / HELDOUT).write_bytes(kept)  # whoever puts it back
    found = call("member", place / "run", "test:0", "--json")
    assert "before it was changed" in found.err
    assert found.json[0]["heldout"] == 8
    given = call("member", place / "run", "test:0", "--nonmembers", strangers, "--json")
    assert given.json[0]["heldout"] == 120
    (place / "run" / HELDOUT).write_text("{")
    assert "membership.json is not used" in call("member", place / "run", "test:0").err


def test_withheld_samples_are_not_named(audited: Path, data: Path, tmp_path: Path, call: Call) -> None:
    place = Path(shutil.copytree(audited, tmp_path / "place"))
    assert call("withhold", place / "run", "--id", "train/digit-1/2.png").code == 0
    found = call("member", place / "run", data / "train/digit-1/2.png", "--json")
    assert found.json[0]["verdict"] != "member"
    assert "train/digit-1/2.png" not in json.dumps([one["match"] for one in found.json])
    assert "1 withheld samples are treated as unknown" in found.err


def test_members_may_be_given_as_a_folder(run: Path, tmp_path: Path, call: Call) -> None:
    write_digits(tmp_path / "moved")
    own = Path(shutil.copytree(run, tmp_path / "run"))
    found = call("audit", own, "--members", tmp_path / "moved", "--out", tmp_path / "out", "--no-distort", "--json")
    assert found.code == 0
    assert found.json["members"] == 24
    assert found.json["lookup"]["bytes"]["members"]["value"] == 1.0


def test_one_array_of_floats_changes_no_other_verdict(audited: Path, data: Path, tmp_path: Path, call: Call) -> None:
    pixels = np.asarray(Image.open(data / "train/digit-1/2.png"))
    Image.fromarray(pixels).save(tmp_path / "again.bmp")
    np.save(tmp_path / "same.npy", pixels.astype(np.float64))
    np.save(tmp_path / "fractions.npy", pixels.astype(np.float32) * 0.9 + 3)
    names = [tmp_path / name for name in ("again.bmp", "same.npy", "fractions.npy")]
    alone = call("member", audited / "run", *names[:1] * 3, "--json").json  # as many: sums are rounded alike
    assert (alone[0]["verdict"], alone[0]["agrees"]) == ("member", "pixels")
    beside = call("member", audited / "run", *names, "--json").json
    assert beside[0] == alone[0]
    assert {**beside[1], "input": ""} == {**alone[1], "input": ""}
    assert beside[2]["agrees"] != "pixels"


def test_a_class_that_is_wholly_withheld(data: Path, strangers: Path, tmp_path: Path, call: Call) -> None:
    own = tmp_path / "run"
    wishes = ["--network", "class-conditional", "--head", "exemplar", "--epochs", "3", "--batch-size", "8"]
    assert call("train", data, "--out", own, *wishes).code == 0
    told = [one["predicted"] for one in call("explain", own, strangers, "--json").json]
    gone = max(set(told), key=told.count)
    ids = [word for number in range(6) for word in ("--id", f"train/{gone}/{number}.png")]
    assert call("withhold", own, *ids).code == 0
    found = call("member", own, strangers, "--json")
    assert found.code == 0, found.err
    assert "no sample may be named" in found.err  # of the test split, which is compared with
    none = [one["why"].startswith("no sample may be named") for one in found.json]
    assert none == [each == gone for each in told]
    assert {one["value"] is None for one, skipped in zip(found.json, none, strict=True) if skipped} == {True}
    audited = call("audit", own, "--nonmembers", strangers, "--out", tmp_path / "audit", "--json")
    assert audited.code == 0, audited.err
    assert f"{told.count(gone)} nonmembers for which no sample may be named are left out" in audited.err
    assert audited.json["nonmembers"] == len(told) - told.count(gone)
    drawn = call("map", own, "--out", tmp_path / "map", "--engine", "scikit-learn", "--perplexity", 3, "--json")
    assert drawn.code == 0, drawn.err
    assert drawn.json["unnamed"] > 0
    assert drawn.json["misattributed"]["n"] == 8 - drawn.json["unnamed"]
    assert f"for {drawn.json['unnamed']} test samples none may be named" in drawn.err
    assert "more no sample may be named" in (tmp_path / "map/report.html").read_text("utf-8")


def test_shadows_audit_runs_and_files_of_scores(run: Path, strangers: Path, tmp_path: Path, call: Call) -> None:
    found = call("audit", run, "--shadow", run, "--out", tmp_path / "runs", "--json", "--limit", 20)
    assert found.code == 0
    assert (found.json["members"], found.json["others"], found.json["shadows"]) == (20, 8, 1)
    assert found.json["decides"] == "attack_p"  # the only shadow saw what the run saw
    made, _ = simulated(2_400, 8, seed=0, candidates=100)
    arrays = {"target": made.target[:, 0], "shadows": made.shadows[..., 0], "inside": made.inside}
    np.savez(tmp_path / "scores.npz", id=np.array(made.ids), member=made.member, **arrays)
    found = call("audit", "--scores", tmp_path / "scores.npz", "--out", tmp_path / "file")
    assert found.code == 0 and "RMIA: against the mean of all shadows *" in found.out
    values = json.loads((tmp_path / "file/audit.json").read_text())
    page = (tmp_path / "file/report.html").read_text()
    assert f"{values['vulnerable']['count']:,} of 1,200" in page and values["vulnerable"]["samples"][0]["id"] in page
    assert "Differential privacy" in page and "Candidates that were trained on" in page
    strange = call("audit", run, "--shadow", run, "--nonmembers", strangers, "--out", tmp_path / "strange")
    assert strange.code == 2 and "does not know the class" in strange.err
    both = call("audit", run, "--scores", tmp_path / "scores.npz", "--out", tmp_path / "both")
    neither = call("audit", "--out", tmp_path / "neither")
    assert (both.code, neither.code) == (2, 2)
    assert "got both" in both.err and "got neither" in neither.err

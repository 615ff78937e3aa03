"""`provnet add` and `provnet withhold`, end to end."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np

from provnet.answers.attributor import explain
from provnet.heads.heads import ExemplarHead
from provnet.runs.run import read_run, write_run
from tests.banked import BASE, RUNS

from .conftest import Call, contents

GONE = "train/digit-2/3.png"


def named(call: Call, run: Path, image: Path, *options: object) -> list[str]:
    found = call("explain", run, image, "--json", *options)
    assert found.code == 0, found.err
    return [item["sample_id"] for item in found.json[0]["exemplars"]]


def test_withheld_and_restored(place: Path, data: Path, tmp_path: Path, call: Call) -> None:
    run, image = place / "run", data / GONE
    assert named(call, run, image)[0] == GONE
    (tmp_path / "list.txt").write_text("train/digit-0/0.png\n\n")
    found = call("withhold", run, "--id", GONE, "--list", tmp_path / "list.txt")
    assert found.code == 0
    assert "withheld 2 samples" in found.out
    assert GONE not in named(call, run, image, "-k", 24)
    assert "24, of them 2 withheld" in call("info", run).out
    assert "of these withheld" in (run / "README.md").read_text()
    assert (
        "-k 23 is more than the 22 training samples that are not withheld" in call("explain", run, image, "-k", 23).err
    )
    assert call("verify", run, "--strict").code == 0
    assert "nothing to change" in call("withhold", run, "--id", GONE).out
    assert call("withhold", run, "--id", GONE, "--restore", "--json").json["withheld_samples"] == 1
    assert named(call, run, image)[0] == GONE


def test_erased_is_in_no_file(place: Path, data: Path, call: Call) -> None:
    run = place / "run"
    before = read_run(run)
    i = before.samples.id_places[GONE]
    assert isinstance(before.network.index_head, ExemplarHead)
    key = before.network.index_head.keys[before.network.index_head.rows[i]].numpy().tobytes()
    traces = [GONE.encode(), before.samples.sha256[i].tobytes(), before.samples.pixel_sha256[i].tobytes(), key]
    traces += [before.samples.hex(i).encode(), before.samples.hex(i)[:12].encode()]
    assert call("evaluate", run).code == 0
    for leftover in (
        "report.html",
        "checkpoints/step-0000000001/state.json",
        f".tmp-{10**9}-0a1b2c3d-.next/samples.safetensors",
    ):
        (run / leftover).parent.mkdir(parents=True, exist_ok=True)
        (run / leftover).write_bytes(b"".join(traces))
    assert all(any(trace in blob for blob in contents(run).values()) for trace in traces)
    found = call("withhold", run, "--id", GONE, "--erase")
    assert found.code == 0
    assert "erased 1 sample" in found.out
    assert "The trained weights still carry what they learned from it" in found.err
    assert "removed evaluation.json and report.html," in found.err
    for name, blob in contents(run).items():
        assert [trace for trace in traces if trace in blob] == [], name
    assert set(contents(run)) == {*contents_of_a_run(), "log.jsonl"}
    after = read_run(run)
    assert after.history is not None and before.history is not None
    assert np.array_equal(after.history, np.delete(before.history, i, axis=1))
    assert GONE not in named(call, run, data / GONE, "-k", 23)
    checked = call("verify", run, "--strict", "--json")
    assert (checked.code, checked.json["data"]["verdict"]) == (0, "same")
    assert call("info", run, "--json").json["erased_samples"] == 1
    assert call("withhold", run, "--id", GONE, "--erase").code == 2


def contents_of_a_run() -> set[str]:
    return {
        "model.safetensors",
        "config.json",
        "samples.safetensors",
        "README.md",
        "history.safetensors",
        "snapshots.safetensors",
        "manifest.json",
    }


def test_a_stranger_beside_an_erased_run_is_named(place: Path, call: Call) -> None:
    (place / "run" / "because.html").write_text(GONE)
    assert "may name what was erased: because.html" in call("withhold", place / "run", "--id", GONE, "--erase").err


def test_added_samples_are_named_shown_measured_and_verified(place: Path, call: Call) -> None:
    run, more = place / "run", place / "more"
    found = call("add", run, more, "--json")
    assert found.code == 0, found.err
    assert found.json["added"] == found.json["added_samples"] == 8
    image = more / "train/digit-1/1.png"
    assert named(call, run, image, "--strict", "--html", place / "x.html")[0] == "more/train/digit-1/1.png"
    page = (place / "x.html").read_text()
    assert "more/train/digit-1/1.png" in page
    assert "picture not available" not in page
    assert "changed since training" not in page
    checked = call("verify", run, "--strict", "--json")
    assert (checked.code, checked.json["data"]["verdict"]) == (0, "same")
    assert call("evaluate", run).code == 0
    figures = json.loads((run / "evaluation.json").read_text())
    assert figures["index_accuracy"]["n"] == 32
    assert figures["about"]["train"]["data"].endswith(f"and {more}, split train, as grey")
    assert "32, of them 8 added since training" in call("info", run).out
    assert "never trained on" in (run / "README.md").read_text()
    found = call("add", run, more)
    assert found.code == 2
    assert '"train/digit-0/0.png" has the pixels of "more/train/digit-0/0.png"' in found.err
    assert "nothing to add; 8 known ones left out" in call("add", run, more, "--skip-known").out


def test_an_added_file_that_changed_or_is_gone(place: Path, call: Call) -> None:
    run, more = place / "run", place / "more"
    assert call("add", run, more).code == 0
    image, copy = more / "train/digit-1/1.png", place / "copy.png"
    shutil.copy(image, copy)
    shutil.copy(more / "train/digit-0/0.png", image)
    checked = call("verify", run, "--json")
    assert checked.code == 6
    assert checked.json["data"]["status"] == {"edited": 1, "same": 31}
    assert call("explain", run, copy, "--strict").code == 6
    image.rename(image.with_name("9.png"))
    shutil.copy(copy, image.with_name("9.png"))
    assert call("verify", run, "--json").json["data"]["status"] == {"moved": 1, "same": 31}
    assert call("explain", run, copy, "--strict").code == 0
    shutil.rmtree(more)
    found = call("verify", run)
    assert found.code == 0
    assert "not compared" in found.out
    assert str(more) in found.out
    found = call("evaluate", run)
    assert "8 of 32 training samples are left out" in found.err
    assert json.loads((run / "evaluation.json").read_text())["index_accuracy"]["n"] == 24


def test_an_edit_is_seen_where_an_added_source_is_gone(place: Path, own_data: Path, call: Call) -> None:
    run, more = place / "run", place / "more"
    assert call("add", run, more).code == 0
    more.rename(place / "elsewhere")
    found = call("verify", run, "--data", own_data)
    assert found.code == 0
    assert "the same data: 24 samples" in found.out
    assert "not compared: 8 of 32 samples: " in found.out
    assert str(more) in found.out
    assert found.out.splitlines()[-1] == "the files are whole; the data are not verified, or not all of them"
    assert call("verify", run, "--data", own_data, "--strict").code == 6
    image = own_data / "train/digit-1/1.png"
    shutil.copy(own_data / "test/digit-0/0.png", image)
    found = call("verify", run, "--data", own_data, "--json")
    assert found.code == 6
    assert found.json["data"]["status"] == {"edited": 1, "same": 23}
    assert found.json["data_not_compared"].startswith("8 of 32 samples: ")
    image.unlink()
    found = call("verify", run, "--data", own_data, "--json")
    assert (found.code, found.json["data"]["status"]) == (6, {"missing": 1, "same": 23})


def test_added_samples_are_compared_where_the_training_data_are_gone(place: Path, own_data: Path, call: Call) -> None:
    run, more = place / "own", place / "more"
    options = ["--network", "class-independent", "--head", "exemplar", "--epochs", "1"]
    assert call("train", own_data, "--out", run, *options).code == 0
    assert call("add", run, more).code == 0
    own_data.rename(place / "elsewhere")
    found = call("verify", run, "--json")
    assert (found.code, found.json["data"]["status"]) == (0, {"same": 8})
    shutil.copytree(place / "elsewhere", own_data)
    third = place / "third"
    (third / "train").mkdir(parents=True)
    shutil.copytree(place / "elsewhere" / "test" / "digit-0", third / "train" / "digit-0")
    assert call("add", run, third).code == 0
    shutil.rmtree(third)
    shutil.copy(more / "train/digit-0/0.png", more / "train/digit-1/1.png")
    found = call("verify", run, "--json")
    assert (found.code, found.json["data"]["status"]) == (6, {"edited": 1, "same": 31})


def test_all_data_in_one_new_place(place: Path, data: Path, call: Call) -> None:
    run = place / "run"
    assert call("add", run, place / "more").code == 0
    assert call("withhold", run, "--id", GONE, "--erase").code == 0
    shutil.copytree(data, place / "all")
    for path in (place / "more").rglob("*.png"):
        shutil.copy(path, place / "all" / "train" / path.parent.name / f"more-{path.name}")
    shutil.rmtree(place / "more")
    found = call("verify", run, "--data", place / "all", "--json")
    assert found.code == 0
    assert found.json["data"]["status"] == {"moved": 8, "same": 23}
    found = call("verify", run, "--data", "digits", "--json")
    assert (found.code, found.json["data"]["verdict"]) == (6, "other")


def test_a_held_out_and_limited_run_finds_its_samples(place: Path, own_data: Path, call: Call) -> None:
    run = place / "small"
    options = ["--limit", "12", "--holdout", "0.2", "--head", "exemplar", "--epochs", "1"]
    assert call("train", own_data, "--out", run, *options).code == 0
    known = read_run(run).samples.sample_ids
    assert call("add", run, place / "more", "--limit", 7).code == 0
    assert call("withhold", run, "--id", known[0], "--id", "more/train/digit-0/1.png", "--erase").code == 0
    checked = call("verify", run, "--strict", "--json")
    assert (checked.code, checked.json["data"]["samples_now"]) == (0, len(known) + 7 - 2)
    path = own_data / known[1]
    path.rename(path.with_name("zzz.png"))  # within the limit another sample stands for it now
    checked = call("verify", run, "--json")
    assert (checked.code, checked.json["data"]["status"]) == (0, {"moved": 1, "same": len(known) + 4})


def test_a_class_whose_samples_are_withheld(tmp_path: Path, call: Call) -> None:
    made, run, values = RUNS["class-conditional", "fp32"], tmp_path / "run", tmp_path / "one.npy"
    write_run(made, run)
    np.save(values, BASE.images[0].numpy())
    label = explain(made, BASE.images[:1]).predicted[0]
    members = [made.samples.sample_ids[i] for i in np.flatnonzero(made.samples.labels == label)]
    assert call("withhold", run, *(f"--id={name}" for name in members)).code == 0
    found = call("explain", run, values, "--html", tmp_path / "x.html", "--png", tmp_path / "x.png")
    assert found.code == 0, found.err
    assert "No exemplar: all samples of this class are withheld" in found.out
    assert named(call, run, values) == []


def test_the_same_picture_under_other_ids_is_pointed_out(tmp_path: Path, call: Call) -> None:
    """Who erases a picture must not believe that it is gone."""
    images = np.random.default_rng(0).integers(0, 256, (8, 6, 6), dtype=np.uint8)
    images[5] = images[6] = images[0]
    np.savez(tmp_path / "few.npz", images=images, labels=np.arange(8) % 2, ids=list("abcdefgh"))
    run = tmp_path / "run"
    words = ("--head", "exemplar", "--epochs", 1, "--batch-size", 4, "--out", run)
    assert call("train", tmp_path / "few.npz", *words).code == 0
    said = "the same picture stays in the run under other ids; give them, too: "
    assert said not in call("withhold", run, "--id", "b").err
    assert call("withhold", run, "--id", "a", "--json").json["equal_left"] == ["f", "g"]
    found = call("withhold", run, "--id", "a", "--id", "f")
    assert said + "g" in found.err
    assert said not in call("withhold", run, "--id", "g").err  # the others are withheld
    assert said not in call("withhold", run, "--id", "g", "--restore").err
    assert said + "a, f" in call("withhold", run, "--id", "g", "--erase").err  # withheld, but in the files
    assert call("withhold", run, "--id", "a", "--id", "f", "--erase", "--json").json["equal_left"] == []

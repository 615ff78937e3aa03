"""`provnet train --index-subset`: what it says and refuses, and that other commands know the run for what it is."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from provnet.base.options import Debug
from provnet.cli.debug import debug
from provnet.runs.run import read_run
from tests.cases import cases

from .conftest import Call

QUICK = ("--epochs", 1, "--batch-size", 8)


@pytest.fixture(scope="module")
def run(trained: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    from provnet.cli import main

    out = tmp_path_factory.mktemp("subset") / "run"
    wishes = ("--network", "class-independent", "--index-subset", "50%", "--select", "diverse")
    assert main([str(word) for word in ("train", trained[0], "--out", out, *wishes, *QUICK)]) == 0
    return out


def test_a_table_of_what_is_saved(data: Path, tmp_path: Path, call: Call) -> None:
    found = call("train", data, "--out", tmp_path / "run", "--index-subset", "50%", *QUICK)
    assert found.code == 0
    assert "50.0%" in found.out
    assert "indexed: 50%, stratified; the class branch learned from all samples" in found.out
    assert "n = 24" in found.out  # classes
    assert "n = 12" in found.out  # indices


def test_json_tells_the_sizes(data: Path, tmp_path: Path, call: Call) -> None:
    wishes = ("--network", "single", "--head", "exemplar", "--index-subset", 8, "--json")
    found = call("train", data, "--out", tmp_path / "run", *wishes, *QUICK)
    assert found.code == 0
    subset = found.json["subset"]
    assert (found.json["samples"], subset["indexed"], subset["of"], subset["classes_on"]) == (8, 8, 24, "subset")
    width = read_run(tmp_path / "run").network.index_head.keys.shape[1]
    assert subset["index_head_of_all"] - subset["index_head"] == 16 * width
    assert subset["network_of_all"] - subset["network"] == 16 * width
    assert found.json["class_accuracy"]["n"] == 8


def test_the_run_remembers_how_it_was_chosen(run: Path, call: Call) -> None:
    about = read_run(run).config.training["subset"]
    assert {"asked": "50%", "select": "diverse", "indexed": 12, "of": 24, "seed": 0}.items() <= about.items()
    assert "class branch alone" in about["features"]
    assert "select diverse" in call("info", run).out


def test_other_commands_work_on_the_indexed_samples(run: Path, data: Path, tmp_path: Path, call: Call) -> None:
    found = call("verify", run, "--json")
    assert (found.code, found.json["data"]["verdict"], found.json["data"]["samples_now"]) == (0, "same", 12)
    found = call("evaluate", run, "--json")
    assert (found.code, found.json["index_accuracy"]["n"], found.json["any_at_5"]["n"]) == (0, 12, 8)
    assert "left out" not in found.err
    found = call("explain", run, "test:0..3", "--json")
    assert found.code == 0
    names = {exemplar["sample_id"] for one in found.json for exemplar in one["exemplars"]}
    assert names <= set(read_run(run).samples.sample_ids)
    debug(Debug(run=run, out=tmp_path / "debug"))
    assert len((tmp_path / "debug" / "samples.csv").read_text().splitlines()) == 13


def test_verify_sees_changes_among_indexed_and_other_samples(run: Path, data: Path, tmp_path: Path, call: Call) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(data, copy)
    assert call("verify", run, "--data", copy).code == 0
    samples = read_run(run).samples
    indexed = {path for path in samples.paths if path is not None}
    other = next(p for p in sorted(copy.glob("train/*/*.png")) if p.relative_to(copy).as_posix() not in indexed)
    held = other.read_bytes()
    other.unlink()
    found = call("verify", run, "--data", copy)
    assert found.code == 6
    assert "the other samples, which have no index, are not those of training time: 11 now" in found.out
    assert "the same data: 12 samples" in found.out
    renamed = other.with_name("another.png")
    renamed.write_bytes(held)  # its name is not known to the run
    assert call("verify", run, "--data", copy).code == 0
    (copy / samples.paths[0]).unlink()  # type: ignore[operator]
    found = call("verify", run, "--data", copy, "--json")
    assert (found.code, found.json["data"]["status"]) == (6, {"missing": 1, "same": 11})


def test_a_damaged_record_is_no_crash(run: Path, call: Call) -> None:
    from dataclasses import replace

    from provnet.runs.data import find_data

    made = read_run(run)
    odd = replace(made.config, training={**made.config.training, "subset": [1, 2]})
    found = find_data(odd, made.samples)
    assert found.data is not None
    assert (len(found.data), found.rest) == (12, "")


def test_goes_on_and_refuses_another_choice(data: Path, tmp_path: Path, call: Call) -> None:
    words = ("train", data, "--out", tmp_path / "run", *QUICK, "--index-subset", 8)
    assert call(*words).code == 0
    assert "already finished" in call(*words, "--resume").out
    found = call(*words[:-1], 9, "--resume")
    assert found.code == 2
    assert "subset.asked: 8 -> 9" in found.last_line


def test_features_of_a_given_run(run: Path, data: Path, tmp_path: Path, call: Call) -> None:
    wishes = ("--index-subset", "50%", "--select", "boundary", "--select-from", run, "--json")
    found = call("train", data, "--out", tmp_path / "run", *QUICK, *wishes)
    assert found.code == 0
    about = read_run(tmp_path / "run").config.training["subset"]
    assert about["features"] == "a given run, class-independent, backbone small"


@cases(
    ("wishes", "words"),
    [
        (("--select", "diverse"), "--select is for --index-subset"),
        (("--subset-classes-on", "all"), "--subset-classes-on is for --index-subset"),
        (("--index-subset", "120%"), "at most 100%"),
        (("--index-subset", "25"), "there are 24"),
        (("--index-subset", "3"), "4 classes have samples"),
        (("--index-subset", "some"), "such as 30%"),
        (("--index-subset", "50%", "--select", "best"), "allowed: boundary, diverse, prototypes, stratified"),
        (("--index-subset", "50%", "--subset-classes-on", "none"), "allowed: all, subset"),
        (("--index-subset", "50%", "--network", "single", "--subset-classes-on", "all"), "a two-branch network"),
        (("--index-subset", "50%", "--select", "diverse", "--devices", 2), "--select-from"),
        (("--index-subset", "50%", "--select", "diverse", "--select-from", "nowhere"), "no run at nowhere"),
    ],
)
def test_refused(wishes: tuple[object, ...], words: str, data: Path, tmp_path: Path, call: Call) -> None:
    found = call("train", data, "--out", tmp_path / "run", *QUICK, *wishes)
    assert found.code == 2
    assert words in found.last_line
    assert not (tmp_path / "run" / "manifest.json").exists()

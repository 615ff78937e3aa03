"""What is said: one thing at a time, with what was given, and what can be done."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cases import cases

from .conftest import Call

FAST = ["--epochs", "1", "--batch-size", "8"]


def notes(err: str) -> list[str]:
    return [line for line in err.splitlines() if line.startswith("note: -k")]


@pytest.mark.parametrize("k", [7, 24, 25, 100_000])
def test_a_network_that_looks_within_classes_does_not_say_that_all_are_named(k: int, run: Path, call: Call) -> None:
    found = call("explain", run, "test:0", "-k", k)
    words = f"note: -k {k:,}: this network looks within the predicted class; where that has fewer samples, all of them"
    assert notes(found.err) == [f"{words} are named (6 at the fewest)"]
    assert notes(call("explain", run, "test:0", "-k", 6).err) == []


def test_a_network_that_looks_among_all_says_so(banked: Path, call: Call) -> None:
    found = call("explain", banked / "run", "test:0", "-k", 100_000)
    assert notes(found.err) == ["note: -k 100,000 is more than the 24 training samples; all of them are named"]


def test_a_setting_that_changed_is_a_wrong_argument_and_other_data_are_not(
    own_data: Path, tmp_path: Path, call: Call
) -> None:
    first = ("train", own_data, "--out", tmp_path / "run", *FAST)
    assert call(*first).code == 0
    found = call(*first, "--resume", "--seed", 5)
    assert (found.code, found.last_line.count("1 setting differs: training.seed: 0 -> 5.")) == (2, 1)
    found = call(*first, "--resume", "--seed", 5, "--lr", 0.5)
    assert (found.code, found.last_line.count("2 settings differ: ")) == (2, 1)
    (own_data / "train" / "digit-0" / "0.png").unlink()
    found = call(*first, "--resume")
    assert (found.code, found.last_line.count("data.fingerprint")) == (6, 1)


def test_bad_files_name_the_way_out_and_then_only_the_reason(own_data: Path, tmp_path: Path, call: Call) -> None:
    (own_data / "train" / "digit-0" / "bad.png").write_bytes(b"")
    train = ("train", own_data, "--out", tmp_path / "run", *FAST)
    found = call(*train)
    assert found.code == 3
    assert found.last_line.endswith(
        "bad.png: the file is empty; leave it out or replace it; skip_bad (train --skip-bad) leaves all bad files out"
    )
    found = call(*train, "--skip-bad")
    assert found.code == 0
    line = next(line for line in found.err.splitlines() if "bad file left out" in line)
    assert line.endswith("1 bad file left out; the first: train/digit-0/bad.png: the file is empty")


def test_bad_links_and_rows_name_the_way_out(own_data: Path, tmp_path: Path, call: Call) -> None:
    (own_data / "train" / "digit-0" / "link.png").symlink_to(tmp_path / "nowhere.png")
    found = call("train", own_data, "--out", tmp_path / "run", *FAST)
    assert found.last_line.endswith("; skip_bad (train --skip-bad) leaves all bad files out")
    (tmp_path / "list.csv").write_text("path,label\n../x.png,a\n")
    found = call("train", tmp_path / "list.csv", "--out", tmp_path / "run", *FAST)
    assert found.last_line.endswith("; skip_bad (train --skip-bad) leaves all bad files out")


@cases(
    ("arguments", "words"),
    [
        (["trian", "x"], "Did you mean 'train'? See: provnet --help"),
        (["train", "embedded", "--out", "x", "--lr", "-1"], "lr must be a finite number above 0, got -1.0"),
        (["map", "RUN", "--out", "x", "--groups", "0"], "--groups must be 1 or more, got 0"),
        (["map", "RUN", "--out", "x", "--cards", "-1"], "--cards must be 0 or more, got -1"),
        (["map", "RUN", "--out", "x", "--size", "0.01"], "--size must lie between 0.1 and 1000 (MB), got 0.01"),
        (["explain", "RUN"], "Missing argument"),
    ],
)
def test_what_was_given_and_what_is_allowed(
    arguments: list[str], words: str, run: Path, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = call(*(run if word == "RUN" else word for word in arguments))
    assert found.code == 2
    assert words in found.last_line
    assert "?." not in found.last_line


def test_a_null_run_of_another_shape_is_told_both_shapes(run: Path, data: Path, tmp_path: Path, call: Call) -> None:
    other = tmp_path / "other"
    assert call("train", "embedded", "--limit", 20, "--size", 12, "--out", other, *FAST).code == 0
    found = call("audit", run, "--null", other, "--out", tmp_path / "out")
    assert found.code == 2
    words = f"--null {other} takes samples of shape (1, 12, 12), these pictures have (1, 28, 28); give a run that was"
    assert words in found.last_line
    found = call("check", run, "--left-out", other, "--limit", 20)
    assert found.code == 2
    assert f"--left-out {other} takes samples of shape (1, 12, 12), the unseen data have (1, 28, 28)" in found.last_line


def test_verify_counts_what_was_erased(place: Path, call: Call) -> None:
    run = place / "run"
    assert "the same data: 24 samples at training, 24 now" in call("verify", run).out
    assert call("withhold", run, "--id", "train/digit-0/0.png", "--erase").code == 0
    found = call("verify", run)
    assert found.code == 0
    assert "the same data: 23 samples in the run, 23 now; 1 erased from the run since training" in found.out
    assert "at training" not in found.out
    shutil.rmtree(place)


LONG = "x" * 300
LONG_NAMES: dict[str, tuple[object, ...]] = {
    "info": ("info", LONG),
    "explain": ("explain", "RUN", "test:0", "--html", f"{LONG}.html"),
    "debug": ("debug", "RUN", "--out", LONG),
    "check": ("check", "RUN", "--out", LONG),
    "evaluate": ("evaluate", "RUN", LONG),
    "train": ("train", f"{LONG}/a", "--out", "out"),
    "out": ("train", "DATA", "--out", LONG, *FAST),
    "resume": ("train", "DATA", "--out", LONG, *FAST, "--resume"),
    "verify": ("verify", "RUN", "--data", LONG),
}


@cases("name", LONG_NAMES)
def test_a_name_that_no_file_may_have_is_a_wrong_argument(name: str, run: Path, data: Path, call: Call) -> None:
    found = call(*({"RUN": run, "DATA": data}.get(str(word), word) for word in LONG_NAMES[name]))
    assert found.code == 2
    assert "File name too long" in found.last_line


def test_samples_and_classes_may_have_long_names(own_data: Path, tmp_path: Path, call: Call) -> None:
    paths = sorted((own_data / "train").rglob("*.png"))
    rows = [
        f"{path.relative_to(own_data)},{path.parent.name}{LONG},{number}{LONG}" for number, path in enumerate(paths)
    ]
    (own_data / "list.csv").write_text("\n".join(["path,label,id", *rows]) + "\n")
    assert call("train", own_data / "list.csv", "--out", tmp_path / "run", *FAST).code == 0
    assert call("explain", tmp_path / "run", paths[0], "--html", tmp_path / "page.html").code == 0
    assert call("debug", tmp_path / "run", "--out", tmp_path / "out", "--threshold", 1).code == 0


@cases("name", ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK"])
@cases("value", ["abc", "", "-1", "1e3", "9" * 5_000])
def test_garbage_in_place_of_the_number_of_a_process_is_a_wrong_argument(
    name: str, value: str, data: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    found = call("train", data, "--out", tmp_path / "run", *FAST)
    assert found.code == 2
    assert f"the environment variable {name} must be a whole number" in found.last_line


def test_garbage_in_place_of_a_port_is_refused_where_processes_meet(
    data: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASTER_PORT", "tcp://10.0.0.1:80")
    assert call("train", data, "--out", tmp_path / "alone", *FAST).code == 0
    for port in ("tcp://10.0.0.1:80", "70000"):
        monkeypatch.setenv("MASTER_PORT", port)
        found = call("train", data, "--out", tmp_path / "run", *FAST, "--devices", 2)
        assert (found.code, "MASTER_PORT" in found.last_line) == (2, True)


@pytest.mark.parametrize(("name", "count"), [("RANK", "WORLD_SIZE"), ("LOCAL_RANK", "LOCAL_WORLD_SIZE")])
def test_the_number_of_a_process_that_is_none_of_them_is_refused_before_data_are_read(
    name: str, count: str, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bad" / "a").mkdir(parents=True)
    (tmp_path / "bad" / "a" / "1.png").write_bytes(b"none")
    monkeypatch.setenv(name, "5")
    monkeypatch.setenv(count, "2")
    found = call("train", tmp_path / "bad", "--out", tmp_path / "run", *FAST)
    assert found.code == 2
    assert f"the environment variable {name} must be a whole number from 0 to 1 ({count} less one)" in found.last_line
    monkeypatch.setenv(count, "x")
    assert f"the environment variable {count}" in call("train", tmp_path / "bad", "--out", tmp_path / "run").last_line


@cases("width", ["0", "1", "19", "0" * 5_000 + "1", "-3", "wide", ""])
def test_a_width_that_is_none_is_ignored(width: str, run: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", width)
    assert call("info", "nowhere").err == "error: no run at nowhere: there is no such folder\n"
    monkeypatch.setenv("COLUMNS", width)
    assert "class-conditional, backbone small" in call("info", run).out

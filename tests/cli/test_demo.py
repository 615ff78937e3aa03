"""`provnet demo`, made small."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from provnet.cli.demo import run_demo
from provnet.data.open import open_data
from provnet.runs.run import read_run
from provnet.tools.demo import choose_inputs, device_in_words, plant_wrong_labels

from .conftest import Call


def test_a_small_demo_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):  # it replaces its own run
        report = run_demo(tmp_path / "demo", epochs=2, limit=60)
    out = capsys.readouterr().out
    assert str(report.absolute()) in out
    assert "class accuracy" in out
    page = report.read_text()
    assert page.count("<article") == 10
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page
    assert "<script" not in page
    run = read_run(tmp_path / "demo")
    assert run.config.evaluation is not None
    assert run.config.evaluation["class_accuracy"]["n"] == 60
    assert (tmp_path / "demo" / "evaluation.json").exists()
    for tool in ("debug", "audit"):
        assert f'href="{tool}/report.html"' in page
        assert (tmp_path / "demo" / tool / "report.html").exists()
    assert "Wrong labels found" in out


@pytest.mark.parametrize(("threads", "words"), [(1, "CPU, 1 thread"), (2, "CPU, 2 threads")])
def test_threads_are_counted_in_words(monkeypatch: pytest.MonkeyPatch, threads: int, words: str) -> None:
    monkeypatch.setattr("torch.get_num_threads", lambda: threads)
    assert device_in_words("cpu") == words
    assert device_in_words("cuda") == "GPU"


def test_planted_labels_are_wrong_and_the_right_ones_are_kept() -> None:
    data = open_data("embedded", limit=100)
    changed, right = plant_wrong_labels(data, seed=1)
    differ = np.flatnonzero(changed.samples.labels != data.samples.labels)
    assert len(differ) == len(right) == 10
    names = data.class_names
    assert {data.samples.sample_ids[i]: names[data.samples.labels[i]] for i in differ} == right
    assert changed.samples.sample_ids == data.samples.sample_ids


def test_the_command_takes_a_folder(tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Path, int]] = []
    monkeypatch.setattr("provnet.cli.demo.run_demo", lambda out, seed: asked.append((out, seed)))
    assert call("demo", "--out", tmp_path / "x", "--seed", 4).code == 0
    assert call("demo").code == 0
    assert asked == [(tmp_path / "x", 4), (Path("runs/demo"), 0)]


def test_a_folder_that_is_not_a_run_is_left_alone(tmp_path: Path, call: Call) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    found = call("demo", "--out", tmp_path)
    assert found.code == 2
    assert 'it holds "mine.txt"' in found.last_line


def test_right_and_wrong_inputs_of_many_classes() -> None:
    labels = np.repeat(np.arange(10), 10)
    right = np.ones(100, dtype=bool)
    right[[3, 4, 5, 41, 77, 78]] = False
    chosen = choose_inputs(right, labels)
    assert len(chosen) == 10
    assert (~right[chosen]).sum() == 4
    assert {0, 4, 7} == set(labels[chosen][~right[chosen]])
    assert len(set(labels[chosen][right[chosen]])) == 6
    assert len(choose_inputs(np.ones(5, dtype=bool), np.zeros(5, dtype=np.int64))) == 5

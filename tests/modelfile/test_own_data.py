"""A run opens its own data again, from Python as from the command line: by hash, in its own order."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import provnet
from provnet.answers.evaluation import evaluate
from provnet.base.errors import DataError, UsageError
from provnet.base.files import DataWarning
from provnet.cli import main
from provnet.data.apply import apply_decisions
from provnet.data.dataset import ImageData
from provnet.data.select import holdout
from provnet.runs import bank
from provnet.runs.run import Run, read_run
from provnet.samples.decisions import Decision
from provnet.tools.copies.compute import attribute_generated
from provnet.tools.debug.compute import debug
from provnet.tools.map.compute import sample_map
from provnet.tools.membership.compute import audit
from provnet.tools.subsets import index_subset
from provnet.training.config import train_config
from tests.cli.conftest import write_digits
from tests.fitting import fit

ONE = train_config("fast", epochs=1, batch_size=8)
N = 24  # pictures in the folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_digits(tmp_path / "digits")
    return tmp_path / "digits"


def files(folder: Path) -> list[Path]:
    return sorted((folder / "train").rglob("*.png"))


def turn(folder: Path) -> None:
    """Give every file a name that another one had, in another order."""
    for label in (folder / "train").iterdir():
        kept = [(path, path.read_bytes()) for path in sorted(label.iterdir())]
        for (path, _), (_, content) in zip(kept, reversed(kept), strict=True):
            path.write_bytes(content)
            path.rename(path.with_name(f"new-{path.name}"))


def check_same(run: Run, then: ImageData) -> None:
    """The run's own data are those of training, row by row."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        now = run.data()
    assert now.samples.fingerprint == run.samples.fingerprint
    assert torch.equal(now.images, then.images)


def from_npz(folder: Path) -> ImageData:
    data = provnet.open_data(folder)
    place = folder.parent / "digits.npz"
    np.savez(place, images=data.images[:, 0].numpy(), labels=data.labels.numpy())
    return provnet.open_data(place)


def decided(folder: Path) -> ImageData:
    data = provnet.open_data(folder)
    one, other = (data.samples.sample_ids[i] for i in (2, 9))
    first, second = (data.samples.hex(i) for i in (2, 9))
    return apply_decisions(data, [Decision(one, first, "drop"), Decision(other, second, "relabel", "digit-3")])


SOURCES: dict[str, Callable[[Path], ImageData]] = {
    "folder": provnet.open_data,
    "npz": from_npz,
    "embedded": lambda _: provnet.open_data("embedded", limit=30),
    "held out": lambda folder: holdout(provnet.open_data(folder, limit=20), 0.2)[0],
    "decisions": decided,
}


@pytest.mark.parametrize("name", SOURCES)
def test_data_are_opened_again_as_they_were(name: str, folder: Path) -> None:
    data = SOURCES[name](folder)
    check_same(fit(data, config=ONE, out=folder.parent / "run"), data)
    check_same(read_run(folder.parent / "run"), data)


@pytest.mark.parametrize("limit", [None, 12])
def test_renamed_and_reordered_files_come_in_the_order_of_training(limit: int | None, folder: Path) -> None:
    data = provnet.open_data(folder, limit=limit)
    run = fit(data, config=ONE)
    turn(folder)
    assert provnet.open_data(folder, limit=limit).samples.fingerprint != data.samples.fingerprint
    check_same(run, data)


def test_a_place_of_now_is_given_by_path_or_as_data(folder: Path) -> None:
    data = provnet.open_data(folder)
    run = fit(data, config=ONE)
    moved = folder.rename(folder.with_name("moved"))
    with pytest.raises(DataError, match=r"the training data cannot be opened: .*; say where they are: run\.data"):
        run.data()
    for given in (moved, str(moved), provnet.open_data(moved).select(np.arange(N)[::-1])):
        assert torch.equal(run.data(given).images, data.images)
    with pytest.raises(UsageError, match="nowhere"):
        run.data("nowhere")


def test_edited_and_missing_samples_are_left_out_and_counted(folder: Path) -> None:
    data = provnet.open_data(folder)
    run = fit(data, config=ONE)
    first, second, third = files(folder)[:3]
    second.unlink()
    shutil.copy(files(folder)[-1], first)
    with pytest.warns(DataWarning, match=r"1 edited .*; .*1 missing.*; .*2 of 24 training samples are left out"):
        now = run.data()
    there = np.arange(2, N)
    assert third.name in now.samples.sample_ids[0] and torch.equal(now.images, data.images[2:])
    assert evaluate(run, train=now).to_json() == evaluate(run, train=data.select(there), index=there).to_json()
    assert debug(run, now).index.tolist() == there.tolist()
    shutil.rmtree(folder)
    with pytest.warns(DataWarning, match="index accuracy is not measured: the training data cannot be opened"):
        assert evaluate(run).index_accuracy.n == 0


def test_samples_that_came_and_went(folder: Path) -> None:
    data, more = provnet.open_data(folder), provnet.open_data(folder, split="test")
    run = fit(data, head="exemplar", config=ONE)
    gone, hidden = data.samples.sample_ids[3], data.samples.sample_ids[5]
    run = bank.withhold(bank.erase(bank.add(run, more), [gone]), [hidden])
    turn(folder)
    then = torch.cat([data.images[:3], data.images[4:], more.images])
    check_same(run, replace(data, images=then, samples=run.samples))
    assert evaluate(run).index_accuracy.n == N - 2 + len(more)


def test_a_run_that_indexes_some_samples_opens_those_alone(folder: Path) -> None:
    data = provnet.open_data(folder)
    chosen = index_subset(data, 8, "stratified")
    run = fit(data, index_subset=chosen, config=ONE)
    check_same(run, data.select(chosen.rows))
    with pytest.raises(UsageError, match=r"not the ones this run was trained on; .*run\.data\(data\) takes those"):
        evaluate(run, train=data)
    assert evaluate(run, train=run.data(data)).index_accuracy.n == 8


def test_arrays_are_given_once_more() -> None:
    given = provnet.open_data("embedded", limit=20)
    data = provnet.open_data(given.images, given.labels, ids=[f"scan-{i}" for i in range(20)])
    run = fit(data, config=ONE)
    with pytest.raises(DataError, match="given as arrays or objects"):
        run.data()
    assert run.data(data.select(np.arange(20)[::-1])).samples.fingerprint == run.samples.fingerprint
    found = evaluate(run)
    assert (found.index_accuracy.n, found.class_accuracy.n) == (0, 0)


def test_other_data_are_refused_in_words(folder: Path) -> None:
    run = fit(provnet.open_data(folder), config=ONE)
    for other in ("digits", provnet.open_data("embedded", split="test", limit=20)):
        with pytest.raises(DataError, match=r"none of the training samples is among the data \(another data set: 24"):
            run.data(other)
    with pytest.raises(DataError, match=r"samples of shape \(1, 8, 8\), the run takes \(1, 28, 28\)"):
        run.test("digits")
    with pytest.raises(UsageError, match='classes that the run does not know, the first "0"'):
        run.test("embedded")


def test_the_test_split_has_the_runs_classes(folder: Path) -> None:
    test = provnet.open_data(folder, split="test")
    run = fit(provnet.open_data(folder), test=test, config=ONE)
    found = run.test()
    assert found is not None and torch.equal(found.images, test.images)
    names = test.class_names[::-1]
    turned = replace(test, samples=replace(test.samples, class_names=names, labels=3 - test.samples.labels))
    again = run.test(turned)
    assert again is not None and again.samples.labels.tolist() == test.samples.labels.tolist()
    assert fit(provnet.open_data("embedded", limit=20), config=ONE).test() is None


def test_functions_take_the_runs_own_data(folder: Path) -> None:
    data, test = provnet.open_data(folder), provnet.open_data(folder, split="test")
    fit(data, test=test, config=ONE, out=folder.parent / "run")
    run = read_run(folder.parent / "run")
    turn(folder)
    assert evaluate(run).to_json() == evaluate(run, test, data).to_json()
    assert debug(run).mislabels.score.tolist() == debug(run, data).mislabels.score.tolist()
    assert audit(run, distort=False).to_json() == audit(run, data, test, distort=False).to_json()
    maps = [sample_map(run, given, groups=1, engine="scikit-learn", perplexity=5) for given in (None, data)]
    assert maps[0].xy.tolist() == maps[1].xy.tolist()
    traced = [attribute_generated(test.images[:2], run, data=given).ratio.tolist() for given in (None, data)]
    assert traced[0] == traced[1]
    with pytest.raises(UsageError, match="no test split of its own; give pictures that it never saw as nonmembers"):
        audit(fit(provnet.open_data("embedded", limit=20), config=ONE))


def test_python_and_the_command_line_find_the_same(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, place = provnet.open_data(folder), folder.parent / "run"
    fit(data, test=provnet.open_data(folder, split="test"), config=ONE, out=place)
    turn(folder)
    files(folder)[0].unlink()
    capsys.readouterr()
    assert main(["evaluate", str(place), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    with pytest.warns(DataWarning, match="1 missing"):
        figures = evaluate(read_run(place)).to_json()
    assert said == {name: figures[name] for name in said}

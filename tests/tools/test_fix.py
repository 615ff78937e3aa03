"""fix: labels change in the new run alone, the old one stays, and what changed is measured on the same samples."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import provnet
from provnet.base.errors import DataError, UsageError
from provnet.base.options import RunOptions
from provnet.cli import main
from provnet.data.select import holdout
from provnet.runs.run import Run, read_run
from provnet.samples.decisions import Decision, decisions_csv
from provnet.tools.debug.fix import FIXED, fix, paired_difference, undo
from provnet.training.config import train_config
from provnet.training.fit import fit

FLIPPED = 12


@pytest.fixture(scope="module")
def wrong_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Path, dict[str, int]]:
    """A run on 200 digits in a file, 12 of them under a wrong label, a fifth held out; and the right labels."""
    folder = tmp_path_factory.mktemp("fix")
    data = provnet.open_data("embedded", limit=200)
    labels = data.samples.labels.copy()
    kept, _ = holdout(data, 0.2)
    rows = [data.samples.id_places[name] for name in kept.samples.sample_ids[:FLIPPED]]
    truth = {data.samples.sample_ids[row]: int(labels[row]) for row in rows}
    labels[rows] = (labels[rows] + 1) % 10
    np.savez(folder / "digits.npz", images=data.images.numpy(), labels=labels)
    opened = provnet.open_data(str(folder / "digits.npz"))
    train, test = holdout(opened, 0.2)
    config = train_config("fast", epochs=2, batch_size=32)
    run = fit(train, config, RunOptions(out=folder / "run"), test=test.spec)
    there = {opened.samples.sample_ids[row]: truth[data.samples.sample_ids[row]] for row in rows}
    names = set(run.samples.sample_ids)
    return read_run(folder / "run"), folder, {name: label for name, label in there.items() if name in names}


def decisions_of(run: Run, right: dict[str, int]) -> list[Decision]:
    """A relabel for each, but the last is dropped."""
    places, names = run.samples.id_places, list(right)
    found = [Decision(name, run.samples.hex(places[name]), "relabel", str(right[name])) for name in names[:-1]]
    return [*found, Decision(names[-1], run.samples.hex(places[names[-1]]), "drop")]


def test_decisions_change_the_new_run_alone(wrong_run: tuple[Run, Path, dict[str, int]]) -> None:
    run, folder, right = wrong_run
    before = {path.name: path.read_bytes() for path in (folder / "run").iterdir()}
    data = (folder / "digits.npz").read_bytes()
    chosen = decisions_of(run, right)
    made = fix(run, folder / "new", decisions=chosen)
    assert {path.name: path.read_bytes() for path in (folder / "run").iterdir()} == before
    assert (folder / "digits.npz").read_bytes() == data
    new = read_run(folder / "new")
    for one in chosen[:-1]:
        assert new.samples.class_names[int(new.samples.labels[new.samples.id_places[one.sample_id]])] == one.new_label
    assert chosen[-1].sample_id not in new.samples.id_places
    assert set(new.samples.sample_ids) == set(run.samples.sample_ids) - {chosen[-1].sample_id}
    assert new.config.training["training"] == run.config.training["training"]
    assert new.test().samples.sample_ids == run.test().samples.sample_ids
    assert new.data().samples.fingerprint == new.samples.fingerprint  # it opens again as it was trained
    assert made.before.n == made.after.n == made.difference.n == len(run.test())
    assert made.difference.value == pytest.approx((made.after.value or 0) - (made.before.value or 0))
    assert len(made.answers) >= abs(made.difference.value or 0) * made.before.n


def test_it_can_be_done_twice_and_undone(wrong_run: tuple[Run, Path, dict[str, int]]) -> None:
    run, folder, right = wrong_run
    chosen = decisions_of(run, right)
    fix(run, folder / "first", decisions=chosen[:3])
    second = fix(read_run(folder / "first"), folder / "second", decisions=chosen[3:5])
    for one in chosen[:5]:
        table = second.run.samples
        assert table.class_names[int(table.labels[table.id_places[one.sample_id]])] == one.new_label
    old, about = undo(folder / "second")
    assert old == (folder / "first").resolve() and len(about["changes"]) == 2
    assert undo(old)[0] == (folder / "run").resolve()
    with pytest.raises(UsageError, match="was not made by provnet fix"):
        undo(folder / "run")


def test_what_was_changed_names_a_run_that_is_another_now(wrong_run: tuple[Run, Path, dict[str, int]]) -> None:
    run, folder, right = wrong_run
    fix(run, folder / "third", decisions=decisions_of(run, right)[:1])
    about = json.loads((folder / "third" / FIXED).read_text())
    (folder / "third" / FIXED).write_text(json.dumps(about | {"fingerprint": "0" * 64}))
    with pytest.raises(DataError, match="another run now"):
        undo(folder / "third")


def test_the_command(wrong_run: tuple[Run, Path, dict[str, int]], capsys: pytest.CaptureFixture[str]) -> None:
    run, folder, right = wrong_run
    (folder / "decisions.csv").write_bytes(decisions_csv(decisions_of(run, right)))
    words = ["fix", str(folder / "run"), "--out", str(folder / "by-command")]
    assert main([*words, "--decisions", str(folder / "decisions.csv"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["dropped"] == 1 and found["relabelled"] == len(right) - 1
    assert main(["fix", str(folder / "by-command"), "--undo"]) == 0
    assert "your data were never changed" in capsys.readouterr().out.replace("\n", " ")


def test_stopped_before_its_end_it_goes_on_but_not_with_another_run(
    wrong_run: tuple[Run, Path, dict[str, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    run, folder, right = wrong_run
    chosen = decisions_of(run, right)[:2]
    fix(run, folder / "stopped", decisions=chosen)
    (folder / "stopped" / FIXED).unlink()  # as a kill leaves it, between the run and what tells of it
    weights = (folder / "stopped" / "model.safetensors").read_bytes()
    fix(run, folder / "stopped", decisions=chosen)
    assert undo(folder / "stopped")[0] == (folder / "run").resolve()
    assert (folder / "stopped" / "model.safetensors").read_bytes() == weights
    (folder / "two.csv").write_bytes(decisions_csv(chosen))
    for taken, words in (("run", "already holds another run"), ("stopped", "already holds a run that fix made")):
        before = {path.name: path.read_bytes() for path in (folder / taken).iterdir()}
        given = ["--out", str(folder / taken), "--decisions", str(folder / "two.csv")]
        assert main(["fix", str(folder / "run"), *given]) == 2
        assert words in capsys.readouterr().err
        assert {path.name: path.read_bytes() for path in (folder / taken).iterdir()} == before


def test_nothing_to_change_is_said(wrong_run: tuple[Run, Path, dict[str, int]]) -> None:
    run, folder, _ = wrong_run
    with pytest.raises(UsageError, match="nothing to change"):
        fix(run, folder / "none", decisions=[])
    assert not (folder / "none").exists()


def test_a_paired_interval_is_narrower_than_two_of_their_own() -> None:
    chance = np.random.default_rng(0)
    before = chance.random(1000) < 0.8
    after = before ^ (chance.random(1000) < 0.02)
    found = paired_difference(before, after)
    assert found.high is not None and found.low is not None
    assert found.high - found.low < 0.03
    assert found.low <= (found.value or 0) <= found.high

"""Audits with shadow models: attacks as published, intervals that hold the truth, files, and what is refused."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import provnet
from provnet.base.errors import DataError, NonFiniteError, UsageError
from provnet.runs.inputs import run_of
from provnet.tools.membership.shadows import (
    ShadowScores,
    attacks,
    audit_shadows,
    read_scores,
    scores_of_runs,
    share_used,
    simulated,
)
from provnet.training.config import train_config
from provnet.training.fit import fit
from tests.cases import cases

DRAWS = 200


def test_intervals_of_simulated_audits_hold_the_truth() -> None:
    many, _ = simulated(60_000, 8, seed=10**9)
    truth = {}
    for name, score in attacks(many).items():
        inside, outside = (np.sort(score[many.member == kind]) for kind in (1, 0))
        truth[name] = inside, np.searchsorted(outside, inside).mean() / len(outside)
    held: dict[str, list[bool]] = {"share": []}
    for seed in range(DRAWS):
        made, used = simulated(2_000, 8, seed=seed, candidates=300)
        found = audit_shadows(made)
        assert found.used is not None and found.used.low is not None and found.used.high is not None
        held["share"].append(found.used.low <= used[2_000:].mean() <= found.used.high)
        for name in ("lira", "rmia", "attack_p"):
            one, (inside, area) = found.found[name], truth[name]
            low, high = one.auc.low, one.auc.high
            assert low is not None and high is not None
            held.setdefault(f"{name}, AUC", []).append(low <= area <= high)
            at = one.at[0.01]
            assert at.threshold is not None and at.tpr.low is not None and at.tpr.high is not None
            exact = 1 - np.searchsorted(inside, at.threshold) / len(inside)
            held.setdefault(f"{name}, found", []).append(at.tpr.low <= exact <= at.tpr.high)
    shares = {name: float(np.mean(each)) for name, each in held.items()}
    assert 0.93 <= np.mean(list(shares.values())) <= 0.97, shares
    assert all(0.9 <= share <= 0.99 for share in shares.values()), shares  # of 200 draws, three standard errors


def test_lira_and_rmia_are_the_published_formulas() -> None:
    made, _ = simulated(400, 6, seed=1)
    found = attacks(made)
    row, inside = 7, made.inside[7]
    scores, target = made.shadows[:, :, 0], made.target[:, 0]
    mean = {kind: scores[row][inside == kind].mean() for kind in (True, False)}
    spread = {}
    for kind in (True, False):
        left = [scores[i][made.inside[i] == kind] for i in range(400)]
        squares = sum(((one - one.mean()) ** 2).sum() for one in left)
        spread[kind] = np.sqrt(squares / sum(len(one) - 1 for one in left))
    density = {
        kind: -((target[row] - mean[kind]) ** 2) / (2 * spread[kind] ** 2) - np.log(spread[kind]) for kind in mean
    }
    assert found["lira"][row] == pytest.approx(density[True] - density[False])
    assert found["lira_offline"][row] == pytest.approx((target[row] - mean[False]) / spread[False])

    def sure(values: np.ndarray) -> np.ndarray:
        return np.asarray(1 / (1 + np.exp(-values)))

    reference = np.array(
        [sure(s[i]).mean() / 2 + sure(s[~i]).mean() / 2 for s, i in zip(scores, made.inside, strict=True)]
    )
    ratio = sure(target) / reference
    exceeded = (ratio[:, None] / ratio[made.member == 0] >= 2).mean(1)  # RMIA's own score, γ = 2
    assert (np.diff(exceeded[np.argsort(found["rmia"])]) >= 0).all()


def test_what_is_claimed_follows_from_the_samples_that_are_known() -> None:
    made, used = simulated(4_000, 16, seed=2, gap=3.0, candidates=500)
    found = audit_shadows(made)
    assert (found.decides, found.members, found.others, found.candidates) == ("lira", 2_000, 2_000, 500)
    names = {name for name, _, _ in found.vulnerable}
    truly = {name for name, kind in zip(made.ids, made.member, strict=True) if kind == 1}
    assert names and names <= truly and found.claimed_at == 0.01
    assert max(p for _, _, p in found.vulnerable) <= 0.0106
    assert found.used is not None and found.used.value == pytest.approx(used[4_000:].mean(), abs=0.05)
    assert found.epsilon is not None and 0 < found.epsilon < np.log(1 / 0.01)
    values = found.to_json()
    assert (
        values["vulnerable"]["count"] == len(names)
        and values["found"]["lira"]["tpr_at_fpr"]["0.001"]["tpr"]["value"] is None
    )


def test_nothing_is_said_where_an_attack_cannot_tell() -> None:
    draw = np.random.default_rng(0)
    found = share_used(draw.normal(size=500), draw.normal(size=500), draw.normal(size=100))
    assert found.value is None and "cannot tell" in found.why
    few = audit_shadows(simulated(300, 2, seed=0)[0])
    assert few.decides == "rmia" and few.claimed_at is None and few.epsilon is None and not few.vulnerable
    alone = simulated(300, 0, seed=0)[0]
    assert audit_shadows(alone).decides == "attack_p" and list(attacks(alone)) == ["attack_p"]


def write_table(path: Path, made: ShadowScores) -> None:
    """Scores as a .csv, with a score of its own beside."""
    k = made.inside.shape[1]
    pairs = [name for number in range(1, k + 1) for name in (f"shadow_{number}", f"inside_{number}")]
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["id", "member", "target", *pairs, "score_index"])
        for row, name in enumerate(made.ids):
            each = [x for pair in zip(made.shadows[row, :, 0], made.inside[row].astype(int), strict=True) for x in pair]
            member = "" if made.member[row] < 0 else int(made.member[row])
            table.writerow([name, member, made.target[row, 0], *each, float(row)])


def test_a_table_and_arrays_say_the_same(tmp_path: Path) -> None:
    made, _ = simulated(60, 4, seed=3, candidates=10)
    write_table(tmp_path / "scores.csv", made)
    arrays = {"target": made.target[:, 0], "shadows": made.shadows[..., 0], "inside": made.inside}
    np.savez(tmp_path / "scores.npz", id=np.array(made.ids), member=made.member, score_index=np.arange(70.0), **arrays)
    of_table, of_arrays = (audit_shadows(read_scores(tmp_path / f"scores.{kind}")) for kind in ("csv", "npz"))
    assert of_table.to_json() == of_arrays.to_json()
    assert (of_table.candidates, of_table.shadows) == (10, 4) and "index" in of_table.found


def test_the_scores_of_runs_say_who_saw_what() -> None:
    data = provnet.open_data("embedded", limit=60)
    halves = [data.select(np.arange(first, first + 40)) for first in (0, 20)]
    config = train_config(epochs=1, network="class-conditional")
    runs = [run_of(fit(half, config)) for half in halves]
    found = scores_of_runs(runs[0], runs[1:], data)
    assert found.member.tolist() == [1] * 40 + [0] * 20
    assert found.inside[:, 0].tolist() == [False] * 20 + [True] * 40
    answers = provnet.explain(runs[0], data.images)
    right = answers.predicted == data.samples.labels
    sure = answers.confidence[right].astype(np.float64)
    assert right.any() and np.allclose(1 / (1 + np.exp(-found.target[right, 0])), sure, atol=1e-5)
    assert "contrast" in found.own


Change = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]
HALF = {"target": np.full(6, 0.5), "shadows": np.full((6, 2), 0.5)}


@cases(
    "change, error, words",
    [
        (lambda a: a | HALF, DataError, "log(p"),
        (lambda a: a | {"id": np.array(["a"] * 6)}, DataError, "twice"),
        (lambda a: a | {"target": np.full(6, np.inf)}, NonFiniteError, "not finite"),
        (lambda a: a | {"member": np.ones(6)}, UsageError, "2 known members and 2 known others"),
        (lambda a: a | {"member": np.full(6, 2)}, DataError, "1, 0, or empty"),
        (lambda a: a | {"inside": np.ones((6, 3))}, DataError, "shadows must have the shape"),
        (lambda a: {k: v for k, v in a.items() if k != "target"}, DataError, "lacks target"),
        (lambda a: a | {"id": np.array([{}] * 6)}, DataError, "plain arrays"),
    ],
)
def test_wrong_files_are_refused_in_words(change: Change, error: type[Exception], words: str, tmp_path: Path) -> None:
    arrays = {
        "id": np.array(list("abcdef")),
        "member": np.array([1, 1, 0, 0, -1, 1]),
        "target": np.linspace(-3, 3, 6),
        "shadows": np.linspace(-3, 3, 12).reshape(6, 2),
        "inside": np.tile([True, False], (6, 1)),
    }
    np.savez(tmp_path / "scores.npz", **change(arrays))
    with pytest.raises(error, match=re.escape(words)):
        audit_shadows(read_scores(tmp_path / "scores.npz"))

"""Audits: figures that can be counted by hand, what is left out, the null check, and a run that does memorise."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from provnet.answers.metrics import roc
from provnet.base.errors import UsageError
from provnet.models.keys import exemplar_head
from provnet.tools.membership.compute import (
    SCORES,
    Audit,
    audit,
    audit_scores,
    lookup,
    member_scores,
    thin_curve,
    untrained_with_keys,
)
from tests import banked, digits

MEMBERS, OTHERS = banked.vectors(60, seed=1), banked.vectors(90, seed=2)


@pytest.fixture(scope="module")
def found() -> Audit:
    return audit(banked.banked_run(MEMBERS), MEMBERS, OTHERS)


def test_keys_of_members_tell_them_apart_and_nothing_else_does(found: Audit) -> None:
    assert (found.members, found.nonmembers) == (60, 90)
    assert found.scores["similarity"].auc.value == 1.0
    assert found.best() in ("similarity", "contrast")
    assert set(found.scores) == set(found.null) == set(SCORES)
    assert sum(one.low <= 0.5 <= one.high for one in found.null.values()) >= 5  # type: ignore[operator]
    assert found.null_about == "the same network, weights drawn anew"
    assert found.lookup["bytes"]["members"].value == 1.0
    assert found.lookup["pixels"]["nonmembers"].value == 0.0
    assert found.left_out == dict.fromkeys(found.left_out, 0)


def test_keys_without_training_say_what_storing_alone_gives_away(found: Audit) -> None:
    assert found.null_keys is not None
    assert found.null_keys["similarity"].value == 1.0  # as much as the run: nothing of it is memory
    assert found.null["similarity"].high < 0.9  # type: ignore[operator]
    assert found.null_keys["class_confidence"].low < 0.5 < found.null_keys["class_confidence"].high  # type: ignore[operator]
    told = found.to_json()["null_keys"]
    assert told["about"] == "the same network, weights drawn anew, with a key of its own for each member"
    assert set(told["auc"]) == set(SCORES)


@pytest.mark.parametrize("network", ["single", "class-conditional"])
@pytest.mark.parametrize("kind", ["fp32", "int8"])
def test_every_network_with_keys_has_that_control(network: str, kind: str) -> None:
    run = banked.banked_run(MEMBERS, network, key_type=kind)
    own, null = MEMBERS.select(np.arange(40)), banked.banked_run(banked.vectors(40, seed=8))
    found, other = (audit(run, own, OTHERS, null=one, distort=False).null_keys for one in (None, null))
    assert found is not None
    assert found == other  # whoever stands for a network that saw neither
    assert found["similarity"].value > 0.95  # type: ignore[operator]
    made = untrained_with_keys(run, own.samples, own.images)
    assert made is not None
    assert made.index_map.labels.tolist() == own.samples.labels.tolist()
    assert exemplar_head(made).stored == kind
    assert made.support is not run.network.support


def test_an_output_layer_stores_no_samples() -> None:
    found = audit(digits.trained("class-independent"), digits.training(), digits.unseen(), distort=False)
    assert found.null_keys is None
    assert found.to_json()["null_keys"] is None


def test_keys_are_made_of_members_that_the_run_knows() -> None:
    run = banked.banked_run(MEMBERS)
    mixed = MEMBERS.select(np.arange(60)[::-1].copy())
    made = untrained_with_keys(run, mixed.samples, mixed.images)
    assert made is not None
    assert made.index_map.labels.tolist() == MEMBERS.samples.labels[::-1].tolist()
    assert untrained_with_keys(run, OTHERS.samples, OTHERS.images) is None


def test_distorted_members_stand_against_nonmembers_distorted_alike(found: Audit) -> None:
    assert set(found.distorted) == {"noise-0.05", "noise-0.1"}
    weak, strong = (found.distorted[name]["similarity"].auc.value for name in ("noise-0.05", "noise-0.1"))
    assert weak > strong > 0.7  # type: ignore[operator]
    assert len(found.copies) == 120 and len(found.heldout) == 90
    assert (np.diff(found.copies) >= 0).all() and (np.diff(found.heldout) >= 0).all()


def test_figures_do_not_depend_on_the_batch(found: Audit) -> None:
    for size in (1, 7):
        other = audit(banked.banked_run(MEMBERS), MEMBERS, OTHERS, batch_size=size)
        assert other.copies == pytest.approx(found.copies, abs=0.01)  # logs of small distances
        for name, one in other.distorted.items():
            assert one["contrast"].auc.value == pytest.approx(found.distorted[name]["contrast"].auc.value, abs=1e-3)


def test_json_is_plain_and_whole(found: Audit) -> None:
    values = json.loads(json.dumps(found.to_json(), allow_nan=False))
    one = values["scores"]["index_entropy"]
    assert sum(one["histogram"]["members"]) == 60
    assert sum(one["histogram"]["nonmembers"]) == 90
    assert one["tpr_at_fpr"]["0.01"]["tpr"]["value"] is None
    assert "too few" in one["tpr_at_fpr"]["0.01"]["tpr"]["why"]
    assert set(values["distorted"]["noise-0.1"]["contrast"]) == {"auc", "tpr_at_fpr"}


def test_figures_are_those_of_the_scores() -> None:
    run, test = digits.trained("class-independent"), digits.unseen()
    found = audit(run, digits.training(), test, distort=False)
    own, others = (member_scores(run, data.images).values for data in (digits.training(), test))
    for name in SCORES:
        truth = np.arange(len(own[name]) + len(test)) < len(own[name])
        wanted = roc_auc_score(truth, np.concatenate([own[name], others[name]]))
        assert found.scores[name].auc.value == pytest.approx(wanted, abs=0.01)  # batches of other sizes
    assert found.copies.size == 0
    assert found.distorted == {}


def test_withheld_members_and_nonmembers_that_are_none_are_left_out() -> None:
    run = banked.banked_run(MEMBERS)
    withheld = np.arange(60) < 7
    hidden = replace(run, samples=replace(run.samples, withheld=withheld))
    both = banked.vectors(60, seed=1).select(np.arange(50, 60))
    mixed = replace(
        OTHERS,
        images=torch.cat([OTHERS.images[:80], both.images]),
        samples=replace(
            OTHERS.samples,
            **{
                name: np.concatenate([getattr(OTHERS.samples, name)[:80], getattr(both.samples, name)])
                for name in ("sha256", "pixel_sha256")
            },
        ),
    )
    found = audit(hidden, MEMBERS, mixed, distort=False)
    assert (found.members, found.nonmembers) == (53, 80)
    assert sorted(found.left_out.values()) == [7, 10]
    assert lookup(hidden.samples, MEMBERS, OTHERS)["bytes"]["members"].value == 53 / 60
    with pytest.raises(UsageError, match="members and nonmembers: 60 and 0 are left"):
        audit(run, MEMBERS, MEMBERS)


def test_another_run_can_stand_for_one_that_saw_neither() -> None:
    unseen = banked.banked_run(banked.vectors(40, seed=8))
    found = audit(banked.banked_run(MEMBERS), MEMBERS, OTHERS, null=unseen, distort=False)
    assert found.null_about == "another run, trained on neither"
    assert found.null["similarity"].low < 0.5 < found.null["similarity"].high  # type: ignore[operator]


def test_the_seed_decides_copies() -> None:
    run = banked.banked_run(MEMBERS)
    one, same, other = (audit(run, MEMBERS, OTHERS, seed=seed).copies.tolist() for seed in (1, 1, 2))
    assert one == same != other


def test_constant_scores_can_be_audited() -> None:
    found = audit_scores(np.ones(5), np.ones(4))
    assert found.auc.value == 0.5
    assert found.members.sum() == 5


@pytest.mark.parametrize("n", [5, 4000])
def test_a_thinned_curve_lies_on_the_curve(n: int) -> None:
    chance = np.random.default_rng(0)
    truth, score = np.arange(2 * n) < n, chance.normal(size=2 * n) + (np.arange(2 * n) < n)
    curve = roc(truth, score)
    points = thin_curve(curve)
    every = set(zip(curve.fpr.tolist(), curve.tpr.tolist(), strict=True))
    assert {tuple(point) for point in points.tolist()} <= every
    assert len(points) < 460
    assert points[0].tolist() == [0, 0] and points[-1].tolist() == [1, 1]
    assert np.trapezoid(points[:, 1], points[:, 0]) == pytest.approx(curve.auc, abs=2e-3)

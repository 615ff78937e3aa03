"""Does the ranking depend on the learned weights? Networks redrawn layer by layer, and rankings that do not learn."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from provnet.base.errors import UsageError
from provnet.base.stats import Interval
from provnet.runs import bank
from provnet.runs.run import Run
from provnet.tools.membership.compute import cascade, feature_scores, index_scores, layers
from provnet.tools.trust.compute import Dependence, Step, abstention, check, dependence, spearman, verdicts
from provnet.training.config import train_config
from tests.cases import cases
from tests.fitting import fit

from ..digits import NETWORKS, trained, training, unseen
from .made import keyed

EVERY = [("outputs", network) for network in NETWORKS] + [("keys", network) for network in NETWORKS[:3]]


def run_of(head: str, network: str) -> Run:
    return keyed(network) if head == "keys" else trained(network)


@cache
def depends(head: str, network: str) -> Dependence:
    return dependence(run_of(head, network), unseen().images, training().images, np.arange(62))


def test_spearman_with_ties_and_gaps() -> None:
    one = np.array([[1.0, 2, 2, 4, np.nan], [1, 2, 3, 4, 5], [1, 1, 1, 1, 1], [1, 2, np.nan, np.nan, np.nan]])
    other = np.array([[1.0, 3, 2, 4, 9], [5, 4, 3, 2, 1], [1, 2, 3, 4, 5], [1, 2, 3, 4, 5]])
    found = spearman(one, other)
    ranks = np.corrcoef([0, 1.5, 1.5, 3], [0, 2, 1, 3])[0, 1]
    assert found[:2] == pytest.approx([ranks, -1])
    assert np.isnan(found[2:]).all()


def test_spearman_is_the_correlation_of_ranks() -> None:
    one, other = np.random.default_rng(0).normal(size=(2, 5, 40))
    ranks = [np.argsort(np.argsort(values, axis=1), axis=1) for values in (one, other)]
    expected = [np.corrcoef(a, b)[0, 1] for a, b in zip(*ranks, strict=True)]
    assert spearman(one, other) == pytest.approx(expected)


@cases(("head", "network"), EVERY)
def test_the_cascade_draws_layer_after_layer_anew_and_leaves_the_network_alone(head: str, network: str) -> None:
    net = run_of(head, network).network
    before = {name: value.clone() for name, value in net.state_dict().items()}
    chosen = torch.arange(0, 62, 2) if head == "keys" else torch.arange(62)
    steps = len(layers(net))
    changed: set[str] = set()
    for number, (_, made, _) in enumerate(cascade(net, chosen, seed=0)):
        now = made.state_dict()
        assert set(now) >= {name for name in before if name.startswith("backbone")}
        here = {
            name for name, value in now.items() if name.startswith("backbone") and not torch.equal(value, before[name])
        }
        assert changed <= here
        assert bool(here) == (number >= steps - len([1 for words, _ in layers(net) if "layer" in words]))
        changed = here
    weights = {name for name, value in net.backbone.named_parameters(prefix="backbone") if value.ndim > 1}
    assert weights <= changed
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_the_cascade_depends_on_the_seed_alone() -> None:
    net, images = trained("single").network, unseen().images[:3]
    none = torch.zeros(3, dtype=torch.int64)

    def last(seed: int) -> torch.Tensor:
        every = [step.net for step in cascade(net, torch.arange(62), seed)]
        return index_scores(every[-1], images, none, torch.arange(62))

    first = last(1)
    torch.rand(3)
    assert torch.equal(first, last(1))
    assert not torch.equal(first, last(2))


@cases(("head", "network"), EVERY)
def test_other_weights_give_other_rankings(head: str, network: str) -> None:
    found = depends(head, network)
    assert found.control.spearman.value == found.control.overlap.value == 1
    assert found.control.spearman.high == 1
    assert abs(found.head.spearman.value or 9) < 0.3
    assert abs(found.steps[-1].spearman.value or 9) < 0.3
    assert (found.fresh is not None) == (head == "keys")
    assert found.whole.spearman.value == (found.fresh or found.steps[-1]).spearman.value
    assert found.queries == 50


def test_keys_are_compared_as_they_are_stored() -> None:
    run, classes = keyed("single"), torch.zeros(50, dtype=torch.int64)
    stored = index_scores(run.network, unseen().images, classes, torch.arange(62))
    made = feature_scores(run.network, unseen().images, training().images)
    assert torch.allclose(stored, made, atol=1e-5)


def test_within_a_class_only_its_samples_are_ranked() -> None:
    net, classes = trained("class-conditional").network, torch.full((4,), 3)
    scores = index_scores(net, unseen().images[:4], classes, torch.arange(62))
    assert torch.equal(~scores[0].isnan(), net.index_map.labels == 3)


class Pixels(nn.Module):
    """A backbone that learns nothing: small pixels."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.avg_pool2d(x, 2).flatten(1)


def weights_of(outcomes: tuple[Any, ...]) -> dict[str, Any]:
    return {one.key: one for one in outcomes if one.group == "weights"}


def test_a_network_that_ranks_by_pixels_is_found_out() -> None:
    config = train_config("fast", epochs=1, batch_size=16)
    run = fit(training(), network="class-independent", backbone=Pixels(), head="exemplar", config=config)
    found = dependence(run, unseen().images, training().images, np.arange(62))
    assert found.fresh is not None
    assert (found.fresh.spearman.value or 0) > 0.99
    outcomes = weights_of(verdicts(found, None, None, abstention(run, None, {"noise": training().images}), None))
    assert outcomes["untrained network"].passed is False
    assert "not shown to depend" in outcomes["untrained network"].note


def test_nearest_neighbours_of_the_pixels_fail_every_check_of_the_weights() -> None:
    found = depends("outputs", "single")
    copy = replace(found, steps=(found.control,), fresh=found.control)
    nothing = abstention(trained("single"), None, {"noise": training().images})
    outcomes = weights_of(verdicts(copy, None, None, nothing, None))
    assert {key for key, one in outcomes.items() if one.passed is False} == {
        "index head",
        "network",
        "untrained network",
    }
    assert outcomes["pixel control"].passed is True
    lazy = Step("", Interval(0.0, 50, -0.1, 0.1), found.control.overlap)
    broken = weights_of(verdicts(replace(found, control=lazy), None, None, nothing, None))
    assert broken["pixel control"].passed is False


@pytest.mark.parametrize(
    ("queries", "index", "words"),
    [(1, np.arange(62), "2 queries or more"), (5, np.arange(2), "3 samples or more"), (5, np.arange(1, 63), "0..61")],
)
def test_rankings_that_cannot_be_compared(queries: int, index: np.ndarray, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        dependence(trained("single"), unseen().images[:queries], training().images[: len(index)], index)


def test_withheld_samples_are_not_ranked() -> None:
    run = bank.withhold(keyed("single"), [training().samples.sample_ids[5]])
    with pytest.raises(UsageError, match="withheld samples are not compared"):
        dependence(run, unseen().images, training().images, np.arange(62))
    found = check(run, unseen(), training(), limit=30)
    assert found.about["withheld"] == 1
    assert found.dependence is not None
    assert found.dependence.samples == 61

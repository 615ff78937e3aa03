"""Trust checks: what they must find, what they must not, and what they say in the model card."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import provnet
from provnet import bank
from provnet.applications.abstention import abstention
from provnet.applications.confidence import calibrated, index_calibration
from provnet.applications.dependence import Dependence, Step, dependence, spearman
from provnet.applications.redrawn import cascade, feature_scores, index_scores, layers
from provnet.applications.strangers import letters, strangers
from provnet.applications.trust import LeftOut, Trust, check
from provnet.applications.verdicts import verdicts
from provnet.card import bank_state, model_card
from provnet.curves import auc
from provnet.data.imagedata import ImageData
from provnet.errors import UsageError
from provnet.modelfile import Run, read_run, write_run
from provnet.stats import Interval
from provnet.training.config import train_config
from provnet.training.fit import fit

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


@pytest.mark.parametrize(("head", "network"), EVERY)
def test_the_cascade_draws_layer_after_layer_anew_and_leaves_the_network_alone(head: str, network: str) -> None:
    net = run_of(head, network).network
    before = {name: value.clone() for name, value in net.state_dict().items()}
    chosen = torch.arange(0, 62, 2) if head == "keys" else torch.arange(62)
    steps = len(layers(net))
    changed: set[str] = set()
    for number, (_, made) in enumerate(cascade(net, chosen, seed=0)):
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


@pytest.mark.parametrize(("head", "network"), EVERY)
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
    config = train_config(epochs=1, batch_size=16)
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


@pytest.mark.parametrize("like", [torch.zeros(2, 1, 28, 28, dtype=torch.uint8), torch.rand(9, 3, 32, 20) * 4 - 1])
def test_strangers_come_in_the_datas_own_form(like: torch.Tensor) -> None:
    found = strangers(like, 12, seed=3)
    assert list(found) == ["noise", "constant", "letters", "shapes"]
    for name, images in found.items():
        assert images.shape == (12, *like.shape[1:]), name
        assert images.dtype == like.dtype
        assert torch.equal(images, strangers(like, 12, seed=3)[name])
        assert name == "constant" or len(torch.unique(images.flatten(1).float(), dim=0)) == 12
        if like.dtype != torch.uint8:
            assert like.min() - 1e-5 <= images.min() <= images.max() <= like.max() + 1e-5
    assert not torch.equal(found["letters"], letters(like, 12, seed=4))
    assert (found["constant"].flatten(2).float().std(2) < 1e-5).all()


def test_vectors_have_noise_and_constants_of_each_features_range() -> None:
    like = torch.stack([torch.rand(50), torch.rand(50) * 100 - 300], 1)
    noise = strangers(like, 200)["noise"]
    assert ((noise >= like.amin(0)) & (noise <= like.amax(0))).all()
    assert list(strangers(like, 5)) == ["noise", "constant"]


def with_threshold(run: Run, threshold: float) -> Run:
    return replace(run, config=replace(run.config, support={**run.config.support, "threshold": threshold}))


def test_abstention_counts_what_lies_below_the_threshold() -> None:
    sets = {"noise": strangers(training().images, 40)["noise"]}
    none = abstention(with_threshold(trained(), -1e9), unseen().images, sets)
    every = abstention(with_threshold(trained(), 1.0), unseen().images, sets)
    assert (none.own.value, none.kinds["noise"].false_support.value) == (0, 1)
    assert (every.own.value, every.kinds["noise"].abstained.value) == (1, 1)
    assert none.kinds["noise"].auroc == every.kinds["noise"].auroc
    assert (none.kinds["noise"].auroc or Interval(0, 0, 0, 0)).n == 90
    assert sum(every.histogram["noise"]) == 40
    alone = abstention(trained(), None, sets)
    assert alone.kinds["noise"].auroc is None
    assert alone.own.n == 0
    with pytest.raises(UsageError, match='no pictures of "empty"'):
        abstention(trained(), None, {"empty": training().images[:0]})


def test_the_area_is_that_of_the_support() -> None:
    from provnet.applications.abstention import support_of

    run, other = trained(), 255 - unseen().images
    mine, theirs = support_of(run, unseen().images), support_of(run, other)
    expected = auc(np.arange(100) < 50, np.concatenate([mine, theirs]))
    assert abstention(run, unseen().images, {"other": other}).kinds["other"].auroc == expected


def test_calibration_tells_over_from_underconfidence() -> None:
    chance = np.random.default_rng(0)
    sure = chance.uniform(0.5, 1.0, 4000)
    right = chance.random(4000) < sure
    good = calibrated(sure, right)
    assert (good.ece.value or 0) < 0.03
    assert (good.ece.low or 0) <= (good.ece.value or 0) <= (good.ece.high or 0)
    assert sum(one.n for one in good.bins) == 4000
    bold, shy = calibrated(np.full(400, 0.95), right[:400]), calibrated(np.full(400, 0.2), right[:400])
    assert (bold.leans, shy.leans) == ("overconfident", "underconfident")
    assert (bold.ece.low or 0) > 0.1


def test_equal_pictures_count_as_one_sample() -> None:
    run = keyed("single")
    alone = index_calibration(run, training().images[:10], np.arange(10))
    twins = replace(run.samples, pixel_sha256=run.samples.pixel_sha256[np.zeros(62, dtype=np.int64)])
    assert index_calibration(replace(run, samples=twins), training().images[:10], np.arange(10)).right.value == 1
    assert alone.right.n == 50


@cache
def checked(head: str = "keys") -> Trust:
    return check(
        run_of(head, "single"), unseen(), training(), others={"upside down": unseen().images.flip(2)}, limit=40
    )


def test_every_outcome_has_a_figure_a_bar_and_a_verdict() -> None:
    found = checked()
    keys = [one.key for one in found.outcomes]
    assert keys[:4] == ["index head", "network", "untrained network", "pixel control"]
    assert keys[4:] == [
        "class confidence",
        "sample confidence",
        "own pictures",
        "noise",
        "constant",
        "letters",
        "shapes",
        "upside down",
    ]
    assert all(one.passed in (True, False) and one.figure is not None and one.bar for one in found.outcomes)
    assert found.passed == all(one.passed for one in found.outcomes)
    assert found.abstention.kinds["upside down"].abstained.n == 40
    assert found.to_json()["about"]["counts"] == {"test": 40, "training": 62, "strangers": 40}


def test_what_is_not_given_is_not_measured_and_never_passed() -> None:
    found = check(trained(), None, training(), limit=20)
    states = {one.key: one.passed for one in found.outcomes}
    assert states["class confidence"] is states["own pictures"] is states["letters"] is None
    assert states["index head"] in (True, False)
    blind = check(trained(), unseen(), limit=20)
    assert {one.key for one in blind.outcomes if one.passed is None} == {"index head", "sample confidence"}
    with pytest.raises(UsageError, match="nothing can be checked"):
        check(trained(), None)
    with pytest.raises(UsageError, match="limit must be 20"):
        check(trained(), unseen(), limit=3)
    with pytest.raises(UsageError, match="not the ones this run was trained on"):
        check(trained(), None, unseen(), np.arange(50))


def without(data: ImageData, label: int) -> ImageData:
    return data.select(np.flatnonzero(data.samples.labels != label))


def test_a_left_out_class_is_judged_by_a_run_without_it() -> None:
    lacking = fit(without(training(), 4), config=train_config(epochs=1, batch_size=16))
    test = provnet.open_data("embedded", split="test", limit=100)
    mine = torch.from_numpy(test.samples.labels == 4)
    left_out = LeftOut(lacking, test.images[~mine], test.images[mine], "left-out digit 4")
    found = check(trained(), unseen(), left_out=left_out, limit=20)
    assert found.left_out is not None
    assert found.left_out.own.n == int((~mine).sum())
    assert found.outcomes[-1].key == "left-out digit 4"
    assert found.outcomes[-1].figure == found.left_out.kinds["left-out digit 4"].auroc


def with_checks(run: Run, values: dict[str, Any] | None) -> Run:
    return replace(run, config=replace(run.config, checks=values))


def test_the_card_tells_the_outcome_and_belongs_to_this_state_of_the_samples(tmp_path: Path) -> None:
    run = keyed("single")
    write_run(run, tmp_path)
    assert "Not checked when this card was written; run `provnet check`" in (tmp_path / "README.md").read_text("utf-8")
    write_run(with_checks(run, checked().for_card()), tmp_path)
    back = read_run(tmp_path)
    assert back.config.checks is not None
    card = (tmp_path / "README.md").read_text("utf-8")
    section = card.split("## Trust checks")[1].split("\n## ")[0]
    for one in checked().outcomes:
        assert ("| pass |" if one.passed else "| **FAIL** |") in next(
            line for line in section.splitlines() if one.words.replace(":", "\\:") in line
        )
    assert f"{checked().abstention.own.value:.4f}" in section
    write_run(bank.withhold(back, [run.samples.sample_ids[0]]), tmp_path)
    card = (tmp_path / "README.md").read_text("utf-8")
    assert "Checked before samples were added, withheld or erased" in card
    assert "| pass |" not in card
    write_run(bank.restore(read_run(tmp_path), [run.samples.sample_ids[0]]), tmp_path)
    assert "| pass |" in (tmp_path / "README.md").read_text("utf-8")


@pytest.mark.parametrize(
    "outcomes",
    [None, "x", [7, None], [{"words": "<b>|x", "passed": "yes", "figure": {"value": "<i>", "low": [], "n": {}}}], [{}]],
)
def test_a_card_survives_outcomes_that_somebody_made_up(outcomes: Any) -> None:
    run = keyed("single")
    made = {"samples": bank_state(run.samples), "outcomes": outcomes}
    section = model_card(run.config.network, 1, run.samples, checks=made).split("## Trust checks")[1]
    assert "<b>" not in section
    assert "<i>" not in section

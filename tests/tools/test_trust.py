"""Trust checks: what they must find, what they must not, and what they say in the model card."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import provnet
from provnet.answers.metrics import auc
from provnet.base.batches import fold
from provnet.base.errors import UsageError
from provnet.base.stats import Interval
from provnet.data.dataset import ImageData
from provnet.data.modalities.augment import copies_of
from provnet.runs import bank
from provnet.runs.card import bank_state, model_card
from provnet.runs.run import Run, read_run, write_run
from provnet.tools.trust.compute import (
    LeftOut,
    Trust,
    abstention,
    calibration_of,
    check,
    index_calibration,
    letters,
    strangers,
)
from provnet.training.config import train_config
from tests.cases import cases
from tests.fitting import fit

from ..digits import trained, training, unseen
from .made import keyed


def run_of(head: str, network: str) -> Run:
    return keyed(network) if head == "keys" else trained(network)


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
    from provnet.tools.trust.compute import support_of

    run, other = trained(), 255 - unseen().images
    mine, theirs = support_of(run, unseen().images), support_of(run, other)
    expected = auc(np.arange(100) < 50, np.concatenate([mine, theirs]))
    assert abstention(run, unseen().images, {"other": other}).kinds["other"].auroc == expected


def test_calibration_tells_over_from_underconfidence() -> None:
    chance = np.random.default_rng(0)
    sure = chance.uniform(0.5, 1.0, 4000)
    right = chance.random(4000) < sure
    good = calibration_of(sure, right)
    assert (good.ece.value or 0) < 0.03
    assert (good.ece.low or 0) <= (good.ece.value or 0) <= (good.ece.high or 0)
    assert sum(one.n for one in good.bins) == 4000
    bold, shy = calibration_of(np.full(400, 0.95), right[:400]), calibration_of(np.full(400, 0.2), right[:400])
    assert (bold.leans, shy.leans) == ("overconfident", "underconfident")
    assert (bold.ece.low or 0) > 0.1


def test_equal_pictures_count_as_one_sample() -> None:
    run = keyed("single")
    alone = index_calibration(run, training().images[:10], np.arange(10))
    twins = replace(run.samples, pixel_sha256=run.samples.pixel_sha256[np.zeros(62, dtype=np.int64)])
    assert index_calibration(replace(run, samples=twins), training().images[:10], np.arange(10)).right.value == 1
    assert alone.right.n == 50


@pytest.mark.parametrize("head", ["plain", "exemplar"])
@pytest.mark.parametrize("network", ["class-independent", "class-conditional"])
def test_the_confidence_of_equal_pictures_is_that_of_all_of_them(head: str, network: str) -> None:
    data = training().select(np.arange(20))
    labels = np.concatenate([data.samples.labels, data.samples.labels, (data.samples.labels[:5] + 1) % 10])
    images = torch.cat([data.images, data.images, data.images[:5]])  # twice, and five with another label
    twice = provnet.open_data(images.numpy(), labels, class_names=data.class_names)
    run = fit(twice, network=network, head=head, config=train_config("fast", epochs=2))
    if head == "exemplar":
        run = bank.withhold(run, ["train/3", "train/24"])
    rows = np.arange(10)
    found = index_calibration(run, images[:10], rows)
    sure, groups = [], run.samples.groups
    for number, copy in enumerate(copies_of(images[:10]).values()):
        every = provnet.explain(run, copy(images[:10], fold(0, number)), k=len(twice))
        same = groups[np.maximum(every.index, 0)] == groups[every.index[:, :1]]
        sure.append(np.where(same & (every.index >= 0), every.weight, 0).sum(1))
    assert found.confidence == pytest.approx(np.concatenate(sure).mean(), abs=1e-5)


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
    lacking = fit(without(training(), 4), config=train_config("fast", epochs=1, batch_size=16))
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


@cases(
    "outcomes",
    [None, "x", [7, None], [{"words": "<b>|x", "passed": "yes", "figure": {"value": "<i>", "low": [], "n": {}}}], [{}]],
)
def test_a_card_survives_outcomes_that_somebody_made_up(outcomes: Any) -> None:
    run = keyed("single")
    made = {"samples": bank_state(run.samples), "outcomes": outcomes}
    section = model_card(replace(run.config, checks=made), 1, run.samples).split("## Trust checks")[1]
    assert "<b>" not in section
    assert "<i>" not in section

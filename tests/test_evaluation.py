"""Evaluation: every figure counted again from explanations, one query after the other."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import provnet
from provnet.answers.attributor import explain
from provnet.answers.evaluation import NEVER, Evaluation, evaluate, evaluate_on, trained_rows
from provnet.base.errors import UsageError
from provnet.base.stats import Interval, wilson
from provnet.data.modalities.augment import add_noise, jpeg, shift
from provnet.data.select import with_classes
from provnet.heads.index_map import TargetSampler
from provnet.tools.debug.compute import debug
from provnet.training.config import train_config
from tests.fitting import fit

from .digits import NETWORKS, WITHIN, trained, training, unseen


def rate(hits: list[bool]) -> Interval:
    return wilson(sum(hits), len(hits))


def own_first(found: Any, own: list[int], k: int = 1) -> Interval:
    return rate([i in named[:k] for i, named in zip(own, found.index.tolist(), strict=True)])


@pytest.fixture(params=NETWORKS)
def network(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_figures_on_unseen_data(network: str) -> None:
    run, test = trained(network), unseen()
    found, truth = explain(run, test.images, k=10), test.samples.labels.tolist()
    figures = evaluate_on(run, test, None)
    assert figures.class_accuracy == rate([p == t for p, t in zip(found.predicted.tolist(), truth, strict=True)])
    assert figures.supported["test"] == rate(found.supported.tolist())
    for k in (1, 5, 10):
        shares, most = [], []
        for labels, t in zip(found.label.tolist(), truth, strict=True):
            real = [label for label in labels[:k] if label >= 0]
            shares.append(t in real)
            most.append(Counter(real).most_common(1)[0][0] == t)  # keeps the order in which labels were first seen
        assert figures.any_at[k] == rate(shares)
        assert figures.majority_at[k] == rate(most)
    if network in WITHIN:  # as docs/networks.md says
        assert {*figures.any_at.values(), *figures.majority_at.values()} == {figures.class_accuracy}
    assert 0 < (figures.class_accuracy.value or 0) < 1
    assert figures.index_accuracy.n == figures.supported["train"].n == 0
    assert figures.index_accuracy_perturbed == {}


def test_figures_on_the_training_samples(network: str) -> None:
    run, train = trained(network), training()
    own, labels = list(range(len(train))), train.samples.labels.tolist()
    found = explain(run, train.images, k=5)
    figures = evaluate(run, train=train, seed=4)
    assert figures.index_accuracy == own_first(found, own)
    assert figures.index_at_5 == own_first(found, own, 5)
    assert 0 < (figures.index_accuracy.value or 0) < (figures.index_at_5.value or 0)
    assert figures.supported["train"] == rate(found.supported.tolist())
    copies = {"noise": add_noise(train.images, 4), "shift": shift(train.images, 4), "jpeg": jpeg(train.images)}
    assert list(figures.index_accuracy_perturbed) == list(copies)
    for name, copy in copies.items():
        assert figures.index_accuracy_perturbed[name] == own_first(explain(run, copy, k=1), own)
    right = rate([p == t for p, t in zip(found.predicted.tolist(), labels, strict=True)])
    wanted = {"class_accuracy_train": right}
    if network in WITHIN:
        given = explain(run, train.images, k=1, classes=train.labels)
        wanted |= {"stage_1": right, "stage_2": own_first(given, own), "end_to_end": figures.index_accuracy}
        assert wanted["stage_2"].value >= wanted["end_to_end"].value  # type: ignore[operator]
    assert {name: figures.extra[name] for name in wanted} == wanted
    assert ("stage_2" in figures.extra) == (network in WITHIN)
    assert figures.index_ceiling == 1.0
    assert figures.class_accuracy.n == figures.any_at[1].n == figures.majority_at[10].n == 0


@pytest.mark.parametrize("name", ["single", "class-conditional"])
def test_sampled_targets_where_labels_were_mixed(name: str) -> None:
    run, train = trained(name, alpha=0.5), training()
    targets = TargetSampler(run.network.index_map, 0.5).draw(7, NEVER).tolist()
    found = explain(run, train.images, k=1)
    figures = evaluate(run, train=train, seed=7)
    assert figures.extra["index_accuracy_sampled_targets"] == own_first(found, targets)
    assert figures.index_accuracy == own_first(found, list(range(len(train))))
    assert "index_accuracy_sampled_targets" not in evaluate(trained(name), train=train).extra


def test_some_of_the_training_samples() -> None:
    run, train = trained(), training()
    rows = np.array([40, 3, 17])
    figures = evaluate(run, train=train.select(rows), index=rows)
    found = explain(run, train.images[rows], k=5)
    assert figures.index_accuracy == own_first(found, [40, 3, 17])
    assert figures.index_at_5 == own_first(found, [40, 3, 17], 5)
    assert figures.index_accuracy.n == figures.extra["stage_2"].n == 3
    with pytest.raises(UsageError, match="not the ones this run was trained on"):
        evaluate(run, train=train.select(rows), index=rows[::-1])


def test_duplicates_are_counted_as_groups_beside_the_exact_figure() -> None:
    digits = training()
    rows = np.concatenate([np.arange(24), np.arange(12), [0, 1]])  # twelve digits twice, two of them three times
    data = provnet.open_data(digits.images[torch.from_numpy(rows)], digits.samples.labels[rows])
    run = fit(data, network="class-independent", config=train_config("fast", epochs=4, batch_size=8))
    figures = evaluate(run, train=data)
    found = explain(run, data.images, k=1)
    assert figures.index_ceiling == 24 / 38
    assert figures.index_accuracy == own_first(found, list(range(38)))
    assert figures.extra["index_accuracy_group"] == rate([rows[i] == rows[j] for i, (j,) in enumerate(found.index)])
    assert figures.extra["index_accuracy_group"].value > figures.index_accuracy.value  # type: ignore[operator]
    assert figures.index_accuracy.value <= figures.index_ceiling  # type: ignore[operator]
    assert "index_accuracy_group" not in evaluate(trained(), train=training()).extra


def test_vectors_know_noise_alone() -> None:
    values = np.random.default_rng(0).normal(size=(30, 6)).astype(np.float32)
    data = provnet.open_data(values, np.arange(30) % 3)
    run = fit(data, config=train_config("fast", epochs=2, batch_size=8))
    figures = evaluate(run, train=data)
    found = explain(run, add_noise(data.images, 0), k=1)
    assert figures.index_accuracy_perturbed == {"noise": own_first(found, list(range(30)))}


def test_nothing_given_has_no_value(network: str) -> None:
    figures = evaluate_on(trained(network), None, None).to_json()
    named = [figures[name] for name in ("class_accuracy", "index_accuracy", "index_at_5", "any_at_1", "majority_at_5")]
    assert named == [{"value": None, "n": 0, "low": None, "high": None}] * 5
    assert figures["index_accuracy_perturbed"] == {}
    assert evaluate_on(trained(network), unseen().select(np.array([], np.int64)), None).class_accuracy.n == 0


def test_other_data_are_refused() -> None:
    run, train = trained(), training()
    others = {
        "other labels": replace(train, samples=replace(train.samples, labels=np.roll(train.samples.labels, 1))),
        "other pictures": unseen(),
    }
    for data in others.values():
        with pytest.raises(UsageError, match="not the ones this run was trained on; see provnet verify"):
            evaluate(run, train=data)
    turned = train.select(np.random.default_rng(0).permutation(len(train)))
    with pytest.raises(UsageError, match="not the ones this run was trained on; see provnet verify"):
        evaluate(run, train=turned, index=np.arange(len(train)))
    names = (*train.class_names[:9], "ten")
    with pytest.raises(UsageError, match='does not know, the first "ten"'):
        evaluate(run, test=replace(train, samples=replace(train.samples, class_names=names)))
    other = replace(train, samples=replace(train.samples, class_names=train.class_names[::-1]))
    numbered = with_classes(other, run.samples.class_names)
    assert evaluate_on(run, other, None).to_json() == evaluate_on(run, numbered, None).to_json()


def test_training_samples_are_known_in_any_order_and_number() -> None:
    run, train = trained(), training()
    rows = np.random.default_rng(0).permutation(len(train))
    turned = train.select(rows)
    assert trained_rows(run, turned).tolist() == rows.tolist()
    assert trained_rows(run, train.select([7, 3])).tolist() == [7, 3]
    moved = replace(turned, samples=replace(turned.samples, sample_ids=tuple(f"new/{i}" for i in range(len(rows)))))
    assert trained_rows(run, moved).tolist() == rows.tolist()
    found, own = (evaluate_on(run, None, given) for given in (moved, train))
    assert found.index_accuracy == own.index_accuracy
    assert debug(run, turned).index.tolist() == rows.tolist()


def test_as_json() -> None:
    figures = evaluate(trained(), unseen(), training())
    assert isinstance(figures, Evaluation)
    written = json.loads(json.dumps(figures.to_json(), allow_nan=False))
    wanted = {"class_accuracy", "index_accuracy", "index_at_5", "index_accuracy_perturbed", "supported"}
    wanted |= {f"{kind}_at_{k}" for kind in ("any", "majority") for k in (1, 5, 10)}
    wanted |= {"index_ceiling", "class_accuracy_train", "stage_1", "stage_2", "end_to_end"}
    assert set(written) >= wanted
    assert set(written["index_accuracy_perturbed"]) == {"noise", "shift", "jpeg"}
    assert written["class_accuracy"] == figures.class_accuracy.to_json()
    assert written["any_at_5"] == figures.any_at[5].to_json()


def test_it_prints_a_line_a_figure_that_was_measured() -> None:
    run, test = trained("class-conditional"), unseen()
    found = evaluate_on(run, test, None)
    lines = str(found).splitlines()
    assert lines[0] == f"class_accuracy{' ' * (lines[0].index(str(found.class_accuracy)) - 14)}{found.class_accuracy}"
    assert not any(line.startswith("index_accuracy") for line in lines)  # no training data were given
    assert any(line.startswith("supported, test") for line in lines)
    assert repr(found) == str(found)
    nothing = wilson(0, 0)
    empty = Evaluation(nothing, nothing, nothing, {}, {}, {}, {}, 1.0)
    assert str(empty) == "nothing was measured"


def test_data_with_one_of_two_equal_samples_exchanged_are_other_data() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 6, 6), dtype=np.uint8)
    labels, ids = np.arange(8) % 2, [f"{i}" for i in range(8)]
    pixels[2] = pixels[0]
    run = fit(provnet.open_data(pixels, labels, ids=ids), config=train_config("fast", epochs=1))
    other = pixels.copy()
    other[2] = 7
    with pytest.raises(UsageError, match="not the ones this run was trained on; see provnet verify"):
        trained_rows(run, provnet.open_data(other, labels, ids=["0", "1", "x", *ids[3:]]))

"""Odd samples: found among few as among many, whatever the size of their class; a class of one is told from nothing."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch

import provnet
from provnet.answers.metrics import auc
from provnet.tools.debug.compute import Debugging, debug
from provnet.tools.debug.signals import Anomalies, Signals, anomalies, nearest_others
from provnet.training.config import train_config
from tests.fitting import fit


@cache
def looked_at() -> tuple[Debugging, np.ndarray]:
    """90 digits of uneven classes, six of them inverted or noise, and which."""
    data = provnet.open_data("embedded", limit=200)
    sizes = np.array([20, 20, 4, 8, 8, 8, 8, 5, 5, 4])
    rows = np.concatenate([np.flatnonzero(data.samples.labels == label)[:size] for label, size in enumerate(sizes)])
    images, chance = data.images[rows, 0].numpy().copy(), np.random.default_rng(0)
    odd = np.zeros(len(rows), dtype=np.bool_)
    odd[chance.choice(len(rows), 6, replace=False)] = True
    for number, row in enumerate(np.flatnonzero(odd)):
        images[row] = chance.integers(0, 256, images[row].shape) if number % 2 else 255 - images[row]
    planted = provnet.open_data(images, data.samples.labels[rows])
    return debug(fit(planted, config=train_config("fast", epochs=6, batch_size=32)), planted), odd


def test_oddities_are_found_among_few_samples() -> None:
    found, odd = looked_at()
    assert auc(odd, found.anomalies.parts["distance"]).value > 0.8  # type: ignore[operator]
    assert auc(odd, found.anomalies.score).value > 0.8  # type: ignore[operator]


def test_the_size_of_its_class_makes_no_sample_odd() -> None:
    found, odd = looked_at()
    labels, distance = found.samples.labels, found.anomalies.parts["distance"]
    middles = np.array([np.median(distance[(labels == label) & ~odd]) for label in range(10)])
    within = np.median([np.ptp(distance[(labels == label) & ~odd]) for label in range(10)])
    assert np.ptp(middles) < 2 * within  # measured with themselves, classes do not even overlap
    for label in (0, 1):  # the large ones
        assert (found.anomalies.score[(labels == label) & ~odd] >= 0.5).mean() < 0.2


def made(labels: np.ndarray, support: np.ndarray, features: torch.Tensor) -> Anomalies:
    n = len(labels)
    signals = Signals(features, features, np.zeros((n, 3)), np.zeros(n), support, None)
    return anomalies(labels, signals, nearest_others(features, 5), np.zeros(n))


def test_the_only_sample_of_its_class_is_judged_without_a_distance() -> None:
    chance = torch.Generator().manual_seed(0)
    features = torch.randn(41, 8, generator=chance) * 0.1 + 1
    labels = np.array([0] * 20 + [1] * 20 + [2])
    support = -np.exp(np.random.default_rng(0).normal(size=41) * 0.1)
    support[-1] = 0.0  # not measured
    plain = made(labels, support, torch.nn.functional.normalize(features))
    assert plain.parts["distance"][-1] == 0
    assert plain.typicality[-1] == 0.5
    assert np.isfinite(plain.score).all()
    assert plain.score[-1] < 0.5
    features[-1] = -features[-1]
    far = made(labels, support, torch.nn.functional.normalize(features))
    assert far.score[-1] > 0.9  # it may still be like no other
    assert far.score[:-1].max() < 0.5
    np.testing.assert_allclose(far.parts["distance"], plain.parts["distance"])

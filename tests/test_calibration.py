"""Calibration: the threshold turns away the stated share of distorted samples held out, and nothing else is moved."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

import provnet
from provnet.data.modalities.augment import add_noise, shift
from provnet.heads.index_map import IndexMap
from provnet.heads.support import measure_held_out
from provnet.models.network import NetworkConfig, ProvenanceNet, build
from provnet.runs import bank
from provnet.training.calibration import calibrate
from provnet.training.config import train_config
from tests.cases import cases
from tests.fitting import fit

from .digits import training
from .models.made import NETWORKS, UNEVEN

Found = tuple[Tensor, Tensor]


def network(kind: str, shape: tuple[int, ...], index_map: IndexMap) -> ProvenanceNet:
    torch.manual_seed(0)
    backbone = "mlp" if len(shape) == 1 else "small"
    return build(NetworkConfig(kind, backbone, shape, index_map.classes, std=(255.0,)), index_map)


@cases("kind", NETWORKS)
@cases("level", [0.05, 0.3])
def test_the_level_is_the_share_turned_away(kind: str, level: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of distorted copies, each measured without the sample that it is a copy of."""
    copies: list[Tensor] = []
    asked: list[tuple[Tensor, ...]] = []

    def keep(distort: Callable[[Tensor, int], Tensor]) -> Callable[[Tensor, int], Tensor]:
        def kept(images: Tensor, seed: int) -> Tensor:
            copies.append(distort(images, seed))
            return copies[-1]

        return kept

    def measured(features: Tensor, labels: Tensor, some: Tensor, claimed: Tensor, of: Tensor, n: int) -> Found:
        asked.append((features, labels, some, of, *measure_held_out(features, labels, some, claimed, of, n)))
        return asked[-1][-2], asked[-1][-1]

    monkeypatch.setattr("provnet.data.modalities.augment.add_noise", keep(add_noise))
    monkeypatch.setattr("provnet.data.modalities.augment.shift", keep(shift))
    monkeypatch.setattr("provnet.training.calibration.measure_held_out", measured)
    net = network(kind, (1, 28, 28), IndexMap(training().labels, 10))
    facts = calibrate(net, training().images, seed=3, level=level)
    assert [copy.shape for copy in copies] == [training().images.shape] * 2
    with torch.inference_mode():
        whole = net(training().images).support_features
        distorted = torch.cat([net(copy).support_features for copy in copies])
    (features, labels, some, of, by_features, known), (*_, of_looks, by_looks, looks_known) = asked
    assert known.all()
    assert looks_known.all()
    assert torch.equal(of, of_looks)
    assert torch.allclose(distorted, some, atol=1e-5)
    assert of.tolist() == [*range(len(features)), *range(len(features))]
    rows = torch.cdist(features, whole).argmin(1)  # in another order
    assert torch.equal(labels, training().labels[rows])
    assert torch.cdist(some, features).argmin(1).eq(of).float().mean() > 0.5  # copies of their own
    by_looks *= by_features.quantile(level) / by_looks.quantile(level / 2)
    assert float((by_looks < by_features.quantile(level)).float().mean()) == pytest.approx(level / 2, abs=0.01)
    support = torch.minimum(by_features, by_looks)
    assert facts["n"] == len(support)
    assert facts["level"] == level
    below = float((support < facts["threshold"]).float().mean())
    assert below == pytest.approx(level, abs=1.5 / len(support))


@pytest.mark.parametrize("network", [{}, {"network": "class-independent", "head": "exemplar"}], ids=["default", "keys"])
def test_noise_and_one_colour_are_unsupported_on_small_pictures(network: dict[str, str]) -> None:
    """By features alone the default supports half of the noise here."""
    data, test = provnet.open_data("digits", limit=500), provnet.open_data("digits", split="test")
    run = fit(data, config=train_config("fast", epochs=5), **network)
    noise = torch.randint(0, 256, (200, 1, 8, 8), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    colours = torch.arange(256, dtype=torch.uint8)[:, None, None, None].expand(256, 1, 8, 8)  # black to white
    assert provnet.explain(run, noise, k=1).supported.mean() <= 0.05
    assert provnet.explain(run, colours, k=1).supported.mean() <= 0.05
    unseen = provnet.explain(run, test, k=1)
    assert unseen.supported.mean() > 0.95
    assert unseen.supported[unseen.predicted == test.samples.labels].mean() > 0.95


def test_unseen_digits_are_supported_however_few_were_trained_on() -> None:
    data, test = provnet.open_data("embedded", limit=100), provnet.open_data("embedded", split="test", limit=300)
    run = fit(data, network="class-independent", head="exemplar", config=train_config("robust", epochs=3))
    noise = torch.randint(0, 256, (100, 1, 28, 28), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    assert provnet.explain(run, test.images, k=1).supported.mean() > 0.9
    assert provnet.explain(run, noise, k=1).supported.mean() < 0.05


def test_classes_of_one_are_calibrated_on_what_can_be_held_out() -> None:
    images = torch.randn(9, 4, generator=torch.Generator().manual_seed(0))
    alone = calibrate(network("class-independent", (4,), IndexMap(torch.arange(9))), images, seed=5)
    assert alone["n"] == 9  # nothing can: as they are
    assert alone["calibrated_on"] == "noisy training samples"
    assert np.isfinite(alone["threshold"])


def test_it_measures_the_features_of_the_training_samples_by_their_labels() -> None:
    images = training().images
    net = network("class-conditional", (1, 28, 28), IndexMap(training().labels, 10))
    calibrate(net, images, seed=0)
    with torch.no_grad():
        features = net.eval()(images).support_features
    for label in range(10):
        assert torch.allclose(net.support.mean[label], features[training().labels == label].mean(0), atol=1e-5)


@pytest.mark.parametrize("shape", [(4,), (1, 8, 8)])
def test_the_same_seed_gives_the_same_numbers_and_the_callers_randomness_is_kept(shape: tuple[int, ...]) -> None:
    images = torch.randn(9, *shape, generator=torch.Generator().manual_seed(0))
    facts = []
    for noise in (1, 2):
        net = network("class-independent", shape, IndexMap(UNEVEN))
        torch.manual_seed(noise)
        before = torch.random.get_rng_state()
        facts.append(calibrate(net, images, seed=5))
        assert torch.equal(torch.random.get_rng_state(), before)
    assert facts[0] == facts[1]
    vectors = len(shape) == 1
    assert 0 < facts[0]["n"] <= (9 if vectors else 18)  # a class of one cannot be held out
    kinds = "noisy training samples" if vectors else "distorted training samples (noise, shift)"
    assert facts[0]["calibrated_on"] == f"{kinds}, each held out"


def rare(classes: int = 12) -> tuple[Tensor, Tensor]:
    """200 vectors of four classes, then seven each of eight more."""
    labels = torch.cat([torch.arange(200) % 4, torch.arange(4, classes).repeat(7)])
    return torch.randn(len(labels), 4, generator=torch.Generator().manual_seed(0)), labels


def test_every_class_is_measured_however_rare_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels = rare()
    means, facts = [], []
    for most, least in ((20, 5), (20, 5), (20, 0), (len(images), 5), (10_000, 0)):
        monkeypatch.setattr("provnet.training.calibration.MEASURED", most)
        monkeypatch.setattr("provnet.training.calibration.LEAST", least)
        net = network("class-independent", (4,), IndexMap(labels))
        facts.append(calibrate(net, images, seed=1))
        means.append(net.support.mean.clone())
    there = [(mean != 0).any(1) for mean in means]
    assert there[0].all()
    assert not there[2].all()  # the random draw alone leaves some out
    assert torch.equal(means[0], means[1])  # the same every time
    assert facts[0] == facts[1]
    assert torch.equal(means[3], means[4])  # where all are measured nothing changes
    assert facts[3] == facts[4]


def test_five_of_a_rare_class_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []
    monkeypatch.setattr("provnet.training.calibration.MEASURED", 20)
    monkeypatch.setattr("provnet.heads.support.Support.fit", lambda self, features, labels: seen.append(labels))
    images, labels = rare()
    calibrate(network("class-independent", (4,), IndexMap(labels)), images, seed=1)
    counts = torch.bincount(seen[0])
    assert counts.min() >= 5
    assert counts[4:].max() <= 7
    assert counts.sum() <= 20 + 5 * 12


def test_a_rare_class_that_was_erased_may_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("provnet.training.calibration.MEASURED", 20)
    images, labels = rare()
    data = provnet.open_data(images.numpy(), labels.numpy())
    run = fit(data, network="class-independent", head="exemplar", config=train_config("fast", epochs=1))
    for label in range(4, 12):
        gone = np.flatnonzero(data.samples.labels == label)
        without = bank.erase(run, [data.samples.sample_ids[i] for i in gone])
        assert len(bank.add(without, data.select(gone)).samples) == len(data)

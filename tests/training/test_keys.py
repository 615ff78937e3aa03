"""Exemplar heads in training: every network, augmentation, sampled keys, what is refreshed and what was learned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import provnet
from provnet.answers.attributor import explain
from provnet.answers.evaluation import evaluate
from provnet.base.errors import UsageError
from provnet.heads.heads import ExemplarHead
from provnet.heads.keys import unit
from provnet.models import keys
from provnet.models.keys import features_of
from provnet.models.network import NETWORKS
from provnet.runs.run import Run, read_run
from provnet.training import loop as one_step
from tests.cases import cases

from .made import SAMPLES, STEPS, fit, interrupt, pictures, recipe, same_bits


def head_of(run: Run) -> ExemplarHead:
    assert isinstance(run.network.index_head, ExemplarHead)
    return run.network.index_head


@cases("head", ["exemplar", "exemplar-trained"])
@cases("network", NETWORKS)
def test_a_training_sample_finds_itself_in_every_network(network: str, head: str) -> None:
    data = pictures()
    run = fit(data, config=recipe(), network=network, head=head)
    figures = evaluate(run, train=data)
    if network.startswith("class-conditional"):  # the class may be predicted wrongly, the sample within it is found
        assert figures.extra["stage_2"].value == 1
    else:
        assert figures.index_accuracy.value == 1
    assert figures.extra["index_accuracy_learned"].n == SAMPLES


def test_refreshed_keys_are_the_features_of_their_own_samples() -> None:
    data = pictures()
    run = fit(data, config=recipe(), network="class-independent", head="exemplar")
    with torch.inference_mode():
        features = unit(features_of(run.network, data.images))
    torch.testing.assert_close(head_of(run).keys[head_of(run).rows], features)


@cases("head", ["exemplar", "exemplar-trained"])
@cases("key_type", ["fp32", "bf16", "int8"])
def test_equal_samples_have_one_key(key_type: str, head: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A last piece of another size rounds differently; here by more than a rounding, so that it shows everywhere."""
    made = pictures()
    images, labels = made.images.clone(), made.samples.labels.copy()
    equal = [1, 5, SAMPLES - 1]
    images[equal], labels[equal] = images[1].clone(), labels[1]
    images[7], labels[7] = images[2].clone(), (labels[2] + 1) % len(made.class_names)  # equal, but of another class
    data = provnet.open_data(images.numpy(), labels, class_names=made.class_names)
    real = keys.features_of
    monkeypatch.setattr(keys, "features_of", lambda net, some: real(net, some) + 0.1 * (len(some) % 4))
    monkeypatch.setattr(keys, "features_at_once", lambda images, device: 6)
    run = fit(data, config=recipe(), network="class-independent", head=head, key_type=key_type)
    bank = head_of(run).bank.unpacked()[head_of(run).rows]
    for row, other in ((1, 5), (1, SAMPLES - 1), (2, 7)):
        assert torch.equal(bank[row], bank[other])
    assert not torch.equal(bank[1], bank[2])
    for size in (1, None):
        found = explain(run, images[equal], k=SAMPLES, batch_size=size)
        for ranked, weight in zip(found.index, found.weight, strict=True):
            where = [ranked.tolist().index(i) for i in equal]
            assert np.diff(where).tolist() == [1, 1]
            assert len(set(weight[where].tolist())) == 1


@pytest.mark.parametrize("key_type", ["fp32", "bf16", "int8"])
def test_keys_are_stored_and_read_back(tmp_path: Path, key_type: str) -> None:
    data = pictures()
    run = fit(
        data, config=recipe(), network="class-independent", head="exemplar", key_type=key_type, out=tmp_path / "run"
    )
    again = read_run(tmp_path / "run")
    assert torch.equal(head_of(again).keys, head_of(run).keys)
    found, other = (explain(each, data.images, k=3) for each in (run, again))
    assert np.array_equal(found.index, other.index)
    assert np.array_equal(found.index[:, 0], np.arange(SAMPLES))
    sizes = {"fp32": 4, "bf16": 2, "int8": 1}
    assert head_of(again).keys.element_size() == sizes[key_type]


@pytest.mark.parametrize("changes", [{"preset": "robust"}, {"negatives": 5}, {"preset": "robust", "negatives": 9}])
def test_with_augmentation_and_sampled_keys_it_resumes_to_the_same_bits(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    wishes: dict[str, Any] = {"network": "class-independent", "head": "exemplar", "config": recipe(**changes)}
    whole = fit(pictures(), out=tmp_path / "whole", **wishes)
    for step in (1, 5, STEPS):
        interrupt(pictures(), tmp_path / str(step), step, **wishes)
        same_bits(fit(pictures(), out=tmp_path / str(step), resume=True, **wishes), whole)


def test_robust_means_keys_and_copies_that_keep_their_index(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []
    real = one_step.augment

    def augment(images: torch.Tensor, index: torch.Tensor, policy: Any, **rest: Any) -> torch.Tensor:
        out = real(images, index, policy, **rest)
        seen.append((index, (out != images).flatten(1).any(1)))
        assert torch.equal(images, data.images[index])
        return out

    monkeypatch.setattr(one_step, "augment", augment)
    data = pictures()
    run = fit(data, config=recipe(preset="robust"), network="class-independent")
    assert run.config.network.head == "exemplar"
    assert run.config.training["training"]["augment"] == "tiny"
    assert torch.cat([index for index, _ in seen]).bincount().tolist() == [3] * SAMPLES
    assert torch.cat([changed for _, changed in seen]).float().mean() > 0.5


def test_the_learned_figure_is_that_of_the_keys_before_they_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that are never moved from where they began find few samples; set at the end, they find all."""
    data = pictures(120, classes=2)
    monkeypatch.setattr(ExemplarHead, "observe", lambda *_: None)
    monkeypatch.setattr("provnet.training.fit.fill_keys", lambda *_: None)
    run = fit(data, config=recipe(), network="class-independent", head="exemplar")
    figures = evaluate(run, train=data)
    assert figures.index_accuracy.value == 1
    learned = figures.extra["index_accuracy_learned"].value
    assert learned is not None
    assert learned < 0.1


@pytest.mark.parametrize(("asked", "width", "parameters"), [(0, 256, 0), (128, 128, 256 * 128 + 128)])
def test_keys_are_the_features_of_the_backbone_unless_a_width_is_asked_for(
    asked: int, width: int, parameters: int
) -> None:
    run = fit(pictures(), config=recipe(epochs=1), head="exemplar", key_width=asked)
    assert head_of(run).keys.shape == (SAMPLES, width)
    assert sum(p.numel() for p in run.network.index_trunk.parameters()) == parameters


def test_joint_weights_follow_the_class_branch() -> None:
    data = pictures(60)
    run = fit(data, config=recipe(epochs=8), network="class-independent", head="exemplar")
    queries = pictures(50, seed=9).images
    plain, joint = (explain(run, queries, k=60, weights=weights) for weights in ("plain", "joint"))
    assert np.array_equal(plain.predicted, joint.predicted)
    for found in (plain, joint):
        np.testing.assert_allclose(found.weight.sum(1), 1, rtol=1e-4)
    labels = data.samples.labels
    by_class = np.zeros((50, 3))
    for row, (index, weight) in enumerate(zip(joint.index, joint.weight, strict=True)):
        np.add.at(by_class[row], labels[index], weight)
    assert np.array_equal(by_class.argmax(1), joint.predicted)
    np.testing.assert_allclose(by_class.max(1), joint.confidence, rtol=1e-4)


def test_unknown_heads_and_weights_are_refused() -> None:
    with pytest.raises(UsageError, match=r'"exampler".*exemplar'):
        fit(pictures(), config=recipe(), head="exampler")
    with pytest.raises(UsageError, match=r'"both".*joint, plain'):
        explain(fit(pictures(), config=recipe(epochs=1)), pictures().images, weights="both")

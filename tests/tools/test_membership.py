"""Membership scores of every network and head: against plain arithmetic, in pieces, and with samples withheld."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from provnet.answers.attributor import Attributor, explain
from provnet.base.errors import NonFiniteError, UsageError
from provnet.data.modalities.augment import COPIES, copies_of, crop
from provnet.heads import scores as pieces
from provnet.heads.heads import ExemplarHead
from provnet.heads.keys import unit
from provnet.heads.scores import NEXT, spread_of
from provnet.models.network import ProvenanceNet, ProvenanceOutput
from provnet.tools.membership.compute import SCORES, blank_network, decides, member_scores, scores_by
from tests import banked, digits
from tests.cases import cases
from tests.models.made import LAWS, NETWORKS

HEADS = ("plain", "exemplar")


def slow_scores(net: ProvenanceNet, output: ProvenanceOutput) -> list[Tensor]:
    """For each query the scores of the samples that are looked at, one after the other."""
    head, labels = net.index_head, net.index_map.labels
    if isinstance(head, ExemplarHead):
        keys = torch.stack([head.bank.unpacked()[head.rows[i]] for i in range(net.index_map.n)])
        every = float(head.scale.detach()) * unit(output.index_features).double() @ keys.double().t()
        within = head.conditional
    else:
        assert output.index_scores is not None
        slots = head.to_slot(torch.arange(net.index_map.n))
        every, within = output.index_scores.double()[:, slots], head.valid(output.classes) is not None
    return [row[labels == c] if within else row for row, c in zip(every, output.classes, strict=True)]


@cases("head", HEADS)
@cases("network", NETWORKS)
def test_confidence_entropy_and_match_by_plain_arithmetic(
    network: str, head: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = banked.vectors(41, seed=1)
    net = banked.banked_run(data, network, head=head).network
    queries = torch.cat([data.images[:5], banked.vectors(20, seed=2).images])
    monkeypatch.setattr(pieces, "SCORES", {"cpu": 50})  # a few keys at a time
    with torch.inference_mode():
        output = net(queries)
        spread, match = net.scores(output).spread(), net.scores(output).match()
    for row, scores in enumerate(slow_scores(net, output)):
        shares = scores.softmax(0)
        assert float(spread.confidence[row]) == pytest.approx(float(shares.max()), rel=1e-4)
        assert float(spread.entropy[row]) == pytest.approx(float(-(shares * shares.log()).sum()), rel=1e-3, abs=1e-5)
        best = scores.sort(descending=True).values[: 1 + NEXT]
        if head == "plain":
            wanted = best[0], best[0] - best[1:].mean()
        else:
            best = best / float(net.index_head.scale.detach())  # type: ignore[union-attr]
            wanted = best[0], ((1 - best[1:].mean()) / (1 - best[0]).clamp(min=1e-6)).log()
        assert float(match.similarity[row]) == pytest.approx(float(wanted[0]), abs=1e-5)
        if row >= 5 or head == "plain":  # a key's distance from itself is not known to the last digit
            assert float(match.contrast[row]) == pytest.approx(float(wanted[1]), rel=1e-3, abs=1e-4)


@LAWS
@given(st.lists(st.lists(st.floats(-80, 80, width=32), min_size=3, max_size=3), min_size=1, max_size=5))
def test_a_spread_is_that_of_softmax(rows: list[list[float]]) -> None:
    scores = torch.tensor(rows)
    found, shares = spread_of(scores), scores.double().softmax(1)
    assert found.confidence.tolist() == pytest.approx(shares.amax(1).tolist())
    entropy = -(shares * shares.clamp(min=1e-300).log()).sum(1)
    assert found.entropy.tolist() == pytest.approx(entropy.tolist(), abs=1e-6)


def test_confidences_that_float32_rounds_to_one_still_differ() -> None:
    found = spread_of(torch.tensor([[0.0, -20.0], [0.0, -25.0], [0.0, -torch.inf]])).confidence.tolist()
    assert found[0] < found[1] < found[2] == 1.0


def test_one_sample_in_a_class_is_sure_of_itself() -> None:
    data = banked.vectors(1, seed=0)
    for head in HEADS:
        found = member_scores(banked.banked_run(data, head=head), data.images)
        assert found.values["index_confidence"].tolist() == [1.0]
        assert found.values["index_entropy"].tolist() == [0.0]
        assert np.isfinite(found.values["contrast"]).all()


@pytest.mark.parametrize("network", NETWORKS)
def test_scores_of_a_trained_run_by_the_predicted_class(network: str) -> None:
    run, test = digits.trained(network), digits.unseen()
    found, told = member_scores(run, test.images, batch_size=7), explain(run, test.images, k=1)
    assert set(found.values) == set(SCORES)
    assert all(len(value) == len(test) and np.isfinite(value).all() for value in found.values.values())
    assert found.predicted.tolist() == told.predicted.tolist()
    assert found.match.tolist() == told.index[:, 0].tolist()
    assert found.values["index_confidence"] == pytest.approx(told.weight[:, 0], rel=1e-3)
    assert found.values["class_confidence"] == pytest.approx(told.confidence, rel=1e-3)


def test_withheld_samples_are_neither_known_nor_named() -> None:
    data = banked.vectors(30, seed=3)
    run = banked.banked_run(data)
    withheld = np.zeros(30, dtype=np.bool_)
    withheld[4] = True
    hidden = replace(run, samples=replace(run.samples, withheld=withheld))
    before, after = (member_scores(each, data.images[4:6]) for each in (run, hidden))
    assert before.match.tolist() == [4, 5]
    assert after.match[0] != 4 and after.match[1] == 5
    assert before.values["similarity"][0] == pytest.approx(1.0)
    assert after.values["similarity"][0] < 0.999


def test_nothing_and_nan_are_refused() -> None:
    run = banked.banked_run(banked.vectors(8, seed=0))
    with pytest.raises(UsageError, match="no samples were given"):
        member_scores(run, torch.zeros(0, 6))
    with pytest.raises(NonFiniteError, match="NaN"):
        member_scores(run, torch.full((1, 6), torch.nan))


@pytest.mark.parametrize("head", HEADS)
def test_a_blank_network_saw_nothing(head: str) -> None:
    data = banked.vectors(30, seed=3)
    run = banked.banked_run(data, head=head)
    state = torch.get_rng_state()
    one, same, other = (blank_network(run.config.network, run.network, seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    scores = [scores_by(Attributor(net), data.images).values["similarity"] for net in (one, same, other, run.network)]
    assert np.array_equal(scores[0], scores[1])
    assert not np.allclose(scores[0], scores[2])
    assert not np.allclose(scores[0], scores[3])
    if head == "exemplar":
        assert scores[0].max() < 0.999 < scores[3].min()
    assert decides(run.network) == ("contrast" if head == "exemplar" else "similarity")
    with pytest.raises(UsageError, match="given as an object"):
        blank_network(replace(run.config.network, backbone="custom"), run.network, 0)


def test_copies_are_seeded_and_keep_their_form() -> None:
    images = digits.unseen().images[:6]
    assert set(copies_of(images)) == set(COPIES)
    assert set(copies_of(images.float())) == set(COPIES) - {"jpeg-50"}
    assert set(copies_of(torch.zeros(2, 9))) == {"noise-0.05", "noise-0.1"}
    for name, copy in COPIES.items():
        once, again = copy(images, 3), copy(images, 3)
        assert torch.equal(once, again)
        assert once.shape == images.shape and once.dtype == images.dtype
        assert not torch.equal(once, images), name


@pytest.mark.parametrize("name", ["noise-0.1", "noise-0.05"])
def test_what_is_drawn_does_not_depend_on_the_batch(name: str) -> None:
    data = banked.vectors(129, seed=3)  # the last one is a batch of its own
    run = banked.banked_run(data)
    clean = member_scores(run, data.images).values["similarity"]
    whole = member_scores(run, data.images, copy=COPIES[name]).values["similarity"]
    assert (whole < clean - 1e-6).all()
    for size in (1, 2, 64, 500):
        found = member_scores(run, data.images, copy=COPIES[name], batch_size=size).values["similarity"]
        assert found == pytest.approx(whole, abs=1e-6)
    few = member_scores(run, data.images[:1], copy=copies_of(data.images)[name])  # with the spread of all of them
    assert few.values["similarity"][0] < clean[0] - 1e-6


def test_a_crop_enlarges_what_is_inside() -> None:
    image = torch.zeros(1, 1, 28, 28, dtype=torch.uint8)
    image[:, :, 0] = 255  # the margin that is cut
    assert int(crop(image).max()) == 0
    assert crop(torch.full((1, 3, 56, 40), 7.0)).unique().tolist() == [7.0]
    for wrong, words in ((torch.zeros(2, 4), "can be cropped"), (torch.zeros(1, 1, 2, 2), "too small")):
        with pytest.raises(UsageError, match=words):
            crop(wrong)

"""Equal pictures: nothing tells them apart, so they share weight and credit, and each names the others."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import provnet
from provnet.answers.attributor import SHARES, Attributor, attribute, explain, weights_of
from provnet.heads.scores import group_means
from provnet.runs.run import Run
from provnet.samples.identity import LISTED, duplicate_words, named
from provnet.tools.credit.compute import credit
from provnet.training.config import train_config
from tests.cases import cases
from tests.fitting import fit

from .digits import NETWORKS, WITHIN, training, unseen

# samples 62 and 63 are the picture of 0 again, 64 that of 1, and 65 that of 2 under another label
COPIED = (0, 0, 1, 2)
SAME = ((0, 62, 63), (1, 64))
CONFLICT = (2, 65)


MANY = 112


@cache
def asked() -> torch.Tensor:
    """Pictures of all classes: a network that looks within one names its samples for some of them."""
    return torch.cat([training().images, unseen().images])


@cache
def with_copies(network: str, head: str) -> Run:
    data = training()
    rows = [*range(62), *COPIED]
    labels = data.samples.labels[rows]
    labels[65] = (labels[2] + 1) % 10
    whole = provnet.open_data(data.images[rows].numpy(), labels)
    run = fit(whole, network=network, config=train_config("fast", epochs=3, batch_size=16), head=head)
    return replace(run, config=replace(run.config, support={**run.config.support, "threshold": -1e9}))


@cases("head", ["plain", "exemplar"])
@cases("network", NETWORKS)
@cases("weights", SHARES)
def test_equal_samples_have_the_same_weight(network: str, head: str, weights: str) -> None:
    run = with_copies(network, head)
    found = explain(run, asked(), k=66, weights=weights)
    of = np.zeros((MANY, 66))
    for row in range(MANY):
        there = found.index[row] >= 0
        of[row, found.index[row][there]] = found.weight[row][there]
    assert of.sum(1) == pytest.approx(np.ones(MANY), abs=1e-5)
    for group in SAME:
        for other in group[1:]:
            assert of[:, other] == pytest.approx(of[:, group[0]], rel=1e-4)
    told_apart = network in WITHIN or (weights == "joint" and network != "single")
    if told_apart:  # the labels of these two decide, and they differ
        assert not np.allclose(of[:, 2], of[:, 65], rtol=0.01)
    else:
        assert of[:, 65] == pytest.approx(of[:, 2], rel=1e-4)


@cases("network", NETWORKS)
@cases("weights", SHARES)
def test_only_equal_samples_are_changed_and_their_sum_is_kept(network: str, weights: str) -> None:
    run = with_copies(network, "plain")
    net = run.network.eval()
    equal = Attributor(run, weights).equal
    assert equal is not None
    with torch.inference_mode():
        output = net(asked())
        every = torch.arange(66).expand(MANY, -1)
        before, after = weights_of(net, output, every, weights), weights_of(net, output, every, weights, equal)
        best = attribute(net, output, 66, weights, equal)
    members = [i for group in (*SAME, CONFLICT) for i in group]
    alone = [i for i in range(66) if i not in members]
    assert torch.allclose(before[:, alone], after[:, alone], atol=1e-6)
    for group in SAME:
        assert torch.allclose(before[:, group].sum(1), after[:, group].sum(1), atol=1e-6)
        assert not torch.allclose(before[:, group], after[:, group], atol=1e-6)  # it was split by chance
    assert (best.weight.diff(dim=1) <= 1e-7).all()
    for group in SAME:  # in the order of the data, whatever k is
        for row in best.index.tolist():
            there = [row.index(i) for i in group if i in row]
            assert there == sorted(there)
    with torch.inference_mode():
        few = attribute(net, output, 3, weights, equal)
    assert torch.equal(few.index, best.index[:, :3])
    real = best.index >= 0
    assert torch.allclose(best.weight[real], after.gather(1, best.index.clamp(min=0))[real], atol=1e-6)


@given(st.lists(st.floats(-30, 30), min_size=2, max_size=8), st.data())
def test_means_of_groups(values: list[float], drawn: st.DataObject) -> None:
    groups = drawn.draw(st.lists(st.integers(-1, 3), min_size=len(values), max_size=len(values)))
    scores, numbers = torch.tensor([values], dtype=torch.float64), torch.tensor([groups])
    found = group_means(scores, numbers)[0].exp()
    expected = scores[0].exp()
    for number in set(groups):
        expected[numbers[0] == number] = expected[numbers[0] == number].mean()
    assert torch.allclose(found, expected, rtol=1e-12)


def test_nothing_is_shared_without_equal_pictures_or_with_keys() -> None:
    alone = fit(training(), network="single", config=train_config("fast", epochs=1))
    assert Attributor(alone).equal is None
    keys = with_copies("single", "exemplar")
    assert Attributor(keys).equal is None


def test_every_one_names_the_others() -> None:
    run = with_copies("single", "plain")
    ids = run.samples.sample_ids
    first = explain(run, training().images[:1], k=66).to_records()[0]["exemplars"]
    of = {one["sample_id"]: one for one in first}
    assert of[ids[0]]["duplicates"] == [ids[62], ids[63]]
    assert of[ids[62]]["duplicates"] == [ids[0], ids[63]]
    assert of[ids[65]]["duplicates"] == [ids[2]]  # another label, the same picture
    assert (of[ids[3]]["duplicates"], of[ids[3]]["duplicate_count"]) == ([], 0)
    assert explain(run, training().images[:1], k=66).show().html.count("same picture as") > 0


def test_withheld_samples_are_not_named_as_duplicates() -> None:
    samples = with_copies("single", "exemplar").samples
    withheld = np.zeros(66, dtype=bool)
    withheld[62] = True
    found = named(replace(samples, withheld=withheld), 0, 0.5)
    assert found.duplicates == (samples.sample_ids[63],)
    assert found.duplicate_count == 1


def test_many_equal_samples_are_counted_not_listed() -> None:
    data = provnet.open_data(np.zeros((50, 1, 4, 4), np.uint8), np.arange(50) % 2)
    found = named(data.samples, 7, 0.02)
    assert (len(found.duplicates), found.duplicate_count) == (LISTED, 49)
    assert found.sample_id not in found.duplicates
    assert duplicate_words(found).endswith("and 46 more")


@cases("head", ["plain", "exemplar"])
@cases("network", NETWORKS)
@cases("k", [0, 66])
def test_credit_is_the_same_for_the_same_picture(network: str, head: str, k: int) -> None:
    """Ann gave the first of each pair, Bob and Cid gave it once more: nobody gains by whose neuron learned faster."""
    run = with_copies(network, head)
    who: list[str | None] = [None] * 66
    who[0], who[62], who[63] = "ann", "bob", "cid"
    found = credit(run, asked(), who, k=k, draws=20)
    shares = {one.name: one.share.value for one in found.ranking if one.listed}
    assert shares["bob"] == pytest.approx(shares["ann"], rel=1e-4)
    assert shares["cid"] == pytest.approx(shares["ann"], rel=1e-4)
    assert found.by_sample[62] == pytest.approx(found.by_sample[0], rel=1e-4)
    assert found.by_query.sum(1) == pytest.approx(np.ones(MANY))

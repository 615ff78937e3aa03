"""From scores to samples: best first, shares of a softmax, and no sample at all where a number is not finite."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from provnet.answers.attributor import Attribution, attribute
from provnet.base.errors import NonFiniteError, UsageError
from provnet.heads.index_map import IndexMap
from provnet.models.network import ProvenanceNet, ProvenanceOutput
from tests.cases import cases
from tests.models.made import NETWORKS, UNEVEN, Labels, members, scores_of, uneven_labels, vectors

BAD = [math.nan, math.inf, -math.inf]
BATCH = 6


def answered(network: str, index_map: IndexMap | None = None, seed: int = 0) -> tuple[ProvenanceNet, ProvenanceOutput]:
    """A network and what it says of six inputs; the scores lie as far apart as those of a trained one."""
    net = vectors(network, IndexMap(UNEVEN) if index_map is None else index_map, seed)
    x = torch.randn(BATCH, 4, generator=torch.Generator().manual_seed(seed)) * 9
    with torch.no_grad():
        net.support.fit(net(x).support_features, torch.arange(BATCH) % net.index_map.classes)
        output = net(x)
    return net, output._replace(index_scores=scores_of(output) * 300)


def spoil(values: Tensor, row: int, column: int, value: float) -> Tensor:
    values = values.clone()
    values[row, column] = value
    return values


@cases("network", NETWORKS)
@cases("value", BAD)
@cases("row", [0, 4, BATCH - 1])
@cases("part", ["logits", "index_scores", "features"])
def test_a_number_that_is_not_finite_is_an_error_that_names_the_row(
    network: str, value: float, row: int, part: str
) -> None:
    net, output = answered(network)
    attribute(net, output, 3)
    for column in (0, -1) if part != "index_scores" else (0,):
        broken = output._replace(**{part: spoil(getattr(output, part), row, column, value)})
        with pytest.raises(NonFiniteError, match=f"input {row} of the batch are not finite: no sample can be named"):
            attribute(net, broken, 3)


@cases("network", NETWORKS)
@cases("value", BAD)
def test_a_row_without_any_finite_number_is_an_error_and_never_index_0(network: str, value: float) -> None:
    net, output = answered(network)
    scores = scores_of(output).clone()
    scores[2] = value
    with pytest.raises(NonFiniteError, match="input 2"):
        attribute(net, output._replace(index_scores=scores), 1)


@cases("network", NETWORKS)
@cases("value", BAD)
def test_weights_that_are_not_finite_are_an_error(network: str, value: float) -> None:
    net, _ = answered(network)
    for name, parameter in net.named_parameters():
        kept = parameter.detach().clone()
        parameter.data.fill_(value)
        with torch.no_grad():
            output = net(torch.ones(2, 4))
        numbers = [output.logits, output.support_features]
        masked = scores_of(output)
        valid = net.index_head.valid(output.classes)
        numbers.append(masked if valid is None else masked[valid])
        if not all(bool(torch.isfinite(part).all()) for part in numbers):
            with pytest.raises(NonFiniteError):
                attribute(net, output, 2)
        else:  # behind a ReLU an infinity below zero is a zero
            assert name.split(".")[0] != "index_head", name
        parameter.data.copy_(kept)


@cases("network", ["class-conditional", "class-conditional-heads"])
@cases("value", [*BAD, 1e30])
def test_what_stands_in_a_masked_slot_does_not_matter(network: str, value: float) -> None:
    net, output = answered(network)
    valid = net.index_head.valid(output.classes)
    assert valid is not None
    scores = scores_of(output).where(valid, value)
    one, other = attribute(net, output, 5), attribute(net, output._replace(index_scores=scores), 5)
    assert torch.equal(one.index, other.index)
    assert torch.equal(one.weight, other.weight)


def naive(net: ProvenanceNet, output: ProvenanceOutput, row: int) -> list[tuple[float, int]]:
    """(share, index) of every sample that can be named, best first."""
    scores, head = scores_of(output)[row].double().numpy(), net.index_head
    if head.valid(output.classes) is None:
        pairs = [(float(scores[i]), i) for i in range(net.index_map.n)]
    else:
        pairs = [(float(scores[p]), i) for p, i in enumerate(members(net.index_map, int(output.classes[row])))]
    total = math.fsum(math.exp(score) for score, _ in pairs)
    return sorted(((math.exp(score) / total, i) for score, i in pairs), key=lambda pair: -pair[0])


def check(net: ProvenanceNet, output: ProvenanceOutput, found: Attribution, k: int) -> None:
    for row in range(BATCH):
        wanted = naive(net, output, row)
        index, weight = found.index[row].tolist(), found.weight[row].tolist()
        few = min(k, len(wanted))
        assert len(set(index[:few])) == few
        share = {i: value for value, i in wanted}
        np.testing.assert_allclose(weight[:few], [share[i] for i in index[:few]], rtol=1e-4)
        np.testing.assert_allclose(weight[:few], [value for value, _ in wanted[:few]], rtol=1e-4)  # the best ones
        assert all(a >= b for a, b in itertools.pairwise(weight))  # best first
        assert index[few:] == [-1] * (len(index) - few)
        assert weight[few:] == [0.0] * (len(weight) - few)
        assert sum(weight) <= 1 + 1e-5
        if few == len(wanted):
            assert sum(weight) == pytest.approx(1, abs=1e-5)
        assert int(found.predicted[row]) == int(output.logits[row].argmax())
        logits = output.logits[row].double()
        assert float(found.confidence[row]) == pytest.approx(float(torch.softmax(logits, 0).max()), rel=1e-4)


@pytest.mark.parametrize("network", NETWORKS)
@settings(max_examples=25, deadline=None)
@given(made=uneven_labels(largest=25), k=st.integers(1, 40), seed=st.integers(0, 50))
def test_it_is_a_naive_sort_of_softmax_shares(network: str, made: Labels, k: int, seed: int) -> None:
    net, output = answered(network, made.index_map, seed)
    found = attribute(net, output, k)
    slots = scores_of(output).shape[1]
    assert found.index.shape == found.weight.shape == (BATCH, min(k, slots))
    assert found.index.dtype == found.predicted.dtype == torch.int64
    check(net, output, found, k)


@pytest.mark.parametrize("network", NETWORKS)
def test_support_is_that_of_the_class_conditioned_on(network: str) -> None:
    net, _ = answered(network)
    x = torch.randn(BATCH, 4, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        outputs = [net(x, torch.full((BATCH,), label)) for label in (0, 2)]
    found = [attribute(net, output, 1).support for output in outputs]
    for output, support in zip(outputs, found, strict=True):
        assert torch.equal(support, net.support(output.support_features, output.classes))
    assert torch.equal(*found) == (network == "single")  # which has no class to be given


@cases("network", NETWORKS)
@cases("k", [0, -1])
def test_k_below_one_is_refused(network: str, k: int) -> None:
    net, output = answered(network)
    with pytest.raises(UsageError, match=f"k must be 1 or more, got {k}"):
        attribute(net, output, k)


def test_scores_in_half_precision_are_shared_out_in_full() -> None:
    net, output = answered("single")
    half = output._replace(index_scores=scores_of(output).bfloat16(), logits=output.logits.bfloat16())
    found = attribute(net, half, 9)
    assert found.weight.dtype == torch.float32
    assert float(found.weight.sum(1).max()) == pytest.approx(1, abs=1e-5)

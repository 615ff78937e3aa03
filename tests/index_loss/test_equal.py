"""The chunked index loss equals plain cross-entropy in losses, gradients and hits."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from provnet.heads.losses import index_cross_entropy
from tests.cases import cases
from tests.counts import count, grows
from tests.index_loss.made import RTOL, SCALE, WEIGHT, Case, assert_near, make, ours, plain, with_gradients


def assert_equal(case: Case, chunk: int) -> None:
    """Losses to RTOL of the scores, gradients to RTOL of the terms that they sum up chunk by chunk; the same hits."""
    rtol = RTOL[case.features.dtype]
    (loss, hit), gradients = with_gradients(lambda c: ours(c, chunk), case)
    (wanted, wanted_hit), wanted_gradients = with_gradients(plain, case)
    torch.testing.assert_close(loss, wanted, rtol=rtol, atol=rtol * SCALE)
    terms = WEIGHT * SCALE * math.sqrt(math.ceil(len(case.keys) / chunk))
    torch.testing.assert_close(gradients, wanted_gradients, rtol=rtol, atol=rtol * terms)
    assert hit.dtype == torch.bool
    assert not hit.requires_grad
    assert torch.equal(hit, wanted_hit)


@grows
@settings(max_examples=count(100, 5000), deadline=None)
@given(
    b=st.integers(1, 9),
    n=st.integers(1, 40),
    d=st.integers(1, 8),
    chunk=st.integers(1, 50),
    span=st.booleans(),
    smoothing=st.sampled_from([0.0, 0.1, 1.0]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    seed=st.integers(0, 2**16),
)
def test_equals_plain_cross_entropy(chunk: int, **drawn: Any) -> None:
    assert_equal(make(**drawn), chunk)


@cases("dtype", RTOL)
@cases("span", [False, True])
@cases("smoothing", [0.0, 0.1])
def test_equals_plain_cross_entropy_in_a_real_size(dtype: torch.dtype, span: bool, smoothing: float) -> None:
    case = make(64, 3000, 32, dtype=dtype, span=span, smoothing=smoothing)
    got, wanted = with_gradients(lambda c: ours(c, 700), case), with_gradients(plain, case)
    assert_near(got, wanted, RTOL[dtype])
    assert torch.equal(got[0].hit, wanted[0].hit)


@cases("chunk", [1, 4, 11, 100])
@cases("span", [False, True])
@cases("smoothing", [0.0, 0.1])
def test_gradients_are_those_of_the_loss(smoothing: float, span: bool, chunk: int) -> None:
    case = make(span=span, smoothing=smoothing)

    def loss(features: Tensor, keys: Tensor) -> Tensor:
        return ours(replace(case, features=features, keys=keys), chunk).loss

    assert torch.autograd.gradcheck(loss, [x.clone().requires_grad_() for x in case.tensors])


def test_a_tie_is_a_hit_whichever_of_the_equal_keys_is_meant() -> None:
    keys = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [-1.0, 0.0]])
    features = torch.tensor([[1.0, 0.0]]).expand(4, 2)
    for chunk in (1, 2, 4):
        found = index_cross_entropy(features, keys, torch.arange(4), chunk=chunk)
        assert found.hit.tolist() == [True, False, True, False]


def test_a_small_loss_under_large_scores_keeps_its_digits() -> None:
    features, keys, target = torch.tensor([[1.0]]), torch.tensor([[100.0], [90.0], [0.0]]), torch.tensor([0])
    exact = F.cross_entropy((features @ keys.T).double(), target, reduction="none")
    loss = index_cross_entropy(features, keys, target, chunk=1).loss.double()
    torch.testing.assert_close(
        loss, exact, rtol=0, atol=torch.finfo(torch.float32).eps
    )  # scores of 100 round to 64 eps


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_summed_in_full_on_a_cpu(dtype: torch.dtype) -> None:
    case = make(8, 200, 16, dtype=torch.float32)
    half = replace(case, features=case.features.to(dtype), keys=case.keys.to(dtype))
    full = replace(case, features=half.features.float(), keys=half.keys.float())
    (loss, hit), gradients = with_gradients(lambda c: ours(c, 30), half)
    (wanted, wanted_hit), wanted_gradients = with_gradients(plain, full)
    torch.testing.assert_close(loss, wanted)
    assert torch.equal(hit, wanted_hit)
    assert [x.dtype for x in gradients] == [dtype, dtype]
    torch.testing.assert_close(gradients, [x.to(g.dtype) for x, g in zip(wanted_gradients, gradients, strict=True)])


@pytest.mark.parametrize("span", [False, True])
def test_a_batch_of_none_has_no_losses(span: bool) -> None:
    (loss, hit), gradients = with_gradients(ours, make(0, span=span))
    assert loss.shape == hit.shape == (0,)
    assert all(not x.any() for x in gradients)

"""Keys outside the span of a row do not exist for it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from provnet.heads.losses import IndexLoss
from tests.index_loss.made import Case, make, ours, with_gradients


@pytest.mark.parametrize("chunk", [1, 3, 50])
def test_keys_outside_the_span_are_as_if_they_scored_minus_infinity(chunk: int) -> None:
    case = make(6, 40, 3)
    target = torch.tensor([3, 4, 9, 3, 20, 24])
    span = torch.tensor([0, 0, 5, 0, 20, 20]), torch.tensor([5, 5, 10, 5, 25, 25])
    case = replace(case, target=target, span=span)
    (loss, hit), gradients = with_gradients(lambda c: ours(c, chunk), case)
    numbers = torch.arange(40)
    inside = (numbers >= span[0].unsqueeze(1)) & (numbers < span[1].unsqueeze(1))

    def masked(c: Case) -> IndexLoss:
        scores = (c.features @ c.keys.T).masked_fill(~inside, -torch.inf)
        return IndexLoss(F.cross_entropy(scores, target, reduction="none"), scores.argmax(1) == target)

    (wanted, wanted_hit), wanted_gradients = with_gradients(masked, case)
    torch.testing.assert_close([loss, *gradients], [wanted, *wanted_gradients], rtol=1e-10, atol=1e-10)
    assert torch.equal(hit, wanted_hit)
    seen = inside.any(0)
    assert torch.equal(gradients[1].abs().sum(1) > 0, seen)  # exactly zero outside


def test_a_span_of_all_keys_is_no_span() -> None:
    case = make(smoothing=0.1)
    whole = replace(case, span=(torch.zeros(5, dtype=torch.int64), torch.full((5,), 11)))
    for got, want in zip(ours(whole), ours(case), strict=True):
        torch.testing.assert_close(got, want)


def test_what_lies_outside_the_span_does_not_matter_however_bad() -> None:
    case = make(1, 4, 2, span=True, smoothing=0.1)
    case = replace(case, target=torch.tensor([1]), span=(torch.tensor([1]), torch.tensor([3])))
    wanted = ours(case).loss
    for bad in (torch.nan, torch.inf, 1e308):
        keys = case.keys.clone()
        keys[3] = keys[0] = bad
        for chunk in (1, 2, 4):
            torch.testing.assert_close(ours(replace(case, keys=keys), chunk).loss, wanted)

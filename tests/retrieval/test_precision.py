"""Products of few digits, autocast and packed keys do not change which keys are named."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from provnet.base.errors import NonFiniteError
from provnet.heads import retrieval
from provnet.heads.keys import multiply, pack
from provnet.heads.retrieval import TopK, rank_rows, recall, top_k, top_k_within
from tests.cases import cases
from tests.retrieval.made import brute_force, drawn, same, same_bits


def coarse(queries: Tensor, keys: Tensor, out: Tensor) -> None:
    """`multiply` of a processor that keeps few digits of products in fp32."""
    multiply(queries, keys, out)
    if queries.dtype == torch.float32:
        out.copy_((out / 4).round() * 4)


@cases("b", [1, 5, 40])
@cases("kind", ["spread", "near ties"])
def test_products_of_few_digits_do_not_change_the_answer(monkeypatch: pytest.MonkeyPatch, b: int, kind: str) -> None:
    queries, keys = drawn(kind, b, 3000, 32, 1)
    wanted = top_k(queries, keys, 10)
    scanned = torch.empty(b, 3000)
    coarse(queries, keys, scanned)
    assert recall(TopK(*scanned.topk(10)), wanted) < 1  # the scan alone would name others
    monkeypatch.setattr(retrieval, "multiply", coarse)
    same_bits(top_k(queries, keys, 10), wanted)


@pytest.mark.parametrize("b", [1, 5, 40])
def test_autocast_and_gradients_change_nothing(b: int) -> None:
    queries, keys = drawn("spread", b, 900, 32, 2)
    wanted = top_k(queries, keys, 10)
    with torch.autocast("cpu", torch.bfloat16):
        same_bits(top_k(queries, keys, 10), wanted)
        same_bits(top_k(queries, keys, 10, chunk=100), wanted)
    found = top_k(queries.requires_grad_(), keys.requires_grad_(), 10)
    same_bits(found, wanted)
    assert not found.score.requires_grad


def test_other_precisions_are_those_of_their_numbers() -> None:
    queries, keys = drawn("spread", 4, 300, 8, 3)
    for dtype in (torch.bfloat16, torch.float16):
        low = (queries.to(dtype), keys.to(dtype))
        same_bits(top_k(*low, 5), top_k(low[0].float(), low[1].float(), 5))
    same_bits(top_k(queries.double(), keys.double(), 5), top_k(queries, keys, 5))
    same_bits(top_k(queries, keys.t().contiguous().t(), 5), top_k(queries, keys, 5))  # any strides


@cases("b", [1, 30])
@cases("dtype", ["fp32", "bf16", "int8"])
def test_packed_keys_scored_again_name_the_exact_rows(dtype: str, b: int) -> None:
    keys = torch.nn.functional.normalize(torch.randn(3000, 64, generator=torch.Generator().manual_seed(4)))
    queries = keys[:b] + 0.02 * torch.randn(b, 64, generator=torch.Generator().manual_seed(5))
    exact = top_k(queries, keys, 10)
    again = top_k(queries, pack(keys, dtype), 10, rerank=keys)
    same_bits(again, exact)
    assert recall(again, exact) == 1
    packed = top_k(queries, pack(keys, dtype), 10)  # without: exact for the packed numbers, not for the keys
    same(packed, brute_force(queries, pack(keys, dtype).unpacked(), 10))
    found = [len(set(a) & set(b)) for a, b in zip(packed.row.tolist(), exact.row.tolist(), strict=True)]
    assert recall(packed, exact) == sum(found) / (10 * b)


def test_packed_keys_within_classes() -> None:
    queries, keys = drawn("spread", 9, 300, 16, 6)
    table = (torch.tensor([0, 100]), torch.tensor([100, 200]), torch.arange(9) % 2, 4)
    for dtype in ("bf16", "int8"):
        packed = pack(keys, dtype)
        same_bits(top_k_within(queries, packed, *table), top_k_within(queries, packed.unpacked(), *table))


def test_given_rows_are_ranked_as_the_scan_ranks_them() -> None:
    queries, keys = drawn("duplicates", 6, 200, 8, 7)
    everything = torch.arange(200).flip(0).expand(6, -1)
    same_bits(rank_rows(queries, keys, everything, 12), top_k(queries, keys, 12))
    assert rank_rows(queries, keys, everything[:, :5], 12).row.shape == (6, 5)
    missing = rank_rows(queries, keys, torch.tensor([[-1, 3, -1]]).expand(6, 3), 2)
    assert missing.row.tolist() == [[3, -1]] * 6
    assert (missing.score[:, 1] == -torch.inf).all()
    with pytest.raises(NonFiniteError, match="query 2 is not finite"):
        rank_rows(queries.index_fill(0, torch.tensor(2), torch.nan), keys, everything, 3)

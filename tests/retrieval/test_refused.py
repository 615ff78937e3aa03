"""What is not finite is named, what cannot be is refused."""

from __future__ import annotations

import pytest
import torch

from provnet.base.errors import NonFiniteError, ProvnetError, UsageError
from provnet.heads.keys import pack
from provnet.heads.retrieval import merge, recall, top_k, top_k_within
from tests.cases import cases
from tests.retrieval.made import drawn

BAD = [torch.nan, torch.inf, -torch.inf]


@cases("value", BAD)
@cases(("b", "bad"), [(1, 0), (3, 2), (40, 17), (1100, 1050)])
def test_a_query_that_is_not_finite_is_named(value: float, b: int, bad: int) -> None:
    queries, keys = drawn("spread", b, 300, 4, 8)
    queries[bad, 1] = value
    with pytest.raises(NonFiniteError, match=f"^query {bad} is not finite"):
        top_k(queries, keys, 3)
    with pytest.raises(NonFiniteError, match=f"^query {bad} is not finite"):
        top_k_within(queries, keys, torch.tensor([0, 200]), torch.tensor([200, 100]), torch.arange(b) % 2, 3)


@cases("value", BAD)
@cases("b", [1, 5, 40])
@cases("chunk", [None, 64])
def test_a_key_that_is_not_finite_is_named(value: float, b: int, chunk: int | None) -> None:
    queries, keys = drawn("zero rows", b, 300, 4, 9)
    keys[250, 3] = value
    with pytest.raises(NonFiniteError, match=r"^key 250 is not finite"):
        top_k(queries, keys, 3, chunk=chunk)
    with pytest.raises(NonFiniteError, match=r"^key 250 is not finite"):
        top_k_within(queries, keys, torch.tensor([0, 200]), torch.tensor([200, 100]), torch.ones(b).long(), 3)
    clean = keys.clone()
    clean[250, 3] = 0
    with pytest.raises(NonFiniteError, match=r"^key 250 is not finite"):
        top_k(queries, pack(clean, "bf16"), 300, rerank=keys)


def test_a_scale_that_is_not_finite_is_named() -> None:
    queries, keys = drawn("spread", 2, 30, 4, 10)
    packed = pack(keys, "int8")
    assert packed.scale is not None
    packed.scale[7] = torch.nan
    with pytest.raises(NonFiniteError, match=r"^key 7 is not finite"):
        top_k(queries, packed, 3)


@pytest.mark.parametrize("b", [1, 20])
def test_products_too_large_for_float32_are_refused(b: int) -> None:
    with pytest.raises(NonFiniteError, match="too large for float32: normalise"):
        top_k(torch.full((b, 2), 1e30), torch.full((50, 2), 1e30), 3)


KEYS = torch.zeros(4, 2)

TWO = torch.zeros(2, 2)

WRONG = {
    "k": lambda: top_k(TWO, KEYS, 0),
    "chunk": lambda: top_k(TWO, KEYS, 1, chunk=0),
    "one of D": lambda: top_k(torch.zeros(2, 3), KEYS, 1),
    "vector": lambda: top_k(torch.zeros(2), KEYS, 1),
    "whole numbers": lambda: top_k(TWO.long(), KEYS, 1),
    "whole keys": lambda: top_k(TWO, KEYS.to(torch.int8), 1),
    "device": lambda: top_k(TWO, KEYS.to("meta"), 1),
    "rerank": lambda: top_k(TWO, KEYS, 1, rerank=torch.zeros(5, 2)),
    "too many": lambda: top_k(TWO.to("meta"), torch.empty(2**32, 2, device="meta"), 1),
    "class": lambda: top_k_within(TWO, KEYS, torch.tensor([0]), torch.tensor([4]), torch.tensor([0, 1]), 1),
    "no class": lambda: top_k_within(TWO, KEYS, torch.tensor([0]), torch.tensor([4]), torch.tensor([0, -1]), 1),
    "classes": lambda: top_k_within(TWO, KEYS, torch.tensor([0]), torch.tensor([4]), torch.tensor([0]), 1),
    "beyond": lambda: top_k_within(TWO, KEYS, torch.tensor([2]), torch.tensor([3]), torch.tensor([0, 0]), 1),
    "before": lambda: top_k_within(TWO, KEYS, torch.tensor([2]), torch.tensor([-1]), torch.tensor([0, 0]), 1),
    "starts": lambda: top_k_within(TWO, KEYS, torch.tensor([2, 3]), torch.tensor([1]), torch.tensor([0, 0]), 1),
    "no parts": lambda: merge([], 1),
    "unlike parts": lambda: merge([top_k(TWO, KEYS, 1), top_k(TWO[:1], KEYS, 1)], 1),
    "merged k": lambda: merge([top_k(TWO, KEYS, 1)], 0),
    "recall": lambda: recall(top_k(TWO, KEYS, 1), top_k(TWO[:1], KEYS, 1)),
}


@cases("name", WRONG)
def test_what_cannot_be_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=r"must|but there are|give lists|at most") as caught:
        WRONG[name]()
    assert isinstance(caught.value, ProvnetError)

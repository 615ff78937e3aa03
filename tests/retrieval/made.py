"""Queries and keys of every awkward kind, and their best by brute force."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor

from provnet.heads.retrieval import TopK
from tests.counts import count

KINDS = ("spread", "whole numbers", "duplicates", "all equal", "zero rows", "near ties", "unlike lengths")

SIZES = st.sampled_from([0, 1, 2, 7, 17, 63, 64, 65, 200, 700, 2500])  # below and above a block, whole blocks or not

BATCHES = st.sampled_from([0, 1, 2, 8, 9, 33])  # none, one, few and many are multiplied in different ways

WIDTHS = st.sampled_from([0, 1, 2, 8, 17, 130])

CHUNKS = st.sampled_from([None, 1, 7, 100, 1000, 10_000])

LAWS = settings(max_examples=count(60, 3000), deadline=None)


def drawn(kind: str, b: int, n: int, d: int, seed: int) -> tuple[Tensor, Tensor]:
    """Queries and keys of a kind."""
    generator = torch.Generator().manual_seed(seed)
    queries = torch.randn(b, d, generator=generator)
    keys = torch.randn(n, d, generator=generator)
    pick = torch.randint(0, 3, (n,), generator=generator)
    if kind == "whole numbers":
        return (2 * queries).round(), (2 * keys).round()
    if kind == "duplicates":
        keys = torch.randn(3, d, generator=generator)[pick]
    elif kind == "all equal":
        keys = torch.randn(1, d, generator=generator).expand(n, d).clone()
    elif kind == "zero rows":
        keys[pick > 0] = 0
    elif kind == "near ties":  # more of them than fp32 products can tell apart
        keys = torch.randn(1, d, generator=generator) * (1 + 1e-7 * pick.unsqueeze(1))
    elif kind == "unlike lengths":
        keys = keys * 10.0 ** (3 * torch.randn(n, 1, generator=generator)).clamp(-6, 6)
    return queries, keys


def brute_force(queries: Tensor, keys: Tensor, k: int) -> TopK:
    """Every product in float64, rounded once; the lower row first where they are equal."""
    products = np.einsum("bd,nd->bn", queries.double().numpy(), keys.double().numpy(), optimize=False)
    score = products.astype(np.float32)
    row = np.argsort(-score, axis=1, kind="stable")[:, :k]
    return TopK(torch.from_numpy(np.take_along_axis(score, row, 1)), torch.from_numpy(row))


def same(found: TopK, wanted: TopK) -> None:
    assert found.row.dtype == torch.int64
    assert found.score.dtype == torch.float32
    assert torch.equal(found.row, wanted.row)
    torch.testing.assert_close(found.score, wanted.score, rtol=1e-6, atol=1e-30)


def same_bits(found: TopK, wanted: TopK) -> None:
    assert torch.equal(found.row, wanted.row)
    assert torch.equal(found.score, wanted.score)

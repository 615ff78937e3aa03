"""Retrieval equals brute force in float64, ties included, however the keys are cut, packed or asked for."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from provnet import retrieval
from provnet.errors import NonFiniteError, ProvnetError, UsageError
from provnet.keybank import PackedKeys, multiply, pack
from provnet.retrieval import TopK, merge, rank_rows, recall, top_k, top_k_within
from tests.counts import count, grows

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


@grows
@LAWS
@given(st.sampled_from(KINDS), BATCHES, SIZES, WIDTHS, st.sampled_from([1, 3, 10, 80]), CHUNKS, st.integers(0, 2**32))
@example("all equal", 1, 64, 130, 3, None, 0)
@example("all equal", 16, 2500, 17, 10, 7, 0)
@example("near ties", 33, 2500, 130, 10, None, 0)
@example("spread", 0, 10, 8, 3, None, 0)
@example("spread", 3, 5, 8, 80, None, 0)
def test_equals_brute_force(kind: str, b: int, n: int, d: int, k: int, chunk: int | None, seed: int) -> None:
    if chunk is not None and n // chunk > 100:
        chunk = n // 100
    queries, keys = drawn(kind, b, n, d, seed)
    found = top_k(queries, keys, k, chunk=chunk)
    assert found.row.shape == (b, min(k, n))
    same(found, brute_force(queries, keys, k))


@grows
@LAWS
@given(st.sampled_from(KINDS), st.sampled_from([0, 1, 3, 40]), st.lists(SIZES, min_size=1, max_size=5), st.data())
def test_within_equals_brute_force_of_each_class(kind: str, b: int, counts: list[int], data: st.DataObject) -> None:
    k = data.draw(st.sampled_from([1, 4, 90]))
    queries, keys = drawn(kind, b, sum(counts), 8, data.draw(st.integers(0, 2**32)))
    sizes = torch.tensor(counts)
    starts = sizes.cumsum(0) - sizes
    classes = torch.tensor(
        data.draw(st.lists(st.integers(0, len(counts) - 1), min_size=b, max_size=b)), dtype=torch.int64
    )
    found = top_k_within(queries, keys, starts, sizes, classes, k)
    assert found.row.shape == (b, k)
    for i, c in enumerate(classes.tolist()):
        begin, size = int(starts[c]), counts[c]
        wanted = brute_force(queries[i : i + 1], keys[begin : begin + size], k)
        here = min(k, size)
        same(TopK(found.score[i : i + 1, :here], found.row[i : i + 1, :here] - begin), wanted)
        assert (found.row[i, here:] == -1).all()
        assert (found.score[i, here:] == -torch.inf).all()


@grows
@LAWS
@given(st.sampled_from(KINDS), st.sampled_from([1, 5, 20]), st.lists(SIZES, min_size=1, max_size=5), st.data())
def test_merged_shards_equal_the_whole(kind: str, b: int, sizes: list[int], data: st.DataObject) -> None:
    k = data.draw(st.sampled_from([1, 10]))
    queries, keys = drawn(kind, b, sum(sizes), 17, data.draw(st.integers(0, 2**32)))
    parts, begin = [], 0
    for size in sizes:
        part = top_k(queries, keys[begin : begin + size], k)
        parts.append(TopK(part.score, part.row + begin))
        begin += size
    same_bits(merge(data.draw(st.permutations(parts)), k), top_k(queries, keys, k))


def test_rows_that_are_not_there_stay_last_when_merged() -> None:
    missing = TopK(torch.tensor([[1.0, -torch.inf]]), torch.tensor([[5, -1]]))
    other = TopK(torch.tensor([[-2.0, -3.0]]), torch.tensor([[7, 8]]))
    assert merge([missing, other], 4).row.tolist() == [[5, 7, 8, -1]]


@grows
@LAWS
@given(st.sampled_from(KINDS), st.sampled_from([64, 700, 2500]), st.sampled_from([None, "bf16", "int8"]), st.data())
def test_a_query_has_the_same_score_bits_in_any_batch(
    kind: str, n: int, dtype: str | None, data: st.DataObject
) -> None:
    queries, plain = drawn(kind, 20, n, data.draw(WIDTHS), data.draw(st.integers(0, 2**32)))
    keys = plain if dtype is None else pack(plain, dtype)
    batch = top_k(queries, keys, 10)
    for some in (slice(3, 4), slice(2, 7)):
        alone = top_k(queries[some], keys, 10, chunk=data.draw(st.sampled_from([None, 90])))
        same_bits(alone, TopK(batch.score[some], batch.row[some]))


def test_more_queries_than_are_scanned_together(monkeypatch: pytest.MonkeyPatch) -> None:
    queries, keys = drawn("spread", 50, 300, 8, 0)
    whole = top_k(queries, keys, 5)
    monkeypatch.setattr(retrieval, "QUERIES", 7)
    same_bits(top_k(queries, keys, 5), whole)
    monkeypatch.setattr(retrieval, "PRODUCTS", 1)  # one at a time
    same_bits(top_k(queries, keys, 5), whole)


def test_one_query_takes_the_short_way_unless_many_keys_tie() -> None:
    query, keys = drawn("spread", 1, 5000, 16, 0)
    short = retrieval._one(query, PackedKeys(keys), 10)
    assert short is not None
    same(short, brute_force(query, keys, 10))
    assert retrieval._one(query, PackedKeys(keys[:1].expand(5000, 16)), 10) is None


def coarse(queries: Tensor, keys: Tensor, out: Tensor) -> None:
    """`multiply` of a processor that keeps few digits of products in fp32."""
    multiply(queries, keys, out)
    if queries.dtype == torch.float32:
        out.copy_((out / 4).round() * 4)


@pytest.mark.parametrize("b", [1, 5, 40])
@pytest.mark.parametrize("kind", ["spread", "near ties"])
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


@pytest.mark.parametrize("b", [1, 30])
@pytest.mark.parametrize("dtype", ["fp32", "bf16", "int8"])
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


BAD = [torch.nan, torch.inf, -torch.inf]


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize(("b", "bad"), [(1, 0), (3, 2), (40, 17), (1100, 1050)])
def test_a_query_that_is_not_finite_is_named(value: float, b: int, bad: int) -> None:
    queries, keys = drawn("spread", b, 300, 4, 8)
    queries[bad, 1] = value
    with pytest.raises(NonFiniteError, match=f"^query {bad} is not finite"):
        top_k(queries, keys, 3)
    with pytest.raises(NonFiniteError, match=f"^query {bad} is not finite"):
        top_k_within(queries, keys, torch.tensor([0, 200]), torch.tensor([200, 100]), torch.arange(b) % 2, 3)


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize("b", [1, 5, 40])
@pytest.mark.parametrize("chunk", [None, 64])
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


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=r"must|but there are|give lists|at most") as caught:
        WRONG[name]()
    assert isinstance(caught.value, ProvnetError)


def test_recall_counts_only_rows_that_are_there() -> None:
    exact = TopK(torch.zeros(2, 3), torch.tensor([[4, 2, -1], [-1, -1, -1]]))
    found = TopK(torch.zeros(2, 2), torch.tensor([[2, -1], [-1, 9]]))
    assert recall(found, exact) == 0.5
    assert recall(found, TopK(torch.zeros(2, 1), torch.full((2, 1), -1))) == 1


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible")
@pytest.mark.parametrize("precision", ["highest", "high"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_gpu_names_the_same_rows(kind: str, precision: str) -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        for b in (1, 70):
            queries, keys = drawn(kind, b, 2500, 32, 11)
            found = top_k(queries.cuda(), keys.cuda(), 10, chunk=900)
            same(TopK(found.score.cpu(), found.row.cpu()), brute_force(queries, keys, 10))
    finally:
        torch.set_float32_matmul_precision(before)

"""The scan names the keys that brute force names: whole, within classes, merged from shards, in any batch."""

from __future__ import annotations

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from provnet.heads import retrieval
from provnet.heads.keys import PackedKeys, pack
from provnet.heads.retrieval import TopK, merge, recall, top_k, top_k_within
from tests.counts import grows
from tests.retrieval.made import BATCHES, CHUNKS, KINDS, LAWS, SIZES, WIDTHS, brute_force, drawn, same, same_bits


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
    short = retrieval._find_one(query, PackedKeys(keys), 10)
    assert short is not None
    same(short, brute_force(query, keys, 10))
    assert retrieval._find_one(query, PackedKeys(keys[:1].expand(5000, 16)), 10) is None


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

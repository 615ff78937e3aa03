"""Packed keys: what each format keeps, what it costs, and the products that retrieval is made of."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from provnet.base.errors import NonFiniteError, UsageError
from provnet.heads.keys import DTYPES, FEW, PackedKeys, first_not_finite, multiply, pack, packed_view, score_rows
from provnet.heads.retrieval import top_k
from tests.cases import cases
from tests.counts import count, grows

LAWS = settings(max_examples=count(50, 2000), deadline=None)
SEEDS = st.integers(0, 2**32)
SHAPES = st.tuples(st.sampled_from([0, 1, 2, 9, 40]), st.sampled_from([0, 1, 3, 16]))


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Work with so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def drawn(n: int, d: int, seed: int) -> Tensor:
    """Keys of unlike lengths, some of them zero."""
    generator = torch.Generator().manual_seed(seed)
    keys = torch.randn(n, d, generator=generator) * 10 ** torch.randn(n, 1, generator=generator)
    keys[torch.rand(n, generator=generator) < 0.2] = 0
    return keys


@grows
@LAWS
@given(SHAPES, st.sampled_from(sorted(DTYPES)), SEEDS)
def test_a_format_keeps_what_it_promises(shape: tuple[int, int], dtype: str, seed: int) -> None:
    keys = drawn(*shape, seed)
    packed = pack(keys, dtype)
    back = packed.unpacked()
    assert (len(packed), packed.dtype, back.dtype, back.shape) == (len(keys), dtype, torch.float32, keys.shape)
    if dtype == "fp32":
        assert torch.equal(back, keys)
    elif keys.numel():
        step = keys.abs().amax(1, keepdim=True) / {"bf16": 256, "int8": 127}[dtype]
        assert ((back - keys).abs() <= (0.5 + 0.51 * shape[1] ** 0.5) * step).all()  # rounded, then as long as it was
        assert torch.equal((back == 0).all(1), (keys == 0).all(1))
        assert torch.allclose(back.double().norm(dim=1), keys.double().norm(dim=1), rtol=1e-6, atol=0)
    width = {"fp32": 4, "bf16": 2, "int8": 1}[dtype]
    assert packed.nbytes == keys.numel() * width + (0 if dtype == "fp32" else 4 * len(keys))


@grows
@LAWS
@given(SHAPES, st.sampled_from(sorted(DTYPES)), SEEDS)
def test_a_key_and_its_negative_pack_alike(shape: tuple[int, int], dtype: str, seed: int) -> None:
    keys = drawn(*shape, seed)
    assert torch.equal(pack(-keys, dtype).unpacked(), -pack(keys, dtype).unpacked())


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_parts_and_devices_agree_with_the_whole(dtype: str) -> None:
    packed = pack(drawn(20, 5, 0), dtype)
    whole = packed.unpacked()
    rows = torch.tensor([[3, 3, 19], [0, 7, 1]])
    assert torch.equal(packed.unpacked(rows), whole[rows])
    assert torch.equal(packed.unpacked(slice(4, 9)), whole[4:9])
    assert torch.equal(packed.part(4, 9).unpacked(), whole[4:9])
    assert packed.part(4, 9).values.data_ptr() == packed.values[4:].data_ptr()
    assert torch.equal(packed.to("cpu").unpacked(), whole)
    assert torch.equal(packed.unpacked(), whole)  # reading changes nothing


def test_two_threads_name_the_same_rows_with_the_same_bits() -> None:
    queries, keys = drawn(30, 16, 0), drawn(3000, 16, 1)
    for b in (1, 5, 30):
        found = []
        for number in (1, 2):
            with threads(number):
                found.append(top_k(queries[:b], keys, 10))
        assert torch.equal(found[0].row, found[1].row)
        assert torch.equal(found[0].score, found[1].score)


def test_tiny_keys_underflow_to_zero_and_no_further() -> None:
    packed = pack(torch.tensor([[1e-45, 0.0], [-1e-45, 1e-45]]), "int8")
    assert torch.isfinite(packed.unpacked()).all()
    assert (packed.unpacked().abs() <= 1e-45).all()


def test_int8_uses_the_whole_range_of_each_row() -> None:
    packed = pack(torch.tensor([[1e-3, -1e-3, 0.0], [5.0, 2.5, -5.0]]), "int8")
    assert packed.values.tolist() == [[127, -127, 0], [127, 64, -127]]


@cases("value", [math.nan, math.inf, -math.inf])
@cases("dtype", DTYPES)
def test_a_key_that_is_not_finite_is_named(value: float, dtype: str) -> None:
    keys = torch.zeros(6, 3)
    keys[4, 1] = keys[5, 0] = value
    with pytest.raises(NonFiniteError, match=r"^key 4 is not finite"):
        pack(keys, dtype)


def test_a_key_too_large_for_bf16_is_named() -> None:
    largest = torch.finfo(torch.float32).max
    keys = torch.tensor([[1.0], [largest]])
    assert torch.equal(pack(keys).unpacked(), keys)
    with pytest.raises(NonFiniteError, match=r"^key 1 is too large for bf16"):
        pack(keys, "bf16")


WRONG = {
    "format": lambda: pack(torch.ones(2, 2), "int4"),
    "shape": lambda: pack(torch.ones(2)),
    "whole numbers": lambda: pack(torch.ones(2, 2, dtype=torch.int64)),
    "values": lambda: PackedKeys(torch.ones(2, 2, dtype=torch.float64)),
    "vector": lambda: PackedKeys(torch.ones(2)),
    "no scale": lambda: PackedKeys(torch.ones(2, 2, dtype=torch.int8)),
    "one scale": lambda: PackedKeys(torch.ones(2, 2, dtype=torch.int8), torch.ones(1)),
    "scaled fp32": lambda: PackedKeys(torch.ones(2, 2), torch.ones(2)),
    "plain int8": lambda: packed_view(torch.ones(2, 2, dtype=torch.int8)),
}


@cases("name", WRONG)
def test_what_cannot_be_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=r"must|need|allowed: bf16, fp32, int8"):
        WRONG[name]()


def test_plain_keys_are_viewed_not_copied() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        keys = torch.ones(3, 2, dtype=dtype, requires_grad=True)
        view = packed_view(keys)
        assert view.values.data_ptr() == keys.data_ptr()
        assert not view.values.requires_grad
        assert packed_view(view) is view
    assert packed_view(torch.ones(3, 2, dtype=torch.float16)).dtype == "fp32"


def test_the_first_row_that_is_not_finite() -> None:
    rows = torch.zeros(5, 2)
    assert first_not_finite(rows) is None
    assert first_not_finite(rows[:0]) is None
    rows[3, 1] = math.nan
    rows[2, 0] = -math.inf
    assert first_not_finite(rows) == 2
    assert first_not_finite(rows[:, 1]) == 3


@grows
@LAWS
@given(st.sampled_from([1, 2, FEW, FEW + 1, 40]), st.sampled_from([1, 7, 8, 9, 100, 333]), SEEDS, st.booleans())
def test_products_are_the_products_however_they_are_split(b: int, n: int, seed: int, two: bool) -> None:
    queries, keys = drawn(b, 12, seed), drawn(n, 12, seed + 1)
    wanted = queries.double() @ keys.double().t()
    bound = 1e-6 * (queries.double().abs() @ keys.double().abs().t()) + 1e-30  # rounding goes by the terms of a sum
    for asked in (queries, queries.double()):
        out = torch.full((b, n + 3), torch.nan)
        with threads(2 if two else 1):
            multiply(asked, keys, out[:, :n])
        assert ((out[:, :n] - wanted).abs() <= bound).all()
        assert out[:, n:].isnan().all()
    rows = torch.randint(0, n, (b, 4), generator=torch.Generator().manual_seed(seed))
    exact, terms = wanted.gather(1, rows), bound.gather(1, rows)
    off = (score_rows(queries, packed_view(keys), rows) - exact).abs()
    assert (off <= 2**-23 * exact.abs() + 1e-8 * terms).all()

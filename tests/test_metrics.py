"""Metrics against loops that a reader can check."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from provnet.answers.metrics import any_at_k, group_hit, index_hit, majority_at_k
from tests.models.made import LAWS

SAMPLES = 7


class Ranked(NamedTuple):
    """(B, K) indices without repeats, -1 at the end of a row where a class had fewer."""

    named: np.ndarray
    own: np.ndarray
    k: int


@st.composite
def ranked(draw: st.DrawFn) -> Ranked:
    queries, width = draw(st.integers(1, 6)), draw(st.integers(1, SAMPLES))
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    index = np.stack([rng.permutation(SAMPLES)[:width] for _ in range(queries)])
    real = draw(st.lists(st.integers(1, width), min_size=queries, max_size=queries))
    index = np.where(np.arange(width) < np.array(real)[:, None], index, -1)
    return Ranked(index, rng.integers(0, SAMPLES, queries), draw(st.integers(1, SAMPLES + 3)))


classes = st.lists(st.integers(0, 3), min_size=SAMPLES, max_size=SAMPLES).map(np.array)


def labels_of(made: Ranked, labels: np.ndarray) -> np.ndarray:
    return np.where(made.named >= 0, labels[made.named], -1)


def rows(found: np.ndarray, made: Ranked) -> list[bool]:
    """One bool a query, as a list."""
    assert found.shape == (len(made.named),)
    assert found.dtype == bool
    return [bool(value) for value in found]


@LAWS
@given(ranked())
def test_index_hit(made: Ranked) -> None:
    wanted = [int(own) in index[: made.k].tolist() for index, own in zip(made.named, made.own, strict=True)]
    assert rows(index_hit(made.named, made.own, made.k), made) == wanted
    first = [int(index[0]) == int(own) for index, own in zip(made.named, made.own, strict=True)]
    assert rows(index_hit(made.named, made.own), made) == first


@LAWS
@given(ranked(), classes)
def test_group_hit(made: Ranked, groups: np.ndarray) -> None:
    wanted = []
    for index, own in zip(made.named.tolist(), made.own.tolist(), strict=True):
        wanted.append(any(i >= 0 and groups[i] == groups[own] for i in index[: made.k]))
    assert rows(group_hit(made.named, made.own, groups, made.k), made) == wanted


@LAWS
@given(ranked())
def test_group_hit_without_duplicates_is_index_hit(made: Ranked) -> None:
    groups = np.random.default_rng(0).permutation(SAMPLES)
    exact = index_hit(made.named, made.own, made.k)
    assert np.array_equal(group_hit(made.named, made.own, groups, made.k), exact)
    assert (group_hit(made.named, made.own, groups // 2, made.k) >= exact).all()  # duplicates only help


def test_no_sample_is_no_hit_even_for_the_last_sample() -> None:
    """-1 is not the last index."""
    nothing, last = np.array([[-1, -1]]), np.array([SAMPLES - 1])
    assert index_hit(nothing, last, 2).tolist() == [False]
    assert group_hit(nothing, last, np.zeros(SAMPLES, np.int64), 2).tolist() == [False]
    assert any_at_k(nothing, np.array([0]), 2).tolist() == [False]
    assert majority_at_k(nothing, np.array([0]), 2).tolist() == [False]


@LAWS
@given(ranked(), classes, st.integers(0, 3))
def test_any_at_k(made: Ranked, labels: np.ndarray, shift: int) -> None:
    truth = (labels[made.own] + shift) % 4
    label = labels_of(made, labels)
    wanted = [int(t) in row[: made.k].tolist() for row, t in zip(label, truth, strict=True)]
    assert rows(any_at_k(label, truth, made.k), made) == wanted


@LAWS
@given(ranked(), classes, st.integers(0, 3))
def test_majority_at_k(made: Ranked, labels: np.ndarray, shift: int) -> None:
    truth = (labels[made.own] + shift) % 4
    label = labels_of(made, labels)
    wanted = []
    for row, t in zip(label.tolist(), truth.tolist(), strict=True):
        votes = Counter(value for value in row[: made.k] if value >= 0)
        most = max(votes.values())
        winner = next(value for value in row if votes.get(value) == most)  # a tie goes to the better-ranked label
        wanted.append(winner == t)
    assert rows(majority_at_k(label, truth, made.k), made) == wanted


@LAWS
@given(ranked(), classes)
def test_how_they_compare(made: Ranked, labels: np.ndarray) -> None:
    truth, label = labels[made.own], labels_of(made, labels)
    assert np.array_equal(any_at_k(label, truth, 1), majority_at_k(label, truth, 1))
    assert (majority_at_k(label, truth, made.k) <= any_at_k(label, truth, made.k)).all()
    assert (any_at_k(label, truth, made.k) <= any_at_k(label, truth, made.k + 1)).all()
    assert (index_hit(made.named, made.own, made.k) <= any_at_k(label, truth, made.k)).all()  # a sample has its label

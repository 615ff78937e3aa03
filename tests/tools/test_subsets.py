"""Which samples are indexed: as many as asked of each class, by the seed; near, far or undecided as the name says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import provnet
from provnet.base.errors import DataError, NonFiniteError, UsageError
from provnet.tools.subsets import (
    QUICK,
    SELECTIONS,
    choose_rows,
    index_subset,
    per_class,
    quick_run,
    view_of,
)
from tests.cases import cases
from tests.counts import count

LABELS = np.array([0] * 12 + [1] * 6 + [3] * 2)


def some(select: str, seed: int = 0, counts: tuple[int, ...] = (4, 2, 0, 1), n: int = 20) -> np.ndarray:
    rng = np.random.default_rng(9)
    features, margins = rng.normal(size=(n, 5)).astype(np.float32), rng.random(n)
    return choose_rows(select, LABELS[:n], np.array(counts), features=features, margins=margins, seed=seed)


@pytest.mark.parametrize("select", SELECTIONS)
def test_rows_are_rising_int64_of_the_right_classes(select: str) -> None:
    rows = some(select)
    assert rows.dtype == np.int64
    assert (np.diff(rows) > 0).all()
    assert np.bincount(LABELS[rows], minlength=4).tolist() == [4, 2, 0, 1]
    assert rows.tolist() == some(select).tolist()


@pytest.mark.parametrize("select", SELECTIONS)
def test_all_of_a_class_and_equal_pictures(select: str) -> None:
    """Equal features leave k-means fewer centres than samples asked for."""
    counts = np.array([12, 5, 0, 2])
    given = {"features": np.ones((20, 3), dtype=np.float32), "margins": np.zeros(20)}
    rows = choose_rows(select, LABELS, counts, **given)  # type: ignore[arg-type]
    assert np.bincount(LABELS[rows], minlength=4).tolist() == counts.tolist()


def test_the_seed_changes_a_draw_and_nothing_else() -> None:
    assert some("stratified", 1).tolist() != some("stratified", 2).tolist()
    assert some("diverse", 1).tolist() == some("diverse", 2).tolist()
    assert some("boundary", 1).tolist() == some("boundary", 2).tolist()


def test_prototypes_stand_for_the_groups_of_a_class() -> None:
    centres = np.array([[0.0, 0.0], [50.0, 0.0], [0.0, 50.0]])
    features = np.concatenate([c + np.array([[0, 0], [3, 0], [-3, 0], [0, 3], [0, -3]]) for c in centres])
    rows = choose_rows("prototypes", np.zeros(15, np.int64), np.array([3]), features=features)
    assert rows.tolist() == [0, 5, 10]


def test_boundary_takes_the_smallest_margins_of_each_class() -> None:
    labels, margins = np.array([0, 0, 0, 1, 1, 1]), np.array([0.5, 0.1, 0.3, 9.0, 7.0, 8.0])
    assert choose_rows("boundary", labels, np.array([2, 1]), margins=margins).tolist() == [1, 2, 4]


def test_diverse_covers_better_than_a_draw() -> None:
    features = np.random.default_rng(3).normal(size=(200, 4))
    labels, counts = np.zeros(200, dtype=np.int64), np.array([20])

    def radius(rows: np.ndarray) -> float:
        return float(np.linalg.norm(features[:, None] - features[rows], axis=2).min(1).max())

    far = radius(choose_rows("diverse", labels, counts, features=features))
    drawn = [radius(choose_rows("stratified", labels, counts, seed=seed)) for seed in range(10)]
    assert far < min(drawn)


@settings(max_examples=count(60, 1_000), deadline=None)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=6).filter(any), st.integers(0, 100), st.floats(0.01, 100))
def test_every_class_is_represented_and_none_beyond_its_size(sizes: list[int], more: int, share: float) -> None:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    least = sum(size > 0 for size in sizes)
    asked = min(least + more, len(labels))
    for counts in (per_class(asked, labels, len(sizes)), per_class(f"{share:.4f}%", labels, len(sizes))):
        assert (counts <= np.array(sizes)).all()
        assert ((counts > 0) == (np.array(sizes) > 0)).all()
    assert per_class(asked, labels, len(sizes)).sum() == asked


def test_a_percentage_is_rounded_down_within_a_class_as_in_the_paper() -> None:
    mnist = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    labels = np.repeat(np.arange(10), mnist)
    assert [int(per_class(text, labels, 10).sum()) for text in ("10%", "30%", "100%")] == [5996, 17995, 60000]


@cases(
    ("asked", "words"),
    [
        ("0%", "above 0%"),
        ("101%", "at most 100%"),
        ("thirty", 'got "thirty"'),
        ("-5", 'got "-5"'),
        ("30 percent", "such as 30%"),
        ("21", "there are 20"),
        ("2", "leaves classes without one"),
        ("9" * 30, "such as 30%"),
    ],
)
def test_wishes_that_cannot_be_met_are_refused(asked: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        per_class(asked, LABELS, 4)


def test_bad_arrays_are_refused() -> None:
    with pytest.raises(UsageError, match='unknown selection "prototype"'):
        some("prototype")
    with pytest.raises(UsageError, match="needs margins"):
        choose_rows("boundary", LABELS, np.array([1]))
    with pytest.raises(UsageError, match="19 rows were given for 20"):
        choose_rows("diverse", LABELS, np.array([1]), features=np.zeros((19, 2)))
    with pytest.raises(NonFiniteError):
        choose_rows("diverse", LABELS, np.array([1]), features=np.full((20, 2), np.nan))
    with pytest.raises(UsageError, match="it has 2"):
        some("stratified", counts=(1, 1, 0, 3))


def test_a_quick_network_learns_classes_and_chooses_by_its_features() -> None:
    data = provnet.open_data("embedded", limit=60)
    run = quick_run(data)
    assert run.config.training["training"]["epochs"] == QUICK
    assert len(run.samples) == 10  # one a class: nothing is learned of indices
    chosen = index_subset(data, 20, "boundary", run=run)
    assert "a given run" in chosen.about["features"]
    seen = view_of(run, data)
    labels = data.samples.labels
    for label in range(10):
        mine = np.flatnonzero(labels == label)
        taken = np.isin(mine, chosen.rows)
        assert seen.margins[mine][taken].max() <= seen.margins[mine][~taken].min()
    assert (seen.margins >= 0).all()


def test_runs_that_cannot_serve_are_refused() -> None:
    data = provnet.open_data("embedded", limit=40)
    run = quick_run(data)
    with pytest.raises(UsageError, match="needs no run"):
        index_subset(data, "50%", run=run)
    with pytest.raises(DataError, match=r"takes samples of shape \(1, 28, 28\)"):
        index_subset(provnet.open_data("embedded", limit=40, size=14), "50%", "diverse", run=run)

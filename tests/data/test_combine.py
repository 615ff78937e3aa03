"""Data of several sources as one: a run finds its samples again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from provnet.data.dataset import DataSpec, ImageData
from provnet.data.select import combine, free_ids
from provnet.runs import bank
from tests.banked import BASE, LAST, MORE, RUNS, vectors
from tests.counts import count


@given(
    st.lists(st.sampled_from("abc"), unique=True), st.lists(st.sampled_from(["a", "b", "n/a", "n-2/a"]), unique=True)
)
def test_free_ids_are_free_and_change_only_where_they_must(wanted: list[str], taken: list[str]) -> None:
    found = free_ids(taken, wanted, "n")
    assert len({*found, *taken}) == len(found) + len(taken)
    assert [new for new, old in zip(found, wanted, strict=True) if old not in taken] == [
        w for w in wanted if w not in taken
    ]


@given(st.sets(st.integers(0, 20), min_size=1), st.permutations(range(3)), st.randoms())
@settings(deadline=None, max_examples=count(25, 500))
def test_a_run_finds_its_samples_in_several_sources(erased: set[int], order: list[int], random: Any) -> None:
    """Whatever was erased, and in whatever order the sources and their samples come now."""
    run = bank.add(bank.add(RUNS["single", "fp32"], replace(MORE, spec=DataSpec("more", "npz"))), LAST)
    samples = bank.erase(run, [run.samples.sample_ids[i] for i in erased]).samples if len(erased) < 21 else run.samples
    parts = [BASE, replace(MORE, spec=DataSpec("more", "npz")), LAST]
    found = combine(samples, [shuffled(parts[i], random) for i in order])
    assert found.missing == 0
    assert found.data.samples.sample_ids == samples.sample_ids
    assert found.data.samples.fingerprint == samples.fingerprint
    for part in (found.data, *found.parts):
        hashes = {row.tobytes(): image for row, image in zip(part.samples.sha256, part.images, strict=True)}
        for whole in parts:
            for row, image in zip(whole.samples.sha256, whole.images, strict=True):
                assert torch.equal(hashes.get(row.tobytes(), image), image)


def shuffled(data: ImageData, random: Any) -> ImageData:
    rows = list(range(len(data)))
    random.shuffle(rows)
    return data.select(np.array(rows))


def test_what_is_missing_and_what_changed_is_told() -> None:
    run = bank.add(RUNS["single", "fp32"], MORE)
    found = combine(run.samples, [BASE, MORE.select(np.array([0, 1]))])
    assert (found.missing, len(found.data)) == (3, 14)
    other = vectors(12, seed=9)
    found = combine(run.samples, [other, MORE])  # every name of the first source holds other content
    assert found.missing == 12
    assert found.data.samples.sample_ids == run.samples.sample_ids

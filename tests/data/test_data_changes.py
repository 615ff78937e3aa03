"""Random changes to a data set after training: never a wrong picture, never a wrong sample."""

from __future__ import annotations

import random
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from provnet import ImageData, SampleTable
from provnet.base.files import DataWarning
from provnet.data import evidence as evidence_module
from provnet.data.evidence import Evidence
from tests.counts import count, grows
from tests.data.changing import CHANGES, ChangingFolder

STEPS = 50


@pytest.fixture(autouse=True)
def empty_classes_are_fine() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        yield


class Changes(RuleBasedStateMachine):
    """Any sequence of changes; after each, what is shown is held against the record."""

    total = 0

    def __init__(self) -> None:
        super().__init__()
        self.place = tempfile.TemporaryDirectory()
        self.folder = ChangingFolder(Path(self.place.name))

    @rule(kind=st.sampled_from(CHANGES), seed=st.integers(0, 2**32))
    def change(self, kind: str, seed: int) -> None:
        Changes.total += 1
        self.folder.change(kind, random.Random(seed))

    @invariant()
    def nothing_wrong_is_shown(self) -> None:
        self.folder.check()

    def teardown(self) -> None:
        self.place.cleanup()


@grows
def test_no_change_leads_to_a_wrong_sample() -> None:
    wanted = count(200, 10_000)
    Changes.total = 0
    while Changes.total < wanted:  # hypothesis may draw shorter runs than it is allowed
        run_state_machine_as_test(
            Changes,
            settings=settings(
                max_examples=max(1, (wanted - Changes.total) // STEPS),
                stateful_step_count=STEPS,
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    assert Changes.total >= wanted


def by_position(samples: SampleTable, data: ImageData, root: Path | None, i: int) -> Evidence:
    """What a library without identities does: the i-th picture of now."""
    return Evidence(data.images[i, 0].numpy()) if i < len(data) else Evidence(None, "gone")


def by_hash_without_looking_again(samples: SampleTable, data: ImageData, root: Path | None, i: int) -> Evidence:
    """Looks up by hash, but does not read the file again when it is shown."""
    places = data.samples.places.get(samples.sha256[i].tobytes())
    return Evidence(data.images[places[0], 0].numpy()) if places else Evidence(None, "gone")


@pytest.mark.parametrize("guardless", [by_position, by_hash_without_looking_again])
def test_without_the_guard_the_check_fails(guardless: object, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(evidence_module, "_show", guardless)
    folder = ChangingFolder(tmp_path)
    dice = random.Random(0)
    folder.check()  # as long as nothing changes, both ways agree
    with pytest.raises(AssertionError, match=r"the picture of another is shown|its bytes are gone, yet"):
        for _ in range(200):
            folder.change(dice.choice(CHANGES), dice)
            folder.check()


@pytest.mark.parametrize("kind", CHANGES)
def test_each_change_alone(kind: str, tmp_path: Path) -> None:
    for seed in range(3):
        folder = ChangingFolder(tmp_path / str(seed))
        folder.change(kind, random.Random(seed))
        folder.check()

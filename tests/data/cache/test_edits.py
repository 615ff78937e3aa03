"""Every edit of a file is noticed: with the picture cache the sample table is the one without it."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from provnet.data import cache as hashcache
from provnet.data.dataset import DataSpec, ImageData
from provnet.data.evidence import CHANGED, evidence
from provnet.data.rules import DecodeRule
from tests.counts import count, grows
from tests.data.cache.made import aged, assert_equal, opened, restore, sneak
from tests.data.changing import CHANGES, ChangingFolder
from tests.data.made import encode, noise


def swap(root: Path) -> None:
    one, two = root / "a/1.png", root / "b/4.png"
    one.rename(root / "x")
    two.rename(one)
    (root / "x").rename(two)


def replace_file(root: Path) -> None:
    path, before = root / "a/1.png", (root / "a/1.png").stat()
    path.unlink()
    path.write_bytes(encode(noise((6, 5), 99)))
    restore(path, before)


def edit_in_place(root: Path) -> None:
    path, before = root / "a/1.png", (root / "a/1.png").stat()
    path.write_bytes(encode(noise((6, 5), 98)))
    restore(path, before)


def point_elsewhere(root: Path) -> None:
    (root / "a/1.png").unlink()
    (root / "a/1.png").symlink_to(root / "b/4.png")


EDITS: dict[str, Callable[[Path], object]] = {
    "same size and time": lambda root: sneak(root / "a/1.png"),
    "another file under the name": replace_file,
    "edited, time restored": edit_in_place,
    "two swapped": swap,
    "renamed": lambda root: (root / "a/1.png").rename(root / "b/9.png"),
    "deleted": lambda root: (root / "a/1.png").unlink(),
    "a link instead": point_elsewhere,
    "touched": lambda root: os.utime(root / "a/1.png", (1, 1)),
}


@pytest.mark.usefixtures("old_enough")
@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS.keys())
def test_every_edit_is_noticed(edit: Callable[[Path], object], root: Path, kept: Path) -> None:
    (root / "a/1.png").write_bytes(encode(noise((6, 5), 50), compress_level=0))  # stored, so that it can keep its size
    aged(root)
    before = opened(root, kept)
    edit(root)
    aged(root)
    now = opened(root, None)
    for _ in range(2):  # once from files, once from what the first time kept
        assert_equal(opened(root, kept), now)
    same = before.samples.fingerprint == now.samples.fingerprint
    assert same is (edit is EDITS["touched"])


@pytest.mark.usefixtures("old_enough")
def test_without_the_time_of_change_an_edit_would_go_unnoticed(
    root: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above can fail, and even then no wrong picture is shown as evidence."""
    real = hashcache.stamp_of
    monkeypatch.setattr(hashcache, "stamp_of", lambda found: (*real(found)[:2], 0, *real(found)[3:]))
    path = root / "a/1.png"
    path.write_bytes(encode(noise((6, 5), 50), compress_level=0))
    aged(root)
    then = opened(root, kept).samples
    sneak(path)
    aged(root)
    stale = opened(root, kept)
    assert stale.samples.fingerprint == then.fingerprint != opened(root, None).samples.fingerprint
    data = ImageData(stale.images, stale.samples, DataSpec(str(root), "folder"))
    shown = evidence(then, data, range(len(then)))
    assert [found.note for found in shown] == [CHANGED, "", "", "", ""]


class Changes(RuleBasedStateMachine):
    """Any sequence of changes; after each, an opening with the cache equals one without."""

    total = hits = 0

    def __init__(self) -> None:
        super().__init__()
        self.place = tempfile.TemporaryDirectory()
        self.folder = ChangingFolder(Path(self.place.name))
        self.cache = Path(self.place.name) / "cache"

    @rule(kind=st.sampled_from((*CHANGES, "sneak", "exchange")), seed=st.integers(0, 2**32))
    def change(self, kind: str, seed: int) -> None:
        Changes.total += 1
        paths = self.folder.files()
        if kind == "sneak" and paths:
            path = random.Random(seed).choice(paths)
            before = path.stat()
            path.write_bytes(encode(noise((5, 4), seed)))
            restore(path, before)
        elif kind == "exchange" and len(paths) > 1:
            one, two = random.Random(seed).sample(paths, 2)
            one.rename(self.folder.place / "x")
            two.rename(one)
            (self.folder.place / "x").rename(two)
        else:
            self.folder.change(kind if kind in CHANGES else "add", random.Random(seed))

    @invariant()
    def the_cache_changes_nothing(self) -> None:
        aged(self.folder.root)
        for _ in range(2):
            cache = hashcache.open_cache(str(self.cache), self.folder.root, DecodeRule())
            assert cache is not None
            known = [(path.relative_to(self.folder.root).as_posix(), path) for path in self.folder.files()]
            Changes.hits += sum(found is not None for found in cache.find(known))
            assert_equal(opened(self.folder.root, self.cache), opened(self.folder.root, None))

    def teardown(self) -> None:
        self.place.cleanup()


@grows
@pytest.mark.usefixtures("old_enough", "empty_classes_are_fine")
def test_no_change_makes_the_cache_lie() -> None:
    wanted = count(60, 5_000)
    Changes.total = Changes.hits = 0
    while Changes.total < wanted:
        run_state_machine_as_test(
            Changes,
            settings=settings(
                max_examples=max(1, (wanted - Changes.total) // 20),
                stateful_step_count=20,
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    assert Changes.hits > 5 * wanted  # most pictures did come out of the cache

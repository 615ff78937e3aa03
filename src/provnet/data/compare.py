"""Compare the data of training time with the data of now: what is the same, moved, edited, gone.

Samples are matched by hash, never by position: a name alone says nothing about the content behind it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from provnet.data.files import shown
from provnet.data.identity import SampleTable


@dataclass(frozen=True, eq=False)
class Comparison:
    """What became of each sample.

    Attributes:
        verdict: `same`, `re-ordered` (the same samples in another order), `moved` (files renamed or swapped), `edited`
            (anything changed, gone or added), `other` (another data set: most samples are not found).
        positions: (N,) int64, where each sample of then is now; -1 where its content is gone.
        status: for each sample `same`, `moved` (same bytes under another name), `re-encoded` (same picture, other bytes),
            `edited` (its name now holds something else), `relabelled` (same bytes, another class) or `missing`.
        added: how many samples of now are not among those of then.
        then: the table of training time.
        now: the table of now.
    """

    verdict: str
    positions: np.ndarray
    status: tuple[str, ...]
    added: int
    then: SampleTable
    now: SampleTable

    def lines(self) -> list[str]:
        """Facts for people, one a line; each kind of change names its first samples."""
        found = [f"{_WORDS[self.verdict]}: {len(self.then):,} samples at training, {len(self.now):,} now"]
        counts = Counter(self.status)
        for status, words in _FACTS.items():
            if counts[status]:
                first = [shown(self.then.sample_ids[i]) for i, s in enumerate(self.status) if s == status][:3]
                more = ", ..." if counts[status] > 3 else ""
                found.append(f"{counts[status]:,} {words}: {', '.join(first)}{more}")
        if self.added:
            found.append(f"{self.added:,} added since training")
        return found


def compare(then: SampleTable, now: SampleTable) -> Comparison:
    """Find every sample of then among those of now.

    Equal hashes are one content: of several the one with the same name is taken, then one of the same class that
    no other sample took, then any.

    >>> import provnet
    >>> table = provnet.open_data("embedded", limit=30).samples
    >>> compare(table, table.select(np.arange(30)[::-1])).verdict
    're-ordered'
    """
    by_id = {name: i for i, name in enumerate(now.sample_ids)}
    raw = _Places(now.sha256, now)
    pixels = _Places(now.pixel_sha256, now)
    positions = np.full(len(then), -1, dtype=np.int64)
    status = ["missing"] * len(then)
    order = [_same_place(then, now, by_id, i) for i in range(len(then))]
    for i in sorted(range(len(then)), key=lambda i: order[i] is None):  # those that stayed claim their places first
        name = then.class_names[then.labels[i]]
        place = order[i] if order[i] is not None else raw.take(then.sha256[i], name)
        if place is not None:
            raw.claim(place)
            positions[i] = place
            relabelled = now.class_names[now.labels[place]] != name
            status[i] = "relabelled" if relabelled else "same" if order[i] is not None else "moved"
    for i in np.flatnonzero(positions < 0):
        here = by_id.get(then.sample_ids[i])
        if here is not None and (now.pixel_sha256[here] == then.pixel_sha256[i]).all():
            place = here
        else:
            place = pixels.take(then.pixel_sha256[i], then.class_names[then.labels[i]], raw.claimed)
        if place is not None:
            raw.claim(place)
            positions[i], status[i] = place, "re-encoded"
        elif here is not None:
            status[i] = "edited"
    return _conclude(positions, status, raw.claimed, then, now)


def _conclude(
    positions: np.ndarray, status: list[str], claimed: set[int], then: SampleTable, now: SampleTable
) -> Comparison:
    kinds = set(status)
    replaced = {then.sample_ids[i] for i, s in enumerate(status) if s == "edited"}
    fresh = [j for j in range(len(now)) if j not in claimed]
    known = {row.tobytes() for row in then.sha256}
    fresh = [j for j in fresh if now.sample_ids[j] not in replaced and now.sha256[j].tobytes() not in known]
    extra = len(now) - len(claimed)  # copies of a known sample count as a change, though not as new content
    found = int((positions >= 0).sum())
    in_place = len(then) == len(now) and bool((positions == np.arange(len(then))).all())
    if found * 2 < len(then) and len(claimed) * 2 < len(now):
        verdict = "other"
    elif extra or kinds - {"same", "moved"}:
        verdict = "edited"
    elif kinds <= {"same"}:
        verdict = "same" if in_place else "re-ordered"
    else:
        has_files = any(then.paths[i] is not None for i, s in enumerate(status) if s == "moved")
        verdict = "moved" if has_files else "re-ordered"  # a sample without a file is named by its position
    return Comparison(verdict, positions, tuple(status), len(fresh), then, now)


def _same_place(then: SampleTable, now: SampleTable, by_id: dict[str, int], i: int) -> int | None:
    """The position of the sample of the same name, if its content is the same."""
    place = by_id.get(then.sample_ids[i])
    return place if place is not None and bool((now.sha256[place] == then.sha256[i]).all()) else None


class _Places:
    """Where each content lies now, and which places are taken."""

    def __init__(self, hashes: np.ndarray, now: SampleTable) -> None:
        self.now = now
        self.claimed: set[int] = set()
        self.by_hash: dict[bytes, list[int]] = {}
        for j, row in enumerate(hashes):
            self.by_hash.setdefault(row.tobytes(), []).append(j)

    def claim(self, place: int) -> None:
        self.claimed.add(place)

    def take(self, digest: np.ndarray, class_name: str, taken: set[int] | None = None) -> int | None:
        """A place with that content: free ones of the class first, then free ones, then any of the class, then any."""
        used = self.claimed if taken is None else taken
        places = self.by_hash.get(digest.tobytes(), [])
        return min(
            places, key=lambda j: (j in used, self.now.class_names[self.now.labels[j]] != class_name, j), default=None
        )


_WORDS = {
    "same": "the same data",
    "re-ordered": "the same samples in another order",
    "moved": "the same samples under other names",
    "edited": "the data changed since training",
    "other": "another data set",
}
_FACTS = {
    "moved": "moved or renamed",
    "relabelled": "carry another label",
    "re-encoded": "are the same picture, re-encoded",
    "edited": "edited (the name holds other content now)",
    "missing": "missing",
}

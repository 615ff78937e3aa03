"""Compare the data of training time with the data of now: what is the same, moved, edited, gone.

Samples are matched by hash, never by position: a name alone says nothing about the content behind it. Equal bytes
alone are not enough either: other options (background, mode, size, frame) make another picture of them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from provnet.base.files import shown
from provnet.data.dataset import DECODING, DataSpec
from provnet.data.rules import OpenOptions
from provnet.samples.identity import SampleTable


@dataclass(frozen=True, eq=False)
class Comparison:
    """What became of each sample.

    Attributes:
        verdict: `same`, `re-ordered` (the same samples in another order), `moved` (files renamed or swapped), `decoded
            differently` (the same bytes, opened to other pictures), `edited` (anything changed, gone or added), `other`
            (another data set: most samples are not found).
        positions: (N,) int64, where the picture of each sample of then is now; -1 where it is gone.
        nearest: (N,) int64, positions where the picture is there; else where its bytes are, decoded differently; else
            where its name is; -1 where there is none of these.
        status: for each sample `same`, `moved` (same bytes under another name), `re-encoded` (same picture, other
            bytes), `decoded differently` (same bytes, another picture), `edited` (its name now holds other content),
            `relabelled` (same bytes, another class), `missing`.
        added: how many samples of now are not among those of then.
        then: the table of training time.
        now: the table of now.
        erased: how many samples were erased from the run since, and are in neither.
        advice: how to open the data, where some are decoded differently (`decoding_advice`).
        views: whether the samples of then are named by what a network sees of them, not by whole pictures.
    """

    verdict: str
    positions: np.ndarray
    nearest: np.ndarray
    status: tuple[str, ...]
    added: int
    then: SampleTable
    now: SampleTable
    erased: int = 0
    advice: str = ""
    views: bool = False

    @property
    def holds(self) -> bool:
        """Whether every picture of then is still there under its class, and no other is."""
        return self.verdict in ("same", "re-ordered", "moved")

    def lines(self) -> list[str]:
        """Facts for people, one a line; each kind of change names its first samples."""
        where = "in the run" if self.then.added.any() or self.erased else "at training"
        gone = f"; {self.erased:,} erased from the run since training" if self.erased else ""
        found = [f"{_WORDS[self.verdict]}: {len(self.then):,} samples {where}, {len(self.now):,} now{gone}"]
        counts = Counter(self.status)
        for status, words in _FACTS.items():
            if counts[status]:
                first = [shown(self.then.sample_ids[i]) for i, s in enumerate(self.status) if s == status][:3]
                more = ", ..." if counts[status] > 3 else ""
                words = VIEWS if self.views and status == "re-encoded" else words
                found.append(f"{counts[status]:,} {words}: {', '.join(first)}{more}")
        if self.added:
            found.append(f"{self.added:,} added since training")
        if counts[DECODED] and self.advice:
            found.append(self.advice)
        return found


def compare(then: SampleTable, now: SampleTable) -> Comparison:
    """Find every sample of then among those of now.

    Equal hashes, of bytes and picture, are one content: of several the one with the same name and class is taken, then
    one of the same class that no other sample took, then the one with the same name, then one that no other sample
    took, then any.

    >>> import provnet
    >>> table = provnet.open_data("embedded", limit=30).samples
    >>> compare(table, table.select(np.arange(30)[::-1])).verdict
    're-ordered'
    """
    whole, pixels, raw = _Places(_hash_pairs(now), now), _Places(now.pixel_sha256, now), _Places(now.sha256, now)
    names = then.label_names
    digests = [row.tobytes() for row in _hash_pairs(then)]
    here = [now.id_places.get(name) for name in then.sample_ids]
    kept = [place if place is not None and whole.digests[place] == digests[i] else None for i, place in enumerate(here)]
    stayed = [place is not None and whole.names[place] == names[i] for i, place in enumerate(kept)]
    positions = np.full(len(then), -1, dtype=np.int64)
    status = ["missing"] * len(then)
    taken: set[int] = set()

    def take(i: int, place: int) -> None:
        taken.add(place)
        positions[i] = place
        status[i] = "relabelled" if whole.names[place] != names[i] else "same" if stayed[i] else "moved"

    for i, place in enumerate(kept):  # those that stayed claim their places first
        if stayed[i] and place is not None:
            take(i, place)
    late = []
    for i in (i for i in range(len(then)) if not stayed[i]):
        place = whole.find(digests[i], names[i], taken)
        if place is not None and place not in taken and whole.names[place] == names[i]:
            take(i, place)
        elif place is not None:
            late.append(i)
    for i in late:  # no place of its class is free: relabelled, under its own name if nobody took that
        own = kept[i]
        place = own if own is not None and own not in taken else whole.find(digests[i], names[i], taken)
        assert place is not None, "it was found before"
        take(i, place)
    nearest = np.array([-1 if place is None else place for place in here], dtype=np.int64)
    for i in np.flatnonzero(positions < 0).tolist():
        place = pixels.at(here[i], then.pixel_sha256[i].tobytes(), names[i], taken)
        if place is not None:
            positions[i], status[i] = place, "re-encoded"
        elif (place := raw.at(here[i], then.sha256[i].tobytes(), names[i], taken)) is not None:
            nearest[i], status[i] = place, DECODED
        elif here[i] is not None:
            status[i] = "edited"
        if place is not None:
            taken.add(place)
    nearest = np.where(positions >= 0, positions, nearest)
    return _conclude(positions, nearest, status, taken, then, now)


def decoding_advice(then: DataSpec | None, now: DataSpec) -> str:
    """What to do where data are decoded differently, in words: how they were opened at training, and are now.

    >>> decoding_advice(DataSpec("pets", "folder", options={"size": [8, 8]}), DataSpec("pets", "folder"))
    'open them as at training, with size=(8, 8) instead of size=None'
    """
    if then is None:
        return f"open them as at training ({', '.join(DECODING)})"
    changed = other_options(then, now)
    if not changed:
        return "the options are those of training: another version of the decoder (Pillow) reads the files differently"
    return f"open them as at training, with {changed}"


def other_options(then: DataSpec, now: DataSpec) -> str:
    """How the options of decoding differ between two openings, in words; empty where they do not.

    >>> other_options(DataSpec("pets", "folder"), DataSpec("pets", "folder", options={"mode": "grey", "limit": 9}))
    "mode=None instead of mode='grey'"
    """
    pairs = [(name, *(_option(spec, name) for spec in (then, now))) for name in DECODING]
    changed = [(f"{name}={old!r}", f"{name}={new!r}") for name, old, new in pairs if old != new]
    return " instead of ".join(", ".join(side) for side in zip(*changed, strict=True))


def _option(spec: DataSpec, name: str) -> object:
    value = spec.options.get(name, getattr(OpenOptions, name))
    return tuple(value) if isinstance(value, list) else value


def _hash_pairs(table: SampleTable) -> np.ndarray:
    return np.concatenate([table.sha256, table.pixel_sha256], axis=1)


def find_held(then: SampleTable, now: SampleTable) -> np.ndarray:
    """Rising positions of the samples of then in a table that may hold more; a name counts where content is gone.

    >>> import provnet
    >>> table = provnet.open_data("embedded", limit=30).samples
    >>> find_held(table.select(np.array([4, 9])), table).tolist()
    [4, 9]
    """
    rows = np.unique(compare(then, now).nearest)
    return np.asarray(rows[rows >= 0])


def _conclude(
    positions: np.ndarray,
    nearest: np.ndarray,
    status: list[str],
    taken: set[int],
    then: SampleTable,
    now: SampleTable,
) -> Comparison:
    kinds = set(status)
    edited = {then.sample_ids[i] for i, s in enumerate(status) if s == "edited"}
    added = sum(now.sample_ids[j] not in edited for j in range(len(now)) if j not in taken)
    in_place = len(then) == len(now) and bool((positions == np.arange(len(then))).all())
    found = sum(s not in ("edited", "missing") for s in status)
    if found * 2 < len(then) and len(taken) * 2 < len(now):
        verdict = "other"
    elif len(then) != len(now) or added or kinds - {"same", "moved", DECODED}:
        verdict = "edited"
    elif DECODED in kinds:
        verdict = DECODED
    elif kinds <= {"same"}:
        verdict = "same" if in_place else "re-ordered"
    else:
        has_files = any(then.paths[i] is not None for i, s in enumerate(status) if s == "moved")
        verdict = "moved" if has_files else "re-ordered"  # a sample without a file is named by its position
    return Comparison(verdict, positions, nearest, tuple(status), added, then, now)


class _Places:
    """Where each content lies now."""

    def __init__(self, hashes: np.ndarray, now: SampleTable) -> None:
        self.names = now.label_names
        self.digests = [row.tobytes() for row in hashes]
        self.by_hash: dict[bytes, list[int]] = {}
        for j, digest in enumerate(self.digests):
            self.by_hash.setdefault(digest, []).append(j)

    def find(self, digest: bytes, class_name: str, taken: set[int]) -> int | None:
        """A place with that content: one that nobody took before one that somebody did, then one of the class."""
        places = self.by_hash.get(digest, [])
        return min(places, key=lambda j: (j in taken, self.names[j] != class_name, j), default=None)

    def at(self, own: int | None, digest: bytes, class_name: str, taken: set[int]) -> int | None:
        """Its own place where that has the content, else another that has it."""
        return own if own is not None and self.digests[own] == digest else self.find(digest, class_name, taken)


DECODED = "decoded differently"
VIEWS = "are other files that look the same to the network (the rest of the picture may differ)"
_WORDS = {
    "same": "the same data",
    "re-ordered": "the same samples in another order",
    "moved": "the same samples under other names",
    DECODED: "the same files, decoded to other pictures than at training",
    "edited": "the data changed since training",
    "other": "another data set",
}
_FACTS = {
    "moved": "moved or renamed",
    "relabelled": "carry another label",
    "re-encoded": "are the same picture to the pixel, in another file",
    DECODED: "have the bytes of training time, but are decoded to another picture",
    "edited": "edited (the name holds other content now)",
    "missing": "missing",
}

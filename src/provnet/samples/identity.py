"""SampleTable: what names a training sample to people and files.

A position in an array says nothing once the data move. A sample is named by its `sample_id` together
with the SHA-256 of its raw content; both are frozen in the run at training time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from provnet.base.batches import is_column
from provnet.base.errors import DataError, UsageError
from provnet.base.files import brief, shown


@dataclass(frozen=True, eq=False)
class Groups:
    """A grouping of samples: the names of all groups, empty ones included, and (N,) int64, that of each sample."""

    names: tuple[str, ...]
    of: np.ndarray

    def __post_init__(self) -> None:
        if self.of.shape != (len(self.of),) or self.of.dtype != np.int64:
            raise DataError(f"labels must be int64 of shape (N,), got {self.of.dtype} {self.of.shape}")
        if len(self.of) and not 0 <= int(self.of.min()) <= int(self.of.max()) < len(self.names):
            raise DataError(f"labels must lie in 0..{len(self.names) - 1}, the classes that have a name")
        refuse_nul("class names", self.names)
        for name in self.names:
            try:
                name.encode("utf-8", "surrogateescape")
            except UnicodeEncodeError:
                raise DataError(f"class name {name!a} is not valid text, half a character; rename the class") from None
        object.__setattr__(self, "of", _read_only(self.of))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Groups) and self.names == other.names and np.array_equal(self.of, other.of)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, eq=False, init=False)
class SampleTable:
    """One row per sample, in the order of the data set. Its arrays are read-only; `dataclasses.replace` changes them.

    Labels are one grouping of the samples, which may be absent: give `labels` and `class_names`, or a `grouping`.

    Attributes:
        sample_ids: unique names, valid UTF-8: the id given (column `id` of a manifest, `ids` of arrays, Datasets and
            .npz files), else the relative path, else `split/position`.
        sha256: (N, 32) uint8, hash of the raw content (file bytes; for array formats the sample's own bytes).
        pixel_sha256: (N, 32) uint8, hash of the sample as the network receives it, shape included.
        paths: relative path of the file, posix form, or None where a sample has no file of its own.
        sources: who contributed the sample (column `source` of a manifest, `sources` of arrays, Datasets and .npz
            files), or None.
        grouping: the classes, or None where the samples have no labels.
        withheld: (N,) bool, samples that explanations must not name; None means none.
        added: (N,) bool, samples that were added after training (`provnet.runs.bank`); None means none.
    """

    sample_ids: tuple[str, ...]
    sha256: np.ndarray
    pixel_sha256: np.ndarray
    paths: tuple[str | None, ...]
    sources: tuple[str | None, ...]
    grouping: Groups | None
    withheld: np.ndarray
    added: np.ndarray

    def __init__(
        self,
        sample_ids: tuple[str, ...],
        sha256: np.ndarray,
        pixel_sha256: np.ndarray,
        labels: np.ndarray | None = None,
        class_names: tuple[str, ...] | None = None,
        paths: tuple[str | None, ...] | None = None,
        sources: tuple[str | None, ...] | None = None,
        withheld: np.ndarray | None = None,
        added: np.ndarray | None = None,
        *,
        grouping: Groups | None = None,
    ) -> None:
        n = len(sample_ids)
        for name, value in (("sha256", sha256), ("pixel_sha256", pixel_sha256)):
            if value.shape != (n, 32) or value.dtype != np.uint8:
                raise DataError(f"{name} must be uint8 of shape ({n}, 32), got {value.dtype} of shape {value.shape}")
        if labels is not None or class_names is not None:
            of = grouping.of if labels is None and grouping is not None else labels
            names = grouping.names if class_names is None and grouping is not None else class_names
            if of is None or names is None:
                raise DataError("labels and class_names belong together; give both, or neither")
            grouping = Groups(names, of)
        if grouping is not None and len(grouping.of) != n:
            raise DataError(f"labels must be int64 of shape ({n},), got {grouping.of.dtype} {grouping.of.shape}")
        paths, sources = ((None,) * n if given is None else given for given in (paths, sources))
        refuse_nul("sample ids", sample_ids)
        refuse_nul("sources", sources)
        if len(paths) != n or len(sources) != n:
            raise DataError(f"paths and sources must have {n} entries, got {len(paths)} and {len(sources)}")
        flags = [np.zeros(n, dtype=np.bool_) if given is None else given for given in (withheld, added)]
        for name, value in zip(FLAGS, flags, strict=True):
            if value.shape != (n,) or value.dtype != np.bool_:
                raise DataError(f"{name} must be bool of shape ({n},), got {value.dtype} of shape {value.shape}")
        hashes = (_read_only(value, copied=False) for value in (sha256, pixel_sha256))  # a run and its data share them
        given = (sample_ids, *hashes, paths, sources, grouping, *map(_read_only, flags))
        for one, content in zip(fields(self), given, strict=True):
            object.__setattr__(self, one.name, content)
        if len(set(sample_ids)) != n:
            seen: set[str] = set()
            twice = next(i for i in sample_ids if i in seen or seen.add(i))  # type: ignore[func-returns-value]
            raise DataError(f'sample ids must be unique, "{twice}" occurs more than once')

    def __repr__(self) -> str:
        """One line, whatever the number of samples."""
        classes = "no labels" if self.grouping is None else f"{len(self.class_names)} classes"
        apart = "".join(f", {int(getattr(self, name).sum()):,} {name}" for name in FLAGS if getattr(self, name).any())
        return f"SampleTable({len(self.sample_ids):,} samples, {classes}{apart})"

    @property
    def labels(self) -> np.ndarray:
        """(N,) int64, position in `class_names`; an error for samples without labels."""
        if self.grouping is None:
            raise UsageError("these samples have no labels; give them when the data are opened: open_data(x, labels)")
        return self.grouping.of

    @property
    def class_names(self) -> tuple[str, ...]:
        """One name per class, empty classes included; none where there are no labels."""
        return () if self.grouping is None else self.grouping.names

    @property
    def label_names(self) -> tuple[str, ...]:
        """The name of the class of each sample; empty texts where there are no labels."""
        return tuple(self.label_name(i) for i in range(len(self)))

    def label_name(self, index: int) -> str:
        """The name of one sample's class; an empty text where there are no labels."""
        return "" if self.grouping is None else self.grouping.names[int(self.grouping.of[index])]

    def __len__(self) -> int:
        return len(self.sample_ids)

    def hex(self, index: int) -> str:
        """SHA-256 of one sample's raw content as 64 hexadecimal digits."""
        return bytes(self.sha256[index].tobytes()).hex()

    @cached_property
    def fingerprint(self) -> str:
        """Ordered fingerprint of the whole: contents, decoded pictures, labels and class names, in this order."""
        digest = hashlib.sha256()
        labels = [] if self.grouping is None else [self.labels.astype("<i8")]
        for part in (self.sha256, self.pixel_sha256, *labels):
            digest.update(np.ascontiguousarray(part).tobytes())
        for name in self.class_names:
            raw = name.encode("utf-8", "surrogateescape")
            digest.update(len(raw).to_bytes(8, "little") + raw)
        return digest.hexdigest()

    @cached_property
    def content_root(self) -> str:
        """Fingerprint of the contents alone, whatever their order, names and labels."""
        rows = sorted(row.tobytes() for row in self.sha256)
        return hashlib.sha256(b"".join(rows)).hexdigest()

    @cached_property
    def groups(self) -> np.ndarray:
        """(N,) int64: samples whose decoded pictures are equal share a group number (exact duplicates)."""
        rows = np.ascontiguousarray(self.pixel_sha256).view("V32").ravel()
        _, inverse = np.unique(rows, return_inverse=True)
        return np.asarray(inverse, dtype=np.int64).reshape(-1)

    @cached_property
    def _duplicates(self) -> dict[int, tuple[int, ...]]:
        """The members of each group that has more than one, by its number."""
        order = np.argsort(self.groups, kind="stable")
        parts = np.split(order, np.flatnonzero(np.diff(self.groups[order])) + 1) if len(self) else []
        return {int(self.groups[part[0]]): tuple(part.tolist()) for part in parts if len(part) > 1}

    def equal(self, index: int) -> tuple[int, ...]:
        """The samples whose decoded pictures are equal to that of one, itself among them."""
        return self._duplicates.get(int(self.groups[index]), (index,))

    @cached_property
    def places(self) -> dict[bytes, tuple[int, ...]]:
        """Positions of each raw content, by its hash."""
        found: dict[bytes, list[int]] = {}
        for i, row in enumerate(self.sha256):
            found.setdefault(row.tobytes(), []).append(i)
        return {digest: tuple(where) for digest, where in found.items()}

    @cached_property
    def id_places(self) -> dict[str, int]:
        """The position of each sample id."""
        return {name: i for i, name in enumerate(self.sample_ids)}

    @property
    def index_ceiling(self) -> float:
        """The highest exact index accuracy possible: equal pictures cannot be told apart."""
        return len(np.unique(self.groups)) / len(self) if len(self) else 0.0

    def conflicts(self) -> list[tuple[int, ...]]:
        """Groups of equal pictures that carry different labels, as tuples of indices."""
        if self.grouping is None:
            return []
        return [m for m in self._duplicates.values() if len(np.unique(self.labels[list(m)])) > 1]

    def select(self, indices: ArrayLike) -> SampleTable:
        """The table of some samples, in the order given, or of those that a bool mask marks."""
        rows = chosen_rows(indices, len(self))
        return SampleTable(
            sample_ids=tuple(self.sample_ids[i] for i in rows),
            sha256=self.sha256[rows],
            pixel_sha256=self.pixel_sha256[rows],
            grouping=None if self.grouping is None else Groups(self.class_names, self.labels[rows]),
            paths=tuple(self.paths[i] for i in rows),
            sources=tuple(self.sources[i] for i in rows),
            withheld=self.withheld[rows],
            added=self.added[rows],
        )


def _read_only(values: np.ndarray, copied: bool = True) -> np.ndarray:
    """What cannot be written to: a copy of values that somebody may still write to, else a view."""
    own = values.copy() if copied and values.flags.writeable else values.view()
    own.flags.writeable = False
    return own


def refuse_nul(what: str, names: Iterable[str | None]) -> None:
    r"""Refuse names with a NUL character: numpy drops it at the end, and two names would become one.

    >>> refuse_nul("labels", ["a", "a\0"])  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    DataError: labels must not hold a NUL character, got 'a\x00'; remove it
    """
    for name in names:
        if name is not None and "\0" in name:
            raise DataError(f"{what} must not hold a NUL character, got {name!a:.80}; remove it")


def chosen_rows(indices: ArrayLike, n: int) -> np.ndarray:
    """Positions among n samples as int64: whole numbers as they are, or those where a bool mask is true.

    >>> chosen_rows([True, False, True], 3).tolist(), chosen_rows([2, 0], 3).tolist()
    ([0, 2], [2, 0])
    """
    given = np.asarray(indices)
    if given.dtype == np.bool_:
        if given.shape != (n,):
            raise UsageError(f"a bool mask must have one value per sample, {n:,}; got shape {given.shape}")
        return np.flatnonzero(given)
    if not is_column(given) or (given.size and given.dtype.kind not in "iu"):
        raise UsageError(
            f"samples are selected by positions, whole numbers, or by a bool mask of length {n:,}; "
            f"got {given.dtype} of shape {given.shape}"
        )
    if given.size and not 0 <= int(given.min()) <= int(given.max()) < n:
        reach = f"{int(given.min())}..{int(given.max())}"
        raise UsageError(f"positions must lie in 0..{n - 1}, -1 stands for no sample; got {reach}")
    return given.astype(np.int64)


FLAGS = ("withheld", "added")  # they say what becomes of a sample, not what it is: no fingerprint covers them


def hash_bytes(blob: bytes) -> np.ndarray:
    """SHA-256 of one file's bytes, as (32,) uint8.

    >>> hash_bytes(b"")[:2].tolist()
    [227, 176]
    """
    return np.frombuffer(hashlib.sha256(blob).digest(), dtype=np.uint8)


def hash_rows(rows: np.ndarray, prefix: bytes = b"") -> np.ndarray:
    """SHA-256 of each row's bytes (C order, little-endian), as (N, 32) uint8.

    >>> bool((hash_rows(np.zeros((1, 3), np.uint8))[0] == hash_bytes(bytes(3))).all())
    True
    """
    little = rows.astype(rows.dtype.newbyteorder("<"), copy=False)
    flat = np.ascontiguousarray(little).reshape(-1).view(np.uint8)
    count = len(rows)
    width = len(flat) // count if count else 0
    view = flat.data
    start = hashlib.sha256(prefix)
    out = bytearray()
    for offset in range(0, count * width, width) if width else [0] * count:
        digest = start.copy()
        digest.update(view[offset : offset + width])
        out += digest.digest()
    return np.frombuffer(bytes(out), dtype=np.uint8).reshape(count, 32)


def hash_pixels(images: np.ndarray) -> np.ndarray:
    """SHA-256 of each picture as the network receives it, (N, C, H, W) or (N, F); type and shape count too.

    >>> a, b = np.zeros((1, 1, 2, 3), np.uint8), np.zeros((1, 1, 3, 2), np.uint8)
    >>> bool((hash_pixels(a) == hash_pixels(b)).all())
    False
    """
    return hash_rows(images, pixel_header(images.dtype, images.shape[1:]))


def pixel_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """What stands before the values of a sample where it is hashed: their type and shape."""
    return f"{dtype.name} {'x'.join(map(str, shape))}\n".encode("ascii")


LISTED = 10  # of equal samples: data may hold one picture thousands of times


@dataclass(frozen=True)
class Exemplar:
    """A training sample offered as explanation.

    Attributes:
        weight: its share of the explanation, 0..1, or how much the answer depends on it; equal samples have the same.
        duplicates: ids of other samples that are the same picture, pixel by pixel, ten at most.
        duplicate_count: how many there are. Withheld ones are neither named nor counted.
        interval: 95 % interval of a weight by influence; None of shares, and where there is no more than one snapshot.
    """

    sample_id: str
    sha256: str
    index: int
    label: str
    weight: float
    path: str | None
    duplicates: tuple[str, ...] = ()
    duplicate_count: int = 0
    interval: tuple[float, float] | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values; an interval only where there is one."""
        plain = {**vars(self), "duplicates": list(self.duplicates)}
        return {name: value for name, value in plain.items() if name != "interval" or value is not None}


def named(samples: SampleTable, index: int, weight: float) -> Exemplar:
    """The sample at a position of the table.

    >>> import provnet
    >>> named(provnet.open_data("embedded").samples, 3, 0.5).duplicates
    ()
    """
    others = [i for i in samples.equal(index) if i != index and not samples.withheld[i]]
    return Exemplar(
        sample_id=samples.sample_ids[index],
        sha256=samples.hex(index),
        index=index,
        label=samples.label_name(index),
        weight=weight,
        path=samples.paths[index],
        duplicates=tuple(samples.sample_ids[i] for i in others[:LISTED]),
        duplicate_count=len(others),
    )


def duplicate_words(sample: Exemplar, most: int = 3) -> str:
    """What a page says about equal samples; "" where there are none.

    >>> duplicate_words(Exemplar("a", "", 0, "7", 0.5, None, ("b", "c"), 2), most=1)
    'same picture as b and 1 more'
    """
    if not sample.duplicate_count:
        return ""
    ids = sample.duplicates[:most]
    more = sample.duplicate_count - len(ids)
    return f"same picture as {', '.join(map(shown, ids))}" + (f" and {more:,} more" if more else "")


def duplicate_facts(samples: SampleTable) -> list[str]:
    """One line each about groups of equal pictures, the ceiling they impose, and groups with different labels.

    >>> import provnet
    >>> duplicate_facts(provnet.open_data("embedded").samples)
    []
    """
    counts = np.bincount(samples.groups)
    groups = int((counts > 1).sum())
    if not groups:
        return []
    many = "1 group" if groups == 1 else f"{groups:,} groups"
    lines = [
        f"{many} of exact duplicates, {int(counts[counts > 1].sum()):,} of {len(samples):,} samples",
        f"exact index accuracy can reach at most {samples.index_ceiling:.4f}: equal pictures cannot be told apart",
    ]
    conflicts = samples.conflicts()
    if conflicts:
        one_of_each = {samples.labels[i]: i for i in reversed(conflicts[0])}  # reversed: the first sample of a label
        first = ", ".join(
            f"{shown(samples.sample_ids[i])} ({brief(samples.class_names[samples.labels[i]])})"
            for i in sorted(one_of_each.values())[:3]
        )
        many = "group of equal pictures carries" if len(conflicts) == 1 else "groups of equal pictures carry"
        lines.append(f"{len(conflicts):,} {many} different labels; the first: {first}")
    return lines

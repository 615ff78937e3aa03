"""Hold some samples out for testing: a pure function of their contents, whatever their order and names."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from provnet.base.errors import UsageError
from provnet.base.files import brief, clean_text
from provnet.data.compare import compare
from provnet.data.dataset import Dataset, DataSpec, concatenate_originals
from provnet.data.scratch import concatenate_inputs, copy_rows
from provnet.samples.identity import Groups, SampleTable

FIRST = "holdout_first"  # among a DataSpec's options: samples were held out by their labels before decisions


def check_fraction(fraction: float) -> None:
    """Refuse a share that leaves nothing, or holds nothing out."""
    if not 0 < fraction < 1:
        raise UsageError(f"the fraction held out (--holdout) must lie between 0 and 1, such as 0.1; got {fraction}")


def holdout(data: Dataset, fraction: float, *, given: Dataset | None = None) -> tuple[Dataset, Dataset]:
    """Split data into (train, test), class by class; about `fraction` of each class is for testing.

    Equal pictures always go to the same side, whatever their labels. Every class keeps at least one sample for
    training.
    Each side's DataSpec remembers the split, so that it opens again as it was.

    `given` are the data before `apply_decisions` changed them: the split is then made on these, so decisions do not
    move a sample to the other side. Otherwise the next network could be tested on samples that this one was trained on.

    >>> import provnet
    >>> train, test = holdout(provnet.open_data("embedded"), 0.1)
    >>> len(train), len(test)
    (3600, 400)
    """
    check_fraction(fraction)
    if given is None or given is data:
        held = _held_out_rows(data, fraction)
        return _side(data, ~held, fraction, "train"), _side(data, held, fraction, "test")
    chosen = _held_out_rows(given, fraction)[[given.samples.id_places[name] for name in data.samples.sample_ids]]
    marked = replace(data, spec=replace(data.spec, options={**data.spec.options, FIRST: True}))
    return _side(marked, ~chosen, fraction, "train"), _side(marked, chosen, fraction, "test")


def recorded_side(data: Dataset) -> np.ndarray:
    """(N,) whether a sample is on the side that the data's own DataSpec names.

    >>> import provnet
    >>> data = provnet.open_data("embedded", limit=20)
    >>> recorded_side(data).all()
    np.True_
    """
    rows = np.arange(len(data))
    for fraction, side in data.spec.options.get("holdout", ()):
        held = _held_out_rows(data.select(rows), float(fraction))
        rows = rows[held if side == "test" else ~held]
    return np.isin(np.arange(len(data)), rows)


def apply_holdout(data: Dataset) -> Dataset:
    """Take the side that the data's own DataSpec names; data that were never split come back as they are."""
    options = data.spec.options
    if "holdout" not in options or ("decisions" in options and options.get(FIRST)):  # else `apply_recorded` took it
        return data
    return data.select(np.flatnonzero(recorded_side(data)))


def _held_out_rows(data: Dataset, fraction: float) -> np.ndarray:
    keys = np.array(
        [hashlib.sha256(b"holdout" + row.tobytes()).digest() for row in data.samples.pixel_sha256], dtype="V32"
    )
    _, rank = np.unique(keys, return_inverse=True)  # equal pictures share a rank
    rank = rank.reshape(-1)
    labels = data.samples.labels if data.samples.grouping else np.zeros(len(data), dtype=np.int64)
    cuts = np.full(len(data.class_names) or 1, -1)  # the last rank of each class that is held out
    for label in np.unique(labels):
        ranks = np.sort(rank[labels == label])
        cuts[label] = _cut(ranks, round(fraction * len(ranks)), spare=True)
    # a picture with several labels is held out where all its classes agree; the rest of a class makes up for it
    pairs = np.unique(rank * len(cuts) + labels)
    several = np.bincount(pairs // len(cuts))[rank] > 1
    held: np.ndarray = several & (np.bincount(rank, rank > cuts[labels])[rank] == 0)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        own, shared = members[~several[members]], members[several[members]]
        wanted = round(fraction * len(members)) - int(held[shared].sum())
        held[own] = rank[own] <= _cut(np.sort(rank[own]), min(wanted, len(own)), spare=bool(held[shared].all()))
    return held


def _cut(ranks: np.ndarray, count: int, *, spare: bool) -> int:
    """The rank up to which `count` of the sorted ranks lie, equal ones together; the last stays out to `spare` it."""
    if count > 0 and spare and ranks[count - 1] == ranks[-1]:
        count = int(np.searchsorted(ranks, ranks[-1]))
    return int(ranks[count - 1]) if count > 0 else -1


def _side(data: Dataset, mask: np.ndarray, fraction: float, side: str) -> Dataset:
    earlier = list(data.spec.options.get("holdout", ()))
    options = {**data.spec.options, "holdout": [*earlier, [fraction, side]]}
    return replace(data.select(np.flatnonzero(mask)), spec=replace(data.spec, options=options))


@dataclass(frozen=True, eq=False)
class Combined:
    """Samples of a run, found again.

    Attributes:
        data: all of them, in the order of the run's table; its `spec` is that of the first source.
        parts: the same by source, each with the spec that says where its files are.
        missing: how many samples of the table have no equal content in any source.
    """

    data: Dataset
    parts: tuple[Dataset, ...]
    missing: int


def combine(samples: SampleTable, parts: Sequence[Dataset]) -> Combined:
    """Find a run's samples in some sources of equal shape; what is in none of them is missing.

    >>> import provnet
    >>> data = provnet.open_data("embedded", limit=20)
    >>> odd, even = (data.select(np.arange(start, 20, 2)) for start in (1, 0))
    >>> found = combine(data.samples, [odd, even])
    >>> found.data.samples.fingerprint == data.samples.fingerprint, found.missing
    (True, 0)
    """
    every = _combine_tables(samples, parts)
    found = compare(samples, every)
    rows = np.array(list(dict.fromkeys(found.nearest[found.nearest >= 0].tolist())), dtype=np.int64)
    table = every.select(rows)
    if table.grouping and (len(rows) == 0 or int(table.labels.max()) < len(samples.class_names)):
        table = replace(table, grouping=Groups(samples.class_names, table.labels))
    chosen, order = [], []
    edges = np.cumsum([0, *map(len, parts)])
    for part, (first, end) in zip(parts, itertools.pairwise(edges.tolist()), strict=True):
        mine = np.flatnonzero((rows >= first) & (rows < end))
        chosen.append(replace(part.select(rows[mine] - first), samples=table.select(mine)))
        order.append(mine)
    back = np.argsort(np.concatenate(order))
    listed = [part.items for part in chosen if part.items is not None]
    items = [item for part in listed for item in part] if len(listed) == len(chosen) else None
    inputs, originals = concatenate_inputs([part.inputs for part in chosen]), concatenate_originals(chosen)
    if (np.diff(back) < 0).any():
        inputs = copy_rows(inputs, back)
        originals = None if originals is None else originals.select(back)
        items = None if items is None else [items[i] for i in back.tolist()]
    skipped = tuple(line for part in parts for line in part.skipped)
    whole = replace(parts[0], inputs=inputs, samples=table, skipped=skipped, items=items, originals=originals)
    return Combined(whole, tuple(chosen), int((found.positions < 0).sum()))


def concatenate_tables(one: SampleTable, other: SampleTable, ids: Iterable[str], *, added: bool) -> SampleTable:
    """One table after the other, the second under new ids and with the first one's classes; nothing of it withheld."""

    def both(name: str) -> Any:
        left, right = getattr(one, name), getattr(other, name)
        return (*left, *right) if isinstance(left, tuple) else np.concatenate([left, right])

    return SampleTable(
        sample_ids=(*one.sample_ids, *ids),
        grouping=None if one.grouping is None else Groups(one.class_names, both("labels")),
        withheld=np.concatenate([one.withheld, np.zeros(len(other), dtype=np.bool_)]),
        added=np.concatenate([one.added, np.full(len(other), added)]),
        **{name: both(name) for name in ("sha256", "pixel_sha256", "paths", "sources")},
    )


def free_ids(taken: Iterable[str], wanted: Sequence[str], name: str) -> list[str]:
    """Ids that nobody has: as wanted, else with the data's name in front, `NAME/id`, `NAME-2/id` and so on.

    >>> free_ids(["a", "b", "more/b"], ["a", "b", "c"], "more")
    ['more/a', 'more-2/b', 'c']
    """
    clashes = set(taken)
    used, found = {*clashes, *wanted}, []
    for each in wanted:
        if each in clashes:
            numbered = (f"{name}-{number}/{each}" for number in itertools.count(2))
            each = next(free for free in itertools.chain([f"{name}/{each}"], numbered) if free not in used)
            used.add(each)
        found.append(each)
    return found


def data_name(spec: DataSpec) -> str:
    """What data are called in front of an id that is taken.

    >>> data_name(DataSpec("/data/holidays", "folder"))
    'holidays'
    """
    return clean_text(Path(spec.source).name or spec.source)


def with_classes(data: Dataset, class_names: tuple[str, ...]) -> Dataset:
    """Number the classes as a run does; data may lack classes, but have none that the run does not know.

    >>> import provnet
    >>> with_classes(provnet.open_data("embedded", limit=10), tuple("9876543210")).samples.labels.max()
    np.int64(9)
    """
    if data.class_names == class_names or data.samples.grouping is None:
        return data
    position = {name: number for number, name in enumerate(class_names)}
    table = np.array([position.get(name, -1) for name in data.class_names], dtype=np.int64)
    labels = table[data.samples.labels]
    if (labels < 0).any():
        unknown = [name for name in data.class_names if name not in position]
        known = ", ".join(map(brief, class_names[:8])) + (", ..." if len(class_names) > 8 else "")
        raise UsageError(
            f'the data have {len(unknown)} classes that the run does not know, the first "{brief(unknown[0])}"; '
            f"the run knows {len(class_names)}: {known}"
        )
    return replace(data, samples=replace(data.samples, grouping=Groups(class_names, labels)))


def _combine_tables(samples: SampleTable, parts: Sequence[Dataset]) -> SampleTable:
    """All samples of all parts in one table, under the run's names where name and content fit."""
    extra = [name for part in parts for name in part.class_names if name not in samples.class_names]
    names = (*samples.class_names, *dict.fromkeys(extra))
    table: SampleTable | None = None
    left = set(range(len(samples)))  # rows of the run's table that nobody claimed yet
    own = [_own_names(samples, part, left) for part in parts]
    claimed = {name for ids in own for name in ids if name is not None}
    for part, ids in zip(parts, own, strict=True):
        numbered = with_classes(part, names).samples
        taken = claimed if table is None else {*claimed, *table.sample_ids}
        places = [i for i, name in enumerate(ids) if name is None]
        rest = free_ids(taken, [part.samples.sample_ids[i] for i in places], data_name(part.spec))
        for i, name in zip(places, rest, strict=True):
            ids[i] = name
        whole = [str(name) for name in ids]
        if table is None:
            table = replace(numbered, sample_ids=tuple(whole))
        else:
            table = concatenate_tables(table, numbered, whole, added=False)
    assert table is not None, "there is at least one source"
    return table


def _own_names(samples: SampleTable, part: Dataset, left: set[int]) -> list[str | None]:
    """For each sample of a part the run's name of it, where the content is equal and the name is, or was made of it."""
    prefix = re.compile(re.escape(data_name(part.spec)) + r"(-\d+)?/")
    found: list[str | None] = []
    for name, digest in zip(part.samples.sample_ids, part.samples.sha256, strict=True):
        rows = [row for row in samples.places.get(digest.tobytes(), ()) if row in left]
        same = [row for row in rows if samples.sample_ids[row] == name]
        given = [row for row in rows if _strip_prefix(prefix, samples.sample_ids[row]) == name]
        row = next(iter(same + given), None)
        if row is not None:
            left.discard(row)
        found.append(None if row is None else samples.sample_ids[row])
    return found


def _strip_prefix(prefix: re.Pattern[str], name: str) -> str:
    found = prefix.match(name)
    return name[found.end() :] if found else name

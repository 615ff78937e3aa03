"""Decisions applied to data: labels replaced, samples left out; remembered in the DataSpec.

Rows are matched by sample id and SHA-256, never by position. A run remembers what was changed in a short form, so that
its data open again as they were used, whatever became of the file of decisions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from provnet.data.decisions_file import Decision
from provnet.data.files import shown
from provnet.data.identity import SampleTable
from provnet.data.imagedata import ImageData
from provnet.errors import DataError, IntegrityError, UsageError, did_you_mean

KEY = "decisions"  # its name among a DataSpec's options
CONTENT, NAME = 12, 4  # hexadecimal digits of a sample's hash and of its id's
MOST = 40_000  # changes that fit into a run's config.json
PIECE = 60_000 // (CONTENT + NAME) * (CONTENT + NAME)  # characters of a text in it


def apply_decisions(data: ImageData, decisions: Sequence[Decision]) -> ImageData:
    """Relabel and drop samples as decided; a row that names no sample, or one of other content, is an error.

    >>> import provnet
    >>> data = provnet.open_data("embedded", limit=20)
    >>> decided = [Decision(data.samples.sample_ids[4], data.samples.hex(4), "drop")]
    >>> len(apply_decisions(data, decided))
    19
    """
    if "holdout" in data.spec.options or KEY in data.spec.options:
        raise UsageError("decisions are applied once, to data as they were opened: before samples are held out")
    samples = data.samples
    labels, kept = samples.labels.copy(), np.ones(len(data), dtype=np.bool_)
    known = {name: number for number, name in enumerate(samples.class_names)}
    changed: list[tuple[int, str | None]] = []
    for one in decisions:
        place = _place(samples, one)
        if one.kind == "relabel":
            if one.new_label not in known:
                raise DataError(
                    f'row {one.row}, {shown(one.sample_id)}: no class "{shown(one.new_label)}"; the data have '
                    f"{len(known)} classes.{did_you_mean(shown(one.new_label), map(shown, known))}"
                )
            labels[place] = known[one.new_label]
            changed.append((place, one.new_label))
        elif one.kind == "drop":
            kept[place] = False
            changed.append((place, None))
    if not kept.any():
        raise UsageError("the decisions drop every sample; there is nothing left to train on")
    if len(changed) > MOST:
        raise UsageError(
            f"{len(changed):,} samples are changed, a run remembers at most {MOST:,}; correct the data themselves "
            "(for files: the manifest corrected.csv of `provnet debug`)"
        )
    if not changed:
        return data
    options = {**data.spec.options, KEY: _short_form(samples, changed)}
    return replace(_changed(data, labels, kept), spec=replace(data.spec, options=options))


def apply_recorded(data: ImageData) -> ImageData:
    """What the data's own DataSpec remembers of decisions; a sample that is no longer there is passed over.

    Where ids changed, content alone names a sample if no other has it: renamed files keep their corrected labels.
    """
    remembered = data.spec.options.get(KEY)
    if remembered is None:
        return data
    by_both, by_content = _places(data.samples)
    labels, kept = data.samples.labels.copy(), np.ones(len(data), dtype=np.bool_)
    known = {name: number for number, name in enumerate(data.samples.class_names)}
    for entry, label in _entries(remembered):
        alike = by_content.get(entry[:CONTENT], [])
        place = by_both.get(entry, alike[0] if len(alike) == 1 else None)
        if place is None:
            continue
        if label is None:
            kept[place] = False
        elif label in known:
            labels[place] = known[label]
    return _changed(data, labels, kept)


def decision_words(remembered: Any) -> str:
    """What a DataSpec remembers, in a few words.

    >>> decision_words({"drop": [], "relabel": {"7": ["0" * 32]}})
    '2 relabelled, 0 dropped by decision'
    """
    entries = _entries(remembered)
    dropped = sum(label is None for _, label in entries)
    return f"{len(entries) - dropped:,} relabelled, {dropped:,} dropped by decision"


def _place(samples: SampleTable, one: Decision) -> int:
    place = samples.id_places.get(one.sample_id)
    if place is None:
        raise DataError(
            f'row {one.row}: the data have no sample "{shown(one.sample_id)}"; decisions are for the data that were '
            "looked at, opened with the same options (--limit, --skip-bad)"
        )
    if samples.hex(place) != one.sha256:
        raise DataError(
            f"row {one.row}: {shown(one.sample_id)} has other content now (SHA-256 {samples.hex(place)[:12]}, decided "
            f"was {one.sha256[:12]}); look at it again, or take the row out"
        )
    return place


def _changed(data: ImageData, labels: np.ndarray, kept: np.ndarray) -> ImageData:
    relabelled = replace(data, samples=replace(data.samples, labels=labels))
    return relabelled if kept.all() else relabelled.select(np.flatnonzero(kept))


def _entry(samples: SampleTable, place: int) -> str:
    name = hashlib.sha256(samples.sample_ids[place].encode("utf-8", "surrogateescape")).hexdigest()
    return samples.hex(place)[:CONTENT] + name[:NAME]


def _short_form(samples: SampleTable, changed: Sequence[tuple[int, str | None]]) -> dict[str, Any]:
    """A few digits of each sample, put together into long texts: config.json may have a million bytes."""
    drop = _pieces([_entry(samples, place) for place, label in changed if label is None])
    labels = dict.fromkeys(label for _, label in changed if label is not None)
    relabel = {name: _pieces([_entry(samples, place) for place, label in changed if label == name]) for name in labels}
    return {"drop": drop, "relabel": relabel}


def _pieces(entries: Sequence[str]) -> list[str]:
    text = "".join(entries)
    return [text[start : start + PIECE] for start in range(0, len(text), PIECE)]


def _entries(remembered: Any) -> list[tuple[str, str | None]]:
    """The inverse of `_short_form`; what it could not have written is refused."""
    width = CONTENT + NAME
    found: list[tuple[str, str | None]] = []
    try:
        groups: list[tuple[str | None, Any]] = [(None, remembered["drop"]), *dict(remembered["relabel"]).items()]
        for label, pieces in groups:
            text = "".join(pieces)
            found += [(text[start : start + width], label) for start in range(0, len(text), width)]
    except (TypeError, KeyError, ValueError):
        raise IntegrityError("the run's record of decisions is damaged; it must hold drop and relabel") from None
    return found


def _places(samples: SampleTable) -> tuple[Mapping[str, int], Mapping[str, list[int]]]:
    by_content: dict[str, list[int]] = {}
    entries = [_entry(samples, place) for place in range(len(samples))]
    for place, entry in enumerate(entries):
        by_content.setdefault(entry[:CONTENT], []).append(place)
    return {entry: place for place, entry in enumerate(entries)}, by_content

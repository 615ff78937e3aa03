"""Decisions applied to data: labels replaced, samples left out; remembered in the DataSpec.

Rows are matched by sample id and SHA-256, never by position. A run remembers what was changed in a short form, so that
its data open again as they were used, whatever became of the file of decisions.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from provnet.base.errors import DataError, IntegrityError, UsageError, did_you_mean
from provnet.base.files import brief, shown
from provnet.base.options import DECISIONS
from provnet.data.dataset import AFTER_READING, Dataset, DataSpec
from provnet.data.rules import some
from provnet.data.select import FIRST, recorded_side
from provnet.samples.decisions import Decision
from provnet.samples.identity import Groups, SampleTable

CONTENT, NAME = 12, 12  # hexadecimal digits of a sample's hash and of its id's
FORM, OLD = 2, CONTENT + 4  # how a run remembers them; the digits of an entry before there were forms
PACKED = (CONTENT + NAME) // 2 * 4 // 3  # characters of an entry, in base64
MOST = 40_000  # changes that fit into a run's config.json
PIECE = 60_000 // PACKED * PACKED  # characters of a text in it


def apply_decisions(data: Dataset, decisions: Sequence[Decision]) -> Dataset:
    """Relabel and drop samples. A decision about a missing sample, or one with other content, is an error.

    >>> import provnet
    >>> data = provnet.open_data("embedded", limit=20)
    >>> decided = [Decision(data.samples.sample_ids[4], data.samples.hex(4), "drop")]
    >>> len(apply_decisions(data, decided))
    19
    """
    if "holdout" in data.spec.options or DECISIONS in data.spec.options:
        raise UsageError("decisions are applied once, to data as opened: apply them before holding out samples")
    samples = data.samples
    labels, kept = samples.labels.copy(), np.ones(len(data), dtype=np.bool_)
    known = {name: number for number, name in enumerate(samples.class_names)}
    changed: list[tuple[int, str | None]] = []
    for one in decisions:
        place = _place(samples, one)
        if one.kind == "relabel":
            if one.new_label not in known:
                raise DataError(
                    f'row {one.row}, {shown(one.sample_id)}: no class "{brief(one.new_label)}"; the data have '
                    f"{some(samples.class_names)}.{did_you_mean(brief(one.new_label), map(brief, known))}"
                )
            labels[place] = known[one.new_label]
            changed.append((place, one.new_label))
        elif one.kind == "drop":
            kept[place] = False
            changed.append((place, None))
    if not kept.any():
        raise UsageError("the decisions drop every sample; keep at least one to train on")
    if len(changed) > MOST:
        raise UsageError(
            f"{len(changed):,} samples are changed, a run records at most {MOST:,}; correct the data themselves "
            "(for files: the manifest corrected.csv of `provnet debug`)"
        )
    if not changed:
        return data
    options = {**data.spec.options, DECISIONS: _short_form(samples, changed)}
    return replace(_changed(data, labels, kept), spec=replace(data.spec, options=options))


def apply_recorded(data: Dataset) -> Dataset:
    """What the data's own DataSpec remembers of decisions; a sample that is no longer there is passed over.

    Where ids changed, content alone names a sample if no other has it, neither now nor when it was decided: renamed
    files keep their corrected labels, and a copy never stands in for a sample that is gone.
    """
    remembered = data.spec.options.get(DECISIONS)
    if remembered is None:
        return data
    entries = _entries(remembered)
    places = _places(data.samples, {CONTENT, *(len(entry) for entry, _, _ in entries)})
    labels, kept = data.samples.labels.copy(), np.ones(len(data), dtype=np.bool_)
    if data.spec.options.get(FIRST):  # by the labels as they are here
        kept = recorded_side(data)
    known = {name: number for number, name in enumerate(data.samples.class_names)}
    for entry, label, alone in entries:
        alike = places.get(entry[:CONTENT], [])
        found = places.get(entry, alike if alone and len(alike) == 1 else [])
        if len(found) > 1:
            first, second = (shown(data.samples.sample_ids[place]) for place in found[:2])
            raise IntegrityError(
                f'the run\'s record of decisions cannot tell "{first}" from "{second}", which have equal content; '
                "open the data as they are, and apply the file of decisions to them once more"
            )
        if not found:
            continue
        place = found[0]
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
    dropped = sum(label is None for _, label, _ in entries)
    return f"{len(entries) - dropped:,} relabelled, {dropped:,} dropped by decision"


def _place(samples: SampleTable, one: Decision) -> int:
    place = samples.id_places.get(one.sample_id)
    if place is None:
        raise DataError(
            f'row {one.row}: the data have no sample "{shown(one.sample_id)}"; decisions apply to the data that '
            "were reviewed, opened with the same options (--limit, --skip-bad)"
        )
    if samples.hex(place) != one.sha256:
        raise DataError(
            f"row {one.row}: {shown(one.sample_id)} has other content now (SHA-256 {samples.hex(place)[:12]}, "
            f"reviewed was {one.sha256[:12]}); review it again, or remove the row"
        )
    return place


def _changed(data: Dataset, labels: np.ndarray, kept: np.ndarray) -> Dataset:
    relabelled = replace(data, samples=replace(data.samples, grouping=Groups(data.class_names, labels)))
    return relabelled if kept.all() else relabelled.select(np.flatnonzero(kept))


def _entry(samples: SampleTable, place: int) -> str:
    name = hashlib.sha256(samples.sample_ids[place].encode("utf-8", "surrogateescape")).hexdigest()
    return samples.hex(place)[:CONTENT] + name[:NAME]


def _short_form(samples: SampleTable, changed: Sequence[tuple[int, str | None]]) -> dict[str, Any]:
    """A few digits of each sample, put together into long texts: config.json may have a million bytes.

    Samples of equal content are kept apart: only id and content together name one of them.
    """
    parts: dict[str, list[tuple[int, str | None]]] = {"single": [], "equal": []}
    for place, label in changed:
        is_single = len(samples.places[samples.sha256[place].tobytes()]) == 1
        parts["single" if is_single else "equal"].append((place, label))
    return {"form": FORM, **{name: _part(samples, part) for name, part in parts.items()}}


def _part(samples: SampleTable, changed: Sequence[tuple[int, str | None]]) -> dict[str, Any]:
    by_label: dict[str | None, list[str]] = {None: []}
    for place, label in changed:
        packed = base64.b64encode(bytes.fromhex(_entry(samples, place))).decode()
        by_label.setdefault(label, []).append(packed)
    drop = _pieces(by_label.pop(None))
    return {"drop": drop, "relabel": {label: _pieces(entries) for label, entries in by_label.items()}}


def _pieces(entries: Sequence[str]) -> list[str]:
    text = "".join(entries)
    return [text[start : start + PIECE] for start in range(0, len(text), PIECE)]


def _entries(remembered: Any) -> list[tuple[str, str | None, bool]]:
    """The inverse of `_short_form`, and whether content alone may name the sample; anything else is refused."""
    form = remembered.get("form", FORM) if isinstance(remembered, Mapping) else FORM
    if form != FORM:
        raise IntegrityError("the run's record of decisions has an unknown format; open the run with a newer provnet")
    try:
        if "form" not in remembered:
            return [(entry, label, True) for entry, label in _read_part(remembered, OLD)]
        found = []
        for name, alone in (("single", True), ("equal", False)):
            for packed, label in _read_part(remembered[name], PACKED):
                if "=" in packed:
                    raise ValueError("an entry is too short")
                found.append((base64.b64decode(packed, validate=True).hex(), label, alone))
        return found
    except (TypeError, KeyError, ValueError):
        raise IntegrityError("the run's record of decisions is damaged; it must hold drop and relabel") from None


def _read_part(part: Any, width: int) -> list[tuple[str, str | None]]:
    found: list[tuple[str, str | None]] = []
    groups: list[tuple[str | None, Any]] = [(None, part["drop"]), *dict(part["relabel"]).items()]
    for label, pieces in groups:
        text = "".join(pieces)
        if len(text) % width:
            raise ValueError("an entry is cut short")
        found += [(text[start : start + width], label) for start in range(0, len(text), width)]
    return found


def _places(samples: SampleTable, widths: Collection[int]) -> Mapping[str, list[int]]:
    """Where the samples are, by so many digits of their entries."""
    found: dict[str, list[int]] = {}
    for place in range(len(samples)):
        entry = _entry(samples, place)
        for width in widths:
            found.setdefault(entry[:width], []).append(place)
    return found


def spec_name(spec: DataSpec | None) -> str:
    """A data set in a few words.

    >>> from provnet.data.dataset import DataSpec
    >>> spec_name(DataSpec("mnist", "idx", "test", options={"limit": 50}))
    'mnist, split test, limit 50'
    >>> spec_name(DataSpec("pets", "folder", "train", options={"size": [32, 48], "holdout": [[0.2, "train"]]}))
    'pets, split train, 32 x 48 pixels, without the 20 % held out'
    """
    if spec is None:
        return "none"
    words = [spec.source, f"split {spec.split}"]
    left_out = ("class_names", *AFTER_READING)
    words += [_option_words(name, value) for name, value in spec.options.items() if name not in left_out]
    words += [decision_words(value) for name, value in spec.options.items() if name == DECISIONS]
    for fraction, side in spec.options.get("holdout", ()):
        words.append(f"{'without the' if side == 'train' else 'only the'} {100 * fraction:g} % held out")
    return ", ".join(words)


def _option_words(name: str, value: Any) -> str:
    """An option of `open_data` as people say it."""
    if name == "size":
        return f"{value[0]} x {value[1]} pixels"
    if name == "value_range":
        return f"values {value[0]:g} to {value[1]:g}"
    return {"skip_bad": "bad files left out", "mode": f"as {value}"}.get(name, f"{name} {value}")

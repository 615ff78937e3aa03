"""Decisions about samples (keep, relabel, drop) with undo and redo; kept beside the run, written out as a CSV file.

They name samples by id and hash, so they outlast other weights and samples that were added or withheld. Several apps
may keep decisions about one run: each step goes on top of what the file holds at that moment. Rows that this version
does not understand stay in the file; a damaged file gets another name.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from provnet.app.errors import ApiError, unknown
from provnet.app.keeping import Keeping
from provnet.data.decisions_file import KINDS, Decision, decisions_csv
from provnet.data.identity import SampleTable
from provnet.errors import DataError, ProvnetError

LOG = logging.getLogger("provnet.app")
FILE = "decisions"
STEPS = 200  # that can be undone
NO_HASH = "unknown"  # instead of the hash of a sample that was told by its name alone


class Choice(NamedTuple):
    """What was decided about a sample."""

    kind: str
    new_label: str = ""


Step = Mapping[int, tuple[Choice | None, Choice | None]]  # sample -> before, after


class DecisionBook:
    """All decisions about the samples of one run; with `forgets`, none about others is kept, as some were erased."""

    def __init__(self, samples: SampleTable, keeping: Keeping, *, forgets: bool = False) -> None:
        self.samples = samples
        self.forgets = forgets
        self.keeping = keeping
        self.choices: dict[int, Choice] = {}
        self.revision = 0  # each change gives another one
        self._others: list[Any] = []  # rows about samples that are not there now, or of a form that is unknown: kept
        self._unsaved: dict[int, Choice | None] = {}  # decided here, and not in the file
        self._seen: tuple[int, ...] | None = None  # the stamp of the file that was read or written last
        self._unreadable = False
        self._done: deque[Step] = deque(maxlen=STEPS)
        self._undone: deque[Step] = deque(maxlen=STEPS)
        self._lock = threading.Lock()
        if self.trouble:
            LOG.warning("%s: %s", keeping.folder, self.trouble)
        self.refresh()

    @property
    def steps(self) -> tuple[int, int]:
        """How many steps can be undone and done again."""
        return len(self._done), len(self._undone)

    @property
    def saved(self) -> bool:
        """Whether all decisions outlast this app."""
        return self.keeping.is_kept and not self._unreadable and not self._unsaved

    @property
    def trouble(self) -> str:
        """What keeps decisions from being used, or from being kept, in words; empty where nothing does."""
        if self._unreadable:
            return f"{FILE}.json cannot be read: new decisions are kept only until provnet app ends. Export them."
        aside = ", ".join(self.keeping.aside(FILE))
        advice = f"decide again, or copy the rows that are whole to {FILE}.json; then remove it"
        return f"Damaged decisions were set aside as {aside} and are not used: {advice}." if aside else ""

    def refresh(self) -> None:
        """Take over what another app of this run has kept since."""
        with self._lock:
            if self.keeping.stamp(FILE) in (None, self._seen):
                return
            with self.keeping.locked() as alone:
                self._read()
                if self.keeping.stamp(FILE) is None:  # it was set aside: what is known here is kept
                    self._save(alone)

    def place(self, sample_id: str, sha256: str) -> int:
        """The sample that both name; a withheld one is unknown."""
        place = self._find(sample_id, sha256)
        if place is None:
            raise unknown("sample", "items")
        return place

    def decide(self, places: Iterable[int], choice: Choice | None) -> None:
        """Decide about some samples in one step; None forgets what was decided."""
        with self._turn():
            step = {place: (self.choices.get(place), choice) for place in places}
            self._apply(step, forward=True)
            self._done.append(step)
            self._undone.clear()

    def undo(self, *, forward: bool = False) -> None:
        """Take the last step back, or with `forward` the last undone one again.

        A sample that another app has decided about since keeps that decision.
        """
        with self._turn():
            source, goal = (self._undone, self._done) if forward else (self._done, self._undone)
            if not source:
                raise ApiError(409, "not_ready", f"there is nothing to {'do again' if forward else 'undo'}")
            step = source.pop()
            self._apply(step, forward=forward)
            goal.append(step)

    def counts(self) -> dict[str, int]:
        """How many samples of each kind of decision."""
        kinds = [choice.kind for choice in list(self.choices.values())]
        return {kind: kinds.count(kind) for kind in KINDS}

    def csv(self) -> bytes:
        """The file that `provnet train --apply` takes."""
        rows = [
            Decision(self.samples.sample_ids[place], self.samples.hex(place), choice.kind, choice.new_label)
            for place, choice in sorted(self.choices.items())
        ]
        labels = [self.samples.class_names[int(self.samples.labels[place])] for place in sorted(self.choices)]
        return decisions_csv(rows, {"label": labels})

    def mask(self, kind: str) -> np.ndarray:
        """(N,) bool: samples with this decision; `any` of them, `none`."""
        found = np.zeros(len(self.samples), dtype=np.bool_)
        for place, choice in list(self.choices.items()):
            if kind in ("any", "none", choice.kind):
                found[place] = True
        return ~found if kind == "none" else found

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """What is decided meanwhile goes on top of what the file holds now, and into the file."""
        with self._lock, self.keeping.locked() as alone:
            self._read()
            yield
            self._save(alone)

    def _apply(self, step: Step, *, forward: bool) -> None:
        for place, (before, after) in step.items():
            now, choice = (before, after) if forward else (after, before)
            if self.choices.get(place) == now:
                self._unsaved[place] = choice
                _put(self.choices, place, choice)
        self.revision += 1

    def _save(self, alone: bool) -> None:
        samples = self.samples
        chosen = sorted(self.choices.items())
        rows = [[samples.sample_ids[place], *choice, samples.hex(place)] for place, choice in chosen]
        may = alone and not self._unreadable
        if may and self.keeping.write_json(FILE, {"decisions": [*rows, *self._others]}):
            self._seen = self.keeping.stamp(FILE)
            self._unsaved.clear()

    def _find(self, sample_id: str, sha256: str | None) -> int | None:
        """The sample of this name and, if it is known, this hash; None where it may not be named."""
        place = self.samples.id_places.get(sample_id)
        if place is None or self.samples.withheld[place] or sha256 not in (None, self.samples.hex(place)):
            return None
        return place

    def _read(self) -> None:
        """Take over what the file holds; without a file everything stays as it is known here."""
        stamp = self.keeping.stamp(FILE)
        if stamp == self._seen:
            return
        self._seen, self._unreadable = stamp, False
        if stamp is None:
            self._unsaved = {**self.choices, **self._unsaved}
            return
        try:
            kept = self.keeping.load(FILE) or {}
        except DataError as error:  # nobody knows what it holds
            LOG.warning("decisions are not saved: %s", error)
            self._unreadable = True
            return
        except ProvnetError as error:
            self._set_aside(str(error))
            return
        if not isinstance(kept.get("decisions"), list):
            self._set_aside(f"{FILE}.json holds no list of decisions")
            return
        self._restore(kept["decisions"], own=kept.get("run") == self.keeping.identity)

    def _set_aside(self, why: str) -> None:
        place = self.keeping.set_aside(FILE)
        self._unsaved = {**self.choices, **self._unsaved}
        self._unreadable = place is None
        LOG.warning("%s; %s", why, "decisions are not saved" if place is None else f"it is now {place}")

    def _restore(self, rows: list[Any], *, own: bool) -> None:
        """Take the rows of the file; `own` says whether the run is in the state that they were kept of."""
        names, choices, others = self.samples.class_names, dict[int, Choice](), list[Any]()
        for row in rows:
            if not _is_decision(row):
                others.append(row)
                continue
            name, kind, label = row[:3]
            place = self._find(name, row[3] if len(row) == 4 else None if own else NO_HASH)
            if place is None or (kind == "relabel") != (label in names):
                others.append(row if len(row) == 4 or own else [*row, NO_HASH])
            elif kind != "relabel" or names[int(self.samples.labels[place])] != label:  # else done
                choices[place] = Choice(kind, label)
        for place, choice in self._unsaved.items():
            _put(choices, place, choice)
        if self.forgets and others:
            LOG.warning("%s rows of %s.json may name erased samples; they are not kept", len(others), FILE)
        self.choices, self._others = choices, [] if self.forgets else others
        self.revision += 1


def _put(choices: dict[int, Choice], place: int, choice: Choice | None) -> None:
    if choice is None:
        choices.pop(place, None)
    else:
        choices[place] = choice


def _is_decision(row: Any) -> bool:
    """Whether this version reads a row: id, kind, new label, hash; old ones have three cells, without a hash."""
    is_row = isinstance(row, list) and 3 <= len(row) <= 4 and all(isinstance(cell, str) for cell in row)
    return is_row and row[1] in KINDS

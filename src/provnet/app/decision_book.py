"""Decisions about samples (keep, relabel, drop) with undo and redo; kept beside the run, written out as a CSV file.

They name samples by id and hash, so they outlast other weights and samples that were added or withheld.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from provnet.app.errors import ApiError, unknown
from provnet.app.keeping import Keeping
from provnet.data.decisions_file import KINDS, Decision, decisions_csv
from provnet.data.identity import SampleTable

FILE = "decisions"
STEPS = 200  # that can be undone


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
        self.saved = keeping.is_kept
        self.choices: dict[int, Choice] = {}
        self._others: list[list[str]] = []  # rows about samples that are not there now: kept, they may come back
        self._done: deque[Step] = deque(maxlen=STEPS)
        self._undone: deque[Step] = deque(maxlen=STEPS)
        self._lock = threading.Lock()
        self._restore()

    @property
    def steps(self) -> tuple[int, int]:
        """How many steps can be undone and done again."""
        return len(self._done), len(self._undone)

    def place(self, sample_id: str, sha256: str) -> int:
        """The sample that both name; a withheld one is unknown."""
        place = self._find(sample_id, sha256)
        if place is None:
            raise unknown("sample", "items")
        return place

    def decide(self, places: Iterable[int], choice: Choice | None) -> None:
        """Decide about some samples in one step; None forgets what was decided."""
        with self._lock:
            step = {place: (self.choices.get(place), choice) for place in places}
            self._apply(step, forward=True)
            self._done.append(step)
            self._undone.clear()
            self._save()

    def undo(self, *, forward: bool = False) -> None:
        """Take the last step back, or with `forward` the last undone one again."""
        with self._lock:
            source, goal = (self._undone, self._done) if forward else (self._done, self._undone)
            if not source:
                raise ApiError(409, "not_ready", f"there is nothing to {'do again' if forward else 'undo'}")
            step = source.pop()
            self._apply(step, forward=forward)
            goal.append(step)
            self._save()

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

    def _apply(self, step: Step, *, forward: bool) -> None:
        for place, (before, after) in step.items():
            choice = after if forward else before
            if choice is None:
                self.choices.pop(place, None)
            else:
                self.choices[place] = choice

    def _save(self) -> None:
        samples = self.samples
        chosen = sorted(self.choices.items())
        rows = [[samples.sample_ids[place], *choice, samples.hex(place)] for place, choice in chosen]
        self.saved = self.keeping.write_json(FILE, {"decisions": [*rows, *self._others]})

    def _find(self, sample_id: str, sha256: str | None) -> int | None:
        """The sample of this name and, if it is known, this hash; None where it may not be named."""
        place = self.samples.id_places.get(sample_id)
        if place is None or self.samples.withheld[place] or sha256 not in (None, self.samples.hex(place)):
            return None
        return place

    def _restore(self) -> None:
        kept = self.keeping.read_json(FILE, any_state=True) or {}
        own = kept.get("run") == self.keeping.identity
        for row in _rows(kept.get("decisions"), shortest=3 if own else 4):
            name, kind, label, sha256 = *row[:3], row[3] if len(row) == 4 else None
            place = self._find(name, sha256)
            if place is None or (kind == "relabel") != (label in self.samples.class_names):
                self._others += [row] if sha256 is not None and not self.forgets else []
            elif kind != "relabel" or self.samples.class_names[int(self.samples.labels[place])] != label:  # else done
                self.choices[place] = Choice(kind, label)


def _rows(given: Any, shortest: int) -> Iterator[list[str]]:
    """The rows of a file that are decisions: id, kind, new label, hash; old ones have three cells, without a hash."""
    for row in given if isinstance(given, list) else []:
        is_row = isinstance(row, list) and shortest <= len(row) <= 4 and all(isinstance(cell, str) for cell in row)
        if is_row and row[1] in KINDS:
            yield row

"""Decisions about samples (keep, relabel, drop) with undo and redo; kept beside the run, written out as a CSV file.

They name samples by id and hash, so they outlast other weights and samples that were added or withheld.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping
from typing import NamedTuple

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
        place = self.samples.id_places.get(sample_id)
        if place is None or self.samples.withheld[place] or self.samples.hex(place) != sha256:
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

    def _restore(self) -> None:
        samples, kept = self.samples, self.keeping.read_json(FILE, any_state=True) or {}
        shortest = 3 if kept.get("run") == self.keeping.identity else 4  # rows of three, without a hash, are old
        rows = kept.get("decisions")
        for row in rows if isinstance(rows, list) else []:
            if not (isinstance(row, list) and shortest <= len(row) <= 4 and all(isinstance(cell, str) for cell in row)):
                continue
            if row[1] not in KINDS:
                continue
            place = samples.id_places.get(row[0])
            here = place is not None and (len(row) == 3 or samples.hex(place) == row[3])
            fits = (row[1] == "relabel") == (row[2] in samples.class_names)
            if place is None or not here or not fits or samples.withheld[place]:
                self._others += [row] if len(row) == 4 and not self.forgets else []
            elif row[1] != "relabel" or samples.class_names[int(samples.labels[place])] != row[2]:  # else it is done
                self.choices[place] = Choice(row[1], row[2])

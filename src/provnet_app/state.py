"""Everything that the server holds while it runs, put together once."""

from __future__ import annotations

import logging
import secrets
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from provnet.base.errors import DataError, ProvnetError, UsageError
from provnet.samples.decisions import KINDS, Decision, decisions_csv
from provnet.samples.identity import SampleTable
from provnet.tools.credit.compute import Contributors, contributors_of
from provnet_app.admission import Gate
from provnet_app.engine import Engine
from provnet_app.jobs import Jobs
from provnet_app.library import Library, Uploads
from provnet_app.limits import SELECTIONS
from provnet_app.security import ApiError, Keys, unknown
from provnet_app.served import Keeping, OnDisk, Served, ShownLog

LOG = logging.getLogger("provnet_app")
FILE, TAGS = "decisions", "tags"
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
        advice = f"decide again what is missing, or copy the rows that are whole to {FILE}.json; then remove it"
        used = f"Decisions in use: {len(self.choices):,}; {advice}"
        return f"Damaged decisions were set aside as {aside}. {used}." if aside else ""

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


class TagBook:
    """Words that people gave to samples of a run, kept beside its decisions; with `forgets`, none of others is kept."""

    def __init__(self, samples: SampleTable, keeping: Keeping, *, forgets: bool = False) -> None:
        self.samples = samples
        self.keeping = keeping
        self.forgets = forgets
        self.tags: dict[int, tuple[str, ...]] = {}
        self.saved = keeping.is_kept
        self._others: list[Any] = []  # rows about samples that are not there now
        self._seen: tuple[int, ...] | None = None
        self._lock = threading.Lock()
        self.refresh()

    def refresh(self) -> None:
        """Take over what another app of this run has kept since."""
        with self._lock:
            self._read()

    def change(self, places: Iterable[int], tag: str, *, on: bool) -> None:
        """Give some samples a tag, or take it away."""
        with self._lock, self.keeping.locked() as alone:
            self._read()
            for place in places:
                left = [one for one in self.tags.get(place, ()) if one != tag]
                now = tuple(sorted([*left, tag] if on else left))
                _put(self.tags, place, now or None)
            samples = self.samples
            rows = [[samples.sample_ids[place], samples.hex(place), list(tags)] for place, tags in self.tags.items()]
            self.saved = alone and self.keeping.write_json(TAGS, {"tags": [*rows, *self._others]})
            self._seen = self.keeping.stamp(TAGS)

    def counts(self) -> dict[str, int]:
        """How many samples have each tag."""
        return dict(sorted(Counter(tag for tags in list(self.tags.values()) for tag in tags).items()))

    def mask(self, tag: str) -> np.ndarray:
        """(N,) bool: samples with a tag."""
        found = np.zeros(len(self.samples), dtype=np.bool_)
        found[[place for place, tags in list(self.tags.items()) if tag in tags]] = True
        return found

    def _read(self) -> None:
        stamp = self.keeping.stamp(TAGS)
        if stamp is None or stamp == self._seen:
            return
        try:
            rows = (self.keeping.load(TAGS) or {}).get("tags")
            found = {(str(name), str(sha256)): tuple(map(str, tags)) for name, sha256, tags in rows or ()}
        except (ProvnetError, TypeError, ValueError) as error:
            place = self.keeping.set_aside(TAGS)
            LOG.warning("%s; %s", error, "tags are not saved" if place is None else f"{TAGS}.json is now {place}")
            return
        self._seen, self.tags, self._others = stamp, {}, []
        for (name, sha256), tags in found.items():
            at = self.samples.id_places.get(name)
            if at is not None and not self.samples.withheld[at] and self.samples.hex(at) == sha256:
                self.tags[at] = tags
            elif not self.forgets:
                self._others.append([name, sha256, list(tags)])


def _put(chosen: dict[int, Any], place: int, one: Any) -> None:
    if one is None:
        chosen.pop(place, None)
    else:
        chosen[place] = one


def _is_decision(row: Any) -> bool:
    """Whether this version reads a row: id, kind, new label, hash; old ones have three cells, without a hash."""
    is_row = isinstance(row, list) and 3 <= len(row) <= 4 and all(isinstance(cell, str) for cell in row)
    return is_row and row[1] in KINDS


@dataclass(eq=False)
class Selections:
    """The newest selections of samples, by an id of ours."""

    kept: OrderedDict[str, np.ndarray] = field(default_factory=OrderedDict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, index: np.ndarray) -> str:
        """Keep one, in its order."""
        name = secrets.token_hex(8)
        with self.lock:
            self.kept[name] = index
            while len(self.kept) > SELECTIONS:
                self.kept.popitem(last=False)
        return name

    def find(self, name: str) -> np.ndarray | None:
        """One that is still kept."""
        with self.lock:
            return self.kept.get(name)


@dataclass(eq=False)
class State:
    """What routes work with.

    Attributes:
        people: who contributed which sample, from the run or from a file that was sent; None where nobody said.
        own_people: what the run itself says of that.
        desk: the thread of work that takes longer than an explanation, one after another.
        decoder: the thread that decodes large pictures: two at a time would take twice the memory.
    """

    served: Served
    keys: Keys
    gate: Gate
    uploads: Uploads
    library: Library
    engine: Engine
    keeping: Keeping
    on_disk: OnDisk
    jobs: Jobs
    decisions: DecisionBook
    tags: TagBook
    shown: ShownLog
    selections: Selections
    people: Contributors | None
    own_people: Contributors | None
    desk: ThreadPoolExecutor
    decoder: ThreadPoolExecutor

    @property
    def digits(self) -> int:
        """Decimals of confidences and weights: a run that shows little says little."""
        return 4 if self.served.exposure == "full" else 2

    def close(self) -> None:
        """Let go of the threads."""
        self.jobs.stop()
        for pool in (self.desk, self.decoder):
            pool.shutdown(wait=False, cancel_futures=True)
        self.engine.close()


def make_state(served: Served, keys: Keys) -> State:
    """The state of a server that starts."""
    uploads = Uploads(served.run)
    keeping = Keeping(served)
    library = Library(served, uploads)
    people = _people(served)
    return State(
        served=served,
        keys=keys,
        gate=Gate(),
        uploads=uploads,
        library=library,
        engine=Engine(served.run),
        keeping=keeping,
        on_disk=OnDisk(served.folder, served.opened),
        jobs=Jobs(served, keeping),
        decisions=DecisionBook(served.run.samples, keeping, forgets=served.run.config.erased > 0),
        tags=TagBook(served.run.samples, keeping, forgets=served.run.config.erased > 0),
        shown=ShownLog(keeping),
        selections=Selections(),
        people=people,
        own_people=people,
        desk=ThreadPoolExecutor(1, thread_name_prefix="provnet-desk"),
        decoder=ThreadPoolExecutor(1, thread_name_prefix="provnet-decoder"),
    )


def _people(served: Served) -> Contributors | None:
    try:
        return contributors_of(served.run.samples, None)
    except UsageError:
        return None

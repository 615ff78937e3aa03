"""What people decided about samples: kept beside the run, over HTTP, and as the file for `provnet train --apply`."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from fastapi import APIRouter
from pydantic import BaseModel, Field
from starlette.responses import Response

from provnet.base.errors import DataError, ProvnetError
from provnet.samples.decisions import KINDS, Decision, decisions_csv
from provnet.samples.identity import SampleTable
from provnet_app.limits import DECIDED, LISTED, TAG
from provnet_app.routes import BODY, Hash, Name, Strict, csv_reply, gives, router
from provnet_app.security import ApiError, unknown
from provnet_app.served import Keeping

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

    def rows(self) -> list[Decision]:
        """All decisions, in the order of the samples."""
        return [
            Decision(self.samples.sample_ids[place], self.samples.hex(place), choice.kind, choice.new_label)
            for place, choice in sorted(self.choices.items())
        ]

    def csv(self) -> bytes:
        """The file that `provnet train --apply` takes."""
        labels = [self.samples.class_names[int(self.samples.labels[place])] for place in sorted(self.choices)]
        return decisions_csv(self.rows(), {"label": labels})

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


class SampleName(Strict):
    """A sample by its id and the hash of its content."""

    sample_id: Name
    sha256: Hash


class Decide(Strict):
    """Keep or drop samples, or forget what was decided about them."""

    items: Annotated[list[SampleName], Field(min_length=1, max_length=DECIDED)]
    decision: Literal["keep", "drop", "clear"]


class Relabel(Strict):
    """Give samples another label."""

    items: Annotated[list[SampleName], Field(min_length=1, max_length=DECIDED)]
    decision: Literal["relabel"]
    new_label: Name


class Decided(BaseModel):
    """One decision."""

    index: int
    sample_id: str
    sha256: str
    decision: str
    new_label: str | None


class Counts(BaseModel):
    """Samples of each kind of decision."""

    keep: int
    relabel: int
    drop: int


class Decisions(BaseModel):
    """What is decided; `saved` is false where it is lost with the server, each change gives another `revision`."""

    total: int
    revision: int
    undo: int
    redo: int
    saved: bool
    counts: Counts
    items: list[Decided]


class Tag(Strict):
    """Give samples a tag, or take it away."""

    items: Annotated[list[SampleName], Field(min_length=1, max_length=DECIDED)]
    tag: Annotated[Name, Field(max_length=TAG)]
    on: Annotated[bool, Field(strict=True)] = True


class TagCount(BaseModel):
    """A tag and how many samples have it."""

    tag: str
    samples: int


class Tags(BaseModel):
    """All tags; `saved` is false where they are lost with the server."""

    saved: bool
    items: list[TagCount]


def decision_routes(book: DecisionBook, all_tags: TagBook) -> APIRouter:
    """GET and POST /decisions, undo, redo, /decisions.csv; GET and POST /tags."""
    routes = router("decisions")

    @routes.get("/decisions", responses=gives())
    async def decisions() -> Decisions:
        """All decisions."""
        await asyncio.to_thread(book.refresh)
        return _record(book, listed=True)

    @routes.post("/decisions", responses=gives(404, *BODY))
    async def decide(given: Decide | Relabel) -> Decisions:
        """Decide about some samples; one step that can be undone."""
        choice = None if given.decision == "clear" else Choice(given.decision)
        if isinstance(given, Relabel):
            if given.new_label not in book.samples.class_names:
                raise ApiError(422, "invalid", "new_label must be the name of a class of this run", "new_label")
            choice = Choice("relabel", given.new_label)
        places = [book.place(one.sample_id, one.sha256) for one in given.items]
        await asyncio.to_thread(book.decide, places, choice)
        return _record(book)

    @routes.post("/decisions/undo", responses=gives(409))
    async def undo() -> Decisions:
        """Take the last step back."""
        await asyncio.to_thread(book.undo)
        return _record(book)

    @routes.post("/decisions/redo", responses=gives(409))
    async def redo() -> Decisions:
        """Do the last undone step again."""
        await asyncio.to_thread(book.undo, forward=True)
        return _record(book)

    @routes.get(
        "/decisions.csv", response_class=Response, responses=gives(kind="text/csv", words="for `provnet train --apply`")
    )
    async def decisions_csv() -> Response:
        """All decisions as a CSV file."""
        await asyncio.to_thread(book.refresh)
        return csv_reply(book.csv(), "decisions.csv")

    @routes.get("/tags", responses=gives())
    async def tags() -> Tags:
        """All tags."""
        await asyncio.to_thread(all_tags.refresh)
        return _tags(all_tags)

    @routes.post("/tags", responses=gives(404, *BODY))
    async def tag(given: Tag) -> Tags:
        """Give some samples a tag, or take it away."""
        places = [book.place(one.sample_id, one.sha256) for one in given.items]
        await asyncio.to_thread(all_tags.change, places, given.tag, on=given.on)
        return _tags(all_tags)

    return routes


def _tags(book: TagBook) -> Tags:
    found = book.counts().items()
    return Tags(saved=book.saved, items=[TagCount(tag=tag, samples=samples) for tag, samples in found])


def _record(book: DecisionBook, *, listed: bool = False) -> Decisions:
    undo, redo = book.steps
    samples = book.samples
    items = [
        Decided(
            index=place,
            sample_id=samples.sample_ids[place],
            sha256=samples.hex(place),
            decision=choice.kind,
            new_label=choice.new_label or None,
        )
        for place, choice in (sorted(book.choices.items())[:LISTED] if listed else [])
    ]
    return Decisions(
        total=len(book.choices),
        revision=book.revision,
        undo=undo,
        redo=redo,
        saved=book.saved,
        counts=Counts(**book.counts()),
        items=items,
    )

"""Everything that the server holds while it runs, put together once."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from provnet.base.errors import UsageError
from provnet.tools.credit.compute import Contributors, contributors_of
from provnet_app.decisions import DecisionBook, TagBook
from provnet_app.engine import Engine
from provnet_app.jobs import Jobs
from provnet_app.library import Library, Uploads
from provnet_app.limits import IN_FLIGHT, SELECTIONS
from provnet_app.security import Keys
from provnet_app.served import Keeping, OnDisk, Served, ShownLog


@dataclass(eq=False)
class Gate:
    """How many requests are inside, and whether the server is stopping."""

    most: int = IN_FLIGHT
    inside: int = 0
    stopping: bool = False


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

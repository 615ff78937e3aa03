"""Everything that the server holds while it runs, put together once."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from provnet.app.admission import Gate
from provnet.app.decision_book import DecisionBook
from provnet.app.engine import Engine
from provnet.app.jobs import Jobs
from provnet.app.keeping import Keeping
from provnet.app.library import Library
from provnet.app.limits import SELECTIONS
from provnet.app.on_disk import OnDisk
from provnet.app.security import Keys
from provnet.app.served import Served
from provnet.app.shown_log import ShownLog
from provnet.app.uploads import Uploads
from provnet.applications.contributors import Contributors, contributors_of
from provnet.errors import UsageError


@dataclass(eq=False)
class Selections:
    """The newest selections of samples, by an id of ours."""

    kept: OrderedDict[str, np.ndarray] = field(default_factory=OrderedDict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, index: np.ndarray) -> str:
        """Keep one."""
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

"""Costly work in the background, one job at a time, with progress; results are kept and come back after a restart."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from provnet.app.keeping import Keeping
from provnet.app.served import Served
from provnet.app.work import WORK, Work
from provnet.errors import ProvnetError
from provnet.training.progress import listening

LOG = logging.getLogger("provnet.app")
JobState = Literal["none", "running", "ready", "failed"]


class StoppedError(Exception):
    """The server is stopping: the work ends at its next step."""


@dataclass(frozen=True)
class Progress:
    """How far a job is."""

    name: str
    state: JobState = "none"
    done: int = 0
    total: int = 0
    words: str = ""
    seconds: float = 0.0
    error: str | None = None
    can: bool = True
    why: str = ""


@dataclass(eq=False)
class Jobs:
    """All jobs of a served run."""

    served: Served
    keeping: Keeping
    progress: dict[str, Progress] = field(default_factory=dict)
    results: dict[str, Any] = field(default_factory=dict)
    _turn: threading.Lock = field(default_factory=threading.Lock)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stopping: bool = False

    def __post_init__(self) -> None:
        for name, work in WORK.items():
            why = work.why_not(self.served)
            self.progress[name] = Progress(name, can=not why, why=why)
            kept = self.keeping.read_arrays(name)
            if kept is None:
                continue
            try:
                self.results[name] = work.restore(self.served, *kept)
            except (ProvnetError, KeyError, TypeError, ValueError, IndexError) as error:
                LOG.warning("%s was kept and is not used: %s", name, error)
                continue
            self.progress[name] = replace(self.progress[name], state="ready", can=True)

    def result(self, name: str) -> Any | None:
        """What a job found, or None."""
        return self.results.get(name)

    def start(self, name: str) -> Progress:
        """Start a job unless it runs, is ready or cannot be done."""
        with self._lock:
            now = self.progress[name]
            if now.state in ("running", "ready") or not now.can:
                return now
            self.progress[name] = replace(now, state="running", words="waiting", done=0, total=0, error=None)
            threading.Thread(target=self._run, args=(name, WORK[name]), name=f"provnet-{name}", daemon=True).start()
            return self.progress[name]

    def stop(self) -> None:
        """Let work end at its next step."""
        self._stopping = True

    def _run(self, name: str, work: Work) -> None:
        with self._turn:
            begin = time.monotonic()

            def tell(title: str, total: int, done: int, _: str) -> None:
                if self._stopping:
                    raise StoppedError
                seconds = round(time.monotonic() - begin, 1)
                self._set(name, words=title, done=min(done, total), total=total, seconds=seconds)

            try:
                self._set(name, words="starting")
                with listening(tell):
                    found = work.do(self.served)
                arrays, about = work.store(found)
                self.keeping.write_arrays(name, arrays, about)
            except StoppedError:
                self._set(name, state="none", words="stopped")
            except ProvnetError as error:
                self._set(name, state="failed", error=str(error))
            except Exception as error:
                LOG.error("the job %s failed", name, exc_info=error)
                self._set(name, state="failed", error="the server failed at this; its log says why")
            else:
                self.results[name] = found
                self._set(name, state="ready", words="", seconds=round(time.monotonic() - begin, 1))

    def _set(self, name: str, **changes: Any) -> None:
        with self._lock:
            self.progress[name] = replace(self.progress[name], **changes)


Tell = Callable[[str, int, int, str], None]

"""Progress: a bar with the time left, or a line now and then where the output is no terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

Update = Callable[[int, str], None]
Listener = Callable[[str, int, int, str], None]  # title, total, done, text
_LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Tell a function of every bar that is made inside, enabled or not: for a face that shows progress its own way.

    >>> with listening(lambda title, total, done, text: print(title, f"{done} of {total}")):
    ...     with progress_bar("training", 10, enabled=False) as update:
    ...         update(1, "loss 0.5")
    training 1 of 10
    """
    before = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(before)


@contextmanager
def progress_bar(title: str, total: int, enabled: bool, every: int = 0) -> Iterator[Update]:
    """Give a function (steps done, text) that moves the bar; without `enabled` it does nothing.

    Where the output is no terminal it writes a line after `every` steps, or after each tenth if that takes a while.

    >>> with progress_bar("training", 10, enabled=False) as update:
    ...     update(1, "loss 0.5")
    """
    listener = _LISTENER.get()
    if listener is not None:
        yield partial(listener, title, total)
        return
    if not enabled:
        yield lambda done, text: None
        return
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines(console, title, total, every)
        return

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[text]}"),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(title, total=total, text="")
        yield lambda done, text: bar.update(task, completed=done, text=text)


PAUSE = 10.0  # seconds between lines, where no number of steps was asked for


class _Lines:
    """Writes a line now and then: what is done, the time left, and what was said last."""

    def __init__(self, console: Console, title: str, total: int, every: int) -> None:
        self.console, self.title, self.total, self.every = console, title, total, every
        self.began = self.last = time.perf_counter()
        self.written = 0

    def __call__(self, done: int, text: str) -> None:
        """A line, where one is due."""
        now = time.perf_counter()
        step = self.every or max(1, self.total // 10)
        if done // step == self.written or (not self.every and now - self.last < PAUSE):
            return
        self.written, self.last = done // step, now
        left = clock((now - self.began) / max(done, 1) * max(self.total - done, 0))
        words = f"{self.title} {done:,} of {self.total:,}, {left} left"
        self.console.print(f"{words}  {text}".rstrip(), highlight=False, markup=False, soft_wrap=True)


def clock(seconds: float) -> str:
    """A time as minutes and seconds, with hours where there are some.

    >>> clock(75), clock(3675)
    ('1:15', '1:01:15')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


LONG = 60.0  # seconds from which on a forecast is worth a line


def forecast(what: str, seconds: float, enabled: bool) -> None:
    """Say how long something will take on this machine, before it is begun; not what is done within a minute."""
    if enabled and seconds >= LONG and _LISTENER.get() is None:
        count = round(seconds / 60)
        words = "a minute" if count == 1 else f"{count:,} minutes"
        Console(stderr=True).print(f"{what} takes about {words} on this machine", highlight=False, markup=False)

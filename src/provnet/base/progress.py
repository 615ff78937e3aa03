"""The progress bar of training: loss, class accuracy, index accuracy, time left."""

from __future__ import annotations

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
def progress_bar(title: str, total: int, enabled: bool) -> Iterator[Update]:
    """Give a function (steps done, text) that moves the bar; without `enabled` it does nothing.

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

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[text]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=total, text="")
        yield lambda done, text: bar.update(task, completed=done, text=text)

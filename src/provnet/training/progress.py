"""The progress bar of training: loss, class accuracy, index accuracy, time left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Update = Callable[[int, str], None]


@contextmanager
def progress_bar(title: str, total: int, enabled: bool) -> Iterator[Update]:
    """Give a function (steps done, text) that moves the bar; without `enabled` it does nothing.

    >>> with progress_bar("training", 10, enabled=False) as update:
    ...     update(1, "loss 0.5")
    """
    if not enabled:
        yield lambda done, text: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

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

"""Ctrl-C and SIGTERM: the first asks for a checkpoint and a clean stop, the second stops at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stop:
    """Whether a signal asked training to stop."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """The signal handler."""
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


@contextmanager
def stop_on_signal(enabled: bool) -> Iterator[Stop]:
    """Catch the first SIGINT or SIGTERM in `Stop.asked`; handlers are put back at the end.

    >>> with stop_on_signal(enabled=True) as stop:
    ...     signal.raise_signal(signal.SIGTERM)
    ...     stop.asked
    True
    """
    stop = Stop()
    if not enabled or threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

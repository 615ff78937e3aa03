"""Ctrl-C, SIGTERM, SIGHUP: the first asks for a checkpoint and a clean stop, the second stops at once."""

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
    """Catch the first SIGINT, SIGTERM or SIGHUP in `Stop.asked`; handlers are put back at the end.

    >>> with stop_on_signal(enabled=True) as stop:
    ...     signal.raise_signal(signal.SIGTERM)
    ...     stop.asked
    True
    """
    stop = Stop()
    if not enabled or threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, stop) for number in _signals()}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _signals() -> list[signal.Signals]:
    """What asks to stop; SIGHUP not under nohup, which is there to outlive the terminal, nor where there is none."""
    hang_up = getattr(signal, "SIGHUP", None)
    if hang_up is None or signal.getsignal(hang_up) is signal.SIG_IGN:
        return [signal.SIGINT, signal.SIGTERM]
    return [signal.SIGINT, signal.SIGTERM, hang_up]

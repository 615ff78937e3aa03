"""When the next checkpoint is due."""

from __future__ import annotations

import time


class Clock:
    """Due not before `seconds`, nor before 20 times what the last checkpoint cost.

    >>> Clock(0.0).due(), Clock(3600.0).due()
    (True, False)
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = self.wait = seconds
        self.asked = self.last = time.monotonic()

    def due(self) -> bool:
        """Whether it is time."""
        self.asked = time.monotonic()
        return self.asked - self.last >= self.wait

    def reset(self) -> None:
        """A checkpoint was written since `due` was asked."""
        self.last = time.monotonic()
        cost = self.last - self.asked
        self.wait = max(self.seconds, 20 * cost) if self.seconds > 0 else 0.0

"""Which training and test pictures were shown, and when: a line each, for whoever must account for them later."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

from provnet.app.keeping import Keeping

NAME, BEFORE = "shown.csv", "shown-before.csv"
LARGEST = 5_000_000  # bytes; then the file becomes the one before, which is replaced


class ShownLog:
    """Appends to a file beside the run; where none may be written nothing is logged."""

    def __init__(self, keeping: Keeping, largest: int = LARGEST) -> None:
        self.path = None if keeping.folder is None else keeping.folder / NAME
        self.largest = largest
        self._lock = threading.Lock()

    def add(self, hashes: Iterable[str]) -> None:
        """Note that pictures were shown; a disk that is full does not keep anybody from seeing them."""
        lines = [f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())},{key}\n" for key in hashes]
        if self.path is None or not lines:
            return
        with self._lock:
            try:
                if self.path.exists() and self.path.stat().st_size > self.largest:
                    self.path.replace(self.path.with_name(BEFORE))
                new = not self.path.exists()
                with self.path.open("a", encoding="ascii") as file:
                    file.writelines([*(["time,sha256\n"] if new else []), *lines])
            except OSError:
                return

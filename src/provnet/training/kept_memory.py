"""Memory that a training step frees stays with the process until training ends.

A step frees all it made, and glibc gives blocks of that size back to the system at once; the next step then has every
page of them cleared again, which takes about a quarter of the processor time of training on a CPU.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # names of mallopt's parameters in malloc.h
LARGEST = 2**27  # bytes of a block: a larger one that found no hole of its size could take much more than there is
KEPT = 2**30  # bytes of free memory
USUAL = 2**25  # bytes: where glibc's own thresholds end up in a process that frees large blocks, trimming at twice that
SET_BY_USER = ("GLIBC_TUNABLES", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")


@contextmanager
def kept_memory() -> Iterator[None]:
    """Keep freed memory for the next step; afterwards what is free goes back to the system.

    Nothing happens where memory is not glibc's (macOS, Windows, musl), or where its thresholds are set from outside.

    >>> with kept_memory():
    ...     pass
    """
    if platform.libc_ver()[0] != "glibc" or any(name in os.environ for name in SET_BY_USER):
        yield
        return
    libc = ctypes.CDLL(None)
    _thresholds(libc, LARGEST, KEPT)
    try:
        yield
    finally:
        _thresholds(libc, USUAL, 2 * USUAL)
        libc.malloc_trim(0)


def _thresholds(libc: ctypes.CDLL, mmap: int, trim: int) -> None:
    """Older versions of glibc refuse more than USUAL for single blocks."""
    libc.mallopt(MMAP_THRESHOLD, mmap) or libc.mallopt(MMAP_THRESHOLD, USUAL)
    libc.mallopt(TRIM_THRESHOLD, trim)

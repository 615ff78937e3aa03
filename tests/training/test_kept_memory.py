"""Memory that a step frees is kept while training goes on, and given back when it is over."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import pytest

from provnet.training import fit as fitting
from provnet.training.setup import SET_BY_USER
from tests.fitting import fit

from .made import pictures, recipe

# in a process of its own: thresholds are those of a whole process, and so are the pages that it was given
PROGRAM = """
import resource
import torch
from provnet.training.setup import kept_memory

def pages(times):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(times):
        torch.ones(40 * 2**18)  # 40 MB, 10,240 pages of 4 KB
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

print(pages(30))
with kept_memory():
    pages(10)  # the heap grows a few times: blocks must be aligned, and small ones lie between them
    print(pages(30))
    held = resident()
print(held - resident())
"""


@cache
def counted(*environment: tuple[str, str]) -> list[int]:
    """Pages cleared before and meanwhile; bytes given back at the end."""
    if platform.libc_ver()[0] != "glibc":
        pytest.skip("glibc keeps memory so, and this is another C library")
    given = {name: value for name, value in os.environ.items() if name not in SET_BY_USER} | dict(environment)
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, env=given)
    return [int(line) for line in done.stdout.split()]


def test_the_same_memory_serves_step_after_step() -> None:
    before, meanwhile, _ = counted()
    assert before > 30 * 10_000  # each time anew
    assert meanwhile < before / 3


def test_what_is_free_goes_back_at_the_end() -> None:
    assert counted()[2] > 30e6


def test_thresholds_set_from_outside_stay() -> None:
    before, meanwhile, _ = counted(("MALLOC_MMAP_THRESHOLD_", "1000000"))
    assert meanwhile > before / 2


@pytest.mark.parametrize("failing", [False, True])
def test_training_keeps_it_until_it_ends_however_it_ends(monkeypatch: pytest.MonkeyPatch, failing: bool) -> None:
    said = []

    @contextmanager
    def noted() -> Iterator[None]:
        said.append("kept")
        try:
            yield
        finally:
            said.append("given back")

    def stop(row: object) -> None:
        assert said == ["kept"]
        if failing:
            raise KeyError

    monkeypatch.setattr(fitting, "kept_memory", noted)
    try:
        fit(pictures(), config=recipe(), device="cpu", on_epoch=stop)
    except KeyError:
        assert failing
    assert said == ["kept", "given back"]

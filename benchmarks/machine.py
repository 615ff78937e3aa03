"""What a result was measured on and what that machine can do at best, for every benchmark's JSON.

    python benchmarks/machine.py [--out FILE]

A rate is the fastest that a few plain ways reached in a few tries, so that it is a limit and not an average: bytes read
from an array that fits the cache (30.7 MB, the keys of 60,000 samples) and from one that does not, and operations of a
matrix product; with one thread and with all cores, and on the GPU where there is one; bytes hashed by SHA-256.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

import provnet
from provnet_paper.store import processor

SMALL, LARGE = 60_000 * 128, 2**27  # fp32 values: the keys of MNIST, and half a gigabyte
TRIED = 0.3  # seconds of trying


def machine(rates: bool = True) -> dict[str, Any]:
    """Device, threads, versions and the commit of the source, with what the machine can do."""
    here = Path(__file__).resolve().parent

    def git(*words: str) -> str:
        found = subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, check=False)
        return found.stdout.strip()

    return {
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "provnet": provnet.__version__,
        "commit": git("rev-parse", "HEAD") or None,
        "dirty": bool(git("status", "--porcelain", "--untracked-files=no")),
    } | ({"rates": all_rates()} if rates else {})


def all_rates() -> dict[str, Any]:
    """What one thread, all cores, the GPU and SHA-256 reach."""
    before, cores = torch.get_num_threads(), os.cpu_count() or 1
    found: dict[str, Any] = {}
    for threads in sorted({1, cores}):
        torch.set_num_threads(threads)
        found[f"cpu, {threads} threads" if threads > 1 else "cpu, 1 thread"] = cpu_rates()
    torch.set_num_threads(before)
    if torch.cuda.is_available():
        found["cuda"] = cuda_rates()
    blob = bytes(2**25)
    found["sha256_gb_s"] = rounded(len(blob) / fastest(lambda: hashlib.sha256(blob)) / 1e9)
    return found


def cpu_rates(small: int = SMALL, large: int = LARGE, side: int = 1536, tried: float = TRIED) -> dict[str, float]:
    """Gigabytes read and billions of operations of a fp32 matrix product a second, with the threads that torch has.

    >>> sorted(cpu_rates(1024, 1024, 16, tried=0.01))
    ['cached_gb_s', 'memory_gb_s', 'product_gflop_s']
    """
    return {
        "cached_gb_s": reading(torch.rand(small), tried),
        "memory_gb_s": reading(torch.rand(large), tried),
        "product_gflop_s": product(torch.rand(side, side), tried),
    }


def cuda_rates() -> dict[str, float]:
    """The same of a GPU, by type of number; what it took is given back."""
    found = {"memory_gb_s": reading(torch.rand(2**29, device="cuda"))}
    square, before = torch.rand(8192, 8192, device="cuda"), torch.get_float32_matmul_precision()
    for name, precision in (("fp32", "highest"), ("tf32", "high")):
        torch.set_float32_matmul_precision(precision)
        found[f"{name}_gflop_s"] = product(square)
    torch.set_float32_matmul_precision(before)
    found["bf16_gflop_s"] = product(square.bfloat16())
    del square
    host, goal = torch.ones(2**28, pin_memory=True), torch.empty(2**28, device="cuda")
    found["host_to_device_gb_s"] = rounded(host.nbytes / fastest(partial(goal.copy_, host, non_blocking=True)) / 1e9)
    del goal
    torch.cuda.empty_cache()
    return found


def reading(values: torch.Tensor, tried: float = TRIED) -> float:
    """Gigabytes a second of whatever reads fastest: a sum, a maximum, a product with itself."""
    ways = (values.sum, values.amax, lambda: torch.dot(values, values))
    return rounded(values.nbytes / min(fastest(way, tried) for way in ways) / 1e9)


def product(square: torch.Tensor, tried: float = TRIED) -> float:
    """Billions of multiplications and additions a second of a square by itself."""
    out = torch.empty_like(square)
    return rounded(2 * len(square) ** 3 / fastest(lambda: torch.mm(square, square, out=out), tried) / 1e9)


def fastest(work: Callable[[], object], tried: float = TRIED) -> float:
    """Seconds of the fastest try, of as many as the time for trying holds, after one that does not count.

    With one thread and no GPU it is processor time, which does not count while others have the core.
    """
    alone = torch.get_num_threads() == 1 and not torch.cuda.is_available()
    now = time.process_time if alone else time.perf_counter
    times: list[float] = []
    while len(times) < 4 or sum(times) < tried:
        start = now()
        work()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.append(now() - start)
    return min(times[1:])


def rounded(value: float) -> float:
    """Four digits."""
    return float(f"{value:.4g}")


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=None)
    given = parser.parse_args()
    text = json.dumps(machine(), indent=1)
    print(text)
    if given.out is not None:
        given.out.write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()

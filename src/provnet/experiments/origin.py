"""Where a result comes from: commit of the source, whether it was changed, device, versions."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import provnet
from provnet.errors import UsageError, one_of

COMMIT = "PROVNET_COMMIT"  # for machines that have the source without its history; a + at its end says: with changes


@cache
def origin(device: str) -> dict[str, Any]:
    """Everything beside config and seed that a figure may depend on; `device` is `cpu` or `cuda`.

    >>> sorted(origin("cpu"))[:4]
    ['commit', 'cores', 'device', 'dirty']
    """
    import torch

    commit, dirty = _commit()
    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else f"cpu, {processor()}",
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "provnet": provnet.__version__,
        "commit": commit,
        "dirty": dirty,
        "source_sha256": source_sha256(),
    }


def resolved(device: str) -> str:
    """`cpu` or `cuda`, for a name that may be `auto`.

    >>> resolved("cpu")
    'cpu'
    """
    import torch

    from provnet.training.setup import DEVICES

    one_of("device", device, DEVICES)
    if device == "cuda" and not torch.cuda.is_available():
        raise UsageError('device "cuda" was asked for, but no GPU is visible; use --device cpu')
    return ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device


def free_memory() -> None:
    """Give back what the last network held on a GPU, so that the next one finds all of it free."""
    import gc

    import torch

    if torch.cuda.is_available():
        gc.collect()
        torch.cuda.empty_cache()


def _commit() -> tuple[str | None, bool | None]:
    """The commit and whether tracked files differ from it; None where nothing says so (an installed wheel)."""
    given = os.environ.get(COMMIT)
    if given:
        return given.rstrip("+"), given.endswith("+")
    folder = Path(__file__).resolve().parents[3]
    if not (folder / ".git").exists():
        return None, None

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    try:
        return git("rev-parse", "HEAD") or None, bool(git("status", "--porcelain", "--", "src"))
    except OSError:  # no git on this machine
        return None, None


def source_sha256() -> str:
    """A hash over all source files of provnet: equal hashes mean equal code, with or without git.

    >>> len(source_sha256())
    64
    """
    root = Path(provnet.__file__).parent
    whole = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        whole.update(path.relative_to(root).as_posix().encode() + b"\0")
        whole.update(hashlib.sha256(path.read_bytes()).digest())
    return whole.hexdigest()


def processor() -> str:
    """The processor's name where the system says it."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()

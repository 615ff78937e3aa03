"""FeatureMemory: features of a frozen backbone, kept by the hash of the picture that it got and of its weights.

A picture is known by the SHA-256 of its values as the backbone receives them, so another view of it (another size, fit
or mode) is another entry. Every file is checked by its own SHA-256 when it is read; a damaged one is left out with a
warning. Whoever can write to the folder can change what it says: it belongs into a folder of one's own.

Letters: B batch, D features.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from torch import Tensor

from provnet.base.atomic import remove, write_bytes
from provnet.base.errors import ProvnetError
from provnet.base.files import DataWarning, shown

FORMAT = "provnet features 1"
MOST = 500_000  # pictures that are remembered
PARTS = 8  # files before they are joined into one


def cache_folder() -> Path:
    """$PROVNET_CACHE, else ~/.cache/provnet."""
    given = os.environ.get("PROVNET_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "provnet"


class FeatureMemory:
    """What a backbone of one set of weights made of pictures: in this process, and in files of a folder.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first = FeatureMemory(Path(folder), "of these weights")
    ...     _ = first(lambda x: x.flatten(1) * 2, torch.ones(1, 3, 2, 2))
    ...     first.save()
    ...     again = FeatureMemory(Path(folder), "of these weights")
    ...     again(lambda x: x.flatten(1) * 0, torch.ones(1, 3, 2, 2))[0, 0].item()
    2.0
    """

    def __init__(self, folder: Path, weights: str) -> None:
        self.folder, self.key = folder, hashlib.sha256(f"{FORMAT} {weights}".encode()).hexdigest()[:32]
        self._known: dict[bytes, np.ndarray] = {}
        self._new: list[bytes] = []
        self._files = sorted(folder.glob(f"features-{self.key}-*.safetensors"))
        for path in self._files:
            self._read(path)

    def __call__(self, make: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """(B, ...) values on the CPU -> (B, D), of which only the unknown are made."""
        names = [hashlib.sha256(one.data).digest() for one in x.detach().contiguous().numpy()]
        unknown = [row for row, name in enumerate(names) if name not in self._known]
        fresh: dict[bytes, np.ndarray] = {}
        if unknown:
            made = make(x if len(unknown) == len(x) else x[unknown])
            fresh = {names[row]: one.copy() for row, one in zip(unknown, made.detach().numpy(), strict=True)}
            if len(self._known) < MOST:
                self._known.update(fresh)
                self._new += list(fresh)
        return torch.from_numpy(np.stack([fresh[name] if name in fresh else self._known[name] for name in names]))

    def save(self) -> None:
        """Write what is new; a failure is a warning, no error."""
        if not self._new:
            return
        join = len(self._files) >= PARTS
        names = list(self._known if join else dict.fromkeys(self._new))
        rows = np.frombuffer(b"".join(names), np.uint8).reshape(-1, 32)
        features = np.stack([self._known[name] for name in names])
        raw = save({"hashes": rows, "features": features}, {"sha256": self._digest(rows, features), "format": FORMAT})
        goal = self.folder / f"features-{self.key}-{time.time_ns():020}-{secrets.token_hex(4)}.safetensors"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_bytes(goal, raw)
        except (ProvnetError, OSError) as error:
            warnings.warn(f"features were not kept for the next time: {error}", DataWarning, stacklevel=3)
            return
        for path in self._files if join else ():
            remove(path)
        self._files, self._new = [*([] if join else self._files), goal], []

    def _read(self, path: Path) -> None:
        try:
            with safe_open(path, framework="numpy") as file:
                rows, features = file.get_tensor("hashes"), file.get_tensor("features")
                stated = (file.metadata() or {}).get("sha256")
            if rows.dtype != np.uint8 or rows.shape != (len(features), 32) or features.dtype != np.float32:
                raise ValueError("it holds something else")
            if stated != self._digest(rows, features):
                raise ValueError("its SHA-256 is another")
        except FileNotFoundError:
            return  # another process joined the files meanwhile
        except (OSError, ValueError, SafetensorError) as error:
            why = shown(" ".join(str(error).split()))
            text = f"{shown(str(path))} holds no features that can be used ({why}); they are made anew"
            warnings.warn(text, DataWarning, stacklevel=3)
            return
        self._known.update(zip((row.tobytes() for row in rows), features, strict=True))

    def _digest(self, rows: np.ndarray, features: np.ndarray) -> str:
        digest = hashlib.sha256(f"{FORMAT} {self.key} {features.shape}\n".encode())
        digest.update(np.ascontiguousarray(rows).data)
        digest.update(np.ascontiguousarray(features).data)
        return digest.hexdigest()

"""What a stranger puts into a run, and the error that it must meet."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from provnet.base.errors import ProvnetError
from provnet.runs.run import read_run

from .made import remake_manifest


def refused(folder: Path, code: int | tuple[int, ...], *words: str) -> None:
    with pytest.raises(ProvnetError) as caught:
        read_run(folder)
    codes = code if isinstance(code, tuple) else (code,)
    message = str(caught.value)
    assert caught.value.exit_code in codes, message
    assert all(word in message for word in words), message
    assert message.isprintable(), message


def container(header: bytes | dict[str, Any], data: bytes = b"") -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + data


def entry(dtype: str = "F32", shape: Any = (1,), offsets: Any = (0, 4)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


class Touch:
    """Runs code when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.path}",)


def change_tensors(path: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    tensors = {key: value.clone() for key, value in safetensors.torch.load_file(path).items()}
    change(tensors)
    safetensors.torch.save_file(tensors, path)


def change_config(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))
    remake_manifest(folder)

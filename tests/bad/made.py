"""Makers of bad inputs, and of the circumstances that they meet: no permission, no room, little memory."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from provnet.data.open import reopen
from provnet.runs.run import read_samples
from provnet.training import fit as fitting
from tests.data.made import chunk, noise, png, write_folder

from .entry import Entry, Place, Said

NETWORK = ("--network", "class-independent", "--backbone", "mlp")
STEPS = ("--epochs", "2", "--batch-size", "8", "--checkpoint-seconds", "0")  # 20 samples: 3 steps an epoch
SIDE = 12


def digits(seed: int = 0) -> dict[str, np.ndarray]:
    """Four classes of five training pictures and one test picture; `digits` by name only."""
    names = [f"train/digit-{label}/{i}.png" for label in range(4) for i in range(5)]
    names += [f"test/digit-{label}/0.png" for label in range(4)]
    return {name: noise((SIDE, SIDE), 100 * seed + number) for number, name in enumerate(names)}


def folder(place: Place, extra: Mapping[str, np.ndarray | bytes], colour: bool = False) -> Path:
    """A folder of six good pictures in two classes, and the others given."""
    shape = (SIDE, SIDE, 3) if colour else (SIDE, SIDE)
    good = {f"{label}/{i}.png": noise(shape, 10 * i + ord(label)) for label in "ab" for i in range(3)}
    return write_folder(place.tmp / "data", {**good, **extra})


def train(place: Place, data: Path, *options: object) -> list[object]:
    """The command that trains one epoch on some data."""
    return ["train", data, "--out", place.out, *NETWORK, "--epochs", 1, *options]


def refused(row: int, words: str, name: str, blob: bytes | np.ndarray, *says: str) -> list[Entry]:
    """A bad picture: refused by name when training, left out and counted with --skip-bad, refused when explaining."""

    def given(place: Place) -> list[object]:
        return train(place, folder(place, {f"a/{name}": blob}))

    def skipped(place: Place) -> list[object]:
        return train(place, folder(place, {f"a/{name}": blob}), "--skip-bad")

    def asked(place: Place) -> list[object]:
        return ["explain", place.kit.run, write_folder(place.tmp, {name: blob}) / name]

    left_out = f"1 bad file left out; the first: a/{name}: "
    return [
        Entry(row, words, given, 3, (f"a/{name}: ", *says)),
        Entry(row, f"{words}, --skip-bad", skipped, 0, (left_out, *says), lambda place, _: has_samples(place, 6)),
        Entry(row, f"{words}, to be explained", asked, 3, (name, *says)),
    ]


def accepted(
    row: int, words: str, name: str, blob: bytes, golden: Any, *options: object, colour: bool = False
) -> Entry:
    """A picture that must be read: training goes through, and the network received exactly the golden pixels."""

    def after(place: Place, _: Said) -> None:
        has_pixels(
            place, f"a/{name}", np.broadcast_to(np.asarray(golden, np.uint8).T, (3 if colour else 1, SIDE, SIDE))
        )

    return Entry(row, words, lambda p: train(p, folder(p, {f"a/{name}": blob}, colour), *options), after=after)


def has_samples(place: Place, count: int) -> None:
    assert len(read_samples(place.out)[1]) == count


def has_pixels(place: Place, sample_id: str, planes: np.ndarray) -> None:
    """Whether the run in `out` was trained on exactly these pixels (C, H, W) under that id."""
    config, samples = read_samples(place.out)
    assert config.data is not None
    data = reopen(config.data)
    index = data.samples.id_places[sample_id]
    assert (data.inputs[index].numpy() == planes).all()
    assert (data.samples.pixel_sha256[index] == samples.pixel_sha256[samples.id_places[sample_id]]).all()


def text_chunk(kind: bytes, size: int) -> bytes:
    """A PNG with a text that unpacks to that many bytes."""
    packer = zlib.compressobj(1)
    packed = b"".join(packer.compress(bytes(2**20)) for _ in range(size >> 20)) + packer.flush()
    head = {b"zTXt": b"note\0\0", b"iTXt": b"note\0\1\0\0\0"}[kind]
    return png(SIDE, SIDE, before=chunk(kind, head + packed))


def container(header: bytes, data: bytes = b"") -> bytes:
    """A safetensors file with that header."""
    return struct.pack("<Q", len(header)) + header + data


@contextmanager
def interrupted(at: int, number: int = signal.SIGINT, times: int = 1) -> Iterator[None]:
    """Within, training gets a signal just before the checkpoint after step `at` is written."""
    real: Callable[..., Any] = fitting.save_checkpoint

    def save(folder: Path, net: Any, optimizer: Any, state: Any, *rest: Any) -> Any:
        if state.step == at:
            for _ in range(times):
                signal.raise_signal(number)
        return real(folder, net, optimizer, state, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "save_checkpoint", save)
        yield


@contextmanager
def plain_user() -> Iterator[None]:
    """Within, permissions hold for root as well: two capabilities are laid down, and taken up again."""
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    version = (ctypes.c_uint32 * 2)(0x20080522, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable: low words, then high words
    assert libc.capget(version, sets) == 0
    before = sets[0]
    sets[0] &= ~0b110  # to read and write whatever the mode says
    assert libc.capset(version, sets) == 0
    try:
        yield
    finally:
        sets[0] = before
        assert libc.capset(version, sets) == 0


@contextmanager
def small_files(most: int) -> Iterator[None]:
    """Within, no file can grow past a size: to a writer this looks like a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def little_memory(most: int) -> Iterator[None]:
    """Within, resident memory may grow by so many bytes at its peak, no more (measured where Linux can)."""
    reset = Path("/proc/self/clear_refs")
    if not os.access(reset, os.W_OK):
        yield
        return
    reset.write_text("5")
    start = _status("VmRSS")
    yield
    assert _status("VmHWM") - start < most


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))

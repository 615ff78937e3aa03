"""Rows 52 to 55: files of a run that are foreign or damaged."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tests.modelfile.made import remake_manifest

from .entry import Entry, Place
from .made import little_memory

MODEL, CONFIG, SAMPLES, MANIFEST = "model.safetensors", "config.json", "samples.safetensors", "manifest.json"

FILES = (MODEL, CONFIG, SAMPLES, "history.safetensors", "README.md", MANIFEST)

Change = Callable[[bytes], bytes]


class Touch:
    """Runs code when it is unpickled: makes the file `ran`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.folder / "ran",)


def damaged(
    name: str, change: Change, command: str = "info", *, forged: bool = False
) -> Callable[[Place], list[object]]:
    """A run with one file changed; `forged`: its manifest fits the change."""

    def given(place: Place) -> list[object]:
        run = place.run()
        path = run / name
        path.write_bytes(change(path.read_bytes()))
        if forged:
            remake_manifest(run)
        query = [place.kit.data / "test" / "digit-0" / "0.png"] if command == "explain" else []
        return [command, run, *query]

    return given


def forged(
    row: int, words: str, name: str, change: Change, code: int, *says: str, memory: int | None = None
) -> list[Entry]:
    """Refused although the manifest fits, by every command that reads a run."""

    def given(place: Place, command: str) -> list[object]:
        made = damaged(name, change, command, forged=True)(place)
        if memory is not None:
            place.stack.enter_context(little_memory(memory))
        return made

    return [
        Entry(row, f"{words}, {command}", lambda p, c=command: given(p, c), code, (name, *says))  # type: ignore[misc]
        for command in ("info", "explain", "verify")
    ]


def flip(at: float) -> Change:
    """One bit, at a share of the file."""

    def change(raw: bytes) -> bytes:
        place = min(int(len(raw) * at), len(raw) - 1)
        return raw[:place] + bytes([raw[place] ^ 4]) + raw[place + 1 :]

    return change


def pickled(place: Place) -> list[object]:
    run = place.run()
    (run / MODEL).write_bytes(pickle.dumps(Touch(place.tmp)))
    remake_manifest(run)
    return ["info", run]


def torch_file(place: Place, name: str, new: bool) -> list[object]:
    torch.save({"weight": Touch(place.tmp)}, place.tmp / name, _use_new_zipfile_serialization=new)
    return ["info", place.tmp / name]


def torch_folder(place: Place) -> list[object]:
    (place.tmp / "hub").mkdir()
    torch.save({"weight": Touch(place.tmp)}, place.tmp / "hub" / "pytorch_model.bin")
    return ["explain", place.tmp / "hub", place.kit.data / "test" / "digit-0" / "0.png"]


def torch_data(place: Place) -> list[object]:
    torch.save(Touch(place.tmp), place.tmp / "data.pt")
    return ["train", place.tmp / "data.pt", "--out", place.out]


ROWS = [
    Entry(52, "pickle named .safetensors", pickled, 7, (MODEL, "pickle", "safetensors")),
    *forged(52, "pickle of protocol 0", MODEL, lambda _: pickle.dumps({"a": [1]}, 0), 7, "pickle"),
    *forged(52, "pickle named config.json", CONFIG, lambda _: pickle.dumps({"a": [1]}), 7, "pickle"),
    Entry(
        53, ".pt offered", lambda p: torch_file(p, "model.pt", new=True), 7, ("model.pt", "zip", "export the weights")
    ),
    Entry(
        53,
        ".pth of old offered",
        lambda p: torch_file(p, "model.pth", new=False),
        7,
        ("model.pth", "export the weights"),
    ),
    Entry(53, "folder of a .bin offered", torch_folder, 7, ("pytorch_model.bin", "export the weights")),
    Entry(53, ".pt offered as data", torch_data, 7, ("data.pt", "never opened", "numpy.savez")),
    *(
        Entry(54, f"flipped bit in {name} at {at:.0%}", damaged(name, flip(at), command), 6, (name,))
        for name in FILES
        for at, command in ((0.0, "info"), (0.5, "explain"), (0.999, "verify"))
    ),
    *(Entry(55, f"{name} cut by a byte", damaged(name, lambda raw: raw[:-1]), 6, (name,)) for name in FILES),
    *(Entry(55, f"{name} cut in half", damaged(name, lambda raw: raw[: len(raw) // 2]), 6, (name,)) for name in FILES),
    *(Entry(55, f"{name} empty", damaged(name, lambda raw: b""), 6, (name,)) for name in FILES),
    *(Entry(55, f"{name} with a byte more", damaged(name, lambda raw: raw + b"\0"), 6, (name,)) for name in FILES),
    *forged(55, "empty, forged", MODEL, lambda _: b"", 6, "too few"),
    *forged(55, "cut, forged", MODEL, lambda raw: raw[:-9], 6, "is damaged"),
    *forged(55, "a byte more, forged", MODEL, lambda raw: raw + b"\0", 6, "is damaged"),
]

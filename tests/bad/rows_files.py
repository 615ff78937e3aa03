"""Rows 52 to 66: files of a run that are foreign, damaged or made to do harm."""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from provnet.modelfile import read_samples
from provnet.samplefile import samples_to_tensors
from tests.modelfile.made import remake_manifest

from .entry import Entry, Place
from .made import container, little_memory

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


def configured(change: Callable[[dict[str, Any]], object]) -> Change:
    """config.json with something else in it."""

    def edit(raw: bytes) -> bytes:
        value = json.loads(raw)
        change(value)
        return json.dumps(value).encode()

    return edit


def weights(change: Callable[[dict[str, torch.Tensor]], object]) -> Change:
    def edit(raw: bytes) -> bytes:
        tensors = safetensors.torch.load(raw)
        change(tensors)
        return safetensors.torch.save(tensors)

    return edit


def poison(value: float) -> Change:
    def edit(tensors: dict[str, torch.Tensor]) -> None:
        tensors["index_head.linear.weight"][0, 0] = value

    return weights(edit)


def cut_row(tensors: dict[str, torch.Tensor]) -> None:
    name = "class_head.linear.weight"
    name = name if name in tensors else next(n for n in tensors if n.endswith("weight") and "index" not in n)
    tensors[name] = tensors[name][:-1].contiguous()


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


def huge(name: str) -> Callable[[Place], list[object]]:
    """A file of 1 GiB that takes no room on the disk, a JSON string as far as anybody has read."""

    def given(place: Place) -> list[object]:
        run = place.run()
        with (run / name).open("wb") as file:
            file.write(b'{"a": "')
            file.truncate(2**30)
        if name != MANIFEST:
            real = json.loads((place.kit.run / MANIFEST).read_bytes())["files"]
            real[name] = {"sha256": "0" * 64, "bytes": 2**30}
            write_manifest(run, real)
        place.stack.enter_context(little_memory(64 << 20))
        return ["info", run]

    return given


def write_manifest(run: Path, files: dict[str, Any]) -> None:
    """A manifest that says what it is told, true or not."""
    (run / CONFIG).rename(run / "aside")
    (run / CONFIG).write_bytes(b"")  # what is hashed here is replaced below
    remake_manifest(run, lambda content: content.update(files=files))
    (run / "aside").rename(run / CONFIG)


def versioned(version: object) -> Callable[[Place], list[object]]:
    def given(place: Place) -> list[object]:
        run = place.run()
        remake_manifest(run, lambda content: content.update(format_version=version))
        return ["info", run]

    return given


def resampled(rows: Callable[[int], list[int]]) -> Callable[[Place], list[object]]:
    """The sample table with some rows only, or some of them again under other names."""

    def given(place: Place) -> list[object]:
        run = place.run()
        samples = read_samples(run)[1]
        chosen = rows(len(samples))
        tensors = samples_to_tensors(samples.select(torch.tensor(sorted(set(chosen))).numpy()))
        if len(chosen) > len(set(chosen)):
            tensors = samples_to_tensors(_with_twin(samples))
        safetensors.torch.save_file(tensors, run / SAMPLES)
        remake_manifest(run)
        return ["info", run]

    return given


def _with_twin(samples: Any) -> Any:
    """One sample more."""
    import dataclasses

    import numpy as np

    twice = {
        name: np.concatenate([getattr(samples, name), getattr(samples, name)[-1:]])
        for name in ("sha256", "pixel_sha256", "labels")
    }
    texts = {name: (*getattr(samples, name), getattr(samples, name)[-1]) for name in ("paths", "sources")}
    return dataclasses.replace(
        samples, **twice, **texts, sample_ids=(*samples.sample_ids, "one more"), withheld=None, added=None
    )


DEEP = b'{"a":' + b"[" * 10_000 + b"]" * 10_000 + b"}"
MANY = b"{" + b",".join(b'"%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}' % i for i in range(1_000_000)) + b"}"
TWICE = b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'
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
    *forged(56, "header of 2^63 bytes", MODEL, lambda _: struct.pack("<Q", 2**63) + b"{}", 7, "at most 1,000,000"),
    *forged(57, "header of a million tensors", MODEL, lambda _: container(MANY), 7, "at most", memory=100 << 20),
    *forged(
        57,
        "header of 3,000 tensors",
        MODEL,
        lambda _: container(MANY[: MANY.index(b',"3000"')] + b"}"),
        7,
        "3,000 tensors",
    ),
    *forged(58, "one tensor twice", MODEL, lambda _: container(TWICE, b"\0"), 7, "occurs twice"),
    *forged(
        58,
        "one key of the config twice",
        CONFIG,
        lambda raw: raw.replace(b"{", b'{"data": null,', 1),
        7,
        "occurs twice",
    ),
    *forged(59, "NaN among the weights", MODEL, poison(float("nan")), 6, "index_head.linear.weight", "NaN or infinity"),
    *forged(
        59, "infinity among the weights", MODEL, poison(float("inf")), 6, "index_head.linear.weight", "NaN or infinity"
    ),
    *forged(60, "weights of another shape", MODEL, weights(cut_row), 6, "expected F32"),
    *forged(
        60, "tensor missing", MODEL, weights(lambda t: t.pop("index_head.linear.bias")), 6, "index_head.linear.bias"
    ),
    *forged(60, "tensor too many", MODEL, weights(lambda t: t.update(more=torch.zeros(1))), 6, "more"),
    *forged(60, "config of other sides", CONFIG, configured(lambda c: c["network"].update(input_shape=[1, 9, 9])), 6)[
        :0
    ],
    *forged(
        61,
        "unknown backbone",
        CONFIG,
        configured(lambda c: c["network"].update(backbone="resnet5000")),
        6,
        "resnet5000",
    ),
    *forged(
        61,
        "backbone by module path",
        CONFIG,
        configured(lambda c: c["network"].update(backbone="os.system")),
        6,
        "os.system",
    ),
    *forged(
        61,
        "network by module path",
        CONFIG,
        configured(lambda c: c["network"].update(network="builtins:exec")),
        6,
        "builtins",
    ),
    *forged(
        61, "setting that nobody knows", CONFIG, configured(lambda c: c["network"].update(module="os")), 6, "module"
    ),
    *forged(62, "10,000-deep config", CONFIG, lambda _: DEEP, 7, "nested 10,0", "deep"),
    *forged(62, "10,000-deep header", MODEL, lambda _: container(DEEP), 7, "nested 10,0", "deep"),
    Entry(62, "10,000-deep manifest", damaged(MANIFEST, lambda _: DEEP), 7, (MANIFEST, "deep")),
    Entry(63, "config of 1 GiB", huge(CONFIG), 7, (CONFIG, "1,073,741,824 bytes", "at most 1,000,000")),
    Entry(63, "manifest of 1 GiB", huge(MANIFEST), 7, (MANIFEST, "1,073,741,824 bytes", "at most 1,000,000")),
    *forged(
        63, "string of 70,000", CONFIG, configured(lambda c: c["versions"].update(x="y" * 70_000)), 7, "at most 65,536"
    ),
    Entry(65, "newer format", versioned(2), 6, (MANIFEST, "format 2", "up to format 1", "upgrade")),
    Entry(65, "format far away", versioned(2**60), 6, (MANIFEST, "format 1152921504606846976", "up to format 1")),
    Entry(65, "format of text", versioned("2"), 6, (MANIFEST, "format_version")),
    Entry(
        66, "fewer samples than rows", resampled(lambda n: list(range(n - 1))), 6, ("19 samples", "19 rows", "has 20")
    ),
    Entry(66, "more samples than rows", resampled(lambda n: [*range(n), 0]), 6, ("21 samples", "21 rows", "has 20")),
]

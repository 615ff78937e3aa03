"""Rows 56 to 66: files of a run made to do harm, most with a manifest that fits them."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from provnet.runs.files import samples_to_tensors
from provnet.runs.run import read_samples
from tests.modelfile.made import remake_manifest

from .entry import Entry, Place
from .made import container, little_memory
from .rows_files import CONFIG, MANIFEST, MODEL, SAMPLES, Change, damaged, forged


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
        tensors["index_head.keys"][0, 0] = value

    return weights(edit)


def cut_row(tensors: dict[str, torch.Tensor]) -> None:
    name = "class_head.linear.weight"
    name = name if name in tensors else next(n for n in tensors if n.endswith("weight") and "index" not in n)
    tensors[name] = tensors[name][:-1].contiguous()


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
    *forged(59, "NaN among the weights", MODEL, poison(float("nan")), 6, "index_head.keys", "NaN or infinity"),
    *forged(59, "infinity among the weights", MODEL, poison(float("inf")), 6, "index_head.keys", "NaN or infinity"),
    *forged(60, "weights of another shape", MODEL, weights(cut_row), 6, "expected F32"),
    *forged(60, "tensor missing", MODEL, weights(lambda t: t.pop("index_head.keys")), 6, "index_head.keys"),
    *forged(60, "tensor too many", MODEL, weights(lambda t: t.update(more=torch.zeros(1))), 6, "more"),
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
    Entry(66, "fewer samples than rows", resampled(lambda n: list(range(n - 1))), 6, ("19 samples", "data 20")),
    Entry(66, "more samples than rows", resampled(lambda n: [*range(n), 0]), 6, ("21 samples", "data 20")),
]

"""SampleTable as tensors: labels, hashes, flags where one is set, and texts as one UTF-8 blob with offsets each.

Texts are kept exactly, unpaired surrogates of odd file names included; None is kept apart from the empty text.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from provnet.data.identity import FLAGS, SampleTable
from provnet.errors import DataError, IntegrityError
from provnet.safefile import Layout, compare_layouts, read_layouts, read_tensors

SAMPLES = 20_000_000  # the most samples that are read


def samples_to_tensors(samples: SampleTable) -> dict[str, Tensor]:
    """What samples.safetensors holds.

    >>> from provnet.data.identity import SampleTable
    >>> none = np.zeros((1, 32), np.uint8)
    >>> table = SampleTable(("a",), none, none, np.zeros(1, np.int64), ("x",), (None,), ("",))
    >>> tensors = samples_to_tensors(table)
    >>> tensors["paths.given"].tolist(), tensors["sources.given"].tolist()
    ([0], [1])
    """
    tensors = {
        "labels": torch.tensor(samples.labels),
        "sha256": torch.tensor(samples.sha256),
        "pixel_sha256": torch.tensor(samples.pixel_sha256),
    }
    for name in FLAGS:
        flags: np.ndarray = getattr(samples, name)
        if flags.any():  # left out otherwise, as in runs that were never changed
            tensors[name] = torch.tensor(flags, dtype=torch.uint8)
    for name in _TEXTS:
        texts: Sequence[str | None] = getattr(samples, name)
        raw = [(text or "").encode("utf-8", "surrogatepass") for text in texts]
        offsets = np.zeros(len(raw) + 1, dtype=np.int64)
        np.cumsum([len(r) for r in raw], out=offsets[1:])
        tensors[f"{name}.text"] = torch.from_numpy(np.frombuffer(b"".join(raw), dtype=np.uint8).copy())
        tensors[f"{name}.offsets"] = torch.from_numpy(offsets)
        if name in _OPTIONAL:
            tensors[f"{name}.given"] = torch.tensor([text is not None for text in texts], dtype=torch.uint8)
    return tensors


def read_samples_file(file: io.BufferedReader) -> SampleTable:
    """The inverse, from an open file whose SHA-256 was checked; everything is compared before it is used."""
    found = read_layouts(file)
    n = _length(found, "labels", file.name)
    classes = _length(found, "class_names.offsets", file.name) - 1
    if classes < 1:
        raise IntegrityError(f"{file.name}: class_names is empty, a run has at least one class")
    if n > SAMPLES:
        raise IntegrityError(f"{file.name}: {n:,} samples, at most {SAMPLES:,} are read")
    texts = {name: _length(found, f"{name}.text", file.name) for name in _TEXTS}
    flagged = [name for name in FLAGS if name in found]
    compare_layouts(found, _layouts(n, classes, texts, flagged), file.name)
    tensors = read_tensors(file)
    try:
        return SampleTable(
            sample_ids=_whole(_texts(tensors, "sample_ids", file.name)),
            sha256=tensors["sha256"].numpy(),
            pixel_sha256=tensors["pixel_sha256"].numpy(),
            labels=tensors["labels"].numpy(),
            class_names=_whole(_texts(tensors, "class_names", file.name)),
            paths=_texts(tensors, "paths", file.name),
            sources=_texts(tensors, "sources", file.name),
            **{name: _flags(tensors[name], name, file.name) for name in flagged},
        )
    except DataError as error:
        raise IntegrityError(f"{file.name} is damaged: {error}") from None


def _length(found: dict[str, Layout], name: str, path: str) -> int:
    if name not in found or len(found[name].shape) != 1:
        raise IntegrityError(f"{path}: tensor '{name}' is missing or has the wrong shape")
    return found[name].shape[0]


def _layouts(n: int, classes: int, texts: dict[str, int], flagged: Sequence[str]) -> dict[str, Layout]:
    layouts = {
        "labels": Layout("I64", (n,)),
        "sha256": Layout("U8", (n, 32)),
        "pixel_sha256": Layout("U8", (n, 32)),
        **{name: Layout("U8", (n,)) for name in flagged},
    }
    for name, size in texts.items():
        layouts[f"{name}.text"] = Layout("U8", (size,))
        layouts[f"{name}.offsets"] = Layout("I64", ((classes if name == "class_names" else n) + 1,))
        if name in _OPTIONAL:
            layouts[f"{name}.given"] = Layout("U8", (n,))
    return layouts


def _texts(tensors: dict[str, Tensor], name: str, path: str) -> tuple[str | None, ...]:
    blob = tensors[f"{name}.text"].numpy().tobytes()
    offsets = tensors[f"{name}.offsets"].numpy()
    if offsets[0] != 0 or offsets[-1] != len(blob) or bool((offsets[1:] < offsets[:-1]).any()):
        raise IntegrityError(f"{path} is damaged: the offsets of {name} do not cover its text")
    edges = offsets.tolist()
    try:
        texts = [blob[a:b].decode("utf-8", "surrogatepass") for a, b in itertools.pairwise(edges)]
    except UnicodeDecodeError as error:
        raise IntegrityError(f"{path} is damaged: {name} is not UTF-8 ({error.reason})") from None
    if name not in _OPTIONAL:
        return tuple(texts)
    given = tensors[f"{name}.given"].tolist()
    return tuple(text if there else None for text, there in zip(texts, given, strict=True))


def _flags(tensor: Tensor, name: str, path: str) -> np.ndarray:
    if tensor.numel() and int(tensor.max()) > 1:
        raise IntegrityError(f"{path} is damaged: {name} holds bytes that are neither 0 nor 1")
    return tensor.bool().numpy()


def _whole(texts: tuple[str | None, ...]) -> tuple[str, ...]:
    return tuple(text or "" for text in texts)


_OPTIONAL = ("paths", "sources")
_TEXTS = ("sample_ids", "class_names", *_OPTIONAL)

"""Reading safetensors that somebody else may have made: every limit is checked before a tensor is allocated.

The safetensors library accepts duplicate keys, NaN weights and headers that cost a gigabyte. Here the file is first
recognised by content (a pickle or an archive is refused, whatever its name), then compared with its SHA-256, then its
header is checked in full, and only then tensors are read, from the same open file.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from provnet.errors import IntegrityError, UnsafeFileError, UsageError
from provnet.foreign import HEADER, refuse_foreign
from provnet.safejson import read_json, shown

TENSORS = 2_000
TOTAL = 8 << 30  # bytes of one file
_CHUNK = 1 << 20


class Layout(NamedTuple):
    """Type (in the words of safetensors: F32, I64, U8...) and shape of one tensor."""

    dtype: str
    shape: tuple[int, ...]


class _Place(NamedTuple):
    """Where a tensor lies, counted from the end of the header."""

    name: str
    layout: Layout
    start: int
    end: int


def open_checked(
    path: str | Path, *, size: int | None = None, sha256: str | None = None, limit: int = TOTAL
) -> io.BufferedReader:
    """Open a plain file once its content is what it should be: no foreign format, this size, this SHA-256."""
    where = Path(path)
    file = _open(where)
    try:
        actual = os.fstat(file.fileno()).st_size
        refuse_foreign(file, where)
        if size is not None and actual != size:
            raise IntegrityError(f"{where} is damaged: {actual:,} bytes, its manifest says {size:,}")
        if actual > limit:
            raise UnsafeFileError(f"{where}: {actual:,} bytes, at most {limit:,} are read")
        if sha256 is not None and (found := _sha256(file)) != sha256:
            raise IntegrityError(
                f"{where} is damaged or was changed: SHA-256 {found[:12]}…, its manifest says {shown(sha256[:12])}"
            )
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file


def _open(path: Path) -> io.BufferedReader:
    """Open for reading without ever waiting: a pipe or device in place of a file is refused, not read."""
    try:
        file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115 (the caller closes it)
    except FileNotFoundError:
        raise IntegrityError(f"{path} is missing") from None
    except IsADirectoryError:
        raise UnsafeFileError(f"{path} is not a plain file") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise UnsafeFileError(f"{path} is not a plain file")
    return file


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def sha256_file(path: str | Path) -> str:
    """SHA-256 of a file's bytes, 64 hexadecimal digits.

    >>> sha256_file(os.devnull)
    Traceback (most recent call last):
    provnet.errors.UnsafeFileError: /dev/null is not a plain file
    """
    with _open(Path(path)) as file:
        return _sha256(file)


def _sha256(file: io.BufferedReader) -> str:
    file.seek(0)
    return hashlib.file_digest(file, "sha256").hexdigest()


def read_layouts(file: io.BufferedReader) -> dict[str, Layout]:
    """Names, types and shapes of all tensors in an open safetensors file."""
    return {place.name: place.layout for place in _places(file)[1]}


def read_tensors(file: io.BufferedReader, expected: Mapping[str, Layout] | None = None) -> dict[str, Tensor]:
    """Read all tensors; where `expected` is given, names, types and shapes are compared before anything is allocated.

    >>> import tempfile, safetensors.torch
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "a.safetensors")
    ...     safetensors.torch.save_file({"a": torch.arange(3)}, path)
    ...     with open_checked(path) as file:
    ...         read_tensors(file, {"a": Layout("I64", (3,))})
    {'a': tensor([0, 1, 2])}
    """
    begin, places = _places(file)
    if expected is not None:
        compare_layouts({p.name: p.layout for p in places}, expected, file.name)
    tensors: dict[str, Tensor] = {}
    for name, layout, start, end in places:
        raw = torch.empty(end - start, dtype=torch.uint8)
        file.seek(begin + start)
        if end > start and file.readinto(raw.numpy().data) != end - start:
            raise IntegrityError(f"{file.name} is damaged: it ended while tensor {shown(name)} was read")
        tensor = raw.view(DTYPES[layout.dtype]).reshape(layout.shape)
        _check_values(tensor, raw, name, file.name)
        tensors[name] = tensor
    return tensors


def compare_layouts(found: Mapping[str, Layout], expected: Mapping[str, Layout], path: str | Path) -> None:
    """Refuse a file whose tensors are not those that its description implies."""
    for name in expected:
        if name not in found:
            raise IntegrityError(f"{path}: tensor {shown(name)} is missing")
    for name, layout in found.items():
        if name not in expected:
            raise IntegrityError(f"{path}: tensor {shown(name)} is not one of this network's")
        if layout != expected[name]:
            want = expected[name]
            raise IntegrityError(
                f"{path}: tensor {shown(name)} is {layout.dtype} {list(layout.shape)}, "
                f"expected {want.dtype} {list(want.shape)}"
            )


def layouts_of(tensors: Mapping[str, Tensor]) -> dict[str, Layout]:
    """What `read_layouts` will say of these tensors once they are saved."""
    names = {dtype: name for name, dtype in DTYPES.items()}
    return {key: Layout(names.get(t.dtype, str(t.dtype)), tuple(t.shape)) for key, t in tensors.items()}


def _places(file: io.BufferedReader) -> tuple[int, list[_Place]]:
    """Parse and check the header; return where the data begin and where each tensor lies, in the order of the file."""
    path, size = file.name, os.fstat(file.fileno()).st_size
    file.seek(0)
    prefix = file.read(8)
    if len(prefix) < 8:
        raise IntegrityError(f"{path} is damaged: {size} bytes are too few for safetensors")
    length = int.from_bytes(prefix, "little")
    if length > HEADER:
        raise UnsafeFileError(f"{path}: a header of {length:,} bytes, at most {HEADER:,} are read")
    if length > size - 8:
        raise IntegrityError(f"{path} is cut short: the header needs {length:,} bytes, {size - 8:,} are there")
    header = read_json(file.read(length), f"{path} (header)", limit=HEADER, depth=3)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise IntegrityError(f"{path}: the metadata of the header must be text")
    if len(header) > TENSORS:
        raise UnsafeFileError(f"{path}: {len(header):,} tensors, at most {TENSORS:,} are read")
    places = sorted((_place(path, *item) for item in header.items()), key=lambda p: (p.start, p.end))
    data, end = size - 8 - length, 0
    for place in places:
        if place.start != end:
            kind = "overlap" if place.start < end else "leave a hole"
            raise UnsafeFileError(f"{path}: its tensors {kind} before {shown(place.name)}")
        end = place.end
    if end != data:
        raise IntegrityError(f"{path} is damaged: {data:,} bytes of data, its header accounts for {end:,}")
    return 8 + length, places


def _place(path: str, name: str, entry: Any) -> _Place:
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise IntegrityError(f"{path}: tensor {shown(name)} must have dtype, shape and data_offsets, nothing else")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise IntegrityError(f"{path}: tensor {shown(name)} has type {shown(dtype)}; allowed: {', '.join(DTYPES)}")
    if not _counts(shape) or len(shape) > 8 or not _counts(offsets) or len(offsets) != 2:
        raise IntegrityError(f"{path}: tensor {shown(name)} has a shape or place that no tensor can have")
    if offsets[1] - offsets[0] != math.prod(shape) * DTYPES[dtype].itemsize:
        raise IntegrityError(f"{path}: shape and place of tensor {shown(name)} contradict each other")
    return _Place(name, Layout(dtype, tuple(shape)), *offsets)


def _counts(value: Any) -> bool:
    """A list of whole numbers from 0 to 2^53."""
    return isinstance(value, list) and all(type(v) is int and 0 <= v < 1 << 53 for v in value)


def _check_values(tensor: Tensor, raw: Tensor, name: str, path: str) -> None:
    """Every float is finite, every bool is 0 or 1."""
    if tensor.dtype is torch.bool and raw.numel() and int(raw.max()) > 1:
        raise IntegrityError(f"{path}: tensor {shown(name)} holds bytes that are neither true nor false")
    if not all_finite(tensor):
        raise IntegrityError(f"{path}: tensor {shown(name)} holds NaN or infinity")


def all_finite(tensor: Tensor) -> bool:
    """Whether a tensor holds no NaN and no infinity; in pieces, so that the check needs no memory to speak of.

    >>> all_finite(torch.tensor([1, torch.inf]))
    False
    """
    if not tensor.is_floating_point():
        return True
    flat = tensor.reshape(-1)
    return all(bool(torch.isfinite(flat[i : i + _CHUNK]).all()) for i in range(0, len(flat), _CHUNK))


DTYPES: dict[str, torch.dtype] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}

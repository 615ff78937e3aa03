"""Reading JSON that somebody else may have made: limits on size, depth and strings first, no doubtful values after."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from provnet.base.batches import pieces
from provnet.base.errors import IntegrityError, UnsafeFileError, UsageError

LIMIT = 1_000_000  # bytes
DEPTH = 32
STRING = 65_536  # characters
WHOLE = 1 << 64  # larger numbers fit neither a tensor nor a seed


def read_json(data: bytes, name: str, *, limit: int = LIMIT, depth: int = DEPTH) -> dict[str, Any]:
    """Parse one JSON object; hostile ones are refused fast, and `name` is in every message.

    >>> read_json(b'{"a": [1, 2.5, null]}', "x.json")
    {'a': [1, 2.5, None]}
    >>> read_json(b'{"a": 1, "a": 2}', "x.json")
    Traceback (most recent call last):
    provnet.base.errors.UnsafeFileError: x.json: the key 'a' occurs twice; refused, since readers would disagree
    """
    if len(data) > limit:
        raise UnsafeFileError(f"{name}: {len(data):,} bytes of JSON, at most {limit:,} are read")
    deep = _depth(data)
    if deep > depth:
        raise UnsafeFileError(f"{name}: JSON nested {deep:,} deep, at most {depth} is read")
    try:
        value = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_pairs,
            parse_constant=_constant,
            parse_float=_float,
            parse_int=_int,
        )
        _refuse_texts(value)
    except _RefusedError as error:
        raise UnsafeFileError(f"{name}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise IntegrityError(f"{name} is damaged: not valid JSON ({type(error).__name__}: {error})") from None
    if not isinstance(value, dict):
        raise IntegrityError(f"{name} must hold one JSON object, found {type(value).__name__}")
    return value


def write_json(value: Any, name: str) -> bytes:
    """The one form in which provnet writes JSON: sorted keys, ASCII, finite numbers, a newline at the end.

    >>> write_json({"b": 1, "a": (2**53 - 1,)}, "x.json")
    b'{\\n  "a": [\\n    9007199254740991\\n  ],\\n  "b": 1\\n}\\n'
    """
    try:
        text = json.dumps(value, sort_keys=True, indent=2, allow_nan=False, default=_plain)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name} takes plain JSON values (finite numbers, text, lists, mappings): {error}") from None
    return text.encode("ascii") + b"\n"


def printable(text: object, most: int = 60) -> str:
    """Text from a file in a form that is safe to print: control characters escaped, shortened.

    >>> printable("a\\x1b[2J")
    "'a\\\\x1b[2J'"
    """
    whole = str(text)
    return ascii(whole if len(whole) <= most else whole[:most] + "…")


def _depth(data: bytes) -> int:
    """How deep brackets nest outside of strings, without recursion."""
    bare = np.frombuffer(_STRINGS.sub(b"", data), dtype=np.uint8)
    steps = np.isin(bare, _OPENING).astype(np.int64) - np.isin(bare, _CLOSING)
    return int(steps.cumsum().max(initial=0))


class _RefusedError(Exception):
    """A value that is well formed and refused."""


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _RefusedError(f"the key {printable(key)} occurs twice; refused, since readers would disagree")
        found[key] = value
    return found


def _refuse_texts(value: Any) -> None:
    """Refuse a text that is too long, or that holds half a character and so is neither UTF-8 nor a file name."""
    if isinstance(value, str):
        if len(value) > STRING:
            raise _RefusedError(f"a text of {len(value):,} characters, at most {STRING:,} are read")
        if _HALVES.search(value):
            raise _RefusedError(f"the text {printable(value)} holds half a character (a lone surrogate)")
    elif isinstance(value, dict | list):
        for part in (*value, *value.values()) if isinstance(value, dict) else value:
            _refuse_texts(part)


def _constant(text: str) -> float:
    raise _RefusedError(f"{text} is not a JSON number")


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _RefusedError(f"the number {printable(text, 20)} is not finite")
    return value


def _int(text: str) -> int:
    value = int(text)
    if abs(value) >= WHOLE:
        raise _RefusedError(f"the whole number {printable(text, 20)} is too large")
    return value


def _plain(value: Any) -> Any:
    """NumPy's scalars and arrays as plain values; tuples and mappings are handled by json or here."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if hasattr(value, "items"):
        return dict(value.items())
    raise TypeError(f"{type(value).__name__} is not a JSON value")


# The closing quote is optional, so that an unclosed string is passed over once and the scan stays linear.
_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_HALVES = re.compile("[\ud800-\udc7f\udd00-\udfff]")  # the others stand for bytes of file names that are no UTF-8
_OPENING = np.frombuffer(b"[{", dtype=np.uint8)
_CLOSING = np.frombuffer(b"]}", dtype=np.uint8)


HEADER = 1_000_000  # bytes; the longest safetensors header that is read


def refuse_foreign(file: io.BufferedReader, path: Path) -> None:
    """Refuse pickles, archives, programs and pages by their content, whatever the file is called."""
    size = os.fstat(file.fileno()).st_size
    file.seek(0)
    start = file.read(64)
    if start[8:9] == b"{" and int.from_bytes(start[:8], "little") <= min(HEADER, size - 8):
        return  # safetensors; its first bytes are a number and may look like anything
    file.seek(max(0, size - 1))
    kind = _foreign(start, file.read(1))
    if kind:
        raise UnsafeFileError(
            f"{path} is {kind}, which provnet never opens; "
            "export the weights as safetensors where you trust the file, or ask for a provnet run folder"
        )


def _foreign(start: bytes, last: bytes) -> str | None:
    for magic, kind in _MAGIC:
        if start.startswith(magic):
            return kind
    if start[:1] == b"\x80" and start[1:2] <= b"\x05" and start[1:2]:
        return "a Python pickle (it could run code)"
    if start.lstrip()[:5].lower() in (b"<!doc", b"<html", b"<?xml"):
        return "a web page, not a model"
    if last == b"." and _OLD_PICKLE.match(start):
        return "an old Python pickle (it could run code)"
    return None


_MAGIC = (
    (b"PK\x03\x04", "a zip archive (.pt and .pth files are; they can run code)"),
    (b"PK\x05\x06", "a zip archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"\x7fELF", "a program"),
    (b"MZ", "a program"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"\x89HDF", "an HDF5 file"),
    (b"#!", "a script"),
)
# How a pickle of protocol 0 or 1 begins: a global, a mark and what may follow it, or one plain value.
_OLD_PICKLE = re.compile(
    rb"c[\w.]+\n[\w.]+\n|\((?:[ldt][pq.]|[](){}]|[ci][\w.]+\n|[IL]-?\d|[SV]|[KMJX])|[])}][q.(]"
    rb"|[IL]-?\d+L?\n|F[-+.\deinfa]+\n|S['\"]|V[^\n]*\n[p.]|N\.|K.\.|M..\.|J.{4}\.|G.{8}\.|[XT].{2}\0{2}|U[\0-\x1f]",
    re.DOTALL,
)


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
                f"{where} is damaged or was changed: SHA-256 {found[:12]}…, its manifest says {printable(sha256[:12])}"
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
    provnet.base.errors.UnsafeFileError: /dev/null is not a plain file
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
            raise IntegrityError(f"{file.name} is damaged: it ended while tensor {printable(name)} was read")
        tensor = raw.view(DTYPES[layout.dtype]).reshape(layout.shape)
        _check_values(tensor, raw, name, file.name)
        tensors[name] = tensor
    return tensors


def compare_layouts(found: Mapping[str, Layout], expected: Mapping[str, Layout], path: str | Path) -> None:
    """Refuse a file whose tensors are not those that its description implies."""
    for name in expected:
        if name not in found:
            raise IntegrityError(f"{path}: tensor {printable(name)} is missing")
    for name, layout in found.items():
        if name not in expected:
            raise IntegrityError(f"{path}: tensor {printable(name)} is not one of this network's")
        if layout != expected[name]:
            want = expected[name]
            raise IntegrityError(
                f"{path}: tensor {printable(name)} is {layout.dtype} {list(layout.shape)}, "
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
            raise UnsafeFileError(f"{path}: its tensors {kind} before {printable(place.name)}")
        end = place.end
    if end != data:
        raise IntegrityError(f"{path} is damaged: {data:,} bytes of data, its header accounts for {end:,}")
    return 8 + length, places


def _place(path: str, name: str, entry: Any) -> _Place:
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise IntegrityError(f"{path}: tensor {printable(name)} must have dtype, shape and data_offsets, nothing else")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise IntegrityError(
            f"{path}: tensor {printable(name)} has type {printable(dtype)}; allowed: {', '.join(DTYPES)}"
        )
    if not _counts(shape) or len(shape) > 8 or not _counts(offsets) or len(offsets) != 2:
        raise IntegrityError(f"{path}: tensor {printable(name)} has a shape or place that no tensor can have")
    if offsets[1] - offsets[0] != math.prod(shape) * DTYPES[dtype].itemsize:
        raise IntegrityError(f"{path}: shape and place of tensor {printable(name)} contradict each other")
    return _Place(name, Layout(dtype, tuple(shape)), *offsets)


def _counts(value: Any) -> bool:
    """A list of whole numbers from 0 to 2^53."""
    return isinstance(value, list) and all(type(v) is int and 0 <= v < 1 << 53 for v in value)


def _check_values(tensor: Tensor, raw: Tensor, name: str, path: str) -> None:
    """Every float is finite, every bool is 0 or 1."""
    if tensor.dtype is torch.bool and raw.numel() and int(raw.max()) > 1:
        raise IntegrityError(f"{path}: tensor {printable(name)} holds bytes that are neither true nor false")
    if not all_finite(tensor):
        raise IntegrityError(f"{path}: tensor {printable(name)} holds NaN or infinity")


def all_finite(tensor: Tensor) -> bool:
    """Whether a tensor holds no NaN and no infinity; in pieces, so that the check needs no memory to speak of.

    >>> all_finite(torch.tensor([1, torch.inf]))
    False
    """
    if not tensor.is_floating_point():
        return True
    flat = tensor.reshape(-1)
    return all(bool(torch.isfinite(flat[rows]).all()) for rows in pieces(len(flat), _CHUNK))


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

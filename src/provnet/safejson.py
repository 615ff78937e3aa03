"""Reading JSON that somebody else may have made: limits on size, depth and strings first, no doubtful values after."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import numpy as np

from provnet.errors import IntegrityError, UnsafeFileError, UsageError

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
    provnet.errors.UnsafeFileError: x.json: the key 'a' occurs twice; refused, since readers would disagree
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


def shown(text: object, most: int = 60) -> str:
    """Text from a file in a form that is safe to print: control characters escaped, shortened.

    >>> shown("a\\x1b[2J")
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
            raise _RefusedError(f"the key {shown(key)} occurs twice; refused, since readers would disagree")
        found[key] = value
    return found


def _refuse_texts(value: Any) -> None:
    """Refuse a text that is too long, or that holds half a character and so is neither UTF-8 nor a file name."""
    if isinstance(value, str):
        if len(value) > STRING:
            raise _RefusedError(f"a text of {len(value):,} characters, at most {STRING:,} are read")
        if _HALVES.search(value):
            raise _RefusedError(f"the text {shown(value)} holds half a character (a lone surrogate)")
    elif isinstance(value, dict | list):
        for part in (*value, *value.values()) if isinstance(value, dict) else value:
            _refuse_texts(part)


def _constant(text: str) -> float:
    raise _RefusedError(f"{text} is not a JSON number")


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _RefusedError(f"the number {shown(text, 20)} is not finite")
    return value


def _int(text: str) -> int:
    value = int(text)
    if abs(value) >= WHOLE:
        raise _RefusedError(f"the whole number {shown(text, 20)} is too large")
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

"""DecodeRule and OpenOptions: everything that may change the pictures on the way in, checked once."""

from __future__ import annotations

import math
import os
import re
import unicodedata
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import ImageColor

from provnet.base.batches import is_column, is_matrix
from provnet.base.errors import DataError, UsageError, one_of
from provnet.base.files import DataWarning, brief
from provnet.samples.identity import refuse_nul


@dataclass(frozen=True)
class DecodeRule:
    """How a picture file becomes pixels.

    Attributes:
        mode: None = as found (grey stays grey, colour RGB), `grey` or `rgb`.
        size: (height, width) of what the network sees, or None.
        fit: how another shape becomes that size: `stretch`, `pad` or `crop`; None = crop, and a sample is named by what
            the network sees of it, as runs were written before there was a choice. Else the whole picture names it.
        background: red, green, blue behind transparent pixels.
        frame: which picture of an animated or multi-page file; None refuses those.
        value_range: lowest and highest value of 16-bit, 32-bit and float pictures; None = 0..65535 for whole numbers.
        max_pixels: larger pictures are refused before they are decoded.
        max_bytes: larger files are refused before they are read.
        max_decoded: pictures with more bytes of pixels (pixels x channels x depth) are refused before they are decoded.
    """

    mode: str | None = None
    size: tuple[int, int] | None = None
    fit: str | None = None
    background: tuple[int, int, int] = (255, 255, 255)
    frame: int | None = None
    value_range: tuple[float, float] | None = None
    max_pixels: int = 40_000_000
    max_bytes: int = 128 * 2**20
    max_decoded: int = 160_000_000  # 40 million pixels of four bytes


@dataclass(frozen=True)
class OpenOptions:
    """The options of `open_data`, in plain types that JSON keeps."""

    size: tuple[int, int] | None = None
    fit: str | None = None  # None: data of a run that was written before there was a choice
    mode: str | None = None
    background: str = "white"
    frame: int | None = None
    value_range: tuple[float, float] | None = None
    skip_bad: bool = False
    limit: int | None = None
    class_names: tuple[str, ...] | None = None
    root: str | None = None
    manifest_columns: tuple[tuple[str, str], ...] | None = None
    default_size: int | None = None
    length: int | None = None
    progress: bool = False
    cache: str | None = None

    @property
    def rule(self) -> DecodeRule:
        """The part that decoding needs."""
        red, green, blue = ImageColor.getrgb(self.background)[:3]
        return DecodeRule(self.mode, self.size, self.fit, (red, green, blue), self.frame, self.value_range)

    @property
    def values(self) -> DecodeRule:
        """What the values of a picture mean; its mode and size are left as they are."""
        return replace(self.rule, mode=None, size=None, fit=None, frame=None)

    def to_json(self) -> dict[str, Any]:
        """What differs from the defaults, as JSON keeps it; what changes no picture is left out."""
        found = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _NOT_KEPT}
        found |= {"fit": None} if self.fit == CHOOSE else {}
        kept = {name: value for name, value in found.items() if value != getattr(OpenOptions, name)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in kept.items()}


def make_options(given: Mapping[str, Any]) -> OpenOptions:
    """Check the options of `open_data` and bring them into plain types.

    >>> make_options({"size": 32}).size
    (32, 32)
    """
    allowed = {f.name for f in fields(OpenOptions)}
    unknown = sorted(set(given) - allowed)
    if unknown:
        raise UsageError(f"unknown data option {unknown[0]!r}; allowed: {', '.join(sorted(allowed))}")
    values = dict(given)
    mode = values.get("mode")
    names = values.get("class_names")
    return OpenOptions(
        size=_size(values.get("size")),
        fit=None if values.get("fit") is None else one_of("fit", values["fit"], (*FITS, CHOOSE)),
        mode=None if mode is None else one_of("mode", mode, ("grey", "rgb")),
        background=_background("white" if values.get("background") is None else values["background"]),
        frame=_whole("frame", values.get("frame"), lowest=0),
        value_range=_range(values.get("value_range")),
        skip_bad=bool(values.get("skip_bad", False)),
        limit=_whole("limit", values.get("limit"), lowest=1),
        class_names=_names(names),
        root=_root(values.get("root")),
        manifest_columns=_columns(values.get("manifest_columns")),
        default_size=_whole("default_size", values.get("default_size"), lowest=1),
        length=_whole("length", values.get("length"), lowest=1),
        progress=bool(values.get("progress", False)),
        cache=_cache(values.get("cache", False)),
    )


def _names(value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, Iterable) or len(names := tuple(value)) == 0:
        raise UsageError(f"class_names must be a list of names, one per class; got {value!r:.80}")
    return names


def _cache(value: Any) -> str | None:
    """The folder of the picture cache: a path, None = $PROVNET_CACHE where that is set, False = none at all."""
    place = (os.environ.get("PROVNET_CACHE") or False) if value is None else value
    if place is False:
        return None
    if not isinstance(place, str | os.PathLike) or not os.fspath(place):
        raise UsageError(
            f"cache must be a folder (--cache DIR), None ($PROVNET_CACHE, if set) or False (no cache); got {value!r}"
        )
    return str(Path(os.fsdecode(place)).expanduser().absolute())


def _root(value: Any) -> str | None:
    """The folder of a manifest's pictures."""
    if value is None:
        return None
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise UsageError(f"root must be a folder, got {value!r}")
    return str(Path(os.fsdecode(value)).expanduser().absolute())


def _columns(value: Any) -> tuple[tuple[str, str], ...] | None:
    """Which columns of a table hold what, from `path=image,label=class`, a mapping or pairs."""
    if value is None:
        return None
    if isinstance(value, str):
        pairs = [tuple(part.split("=", 1)) for part in value.split(",")]
    else:
        pairs = [tuple(pair) for pair in (value.items() if isinstance(value, Mapping) else value)]
    whats = [pair[0] for pair in pairs]
    wrong = any(len(pair) != 2 or not all(pair) or pair[0] not in COLUMNS for pair in pairs)
    if wrong or len(set(whats)) != len(whats):
        raise UsageError(
            f"columns (--columns) says what the columns of a table hold, of {', '.join(COLUMNS)}, such as "
            f"path=image,label=class; got {value!r:.80}"
        )
    return tuple((str(what), str(name)) for what, name in pairs)


def _size(size: Any) -> tuple[int, int] | None:
    if size is None:
        return None
    sides = (size, size) if isinstance(size, int) else tuple(size) if isinstance(size, Sequence) else ()
    if len(sides) != 2 or not all(isinstance(side, int) and 1 <= side <= 4096 for side in sides):
        raise UsageError(
            f"size must be one whole number or (height, width), --size N or HxW, each 1..4096; got {size!r}"
        )
    return int(sides[0]), int(sides[1])


def _background(colour: Any) -> str:
    try:
        text = "#{:02x}{:02x}{:02x}".format(*colour) if isinstance(colour, tuple | list) else str(colour)
        ImageColor.getrgb(text)
    except (ValueError, IndexError, TypeError):
        raise UsageError(f"background must be a colour such as white, black or #808080, got {colour!r}") from None
    return text


def _whole(name: str, value: Any, lowest: int) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < lowest:
        raise UsageError(f"{name} must be a whole number of at least {lowest}, got {value!r}")
    return value


def _range(value: Any) -> tuple[float, float] | None:
    if value is None:
        return None
    try:
        low, high = (float(end) for end in value)
    except (TypeError, ValueError):
        raise UsageError(f"value_range (--value-range) must be two numbers (lowest, highest), got {value!r}") from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise UsageError(f"value_range (--value-range) must be two finite numbers, the lower first, got {value!r}")
    return low, high


def class_order(names: Iterable[str]) -> tuple[str, ...]:
    """The classes in a fixed order: whole numbers by value, anything else by its UTF-8 bytes.

    >>> class_order({"10", "9"}), class_order({"b", "a", "10"})
    (('9', '10'), ('10', 'a', 'b'))
    """
    unique = set(names)
    if unique and all(_WHOLE.fullmatch(name) for name in unique):
        return tuple(sorted(unique, key=int))
    return tuple(sorted(unique, key=lambda name: name.encode("utf-8", "surrogatepass")))


def encode_text(labels: Sequence[str], class_names: Sequence[str] | None = None) -> tuple[np.ndarray, tuple[str, ...]]:
    """Text labels as positions in the class names; the names are made from the labels unless given.

    >>> encode_text(["cat", "nan", "cat"])[1]
    ('cat', 'nan')
    """
    names = class_order(labels) if class_names is None else check_names(class_names)
    if class_names is None:
        warn_alike(names)
    position = {name: i for i, name in enumerate(names)}
    unknown = next((label for label in labels if label not in position), None)
    if unknown is not None:
        raise DataError(f"label {brief(unknown)!r} is not among the {len(names)} class names given ({some(names)})")
    return np.array([position[label] for label in labels], dtype=np.int64), names


def encode_labels(labels: Any, class_names: Sequence[str] | None = None) -> tuple[np.ndarray, tuple[str, ...]]:
    """Whole numbers, booleans or text as positions in the class names.

    Numbers are positions in `class_names` where those are given; else the distinct numbers become the classes.

    >>> encode_labels([7, 3, 7])
    (array([1, 0, 1]), ('3', '7'))
    >>> encode_labels([0, 2], ["a", "b", "c"])
    (array([0, 2]), ('a', 'b', 'c'))
    """
    check_labels(labels)
    try:
        values = np.asarray(labels)
    except ValueError:  # lists of different lengths
        raise DataError("labels must be one-dimensional, one per sample; got lists of different lengths") from None
    if is_matrix(values) and values.shape[1] == 1:
        values = values[:, 0]
    if not is_column(values):
        raise DataError(f"labels must be one-dimensional, one per sample, got shape {values.shape}")
    if values.dtype.kind == "O":
        kinds = {type(value) for value in values.tolist()}
        if kinds <= {str}:
            values = values.astype(str)
        elif all(issubclass(kind, int | np.integer) for kind in kinds):
            _check_size(values)
            values = values.astype(np.int64)
        else:
            raise DataError(MIXED.format(some(kind.__name__ for kind in kinds)))
    if values.dtype.kind == "U":
        return encode_text([str(value) for value in values], class_names)
    if values.dtype.kind == "f":
        if not np.isfinite(values).all() or (values != np.floor(values)).any():
            raise DataError("labels must be whole numbers or text, got fractions, NaN or infinity")
        _check_size(values, 2**53)  # beyond that two whole numbers may be one float
        values = values.astype(np.int64)
    if values.dtype.kind not in "iub":
        raise DataError(f"labels must be whole numbers or text, got type {values.dtype}")
    _check_size(values)
    if class_names is None:
        distinct, position = np.unique(values, return_inverse=True)
        return position.reshape(-1).astype(np.int64), tuple(str(value) for value in distinct.tolist())
    names = check_names(class_names)
    if len(values) and not 0 <= int(values.min()) <= int(values.max()) < len(names):
        raise DataError(
            f"labels must lie in 0..{len(names) - 1} for {len(names)} class names, "
            f"got {int(values.min())}..{int(values.max())}"
        )
    return values.astype(np.int64), names


def check_labels(labels: Any) -> None:
    """Refuse labels that numpy would make one class: 1 and "1", of which it makes text, and "a" and "a" with a NUL.

    >>> check_labels([1, "1"])  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    DataError: labels must be all text or all whole numbers, got int, str
    """
    if not isinstance(labels, np.ndarray) or labels.dtype.kind not in "biufU":  # those have no NUL to lose any more
        try:
            texts = [one for one in np.asarray(labels, dtype=object).ravel().tolist() if isinstance(one, str)]
        except (TypeError, ValueError):  # lists of different lengths: encode_labels says so
            texts = []
        refuse_nul("labels", texts)
    if isinstance(labels, list | tuple) and len({isinstance(label, str) for label in labels}) > 1:
        raise DataError(MIXED.format(some(sorted({type(label).__name__ for label in labels}))))


def warn_alike(names: Iterable[str]) -> None:
    """Say where two classes have names that look alike: they differ in blanks, or in how an accent is kept, only."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(" ".join(unicodedata.normalize("NFC", name).split()), name)
        if other != name:
            what, both = "blanks", [repr(brief(other)), repr(brief(name))]
            if " ".join(other.split()) != " ".join(name.split()):
                what, both = "how accents are kept (Unicode NFC and NFD)", [ascii(brief(other)), ascii(brief(name))]
            words = f"class names that differ in {what} only, kept as two classes: {' and '.join(both)}"
            warnings.warn(words, DataWarning, stacklevel=3)
            return


def _check_size(values: np.ndarray, limit: int = 2**63) -> None:
    if len(values) and values.dtype.kind != "b":
        for value in (values.min(), values.max()):
            if abs(int(value)) >= limit:
                what = "floats" if values.dtype.kind == "f" else "whole numbers"
                limits = f"{what} must lie below 2**{limit.bit_length() - 1}"
                raise DataError(f"label {value} is too large; {limits}, give larger labels as text")


def check_names(names: Sequence[str]) -> tuple[str, ...]:
    """Class names as a tuple; they must be text and distinct."""
    checked = tuple(names)
    if not all(isinstance(name, str) for name in checked):
        raise DataError(f"class names must be text, got {some(repr(name) for name in checked)}")
    if len(set(checked)) != len(checked):
        raise DataError(f"class names must be distinct, got {some(checked)}")
    return checked


def some(items: Iterable[object], most: int = 8) -> str:
    """The first of some names, for an error.

    >>> some("abc", most=2)
    'a, b, ... (3 in all)'
    """
    words = [str(item) for item in items]
    return ", ".join(map(brief, words[:most])) + (f", ... ({len(words)} in all)" if len(words) > most else "")


FITS = ("stretch", "pad", "crop")
CHOOSE = "auto"  # data that are opened for the first time: the whole picture names a sample, stretched where need be
COLUMNS = ("path", "text", "label", "id", "source")
_NOT_KEPT = ("progress", "cache", "default_size")
MIXED = "labels must be all text or all whole numbers, got {}"
_WHOLE = re.compile(r"0|-?[1-9][0-9]*")

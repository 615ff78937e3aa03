"""DecodeRule and OpenOptions: everything that may change the pictures on the way in, checked once."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from PIL import ImageColor

from provnet.errors import UsageError, one_of


@dataclass(frozen=True)
class DecodeRule:
    """How a picture file becomes pixels.

    Attributes:
        mode: None = as found (grey stays grey, colour RGB), `grey` or `rgb`.
        size: (height, width) to cut to the centre and resize to, or None.
        background: red, green, blue behind transparent pixels.
        frame: which picture of an animated or multi-page file; None refuses those.
        value_range: lowest and highest value of 16-bit, 32-bit and float pictures; None = 0..65535 for whole numbers.
        max_pixels: larger pictures are refused before they are decoded.
        max_bytes: larger files are refused before they are read.
        max_decoded: pictures with more bytes of pixels (pixels x channels x depth) are refused before they are decoded.
    """

    mode: str | None = None
    size: tuple[int, int] | None = None
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
    mode: str | None = None
    background: str = "white"
    frame: int | None = None
    value_range: tuple[float, float] | None = None
    skip_bad: bool = False
    limit: int | None = None
    class_names: tuple[str, ...] | None = None
    root: str | None = None
    progress: bool = False
    cache: str | None = None

    @property
    def rule(self) -> DecodeRule:
        """The part that decoding needs."""
        red, green, blue = ImageColor.getrgb(self.background)[:3]
        return DecodeRule(self.mode, self.size, (red, green, blue), self.frame, self.value_range)

    @property
    def values(self) -> DecodeRule:
        """What the values of a picture mean; its mode and size are left as they are."""
        return replace(self.rule, mode=None, size=None, frame=None)

    def to_json(self) -> dict[str, Any]:
        """What differs from the defaults, as JSON keeps it; `progress` and `cache` change no picture: left out."""
        found = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("progress", "cache")}
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
        mode=None if mode is None else one_of("mode", mode, ("grey", "rgb")),
        background=_background(values.get("background", "white")),
        frame=_whole("frame", values.get("frame"), lowest=0),
        value_range=_range(values.get("value_range")),
        skip_bad=bool(values.get("skip_bad", False)),
        limit=_whole("limit", values.get("limit"), lowest=1),
        class_names=_names(names),
        root=_root(values.get("root")),
        progress=bool(values.get("progress", False)),
        cache=_cache(values.get("cache", False)),
    )


def _names(value: Any) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, Iterable) or len(names := tuple(value)) == 0:
        raise UsageError(f"class_names must be names, one a class; got {value!r:.80}")
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

"""From labels as people give them (numbers or text) to positions in a list of class names."""

from __future__ import annotations

import re
import unicodedata
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from provnet.data.files import DataWarning, brief
from provnet.data.identity import refuse_nul
from provnet.errors import DataError


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
        raise DataError("labels must be one-dimensional, one a sample; got lists of different lengths") from None
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise DataError(f"labels must be one-dimensional, one a sample, got shape {values.shape}")
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
                raise DataError(f"label {value} is too large; {limits}, larger ones be text")


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


MIXED = "labels must be all text or all whole numbers, got {}"
_WHOLE = re.compile(r"0|-?[1-9][0-9]*")

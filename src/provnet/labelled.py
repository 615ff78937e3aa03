"""Arrays with labels as data with identity, and labels of their own type back from a run.

A run names its classes in text. Where a classifier was fitted on arrays, the type of its labels stands in the run's
`data.options.labels`, so that whole numbers come back as whole numbers; data opened by name, path or as an ImageData
have text labels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from provnet.data.arrays import to_numpy
from provnet.data.imagedata import DataSpec, ImageData
from provnet.data.sources import open_data
from provnet.errors import DataError, IntegrityError, UsageError
from provnet.modelfile import Run

NAMES_KEPT = 100_000  # characters of feature names that a run keeps


def flatten(samples: Any) -> tuple[Any, tuple[int, ...] | None]:
    """Pictures as (N, F) rows, which scikit-learn can check, and the shape of one; anything else as it is, and None.

    >>> rows, shape = flatten(torch.zeros(5, 8, 8))
    >>> rows.shape, shape
    ((5, 64), (8, 8))
    """
    if isinstance(samples, torch.Tensor | list | tuple):
        samples = to_numpy(samples)
    if isinstance(samples, np.ndarray) and samples.ndim in (3, 4):
        shape = samples.shape[1:]
        return samples.reshape(len(samples), math.prod(shape)), shape
    return samples, None


def answers_of(labels: Any) -> Any:
    """Labels that scikit-learn can read: tensors become arrays, anything else stays as it is.

    >>> answers_of(torch.tensor([1, 0]))
    array([1, 0])
    """
    return to_numpy(labels) if isinstance(labels, torch.Tensor) else labels


def picture_shape(wanted: Any, features: int) -> tuple[int, ...]:
    """`image_shape` checked against the number of values in a row.

    >>> picture_shape([8, 8], 64)
    (8, 8)
    """
    sides = tuple(wanted) if isinstance(wanted, tuple | list | np.ndarray) else ()
    if len(sides) not in (2, 3) or not all(isinstance(side, int | np.integer) and side > 0 for side in sides):
        raise UsageError(f"image_shape must be (H, W), (H, W, C) or (C, H, W), got {wanted!r}")
    if math.prod(sides) != features:
        raise UsageError(f"image_shape {sides} has {math.prod(sides)} values, a row of X has {features}")
    return tuple(int(side) for side in sides)


def labelled(
    rows: np.ndarray,
    shape: tuple[int, ...] | None,
    labels: np.ndarray,
    classes: np.ndarray,
    *,
    names: tuple[str, ...] | None = None,
    features: np.ndarray | None = None,
) -> ImageData:
    """Checked rows (of pictures of that shape) with labels as data; what load must know stands in the spec.

    >>> labelled(np.eye(2), None, np.array([7, 3]), np.array([3, 7])).class_names
    ('3', '7')
    """
    values = rows if shape is None else rows.reshape(len(rows), *shape)
    texts = names if names is not None else tuple(_text(name) for name in classes.tolist())
    data = open_data(values, positions(labels, classes), class_names=texts)
    options: dict[str, Any] = {"labels": "str" if classes.dtype.kind not in _KINDS else classes.dtype.name}
    if shape is not None:
        options["sample_shape"] = list(shape)
    if features is not None and sum(map(len, features)) <= NAMES_KEPT:
        options["feature_names"] = features.tolist()
    return ImageData(data.images, data.samples, DataSpec("arrays", "arrays", options=options))


def positions(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """The position of each label among the classes; an unknown one is refused.

    >>> positions(np.array(["b", "a"]), np.array(["a", "b"])).tolist()
    [1, 0]
    """
    place = {label: i for i, label in enumerate(classes.tolist())}
    given = labels.tolist()
    unknown = next((label for label in given if label not in place), None)
    if unknown is not None:
        known = ", ".join(repr(name) for name in classes.tolist()[:8]) + (", ..." if len(classes) > 8 else "")
        raise DataError(f"label {unknown!r} is not among the {len(classes)} classes of the run ({known})")
    return np.array([place[label] for label in given], dtype=np.int64)


def _text(label: Any) -> str:
    """A label as the name of its class; whole floats as whole numbers, as in data that are opened."""
    return str(int(label) if isinstance(label, float) and label.is_integer() else label)


def classes_of(run: Run) -> np.ndarray:
    """(C,) the labels of a run, of the type that they were given in."""
    names = run.samples.class_names
    kind = run.config.data.options.get("labels", "str") if run.config.data else "str"
    if kind == "str":
        return np.array(names)
    try:
        dtype = np.dtype(kind)
        return np.array([_KINDS[dtype.kind](name) for name in names], dtype=dtype)
    except (TypeError, ValueError, KeyError, OverflowError):
        raise IntegrityError(f"config.json: the class names are not of the type {kind!r} that it gives") from None


def feature_names_of(run: Run) -> np.ndarray | None:
    """The columns of the data frame that a run was fitted on, or None."""
    names = run.config.data.options.get("feature_names") if run.config.data else None
    if names is None:
        return None
    count = math.prod(run.config.network.input_shape)
    if not isinstance(names, list | tuple) or len(names) != count or not all(isinstance(n, str) for n in names):
        raise IntegrityError(f"config.json: data.options.feature_names must be {count} names")
    return np.array(names, dtype=object)


_KINDS: dict[str, Callable[[str], Any]] = {"b": {"False": False, "True": True}.__getitem__, "i": int, "u": int}
_KINDS |= {"f": float, "O": str}

"""Arrays with labels as data with identity, and labels of their own type back from a run.

A run names its classes in text. Where a classifier was fitted on arrays, the type of its labels stands in the run's
`data.options.labels`, so that whole numbers come back as whole numbers; data opened by name, path or as an ImageData
have text labels.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from provnet.data.arrays import to_numpy
from provnet.data.imagedata import DataSpec, ImageData
from provnet.data.images import picture_array
from provnet.data.labels import check_labels
from provnet.data.rules import DecodeRule
from provnet.data.sources import open_data
from provnet.errors import DataError, IntegrityError, UsageError
from provnet.modelfile import Run
from provnet.training.config import PRESETS, for_samples

NAMES_KEPT = 100_000  # characters of feature names that a run keeps


def flatten(samples: Any) -> tuple[Any, tuple[int, ...] | None]:
    """Pictures as (N, F) rows, which scikit-learn can check, and the shape of one; anything else as it is, and None.

    >>> rows, shape = flatten(torch.zeros(5, 8, 8))
    >>> rows.shape, shape
    ((5, 64), (8, 8))
    """
    if isinstance(samples, _ARRAYS):
        samples = to_numpy(samples)
    if isinstance(samples, np.ndarray) and samples.ndim in (3, 4):
        shape = samples.shape[1:]
        return samples.reshape(len(samples), math.prod(shape)), shape
    return samples, None


def many(samples: Any, shape: tuple[int, ...], rule: DecodeRule | None = None) -> Any:
    """Samples for a run that takes `shape`: one picture becomes a batch of one, arrays of another size are refused.

    >>> many(np.zeros((8, 6, 3)), (3, 8, 6)).shape, many(Image.new("L", (6, 8)), (1, 8, 6)).shape
    ((1, 8, 6, 3), (1, 8, 6))
    """
    refuse_unopened(samples, "arrays, an ImageData or a PIL picture", "provnet.open_data(...) or PIL.Image.open(...)")
    if isinstance(samples, Image.Image):
        samples = picture_array(samples, "the picture", rule or DecodeRule())
    listed = isinstance(samples, list | tuple) and isinstance(next(iter(samples), None), _PICTURES)
    if isinstance(samples, _ARRAYS):
        samples = to_numpy(samples, rule)
    if len(shape) != 3 or not isinstance(samples, np.ndarray) or samples.ndim not in (2, 3, 4):
        return samples
    values, wanted = math.prod(samples.shape[1:]), math.prod(shape)
    if samples.size == 0 or values == wanted:
        return samples
    # three grey pictures in a list are no picture of three channels
    if not listed and (samples.shape in (shape, (*shape[1:], shape[0])) or (1, *samples.shape) == shape):
        return samples[None]
    raise DataError(
        f"X has {values} features, but ProvenanceClassifier is expecting {wanted} features as input: pictures of shape "
        f"{shape}, one or many, (N, ...); got an array of shape {samples.shape}"
    )


def refuse_unopened(given: Any, wanted: str, way: str) -> None:
    """Refuse paths, Datasets and DataLoaders, which must be opened first."""
    if isinstance(given, str | os.PathLike | Dataset | DataLoader):
        raise UsageError(f"{wanted} are wanted; open a {type(given).__name__} first: {way}")


def answers_of(labels: Any, classes: np.ndarray | None = None) -> Any:
    """Labels that scikit-learn can read: tensors become arrays, anything else stays as it is; missing ones are refused.

    Numbers are refused where the classes are names: they may be the positions of an ImageData, whose order of the
    classes need not be that of the run.

    >>> answers_of(torch.tensor([1, 0]))
    array([1, 0])
    """
    given = to_numpy(labels) if isinstance(labels, torch.Tensor | np.ma.MaskedArray) else labels
    _refuse_missing(given)
    check_labels(given)
    if classes is None or given is None or not isinstance(classes.tolist()[0], str):
        return given
    if np.asarray(given).dtype.kind in "biuf":
        raise UsageError(
            f"the labels given are numbers, the classes of this run are names ({_some(classes)}); labels of an "
            "ImageData are positions: give the data as they are, score(data) or evaluate(data), or the names, "
            "np.array(data.class_names)[data.labels]"
        )
    return given


def _refuse_missing(labels: Any) -> None:
    """None, NaN and pandas' NA among names; a list would make classes called "nan" and "None" of them."""
    if labels is None or (isinstance(labels, np.ndarray) and labels.dtype.kind != "O"):
        return
    try:
        is_text, values = np.asarray(labels).dtype.kind in "OUS", np.asarray(labels, dtype=object)
    except (TypeError, ValueError):  # uneven: scikit-learn says so
        return
    lacks = [
        type(one).__name__ in ("NoneType", "NAType", "NaTType") or (isinstance(one, float) and math.isnan(one))
        for one in values.ravel()
    ]
    if is_text and any(lacks):
        first = lacks.index(True)
        words = f"{sum(lacks):,} of {values.size:,} labels are missing, the first at position {first}"
        raise DataError(f"{words}; leave these samples out")


def pair_of(given: Any) -> tuple[Any, Any]:
    """Samples and labels; what is no pair is refused with the way.

    >>> pair_of(([[1.0]], [3]))
    ([[1.0]], [3])
    """
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise UsageError(
            f"evaluate takes an ImageData or a pair (X, y), got {type(given).__name__}: evaluate(data) or "
            "evaluate((X, y)); the second argument is the training data, in the same form"
        )
    return given[0], given[1]


def picture_shape(wanted: Any, features: int) -> tuple[int, ...]:
    """`image_shape` checked against the number of values in a row.

    >>> picture_shape([8, 8], 64)
    (8, 8)
    """
    sides = _sides(wanted)
    if math.prod(sides) != features:
        raise UsageError(f"image_shape {sides} has {math.prod(sides)} values, a row of X has {features}")
    return sides


def _sides(wanted: Any) -> tuple[int, ...]:
    sides = tuple(wanted) if isinstance(wanted, tuple | list | np.ndarray) else ()
    if len(sides) not in (2, 3) or not all(isinstance(side, int | np.integer) and side > 0 for side in sides):
        raise UsageError(f"image_shape must be (H, W), (H, W, C) or (C, H, W), got {wanted!r}")
    return tuple(int(side) for side in sides)


def check_shape(wanted: Any, shape: tuple[int, ...]) -> None:
    """Refuse an `image_shape` that is not the shape of the pictures given, channels first or last.

    >>> check_shape((8, 8), (1, 8, 8))
    """
    sides = _sides(wanted)
    one, other = ([side for side in form if side != 1] for form in (sides, shape))  # a single channel may be left out
    turned = len(one) == len(other) == 3 and one in ([*other[1:], other[0]], [other[2], *other[:2]])
    if one != other and not turned:
        raise UsageError(
            f"image_shape is {sides}, but the samples given have the shape {shape}; leave it out, it is for "
            "flattened pictures in an array"
        )


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
        raise DataError(f"label {unknown!r} is not among the {len(classes)} classes of the run ({_some(classes)})")
    return np.array([place[label] for label in given], dtype=np.int64)


def _some(classes: np.ndarray) -> str:
    return ", ".join(repr(name) for name in classes.tolist()[:8]) + (", ..." if len(classes) > 8 else "")


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


def recipe_of(run: Run) -> dict[str, Any]:
    """How the run was trained, as parameters; what its preset says anyway is left out."""
    found = run.config.training.get("training")
    recipe: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
    preset = str(recipe.get("preset", "fast"))
    named = PRESETS.get(preset, PRESETS["fast"])
    chosen = for_samples(named, len(run.samples), run.config.network.input_shape)
    usual = {**named.to_json(), "augment": chosen.augment}
    names = {"epochs": "epochs", "batch_size": "batch_size", "lr": "lr", "augment": "augment", "seed": "random_state"}
    own = {names[k]: v for k, v in recipe.items() if k in names and type(v) in (int, float, str) and v != usual[k]}
    return {"preset": preset if preset in PRESETS else "fast", **own}


_PICTURES = (Image.Image, np.ndarray, torch.Tensor)
_ARRAYS = (torch.Tensor, list, tuple, np.ma.MaskedArray)  # made plain here, as scikit-learn passes over masks
_KINDS: dict[str, Callable[[str], Any]] = {"b": {"False": False, "True": True}.__getitem__, "i": int, "u": int}
_KINDS |= {"f": float, "O": str}

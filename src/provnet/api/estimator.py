"""ProvenanceClassifier: the scikit-learn face of provnet; load: a run folder as such a classifier."""

from __future__ import annotations

import copy
import math
import numbers
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, overload

import numpy as np
import torch
from PIL import Image
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from provnet.answers.attributor import Attributor, explain
from provnet.answers.evaluation import Evaluation, evaluate
from provnet.answers.explanation import Explanation
from provnet.base.errors import DataError, IntegrityError, NonFiniteError, UsageError
from provnet.base.files import as_path
from provnet.base.options import RunOptions
from provnet.data.dataset import DataSpec, ImageData
from provnet.data.modalities.decode import is_picture, picture_array
from provnet.data.modalities.modality import Modality
from provnet.data.open import open_data
from provnet.data.rules import DecodeRule, check_labels
from provnet.data.sources.arrays import to_numpy
from provnet.models.attached import Given, Transform
from provnet.models.pretrained import NAMES as PRETRAINED
from provnet.models.tap import Reader
from provnet.models.text import TEXT
from provnet.runs.inputs import inputs_of, picture_rule, row_shape, to_input
from provnet.runs.run import Run, read_run, write_run
from provnet.training.config import PRESETS, TrainConfig, for_pretrained, for_samples, for_texts, train_config
from provnet.training.fit import fit
from provnet.training.session import refuse_strangers
from provnet.training.setup import auto_head

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


def as_batch(samples: Any, shape: tuple[int, ...], rule: DecodeRule | None = None) -> Any:
    """Samples for a run that takes `shape`: one picture becomes a batch of one, arrays of another size are refused.

    >>> as_batch(np.zeros((8, 6, 3)), (3, 8, 6)).shape, as_batch(Image.new("L", (6, 8)), (1, 8, 6)).shape
    ((1, 8, 6, 3), (1, 8, 6))
    """
    refuse_unopened(samples, "arrays, a Dataset or a PIL picture", "provnet.open_data(...) or PIL.Image.open(...)")
    if isinstance(samples, Image.Image):
        samples = picture_array(samples, "the picture", rule or DecodeRule())
    listed = isinstance(samples, list | tuple) and isinstance(next(iter(samples), None), _PICTURES)
    if isinstance(samples, _ARRAYS):
        samples = to_numpy(samples, rule)
    if not is_picture(shape) or not isinstance(samples, np.ndarray) or samples.ndim not in (2, 3, 4):
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
        raise UsageError(f"expected {wanted}, got {type(given).__name__}; open it first: {way}")


def answers_of(labels: Any, classes: np.ndarray | None = None) -> Any:
    """Labels that scikit-learn can read: tensors become arrays, anything else stays as it is; missing ones are refused.

    Numbers are refused where the classes are names: they may be the positions of a Dataset, whose order of the
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
            f"the labels given are numbers, the classes of this run are names ({_some(classes)}); labels of a "
            "Dataset are positions: give the Dataset itself, score(data) or evaluate(data), or the names, "
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
            f"evaluate takes a Dataset or a pair (X, y), got {type(given).__name__}: evaluate(data) or "
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


def labelled_data(
    rows: np.ndarray,
    shape: tuple[int, ...] | None,
    labels: np.ndarray,
    classes: np.ndarray,
    *,
    names: tuple[str, ...] | None = None,
    features: np.ndarray | None = None,
) -> ImageData:
    """Checked rows (of pictures of that shape) with labels as data; what load must know stands in the spec.

    >>> labelled_data(np.eye(2), None, np.array([7, 3]), np.array([3, 7])).class_names
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
    chosen = for_pretrained(chosen) if run.config.network.backbone in PRETRAINED else chosen
    chosen = for_texts(chosen) if run.config.network.backbone == TEXT else chosen
    usual = {**named.to_json(), **{name: getattr(chosen, name) for name in ("augment", "epochs", "lr")}}
    names = {"epochs": "epochs", "batch_size": "batch_size", "lr": "lr", "augment": "augment", "seed": "random_state"}
    own = {names[k]: v for k, v in recipe.items() if k in names and type(v) in (int, float, str) and v != usual[k]}
    return {"preset": preset if preset in PRESETS else "fast", **own}


_PICTURES = (Image.Image, np.ndarray, torch.Tensor)
_ARRAYS = (torch.Tensor, list, tuple, np.ma.MaskedArray)  # made plain here, as scikit-learn passes over masks
_KINDS: dict[str, Callable[[str], Any]] = {"b": {"False": False, "True": True}.__getitem__, "i": int, "u": int}
_KINDS |= {"f": float, "O": str}


class ProvenanceClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that names the training samples behind every answer.

    Samples are vectors (N, F), pictures (N, H, W), (N, H, W, C) or (N, C, H, W), or flattened pictures (N, F) with
    `image_shape`; as arrays, tensors, lists or data frames. `fit` also takes a Dataset, which has its own labels.

    Parameters:
        network: `single`, `class-independent`, `class-conditional` or `class-conditional-heads`.
        backbone: a name in BACKBONES or SHARING, `auto`, or an `nn.Module` (a copy of it is trained).
        preset: `default`, `fast`, `paper` or `robust`; `epochs`, `batch_size`, `lr` and `augment` replace its values
            unless they are None.
        head: `plain` (the paper's output layer), `exemplar` or `exemplar-trained` (keys), `auto` by preset.
        alpha: label mixing, the probability that the index target is another sample of the class.
        conditional: whether the index branch of `class-conditional` sees the class.
        image_shape: shape of one picture if X holds flattened pictures: (H, W), (H, W, C) or (C, H, W).
        device: `auto`, `cpu` or `cuda`; the trained network is kept on the CPU.
        random_state: a whole number for a reproducible result, None, or a RandomState.
        verbose: show a progress bar.

    Attributes:
        classes_: the labels, in the order of the columns of `predict_proba`, of the type that y had; for a Dataset
            its class names as text: `predict` returns these, while the data's own `labels` are positions in them.
        n_features_in_, feature_names_in_: number of values of a sample, and their names if X was a data frame.
        run_: the Run: network, sample table, settings, per-sample losses. The functions that take a run (`debug`,
            `audit`, `credit`, ...) take this.

    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(n_class=3, return_X_y=True)
    >>> model = ProvenanceClassifier(image_shape=(8, 8), epochs=5, batch_size=32)
    >>> model = model.fit(X[:120], y[:120])
    >>> model.score(X[120:160], y[120:160]) > 0.9
    True
    >>> for e in model.explain(X[120:122], k=5):
    ...     print(e.predicted, e.exemplars[0].label, e.exemplars[0].sample_id[:6], len(e.exemplars))
    0 0 train/ 5
    1 1 train/ 5
    """

    def __init__(
        self,
        network: str = "class-conditional",
        backbone: str | nn.Module = "auto",
        preset: str = "default",
        epochs: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        head: str = "auto",
        augment: str | None = None,
        alpha: float = 0.0,
        conditional: bool = True,
        image_shape: tuple[int, ...] | None = None,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = 0,
        verbose: bool = False,
    ) -> None:
        self.network = network
        self.backbone = backbone
        self.preset = preset
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.head = head
        self.augment = augment
        self.alpha = alpha
        self.conditional = conditional
        self.image_shape = image_shape
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803
        """Train on samples with labels, or on a Dataset."""
        if isinstance(X, ImageData):
            if y is not None:
                raise UsageError("a Dataset has its own labels; call fit(data) without y")
            data = X
            if self.image_shape is not None:
                check_shape(self.image_shape, data.shape)
            if hasattr(self, "feature_names_in_"):
                del self.feature_names_in_
        else:
            refuse_unopened(X, "samples with labels, or a Dataset", "fit(open_data(...))")
            data = self._training_data(X, y)
        where = RunOptions(device=self.device, progress=bool(self.verbose))
        return self._take(fit(data, self._train_config(), where))

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """(N,) the most probable label of each sample, one of `classes_` (names if a Dataset was fitted)."""
        best = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def predict_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        """(N, C) float32, the probability of each class, in the order of `classes_`."""
        images = self._input(X)
        return _probabilities(self.run_, images)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:  # noqa: N803
        """Accuracy on samples with labels, as `classes_` has them, or on a Dataset."""
        check_is_fitted(self, "run_")
        if y is None and isinstance(X, ImageData):
            names = np.array(X.class_names)[X.samples.labels]
            y = self.classes_[positions(names, np.array(self.run_.samples.class_names))]
        return float(super().score(X, answers_of(y, self.classes_), sample_weight))

    def explain(self, X: Any, k: int = 5, weights: str = "plain") -> Explanation:  # noqa: N803
        """Predictions with the k training samples behind each; `weights` are plain or joint. Iterate for single inputs.

        Of a run on pictures X may be a single one, an array or of PIL.
        """
        images = self._input(X)
        return explain(self.run_, images, k=k, weights=weights, warn=False)  # `_input` has looked at the range

    def evaluate(self, test: Any = None, train: Any = None) -> Evaluation:
        """All figures, on unseen data and training data, each a Dataset or a pair (X, y); None is the run's own."""
        check_is_fitted(self, "run_")
        return evaluate(self.run_, self._data(test), self._data(train), progress=bool(self.verbose))

    def save(self, folder: str | Path) -> Path:
        """Write a run folder that `provnet.load` and the command line read.

        An older run there is replaced; a folder of something else is refused.
        """
        check_is_fitted(self, "run_")
        where = as_path("the run's folder", folder)
        if os.path.isdir(where):  # noqa: PTH112 - a name too long to be one is refused in words later
            refuse_strangers(where, overwrite=True)
        return write_run(self.run_, folder)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    def __getattr__(self, name: str) -> Any:
        """Only for names that are not there: those of a Run are asked for by functions that want one."""
        if name in ("config", "samples", "history", "folder"):
            raise AttributeError(f"a classifier has no .{name}, its run has: use model.run_")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def _train_config(self) -> TrainConfig:
        seed = self.random_state
        if not isinstance(seed, numbers.Integral):
            seed = check_random_state(seed).randint(np.iinfo(np.int32).max)
        given = {name: getattr(self, name) for name in ("epochs", "batch_size", "lr", "augment")} | {"seed": seed}
        config = train_config(self.preset, **{name: _plain(value) for name, value in given.items()})
        return config.using(
            network=self.network,
            backbone=copy.deepcopy(self.backbone),
            conditional=_plain(self.conditional),
            alpha=_number(self.alpha),
            head=self.head,
        )

    def _training_data(self, given: Any, answers: Any) -> ImageData:
        rows, shape = flatten(given)
        rows, labels = validate_data(self, rows, answers_of(answers))
        check_classification_targets(labels)
        if self.image_shape is not None and shape is not None:
            check_shape(self.image_shape, shape)
        elif self.image_shape is not None:
            shape = picture_shape(self.image_shape, rows.shape[1])
        return labelled_data(rows, shape, labels, np.unique(labels), features=getattr(self, "feature_names_in_", None))

    def _take(self, run: Run) -> Self:
        """Become the fitted classifier of a run."""
        self.run_ = run
        self.classes_ = classes_of(run)
        self.n_features_in_ = math.prod(run.config.network.input_shape)
        return self

    def _input(self, given: Any) -> Tensor:
        """What the network receives, checked by scikit-learn and against the run."""
        check_is_fitted(self, "run_")
        if isinstance(given, ImageData):
            return to_input(self.run_, given)
        if self.run_.config.network.backbone == TEXT:
            texts: Tensor = inputs_of(self.run_.config, given)
            return texts
        rows, shape = flatten(as_batch(given, self.run_.config.network.input_shape, picture_rule(self.run_.config)))
        rows = validate_data(self, rows, reset=False)
        return to_input(self.run_, rows if shape is None else rows.reshape(len(rows), *shape))

    def _data(self, given: Any) -> ImageData | None:
        """Data to evaluate on, in the run's shape."""
        if given is None:
            return None
        data: ImageData = given
        if not isinstance(given, ImageData):
            samples, answers = pair_of(given)
            rows, shape = flatten(samples)
            rows = validate_data(self, rows, reset=False)
            if shape is None and is_picture(self.run_.config.network.input_shape):
                shape = row_shape(self.run_.config)
            names = self.run_.samples.class_names
            data = labelled_data(
                rows, shape, column_or_1d(answers_of(answers, self.classes_)), self.classes_, names=names
            )
        return replace(data, inputs=to_input(self.run_, data))


@overload
def load(folder: str | Path, backbone: nn.Module | None = None) -> ProvenanceClassifier: ...
@overload
def load(
    folder: str | Path,
    *,
    model: nn.Module,
    at: Reader | None = None,
    pool: Reader | None = None,
    transform: Transform | None = None,
    modality: Modality | None = None,
) -> Run: ...
def load(
    folder: str | Path,
    backbone: nn.Module | None = None,
    *,
    model: nn.Module | None = None,
    at: Reader | None = None,
    pool: Reader | None = None,
    transform: Transform | None = None,
    modality: Modality | None = None,
) -> ProvenanceClassifier | Run:
    """Read a run folder: the Run of a model that was attached or indexed, else a fitted classifier.

    The functions that take a run (`debug`, `audit`, `credit`, `sample_map`, ...) take either; the classifier's Run is
    `.run_`. Labels come back in the type they were fitted with; runs on data opened by name or path have text labels. A
    run whose backbone was given as an object needs it again. A run of an attached model needs that `model` with the
    same weights, and those of `at`, `pool`, `transform` and `modality` that are functions or hold a tokenizer.
    """
    if model is not None:
        if backbone is not None:
            raise UsageError("give the model of an attached run (model=) or the backbone of a trained one, not both")
        return read_run(folder, Given(model, at, pool, transform, modality))
    run = read_run(folder, copy.deepcopy(backbone))
    network, recipe = run.config.network, recipe_of(run)
    given_shape = run.config.data is not None and "sample_shape" in run.config.data.options
    model = ProvenanceClassifier(
        network=network.network,
        backbone=network.backbone if backbone is None else backbone,
        head="auto" if network.head == auto_head(recipe["preset"]) else network.head,
        alpha=network.alpha,
        conditional=network.conditional,
        image_shape=row_shape(run.config) if given_shape else None,
        **recipe,
    )
    names = feature_names_of(run)
    if names is not None:
        model.feature_names_in_ = names
    return model._take(run)


def _plain(value: Any) -> Any:
    """A value of numpy's own types as Python's."""
    return value.item() if isinstance(value, np.generic) else value


def _number(value: Any) -> Any:
    """A number as Python's own; what is none is left to be refused by those who know what it is for."""
    return float(value) if isinstance(value, numbers.Real) else value


def _probabilities(run: Run, images: Tensor) -> np.ndarray:
    """(N, C) class probabilities; scores that are not finite are refused."""
    logits = Attributor(run).each(images, lambda answered: {"logits": answered.logits})["logits"].cpu()
    if not bool(torch.isfinite(logits).all()):
        raise NonFiniteError(
            "the class scores are not finite; check the input's values and the weights (provnet verify)"
        )
    return np.asarray(torch.softmax(logits, 1).numpy())

"""ProvenanceClassifier: the scikit-learn face of provnet; load: a run folder as such a classifier."""

from __future__ import annotations

import copy
import math
import numbers
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from provnet.chunks import at_once
from provnet.data.files import as_path
from provnet.data.imagedata import ImageData
from provnet.errors import NonFiniteError, UsageError
from provnet.evaluation import Evaluation, evaluate
from provnet.explanation import Explanation, active_network, explain
from provnet.inputs import picture_rule, row_shape, to_input
from provnet.labelled import (
    answers_of,
    check_shape,
    classes_of,
    feature_names_of,
    flatten,
    labelled,
    many,
    pair_of,
    picture_shape,
    positions,
    recipe_of,
    refuse_unopened,
)
from provnet.modelfile import Run, read_run, write_run
from provnet.training.config import TrainConfig, train_config
from provnet.training.fit import fit
from provnet.training.folder import refuse_strangers
from provnet.training.plan import auto_head


class ProvenanceClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that names the training samples behind every answer.

    Samples are vectors (N, F), pictures (N, H, W), (N, H, W, C) or (N, C, H, W), or flattened pictures (N, F) with
    `image_shape`; as arrays, tensors, lists or data frames. `fit` also takes an ImageData, which has its own labels.

    Parameters:
        network: `single`, `class-independent`, `class-conditional` or `class-conditional-heads`.
        backbone: a name in BACKBONES or SHARING, `auto`, or an `nn.Module` (a copy of it is trained).
        preset: `fast`, `paper` or `robust`; `epochs`, `batch_size`, `lr` and `augment` replace its values where they
            are not None.
        head: `plain` (the paper's output layer), `exemplar` or `exemplar-trained` (keys), `auto` by preset.
        alpha: label mixing, the probability that the index target is another sample of the class.
        conditional: whether the index branch of `class-conditional` sees the class.
        image_shape: shape of one picture where X holds flattened ones: (H, W), (H, W, C) or (C, H, W).
        device: `auto`, `cpu` or `cuda`; the trained network is kept on the CPU.
        random_state: a whole number for the same result every time, None, or a RandomState.
        verbose: show a progress bar.

    Attributes:
        classes_: the labels, in the order of the columns of `predict_proba`, of the type that y had; for an ImageData
            its class names, text: `predict` gives those, where the data's own `labels` are positions among them.
        n_features_in_, feature_names_in_: values of one sample, and their names where X was a data frame.
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
        preset: str = "fast",
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
        """Train on samples with labels, or on an ImageData."""
        if isinstance(X, ImageData):
            if y is not None:
                raise UsageError("an ImageData has its own labels; call fit(data) without y")
            data = X
            if self.image_shape is not None:
                check_shape(self.image_shape, data.shape)
            if hasattr(self, "feature_names_in_"):
                del self.feature_names_in_
        else:
            refuse_unopened(X, "samples with labels, or an ImageData,", "fit(open_data(...))")
            data = self._training_data(X, y)
        run = fit(
            data,
            network=self.network,
            backbone=copy.deepcopy(self.backbone),
            conditional=_plain(self.conditional),
            alpha=_number(self.alpha),
            head=self.head,
            config=self._train_config(),
            device=self.device,
            progress=bool(self.verbose),
        )
        return self._take(run)

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """(N,) the most probable label of each sample, one of `classes_`: names where an ImageData was fitted."""
        best = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def predict_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        """(N, C) float32, the probability of each class, in the order of `classes_`."""
        images = self._input(X)
        return _probabilities(self.run_, images)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:  # noqa: N803
        """Accuracy on samples with labels, as `classes_` has them, or on an ImageData."""
        check_is_fitted(self, "run_")
        if y is None and isinstance(X, ImageData):
            names = np.array(X.class_names)[X.samples.labels]
            y = self.classes_[positions(names, np.array(self.run_.samples.class_names))]
        return float(super().score(X, answers_of(y, self.classes_), sample_weight))

    def explain(self, X: Any, k: int = 5, weights: str = "plain") -> Explanation:  # noqa: N803
        """Predictions with the k training samples behind each, `weights` plain or joint; iterate for single ones.

        Of a run on pictures X may be a single one, an array or of PIL.
        """
        images = self._input(X)
        return explain(self.run_, images, k=k, weights=weights, warn=False)  # `_input` has looked at the range

    def evaluate(self, test: Any = None, train: Any = None) -> Evaluation:
        """All figures, on unseen data and, if given again, the training data; each an ImageData or a pair (X, y)."""
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
            raise AttributeError(f"a classifier has no .{name}, its run has: where a run is wanted, give model.run_")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def _train_config(self) -> TrainConfig:
        seed = self.random_state
        if not isinstance(seed, numbers.Integral):
            seed = check_random_state(seed).randint(np.iinfo(np.int32).max)
        given = {name: getattr(self, name) for name in ("epochs", "batch_size", "lr", "augment")} | {"seed": seed}
        return train_config(self.preset, **{name: _plain(value) for name, value in given.items()})

    def _training_data(self, given: Any, answers: Any) -> ImageData:
        rows, shape = flatten(given)
        rows, labels = validate_data(self, rows, answers_of(answers))
        check_classification_targets(labels)
        if self.image_shape is not None and shape is not None:
            check_shape(self.image_shape, shape)
        elif self.image_shape is not None:
            shape = picture_shape(self.image_shape, rows.shape[1])
        return labelled(rows, shape, labels, np.unique(labels), features=getattr(self, "feature_names_in_", None))

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
        rows, shape = flatten(many(given, self.run_.config.network.input_shape, picture_rule(self.run_.config)))
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
            if shape is None and len(self.run_.config.network.input_shape) == 3:
                shape = row_shape(self.run_.config)
            names = self.run_.samples.class_names
            data = labelled(rows, shape, column_or_1d(answers_of(answers, self.classes_)), self.classes_, names=names)
        return replace(data, images=to_input(self.run_, data))


def load(folder: str | Path, backbone: nn.Module | None = None) -> ProvenanceClassifier:
    """The fitted classifier of a run folder, whether `save` or `provnet train` wrote it; its Run is `.run_`.

    The functions that take a run (`debug`, `audit`, `credit`, `sample_map`, ...) take the classifier, too.
    Labels come back in the type they were fitted with; runs on data opened by name or path have text labels. A run
    whose backbone was given as object needs it again.
    """
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
    net = active_network(run)[0].eval()  # in a single branch the keys decide the class, too
    device = next(net.parameters()).device
    batches = torch.split(images, at_once(images.shape[1:], device.type))
    with torch.inference_mode():
        logits = torch.cat([net(batch.to(device)).logits.float().cpu() for batch in batches])
    if not bool(torch.isfinite(logits).all()):
        raise NonFiniteError(
            "the class scores are not finite; check the input's values and the weights (provnet verify)"
        )
    return np.asarray(torch.softmax(logits, 1).numpy())

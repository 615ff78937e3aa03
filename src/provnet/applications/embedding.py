"""Where the training samples lie for the index branch: its last hidden features, on a plane and in groups (§4.2).

t-SNE with openTSNE where it is installed (minutes for 60,000 samples), else with scikit-learn (much slower).

Letters: n samples, D features.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from provnet.applications.queries import checked
from provnet.chunks import at_once
from provnet.errors import DataError, NonFiniteError, UsageError, one_of
from provnet.explanation import active_network
from provnet.inputs import Fitted, real, run_of, whole
from provnet.modelfile import Run
from provnet.models.exemplar import ExemplarHead, unit

ENGINES = ("auto", "openTSNE", "scikit-learn")
WIDTH = 50  # principal components that t-SNE sees: what lies beyond is mostly noise, and time
FEWEST = 5
AT_ONCE = 512  # samples that go through the network together, where they are small
ALIKE = 1e-6  # differences of features, of the largest of them, that are rounding
Report = Callable[[int, str], None]


@dataclass(frozen=True, eq=False)
class Embedding:
    """Places on a plane: (n, 2) float32, what made them, how long it took, and the perplexity that n allowed."""

    xy: np.ndarray
    engine: str
    seconds: float
    perplexity: float


@dataclass(frozen=True, eq=False)
class Cluster:
    """A group of samples of one class: its number within the class, its members, and those nearest to its centre."""

    label: int
    number: int
    members: np.ndarray
    nearest: np.ndarray


def index_features(
    run: Run | Fitted, images: Tensor, *, batch_size: int | None = None, report: Report | None = None
) -> np.ndarray:
    """(n, D) float32: the last hidden layer of the index branch, under the class that is predicted.

    With keys they have length one, so that distances rank as cosines do. `batch_size` images go through the network at
    a time; None chooses by their size (`provnet.chunks`).

    >>> import provnet
    >>> from provnet.training.config import train_config
    >>> from provnet.training.fit import fit
    >>> data = provnet.open_data("embedded").select(torch.arange(40))
    >>> index_features(fit(data, config=train_config(epochs=1)), data.images).shape
    (40, 512)
    """
    run = run_of(run)
    images = checked(run, images, warn=False)
    net = active_network(run)[0].eval()
    device = next(net.parameters()).device
    size = at_once(images.shape[1:], device.type, AT_ONCE) if batch_size is None else whole("batch_size", batch_size)
    parts = []
    with torch.inference_mode():
        for start in range(0, len(images), size):
            found = net(images[start : start + size].to(device)).index_features.float()
            found = unit(found) if isinstance(net.index_head, ExemplarHead) else found
            parts.append(found.cpu())
            if report is not None:
                report(min(start + size, len(images)), "features")
    features = np.asarray(torch.cat(parts).numpy())
    if not np.isfinite(features).all():
        raise NonFiniteError("the index features are not finite; check the input and the weights (provnet verify)")
    return features


def embed(
    features: np.ndarray,
    *,
    perplexity: float = 30.0,
    seed: int = 0,
    engine: str = "auto",
    threads: int = 2,
    report: Report | None = None,
) -> Embedding:
    """Lay samples out on a plane by t-SNE of their first 50 principal components; begins with the first two.

    `report` is told (iteration, words) where the engine says it. The same seed, versions and threads give the same map.

    >>> points = np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32)
    >>> embed(points, engine="scikit-learn").xy.shape
    (40, 2)
    """
    n = len(features)
    if n < FEWEST:
        raise UsageError(f"a map needs {FEWEST} samples or more, got {n}")
    seed, threads = whole("seed", seed, 0), whole("threads", threads)
    if not real("perplexity", perplexity) >= 1:
        raise UsageError(f"perplexity must be 1 or more, got {perplexity}")
    chosen = engine_for(engine)
    began = time.perf_counter()
    if np.ptp(features, axis=0).max() <= ALIKE * np.abs(features).max():
        raise DataError(f"a map needs samples that differ: the features of all {n:,} are equal")
    inputs = principal(features, WIDTH)
    perplexity = min(perplexity, (n - 1) / 3)
    made = _open_tsne if chosen == "openTSNE" else _scikit_learn
    xy, version = made(inputs, perplexity, seed, threads, report)
    if not np.isfinite(xy).all():
        raise NonFiniteError("t-SNE gave places that are not finite; are all samples alike?")
    return Embedding(np.ascontiguousarray(xy, dtype=np.float32), version, time.perf_counter() - began, perplexity)


def engine_for(wish: str = "auto") -> str:
    """The engine that a wish stands for; one that is not installed is refused.

    >>> engine_for("scikit-learn")
    'scikit-learn'
    """
    one_of("engine", wish, ENGINES)
    there = _opentsne() is not None
    if wish == "openTSNE" and not there:
        raise UsageError("openTSNE is not installed: pip install '.[maps]', or use engine scikit-learn")
    return ("openTSNE" if there else "scikit-learn") if wish == "auto" else wish


def _opentsne() -> Any | None:
    """The optional extra, or None where it is not installed."""
    try:
        import openTSNE
    except ImportError:
        return None
    return openTSNE


def principal(features: np.ndarray, width: int) -> np.ndarray:
    """(n, D) -> (n, at most `width`) principal components, signs fixed, scaled so that the first has spread 1.

    >>> principal(np.array([[0.0, 0.0], [2.0, 0.0], [4.0, 1.0]]), 1).shape
    (3, 1)
    """
    centred = features - features.mean(0, keepdims=True, dtype=np.float64)
    _, axes = np.linalg.eigh(centred.T @ centred)
    axes = axes[:, ::-1][:, :width]
    largest = np.abs(axes).argmax(0)
    axes = axes * np.sign(axes[largest, np.arange(axes.shape[1])])
    out = centred @ axes
    spread = out[:, 0].std()
    return np.asarray(out / spread if spread > 0 else out, dtype=np.float32)


def clusters_within(
    features: np.ndarray, labels: np.ndarray, count: int = 5, *, seed: int = 0, nearest: int = 4
) -> list[Cluster]:
    """k-means inside each class, on the features themselves; the samples nearest to each centre come with it.

    Groups of a class are numbered by size, largest first.

    >>> points = np.array([[0.0], [0.1], [5.0], [5.1], [5.2]], dtype=np.float32)
    >>> [one.members.tolist() for one in clusters_within(points, np.zeros(5, np.int64), 2)]
    [[2, 3, 4], [0, 1]]
    """
    from sklearn.cluster import KMeans

    count = whole("groups of a class", count)
    found = []
    for label in np.unique(labels).tolist():
        rows = np.flatnonzero(labels == label)
        mine = np.asarray(features[rows], dtype=np.float32)
        k = min(count, len(np.unique(mine, axis=0)) if len(rows) <= 10 * count else count, len(rows))
        fitted = KMeans(k, n_init=3, random_state=seed).fit(mine)
        groups = sorted(range(k), key=lambda one: (-int((fitted.labels_ == one).sum()), one))
        for number, one in enumerate(groups):
            members = np.flatnonzero(fitted.labels_ == one)
            away = np.linalg.norm(mine[members] - fitted.cluster_centers_[one], axis=1)
            closest = members[np.argsort(away, kind="stable")[:nearest]]
            found.append(Cluster(int(label), number, rows[members], rows[closest]))
    return found


def _open_tsne(
    inputs: np.ndarray, perplexity: float, seed: int, threads: int, report: Report | None
) -> tuple[np.ndarray, str]:
    opentsne = _opentsne()
    assert opentsne is not None
    done = {"before": 0, "last": 0}

    def told(iteration: int, error: float, _: Any) -> None:
        if iteration < done["last"]:  # the second phase counts from the start
            done["before"] += done["last"]
        done["last"] = iteration
        if report is not None:
            report(done["before"] + iteration, f"KL divergence {error:.3f}")

    tsne = opentsne.TSNE(
        perplexity=perplexity,
        initialization="pca",
        n_jobs=threads,
        random_state=seed,
        callbacks=told,
        callbacks_every_iters=25,
    )
    return np.asarray(tsne.fit(inputs)), f"openTSNE {opentsne.__version__}"


def _scikit_learn(
    inputs: np.ndarray, perplexity: float, seed: int, threads: int, _: Report | None
) -> tuple[np.ndarray, str]:
    import sklearn
    from sklearn.manifold import TSNE

    tsne = TSNE(perplexity=perplexity, init="pca", random_state=seed, n_jobs=threads)
    return np.asarray(tsne.fit_transform(inputs)), f"scikit-learn {sklearn.__version__}"


STEPS = 750  # of openTSNE, both phases

"""A map of a run: its samples on a plane, groups inside classes, and the test samples that were misattributed.

Letters: n training samples on the map, m misattributed test samples, K exemplars.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from provnet.answers.attributor import Attributor, explain
from provnet.answers.evaluation import own_classes, trained_rows
from provnet.answers.explanation import Explanation
from provnet.base.batches import Inputs
from provnet.base.errors import DataError, NonFiniteError, UsageError, one_of
from provnet.base.options import MapOptions, with_changes
from provnet.base.progress import Update, progress_bar
from provnet.data.assemble import evenly
from provnet.data.dataset import ImageData
from provnet.heads.keys import unit
from provnet.models.keys import key_head
from provnet.runs.inputs import Fitted, checked_inputs, finite_number, run_of, whole_number
from provnet.runs.run import Run

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
    run: Run | Fitted, images: Any, *, batch_size: int | None = None, report: Report | None = None
) -> np.ndarray:
    """(n, D) float32: the last hidden layer of the index branch, under the class that is predicted.

    With keys they have length one, so that distances rank as cosines do. Of a frozen backbone they are its own
    features, as its keys are whitened to tell each sample from all others. `batch_size` images go through the network
    at a time; None chooses by their size (`provnet.base.batches`).

    >>> import provnet
    >>> from provnet.training.config import train_config
    >>> from provnet.training.fit import fit
    >>> data = provnet.open_data("embedded").select(np.arange(40))
    >>> index_features(fit(data, config=train_config(epochs=1)), data.images).shape
    (40, 256)
    """
    run = run_of(run)
    images = checked_inputs(run, images, warn=False)
    report, frozen = report or _silent, run.network.fixed_features and key_head(run.network) is not None
    found = Attributor(run).each(
        images,
        lambda answered: {"features": (unit(answered.support_features) if frozen else answered.placed()).cpu()},
        batch_size=batch_size,
        most=AT_ONCE,
        update=lambda done: report(done, "features"),
    )
    features = np.asarray(found["features"].numpy())
    if not np.isfinite(features).all():
        raise NonFiniteError("the index features are not finite; check the input and the weights (provnet verify)")
    return features


def _silent(done: int, words: str) -> None:
    """No report."""


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
    seed, threads = whole_number("seed", seed, 0), whole_number("threads", threads)
    if not finite_number("perplexity", perplexity) >= 1:
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

    count = whole_number("groups of a class", count)
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


K = 5


@dataclass(frozen=True, eq=False)
class SampleMap:
    """What is on the map.

    Attributes:
        index: (n,) int64, the training sample behind each place.
        xy: (n, 2) places.
        cluster: (n,) int64, number of its group within its class.
        exemplars: (n, K) int64 training samples that are named for it, itself left out; -1 where there are fewer.
        clusters: the groups; members and nearest are training samples.
        test_rows: (m,) int64, which test samples are misattributed: the first exemplar is not of the true class.
        test_xy: (m, 2) their places.
        misattributed: their explanations.
        tested: how many test samples there are for which a sample may be named.
        unnamed: how many there are for which none may: all samples of the class that is predicted are withheld.
        withheld: training samples left out because they are not to be named.
        left_out: training samples that are not on the map because of a limit.
        embedding: engine and seconds.
    """

    index: np.ndarray
    xy: np.ndarray
    cluster: np.ndarray
    exemplars: np.ndarray
    clusters: tuple[Cluster, ...]
    test_rows: np.ndarray
    test_xy: np.ndarray
    misattributed: Explanation | None
    tested: int
    unnamed: int
    withheld: int
    left_out: int
    embedding: Embedding

    def __repr__(self) -> str:
        """One line: places would fill a page."""
        wrong = f"{len(self.test_rows):,} of {self.tested:,} test samples misattributed"
        return f"SampleMap({len(self.index):,} training samples, {len(self.clusters):,} groups, {wrong})"


def sample_map(
    run: Run | Fitted,
    train: ImageData | None = None,
    test: ImageData | None = None,
    *,
    index: np.ndarray | None = None,
    options: MapOptions | None = None,
    **changes: Any,
) -> SampleMap:
    """Lay out a run's training samples, and the misattributed ones of some test data among them.

    `train` None means the run's own data, opened again. `index` says which training sample each row of `train` is,
    where some are missing; None finds them by their hashes. Withheld samples are left out and counted. `changes` are
    options by name, such as `groups=3`.

    >>> import provnet, torch
    >>> from provnet.training.config import train_config
    >>> from provnet.training.fit import fit
    >>> data = provnet.open_data("embedded").select(torch.arange(40))
    >>> found = sample_map(fit(data, config=train_config(epochs=1)), data, groups=2, engine="scikit-learn")
    >>> found.xy.shape, found.exemplars.shape
    ((40, 2), (40, 5))
    """
    asked = with_changes(MapOptions, options, changes)
    run = run_of(run)
    engine, limit = engine_for(asked.engine), None if asked.limit is None else whole_number("limit", asked.limit)
    train = run.data(progress=asked.progress) if train is None else train
    own = trained_rows(run, train, index)
    if test is not None:
        test = own_classes(run, test)
    shown = np.flatnonzero(~run.samples.withheld[own])
    rows = shown[evenly(run.samples.labels[own][shown], limit)]
    own, train = own[rows], train.select(rows)
    labels = run.samples.labels[own]
    missed, wrong, unnamed = _misattributed(run, test)
    misread = None if test is None else test.inputs[torch.from_numpy(missed)]
    features, embedding = _embedded(run, train, misread, engine, asked)
    found = clusters_within(features, labels, asked.groups, seed=asked.seed)
    cluster = np.zeros(len(own), dtype=np.int64)
    for one in found:
        cluster[one.members] = one.number
    return SampleMap(
        index=own,
        xy=embedding.xy[: len(own)],
        cluster=cluster,
        exemplars=others_named(run, train, own),
        clusters=tuple(Cluster(c.label, c.number, own[c.members], own[c.nearest]) for c in found),
        test_rows=missed,
        test_xy=embedding.xy[len(own) :],
        misattributed=wrong,
        tested=0 if test is None else len(test) - unnamed,
        unnamed=unnamed,
        withheld=int(run.samples.withheld.sum()),
        left_out=len(shown) - len(rows),
        embedding=embedding,
    )


def _embedded(
    run: Run, train: ImageData, missed: Inputs | None, engine: str, asked: MapOptions
) -> tuple[np.ndarray, Embedding]:
    """Features of the training samples, and the places of these and of the misattributed pictures after them."""
    with progress_bar("features", len(train), asked.progress) as update:
        features = everything = index_features(run, train.inputs, report=update)
    if missed is not None and len(missed):
        everything = np.concatenate([features, index_features(run, missed)])
    settings: dict[str, Any] = {"perplexity": asked.perplexity, "seed": asked.seed, "threads": asked.threads}
    with _steps(engine, len(everything), asked.progress) as update:
        return features, embed(everything, engine=engine, report=update, **settings)


@contextmanager
def _steps(engine: str, n: int, progress: bool) -> Iterator[Update]:
    """The bar of openTSNE; scikit-learn does not say how far it is, so a spinner and the time stand for its steps."""
    title = f"t-SNE ({engine})"
    if engine == "openTSNE":
        with progress_bar(title, STEPS, progress) as update:
            yield update
        return
    words = f"{title}: laying out {n:,} samples; how far it is cannot be told"
    with progress_bar(title, 1, enabled=False) as update, _spinner(words, progress):
        update(0, words)
        yield update
        update(1, "done")


@contextmanager
def _spinner(words: str, enabled: bool) -> Iterator[None]:
    if not enabled:
        yield
        return

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        bar.add_task(words, total=None)
        yield


def others_named(run: Run | Fitted, train: ImageData, own: np.ndarray) -> np.ndarray:
    """(n, K) what is named for training samples besides themselves; a sample names itself first, which says little."""
    run = run_of(run)
    named = explain(run, train.inputs, k=K + 1).index
    mine = named == own[:, None]
    order = np.argsort(mine | (named < 0), axis=1, kind="stable")
    rest = np.where(mine, -1, named)
    found = np.take_along_axis(rest, order, 1)[:, :K]
    return np.pad(found, ((0, 0), (0, K - found.shape[1])), constant_values=-1)


def _misattributed(run: Run, test: ImageData | None) -> tuple[np.ndarray, Explanation | None, int]:
    """Test samples whose first exemplar is of another class, their five exemplars, and how many samples have none."""
    if test is None or len(test) == 0:
        return np.zeros(0, dtype=np.int64), None, 0
    found = explain(run, test, k=K)
    named = found.index[:, 0] >= 0
    rows = np.flatnonzero(named & (found.label[:, 0] != test.samples.labels))
    return rows, found[rows], int((~named).sum())

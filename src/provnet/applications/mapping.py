"""A map of a run: its samples on a plane, groups inside classes, and the test samples that were misattributed.

Letters: n training samples on the map, m misattributed test samples, K exemplars.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from provnet.applications.embedding import (
    STEPS,
    Cluster,
    Embedding,
    clusters_within,
    embed,
    engine_for,
    index_features,
)
from provnet.data.assemble import evenly
from provnet.data.imagedata import ImageData, image_data
from provnet.evaluation import check_classes, trained_rows
from provnet.explanation import Explanation, explain
from provnet.inputs import Fitted, run_of, whole
from provnet.modelfile import Run
from provnet.training.progress import Update, progress_bar

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
    train: ImageData,
    test: ImageData | None = None,
    *,
    index: np.ndarray | None = None,
    limit: int | None = None,
    groups: int = 5,
    perplexity: float = 30.0,
    seed: int = 0,
    engine: str = "auto",
    threads: int = 2,
    progress: bool = False,
) -> SampleMap:
    """Lay out a run's training samples, and the misattributed ones of some test data among them.

    `index` says which training sample each row of `train` is, where some are missing; None means all, in order. Data
    that are not those of the run, or in another order, are refused. With `limit` so many of them are taken, evenly by
    class. Withheld samples are left out and counted.

    >>> import provnet, torch
    >>> from provnet.training.config import train_config
    >>> from provnet.training.fit import fit
    >>> data = provnet.open_data("embedded").select(torch.arange(40))
    >>> found = sample_map(fit(data, config=train_config(epochs=1)), data, groups=2, engine="scikit-learn")
    >>> found.xy.shape, found.exemplars.shape
    ((40, 2), (40, 5))
    """
    run = run_of(run)
    engine, limit = engine_for(engine), None if limit is None else whole("limit", limit)
    own = trained_rows(run, image_data("the training data", train), index)
    if test is not None:
        check_classes(run, test)
    shown = np.flatnonzero(~run.samples.withheld[own])
    rows = shown[evenly(run.samples.labels[own][shown], limit)]
    own, train = own[rows], train.select(rows)
    labels = run.samples.labels[own]
    missed, wrong, unnamed = _misattributed(run, test)
    with progress_bar("features", len(train), progress) as update:
        features = index_features(run, train.images, report=update)
    everything = features
    if test is not None and len(missed):
        everything = np.concatenate([features, index_features(run, test.images[missed])])
    with _steps(engine, len(everything), progress) as update:
        embedding = embed(everything, perplexity=perplexity, seed=seed, engine=engine, threads=threads, report=update)
    found = clusters_within(features, labels, groups, seed=seed)
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
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        bar.add_task(words, total=None)
        yield


def others_named(run: Run | Fitted, train: ImageData, own: np.ndarray) -> np.ndarray:
    """(n, K) what is named for training samples besides themselves; a sample names itself first, which says little."""
    run = run_of(run)
    named = explain(run, train.images, k=K + 1).index
    mine = named == own[:, None]
    order = np.argsort(mine | (named < 0), axis=1, kind="stable")
    rest = np.where(mine, -1, named)
    found = np.take_along_axis(rest, order, 1)[:, :K]
    return np.pad(found, ((0, 0), (0, K - found.shape[1])), constant_values=-1)


def _misattributed(run: Run, test: ImageData | None) -> tuple[np.ndarray, Explanation | None, int]:
    """Test samples whose first exemplar is of another class, their five exemplars, and how many samples have none."""
    if test is None or len(test) == 0:
        return np.zeros(0, dtype=np.int64), None, 0
    found = explain(run, test.images, k=K)
    named = found.index[:, 0] >= 0
    rows = np.flatnonzero(named & (found.label[:, 0] != test.samples.labels))
    return rows, found[rows], int((~named).sum())

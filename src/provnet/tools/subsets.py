"""Which training samples are indexed when not all are: stratified, prototypes, boundary or diverse (§4.3).

Every way takes as many samples of a class as `per_class` says, so that classes keep their proportions, and gives rising
int64 positions that are a function of its arguments and the seed alone.

Letters: N samples, D features, C classes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from provnet.answers.attributor import Answered, Attributor
from provnet.base.batches import pieces
from provnet.base.errors import DataError, NonFiniteError, UsageError, one_of
from provnet.base.options import SUBSET, RunOptions
from provnet.base.progress import progress_bar
from provnet.data.dataset import ImageData, image_data
from provnet.heads.index_map import IndexMap
from provnet.models.network import build
from provnet.runs.inputs import Fitted, run_of, whole_number
from provnet.runs.run import Run
from provnet.training.config import train_config
from provnet.training.fit import fit
from provnet.training.subset import IndexSubset

SELECTIONS = ("stratified", "prototypes", "boundary", "diverse")
ROUNDS = 25  # of k-means at most
AT_ONCE = 256  # centres whose distances to all samples are held at a time
_ASKED = re.compile(r"(\d+(?:\.\d+)?)\s*%|(\d+)")


def per_class(asked: str | int, labels: np.ndarray, classes: int) -> np.ndarray:
    """(C,) how many samples of each class: "30%" is rounded down within a class, but never to none; "500" is in all.

    A count is shared out by the sizes of the classes; every class that has samples gets at least one.

    >>> labels = np.array([0] * 10 + [1] * 4 + [3])
    >>> per_class("30%", labels, 4).tolist(), per_class(8, labels, 4).tolist()
    ([3, 1, 0, 1], [5, 2, 0, 1])
    """
    sizes = np.bincount(labels, minlength=classes)
    there = int((sizes > 0).sum())
    text = str(asked).strip()
    found = _ASKED.fullmatch(text)
    if found is None or len(text) > 20:
        raise UsageError(f'a subset is a percentage such as 30% or a number of samples such as 500; got "{text[:40]}"')
    if found[1] is not None:
        share = float(found[1])
        if not 0 < share <= 100:
            raise UsageError(f"a subset is above 0% and at most 100% of the samples; got {text}")
        return np.asarray(np.where(sizes > 0, np.maximum(np.floor(sizes * share / 100 + 1e-9), 1), 0), dtype=np.int64)
    count = int(found[2])
    if count > len(labels):
        raise UsageError(f"a subset of {count:,} samples is asked for, there are {len(labels):,}; give fewer, or 100%")
    if count < there:
        raise UsageError(
            f"a subset of {count:,} samples leaves classes without one: {there:,} classes have samples; give at least "
            "one for each"
        )
    return _shared_out(count, sizes)


def choose_rows(
    select: str,
    labels: np.ndarray,
    counts: np.ndarray,
    *,
    features: np.ndarray | None = None,
    margins: np.ndarray | None = None,
    seed: int = 0,
) -> np.ndarray:
    """Rising positions of the chosen samples, `counts` (C,) of each class.

    stratified  drawn by the seed within each class.
    prototypes  k-means of the features (N, D) within a class, and the sample nearest to each centre.
    boundary    those of smallest margin (N,): the class is least clear.
    diverse     farthest-point: first the sample nearest to the class mean, then again and again the one whose features
                are farthest from all that were taken.

    >>> labels, features = np.array([0, 0, 0, 1]), np.array([[0.0], [0.1], [9.0], [5.0]])
    >>> choose_rows("diverse", labels, np.array([2, 1]), features=features).tolist()
    [1, 2, 3]
    """
    one_of("selection", select, SELECTIONS)
    given = {"prototypes": features, "diverse": features, "boundary": margins}.get(select, labels)
    if given is None:
        raise UsageError(f'selection "{select}" needs {"margins" if select == "boundary" else "features"}')
    if len(given) != len(labels):
        raise UsageError(f"{len(given):,} rows were given for {len(labels):,} samples; one each is needed")
    if not np.isfinite(given).all():
        raise NonFiniteError(f'selection "{select}" was given NaN or infinite values')
    chosen = [np.empty(0, dtype=np.int64)]
    for label in np.flatnonzero(counts).tolist():
        members = np.flatnonzero(labels == label)
        count = int(counts[label])
        if count > len(members):
            raise UsageError(f"{count:,} samples of class {label} are asked for, it has {len(members):,}")
        if select == "stratified":
            picked = np.random.default_rng([seed, label]).permutation(len(members))[:count]
        elif select == "boundary":
            picked = np.argsort(given[members], kind="stable")[:count]
        else:
            inside = np.ascontiguousarray(given[members], dtype=np.float32)
            picked = _prototypes(inside, count, seed) if select == "prototypes" else _farthest(inside, count)
        chosen.append(members[picked])
    return np.sort(np.concatenate(chosen)).astype(np.int64)


def _shared_out(count: int, sizes: np.ndarray) -> np.ndarray:
    """One for each class that has samples, the rest by largest remainder, never more than a class has."""
    counts = (sizes > 0).astype(np.int64)
    left = count - int(counts.sum())
    wanted = sizes * (count / max(int(sizes.sum()), 1)) - counts
    ideal = np.clip(wanted, 0, sizes - counts)
    ideal *= left / ideal.sum() if ideal.sum() > left > 0 else 1.0
    counts += np.floor(ideal + 1e-9).astype(np.int64) if left else 0
    order = np.argsort(-(ideal - np.floor(ideal + 1e-9)), kind="stable")
    while counts.sum() < count:
        for label in order:
            if counts.sum() < count and counts[label] < sizes[label]:
                counts[label] += 1
    return counts


def _prototypes(features: np.ndarray, count: int, seed: int) -> np.ndarray:
    """The sample nearest to each of `count` centres; no sample twice, so equal pictures may bring the next nearest."""
    from sklearn.cluster import KMeans

    k = min(count, len(np.unique(features, axis=0)))
    centres = KMeans(k, n_init=1, max_iter=ROUNDS, random_state=seed % 2**32).fit(features).cluster_centers_
    lengths, taken = np.square(features).sum(1), np.zeros(len(features), dtype=features.dtype)
    picked = []
    for rows in pieces(count, AT_ONCE):
        numbers = np.arange(rows.start, rows.stop) % k
        away = lengths - 2 * (centres[numbers] @ features.T)  # squared distances, but for a constant of each centre
        for row in away:
            picked.append(int(np.argmin(row + taken)))
            taken[picked[-1]] = np.inf
    return np.array(picked, dtype=np.int64)


def _farthest(features: np.ndarray, count: int) -> np.ndarray:
    """Farthest-point selection; of equally far ones the first."""
    picked = [int(np.argmin(np.square(features - features.mean(0)).sum(1)))]
    away = np.full(len(features), np.inf)
    while len(picked) < count:
        away = np.minimum(away, np.square(features - features[picked[-1]]).sum(1))
        away[picked] = -1.0  # equal pictures are at distance 0 and still to be had
        picked.append(int(np.argmax(away)))
    return np.array(picked, dtype=np.int64)


QUICK = 5  # epochs of the network that is trained for its features alone
BATCH = 1024  # where samples are small


@dataclass(frozen=True, eq=False)
class NetworkView:
    """What a network makes of samples: backbone features (N, D) float32, and by how much the best class leads (N,)."""

    features: np.ndarray
    margins: np.ndarray


def index_subset(
    data: ImageData,
    asked: str | int,
    select: str = "stratified",
    *,
    classes_on: str = "all",
    run: Run | Fitted | None = None,
    seed: int = 0,
    device: str = "auto",
    progress: bool = False,
) -> IndexSubset:
    """Choose the samples to index: a percentage or a number of them, in one of the four ways of `--select`.

    All ways but `stratified` use features: those of `run`, or else of a network with only a class branch that is
    trained on the data for 5 epochs with preset fast and the same seed.

    >>> import provnet
    >>> data = provnet.open_data("embedded", limit=100)
    >>> chosen = index_subset(data, "30%")
    >>> len(chosen.rows), chosen.about["select"]
    (30, 'stratified')
    """
    run = None if run is None else run_of(run)
    image_data("the training data", data)
    seed = whole_number("seed", seed, 0)
    counts = per_class(asked, data.samples.labels, len(data.class_names))
    about: dict[str, Any] = {"asked": str(asked), "select": select, "seed": seed}
    given: dict[str, Any] = {}
    if select != "stratified":
        if run is None:
            run, about["features"] = quick_run(data, seed=seed, device=device, progress=progress), QUICK_WORDS
        else:
            about["features"] = f"a given run, {run.config.network.network}, backbone {run.config.network.backbone}"
        seen = view_of(run, data, device=device, progress=progress)
        given = {"features": seen.features, "margins": seen.margins}
    elif run is not None:
        raise UsageError("a stratified subset is drawn by the seed and needs no run; leave --select-from out")
    rows = choose_rows(select, data.samples.labels, counts, seed=seed, **given)
    return IndexSubset(rows, classes_on, about)


def quick_run(data: ImageData, *, seed: int = 0, device: str = "auto", progress: bool = False) -> Run:
    """A network for its features alone: one indexed sample a class, whose loss counts nothing, so it learns classes."""
    labels = data.samples.labels
    first = np.unique(labels, return_index=True)[1]
    config = train_config("fast", epochs=QUICK, index_weight=0.0, seed=seed)
    return fit(data, config, RunOptions(device=device, progress=progress), index_subset=IndexSubset(np.sort(first)))


@torch.inference_mode()
def view_of(run: Run | Fitted, data: ImageData, *, device: str = "auto", progress: bool = False) -> NetworkView:
    """Features and margins of all samples, one pass; the margin is the best class score minus the second best."""
    run = run_of(run)
    shape = run.config.network.input_shape
    if data.shape != shape:
        raise DataError(f"the run to select from takes samples of shape {shape}, the data have {data.shape}")
    cuda = torch.cuda.is_available() if device == "auto" else device == "cuda"
    where = torch.device("cuda" if cuda else "cpu")
    ask = Attributor(run.network.to(where))
    with progress_bar("features", len(data), progress) as update:
        found = ask.each(data.inputs, _read, most=BATCH, update=lambda done: update(done, ""))
    run.network.cpu()
    return NetworkView(found["features"].numpy(), found["margins"].numpy())


def _read(answered: Answered) -> dict[str, Tensor]:
    best = answered.logits.topk(min(2, answered.logits.shape[1]), 1).values
    return {"features": answered.support_features.cpu(), "margins": (best[:, 0] - best[:, -1]).cpu()}


QUICK_WORDS = f"a class branch alone, preset fast, {QUICK} epochs"


def subset_record(run: Run, data: ImageData) -> dict[str, Any]:
    """What an index over some samples saves: numbers of the index head and of the network, beside those for all.

    A key counts as much as a row of an output layer: both are stored, one is trained.
    """
    config = run.config.network
    every = IndexMap(data.samples.labels, config.classes)
    with torch.device("meta"):
        whole = build(config, every)
    about = run.config.training[SUBSET]
    named = {name: about[name] for name in ("asked", "select", "classes_on", "indexed", "of")}
    return named | {
        "index_head": _numbers(run.network.index_head),
        "index_head_of_all": _numbers(whole.index_head),
        "network": _numbers(run.network),
        "network_of_all": _numbers(whole),
    }


def _numbers(module: Any) -> int:
    """Trained numbers, and keys, which are stored like them."""
    keys = [value for name, value in module.named_buffers() if name.split(".")[-1] == "keys"]
    return sum(value.numel() for value in (*module.parameters(), *keys))

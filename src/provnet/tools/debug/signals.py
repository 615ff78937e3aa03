"""What a run knows of its own training samples, for debugging: one pass through the network.

The index branch is conditioned on the given labels, as in training. Nothing of size N x N is ever held.

Letters: B batch, N samples, C classes, D features, E epochs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from provnet.answers.attributor import Answered, Attributor
from provnet.base.batches import Inputs, pieces
from provnet.base.errors import NonFiniteError
from provnet.base.progress import progress_bar
from provnet.heads.keys import unit
from provnet.heads.retrieval import top_k
from provnet.heads.support import held_out
from provnet.runs.bank import NOT_TRAINED
from provnet.runs.run import Run

BATCH = {"cpu": 512, "cuda": 4096}  # where samples are small
SEED = 0  # of the search for the directions of spread: a run is debugged alike every time


@dataclass(frozen=True, eq=False)
class Signals:
    """One row a sample.

    Attributes:
        features: (N, D) float32 on the network's device, length one: what tells which samples are alike.
        raw: (N, D) the features that support is measured by, as they are, there too.
        logits: (N, C) class scores at the end of training.
        entropy: (N,) of the index branch's distribution, as a share of the largest that it could be (0..1).
        support: (N,) minus the distance from the other samples of the given class, each measured without itself, see
            `models.support.held_out`; 0 for the only sample of its class.
        course: (E, N) class loss in each epoch, NaN for samples that came after training; None without history.
    """

    features: Tensor
    raw: Tensor
    logits: np.ndarray
    entropy: np.ndarray
    support: np.ndarray
    course: np.ndarray | None


def sample_signals(
    run: Run, images: Inputs, labels: np.ndarray, index: np.ndarray, *, progress: bool = False
) -> Signals:
    """The signals of training samples `index` (N,), given their pictures (N, ...) and labels (N,)."""
    ask = Attributor(run)
    given = torch.tensor(labels, device=ask.device)
    with progress_bar("samples", len(images), progress) as update:
        found = ask.each(
            images, _read, classes=given, most=BATCH[ask.device.type], update=lambda done: update(done, "")
        )
    logits, entropy = (found[name].numpy() for name in ("logits", "entropy"))
    support = _support(found["raw"], given, len(run.network.support.mean))
    for name, values in (("class scores", logits), ("entropy of the index branch", entropy), ("support", support)):
        if not np.isfinite(values).all():
            row = int(np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(1))[0])
            raise NonFiniteError(
                f"the {name} of {run.samples.sample_ids[int(index[row])]} is not finite; check its pixels and the "
                "model's weights (provnet verify)"
            )
    course = None
    if run.history is not None and len(run.history):
        course = run.history[:, index].astype(np.float32)
        course = np.where(course == NOT_TRAINED, np.nan, course)
    return Signals(found["features"], found["raw"], logits, entropy, support, course)


def _read(answered: Answered) -> dict[str, Tensor]:
    return {
        "features": unit(answered.alike()),
        "raw": answered.support_features,
        "logits": answered.logits.cpu(),
        "entropy": answered.entropy().cpu(),
    }


def _support(features: Tensor, labels: Tensor, classes: int) -> np.ndarray:
    """What a run has stored was fitted to these very samples: among few, each is as near to it as any other."""
    with torch.random.fork_rng(devices=[features.device] if features.is_cuda else []):
        torch.manual_seed(SEED)
        every = torch.arange(len(labels), device=labels.device)
        return np.asarray(held_out(features, labels, features, labels, every, classes)[0].cpu().numpy())


NEIGHBOURS = 30
SHARPNESS = 20.0  # of the weights: a cosine smaller by .05 than the best counts a third
NEIGHBOUR_BATCH = 1024


@dataclass(frozen=True, eq=False)
class Neighbours:
    """(N, K) rows of the nearest other samples, best first, -1 where there are fewer; and their cosines."""

    row: np.ndarray
    cosine: np.ndarray

    @property
    def weight(self) -> np.ndarray:
        """(N, K) how much each counts, 1 for the nearest."""
        falling = np.exp(SHARPNESS * (self.cosine - self.cosine[:, :1])) if self.cosine.shape[1] else self.cosine
        return np.asarray(np.where(self.row >= 0, falling, 0.0))


def nearest_others(features: Tensor, k: int = NEIGHBOURS, *, progress: bool = False) -> Neighbours:
    """The k nearest other samples of each, by the cosine of features (N, D) of length one.

    >>> nearest_others(torch.eye(3)[[0, 0, 1]], k=1).row.tolist()
    [[1], [0], [0]]
    """
    n = len(features)
    if n < 2:
        return Neighbours(np.full((n, 1), -1), np.zeros((n, 1), dtype=np.float32))
    rows, cosines = [], []
    with progress_bar("neighbours", n, progress) as update:
        for some in pieces(n, NEIGHBOUR_BATCH):
            queries = features[some]
            found = top_k(queries, features, min(k + 1, n))
            own = found.row == torch.arange(some.start, some.stop, device=found.row.device).unsqueeze(1)
            own[~own.any(1), -1] = True  # so many equals that the sample itself is not among them: the last goes
            rows.append(found.row[~own].view(len(queries), -1).cpu())
            cosines.append(found.score[~own].view(len(queries), -1).cpu())
            update(some.stop, "")
    return Neighbours(torch.cat(rows).numpy(), torch.cat(cosines).numpy())


def votes(near: Neighbours, labels: np.ndarray, trust: np.ndarray, classes: int) -> np.ndarray:
    """(N, C) what the neighbours' labels say, each counted by nearness and by trust (N,) in its own label.

    >>> near = nearest_others(torch.eye(2)[[0, 0, 1]], k=2)
    >>> votes(near, np.array([0, 1, 1]), np.ones(3), 2).argmax(1).tolist()  # the third has two equally far others
    [1, 0, 0]
    """
    found = np.zeros((len(labels), classes))
    weight = near.weight * trust[np.maximum(near.row, 0)]
    for k in range(near.row.shape[1]):  # one neighbour at a time: no (N, K, C) memory
        np.add.at(found, (np.arange(len(labels)), labels[np.maximum(near.row[:, k], 0)]), weight[:, k])
    return found

"""Membership scores: how much a picture looks like one that the network was trained on.

Two of the paper (§5.4), largest confidence and entropy, each of the index branch and of the class branch, always with
the predicted class, for members and others alike. Two of ours: the similarity of the best match before it becomes a
share, and how far that match stands out from the next nine; those hold under distortion, where a share does not.

Letters: n pictures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from provnet.answers.attributor import Answered, Attributor
from provnet.base.batches import Inputs, all_finite, fold, split
from provnet.base.errors import NonFiniteError, UsageError
from provnet.data.modalities.augment import Copy, of_all
from provnet.heads.index_map import IndexMap
from provnet.heads.scores import spread_of
from provnet.models.keys import draw_keys, key_head
from provnet.models.network import NetworkConfig, ProvenanceNet, build
from provnet.runs.inputs import Fitted, checked_inputs, raw_tensor, run_of
from provnet.runs.run import Run

BATCH = {"cpu": 128, "cuda": 1024}  # pictures whose copies are drawn together; a network may take fewer at a time


@dataclass(frozen=True, eq=False)
class MemberScores:
    """Scores of n pictures.

    Attributes:
        values: name in SCORES -> (n,) float64, higher where a picture looks more like a member; entropies are negated.
            Those of the index branch are NaN where no sample may be named.
        predicted: (n,) int64 class.
        match: (n,) int64, the training sample named first; -1 where all of the class are withheld.
    """

    values: dict[str, np.ndarray]
    predicted: np.ndarray
    match: np.ndarray

    @property
    def named(self) -> np.ndarray:
        """(n,) bool, whether a sample may be named."""
        return np.asarray(self.match >= 0)

    def select(self, rows: np.ndarray) -> MemberScores:
        """The scores of some of the pictures."""
        values = {name: value[rows] for name, value in self.values.items()}
        return MemberScores(values, self.predicted[rows], self.match[rows])


def member_scores(
    run: Run | Fitted,
    images: Tensor | np.ndarray,
    *,
    copy: Copy | None = None,
    seed: int = 0,
    first: int = 0,
    batch_size: int | None = None,
    update: Callable[[int], None] | None = None,
    warn: bool = True,
) -> MemberScores:
    """Score raw pictures (n, ...); with `copy` a distorted copy of each. Withheld samples are neither known nor named.

    Draws of a copy depend on the seed and on where a picture stands, counted from `first`, not on `batch_size`.
    Pictures whose values cannot lie in the range trained on get a UserWarning, unless `warn` is False.

    >>> import provnet
    >>> from provnet.training.config import train_config
    >>> from provnet.training.fit import fit
    >>> data = provnet.open_data("embedded", limit=40)
    >>> sorted(member_scores(fit(data, config=train_config(epochs=1)), data.images[:3]).values)[:2]
    ['class_confidence', 'class_entropy']
    """
    run = run_of(run)
    images = checked_inputs(run, images, warn=warn)
    return scores_by(Attributor(run), images, copy=copy, seed=seed, first=first, batch_size=batch_size, update=update)


def scores_by(
    ask: Attributor,
    images: Tensor | np.ndarray,
    *,
    copy: Copy | None = None,
    seed: int = 0,
    first: int = 0,
    batch_size: int | None = None,
    update: Callable[[int], None] | None = None,
) -> MemberScores:
    """`member_scores` of a network, whoever made it."""
    queries = raw_tensor(images)
    if 0 in queries.shape:
        raise UsageError("there is nothing to score: no pictures were given")
    most = BATCH[ask.device.type]
    few = ask.at_once(queries.shape[1:], batch_size, most)
    size = few if copy is None else most  # what is drawn must not depend on how many the network takes at a time
    copy = None if copy is None else of_all(copy, queries)

    def batches() -> Iterator[tuple[Inputs, None]]:
        done = 0
        for batch in split(queries, size):
            if not all_finite(batch):
                raise NonFiniteError("the input holds NaN or infinite values; nothing can be said of it")
            drawn = batch if copy is None else copy(batch, fold(seed, first + done))
            yield from ((some, None) for some in split(drawn, few))
            done += len(batch)

    found = {name: column.numpy() for name, column in ask.over(batches(), _scores, update=update).items()}
    predicted, match = found.pop("predicted"), found.pop("match")
    return MemberScores(found, predicted, match)


def _scores(answered: Answered) -> dict[str, Tensor]:
    best = answered.best(1)  # refuses what is not finite
    of_index, match, of_class = answered.spread(), answered.match(), spread_of(answered.logits)
    found = {
        "index_confidence": of_index.confidence,
        "index_entropy": -of_index.entropy,
        "class_confidence": of_class.confidence,
        "class_entropy": -of_class.entropy,
        "similarity": match.similarity,
        "contrast": match.contrast,
        "predicted": best.predicted,
        "match": best.index[:, 0],
    }
    return {name: value.cpu() for name, value in found.items()}


def blank_network(config: NetworkConfig, like: ProvenanceNet, seed: int) -> ProvenanceNet:
    """The same network with weights drawn anew, and keys where it has them: it saw no sample at all.

    A network with a backbone given as object cannot be built again by name: it is refused.
    """
    if config.backbone == "custom":
        raise UsageError(
            "a backbone given as an object cannot be drawn anew; give a run that saw neither: null=run, --null RUN"
        )
    device = next(like.parameters()).device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(fold(seed, 41))
        net = build(config, IndexMap(like.index_map.labels.cpu(), like.index_map.classes))
        draw_keys(net)
    return net.to(device).eval()


def decides(net: ProvenanceNet) -> str:
    """The score that a verdict on one picture rests on: what held best under distortion for this kind of head."""
    return "similarity" if key_head(net) is None else "contrast"


SCORES = {
    "index_confidence": "index branch, largest confidence",
    "index_entropy": "index branch, entropy",
    "class_confidence": "class branch, largest confidence",
    "class_entropy": "class branch, entropy",
    "similarity": "best match, similarity",
    "contrast": "best match against the next nine",
}

"""How the two branches of a network answer: largest confidence, entropy, and how the best match stands out.

Shares are a softmax over the samples of the predicted class, or over all, as the head looks; never over the true class.
They are summed in float64 and apart from the largest one, so that confidences which float32 rounds to 1 still differ.
Keys are scanned in pieces: no (B, N) memory.

Letters: B batch, N samples, S slots.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from provnet.answers.attribution import Equal, shared
from provnet.heads.exemplar import SCORES, ExemplarHead, unit
from provnet.heads.retrieval import top_k, top_k_within
from provnet.models.network import ProvenanceNet, ProvenanceOutput

NEXT = 9  # matches after the best one that it is compared with
CLOSEST = 1e-6  # a distance from a key is not known to be less


class Spread(NamedTuple):
    """How a softmax is spread, (B,) float64 each: its largest share, and its entropy in nats."""

    confidence: Tensor
    entropy: Tensor


class Match(NamedTuple):
    """The best match of the index branch before it becomes a share, (B,) float64 each.

    `similarity` is a cosine where keys stand for outputs, else the largest score; `contrast` says how much nearer the
    best match is than the next nine: the log of the ratio of distances, or the difference of scores.
    """

    similarity: Tensor
    contrast: Tensor


def spread_of(scores: Tensor) -> Spread:
    """Spread of the softmax over (B, S) scores; -inf is no slot.

    >>> found = spread_of(torch.tensor([[0.0, 0.0, -torch.inf]]))
    >>> round(float(found.confidence), 3), round(float(found.entropy), 3)
    (0.5, 0.693)
    """
    below = scores.amax(1, keepdim=True) - scores
    weights = torch.exp(-below)
    below = below.masked_fill_(weights == 0, 0.0)
    total = weights.sum(1, dtype=torch.float64)
    return _spread(total, (weights * below).sum(1, dtype=torch.float64))


@torch.no_grad()
def index_spread(net: ProvenanceNet, output: ProvenanceOutput, equal: Equal | None = None) -> Spread:
    """Spread of the index branch; with `equal`, see `equal.equal_slots`, equal samples share their weight.

    NaN where the class that is looked at has no sample: all of them are withheld.
    """
    if output.index_scores is not None:
        return spread_of(_valid_scores(net, output, equal))
    head = _keys(net)
    queries, scale = unit(output.index_features), head.scale
    top = queries.new_full((len(queries),), -1.01 * float(scale))  # below every score
    total, drop = (queries.new_zeros(len(queries), dtype=torch.float64) for _ in range(2))
    for rows, keys in _scan(head, output.classes):
        scores = scale * (queries[rows] @ keys.t())
        highest = torch.maximum(top[rows], scores.amax(1))
        rise = (highest - top[rows]).double()
        kept = torch.exp(-rise)
        below = highest.unsqueeze(1) - scores
        weights = torch.exp(-below)
        drop[rows] = (drop[rows] + rise * total[rows]) * kept + (weights * below).sum(1, dtype=torch.float64)
        total[rows] = total[rows] * kept + weights.sum(1, dtype=torch.float64)
        top[rows] = highest
    return _spread(total.where(total > 0, torch.nan), drop)


@torch.no_grad()
def best_match(net: ProvenanceNet, output: ProvenanceOutput, equal: Equal | None = None) -> Match:
    """Similarity and contrast of the best match; with `equal`, and NaN where there is none, as `index_spread`."""
    if output.index_scores is not None:
        scores = _valid_scores(net, output, equal)
        best = scores.topk(min(1 + NEXT, scores.shape[1]), 1).values.double()
        return Match(best[:, 0], best[:, 0] - _mean_of_next(best, best[:, 0]))
    head = _keys(net)
    queries = unit(output.index_features)
    if head.conditional:
        sizes = head.index_map.sizes
        found = top_k_within(queries, head.bank, head.starts, sizes, output.classes, 1 + NEXT)
    else:
        found = top_k(queries, head.bank, min(1 + NEXT, head.index_map.n))
    best = found.score.double().where(found.row >= 0, -torch.inf)
    nearest, others = (1 - best[:, 0]).clamp(min=CLOSEST), 1 - _mean_of_next(best, torch.zeros_like(best[:, 0]))
    there = torch.isfinite(best[:, 0])
    return Match(
        best[:, 0].where(there, torch.nan), (others.clamp(min=CLOSEST) / nearest).log().where(there, torch.nan)
    )


def _spread(total: Tensor, drop: Tensor) -> Spread:
    """From the sum of exp(score - top) and of that times (top - score)."""
    return Spread(1 / total, (total.log() + drop / total).clamp(min=0.0))


def _mean_of_next(best: Tensor, otherwise: Tensor) -> Tensor:
    """The mean of all but the first of (B, K), -inf left out; `otherwise` where there is none."""
    real = torch.isfinite(best[:, 1:])
    count = real.sum(1)
    mean = best[:, 1:].masked_fill(~real, 0.0).sum(1) / count.clamp(min=1)
    return torch.where(count > 0, mean, otherwise)


def _valid_scores(net: ProvenanceNet, output: ProvenanceOutput, equal: Equal | None) -> Tensor:
    assert output.index_scores is not None
    scores, valid = output.index_scores.float(), net.index_head.valid(output.classes)
    if valid is not None:
        scores = scores.masked_fill(~valid, -torch.inf)
    return scores if equal is None else shared(scores, output.classes, equal)


def _keys(net: ProvenanceNet) -> ExemplarHead:
    assert isinstance(net.index_head, ExemplarHead)
    return net.index_head


def _scan(head: ExemplarHead, classes: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """(rows of the batch, keys that they are compared with), in pieces."""
    every = torch.arange(len(classes), device=classes.device)
    groups = [(every, 0, head.index_map.n)]
    if head.conditional:
        edges = zip(head.starts.tolist(), head.index_map.sizes.tolist(), strict=True)
        spans = dict(enumerate(edges))
        groups = [(every[classes == each], *spans[each]) for each in sorted(set(classes.tolist()))]
        groups = [(rows, start, start + size) for rows, start, size in groups]
    for rows, start, end in groups:
        size = max(1, SCORES[classes.device.type] // max(len(rows), 1))
        for first in range(start, end, size):
            yield rows, head.bank.unpacked(slice(first, min(first + size, end)))

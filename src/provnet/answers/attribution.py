"""From scores to attributions: the one path, and it checks that every score is finite.

`argmax` and `topk` of a row of NaN return 0, 1, 2: a confident-looking false attribution. So nothing else in provnet
turns scores into samples.

Letters: B batch, K exemplars, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from provnet.base.batches import is_matrix
from provnet.base.errors import NonFiniteError, UsageError, one_of
from provnet.heads.scores import Equal
from provnet.models.network import ProvenanceNet, ProvenanceOutput


@dataclass(frozen=True)
class Attribution:
    """What a batch is attributed to.

    Attributes:
        predicted: (B,) int64 class.
        confidence: (B,) probability of that class.
        index: (B, K) int64 training samples, best first; -1 where a class has fewer than K samples.
        weight: (B, K) share of the index branch's probability; 0 where index is -1. Joint weights are P(class) times
            the share within the sample's class; a head that looks within the predicted class alone leaves P(class) out.
        support: (B,) minus the distance from the training samples of the predicted class, of pictures also by their
            looks, see `models.support`; compared with a calibrated threshold.
    """

    predicted: Tensor
    confidence: Tensor
    index: Tensor
    weight: Tensor
    support: Tensor


def attribute(
    net: ProvenanceNet, output: ProvenanceOutput, k: int, weights: str = "plain", equal: Equal | None = None
) -> Attribution:
    """Turn a network's output into training samples with weights; NaN or infinity is an error, never an index.

    With `equal`, see `IndexHead.equal`, equal samples share their weight.
    """
    if k < 1:
        raise UsageError(f"k must be 1 or more, got {k}")
    one_of("weights", weights, WEIGHTS)
    support = net.support(output.support_features, output.classes, output.looks)
    scores = net.scores(output, joint=weights == "joint", equal=equal)
    _refuse_not_finite(torch.isfinite(output.logits).all(1) & scores.finite() & torch.isfinite(support))
    found = scores.best(min(k, net.index_map.n))
    weight = found.log_share.exp().where(found.index >= 0, 0.0)
    _refuse_not_finite(torch.isfinite(weight).all(1))
    answers = net.task.answer(output.logits)
    return Attribution(
        predicted=answers.what,
        confidence=answers.sure,
        index=found.index,
        weight=weight,
        support=support,
    )


def weights_of(
    net: ProvenanceNet, output: ProvenanceOutput, index: Tensor, weights: str = "plain", equal: Equal | None = None
) -> Tensor:
    """(B, L) int64 samples -> (B, L) the weights that `attribute` gives them, however far down they stand.

    >>> from provnet.heads.index_map import IndexMap
    >>> from provnet.models.network import NetworkConfig
    >>> from provnet.models.network import build
    >>> net = build(NetworkConfig("single", "mlp", (4,), classes=2), IndexMap([1, 0, 1])).eval()
    >>> round(weights_of(net, net(torch.zeros(1, 4)), torch.tensor([[0, 1, 2]])).sum().item(), 5)
    1.0
    """
    one_of("weights", weights, WEIGHTS)
    check_samples(index, len(output.logits), net.index_head.index_map.n)
    scores = net.scores(output, joint=weights == "joint", equal=equal)
    _refuse_not_finite(torch.isfinite(output.logits).all(1) & scores.finite())
    logs = scores.of(index)
    found = logs.clamp(max=0.0).exp()
    _refuse_not_finite(torch.isfinite(found).all(1))
    return found


def check_samples(index: Tensor, rows: int, n: int) -> None:
    """Samples are asked for by position, counted from 0: -1 stands for "none" elsewhere, never for the last."""
    if index.dtype != torch.int64 or not is_matrix(index) or len(index) != rows:
        given = f"{index.dtype} of shape {tuple(index.shape)}"
        raise UsageError(f"index must be int64 of shape ({rows}, L), a row of samples for each input; got {given}")
    if index.numel() and not 0 <= int(index.min()) <= int(index.max()) < n:
        given = f"{int(index.min())}..{int(index.max())}"
        raise UsageError(f"index must lie in 0..{n - 1}, the samples of this network; got {given}")


def _refuse_not_finite(finite: Tensor) -> None:
    if not bool(finite.all()):
        row = int((~finite).nonzero()[0])
        raise NonFiniteError(
            f"the scores of input {row} of the batch are not finite: no sample can be named. "
            "Check the input's values and the model's weights (provnet verify)"
        )


WEIGHTS = ("plain", "joint")

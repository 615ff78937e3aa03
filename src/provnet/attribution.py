"""From scores to attributions: the one path, and it checks that every score is finite.

`argmax` and `topk` of a row of NaN return 0, 1, 2: a confident-looking false attribution. So nothing else in provnet
turns scores into samples.

Letters: B batch, K exemplars, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from provnet.errors import NonFiniteError, UsageError
from provnet.models.provenance import ProvenanceNet, ProvenanceOutput


@dataclass(frozen=True)
class Attribution:
    """What a batch is attributed to.

    Attributes:
        predicted: (B,) int64 class.
        confidence: (B,) probability of that class.
        index: (B, K) int64 training samples, best first; -1 where a class has fewer than K samples.
        weight: (B, K) share of the index branch's probability; 0 where index is -1.
        support: (B,) minus the distance from the training samples of the predicted class, see `models.support`;
            compared with a calibrated threshold.
    """

    predicted: Tensor
    confidence: Tensor
    index: Tensor
    weight: Tensor
    support: Tensor


def attribute(net: ProvenanceNet, output: ProvenanceOutput, k: int) -> Attribution:
    """Turn a network's output into training samples with weights; NaN or infinity is an error, never an index."""
    if k < 1:
        raise UsageError(f"k must be 1 or more, got {k}")
    scores, classes = output.index_scores.float(), output.classes
    valid = net.index_head.valid(classes)
    fine = torch.isfinite(scores) if valid is None else torch.isfinite(scores) | ~valid
    support = net.support(output.support_features, classes)
    finite = torch.isfinite(output.logits).all(1) & fine.all(1) & torch.isfinite(support)
    if not bool(finite.all()):
        row = int((~finite).nonzero()[0])
        raise NonFiniteError(
            f"the scores of input {row} of the batch are not finite: no sample can be named. "
            "Check the input's values and the model's weights (provnet verify)"
        )
    if valid is not None:
        scores = scores.masked_fill(~valid, -torch.inf)
    weights = torch.softmax(scores, 1)
    top = scores.topk(min(k, scores.shape[1]), dim=1)
    real = torch.isfinite(top.values)
    index = net.index_head.to_index(top.indices.where(real, top.indices[:, :1]), classes).where(real, -1)
    probabilities = torch.softmax(output.logits.float(), 1)
    confidence, predicted = probabilities.max(1)
    return Attribution(
        predicted=predicted,
        confidence=confidence,
        index=index,
        weight=weights.gather(1, top.indices).where(real, 0.0),
        support=support,
    )

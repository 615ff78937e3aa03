"""What classes can be read off features: by ridge regression and by the nearest neighbour.

Letters: N known samples, M asked ones, D features.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from provnet.errors import NonFiniteError
from provnet.models.exemplar import unit
from provnet.models.provenance import ProvenanceNet
from provnet.retrieval import top_k

BATCH = 1000
RIDGE = 1e-3  # of the mean variance of a standardised feature, for each sample


@torch.inference_mode()
def features_of(net: ProvenanceNet, images: Tensor) -> Tensor:
    """(N, D) float32 features of the backbone, where the network lies."""
    net.eval()
    device = next(net.parameters()).device
    parts = [net.backbone(net.normalise(few.to(device))).float().flatten(1) for few in torch.split(images, BATCH)]
    found = torch.cat(parts)
    if not bool(torch.isfinite(found).all()):
        raise NonFiniteError("the features are not finite; check the weights")
    return found


def probe_hits(known: Tensor, labels: Tensor, asked: Tensor, truth: Tensor, classes: int) -> Tensor:
    """(M,) whether a linear map from standardised features to one-hot classes names the class, on the CPU.

    >>> points = torch.tensor([[0.0], [0.1], [5.0], [5.1]])
    >>> probe_hits(points, torch.tensor([0, 0, 1, 1]), points, torch.tensor([0, 0, 1, 1]), 2).tolist()
    [True, True, True, True]
    """
    mean, std = known.mean(0), known.std(0).clamp(min=1e-6)
    x = ((known - mean) / std).double()
    y = F.one_hot(labels.to(x.device), classes).double()
    gram = x.T @ x + RIDGE * len(x) * torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
    weights = torch.linalg.solve(gram, x.T @ (y - y.mean(0)))
    scores = ((asked - mean) / std).double() @ weights + y.mean(0)
    named: Tensor = scores.argmax(1).cpu()
    return named == truth


def knn_hits(known: Tensor, labels: Tensor, asked: Tensor, truth: Tensor) -> Tensor:
    """(M,) whether the nearest known sample by cosine has the class, on the CPU.

    >>> known = torch.eye(2)
    >>> knn_hits(known, torch.tensor([3, 4]), torch.tensor([[0.9, 0.1]]), torch.tensor([3])).tolist()
    [True]
    """
    bank = unit(known)
    rows = [top_k(unit(few), bank, 1).row[:, 0].cpu() for few in torch.split(asked, BATCH)]
    named: Tensor = labels[torch.cat(rows)]
    return named == truth

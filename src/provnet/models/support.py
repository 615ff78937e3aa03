"""Support: how far an input's features lie from the training samples of its predicted class.

Index scores cannot say "nothing like this was in the training set": noise excites some neuron of the head as strongly
as a digit does. A Mahalanobis distance over the backbone's features can, measured within the class that is claimed.

Letters: B batch, C classes, D features, R directions kept.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

RANK = 128
FLOOR = 1e-3  # of the mean variance: directions without spread must not divide by zero
ALONE = 1e-9  # of the mean square: one sample, or equal ones, have no spread at all


class Support(nn.Module):
    """Class means and the main directions of spread within classes; `fit` sets them once after training.

    >>> support = Support(classes=1, width=4)
    >>> _ = torch.manual_seed(0)
    >>> support.fit(torch.randn(50, 4), torch.zeros(50, dtype=torch.int64))
    >>> near, far = support(torch.tensor([[0.0] * 4, [9.0] * 4]), torch.tensor([0, 0])).tolist()
    >>> near > far
    True
    """

    mean: Tensor
    basis: Tensor
    spread: Tensor
    rest: Tensor

    def __init__(self, classes: int, width: int) -> None:
        super().__init__()
        rank = min(RANK, width)
        self.register_buffer("mean", torch.zeros(classes, width))
        self.register_buffer("basis", torch.zeros(width, rank))
        self.register_buffer("spread", torch.ones(rank))  # variance along each direction
        self.register_buffer("rest", torch.ones(()))  # mean variance of all other directions

    def forward(self, features: Tensor, classes: Tensor) -> Tensor:
        """(B, D) and the claimed classes (B,) -> (B,) support: minus the distance, 0 at the class mean."""
        away = features.float() - self.mean[classes]
        along = away @ self.basis
        beside = (away.square().sum(1) - along.square().sum(1)).clamp_min(0)
        return -((along.square() / self.spread).sum(1) + beside / self.rest).sqrt()

    @torch.no_grad()
    def fit(self, features: Tensor, labels: Tensor) -> None:
        """Set means and spread from training features (n, D) and labels (n,); uses torch's global randomness."""
        x = features.float()
        counts = torch.bincount(labels, minlength=len(self.mean)).clamp(min=1).unsqueeze(1)
        mean = torch.zeros_like(self.mean).index_add_(0, labels, x) / counts
        away = x - mean[labels]
        total = away.square().sum() / len(x)
        rank, width = len(self.spread), x.shape[1]
        keep = min(rank, len(x), width)
        _, singular, basis = torch.svd_lowrank(away, q=keep, niter=4)
        variance = singular.square() / len(x)
        floor = torch.maximum(FLOOR * total / width, ALONE * x.square().mean()).clamp_min(1e-12)
        rest = (total - variance.sum()).clamp_min(0) / max(width - keep, 1)
        self.mean.copy_(mean)
        self.basis.zero_()
        self.basis[:, :keep] = basis
        self.spread.fill_(1.0)
        self.spread[:keep] = variance.clamp_min(floor)
        self.rest.copy_(rest.clamp_min(floor))

"""AdamW in one pass over memory: weights, their moments and the rounded copies that a network multiplies with.

Mixed precision rounds every weight anew each step, widens every gradient, then updates. With sixty thousand outputs
that is as much memory to go through as the rest of a step; here gradients come as they are, and copies are rounded
where weights are written. It has to be compiled for that, else it is many passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

BETAS = (0.9, 0.999)
EPS = 1e-8


class OnePassAdamW:
    """AdamW for `weights`; `used` is what is multiplied: copies of lower precision, or the weights themselves.

    >>> weight, rounded = torch.ones(2), torch.ones(2, dtype=torch.bfloat16)
    >>> OnePassAdamW([weight], [rounded], rate=0.5, decay=0.0)([torch.tensor([1.0, -2.0])])
    >>> weight, rounded
    (tensor([0.5000, 1.5000]), tensor([0.5000, 1.5000], dtype=torch.bfloat16))
    """

    def __init__(
        self,
        weights: Sequence[Tensor],
        used: Sequence[Tensor],
        *,
        rate: float,
        decay: float,
        backend: Any = None,
    ) -> None:
        self.weights = [weight.detach() for weight in weights]
        self.copies = [None if copy is weight else copy.detach() for weight, copy in zip(weights, used, strict=True)]
        self.means = [torch.zeros_like(weight) for weight in self.weights]
        self.squares = [torch.zeros_like(weight) for weight in self.weights]
        self.steps = torch.zeros((), dtype=torch.float64, device=self.weights[0].device)
        self.rate, self.decay = rate, decay
        self.update = torch.compile(_update, dynamic=False, fullgraph=True, backend=backend) if backend else _update

    @torch.no_grad()
    def __call__(self, grads: Sequence[Tensor]) -> None:
        """One step, gradients in the order of the weights."""
        self.steps += 1
        rises = [(1 - beta**self.steps).to(self.weights[0].dtype) for beta in BETAS]
        self.update(self.weights, self.copies, self.means, self.squares, list(grads), rises, self.rate, self.decay)


def _update(
    weights: list[Tensor],
    copies: list[Tensor | None],
    means: list[Tensor],
    squares: list[Tensor],
    grads: list[Tensor],
    rises: list[Tensor],
    rate: float,
    decay: float,
) -> None:
    first, second = rises  # what the moments, which begin at zero, have reached of what they follow
    for weight, copy, mean, square, grad in zip(weights, copies, means, squares, grads, strict=True):
        wide = grad.to(weight.dtype)
        mean.lerp_(wide, 1 - BETAS[0])
        square.mul_(BETAS[1]).addcmul_(wide, wide, value=1 - BETAS[1])
        weight.mul_(1 - rate * decay).sub_(rate / first * mean / ((square / second).sqrt() + EPS))
        if copy is not None:
            copy.copy_(weight)

"""Inputs of the index loss, the loss asked in short, and the same from plain cross-entropy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from provnet.heads.losses import IndexLoss, index_cross_entropy, sampled_cross_entropy

SCALE = 6.0
WEIGHT = 2.0  # of the last row's loss, when gradients are compared

RTOL = {torch.float32: 1e-6, torch.float64: 1e-10}

NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible")

Found = tuple[IndexLoss, list[Tensor]]  # with the gradients of what has one


@dataclass(frozen=True)
class Case:
    """Inputs of the loss."""

    features: Tensor
    keys: Tensor
    target: Tensor
    span: tuple[Tensor, Tensor] | None = None
    smoothing: float = 0.0

    @property
    def tensors(self) -> list[Tensor]:
        """What can have a gradient."""
        return [self.features, self.keys]

    def to(self, device: str) -> Case:
        moved = {name: x.to(device) for name, x in vars(self).items() if isinstance(x, Tensor)}
        span = None if self.span is None else (self.span[0].to(device), self.span[1].to(device))
        return replace(self, **moved, span=span)


def make(
    b: int = 5,
    n: int = 11,
    d: int = 3,
    *,
    span: bool = False,
    smoothing: float = 0.0,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
) -> Case:
    """Random features of length SCALE and unit keys, so that scores are of the size that the head makes."""
    torch.manual_seed(seed)
    target = torch.randint(n, (b,))
    first = (torch.rand(b) * (target + 1)).long()  # 0..target
    end = target + 1 + (torch.rand(b) * (n - target)).long()  # target + 1..n
    return Case(
        SCALE * F.normalize(torch.randn(b, d, dtype=dtype), dim=1),
        F.normalize(torch.randn(n, d, dtype=dtype), dim=1),
        target,
        (first, end) if span else None,
        smoothing,
    )


def ours(case: Case, chunk: int = 4) -> IndexLoss:
    how = {"smoothing": case.smoothing, "span": case.span, "chunk": chunk}
    return index_cross_entropy(case.features, case.keys, case.target, **how)


def plain(case: Case) -> IndexLoss:
    """The same from the whole (B, N) scores, each row cut to its span."""
    scores = case.features @ case.keys.T
    first, end = case.span or (torch.zeros_like(case.target), torch.full_like(case.target, len(case.keys)))
    losses, hits = [], []
    for row, target, low, high in zip(scores, case.target, first.tolist(), end.tolist(), strict=True):
        losses.append(F.cross_entropy(row[low:high], target - low, label_smoothing=case.smoothing))
        hits.append(row[target] == row[low:high].max())
    return IndexLoss(torch.stack(losses), torch.stack(hits))


def with_gradients(loss: Callable[[Case], IndexLoss], case: Case) -> Found:
    """The losses, the hits and the gradients of everything, each row weighted differently."""
    leaves = [x.clone().requires_grad_() for x in case.tensors]
    found = loss(replace(case, features=leaves[0], keys=leaves[1]))
    weights = torch.linspace(0.5, WEIGHT, len(case.features), dtype=found.loss.dtype, device=found.loss.device)
    return found, list(torch.autograd.grad((found.loss * weights).sum(), leaves))


def assert_near(got: Found, wanted: Found, tolerance: float) -> None:
    """Losses and each gradient differ from the wanted ones by `tolerance` of the length of these."""
    for x, y in zip([got[0].loss, *got[1]], [wanted[0].loss, *wanted[1]], strict=True):
        assert x.dtype == y.dtype
        assert float((x.cpu() - y).detach().norm()) <= tolerance * float(y.detach().norm())


def sampled(case: Case, rate: float, seed: int = 0) -> IndexLoss:
    drawing = {"rate": rate, "generator": torch.Generator().manual_seed(seed), "smoothing": case.smoothing}
    return sampled_cross_entropy(case.features, case.keys, case.target, **drawing)

"""Class probabilities behind labels of which some are wrong, by maximum likelihood of the labels as they are given.

Nobody knows which labels are wrong. Scores of all classes are combined by what they predict: the given labels, seen
through an unknown share of wrong ones. That share, the weights of the scores, and how far wrong labels follow the
classes' confusions are found together; the posterior of each label follows.

Letters: N samples, C classes, S scores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

MOST = 0.75  # share of wrong labels that is thinkable


@dataclass(frozen=True, eq=False)
class NoiseModel:
    """What explains the labels best.

    Attributes:
        sharp: (S,) weights of the scores, each brought to a spread of one.
        rate: share of wrong labels.
        mixed: how far wrong labels follow the classes' confusions (1) and not chance (0).
        flips: (C, C) probability of each label given the true class.
    """

    sharp: Tensor
    rate: float
    mixed: float
    flips: Tensor


def standardised(scores: Tensor, like: Tensor | None = None) -> Tensor:
    """(N, C) scores without their mean over the classes, in units of the spread of `like` or of their own."""
    spread = float((scores if like is None else like).std(correction=0))
    return (scores - scores.mean(1, keepdim=True)) / max(spread, 1e-9)


def confusions(clean: Tensor, weight: Tensor) -> Tensor:
    """(C, C) shares of the other classes that each class is confused with, from probabilities (N, C); zero diagonal."""
    found = (clean * weight[:, None]).T @ clean
    off = 1 - torch.eye(len(found), dtype=found.dtype, device=found.device)
    found = found * off
    found = (found + 1e-3 * found.sum(1, keepdim=True) / len(found) + 1e-12) * off
    return found / found.sum(1, keepdim=True).clamp_min(1e-300)


def noise_model(
    scores: Sequence[Tensor], labels: Tensor, weight: Tensor, *, rounds: int = 3, start: NoiseModel | None = None
) -> tuple[NoiseModel, Tensor]:
    """Weights of the scores, each (N, C), and the share of wrong labels that explain the labels (N,) best; and (N, C)
    the probability of each true class, from the scores alone.

    >>> scores = 4 * torch.eye(2).repeat(50, 1).double()
    >>> labels = torch.tensor([0, 1] * 45 + [1, 0] * 5)  # the last ten are wrong
    >>> found, clean = noise_model([scores], labels, torch.ones(100))
    >>> 0.02 < found.rate < 0.2, clean[:2].argmax(1).tolist()
    (True, [0, 1])
    """
    classes, device = scores[0].shape[1], scores[0].device
    s = torch.stack([standardised(each.double()) for each in scores])
    w, eye = weight.double(), torch.eye(classes, dtype=torch.float64, device=device)
    uniform = (1 - eye) / max(classes - 1, 1)
    confused = uniform
    if start is None:
        first = torch.tensor([0.5] * len(s) + [-2.0, 0.0], dtype=torch.float64, device=device)
    else:
        ends = torch.tensor([_logit(start.rate / MOST), _logit(start.mixed)], dtype=torch.float64, device=device)
        first = torch.cat([start.sharp.to(device).clamp_min(1e-3).log(), ends])
    p = first.clone().requires_grad_(True)

    def clean() -> Tensor:
        return torch.softmax((p[:-2].clamp(-5, 4).exp()[:, None, None] * s).sum(0), 1)

    def flips() -> Tensor:
        rate, mixed = MOST * torch.sigmoid(p[-2]), torch.sigmoid(p[-1])
        return (1 - rate) * eye + rate * ((1 - mixed) * uniform + mixed * confused)

    for _ in range(rounds):
        step = torch.optim.LBFGS([p], max_iter=40, line_search_fn="strong_wolfe", tolerance_grad=1e-6)

        def loss(step: torch.optim.LBFGS = step) -> Tensor:
            step.zero_grad()
            seen = (clean() * flips()[:, labels].T).sum(1)
            weak = 0.01 * p[:-2].square().sum() + 0.05 * p[-1].square() - 0.05 * torch.sigmoid(p[-2]).log()
            found = (weak - (w * seen.clamp_min(1e-12).log()).sum()) / w.sum()
            found.backward()  # type: ignore[no-untyped-call]
            return found

        with torch.enable_grad():
            step.step(loss)  # type: ignore[no-untyped-call]
        with torch.no_grad():
            confused = confusions(clean(), w)
    with torch.no_grad():
        sharp, rate, mixed = p[:-2].clamp(-5, 4).exp(), MOST * torch.sigmoid(p[-2]), torch.sigmoid(p[-1])
        return NoiseModel(sharp.clone(), float(rate), float(mixed), flips()), clean()


def posterior(clean: Tensor, labels: Tensor, flips: Tensor) -> Tensor:
    """(N, C) probability of each true class given sample and label.

    >>> clean, flips = torch.tensor([[0.5, 0.5]]), torch.tensor([[0.9, 0.1], [0.1, 0.9]])
    >>> posterior(clean, torch.tensor([1]), flips)[0].tolist()
    [0.1..., 0.8...]
    """
    found = clean * flips[:, labels].T
    return found / found.sum(1, keepdim=True).clamp_min(1e-300)


def refined(
    clean: Tensor, labels: Tensor, flips: Tensor, weight: Tensor, *, prior: float = 100.0, steps: int = 8
) -> Tensor:
    """(C, C) flips by expectation maximisation, drawn to the given ones as by `prior` more samples of each class."""
    found = flips
    for _ in range(steps):
        after = posterior(clean, labels, found) * weight.to(clean)[:, None]
        counts = torch.zeros_like(flips).index_add_(0, labels, after).T
        found = (counts + prior * flips) / (counts.sum(1, keepdim=True) + prior)
    return found


def _logit(p: float) -> float:
    p = min(max(p, 1e-6), 1 - 1e-6)
    return math.log(p / (1 - p))

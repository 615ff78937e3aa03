"""Class scores of samples by their features, each measured without the sample itself.

Features of a backbone that did not learn from the labels (a frozen one) say what the others think a sample is: a ridge
regression, left one out exactly; a Gaussian for each class with a common spread, in ten folds; votes of the nearest
samples. Each sample counts by its weight, the trust in its label.

Nobody knows which labels are wrong. Scores of all classes are combined by what they predict: the given labels, seen
through an unknown share of wrong ones. That share, the weights of the scores, and how far wrong labels follow the
classes' confusions are found together, by maximum likelihood; the posterior of each label follows.

Letters: N samples, D features, C classes, K neighbours, M queries, S scores.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC
from torch import Tensor

RIDGES = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0, 3.0)  # of the mean eigenvalue
FOLDS = 10
SHRINK = 0.5  # of the spread within classes towards its mean
SHARPNESS = 10.0  # of a neighbour's weight: a cosine smaller by .1 than the best counts a third
LEAST = 1e-6
SMOOTH = 0.1  # of the weight of a gram in a class
PARTS = 5  # of texts, each of which a linear model of the others judges


def turned(z: Tensor) -> Tensor:
    """The same samples in as many directions as there are samples, where these are fewer: only the time changes."""
    if len(z) >= z.shape[1]:
        return z
    directions: Tensor = torch.linalg.svd(z, full_matrices=False).Vh
    return (z @ directions.T).contiguous()


@dataclass(frozen=True, eq=False)
class Ridge:
    """(N, C) predictions that leave out each sample, with the slope (D, C) and intercept (C,) of all samples."""

    scores: Tensor
    slope: Tensor
    intercept: Tensor


def ridge(z: Tensor, labels: Tensor, classes: int, weight: Tensor) -> Ridge:
    """A weighted ridge regression on the classes; its penalty is the one that predicts best what it leaves out.

    >>> z, labels = torch.eye(2).repeat(4, 1), torch.tensor([0, 1] * 4)
    >>> ridge(z, labels, 2, torch.ones(8)).scores.argmax(1).tolist()
    [0, 1, 0, 1, 0, 1, 0, 1]
    """
    w = weight.double()
    target = F.one_hot(labels, classes).double()
    centre, mean = (w[:, None] * z).sum(0) / w.sum(), (w[:, None] * target).sum(0) / w.sum()
    away, target = z.double() - centre, target - mean
    seen = (away * w.sqrt()[:, None]).float()
    if len(z) < z.shape[1]:  # the same in the space of the samples
        value, vector = torch.linalg.eigh((seen @ seen.T).double())
        value = value.clamp_min(1e-9)
        basis = seen.T.double() @ vector / value.sqrt()
    else:
        value, basis = torch.linalg.eigh((seen.T @ seen).double())
        value = value.clamp_min(1e-9)
    u = away @ basis
    product = u.T @ (w[:, None] * target)
    level = value.sum() / len(value)
    best, found, slope = float("inf"), target, product
    for penalty in RIDGES:
        inverse = 1 / (value + penalty * level)
        fit = u @ (inverse[:, None] * product)
        lever = ((u.square() @ inverse) * w + w / w.sum()).clamp_max(1 - LEAST)
        left_out = target - (target - fit) / (1 - lever)[:, None]
        loss = float((w[:, None] * (target - left_out).square()).sum() / w.sum())
        if loss < best:
            best, found, slope = loss, left_out, inverse[:, None] * product
    turned_slope = basis @ slope
    return Ridge(found + mean, turned_slope, mean - centre @ turned_slope)


def fold_of(labels: Tensor, folds: int, seed: int) -> Tensor:
    """(N,) a fold for each sample, spread evenly over the classes."""
    chance = torch.rand(len(labels), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    order = (labels.cpu().double() + 0.5 * chance).argsort()
    fold = torch.empty(len(labels), dtype=torch.int64)
    fold[order] = torch.arange(len(labels)) % folds
    return fold.to(labels.device)


@dataclass(frozen=True, eq=False)
class Gaussian:
    """Class means (C, D) and the lower root (D, D) of the spread that all classes share."""

    mean: Tensor
    root: Tensor

    def distances(self, z: Tensor) -> Tensor:
        """(M, C) squared distances to the class means in units of the spread, in float64."""
        centre = self.mean.mean(0)
        white = [torch.linalg.solve_triangular(self.root, (each - centre).T, upper=False).T for each in (z, self.mean)]
        squares = [each.square().sum(1) for each in white]
        found: Tensor = squares[0][:, None] - 2 * white[0] @ white[1].T + squares[1]
        return found.clamp_min(0).double()


Moments = tuple[Tensor, Tensor, Tensor]


def moments(z: Tensor, labels: Tensor, classes: int, weight: Tensor) -> Moments:
    """Weighted counts (C,), sums (C, D) and second moment (D, D)."""
    each = F.one_hot(labels, classes).float() * weight.float()[:, None]
    rooted = z * weight.float().sqrt()[:, None]
    return each.sum(0).double(), (each.T @ z).double(), (rooted.T @ rooted).double()


def gaussian(parts: Moments, shrink: float = SHRINK) -> Gaussian:
    """The Gaussian of some moments; a class of few samples leans on all."""
    count, total, second = parts
    count = count.clamp_min(LEAST)
    mean = (total + total.sum(0) / count.sum()) / (count + 1)[:, None]
    spread = (second - (total.T / count) @ total) / count.sum()
    level = (spread.trace() / len(spread)).clamp_min(1e-12)
    spread = (1 - shrink) * spread + shrink * level * torch.eye(len(spread), device=spread.device, dtype=torch.float64)
    return Gaussian(mean.float(), torch.linalg.cholesky(spread).float())


def gaussian_scores(
    z: Tensor,
    labels: Tensor,
    classes: int,
    weight: Tensor,
    *,
    folds: int = FOLDS,
    seed: int = 0,
    shrink: float = SHRINK,
) -> Tensor:
    """(N, C) minus half the squared distances to the class means, each fold measured by the others.

    >>> z, labels = torch.eye(2).repeat(4, 1), torch.tensor([0, 1] * 4)
    >>> gaussian_scores(z, labels, 2, torch.ones(8), folds=2).argmax(1).tolist()
    [0, 1, 0, 1, 0, 1, 0, 1]
    """
    whole, fold = moments(z, labels, classes, weight), fold_of(labels, folds, seed)
    found = torch.zeros(len(z), classes, dtype=torch.float64, device=z.device)
    for number in range(folds):
        out = fold == number
        if bool(out.any()):
            part = moments(z[out], labels[out], classes, weight[out])
            count, total, second = (one - other for one, other in zip(whole, part, strict=True))
            found[out] = -0.5 * gaussian((count, total, second), shrink).distances(z[out])
    return found


def bayes_scores(grams: Any, labels: Tensor, classes: int, weight: Tensor) -> Tensor:
    """(N, C) log-odds of a naive Bayes model of weighted grams (N, V), each sample left out exactly.

    >>> grams = sparse.csr_array(np.eye(2).repeat(4, 0))
    >>> bayes_scores(grams, torch.tensor([0] * 4 + [1] * 4), 2, torch.ones(8)).argmax(1).tolist()
    [0, 0, 0, 0, 1, 1, 1, 1]
    """
    own, trust, each = labels.cpu().numpy(), weight.double().cpu().numpy(), np.diff(grams.indptr)
    chosen = sparse.csr_array((trust, (np.arange(len(own)), own)), shape=(len(own), classes))
    count = np.asarray((chosen.T @ grams).todense())  # (C, V)
    total = count.sum(1) + SMOOTH * grams.shape[1]
    found = np.asarray(grams @ np.log((count + SMOOTH) / total[:, None]).T)
    label, left = np.repeat(own, each), np.repeat(trust, each)
    less = np.maximum(count[label, grams.indices] - left * grams.data, 0) + SMOOTH
    rest = np.repeat(total[own] - trust * np.asarray(grams.sum(1)).ravel(), each)
    rows = np.repeat(np.arange(len(own)), each)
    found[np.arange(len(own)), own] = np.bincount(rows, np.log(less / rest) * grams.data, len(own))
    return torch.from_numpy(found - found.mean(1, keepdims=True)).to(labels.device)


def linear_scores(grams: Any, labels: Tensor, classes: int, weight: Tensor, *, seed: int = 0) -> Tensor:
    """(N, C) of a linear support vector machine on weighted grams (N, V), each of PARTS measured by the others."""
    own, trust = labels.cpu().numpy(), weight.double().clamp_min(LEAST).cpu().numpy()
    fold, found = fold_of(labels, PARTS, seed).cpu().numpy(), np.zeros((len(own), classes))
    for number in range(PARTS):
        out = fold == number
        there = np.unique(own[~out])
        if not out.any() or len(there) < 2:
            continue
        model = LinearSVC(C=0.3, tol=1e-2, max_iter=100, random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the order is settled long before
            model.fit(grams[~out], own[~out], sample_weight=trust[~out])
        said = model.decision_function(grams[out])
        said = np.stack([-said, said], 1) if said.ndim == 1 else said
        found[out] = said.min(1, keepdims=True)
        found[np.ix_(out, there)] = said
    return torch.from_numpy(found).to(labels.device)


def vote_scores(row: Tensor, cosine: Tensor, labels: Tensor, classes: int, weight: Tensor) -> Tensor:
    """(M, C) log shares of the votes of neighbours (M, K), each counted by its weight and by how near it is.

    >>> row, cosine = torch.tensor([[0, 1]]), torch.tensor([[0.9, 0.8]])
    >>> vote_scores(row, cosine, torch.tensor([1, 0]), 2, torch.ones(2)).argmax(1).tolist()
    [1]
    """
    there = (row >= 0).double()
    row = row.clamp_min(0)
    counted = (SHARPNESS * (cosine - cosine[:, :1]).double()).exp() * weight.double()[row] * there
    found = torch.zeros(len(row), classes, dtype=torch.float64, device=row.device)
    found.scatter_add_(1, labels[row], counted)
    prior = torch.bincount(labels, weights=weight.double(), minlength=classes) + 1
    return (found + prior / prior.sum()).log() - (found.sum(1, keepdim=True) + 1).log()


MOST = 0.75  # share of wrong labels that is thinkable
FEW_BY_CHANCE, MANY_CONFUSED = (0.09, 0.5), (0.3, 0.98)  # share of wrong labels, and how far they follow confusions


@dataclass(frozen=True, eq=False)
class NoiseModel:
    """What explains the labels best.

    Attributes:
        sharp: (S,) weights of the scores, each brought to a spread of one.
        rate: share of wrong labels.
        mixed: how far wrong labels follow the classes' confusions (1) and not chance (0).
        flips: (C, C) probability of each label given the true class.
        confused: (C, C) shares of the other classes that each class is confused with.
    """

    sharp: Tensor
    rate: float
    mixed: float
    flips: Tensor
    confused: Tensor


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
    s, w = torch.stack([standardised(each.double()) for each in scores]), weight.double()
    off = (1 - torch.eye(classes, dtype=torch.float64, device=device)) / max(classes - 1, 1)
    if start is not None:
        begun = [(start.sharp.to(device).clamp_min(1e-3).log(), start.rate, start.mixed, start.confused.to(device))]
    else:  # wrong labels that follow the confusions look like soft classes: of both readings the likelier is taken
        equal = torch.full((len(s),), 0.5, dtype=torch.float64, device=device)
        confused = confusions(torch.softmax(equal.exp()[0] * s.sum(0), 1), w)
        begun = [(equal, *FEW_BY_CHANCE, off), (equal, *MANY_CONFUSED, confused)]
    found = [_fitted(s, labels, w, *each, rounds=rounds) for each in begun]
    return min(found, key=lambda each: each[0])[1:]


def _fitted(
    s: Tensor, labels: Tensor, w: Tensor, sharp: Tensor, rate: float, mixed: float, confused: Tensor, *, rounds: int
) -> tuple[float, NoiseModel, Tensor]:
    """The loss, the model and the probabilities that one start leads to."""
    classes = s.shape[2]
    eye = torch.eye(classes, dtype=torch.float64, device=s.device)
    uniform, last = (1 - eye) / max(classes - 1, 1), float("inf")
    ends = torch.tensor([_logit(rate / MOST), _logit(mixed)], dtype=torch.float64, device=s.device)
    p = torch.cat([sharp, ends]).clone().requires_grad_(True)

    def clean() -> Tensor:
        return torch.softmax((p[:-2].clamp(-5, 4).exp()[:, None, None] * s).sum(0), 1)

    def flips() -> Tensor:
        rate, mixed = MOST * torch.sigmoid(p[-2]), torch.sigmoid(p[-1])
        return (1 - rate) * eye + rate * ((1 - mixed) * uniform + mixed * confused)

    def values() -> tuple[Tensor, float, float]:
        return p[:-2].clamp(-5, 4).exp().clone(), float(MOST * torch.sigmoid(p[-2])), float(torch.sigmoid(p[-1]))

    def loss() -> Tensor:
        seen = (clean() * flips()[:, labels].T).sum(1)
        weak = 0.01 * p[:-2].square().sum() + 0.05 * p[-1].square() - 0.05 * torch.sigmoid(p[-2]).log()
        return (weak - (w * seen.clamp_min(1e-12).log()).sum()) / w.sum()

    for _ in range(rounds):
        step = torch.optim.LBFGS([p], max_iter=40, line_search_fn="strong_wolfe", tolerance_grad=1e-6)

        def closure(step: torch.optim.LBFGS = step) -> Tensor:
            step.zero_grad()
            found = loss()
            found.backward()  # type: ignore[no-untyped-call]
            return found

        with torch.enable_grad():
            step.step(closure)  # type: ignore[no-untyped-call]
        with torch.no_grad():
            last, made = float(loss()), NoiseModel(*values(), flips(), confused)
            confused = confusions(clean(), w)
    with torch.no_grad():
        return last, made, clean()


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

"""Support: how far an input's features lie from the training samples of its predicted class.

Index scores cannot say "nothing like this was in the training set": noise excites some neuron of the head as strongly
as a digit does. A Mahalanobis distance over the backbone's features can, measured within the class that is claimed.

Features alone are not enough: a network that never saw noise or a blank picture may map them among its training
samples. So the looks of a picture (brightness, contrast, fine detail) are measured too, and the larger distance counts.

Few samples span few directions, and in these each one looks as far away as any other: their own spread was fitted to
them. So the spread is measured as if as many samples more as there are directions kept had been seen, spread evenly,
which hardly counts among thousands; and what is said of a sample is measured without it (`measure_held_out`).

Behind a frozen backbone the features were not learned from the labels, so held-out answers can be made of them: there
support is how often answers with such `Evidence` are right, next to none for what looks like nothing that is known.

Letters: B batch, C classes, D features, R directions kept, n samples.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

RANK = 128
FLOOR = 1e-3  # of the mean variance: directions without spread must not divide by zero
ALONE = 1e-9  # of the mean square: one sample, or equal ones, have no spread at all
STRANGE, STEEP = 2.5, 2.0  # robust standard deviations of distance beyond which a sample is of no class; how sharply
LOOKS = 3  # brightness, contrast, detail
DIM = 1e-3  # of the variance of all training pixels: contrast below this is no contrast
FOLDS, FEWER, MANY = 10, 4, 2_000  # parts held out in turn; fewer of them from so many samples on


class Evidence(nn.Module):
    """How often answers with such features are right; see `training.evidence`, which sets it.

    `slope` (D, C) and `intercept` (C,) give class scores, `right` the slope and offset that turn the log-odds of a
    class into how often it is right, `usual` the middle and the spread of the distances of known samples.
    """

    slope: Tensor
    intercept: Tensor
    right: Tensor
    usual: Tensor

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.register_buffer("slope", torch.zeros(width, classes))
        self.register_buffer("intercept", torch.zeros(classes))
        self.register_buffer("right", torch.tensor([1.0, 0.0]))
        self.register_buffer("usual", torch.tensor([0.0, 1.0]))

    def forward(self, z: Tensor, classes: Tensor, distance: Tensor) -> Tensor:
        """(B, D) prepared features, the claimed classes (B,), distances from them (B,) -> (B,) in 0..1."""
        p = torch.softmax(z @ self.slope + self.intercept, 1).gather(1, classes[:, None])[:, 0]
        right = torch.sigmoid(self.right[0] * odds_of(p) + self.right[1])
        away = (distance - self.usual[0]) / self.usual[1]
        return right * torch.sigmoid(STEEP * (STRANGE - away))


def odds_of(p: Tensor) -> Tensor:
    """Log-odds of probabilities, finite also for 0 and 1.

    >>> odds_of(torch.tensor([0.5, 1.0])).isfinite().all().item()
    True
    """
    return (p + 1e-6).log() - (1 - p + 1e-6).log()


class Support(nn.Module):
    """Class means and the main directions of spread within classes; `fit` sets them once after training.

    `looks` measures the looks of pictures (`looks_of`), as a support of one class, in the unit of the features'
    distance; it is None for other data, and for runs written before looks were measured.

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
    looks: Support | None
    evidence: Evidence | None

    def __init__(self, classes: int, width: int) -> None:
        super().__init__()
        rank = min(RANK, width)
        self.register_buffer("mean", torch.zeros(classes, width))
        self.register_buffer("basis", torch.zeros(width, rank))
        self.register_buffer("spread", torch.ones(rank))  # variance along each direction
        self.register_buffer("rest", torch.ones(()))  # mean variance of all other directions
        self.register_module("looks", None)
        self.register_module("evidence", None)

    def forward(self, features: Tensor, classes: Tensor, looks: Tensor | None = None) -> Tensor:
        """(B, D), the claimed classes (B,) -> (B,) support: minus the distance, 0 at the class mean.

        With `evidence` it is how often such answers are right, 0 to 1, and all is measured on prepared features; else,
        with the looks (B, 3) of the pictures, minus the larger of the two distances.
        """
        features = features.float() if self.evidence is None else normalise_features(features)
        away = features - self.mean[classes]
        along = away @ self.basis
        beside = (away.square().sum(1) - along.square().sum(1)).clamp_min(0)
        support = -((along.square() / self.spread).sum(1) + beside / self.rest).sqrt()
        if self.evidence is not None:
            found: Tensor = self.evidence(features, classes, -support)
            return found
        if self.looks is None or looks is None:
            return support
        return torch.minimum(support, self.looks(looks, torch.zeros_like(classes)))

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
        even = rank / (len(x) + rank)  # share of the samples that are imagined
        self.mean.copy_(mean)
        self.basis.zero_()
        self.basis[:, :keep] = basis
        self.spread.fill_(1.0)
        self.spread[:keep] = torch.lerp(variance, total / width, even).clamp_min(floor)
        self.rest.copy_(torch.lerp(rest, total / width, even).clamp_min(floor))

    @torch.no_grad()
    def stretch(self, factor: float) -> None:
        """Multiply every distance by a factor above 0."""
        self.spread.div_(factor**2)
        self.rest.div_(factor**2)


def looks_of(pictures: Tensor) -> Tensor:
    """(B, C, H, W) normalised pictures -> (B, 3) brightness, log contrast and log detail.

    Brightness is the mean of the pixels, contrast their variance, detail the mean squared difference of neighbours.
    Noise has more detail than a real picture of the same contrast; a picture of one colour has neither.

    >>> flat, noise = torch.ones(1, 1, 8, 8), torch.randn(1, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    >>> [[round(x) for x in looks_of(picture)[0].tolist()] for picture in (flat, noise)]
    [[1, -7, -7], [0, 0, 1]]
    """
    values = pictures.float()
    down, across = (values.diff(dim=d).square().sum((1, 2, 3)) for d in (2, 3))
    steps = max(1, values[0].diff(dim=1).numel() + values[0].diff(dim=2).numel())
    contrast = values.flatten(2).var(2, correction=0).mean(1)
    return torch.stack([values.mean((1, 2, 3)), (contrast + DIM).log(), ((down + across) / steps + DIM).log()], 1)


def normalise_features(features: Tensor) -> Tensor:
    """(N, D) features -> float32 of length one; square roots tame the few large ones, with their signs.

    >>> [round(x, 1) for x in normalise_features(torch.tensor([[9.0, -16.0]])).square().tolist()[0]]
    [0.4, 0.6]
    """
    values = features.float()
    return F.normalize(values.sign() * values.abs().sqrt(), dim=1)


@torch.no_grad()
def measure_held_out(
    features: Tensor, labels: Tensor, copies: Tensor, claimed: Tensor, of: Tensor, classes: int
) -> tuple[Tensor, Tensor]:
    """(B,) support of copies of training samples as if these had not been seen, and (B,) whether it could be measured.

    `copies` (B, D) are claimed to be of the classes (B,); `of` (B,) says which row of the training features (n, D) with
    labels (n,) each is a copy of. Means and spread come from other samples: a tenth of all, a quarter of many, is left
    out each time. For the only sample of a class, or a class without others, nothing can be measured: support 0.
    Uses torch's global randomness.

    >>> _ = torch.manual_seed(0)
    >>> x, labels = torch.randn(41, 4), torch.arange(41) // 20
    >>> support, known = measure_held_out(x, labels, x, labels, torch.arange(41), classes=3)
    >>> bool(support[:40].max() < 0), known[39:].tolist()
    (True, [True, False])
    """
    folds = FOLDS if len(labels) < MANY else FEWER
    fold = (place_in_class(labels) + labels) % folds  # a class of two or more never lies in one fold alone
    sizes = torch.bincount(labels, minlength=classes)
    support, known = features.new_zeros(len(copies), dtype=torch.float32), torch.zeros_like(claimed, dtype=torch.bool)
    for number in range(folds):
        out = fold == number
        mine = out[of]
        if not bool(mine.any()) or bool(out.all()):
            continue
        others = Support(classes, features.shape[1]).to(features.device)
        others.fit(features[~out], labels[~out])
        left = sizes - torch.bincount(labels[out], minlength=classes)
        known[mine] = (left[claimed[mine]] > 0) & (left[labels[of[mine]]] > 0)
        support[mine] = others(copies[mine], claimed[mine]).where(known[mine], 0.0)
    return support, known


def place_in_class(labels: Tensor) -> Tensor:
    """(n,) which sample of its class each is, counted from 0.

    >>> place_in_class(torch.tensor([1, 0, 1, 1])).tolist()
    [0, 0, 1, 2]
    """
    by_class = labels.argsort(stable=True)
    sizes = torch.bincount(labels)
    place = torch.empty_like(labels)
    place[by_class] = torch.arange(len(labels), device=labels.device) - (sizes.cumsum(0) - sizes)[labels[by_class]]
    return place

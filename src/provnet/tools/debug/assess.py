"""What fixed features say about labels: which are wrong, how many, and which samples are of no class.

For runs whose backbone did not learn from the labels. Everything is out of fold: what is said of a sample is measured
without it; the three scores are combined by what they predict (both: `answers.out_of_fold`), samples
far from all confirmed ones are told apart, and both count less in a second round.

Letters: N samples, D features, C classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from provnet.answers.out_of_fold import (
    NoiseModel,
    bayes_scores,
    gaussian_scores,
    linear_scores,
    noise_model,
    posterior,
    refined,
    ridge,
    standardised,
    turned,
    vote_scores,
)
from provnet.base.errors import NonFiniteError
from provnet.heads.retrieval import top_k
from provnet.heads.support import normalise_features
from provnet.tools.debug.signals import Mislabels, nearest_others, robust

FEW_CLASSES = 20  # up to which a linear model of the grams of texts is trained for each part; naive Bayes knows more
NEIGHBOURS = 20
ROUNDS = 2
LEAST_TRUST = 0.01
PER_CLASS = 100  # samples from which classes have confusions of their own; with few, missed foreign ones feign them
# People err on ambiguous pictures: odds times 3 + 6 x rate. Chosen on labels drawn from the votes of CIFAR-10H, whose
# shares were flattened until .05 to .48 of the labels were wrong, and on flips of Stanford Dogs.
PEOPLE, MORE = 3.0, 6.0
REST = 0.25  # of the labels that are not predicted and not suspected: so many more may be wrong; chosen there, too
STRUCTURE = 0.12  # relative error of the expected number beyond chance: found on Stanford Dogs, 12 draws
BIAS = 0.06  # the expected number is low by so much on average there
OVERLAP = 0.004  # of the samples that are not predicted: what an overlap of classes may hide or feign
DRAWS, ENOUGH = 40, 5000  # of the bootstrap, and samples that it looks at
POWER = 0.35  # share of labels predicted beyond chance below which wrong labels are not told from right ones
WIDE = 0.6  # of the expected number: an interval beyond that tells nothing
FEW = 10.0


@dataclass(frozen=True, eq=False)
class Expected:
    """The expected number of wrong labels, with a 95 % interval.

    How much oftener people err on hard pictures than on easy ones cannot be told from labels alone. `even` is the
    number with its interval if a wrong label is as likely on either. The largest number is reached where people erred
    as they did on CIFAR-10H; the number stands between what both say.
    """

    number: float
    low: float
    high: float
    even: tuple[float, float, float]


@dataclass(frozen=True, eq=False)
class Assessment:
    """What is said of labels (N,).

    Attributes:
        wrong: (N,) probability that the label is wrong, were the sample of one of the classes.
        plain: (N,) that it is wrong and another is right, if wrong labels are as likely on easy as on hard pictures.
        foreign: (N,) probability that the sample is of no class.
        suggested: (N,) int64, the most probable other class.
        sure: (N,) how probable it is that it is right, if wrong labels are as likely on easy as on hard pictures.
        parts: name -> (N,) what each score, and the classes' confusions, add to the log-odds `base` of `wrong`.
        ambiguous: (N,) bool, two classes fit and neither is clearly right.
        clean: (N, C) probability of each class from the sample alone, out of fold.
        model: how the scores were combined.
        expected: how many labels are wrong.
        accuracy: share of the labels that are predicted from other samples.
        power: the same beyond chance.
        doubt: why the number cannot be told, else empty.
    """

    wrong: np.ndarray
    plain: np.ndarray
    foreign: np.ndarray
    suggested: np.ndarray
    sure: np.ndarray
    parts: dict[str, np.ndarray]
    base: float
    ambiguous: np.ndarray
    clean: np.ndarray
    model: NoiseModel
    expected: Expected
    far: np.ndarray
    accuracy: float
    power: float
    doubt: str

    @property
    def mislabel(self) -> np.ndarray:
        """(N,) probability that the label is wrong and another of the classes is right."""
        return np.asarray(self.wrong * (1 - self.foreign))

    def as_mislabels(self) -> Mislabels:
        """The same as runs that learned their features have it."""
        others_share = np.where(self.wrong > 0, self.sure / np.maximum(self.plain, 1e-12), 0.0)
        return Mislabels(
            score=self.mislabel,
            suggested=self.suggested,
            agreement=np.clip(others_share, 0.0, 1.0),
            contributions={**self.parts, "foreign": np.log(1 - self.foreign + 1e-9)},
            base=self.base,
            fitted=0.0,
            predicted=self.accuracy,
            power=self.power,
            cannot_tell=self.doubt,
            sure=self.sure,
            number=(self.expected.number, self.expected.low, self.expected.high),
        )


def assess(
    features: Tensor, given: np.ndarray, classes: int, *, seed: int = 0, draws: int = DRAWS, grams: Any = None
) -> Assessment:
    """Judge labels (N,) in 0..C-1 by features (N, D) that were not learned from them.

    Of texts `grams` are the weighted grams (N, V) that the features are folded from.

    >>> chance = torch.Generator().manual_seed(0)
    >>> labels = np.arange(60) % 2
    >>> x = torch.randn(60, 8, generator=chance) + 6 * torch.eye(2, 8)[torch.from_numpy(labels)]
    >>> labels[0] = 1  # wrong
    >>> found = assess(x, labels, 2, draws=2)
    >>> int(found.mislabel.argmax()), bool(found.mislabel[0] > 0.5), int(found.suggested[0])
    (0, True, 0)
    """
    if not bool(torch.isfinite(features).all()):
        raise NonFiniteError(
            "the features of a sample are not finite; check the pixels and the weights (provnet verify)"
        )
    z = turned(normalise_features(features)) if grams is None else features
    labels = torch.tensor(given, device=z.device)
    n, rows = len(labels), torch.arange(len(labels), device=z.device)
    near = nearest_others(z, NEIGHBOURS)
    row, cosine = (torch.from_numpy(each).to(z.device) for each in (near.row, near.cosine))
    trust, foreign = torch.ones(n, dtype=torch.float64, device=z.device), np.zeros(n)
    model: NoiseModel | None = None
    for _ in range(ROUNDS if grams is None else 1):
        named = _named_scores(z, grams, labels, classes, trust, seed)
        named["votes"] = vote_scores(row, cosine, labels, classes, trust)
        scores = list(named.values())
        known = torch.from_numpy(1 - foreign).to(z.device)
        model, clean = noise_model(scores, labels, known + LEAST_TRUST, start=model)
        wrong = 1 - posterior(clean, labels, model.flips)[rows, labels]
        own = clean[rows, labels]
        confirmed = (wrong < 0.5) & (own >= own.kthvalue(max(1, round((1 - CONFIRMED) * n))).values) & (known > 0.5)
        odd = oddness(z, labels, classes, confirmed, seed)
        agrees = (clean.argmax(1) == labels).cpu().numpy()
        foreign = foreign_probability(odd.far, agrees, classes)
        known = torch.from_numpy(1 - foreign).to(z.device)
        trust = ((1 - wrong) * known).clamp_min(LEAST_TRUST)
    assert model is not None
    plain = (wrong * known).cpu().numpy()  # for the number: refined flips count what is ambiguous, too
    flips = refined(clean, labels, model.flips, known) if n >= PER_CLASS * classes else model.flips
    after = posterior(clean, labels, flips)
    odds = (1 - after[rows, labels]).clamp_min(1e-15).log() - after[rows, labels].clamp_min(1e-15).log()
    odds = odds + float(np.log(PEOPLE + MORE * model.rate))
    other = after.index_put((rows, labels), after.new_tensor(-1.0))
    sure, suggested = other.max(1)
    base, parts = _parts(named, model, labels, suggested, odds)
    two = after.topk(min(2, classes), 1).values
    accuracy = float(agrees.mean())
    wrong_label = torch.sigmoid(odds)
    even = _even(scores, labels, known, plain, model, accuracy, draws, seed)
    expected = _expected(even, float((wrong_label * known).sum()), n * (1 - accuracy))
    most = float(np.bincount(given).max()) / n
    power = max(accuracy - most, 0.0) / max(1 - most, 1e-9)
    return Assessment(
        wrong=wrong_label.cpu().numpy(),
        plain=((1 - after[rows, labels]) * known).cpu().numpy(),
        foreign=foreign,
        suggested=suggested.cpu().numpy(),
        sure=(sure * known).clamp(0, 1).cpu().numpy(),
        parts={name: each.cpu().numpy() for name, each in parts.items()},
        base=base,
        ambiguous=((two[:, 0] < 0.8) & (two[:, -1] > 0.2) & (two.sum(1) > 0.8)).cpu().numpy() & (foreign < 0.5),
        clean=clean.cpu().numpy(),
        model=model,
        expected=expected,
        far=odd.far,
        accuracy=accuracy,
        power=power,
        doubt=_doubt(power, expected),
    )


def _named_scores(z: Tensor, grams: Any, labels: Tensor, classes: int, trust: Tensor, seed: int) -> dict[str, Tensor]:
    """(N, C) scores of each kind of model, every sample measured without itself."""
    if grams is None:
        return {
            "ridge": ridge(z, labels, classes, trust).scores,
            "gaussian": gaussian_scores(z, labels, classes, trust, seed=seed),
        }
    found = {"words": bayes_scores(grams, labels, classes, trust)}
    if classes <= FEW_CLASSES:
        found["linear"] = linear_scores(grams, labels, classes, trust, seed=seed)
    return found


def _parts(
    named: Mapping[str, Tensor], model: NoiseModel, labels: Tensor, suggested: Tensor, odds: Tensor
) -> tuple[float, dict[str, Tensor]]:
    """What each score says for the suggested class against the given one, and what is left: the flips."""
    base = float(np.log(max(model.rate, 1e-6) / max(1 - model.rate, 1e-6)))
    rows = torch.arange(len(labels), device=labels.device)
    parts = {}
    for (name, score), weight in zip(named.items(), model.sharp.tolist(), strict=True):
        s = standardised(score.double())
        parts[name] = weight * (s[rows, suggested] - s[rows, labels])
    parts["confusions"] = odds - base - torch.stack(list(parts.values())).sum(0)
    return base, parts


def _doubt(power: float, expected: Expected) -> str:
    """Why the number of wrong labels cannot be told.

    >>> _doubt(0.1, Expected(20, 10, 30, (20, 10, 30)))
    '10 % of the labels are predicted beyond chance from other samples, 35 % are needed'
    >>> _doubt(0.9, Expected(20, 1, 30, (20, 1, 30)))
    'the interval of their number, 1 to 30, is too wide'
    """
    if power < POWER:
        shares = f"{100 * power:.0f} % of the labels are predicted beyond chance from other samples"
        return f"{shares}, {100 * POWER:.0f} % are needed"
    number, low, high = expected.even
    if number >= FEW and (high - low) / 2 > WIDE * number:
        return f"the interval of their number, {low:.0f} to {high:.0f}, is too wide"
    return ""


def _expected(even: tuple[float, float, float], people: float, missed: float) -> Expected:
    """The number from what it is if errors are even, what it is if `people` erred as usual, and labels not predicted.

    >>> found = _expected((80.0, 60.0, 107.0), 125.0, 225.0)
    >>> round(found.number), found.low, found.high
    (100, 60.0, 150.0)
    """
    number, low, high = even
    people = max(people, number)
    most = max(high, people + REST * max(missed - people, 0.0))
    return Expected(float(np.sqrt(number * people)), low, most, even)


def _even(
    scores: Sequence[Tensor],
    labels: Tensor,
    known: Tensor,
    plain: np.ndarray,
    model: NoiseModel,
    accuracy: float,
    draws: int,
    seed: int,
) -> tuple[float, float, float]:
    """The number if errors are even, and its 95 % interval: chance, the labels drawn, and the model itself."""
    n, chance = len(labels), np.random.default_rng(seed)
    total = float(plain.sum())
    some = torch.from_numpy(chance.permutation(n)[:ENOUGH]).to(labels.device)
    part, given, places = [score[some] for score in scores], labels[some], torch.arange(len(some), device=labels.device)
    rates = []
    for _ in range(draws):
        drawn = torch.from_numpy(chance.exponential(size=len(some))).to(labels.device) * known[some] + 1e-6
        again, clean = noise_model(part, given, drawn, rounds=1, start=model)
        wrong = 1 - posterior(clean, given, again.flips)[places, given]
        rates.append(float((known[some] * wrong).sum() / known[some].sum()))  # of these samples, not of those drawn
    spread = float(np.std(rates)) * np.sqrt(len(some) / n) * float(known.sum()) if draws > 1 else 0.0
    labels_drawn = float((plain * (1 - plain)).sum())
    overlap = OVERLAP * n * (1 - accuracy)
    sd = float(np.sqrt(spread**2 + labels_drawn + (STRUCTURE * total) ** 2 + overlap**2 + 1.0))
    centre = total * (1 + BIAS)
    relative = sd / max(centre, 1e-9)
    high = centre * float(np.exp(1.96 * relative)) if relative < 0.5 else centre + 1.96 * sd
    return centre, centre * float(np.exp(-1.96 * relative)), min(high, float(n))


# Which samples are of no class: far from all whose labels the other samples confirm. Foreign pictures of one kind lie
# close to each other, so the distance to the nearest of all samples does not tell them; but labels drawn for them
# confirm nothing, so the distance to confirmed samples does.
SHRINK = 0.8  # of the spread by which samples are told from foreign ones
FOLDS = 5
NEAREST = 10  # confirmed samples
CONFIRMED = 0.6  # share of the samples that may be confirmed: those that are most surely what they are labelled
GAUSS = float(np.sqrt(2 * np.pi))
PIECE = 4096


@dataclass(frozen=True, eq=False)
class Oddness:
    """(N,) how far samples lie from the confirmed ones: from the nearest class, and from the tenth sample; and both
    added up in robust standard deviations.
    """

    class_distance: np.ndarray
    alone: np.ndarray
    far: np.ndarray


def oddness(z: Tensor, labels: Tensor, classes: int, confirmed: Tensor, seed: int = 0) -> Oddness:
    """How far samples (N, D) of length one lie from those that are `confirmed` (N,), each measured without itself."""
    near = -2 * gaussian_scores(
        z, labels, classes, confirmed.double() + 1e-9, folds=FOLDS, seed=seed, shrink=SHRINK
    ).amax(1)
    rows = confirmed.nonzero()[:, 0]
    k = min(NEAREST, max(len(rows) - 1, 1))
    cosine = torch.zeros(len(z), dtype=torch.float64, device=z.device)
    if len(rows):
        parts = [top_k(each, z[rows], min(k + 1, len(rows))).score for each in torch.split(z, PIECE)]
        found = torch.cat(parts).double()
        last = found.shape[1] - 1
        cosine = torch.where(confirmed, found[:, last], found[:, min(k - 1, last)])  # the first is the sample itself
    class_distance = near.clamp_min(1e-9).log().cpu().numpy()
    alone = (1 - cosine).clamp_min(1e-6).log().cpu().numpy()
    return Oddness(class_distance, alone, robust(class_distance) + robust(alone))


def foreign_probability(far: np.ndarray, agrees: np.ndarray, classes: int, *, steps: int = 100) -> np.ndarray:
    """(N,) probability that a sample is of no class, from oddness (N,) and whether its label is the one predicted.

    Two groups: known samples, whose oddness has a light tail on one side and a heavier one on the other, and foreign
    ones, farther out, whose labels agree by chance alone. Both are found by expectation and maximisation.

    >>> chance = np.random.default_rng(0)
    >>> far = np.append(chance.normal(size=480), chance.normal(9, 1, 20))
    >>> found = foreign_probability(far, np.append(np.ones(480, bool), chance.random(20) < 0.1), 10)
    >>> bool(found[480:].min() > 0.9), bool((found[:480] < 0.5).all())
    (True, True)
    """
    middle = float(np.median(far))
    low, high = far[far <= middle], far[(far > middle) & (far < np.quantile(far, 0.9))]
    left = float(np.sqrt(np.mean((low - middle) ** 2))) + 1e-9
    right = max(1.25 * left, 1.25 * float(np.sqrt(np.mean((high - middle) ** 2))) if len(high) else left)
    agreeing = float(np.clip(agrees[far <= np.quantile(far, 0.8)].mean(), 0.02, 0.98))
    as_known = np.where(agrees, agreeing, 1 - agreeing) * _known(far, middle, left, right)
    by_chance = np.where(agrees, 1 / classes, 1 - 1 / classes)
    centre, spread, share = middle + 4.5 * right, 1.5 * right, 0.02
    p = np.zeros(len(far))
    for _ in range(steps):
        away = np.exp(-0.5 * ((far - centre) / spread) ** 2)
        away = np.where(far > centre, np.maximum(away, np.exp(-0.5)), away) / (spread * GAUSS)
        strange = share * away * by_chance
        p = strange / ((1 - share) * as_known + strange + 1e-300)
        weight = float(p.sum()) + 1e-9
        share = float(np.clip((p.sum() + 0.5) / (len(far) + 50), 1e-5, 0.3))
        centre = max(float(p @ far + 3 * (middle + 4.5 * right)) / (weight + 3), middle + 3 * right)
        variance = float(p @ (far - centre) ** 2 + 3 * (1.5 * right) ** 2) / (weight + 3)
        spread = float(np.clip(np.sqrt(variance), 0.5 * right, 4 * right))
    return np.asarray(p)


def _known(far: np.ndarray, middle: float, left: float, right: float) -> np.ndarray:
    """Density of the oddness of known samples: Gauss on either side, with an exponential tail from 2.5 spreads on."""
    u = np.abs(far - middle) / np.where(far < middle, left, right)
    tail = np.exp(-0.5 * 2.5**2 - 2.0 * (u - 2.5))
    return np.asarray(2 / (left + right) * np.where(u < 2.5, np.exp(-0.5 * u**2), tail) / GAUSS)

"""What fixed features say about labels: which are wrong, how many, and which samples are of no class.

For runs whose backbone did not learn from the labels. Everything is out of fold: what is said of a sample is measured
without it (`answers.out_of_fold`). The three scores are combined by what they predict (`answers.label_noise`), samples
far from all confirmed ones are told apart (`foreign`), and both count less in a second round.

Letters: N samples, D features, C classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from provnet.answers.label_noise import NoiseModel, noise_model, posterior, refined, standardised
from provnet.answers.out_of_fold import bayes_scores, gaussian_scores, linear_scores, ridge, turned, vote_scores
from provnet.base.errors import NonFiniteError
from provnet.heads.support import prepared
from provnet.tools.debug.foreign import CONFIRMED, foreign_probability, oddness
from provnet.tools.debug.mislabels import Mislabels
from provnet.tools.debug.signals import nearest_others

FEW_CLASSES = 20  # up to which a linear model of the grams of texts is trained for each part; naive Bayes knows more
NEIGHBOURS = 20
ROUNDS = 2
LEAST_TRUST = 0.01
PER_CLASS = 100  # samples from which classes have confusions of their own; with few, missed foreign ones feign them
# People err on ambiguous pictures: odds times 2 + 12 x rate, chosen on CIFAR-10N random2 and random3.
PEOPLE, MORE = 2.0, 12.0
STRUCTURE = 0.12  # relative error of the expected number beyond chance: found on Stanford Dogs, 12 draws
BIAS = 0.06  # the expected number is low by so much on average there
OVERLAP = 0.004  # of the samples that are not predicted: what an overlap of classes may hide or feign
DRAWS, ENOUGH = 40, 5000  # of the bootstrap, and samples that it looks at
POWER = 0.35  # share of labels predicted beyond chance below which wrong labels are not told from right ones
WIDE = 0.6  # of the expected number: an interval beyond that tells nothing
FEW = 10.0


@dataclass(frozen=True, eq=False)
class Expected:
    """The expected number of wrong labels.

    Attributes:
        number, low, high: with a 95 % interval, if a wrong label is as likely on an easy as on a hard picture. People
            err on hard ones: of their mistakes there are more.
    """

    number: float
    low: float
    high: float


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
    z = turned(prepared(features)) if grams is None else features
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
    expected = _expected(scores, labels, known, plain, model, accuracy, draws, seed)
    most = float(np.bincount(given).max()) / n
    power = max(accuracy - most, 0.0) / max(1 - most, 1e-9)
    return Assessment(
        wrong=torch.sigmoid(odds).cpu().numpy(),
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

    >>> _doubt(0.1, Expected(20, 10, 30))
    '10 % of the labels are predicted beyond chance from other samples, 35 % are needed'
    >>> _doubt(0.9, Expected(20, 1, 30))
    'the interval of their number, 1 to 30, is too wide'
    """
    if power < POWER:
        shares = f"{100 * power:.0f} % of the labels are predicted beyond chance from other samples"
        return f"{shares}, {100 * POWER:.0f} % are needed"
    if expected.number >= FEW and (expected.high - expected.low) / 2 > WIDE * expected.number:
        return f"the interval of their number, {expected.low:.0f} to {expected.high:.0f}, is too wide"
    return ""


def _expected(
    scores: Sequence[Tensor],
    labels: Tensor,
    known: Tensor,
    plain: np.ndarray,
    model: NoiseModel,
    accuracy: float,
    draws: int,
    seed: int,
) -> Expected:
    """The expected number and its 95 % interval: chance (bootstrap), the labels drawn, and the model itself."""
    n, chance = len(labels), np.random.default_rng(seed)
    total = float(plain.sum())
    some = torch.from_numpy(chance.permutation(n)[:ENOUGH]).to(labels.device)
    part, given, places = [score[some] for score in scores], labels[some], torch.arange(len(some), device=labels.device)
    rates = []
    for _ in range(draws):
        drawn = torch.from_numpy(chance.exponential(size=len(some))).to(labels.device) * known[some] + 1e-6
        again, clean = noise_model(part, given, drawn, rounds=1, start=model)
        wrong = 1 - posterior(clean, given, again.flips)[places, given]
        rates.append(float((drawn * wrong).sum() / drawn.sum()))
    spread = float(np.std(rates)) * np.sqrt(len(some) / n) * float(known.sum()) if draws > 1 else 0.0
    labels_drawn = float((plain * (1 - plain)).sum())
    overlap = OVERLAP * n * (1 - accuracy)
    sd = float(np.sqrt(spread**2 + labels_drawn + (STRUCTURE * total) ** 2 + overlap**2 + 1.0))
    centre = total * (1 + BIAS)
    relative = sd / max(centre, 1e-9)
    high = centre * float(np.exp(1.96 * relative)) if relative < 0.5 else centre + 1.96 * sd
    return Expected(centre, centre * float(np.exp(-1.96 * relative)), min(high, float(n)))

"""What a run knows of its own training samples, and how likely that makes each label to be wrong.

One pass through the network gives the signals; the index branch is conditioned on the given labels, as in training.
Nothing of size N x N is ever held. Each signal is turned into log-odds by what the others say, then added up.

Nobody knows which labels are wrong, so a signal is calibrated against another one: the course of training against the
votes of the neighbours, those against the course. A signal that agrees with nothing gets a slope near zero and says
nothing. Votes are as good as the features, and weak ones outvote right labels: a vote counts by its lead alone, unless
the course suspects most of the labels that are outvoted (benchmarks/debug_flags.py). The weights of the sum come from
planted wrong labels (benchmarks/debugging.py): the course carries it, as a network that memorises hides its wrong
labels at the end.

Letters: B batch, N samples, C classes, D features, E epochs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from provnet.answers.attributor import Answered, Attributor
from provnet.base.batches import Inputs, pieces
from provnet.base.errors import NonFiniteError
from provnet.base.progress import progress_bar
from provnet.base.stats import wilson
from provnet.heads.keys import unit
from provnet.heads.retrieval import top_k
from provnet.heads.support import measure_held_out
from provnet.runs.bank import NOT_TRAINED
from provnet.runs.run import Run

BATCH = {"cpu": 512, "cuda": 4096}  # where samples are small
SEED = 0  # of the search for the directions of spread: a run is debugged alike every time


@dataclass(frozen=True, eq=False)
class Signals:
    """One row a sample.

    Attributes:
        features: (N, D) float32 on the network's device, length one: what tells which samples are alike.
        raw: (N, D) the features that support is measured by, as they are, there too.
        logits: (N, C) class scores at the end of training.
        entropy: (N,) of the index branch's distribution, as a share of the largest that it could be (0..1).
        support: (N,) minus the distance from the other samples of the given class, each measured without itself, see
            `models.support.held_out`; 0 for the only sample of its class.
        course: (E, N) class loss in each epoch, NaN for samples that came after training; None without history.
    """

    features: Tensor
    raw: Tensor
    logits: np.ndarray
    entropy: np.ndarray
    support: np.ndarray
    course: np.ndarray | None


def sample_signals(
    run: Run, images: Inputs, labels: np.ndarray, index: np.ndarray, *, progress: bool = False
) -> Signals:
    """The signals of training samples `index` (N,), given their pictures (N, ...) and labels (N,)."""
    ask = Attributor(run)
    given = torch.tensor(labels, device=ask.device)
    with progress_bar("samples", len(images), progress) as update:
        found = ask.each(
            images, _read, classes=given, most=BATCH[ask.device.type], update=lambda done: update(done, "")
        )
    logits, entropy = (found[name].numpy() for name in ("logits", "entropy"))
    support = _support(found["raw"], given, len(run.network.support.mean))
    for name, values in (("class scores", logits), ("entropy of the index branch", entropy), ("support", support)):
        if not np.isfinite(values).all():
            row = int(np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(1))[0])
            raise NonFiniteError(
                f"the {name} of {run.samples.sample_ids[int(index[row])]} is not finite; check its pixels and the "
                "model's weights (provnet verify)"
            )
    course = None
    if run.history is not None and len(run.history):
        course = run.history[:, index].astype(np.float32)
        course = np.where(course == NOT_TRAINED, np.nan, course)
    return Signals(found["features"], found["raw"], logits, entropy, support, course)


def _read(answered: Answered) -> dict[str, Tensor]:
    return {
        "features": unit(answered.alike()),
        "raw": answered.support_features,
        "logits": answered.logits.cpu(),
        "entropy": answered.entropy().cpu(),
    }


def _support(features: Tensor, labels: Tensor, classes: int) -> np.ndarray:
    """What a run has stored was fitted to these very samples: among few, each is as near to it as any other."""
    with torch.random.fork_rng(devices=[features.device] if features.is_cuda else []):
        torch.manual_seed(SEED)
        every = torch.arange(len(labels), device=labels.device)
        return np.asarray(measure_held_out(features, labels, features, labels, every, classes)[0].cpu().numpy())


NEIGHBOURS = 30
SHARPNESS = 20.0  # of the weights: a cosine smaller by .05 than the best counts a third
NEIGHBOUR_BATCH = 1024


@dataclass(frozen=True, eq=False)
class Neighbours:
    """(N, K) rows of the nearest other samples, best first, -1 where there are fewer; and their cosines."""

    row: np.ndarray
    cosine: np.ndarray

    @property
    def weight(self) -> np.ndarray:
        """(N, K) how much each counts, 1 for the nearest."""
        falling = np.exp(SHARPNESS * (self.cosine - self.cosine[:, :1])) if self.cosine.shape[1] else self.cosine
        return np.asarray(np.where(self.row >= 0, falling, 0.0))


def nearest_others(features: Tensor, k: int = NEIGHBOURS, *, progress: bool = False) -> Neighbours:
    """The k nearest other samples of each, by the cosine of features (N, D) of length one.

    >>> nearest_others(torch.eye(3)[[0, 0, 1]], k=1).row.tolist()
    [[1], [0], [0]]
    """
    n = len(features)
    if n < 2:
        return Neighbours(np.full((n, 1), -1), np.zeros((n, 1), dtype=np.float32))
    rows, cosines = [], []
    with progress_bar("neighbours", n, progress) as update:
        for some in pieces(n, NEIGHBOUR_BATCH):
            queries = features[some]
            found = top_k(queries, features, min(k + 1, n))
            own = found.row == torch.arange(some.start, some.stop, device=found.row.device).unsqueeze(1)
            own[~own.any(1), -1] = True  # so many equals that the sample itself is not among them: the last goes
            rows.append(found.row[~own].view(len(queries), -1).cpu())
            cosines.append(found.score[~own].view(len(queries), -1).cpu())
            update(some.stop, "")
    return Neighbours(torch.cat(rows).numpy(), torch.cat(cosines).numpy())


def votes(near: Neighbours, labels: np.ndarray, trust: np.ndarray, classes: int) -> np.ndarray:
    """(N, C) what the neighbours' labels say, each counted by nearness and by trust (N,) in its own label.

    >>> near = nearest_others(torch.eye(2)[[0, 0, 1]], k=2)
    >>> votes(near, np.array([0, 1, 1]), np.ones(3), 2).argmax(1).tolist()  # the third has two equally far others
    [1, 0, 0]
    """
    found = np.zeros((len(labels), classes))
    weight = near.weight * trust[np.maximum(near.row, 0)]
    for k in range(near.row.shape[1]):  # one neighbour at a time: no (N, K, C) memory
        np.add.at(found, (np.arange(len(labels)), labels[np.maximum(near.row[:, k], 0)]), weight[:, k])
    return found


WEIGHTS = {"course": 1.0, "neighbours": 0.3, "margin": 0.3}
WITHOUT_CLASSES = {
    "course": 0.3,
    "neighbours": 1.0,
    "margin": 0.3,
}  # a single branch learns indices, its loss says less
LONG = 8  # epochs after which the course tells all it can
MEMORISED = 0.85  # share of fitted suspects from which the neighbours' votes, too, are split by what was memorised
ROUNDS = 4  # each counts a neighbour by the trust that the one before leaves in its label
PRIOR_VOTES = 0.05  # for each class, against shares of exactly none or all
LEAST_LOSS = 0.01
SILENT = 1e-6  # log-odds: a signal that adds the same to all labels within this says nothing
FEWEST, MOST = 1e-3, 0.5  # shares of wrong labels that are thinkable
EARLY = 2  # how often a network has seen a sample when its loss tells what it learned from the others
BAR = 1 / 3  # power that is needed; with less, wrong labels are not told from right ones
MEMORISES = 0.25  # share of fitted suspects from which the neighbours' labels may be memorised, too


@dataclass(frozen=True, eq=False)
class Mislabels:
    """One row a sample.

    Attributes:
        score: (N,) probability that the given label is wrong, 0..1.
        suggested: (N,) int64, the class that is suggested instead where the score is high: the best other one.
        agreement: (N,) share of the trusted neighbours' votes, without those for the given label, for the suggestion.
        contributions: name of a signal -> (N,) what it adds to the log-odds; their sum and `base` are the score's.
        base: log-odds of a label about which nothing is known.
        fitted: share of the suspects whose given label the network predicts at the end of training: what it memorised.
        predicted: share of the labels that are predicted without having been memorised, see `_predicted`.
        power: the same beyond chance: 0 where the largest class alone explains it, 1 where all are predicted.
        off: name of a signal -> why it says nothing, for those that do not.
        cannot_tell: why the number of wrong labels cannot be told, else empty; the order may be useful all the same.
        sure: (N,) probability that the suggested class is right; None: the score times the agreement.
        number: expected number of wrong labels and the ends of its 95 % interval; None: what the scores add up to.
    """

    score: np.ndarray
    suggested: np.ndarray
    agreement: np.ndarray
    contributions: Mapping[str, np.ndarray]
    base: float
    fitted: float
    predicted: float = 1.0
    power: float = 1.0
    off: Mapping[str, str] = field(default_factory=dict)
    cannot_tell: str = ""
    sure: np.ndarray | None = None
    number: tuple[float, float, float] | None = None

    @property
    def certainty(self) -> np.ndarray:
        """(N,) probability that the suggested class is right."""
        return np.asarray(self.score * self.agreement) if self.sure is None else self.sure

    @property
    def odds(self) -> np.ndarray:
        """(N,) log-odds: they still rank samples whose probabilities are both written as 1.000."""
        return self.base + sum(self.contributions.values(), np.zeros(len(self.score)))


def mislabels(
    labels: np.ndarray,
    logits: np.ndarray,
    near: Neighbours,
    course: np.ndarray | None,
    *,
    class_branch: bool = True,
    rounds: int = ROUNDS,
) -> Mislabels:
    """Score the labels (N,) of samples with class scores (N, C), neighbours, and losses (E, N) over training.

    `class_branch` is False for a network that was trained on indices alone.

    >>> near = Neighbours(np.array([[1], [0]]), np.ones((2, 1)))
    >>> mislabels(np.array([0, 0]), np.array([[9.0, 0.0], [9.0, 0.0]]), near, None).score.max() < 0.5
    np.True_
    """
    n, classes = logits.shape
    rows = np.arange(n)
    if classes < 2 or n < 2:
        nothing = dict.fromkeys(WEIGHTS, np.zeros(n))
        alone = "there is nothing to compare a label with: a second class and a second sample are needed"
        off = dict.fromkeys(WEIGHTS, alone)
        return Mislabels(np.zeros(n), labels.copy(), np.zeros(n), nothing, _logit(FEWEST), 0.0, 0.0, 0.0, off, alone)
    whole = votes(near, labels, np.ones(n), classes)
    agreeing = float((whole.argmax(1) == labels).mean())
    margin = _margin(logits, labels)
    fits = margin < 0
    known, level = course_level(course, n)
    trust, fitted, agreed = np.ones(n), 0.0, 0.0
    for _ in range(max(rounds, 1)):
        said = votes(near, labels, trust, classes)
        against = _against(said, labels, fitted if class_branch else 0.0, agreed)
        belief = (said[rows, labels] + PRIOR_VOTES) / (said.sum(1) + PRIOR_VOTES * classes)
        odds = {"course": log_odds_from(level, against, known)}
        suspect = np.where(known, odds["course"] > 0, against > 0.5)
        odds["neighbours"] = log_odds_from(np.log((1 - belief) / belief), suspect)
        odds["margin"] = log_odds_from(margin, (against + suspect) / 2)
        base = _logit(float(np.clip((against.mean() + suspect.mean()) / 2, FEWEST, MOST)))
        fitted = float(fits[suspect].mean()) if suspect.any() else 0.0
        agreed = float(suspect[against > 0].mean()) if against.any() else 0.0
        parts = _weighted(odds, base, known, fitted, _table(course, class_branch))
        score = _share(base + sum(parts.values(), np.zeros(n)))
        trust = 1 - score + 1e-6
    said[rows, labels] = 0.0
    total = said.sum(1)
    suggested = np.where(total > 0, said.argmax(1), _second(logits, labels))
    agreement = np.where(total > 0, said.max(1) / np.maximum(total, 1e-12), 0.0)
    learned = wilson(int((fits & suspect).sum()), int(suspect.sum())).high  # few suspects are no evidence
    predicted = _predicted(course, agreeing if learned is not None and learned < MEMORISES else 0.0)
    chance = float(np.bincount(labels).max()) / n  # naming the largest class always
    power = max(predicted - chance, 0.0) / (1 - chance) if chance < 1 else 0.0
    off = _off(parts, course, fitted)
    doubt = _doubt(power, off) if power < BAR else ""
    return Mislabels(score, suggested.astype(np.int64), agreement, parts, base, fitted, predicted, power, off, doubt)


def _predicted(course: np.ndarray | None, agreeing: float) -> float:
    """The share of labels that are predicted by what was learned from other samples; few of these are wrong.

    In its first epochs a network has seen each sample too seldom to know its label by heart: there a loss below log(2)
    says that the label is predicted. Labels that the neighbours predict (`agreeing`) count where nothing was memorised.

    >>> _predicted(np.array([[2.0, 2.0], [1.5, 1.5], [0.1, 2.0], [0.0, 0.0]]), 0.0)
    0.5
    """
    if course is None or len(course) == 0:
        return agreeing
    early = course[min(EARLY, len(course) - 1)]
    known = early[np.isfinite(early)]
    return max(agreeing, float((known < math.log(2)).mean()) if len(known) else 0.0)


def _doubt(power: float, off: Mapping[str, str]) -> str:
    """Why wrong labels do not stand out from right ones.

    >>> _doubt(0.1, {"margin": "the network memorised the labels"}).split(", so ")[0]
    'the signals have a power of 10 % (labels that are predicted beyond chance before they are memorised; 33 % needed)'
    """
    return (
        f"the signals have a power of {100 * power:.0f} % (labels that are predicted beyond chance before they are "
        f"memorised; {100 * BAR:.0f} % needed), so wrong labels do not stand out from right ones"
        + "".join(f"; the signal '{name}' is off: {why}" for name, why in off.items())
    )


def _off(parts: Mapping[str, np.ndarray], course: np.ndarray | None, fitted: float) -> dict[str, str]:
    """Why signals add the same to every label."""
    why = dict.fromkeys(parts, "it agrees with no other signal")
    if course is None or len(course) < 2:
        why["course"] = "the run kept no losses of more than one epoch"
    if fitted > 1 - SILENT:
        why["margin"] = "the network memorised the labels"
    return {name: why[name] for name, part in parts.items() if np.ptp(part) < SILENT}


def _against(said: np.ndarray, labels: np.ndarray, fitted: float, agreed: float) -> np.ndarray:
    """(N,) 0..1: how clearly the votes prefer another label: by how large a share of them it leads.

    Where classes overlap or features are weak the votes are split: a right label in the minority there is no sign of a
    mistake. But votes are split as well where the network memorised all wrong labels; then any lead counts. A network
    that learned only right labels fits them all, too. So any lead counts no more than by `agreed`, the share of the
    outvoted labels that the course suspects: weak features outvote labels that were easily learned.

    >>> said, labels = np.array([[4.0, 6.0], [9.0, 1.0]]), np.array([0, 0])
    >>> [_against(said, labels, 1.0, agreed).round(2).tolist() for agreed in (0.0, 0.5, 1.0)]
    [[0.2, 0.0], [0.6, 0.0], [1.0, 0.0]]
    """
    share = said / np.maximum(said.sum(1, keepdims=True), 1e-12)
    lead = share.max(1) - share[np.arange(len(labels)), labels]
    power = min((1 - fitted) / (1 - MEMORISED), 1.0)
    return np.asarray(np.where(lead > 0, lead + agreed * (lead**power - lead), 0.0))


def course_level(course: np.ndarray | None, n: int) -> tuple[np.ndarray, np.ndarray]:
    """(N,) whether a sample has a course, and the log of its mean loss; the first of many epochs, before anything was
    learned, is left out.

    >>> course_level(np.array([[9.0, 9.0], [1.0, 2.0], [1.0, 2.0], [1.0, 2.0]]), 2)[1].round(2).tolist()
    [0.01, 0.7]
    """
    if course is None or len(course) == 0:
        return np.zeros(n, dtype=np.bool_), np.zeros(n)
    later = course[1:] if len(course) > 3 else course
    known = np.isfinite(later).all(0)
    mean = np.where(known, later, 0.0).mean(0, dtype=np.float64)
    return known, np.where(known, np.log(mean + LEAST_LOSS), 0.0)


def log_odds_from(signal: np.ndarray, target: np.ndarray, known: np.ndarray | None = None) -> np.ndarray:
    """(N,) log-odds of the target (0..1) by logistic regression on one signal, of which more never speaks for less.

    >>> log_odds_from(np.array([0.0, 1.0, 2.0, 3.0]), np.array([0, 0, 1, 1])).round().tolist()
    [-1.0, -0.0, 0.0, 1.0]
    """
    use = np.ones(len(signal), dtype=np.bool_) if known is None else known
    x, t = signal[use].astype(np.float64), target[use].astype(np.float64)
    none = _logit(float(np.clip(t.mean() if len(t) else 0.0, FEWEST, MOST)))
    if len(x) < 2 or x.std() < 1e-12 or t.min() == t.max():
        return np.full(len(signal), none)
    u = np.stack([(x - x.mean()) / x.std(), np.ones(len(x))], 1)
    v = np.array([0.0, none])
    penalty = np.array([1.0, 1e-6])  # on the slope: where all is clear it would grow for ever
    for _ in range(50):
        p = _share(u @ v)
        step = np.linalg.solve((u * (p * (1 - p))[:, None]).T @ u + np.diag(penalty), u.T @ (p - t) + penalty * v)
        v = v - np.clip(step, -2.0, 2.0)
        if np.abs(step).max() < 1e-6:
            break
    if v[0] < 0:  # against its meaning: it tells nothing here
        return np.full(len(signal), none)
    return np.asarray(np.where(use, (signal - x.mean()) / x.std() * v[0] + v[1], none))


def _table(course: np.ndarray | None, class_branch: bool) -> dict[str, float]:
    """The weights of the signals; after few epochs the course has little to tell, and the neighbours count instead."""
    full = WEIGHTS if class_branch else WITHOUT_CLASSES
    told = 0.0 if course is None else min((len(course) - 1) / (LONG - 1), 1.0)
    return {**full, "course": told * full["course"], "neighbours": told * full["neighbours"] + (1 - told)}


def _weighted(
    odds: Mapping[str, np.ndarray], base: float, known: np.ndarray, fitted: float, table: Mapping[str, float]
) -> dict[str, np.ndarray]:
    """What each signal adds; without a course the neighbours carry the score, a memorised margin is no witness."""
    course = np.where(known, table["course"], 0.0)
    neighbours = np.where(known, table["neighbours"], 1.0)
    margin = table["margin"] * (1 - fitted)
    weights = {"course": course, "neighbours": neighbours, "margin": np.full(len(known), margin)}
    return {name: weights[name] * (odds[name] - base) for name in WEIGHTS}


def _margin(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """(N,) by how much the best other class scores above the given one."""
    rows = np.arange(len(labels))
    rest = logits.astype(np.float64).copy()
    rest[rows, labels] = -np.inf
    return np.asarray(rest.max(1) - logits[rows, labels])


def _second(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    rest = logits.copy()
    rest[np.arange(len(labels)), labels] = -np.inf
    return np.asarray(rest.argmax(1))


def _logit(p: float) -> float:
    return math.log(p / (1 - p))


def _share(odds: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-np.clip(odds, -40, 40))))


ANOMALY_WEIGHTS = {"distance": 1.0, "isolation": 0.3, "course": 1.0}
HALF = 3.0  # robust standard deviations above the median where the score is one half: 1 of 1,000 ordinary digits
STEEP = 3.0
UNTYPICAL = 20.0  # robust standard deviations for a label that is certainly wrong
TINY = 1e-4  # of a cosine: samples with equals are at no distance at all


@dataclass(frozen=True, eq=False)
class Anomalies:
    """One row a sample.

    Attributes:
        score: (N,) 0..1, one half at 3 robust standard deviations above the median sample.
        typicality: (N,) 0..1, the share of the samples of the same label that are less typical; one half where there is
            no other of the label.
        parts: name -> (N,) in robust standard deviations: `distance` from the class, `isolation`, `course`; 0 where not
            measured, which is the distance of the only sample of its label, and a course that was not kept.
    """

    score: np.ndarray
    typicality: np.ndarray
    parts: dict[str, np.ndarray]


def anomalies(labels: np.ndarray, signals: Signals, near: Neighbours, mislabel: np.ndarray) -> Anomalies:
    """Score samples (N,) by distance, isolation and course; one whose label is probably wrong is typical of nothing.

    What was not measured has no weight.
    """
    learned, level = course_level(signals.course, len(labels))
    known = {
        "distance": np.bincount(labels)[labels] > 1,  # the only sample of its label has nothing to be far from
        "isolation": np.ones(len(labels), dtype=np.bool_),
        "course": learned,
    }
    values = {
        "distance": np.log(np.maximum(-signals.support, 1e-6)),
        "isolation": np.log(TINY + _isolation(near)),
        "course": level,
    }
    parts = {name: np.where(known[name], robust(value, known[name]), 0.0) for name, value in values.items()}
    weight = {name: np.where(known[name], value, 0.0) for name, value in ANOMALY_WEIGHTS.items()}
    total = sum(weight.values())
    combined = robust(np.asarray(sum(weight[name] * part for name, part in parts.items()) / total))
    score = 1 / (1 + np.exp(-np.clip(STEEP * (combined - HALF), -40, 40)))
    oddness = parts["distance"] + parts["isolation"] + UNTYPICAL * mislabel
    return Anomalies(score, _typicality(labels, oddness), parts)


def robust(values: np.ndarray, use: np.ndarray | None = None) -> np.ndarray:
    """Values in robust standard deviations from their median: a few far ones change neither.

    >>> robust(np.array([1.0, 2.0, 3.0, 1000.0])).round(2).tolist()
    [-1.01, -0.34, 0.34, 672.8]
    """
    seen = values if use is None else values[use]
    if len(seen) == 0:
        return np.zeros(len(values))
    middle = float(np.median(seen))
    spread = 1.4826 * float(np.median(np.abs(seen - middle)))
    if spread < 1e-9:
        spread = float(np.std(seen)) or 1.0
    return np.asarray((values - middle) / spread)


def _isolation(near: Neighbours) -> np.ndarray:
    """(N,) one minus the cosine with the last of the neighbours that there are."""
    last = np.maximum((near.row >= 0).sum(1) - 1, 0)
    return np.asarray(np.maximum(1 - near.cosine[np.arange(len(last)), last].astype(np.float64), 0.0))


def _typicality(labels: np.ndarray, oddness: np.ndarray) -> np.ndarray:
    found = np.full(len(labels), 0.5)
    for each in np.unique(labels):
        mine = np.flatnonzero(labels == each)
        if len(mine) > 1:
            found[mine[np.argsort(-oddness[mine], kind="stable")]] = np.arange(len(mine)) / (len(mine) - 1)
    return found


def of_one_picture(wrong: Mislabels, labels: np.ndarray, group: np.ndarray) -> Mislabels:
    """The scores, given that the samples of one `group` (N,) show one picture, so that at most one label is right.

    Only groups with several labels change; -1 is no group. What this adds is the contribution `equal`. The scores of a
    run that cannot tell are no evidence: there, every label of the group is as likely to be wrong as any other.

    >>> none = {"course": np.zeros(3)}
    >>> given = Mislabels(np.full(3, 0.01), np.zeros(3, np.int64), np.zeros(3), none, -4.6, 0.0)
    >>> of_one_picture(given, np.array([0, 1, 1]), np.array([0, 0, -1])).score.round(2).tolist()
    [0.5, 0.5, 0.01]
    """
    score, suggested = wrong.score.copy(), wrong.suggested.copy()
    prior = np.full(len(score), 1 / (1 + np.exp(-wrong.base))) if wrong.cannot_tell else wrong.score
    prior = np.clip(prior, FEWEST, 1 - FEWEST)
    for rows in groups_of(group):
        mine, there = labels[rows], np.unique(labels[rows])
        if len(there) < 2:
            continue
        right, not_right = np.log(1 - prior[rows]), np.log(prior[rows])
        cases = [float(np.where(mine == each, right, not_right).sum()) for each in there]
        chance = np.exp(np.array([*cases, float(not_right.sum())]) - max(cases))  # the last: no label is right
        share = chance[:-1] / chance.sum()
        score[rows] = 1 - share[np.searchsorted(there, mine)]
        suggested[rows] = [there[np.where(there == each, -1.0, share).argmax()] for each in mine]
    logit = np.log(np.maximum(score, 1e-12)) - np.log(np.maximum(1 - score, 1e-12))
    equal = np.where(score == wrong.score, 0.0, logit - wrong.odds)
    return replace(wrong, score=score, suggested=suggested, contributions={**wrong.contributions, "equal": equal})


def groups_of(group: np.ndarray) -> list[np.ndarray]:
    """The rows of each group (N,), those with -1 left out.

    >>> [rows.tolist() for rows in groups_of(np.array([1, -1, 0, 1]))]
    [[2], [0, 3]]
    """
    rows = np.flatnonzero(group >= 0)
    rows = rows[np.argsort(group[rows], kind="stable")]
    return np.split(rows, np.flatnonzero(np.diff(group[rows])) + 1) if len(rows) else []

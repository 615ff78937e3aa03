"""Audit of any model by attacks with shadow models: LiRA, RMIA and Attack-P, out of scores that anybody can compute.

A shadow is a model that was trained like the one that is audited, the target, on other samples or on some of the same.
All are asked how sure they are of the true label of each sample: the scaled confidence log(p / (1 - p)). From how sure
those shadows are that saw a sample, and those that did not, follows how sure a target would be that saw it or did not.

What is claimed of a sample rests on one attack, chosen by the shadows alone: LiRA where it has EACH shadows of both
kinds for every sample, else RMIA, else Attack-P.

Letters: n samples, v views of each (such as its mirror image), k shadows.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from provnet.answers.attributor import Attributor
from provnet.answers.metrics import Operating
from provnet.base.batches import split
from provnet.base.errors import DataError, NonFiniteError, UsageError
from provnet.base.files import read_file
from provnet.base.stats import Z95, Interval
from provnet.data.dataset import ImageData
from provnet.runs.inputs import Fitted, as_trained, inputs_of, run_of
from provnet.runs.run import Run
from provnet.tools.membership.compute import BATCH, ScoreAudit, audit_scores, member_scores

RATES = (0.01, 0.001, 0.0001)
EACH = 8  # shadows of a kind, from which on LiRA decides
OWN_SPREAD = 64  # shadows of a kind, from which on each sample has a spread of its own
OUTSIDE_SHARE = 0.3  # RMIA's a for shadows that did not see the sample: how the mean over those that did is guessed
DELTA = 1e-5  # of differential privacy
MOST_BYTES = 2_000_000_000
MEMBER, OTHER, CANDIDATE = 1, 0, -1
OWN = "score_"  # columns of a file that are scores by themselves, such as that of an index branch
ATTACKS = {
    "attack_p": "Attack-P: confidence of the target alone",
    "lira": "LiRA, online: shadows that saw the sample, and others",
    "lira_offline": "LiRA, offline: shadows that did not see the sample",
    "rmia": "RMIA: against the mean of all shadows",
    "rmia_offline": "RMIA, offline: against shadows that did not see the sample",
}


@dataclass(frozen=True, eq=False)
class ShadowScores:
    """Scaled confidences, log(p / (1 - p)) of the true label, of the target and of its shadows.

    Attributes:
        ids: (n,) one word each.
        member: (n,) 1 of samples that the target was trained on, 0 of others, -1 of candidates, of which nobody knows.
        target: (n, v).
        shadows: (n, k, v); k may be 0.
        inside: (n, k) bool, which shadow was trained on which sample.
        own: name -> (n,) scores by themselves, higher for members: those of an index branch, say.
    """

    ids: Sequence[str]
    member: np.ndarray
    target: np.ndarray
    shadows: np.ndarray
    inside: np.ndarray
    own: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n, views = len(self.ids), self.target.shape[-1]
        shapes = [("member", self.member.shape, (n,)), ("target", self.target.shape, (n, views))]
        k = self.inside.shape[-1]
        shapes += [("inside", self.inside.shape, (n, k)), ("shadows", self.shadows.shape, (n, k, views))]
        shapes += [(name, one.shape, (n,)) for name, one in self.own.items()]
        for name, shape, wanted in shapes:
            if shape != wanted:
                raise DataError(f"{name} must have the shape {wanted} for {n:,} samples, got {shape}")
        if not np.isin(self.member, (MEMBER, OTHER, CANDIDATE)).all():
            raise DataError("member must be 1, 0, or empty (-1 in arrays) of candidates")
        values = [self.target, self.shadows, *self.own.values()]
        if not all(np.isfinite(one).all() for one in values):
            raise NonFiniteError(
                "a score is not finite: of a probability of exactly 1, give the largest that can be told"
            )
        if all(((one >= 0) & (one <= 1)).all() for one in values[:2]):
            raise DataError(
                "all scores lie in 0..1, as probabilities do; give log(p / (1 - p)) of the true label's probability p"
            )
        if len(set(self.ids)) < n:
            raise DataError("an id stands twice: every sample has one line")


def scaled_confidence(logits: Tensor, labels: Tensor) -> np.ndarray:
    """(n,) log(p / (1 - p)) of the labels (n,) by scores (n, C): what `ShadowScores` takes of any classifier.

    >>> import torch
    >>> scaled_confidence(torch.tensor([[2.0, 0.5]]), torch.tensor([0])).tolist()
    [1.5]
    """
    wide = logits.detach().double().cpu()
    chosen = labels.to("cpu")[:, None]
    found = wide.gather(1, chosen)[:, 0] - wide.scatter(1, chosen, -math.inf).logsumexp(1)
    return np.asarray(found.numpy())


def scores_of_runs(run: Run | Fitted, shadows: Sequence[Run | Fitted], data: ImageData) -> ShadowScores:
    """The scores of labelled pictures by the class branch of a run and of its shadows; who saw them say their samples.

    The scores of the run's own index branch stand beside them.
    """
    run, others = run_of(run), [run_of(shadow) for shadow in shadows]
    target = _class_confidence(run, data)
    given = [_class_confidence(shadow, data) for shadow in others]
    known = [{row.tobytes() for row in one.samples.pixel_sha256[~one.samples.added]} for one in (run, *others)]
    saw = np.array([[row.tobytes() in of for of in known] for row in data.samples.pixel_sha256])
    own = member_scores(run, inputs_of(run.config, data), warn=False)
    of_index = {name: own.values[name] for name in ("index_confidence", "similarity", "contrast") if own.named.all()}
    return ShadowScores(
        ids=data.samples.sample_ids,
        member=saw[:, 0].astype(np.int8),
        target=target[:, None],
        shadows=np.stack(given, 1)[..., None] if given else np.empty((len(data), 0, 1)),
        inside=saw[:, 1:],
        own=of_index,
    )


def joined(parts: Sequence[ShadowScores]) -> ShadowScores:
    """The samples of several tables in a row."""
    arrays = {
        name: np.concatenate([getattr(one, name) for one in parts])
        for name in ("member", "target", "shadows", "inside")
    }
    shared = set.intersection(*(set(one.own) for one in parts))
    own = {name: np.concatenate([one.own[name] for one in parts]) for name in parts[0].own if name in shared}
    return ShadowScores([name for one in parts for name in one.ids], own=own, **arrays)


def _class_confidence(run: Run, data: ImageData) -> np.ndarray:
    """(n,) how sure the class branch of a run is of the labels of some data."""
    names = {name: place for place, name in enumerate(run.samples.class_names)}
    if strange := sorted(set(data.samples.class_names) - set(names)):
        raise UsageError(f"the run does not know the class {strange[0]!r}; every shadow has the classes of the data")
    places = np.array([names[name] for name in data.samples.class_names])
    labels = places[data.samples.labels]
    images = as_trained(run.config.network, inputs_of(run.config, data))
    ask = Attributor(run)
    few = ask.at_once(images.shape[1:], None, BATCH[ask.device.type])
    found = ask.over(((some, None) for some in split(images, few)), lambda one: {"logits": one.logits.cpu()})
    return scaled_confidence(found["logits"], Tensor(labels).long())


def read_scores(path: Path) -> ShadowScores:
    """Scores from a file; docs/membership.md says what it holds.

    .csv: `id, member, target`, then `shadow_1, inside_1, shadow_2, inside_2, ...` and any `score_NAME`; `member` is 1,
    0 or empty. .npz: `id` (n,) text, `member` (n,), `target` (n,) or (n, v), `shadows` (n, k) or (n, k, v), `inside`
    (n, k), and any `score_NAME` (n,).
    """
    kind = path.suffix.lower()
    if kind not in (".csv", ".npz"):
        raise UsageError(f"scores are read from .csv and .npz, not from {path.name}")
    columns = (_csv if kind == ".csv" else _npz)(read_file(path, MOST_BYTES), path.name)
    if lacking := [name for name in ("id", "member", "target") if name not in columns]:
        raise DataError(f"{path.name} lacks {lacking[0]}; it has {', '.join(columns)}")
    target = np.asarray(columns["target"], np.float64)
    target = target[:, None] if target.ndim == 1 else target
    n, views = target.shape
    shadows = np.asarray(columns.get("shadows", np.empty((n, 0))), np.float64)
    inside = np.asarray(columns.get("inside", np.empty((n, 0)))).astype(np.bool_)
    return ShadowScores(
        ids=[str(one) for one in columns["id"]],
        member=np.asarray(columns["member"]).astype(np.int8),
        target=target,
        shadows=shadows[..., None] if shadows.ndim == 2 and views == 1 else shadows,
        inside=inside,
        own={name.removeprefix(OWN): np.asarray(columns[name], np.float64) for name in columns if name.startswith(OWN)},
    )


def _npz(raw: bytes, name: str) -> dict[str, Any]:
    try:
        with np.load(io.BytesIO(raw), allow_pickle=False) as kept:
            return {key: kept[key] for key in kept.files}
    except (ValueError, OSError, EOFError, KeyError) as error:
        raise DataError(f"{name} is no .npz of plain arrays: {error}") from None


def _csv(raw: bytes, name: str) -> dict[str, Any]:
    try:
        lines = list(csv.DictReader(io.StringIO(raw.decode("utf-8-sig"), newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{name} is no CSV in UTF-8: {error}") from None
    if not lines:
        raise DataError(f"{name} holds no samples")
    names = [str(one) for one in lines[0]]
    found: dict[str, Any] = {"id": [line.get("id") for line in lines]}
    numbers = [one for one in names if one in ("member", "target") or one.startswith((OWN, "shadow_", "inside_"))]
    for column in numbers:
        try:
            empty = {"": CANDIDATE} if column == "member" else {}
            found[column] = np.array([empty.get(line[column] or "", line[column]) for line in lines], dtype=np.float64)
        except (TypeError, ValueError):
            raise DataError(f"{name}: column {column} holds something that is no number") from None
    count = sum(one.startswith("shadow_") for one in names)
    for part, prefix in (("shadows", "shadow_"), ("inside", "inside_")):
        each = [found.get(f"{prefix}{number}") for number in range(1, count + 1)]
        if any(one is None for one in each):
            raise DataError(f"{name}: of {count} shadows there must be shadow_1 and inside_1 to {prefix}{count}")
        found[part] = np.stack([one for one in each if one is not None], 1) if each else np.empty((len(lines), 0))
    return found


def attacks(scores: ShadowScores) -> dict[str, np.ndarray]:
    """Name -> (n,) score of each sample, higher for members; those that the shadows allow, then `own`.

    >>> made, _ = simulated(300, 8, seed=0)
    >>> sorted(attacks(made))
    ['attack_p', 'lira', 'lira_offline', 'rmia', 'rmia_offline']
    """
    found = {"attack_p": scores.target.mean(1)}
    saw, missed = scores.inside.sum(1), (~scores.inside).sum(1)
    if scores.shadows.shape[1] and missed.min() > 0:
        outside = _normal(scores.shadows, ~scores.inside)
        surprise = (scores.target - outside[0]) / outside[1]
        if saw.min() > 0:
            within = _normal(scores.shadows, scores.inside)
            found["lira"] = (_log_density(scores.target, within) - _log_density(scores.target, outside)).mean(1)
            found["rmia"] = _log_ratio(scores, 0.5 * (_mean(scores, True) + _mean(scores, False)))
        found["lira_offline"] = surprise.mean(1)
        guessed = 0.5 * ((1 + OUTSIDE_SHARE) * _mean(scores, False) + 1 - OUTSIDE_SHARE)
        found["rmia_offline"] = _log_ratio(scores, guessed)
    return {name: found[name] for name in ATTACKS if name in found} | dict(scores.own)


def _normal(values: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and spread (n, v) over the shadows chosen; of few shadows all samples share a spread.

    That is LiRA's fixed variance. Each sample's mean takes one degree of freedom.
    """
    count = chosen.sum(1)[:, None]
    mean = np.where(chosen[..., None], values, 0.0).sum(1) / count
    squares = np.where(chosen[..., None], (values - mean[:, None]) ** 2, 0.0).sum(1)
    if count.min() >= OWN_SPREAD:
        return mean, np.sqrt(squares / (count - 1)) + 1e-12
    spread = np.sqrt(squares.sum(0) / max(float((count - 1).sum()), 1.0))
    return mean, np.broadcast_to(np.maximum(spread, 1e-12), mean.shape)


def _log_density(value: np.ndarray, of: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    mean, spread = of
    return np.asarray(-(((value - mean) / spread) ** 2) / 2 - np.log(spread))


def _mean(scores: ShadowScores, inside: bool) -> np.ndarray:
    """(n, v) mean probability of the true label over the shadows of a kind."""
    chosen = scores.inside if inside else ~scores.inside
    return np.asarray((_probability(scores.shadows) * chosen[..., None]).sum(1) / chosen.sum(1)[:, None])


def _log_ratio(scores: ShadowScores, reference: np.ndarray) -> np.ndarray:
    """RMIA ranks by the share of other samples whose ratio this one exceeds γ times: it rises with the ratio itself."""
    return np.asarray((np.log(_probability(scores.target)) - np.log(reference)).mean(1))


def _probability(scaled: np.ndarray) -> np.ndarray:
    return np.asarray(np.exp(-np.logaddexp(0.0, -scaled)))


def decisive(scores: ShadowScores) -> str:
    """The attack that claims rest on, by the shadows alone."""
    known = attacks(scores)
    counts = [scores.inside.sum(1), (~scores.inside).sum(1)] if scores.shadows.shape[1] else [np.zeros(1)]
    if "lira" in known and min(int(count.min()) for count in counts) >= EACH:
        return "lira"
    return next(name for name in ("rmia", "rmia_offline", "attack_p") if name in known)


@dataclass(frozen=True, eq=False)
class ShadowAudit:
    """What the attacks achieve.

    Attributes:
        members, others, candidates, shadows: how many there are.
        found: attack, or `own` score -> what it achieves on the samples that are known.
        decides: the attack that the rest stands on.
        used: share of the candidates that the target was trained on; None without candidates.
        vulnerable: (id, score, share of the known others that score as high) of members, the surest first, that are
            found at the smallest false-alarm rate that the others allow, which is `claimed_at`.
        epsilon: for no smaller ε than this is the model (ε, 1e-5)-differentially private; None where nothing is said.
    """

    members: int
    others: int
    candidates: int
    shadows: int
    found: Mapping[str, ScoreAudit]
    decides: str
    used: Interval | None
    vulnerable: Sequence[tuple[str, float, float]]
    claimed_at: float | None
    epsilon: float | None

    def to_json(self) -> dict[str, Any]:
        """Plain values, rates in 0..1; of the vulnerable samples the first 1,000."""
        rows = [{"id": name, "score": score, "p_value": p} for name, score, p in self.vulnerable[:1000]]
        return {
            **{name: getattr(self, name) for name in ("members", "others", "candidates", "shadows", "decides")},
            "found": {name: one.to_json() for name, one in self.found.items()},
            "share_of_candidates_used": None if self.used is None else self.used.to_json(),
            "vulnerable": {"count": len(self.vulnerable), "claimed_at": self.claimed_at, "samples": rows},
            "epsilon_at_least": self.epsilon,
        }


def audit_shadows(scores: ShadowScores) -> ShadowAudit:
    """All attacks on the samples of which it is known whether they were trained on, and what follows for the others.

    >>> found = audit_shadows(simulated(2_000, 16, seed=0)[0])
    >>> found.decides, found.found["lira"].auc.value > found.found["attack_p"].auc.value
    ('lira', True)
    """
    inside, outside, asked = (scores.member == kind for kind in (MEMBER, OTHER, CANDIDATE))
    if min(inside.sum(), outside.sum()) < 2:
        raise UsageError(
            f"an audit needs 2 known members and 2 known others or more, got {inside.sum():,} and {outside.sum():,}"
        )
    given = attacks(scores)
    found = {name: audit_scores(one[inside], one[outside], RATES) for name, one in given.items()}
    chosen = decisive(scores)
    value = given[chosen]
    points = [one for one in found[chosen].at.values() if one.threshold is not None]
    strict = min(points, key=lambda one: one.allowed, default=None)
    named: list[tuple[str, float, float]] = []
    if strict is not None:
        others = np.sort(value[outside])
        for row in np.flatnonzero(inside & (value >= strict.threshold)).tolist():
            above = len(others) - int(np.searchsorted(others, value[row], "left"))
            named.append((scores.ids[row], float(value[row]), (1 + above) / (1 + len(others))))
    return ShadowAudit(
        members=int(inside.sum()),
        others=int(outside.sum()),
        candidates=int(asked.sum()),
        shadows=scores.shadows.shape[1],
        found=found,
        decides=chosen,
        used=share_used(value[inside], value[outside], value[asked]) if asked.any() else None,
        vulnerable=sorted(named, key=lambda row: -row[1]),
        claimed_at=None if strict is None else strict.allowed,
        epsilon=None if strict is None else _epsilon(strict),
    )


def _epsilon(point: Operating) -> float | None:
    """Of every (ε, δ)-private training TPR <= exp(ε) FPR + δ; from the ends of both intervals."""
    low, high = point.tpr.low, point.fpr.high
    if low is None or not high or low <= DELTA:
        return None
    return max(0.0, math.log((low - DELTA) / high))


def share_used(members: np.ndarray, others: np.ndarray, candidates: np.ndarray) -> Interval:
    """The share of candidates that were trained on, by scores (.,) of the three kinds; its interval counts all errors.

    A threshold is chosen on every other of the known samples, and how often it errs is counted on the rest. The
    interval is Lang and Reiczigel's, of a prevalence by a test whose errors are estimates themselves, for the share of
    these very candidates: which of them the test finds is left to chance, which of them were used is not.
    """
    order = [np.sort(one) for one in (members, others)]
    cut = _between(order[0][::2], order[1][::2])
    rates = [(int((one[1::2] >= cut).sum()), len(one[1::2])) for one in order]
    seen = float((candidates >= cut).mean())
    n, z2 = len(candidates), Z95**2
    sure, true = ((hits + 1) / (size + 2) for hits, size in (rates[0], (rates[1][1] - rates[1][0], rates[1][1])))
    of_sure, of_true = sure * (1 - sure) / (rates[0][1] + 2), true * (1 - true) / (rates[1][1] + 2)
    told = sure + true - 1
    if told <= 2 * Z95 * math.sqrt(of_sure + of_true):
        return Interval(None, n, None, None, "cannot tell: the attack does not tell members from others well enough")
    value = ((n * seen + z2 / 2) / (n + z2) + true - 1) / told
    share = min(max(value, 0.0), 1.0)
    drawn = (share * sure * (1 - sure) + (1 - share) * true * (1 - true)) / (n + z2)
    shift = 2 * z2 * (share * of_sure - (1 - share) * of_true)
    half = Z95 * math.sqrt(drawn + share**2 * of_sure + (1 - share) ** 2 * of_true) / told
    low, high = (min(max(end, 0.0), 1.0) for end in (value + shift - half, value + shift + half))
    return Interval(min(max((seen + true - 1) / told, low), high), n, low, high)


def _between(members: np.ndarray, others: np.ndarray) -> float:
    """The threshold that tells two rising rows of scores apart best."""
    cuts = np.unique(np.concatenate([members, others]))
    found = 1 - np.searchsorted(members, cuts, "left") / len(members)
    alarms = 1 - np.searchsorted(others, cuts, "left") / len(others)
    return float(cuts[np.argmax(found - alarms)])


def simulated(
    n: int, k: int, seed: int, *, used: float = 0.5, gap: float = 1.5, candidates: int = 0
) -> tuple[ShadowScores, np.ndarray]:
    """Scores as models give them, made by chance, and (n,) what the target was trained on, candidates last.

    Every sample has a difficulty of its own; what was trained on scores higher by `gap` spreads. Of the candidates
    about a share `used` was trained on.
    """
    draw = np.random.default_rng(seed)
    total = n + candidates
    hard = draw.normal(2.0, 2.0, total)
    inside = draw.permuted(np.tile(np.arange(k) % 2 == 0, (total, 1)), axis=1)
    trained = np.concatenate([np.arange(n) % 2 == 0, draw.random(candidates) < used])
    target = hard + gap * trained + draw.normal(0, 1, total)
    shadows = hard[:, None] + gap * inside + draw.normal(0, 1, (total, k))
    member = np.where(np.arange(total) < n, trained, CANDIDATE).astype(np.int8)
    ids = [f"s{i}" for i in range(total)]
    return ShadowScores(ids, member, target[:, None], shadows[..., None], inside), trained

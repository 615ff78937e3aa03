"""Membership audit: how well members of a training set are told from pictures that were never trained on (§5.4).

Beside every figure stand what it must be compared with: looking the hash up, which needs no network; a network that saw
neither set, which must not tell them apart; the same one with keys of its own, which stores the members but has learned
nothing; and copies, members and others distorted alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from provnet.answers.attributor import Attributor
from provnet.answers.metrics import Operating, Roc, auc, roc, tpr_at
from provnet.base.errors import UsageError
from provnet.base.options import AuditOptions, with_changes
from provnet.base.progress import Update, progress_bar
from provnet.base.stats import Interval, wilson
from provnet.data.dataset import Dataset, ImageData, image_data
from provnet.runs.inputs import Fitted, as_trained, checked_inputs, inputs_of, run_of
from provnet.runs.run import Run
from provnet.samples.identity import SampleTable
from provnet.tools.membership.compute import SCORES, MemberScores, blank_network, decides, member_scores, scores_by
from provnet.tools.membership.redrawn import untrained_with_keys

RATES = (0.01, 0.001)
BINS = 40
KEYS_ABOUT = "the same network, weights drawn anew, with a key of its own for each member"


@dataclass(frozen=True, eq=False)
class ScoreAudit:
    """What one score achieves.

    Attributes:
        auc: area under the ROC curve.
        at: allowed false-positive rate -> what is found there.
        curve: the ROC curve.
        edges: (BINS + 1,) of the histograms.
        members, nonmembers: (BINS,) counts.
    """

    auc: Interval
    at: Mapping[float, Operating]
    curve: Roc
    edges: np.ndarray
    members: np.ndarray
    nonmembers: np.ndarray

    def to_json(self) -> dict[str, Any]:
        """Plain values; the curve is thinned."""
        return {
            "auc": self.auc.to_json(),
            "tpr_at_fpr": {f"{rate:g}": found.to_json() for rate, found in self.at.items()},
            "histogram": {
                "edges": self.edges.tolist(),
                "members": self.members.tolist(),
                "nonmembers": self.nonmembers.tolist(),
            },
            "roc": [[float(x), float(y)] for x, y in thin_curve(self.curve)],
        }


@dataclass(frozen=True, eq=False)
class Audit:
    """All figures of an audit.

    Attributes:
        members, nonmembers: how many pictures of each were scored.
        left_out: why -> how many were left out.
        scores: name in SCORES -> what it achieves on the pictures as they are.
        lookup: `bytes` and `pixels` -> members and nonmembers whose hash is in the sample table.
        null: name -> AUC on a network that saw neither; `null_about` says what that is.
        null_keys: name -> AUC on a network with weights drawn anew that keeps a key of its own for each member: what
            storing them gives away, without any training; None for an output layer, which stores nothing.
        distorted: distortion -> name -> what it achieves on distorted copies of both.
        decides: the score that verdicts on single pictures rest on.
        heldout: (m,) rising, that score of nonmembers; `copies`: (k,) rising, of distorted members, all kinds together.
    """

    members: int
    nonmembers: int
    left_out: Mapping[str, int]
    scores: Mapping[str, ScoreAudit]
    lookup: Mapping[str, Mapping[str, Interval]]
    null: Mapping[str, Interval]
    null_about: str
    distorted: Mapping[str, Mapping[str, ScoreAudit]]
    decides: str
    heldout: np.ndarray
    copies: np.ndarray
    null_keys: Mapping[str, Interval] | None = None

    def __repr__(self) -> str:
        """One line: curves and histograms would fill a page."""
        name = self.best()
        found = f"best score {name}, AUC {self.scores[name].auc.value or 0.0:.3f}"
        return f"Audit({self.members:,} members, {self.nonmembers:,} nonmembers, {found})"

    def best(self, distortion: str | None = None) -> str:
        """The score with the largest AUC, clean or under a distortion."""
        found = self.scores if distortion is None else self.distorted[distortion]
        return max(found, key=lambda name: found[name].auc.value or 0.0)

    def to_json(self) -> dict[str, Any]:
        """Plain values, rates in 0..1."""
        return {
            "members": self.members,
            "nonmembers": self.nonmembers,
            "left_out": dict(self.left_out),
            "scores": {name: one.to_json() for name, one in self.scores.items()},
            "lookup": {kind: {side: rate.to_json() for side, rate in of.items()} for kind, of in self.lookup.items()},
            "null": {"about": self.null_about, "auc": {name: one.to_json() for name, one in self.null.items()}},
            "null_keys": None
            if self.null_keys is None
            else {"about": KEYS_ABOUT, "auc": {name: one.to_json() for name, one in self.null_keys.items()}},
            "distorted": {
                kind: {
                    name: {key: value for key, value in one.to_json().items() if key in ("auc", "tpr_at_fpr")}
                    for name, one in of.items()
                }
                for kind, of in self.distorted.items()
            },
        }


def audit_scores(members: np.ndarray, nonmembers: np.ndarray) -> ScoreAudit:
    """The figures of one score, given for members and for nonmembers.

    >>> audit_scores(np.array([0.9, 0.8]), np.array([0.1, 0.8])).auc.value
    0.875
    """
    truth = np.arange(len(members) + len(nonmembers)) < len(members)
    score = np.concatenate([members, nonmembers])
    low, high = float(score.min()), float(score.max())
    edges = np.linspace(low, high if high > low else low + 1, BINS + 1)
    return ScoreAudit(
        auc=auc(truth, score),
        at={rate: tpr_at(truth, score, rate) for rate in RATES},
        curve=roc(truth, score),
        edges=edges,
        members=np.histogram(members, edges)[0],
        nonmembers=np.histogram(nonmembers, edges)[0],
    )


def thin_curve(curve: Roc, most: int = 150) -> np.ndarray:
    """(P, 2) false- and true-positive rates of some points of a curve, close enough to draw it, also on log axes.

    >>> thin_curve(roc(np.array([True, False]), np.array([1.0, 0.0]))).tolist()
    [[0.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    """
    kept = np.arange(len(curve.hits))
    if len(kept) > 2 * most:
        allowed = np.concatenate([np.geomspace(1, curve.negatives, most), np.linspace(0, curve.negatives, most)])
        wanted = np.linspace(0, curve.positives, most)
        best = np.searchsorted(curve.alarms, allowed, "right") - 1  # the last point with so few false alarms
        first = np.searchsorted(curve.hits, wanted)  # the first point that finds so many
        kept = np.unique(np.concatenate([best, first, [0, len(curve.hits) - 1]]))
    return np.stack([curve.fpr[kept], curve.tpr[kept]], 1)


KEPT = 2_000  # scores of a kind that are kept for verdicts on single pictures


def audit(
    run: Run | Fitted,
    members: ImageData | None = None,
    nonmembers: ImageData | None = None,
    *,
    null: Run | Fitted | None = None,
    options: AuditOptions | None = None,
    **changes: Any,
) -> Audit:
    """Audit a run on pictures that it was trained on and on others; None means its own data, opened again.

    Members that are withheld or were added after training, nonmembers that have a training sample's pixels, and
    pictures of either kind for which no sample may be named (all of the class are withheld) are left out and counted.
    `null` is a run that saw neither; without it, the same network with weights drawn anew stands for one. `changes` are
    options by name, such as `distort=False`.

    >>> import provnet
    >>> from provnet.training.config import train_config
    >>> from provnet.training.fit import fit
    >>> data = provnet.open_data("embedded", limit=40)
    >>> run = fit(data, config=train_config(epochs=1))
    >>> found = audit(run, data, provnet.open_data("embedded", split="test", limit=30), distort=False)
    >>> found.nonmembers, found.lookup["bytes"]["members"].value
    (30, 1.0)
    """
    asked = with_changes(AuditOptions, options, changes)
    run, null = run_of(run), None if null is None else run_of(null)
    members, nonmembers, left_out = _sides(run.samples, *_given(run, members, nonmembers, asked.progress))
    own = as_trained(run.config.network, inputs_of(run.config, members))
    sides = (own, checked_inputs(run, nonmembers, "the nonmembers", warn=asked.warn))
    found = _all_scores(run, null, sides, members, asked)
    members, nonmembers, kept = _named(found.clean, members, nonmembers, left_out)
    clean, blank = ([one.select(rows) for one, rows in zip(of, kept, strict=True)] for of in (found.clean, found.blank))
    distorted = {
        name: [one.select(rows & one.named) for one, rows in zip(of, kept, strict=True)]
        for name, of in found.distorted.items()
    }
    distorted = {name: of for name, of in distorted.items() if all(len(one.match) for one in of)}
    stored = found.stored
    chosen = decides(run.network)
    of_copies = [of[0].values[chosen] for of in distorted.values()]
    return Audit(
        members=len(members),
        nonmembers=len(nonmembers),
        left_out=left_out,
        scores=_audited(clean),
        lookup=lookup(run.samples, members, nonmembers),
        null=_aucs(blank),
        null_about="another run, trained on neither" if null is not None else "the same network, weights drawn anew",
        distorted={name: _audited(of) for name, of in distorted.items()},
        decides=chosen,
        heldout=_few(clean[1].values[chosen]),
        copies=_few(np.concatenate(of_copies)) if of_copies else np.empty(0),
        null_keys=None if stored is None else _aucs([one.select(rows) for one, rows in zip(stored, kept, strict=True)]),
    )


class _Scores(NamedTuple):
    """Members' and nonmembers' scores: as they are, on a network that saw neither, on copies, on keys alone."""

    clean: list[MemberScores]
    blank: list[MemberScores]
    distorted: dict[str, list[MemberScores]]
    stored: list[MemberScores] | None


def _all_scores(run: Run, null: Run | None, sides: tuple[Any, Any], members: Dataset, asked: AuditOptions) -> _Scores:
    copies = members.modality.copies(sides[0]) if asked.distort else {}
    unseen = null.network if null is not None else blank_network(run.config.network, run.network, asked.seed)
    size = sum(map(len, sides))
    settings: dict[str, Any] = {"seed": asked.seed, "batch_size": asked.batch_size}
    scored = partial(member_scores, run, warn=False, **settings)
    with progress_bar("auditing", size * (3 + len(copies)), asked.progress) as update:
        clean = _scored(scored, sides, partial(_tell, update, 0, "as they are"))
        told = partial(_tell, update, size, "a network that saw neither")
        stranger = Attributor(unseen, samples=(null or run).samples)
        blank = _scored(partial(scores_by, stranger, **settings), sides, told)
        distorted = {}
        for number, (name, copy) in enumerate(copies.items()):
            told = partial(_tell, update, (2 + number) * size, name)
            distorted[name] = _scored(partial(scored, copy=copy), sides, told)
        untrained, stored = untrained_with_keys(run, members.samples, sides[0], asked.seed), None
        if untrained is not None:
            told = partial(_tell, update, (2 + len(copies)) * size, "keys without training")
            stored = _scored(partial(scores_by, Attributor(untrained), **settings), sides, told)
        update(size * (3 + len(copies)), "done")
    return _Scores(clean, blank, distorted, stored)


def _given(
    run: Run, members: ImageData | None, nonmembers: ImageData | None, progress: bool
) -> tuple[ImageData, ImageData]:
    """Both sides; the run's own where none are given."""
    members = run.data(progress=progress) if members is None else members
    nonmembers = run.test(progress=progress) if nonmembers is None else nonmembers
    if nonmembers is None:
        raise UsageError("this run has no test split of its own; give pictures that it never saw as nonmembers")
    return image_data("the members", members), image_data("the nonmembers", nonmembers)


def _tell(update: Update, before: int, words: str, done: int) -> None:
    update(before + done, words)


def _scored(
    score: Callable[..., MemberScores], sides: tuple[Tensor, Tensor], told: Callable[[int], None]
) -> list[MemberScores]:
    """Members, then nonmembers, as one row of pictures: every batch of a copy draws for itself."""
    first = score(sides[0], update=told)
    return [first, score(sides[1], update=lambda done: told(len(sides[0]) + done), first=len(sides[0]))]


def lookup(samples: SampleTable, members: ImageData, nonmembers: ImageData) -> dict[str, dict[str, Interval]]:
    """The trivial baseline: the share of pictures whose hash is in the sample table, by bytes and by pixels."""
    known = ~samples.withheld
    found: dict[str, dict[str, Interval]] = {}
    for kind, name in (("bytes", "sha256"), ("pixels", "pixel_sha256")):
        table = {row.tobytes() for row in getattr(samples, name)[known]}
        found[kind] = {}
        for side, data in (("members", members), ("nonmembers", nonmembers)):
            hits = sum(row.tobytes() in table for row in getattr(data.samples, name))
            found[kind][side] = wilson(hits, len(data))
    return found


def _sides(samples: SampleTable, members: ImageData, others: ImageData) -> tuple[ImageData, ImageData, dict[str, int]]:
    known = {row.tobytes() for row in samples.pixel_sha256[~samples.withheld]}
    withheld = {row.tobytes() for row in samples.pixel_sha256[samples.withheld]} - known
    keep = np.array([row.tobytes() not in withheld for row in members.samples.pixel_sha256], dtype=np.bool_)
    known |= withheld
    later = {row.tobytes() for row in samples.pixel_sha256[samples.added]}
    later -= {row.tobytes() for row in samples.pixel_sha256[~samples.added]}
    taught = np.array([row.tobytes() not in later for row in members.samples.pixel_sha256], dtype=np.bool_)
    fresh = np.array([row.tobytes() not in known for row in others.samples.pixel_sha256], dtype=np.bool_)
    left_out = {
        "members that are withheld": int((~keep).sum()),
        **({"samples added after training, which are no members": n} if (n := int((keep & ~taught).sum())) else {}),
        "nonmembers that have the pixels of a training sample": int((~fresh).sum()),
    }
    keep &= taught
    if not keep.any() or not fresh.any():
        raise UsageError(
            f"an audit needs members and nonmembers: {int(keep.sum())} and {int(fresh.sum())} are left after leaving "
            "out withheld and added samples and nonmembers that have the pixels of a training sample; give pictures "
            "that it was trained on, and others that it never saw (--members, --nonmembers)"
        )
    return members.select(np.flatnonzero(keep)), others.select(np.flatnonzero(fresh)), left_out


def _named(
    scored: list[MemberScores], members: ImageData, nonmembers: ImageData, left_out: dict[str, int]
) -> tuple[ImageData, ImageData, list[np.ndarray]]:
    """Members and nonmembers for which a sample may be named, and which those are; the others are counted."""
    kept = [one.named for one in scored]
    if all(rows.all() for rows in kept):
        return members, nonmembers, kept
    for words, rows in zip(("members", "nonmembers"), kept, strict=True):
        left_out[f"{words} for which no sample may be named"] = int((~rows).sum())
    if not all(rows.any() for rows in kept):
        raise UsageError(
            "an audit needs members and nonmembers: of one kind, all are taken for classes whose samples are all "
            "withheld; give pictures of other classes, or restore samples: see provnet.runs.bank"
        )
    chosen = [data.select(np.flatnonzero(rows)) for data, rows in zip((members, nonmembers), kept, strict=True)]
    return chosen[0], chosen[1], kept


def _audited(sides: list[MemberScores]) -> dict[str, ScoreAudit]:
    return {name: audit_scores(sides[0].values[name], sides[1].values[name]) for name in SCORES}


def _aucs(sides: list[MemberScores]) -> dict[str, Interval]:
    return {name: one.auc for name, one in _audited(sides).items()}


def _few(values: np.ndarray) -> np.ndarray:
    """At most KEPT of the values, evenly spread over their order."""
    ordered = np.sort(values)
    if len(ordered) <= KEPT:
        return ordered
    return np.asarray(ordered[np.linspace(0, len(ordered) - 1, KEPT).round().astype(np.int64)])

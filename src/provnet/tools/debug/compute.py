"""debug: which training samples are probably mislabelled, which are odd, which typical, which are there twice.

Works on the training samples of any run, with a plain or an exemplar head. Withheld samples are left out and counted.

Letters: N samples, K neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from provnet.answers.evaluation import trained_rows
from provnet.base.batches import at_once
from provnet.base.errors import UsageError
from provnet.base.stats import Interval, wilson
from provnet.data.dataset import ImageData
from provnet.data.modalities.decode import are_pictures
from provnet.models.text import TextEncoder
from provnet.runs.data import in_terms_of
from provnet.runs.inputs import Fitted, run_of
from provnet.runs.run import Run
from provnet.samples.identity import SampleTable
from provnet.tools.debug.assess import Assessment, assess
from provnet.tools.debug.duplicates import Duplicates, duplicates
from provnet.tools.debug.signals import (
    NEIGHBOURS,
    Anomalies,
    Mislabels,
    Neighbours,
    Signals,
    anomalies,
    groups_of,
    mislabels,
    nearest_others,
    of_one_picture,
    sample_signals,
)

FEWEST = 20  # samples from which fixed features are judged out of fold
CONFLICT = "one picture, several labels"
WRONG = "wrong label"
BAD = "bad picture"
FOREIGN = "something else"
AMBIGUOUS = "between two classes"
TWICE = "duplicate"
KINDS = (CONFLICT, WRONG, BAD, FOREIGN, AMBIGUOUS, TWICE)

BLANK = 0.01  # of the range of the pixels of all pictures: a picture that varies less shows nothing
BLURRED = 8.0  # robust standard deviations of log detail below the median
BAD_FOR_SURE = 0.99  # anomaly of a bad picture
SMALLEST = 3


def bad_pictures(inputs: Any) -> np.ndarray:
    """(N,) bool: pictures of nearly one colour, and those with far less detail than all others.

    >>> chance = torch.Generator().manual_seed(0)
    >>> pictures = torch.randint(0, 256, (20, 1, 8, 8), generator=chance, dtype=torch.uint8)
    >>> pictures[3], pictures[4] = 128, torch.arange(8)[None, :, None] * 9
    >>> np.flatnonzero(bad_pictures(pictures)).tolist()
    [3, 4]
    """
    if not are_pictures(inputs, SMALLEST):
        return np.zeros(len(inputs), dtype=np.bool_)
    parts = []
    for some in torch.split(inputs, at_once(inputs.shape[1:], "cpu", 1024)):
        x = some.float()
        down, across = x.diff(dim=2).square().mean((1, 2, 3)), x.diff(dim=3).square().mean((1, 2, 3))
        spread = x.flatten(2).std(2, correction=0).amax(1)
        parts.append(torch.stack([spread, (down + across) / 2, x.amin((1, 2, 3)), x.amax((1, 2, 3))], 1))
    spread, detail, low, high = torch.cat(parts).double().T.numpy()
    reach = float(high.max() - low.min())
    if reach <= 0:
        return np.ones(len(inputs), dtype=np.bool_)
    blank = spread < BLANK * reach
    level = np.log(detail + (BLANK * reach) ** 2 * 1e-3)
    usual = level[~blank]
    if len(usual) < 10:
        return np.asarray(blank)
    middle = float(np.median(usual))
    scatter = 1.4826 * float(np.median(np.abs(usual - middle)))
    return np.asarray(blank | (level < middle - BLURRED * max(scatter, 0.1)))


def kinds_of(
    wrong: np.ndarray,
    anomaly: np.ndarray,
    bad: np.ndarray,
    conflict: np.ndarray,
    twice: np.ndarray,
    ambiguous: np.ndarray,
    threshold: float,
) -> np.ndarray:
    """(N,) the kind of each sample, "" where nothing is wrong; each argument is (N,).

    Of a sample that is suspicious in several ways the first of `KINDS` is told, but of wrong and foreign the likelier.

    >>> none, one = np.zeros(2, bool), np.array([True, False])
    >>> kinds_of(np.array([0.6, 0.1]), np.array([0.3, 0.7]), none, none, one, none, 0.5).tolist()
    ['wrong label', 'something else']
    """
    found = np.full(len(wrong), "", dtype=object)
    found[twice] = TWICE
    found[ambiguous] = AMBIGUOUS
    any_issue = (wrong >= threshold) | (anomaly >= threshold) | (wrong + anomaly >= max(threshold, 0.5))
    found[any_issue & (anomaly > wrong)] = FOREIGN
    found[any_issue & (anomaly <= wrong)] = WRONG
    found[bad] = BAD
    found[conflict] = CONFLICT
    return found


FLAGGED = 0.5  # a label that is more probably wrong than right
SURE = 0.5  # share of the other votes that a suggestion needs
CERTAINTY = 0.9  # probability that a suggestion needs to be written into a corrected manifest
CAUTION = 0.3  # of the doubt that is allowed to each suggestion, on the average
NOT_FOREIGN = 0.02  # probability of being of no class up to which a label is corrected
MISFIT = 0.2  # relative error of a sum of probabilities (docs/debugging.md, Weak features)
RIGHT = 0.9  # probability from which a label of one picture is taken for all samples of it
DROP = -1  # in place of a label: none of those that the picture has is known to be right


def certain(sure: np.ndarray, foreign: np.ndarray, certainty: float) -> np.ndarray:
    """Rows whose suggestion is right with this probability each, and more so on the average; most certain first.

    Probabilities close to one are a little too high: three tenths of the doubt that is allowed to each are allowed on
    the average. Of what may be of no class (`foreign`, (N,)) no class is right.

    >>> certain(np.array([0.99, 0.5, 0.98, 0.99]), np.array([0.0, 0.0, 0.0, 0.1]), 0.9).tolist()
    [0, 2]
    """
    sure = np.where(foreign < NOT_FOREIGN, sure, 0.0)
    order = np.argsort(-sure, kind="stable")
    average = np.cumsum(sure[order]) / np.arange(1, len(order) + 1)
    return order[(average >= 1 - CAUTION * (1 - certainty)) & (sure[order] >= certainty)]


@dataclass(frozen=True, eq=False)
class Debugging:
    """What was found, one row a sample; rows are in the order of `samples`.

    Attributes:
        samples: the samples that were looked at.
        index: (N,) int64, which training sample each is.
        mislabels, anomalies, duplicates, near: the findings, see `signals` and `duplicates`.
        signals: what they were made of.
        bad: (N,) bool, pictures that show nothing: of one colour, or without detail.
        withheld: samples of the run that are withheld and were left out.
        assessment: what fixed features say, for runs that did not learn theirs; else None.
    """

    samples: SampleTable
    index: np.ndarray
    mislabels: Mislabels
    anomalies: Anomalies
    duplicates: Duplicates
    near: Neighbours
    signals: Signals
    bad: np.ndarray
    withheld: int = 0
    assessment: Assessment | None = None

    def __len__(self) -> int:
        return len(self.samples)

    def __repr__(self) -> str:
        """One line: arrays would fill a page."""
        flagged, copies = (int(which.sum()) for which in (self.flagged(), self.duplicates.group >= 0))
        known = "" if self.expected is not None else ", cannot tell how many are wrong"
        return f"Debugging({len(self):,} samples, {flagged:,} labels flagged{known}, {copies:,} with duplicates)"

    def flagged(self, threshold: float = FLAGGED) -> np.ndarray:
        """(N,) bool: labels whose probability of being wrong reaches the threshold.

        Where one picture has several labels at least one is wrong: there `FLAGGED` is enough, whatever the threshold.
        """
        return np.asarray(
            self.mislabels.score >= np.where(self.duplicates.conflict, min(threshold, FLAGGED), threshold)
        )

    def suggested(self, threshold: float = FLAGGED) -> np.ndarray:
        """(N,) int64: the suggested class of flagged samples, the given label of all others.

        Where it cannot tell, and where no label of a picture is known to be right, there is no suggestion.
        """
        if self.mislabels.cannot_tell:
            return self.samples.labels.copy()
        there_is = self.flagged(threshold) & (self.advised(threshold) != DROP)
        return np.where(there_is, self.mislabels.suggested, self.samples.labels)

    def advised(self, threshold: float = FLAGGED, certainty: float = 0.0) -> np.ndarray:
        """(N,) int64: the label that each sample should have, or `DROP`.

        That is the suggested class of a flagged sample, if most of the votes for other labels than its own are for it
        and it is right with a probability of `certainty`.
        Of one picture under several labels it is the one label that is probably right; where there is none, no sample
        of the picture should be used with the label that it has.

        Where it cannot tell, flags are guesses, and nothing is relabelled. What is known without them remains: of one
        picture under several labels at least one label is wrong.
        """
        if self.mislabels.cannot_tell:
            return np.where(self.duplicates.conflict, DROP, self.samples.labels)
        sure = self.flagged(threshold) & (self.mislabels.agreement >= SURE) & self._certain(certainty)
        found = np.where(sure, self.mislabels.suggested, self.samples.labels)
        conflict = self.duplicates.conflict
        for rows in groups_of(np.where(conflict, self.duplicates.group, -1)):
            best = rows[self.mislabels.score[rows].argmin()]
            right = 1 - self.mislabels.score[best] >= RIGHT
            found[rows] = self.samples.labels[best] if right else DROP
        return np.asarray(found)

    def _certain(self, certainty: float) -> np.ndarray:
        """(N,) bool: suggestions that are certain; all where no certainty is asked for."""
        found = np.full(len(self), certainty <= 0)
        if certainty > 0:
            found[certain(self.mislabels.certainty, self._foreign, certainty)] = True
        return found

    @property
    def _foreign(self) -> np.ndarray:
        """(N,) probability that a sample is of no class, where that is known."""
        return self.anomalies.score if self.assessment is not None else np.where(self.bad, self.anomalies.score, 0.0)

    def kinds(self, threshold: float = FLAGGED) -> np.ndarray:
        """(N,) what is wrong with each sample, in the words of `KINDS`; "" for nothing."""
        none = np.zeros(len(self), dtype=np.bool_)
        ambiguous = none if self.assessment is None or self.mislabels.cannot_tell else self.assessment.ambiguous
        twice = self.duplicates.group >= 0
        scores = self.mislabels.score, self.anomalies.score
        return kinds_of(*scores, self.bad, self.duplicates.conflict, twice, ambiguous, threshold)

    @property
    def certainly_wrong(self) -> int:
        """The least number of wrong labels: samples of equal pixels under other labels than most of them have."""
        found = 0
        for rows in groups_of(np.where(self.duplicates.certain, self.samples.groups, -1)):
            found += len(rows) - int(np.bincount(self.samples.labels[rows]).max())
        return found

    @property
    def most_wrong(self) -> int:
        """About how many labels are wrong at most: those that are not predicted unless they are memorised."""
        return max(math.ceil(len(self) * (1 - self.mislabels.predicted)), self.certainly_wrong)

    @property
    def expected(self) -> float | None:
        """How many labels are probably wrong; None where that cannot be told.

        It is the sum of all probabilities, or what fixed features say.
        """
        if self.mislabels.cannot_tell:
            return None
        number = self.mislabels.number
        return float(self.mislabels.score.sum()) if number is None else max(number[0], float(self.certainly_wrong))

    @property
    def expected_interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the expected number; None where it cannot be told.

        A network that learned its features may have memorised wrong labels: there only the largest number limits it.
        """
        if self.expected is None:
            return None
        least, most = float(self.certainly_wrong), float(self.most_wrong)
        if self.mislabels.number is None:
            p = self.mislabels.score
            low = self.expected - 1.96 * math.sqrt(float((p * (1 - p)).sum()) + (MISFIT * self.expected) ** 2)
            return max(low, least), max(most, self.expected)
        _, low, high = self.mislabels.number
        return max(low, least), max(high, least)

    def suspects(self, threshold: float = FLAGGED) -> np.ndarray:
        """Rows of the flagged samples, the most suspicious first."""
        rows = self.ranking()
        flagged: np.ndarray = rows[self.flagged(threshold)[rows]]
        return flagged

    def ranking(self) -> np.ndarray:
        """Rows of all samples, the most suspicious first: the order can be right where probabilities are too low.

        Flagged samples whose picture has several labels come before all others, those of one picture together, equal
        pictures before nearly equal ones.
        """
        first = self.duplicates.conflict & (self.mislabels.score >= FLAGGED)
        group = np.where(first, self.duplicates.group, 0)
        return np.lexsort((-self.mislabels.odds, group, ~(first & self.duplicates.certain), ~first))

    def witnesses(self, row: int, k: int = 5) -> list[tuple[int, float]]:
        """Rows of the nearest trusted samples that carry the suggested label, and each one's share of all votes.

        Copies of the picture itself are no evidence and have no vote here.
        """
        near, group = self.near.row[row], self.duplicates.group
        real = (near >= 0) & ((group[row] < 0) | (group[np.maximum(near, 0)] != group[row]))
        trust = 1 - self.mislabels.score[np.maximum(near, 0)]
        weight = np.where(real, self.near.weight[row] * trust, 0.0)
        says = real & (self.samples.labels[np.maximum(near, 0)] == self.mislabels.suggested[row])
        best = np.argsort(-np.where(says, weight, -1.0), kind="stable")[:k]
        total = max(float(weight.sum()), 1e-12)
        return [(int(near[i]), float(weight[i]) / total) for i in best if says[i]]

    def columns(self, threshold: float = FLAGGED) -> Mapping[str, np.ndarray | list[str]]:
        """All findings as named columns of equal length, for CSV and data frames."""
        names = np.array(self.samples.class_names, dtype=object)
        group = self.duplicates.group
        return {
            "index": self.index,
            "sample_id": list(self.samples.sample_ids),
            "sha256": [self.samples.hex(i) for i in range(len(self))],
            "label": list(names[self.samples.labels]),
            "suggested_label": list(names[self.suggested(threshold)]),
            "mislabel": self.mislabels.score,
            "anomaly": self.anomalies.score,
            "typicality": self.anomalies.typicality,
            "duplicate_group": [str(number) if number >= 0 else "" for number in group.tolist()],
            "exact_duplicate": self.duplicates.exact.astype(np.int64),
            "conflict": self.duplicates.conflict.astype(np.int64),
            "best_other_label": list(names[self.mislabels.suggested]),
            "agreement": self.mislabels.agreement,
            "certainty": self.mislabels.certainty,
            "kind": list(self.kinds(threshold)),
            "from_prior": np.full(len(self), self.mislabels.base),
            **{f"from_{name}": part for name, part in self.mislabels.contributions.items()},
            "index_entropy": self.signals.entropy,
        }


def share_flagged(flagged: int, n: int, cannot_tell: str) -> Interval:
    """The share of labels that are flagged; without an interval where it says nothing about how many are wrong.

    >>> share_flagged(0, 100, "").high < 0.04, share_flagged(0, 100, "the features are weak").high
    (True, None)
    """
    return replace(wilson(flagged, n), low=None, high=None, why=cannot_tell) if cannot_tell else wilson(flagged, n)


def debug(
    run: Run | Fitted, data: ImageData | None = None, *, index: np.ndarray | None = None, progress: bool = False
) -> Debugging:
    """Look at a run's training samples; `data` holds their pictures, None means the run's own, opened again.

    `index` says which training sample each row of `data` is, where some are missing; None finds them by their hashes.

    >>> import provnet
    >>> from provnet.training.config import train_config
    >>> from provnet.training.fit import fit
    >>> data = provnet.open_data("embedded").select(np.arange(60))
    >>> found = debug(fit(data, config=train_config(epochs=2)))
    >>> found.mislabels.score.shape, bool((found.anomalies.typicality <= 1).all())
    ((60,), True)
    """
    run = run_of(run)
    data = run.data(progress=progress) if data is None else data
    own = trained_rows(run, data, index)
    data = in_terms_of(run.config, data)
    withheld = int(run.samples.withheld.sum())
    active = np.flatnonzero(~run.samples.withheld[own])
    if len(active) < len(own):
        own, data = own[active], data.select(active)
    if len(own) == 0:
        raise UsageError("no samples are left to judge: all are withheld or missing")
    samples = run.samples.select(own)
    labels = samples.labels
    signals = sample_signals(run, data.inputs, labels, own, progress=progress)
    near = nearest_others(signals.features, NEIGHBOURS, progress=progress)
    branch = run.network.task_head is not None
    twice = duplicates(samples, data.inputs, near, device=signals.features.device)
    classes = len(samples.class_names)
    fixed = run.network.fixed_features and not _finetuned(run) and classes > 1 and len(own) >= FEWEST
    found = assess(signals.raw, labels, classes) if fixed else None
    if isinstance(run.network.backbone, TextEncoder) and isinstance(data.inputs, torch.Tensor) and classes > 1:
        found = assess(signals.features, labels, classes, grams=run.network.backbone.sparse(data.inputs))
    if found is None:
        wrong = mislabels(labels, signals.logits, near, signals.course, class_branch=branch)
    else:
        wrong = found.as_mislabels()
    wrong = of_one_picture(wrong, labels, twice.group)
    bad = bad_pictures(data.inputs)
    odd = anomalies(labels, signals, near, wrong.score)
    score = odd.score if found is None else found.foreign
    return Debugging(
        samples=samples,
        index=own,
        mislabels=wrong,
        anomalies=replace(odd, score=np.where(bad, np.maximum(score, BAD_FOR_SURE), score)),
        duplicates=twice,
        near=near,
        signals=signals,
        bad=bad,
        withheld=withheld,
        assessment=found,
    )


def _finetuned(run: Run) -> bool:
    """Whether a pretrained backbone was trained on; read again, its weights are as fixed as those of any other."""
    settings = run.config.training.get("training")
    return isinstance(settings, Mapping) and bool(settings.get("finetune"))

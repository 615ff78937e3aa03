"""debug: which training samples are probably mislabelled, which are odd, which typical, which are there twice.

Works on the training samples of any run, with a plain or an exemplar head. Withheld samples are left out and counted.

Letters: N samples, K neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from provnet.applications.anomalies import Anomalies, anomalies
from provnet.applications.mislabels import Mislabels, mislabels
from provnet.applications.near_duplicates import Duplicates, duplicates
from provnet.applications.neighbours import NEIGHBOURS, Neighbours, others
from provnet.applications.one_picture import groups_of, of_one_picture
from provnet.applications.signals import Signals, sample_signals
from provnet.data.identity import SampleTable
from provnet.data.imagedata import ImageData, image_data
from provnet.errors import UsageError
from provnet.evaluation import trained_rows
from provnet.explanation import active_network
from provnet.inputs import Fitted, run_of
from provnet.modelfile import Run
from provnet.stats import Interval, wilson

FLAGGED = 0.5  # a label that is more probably wrong than right
SURE = 0.5  # share of the other votes that a suggestion needs to be written into a corrected manifest
RIGHT = 0.9  # probability from which a label of one picture is taken for all samples of it
DROP = -1  # in place of a label: none of those that the picture has is known to be right


@dataclass(frozen=True, eq=False)
class Debugging:
    """What was found, one row a sample; rows are in the order of `samples`.

    Attributes:
        samples: the samples that were looked at.
        index: (N,) int64, which training sample each is.
        mislabels, anomalies, duplicates, near: the findings, see their modules.
        signals: what they were made of.
        withheld: samples of the run that are withheld and were left out.
    """

    samples: SampleTable
    index: np.ndarray
    mislabels: Mislabels
    anomalies: Anomalies
    duplicates: Duplicates
    near: Neighbours
    signals: Signals
    withheld: int = 0

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
        """(N,) int64: the suggested class of flagged samples, the given label of all others."""
        return np.where(self.flagged(threshold), self.mislabels.suggested, self.samples.labels)

    def advised(self, threshold: float = FLAGGED) -> np.ndarray:
        """(N,) int64: the label that each sample should have, or `DROP`.

        That is the suggested class of a flagged sample, if most of the votes for other labels than its own are for it.
        Of one picture under several labels it is the one label that is probably right; where there is none, no sample
        of the picture should be used with the label that it has.
        """
        sure = self.flagged(threshold) & (self.mislabels.agreement >= SURE)
        found = np.where(sure, self.mislabels.suggested, self.samples.labels)
        conflict = self.duplicates.conflict
        for rows in groups_of(np.where(conflict, self.duplicates.group, -1)):
            best = rows[self.mislabels.score[rows].argmin()]
            right = 1 - self.mislabels.score[best] >= RIGHT
            found[rows] = self.samples.labels[best] if right else DROP
        return np.asarray(found)

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
        """How many labels are probably wrong: the sum of all probabilities; None where that cannot be told."""
        return None if self.mislabels.cannot_tell else float(self.mislabels.score.sum())

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
        """Rows of the nearest trusted samples that carry the suggested label, and each one's share of all votes."""
        near = self.near.row[row]
        real = near >= 0
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
            **{f"from_{name}": part for name, part in self.mislabels.contributions.items()},
            "index_entropy": self.signals.entropy,
        }


def share_flagged(flagged: int, n: int, cannot_tell: str) -> Interval:
    """The share of labels that are flagged; without an interval where it says nothing about how many are wrong.

    >>> share_flagged(0, 100, "").high < 0.04, share_flagged(0, 100, "the features are weak").high
    (True, None)
    """
    return replace(wilson(flagged, n), low=None, high=None, why=cannot_tell) if cannot_tell else wilson(flagged, n)


def debug(run: Run | Fitted, data: ImageData, *, index: np.ndarray | None = None, progress: bool = False) -> Debugging:
    """Look at a run's training samples; `data` holds their pictures, in the run's order and under its labels.

    `index` says which training sample each row of `data` is, where some are missing; None means all, in order.

    >>> import provnet
    >>> from provnet.training.config import train_config
    >>> from provnet.training.fit import fit
    >>> data = provnet.open_data("embedded").select(np.arange(60))
    >>> found = debug(fit(data, config=train_config(epochs=2)), data)
    >>> found.mislabels.score.shape, bool((found.anomalies.typicality <= 1).all())
    ((60,), True)
    """
    run = run_of(run)
    own = trained_rows(run, image_data("the training data", data), index)
    withheld = int(run.samples.withheld.sum())
    net, _ = active_network(run)
    active = np.flatnonzero(~run.samples.withheld[own])
    if len(active) < len(own):
        own, data = own[active], data.select(active)
    if len(own) == 0:
        raise UsageError("there are no samples to look at: all are withheld or missing")
    samples = run.samples.select(own)
    labels = samples.labels
    signals = sample_signals(run, net, data.images, labels, own, progress=progress)
    near = others(signals.features, NEIGHBOURS, progress=progress)
    branch = net.task_head is not None
    twice = duplicates(samples, data.images, near, device=signals.features.device)
    wrong = mislabels(labels, signals.logits, near, signals.course, class_branch=branch)
    wrong = of_one_picture(wrong, labels, twice.group)
    return Debugging(
        samples=samples,
        index=own,
        mislabels=wrong,
        anomalies=anomalies(labels, signals, near, wrong.score),
        duplicates=twice,
        near=near,
        signals=signals,
        withheld=withheld,
    )

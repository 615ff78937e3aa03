"""One picture under several labels: at most one of them is right, whatever the signals say of each sample alone.

Letters: N samples.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from provnet.tools.debug.mislabels import FEWEST, Mislabels


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

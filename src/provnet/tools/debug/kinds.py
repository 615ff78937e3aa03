"""What is wrong with a sample, told apart: its label, its class, the picture itself, or that it is there twice.

Letters: N samples.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from provnet.base.batches import at_once
from provnet.data.modalities.decode import are_pictures

CONFLICT = "one picture, several labels"
WRONG = "wrong label"
BAD = "bad picture"
FOREIGN = "something else"
AMBIGUOUS = "between two classes"
TWICE = "duplicate"
KINDS = (CONFLICT, WRONG, BAD, FOREIGN, AMBIGUOUS, TWICE)

BLANK = 0.01  # of the range of the pixels of all pictures: a picture that varies less shows nothing
BLURRED = 8.0  # robust standard deviations of log detail below the median
SURE = 0.99  # anomaly of a bad picture
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

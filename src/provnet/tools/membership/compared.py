"""Whole pictures compared with those of training: what a score takes for a copy is looked at, pixel by pixel.

The samples that come nearest are looked at: the one that the network names, and those whose views agree with the
picture, or with its mirror image, in most of 64 cells. A painted picture keeps its other cells, and a part of a picture
keeps roughly the order of light and dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from provnet.base.batches import pieces
from provnet.data.dataset import Dataset
from provnet.data.evidence import evidence
from provnet.runs.inputs import Fitted, run_of
from provnet.runs.run import Run
from provnet.tools.membership.likeness import Likeness, can_tell, likeness
from provnet.tools.membership.member import ADDED, COPY, UNKNOWN, Membership, matched_at

CELLS = 8  # in a row
ALIKE = 16.0  # grey levels within which two cells agree
CANDIDATES = 5  # of each kind that are looked at
PIECE = 1024  # samples that are reduced at a time


def compared(
    run: Run | Fitted,
    parts: Sequence[Dataset],
    views: np.ndarray,
    pictures: Sequence[np.ndarray | None],
    found: Sequence[Membership],
) -> list[Membership]:
    """The verdicts after the whole pictures were compared.

    Those that bytes or pixels settle stay as they are, and so do those of pictures too small to be told apart.

    `views` (n, C, H, W) are what the network sees of the `pictures`; `parts` are the training data as they are now.
    """
    run = run_of(run)
    open_rows = [i for i, one in enumerate(found) if pictures[i] is not None and one.agrees not in ("bytes", "pixels")]
    if not open_rows or not parts:
        return list(found)
    cells = [_cells(part.images) for part in parts]
    places = [_places(run, part) for part in parts]
    said = list(found)
    for i in open_rows:
        picture = pictures[i]
        assert picture is not None, "they were chosen"
        match = found[i].match
        rows = [] if match is None else [match.index]
        for own, place in zip(cells, places, strict=True):
            rows += [int(place[at]) for at in _candidates(torch.from_numpy(views[i : i + 1].copy()), own)]
        originals = _originals(run, parts, [row for row in dict.fromkeys(rows) if row >= 0])
        if originals:
            said[i] = _said(run, found[i], _best(picture, originals))
    return said


def _said(run: Run, one: Membership, best: tuple[int, Likeness] | None) -> Membership:
    if best is None:
        if one.verdict != COPY or one.agrees != "content":
            return one
        why = f"{one.why}, but none of the pictures that come nearest, looked at whole, is its original"
        return replace(one, verdict=UNKNOWN, agrees="nothing", why=why)
    row, found = best
    is_added = bool(run.samples.added[row])
    more = "; it was added after training, and the network was not trained on it" if is_added else ""
    verdict = ADDED if is_added else COPY
    return replace(
        one, verdict=verdict, agrees="picture", match=matched_at(run.samples, row), why=f"it is {found.words}{more}"
    )


def _originals(run: Run, parts: Sequence[Dataset], rows: Sequence[int]) -> dict[int, np.ndarray]:
    """The whole pictures of samples, of those that are large enough to be told apart."""
    found = zip(rows, evidence(run.samples, list(parts), rows), strict=True)
    return {row: seen.picture for row, seen in found if seen.picture is not None and can_tell(seen.picture)}


def _best(picture: np.ndarray, originals: dict[int, np.ndarray]) -> tuple[int, Likeness] | None:
    """The sample that the picture was made of, with the most of it unchanged; None where there is none."""
    told = ((row, likeness(picture, original)) for row, original in originals.items())
    found = [(row, alike) for row, alike in told if alike is not None]
    return max(found, key=lambda pair: pair[1].share, default=None)


def _places(run: Run, part: Dataset) -> np.ndarray:
    """Which sample of the run each row of some data is; -1 for none, and for those that may not be named."""
    known = {run.samples.pixel_sha256[i].tobytes(): i for i in np.flatnonzero(~run.samples.withheld).tolist()}
    return np.array([known.get(row.tobytes(), -1) for row in part.samples.pixel_sha256], dtype=np.int64)


def _cells(images: Tensor) -> Tensor:
    """(N, C, 8, 8) mean values."""
    parts = [F.adaptive_avg_pool2d(images[rows].float(), CELLS) for rows in pieces(len(images), PIECE)]
    return torch.cat(parts)


def _candidates(view: Tensor, cells: Tensor) -> list[int]:
    """Rows of the data that look like a view or its mirror image, in most cells or on the whole."""
    rows: list[int] = []
    for own in (_cells(view), _cells(view.flip(3))):
        agreeing = ((cells - own).abs().amax(1) < ALIKE).flatten(1).sum(1).float()
        flat, other = _unit(cells), _unit(own)
        for score in (agreeing, flat @ other[0]):
            rows += score.topk(min(CANDIDATES, len(score))).indices.tolist()
    return list(dict.fromkeys(rows))


def _unit(cells: Tensor) -> Tensor:
    flat = cells.flatten(1)
    return F.normalize(flat - flat.mean(1, keepdim=True), dim=1)

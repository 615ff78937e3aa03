"""Copies of photographs, told by frozen features at 256 pixels: where two pictures are the same.

The copy ratio compares whole pictures of 32 pixels: what is cut, mirrored or a part of a collage escapes it. Here a
picture is looked at by EfficientNet-Lite0 (extra `vision`). Its last features, pooled over the whole and over parts,
find the training pictures that may be the original, also mirrored or half as large. Then its middle features are
matched: a place of one picture and a place of the other that name each other count where they agree with the others on
one shift and one scale. Pictures of one kind agree in some places by chance, a copy in many. The agreement is the sum
of the squared likenesses of such places, over the root of how many there could be.

From which agreement on a picture is called a copy is calibrated on pictures that are no copies.

Letters: B pictures, N training pictures, D, C features, S places in a row, W parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from provnet.base.batches import keyed_generator
from provnet.base.errors import UsageError
from provnet.base.progress import Update, progress_bar
from provnet.models.pretrained import Pretrained, lite0, load_published

SIDE, FEW, PAIRS = 256, 10, 300  # pixels; originals that are looked at closely; pairs of places that are tried
CHANNELS = 112  # of the middle features, of which there is one for 16 pixels
PARTS = ((6, 6), (4, 4), (8, 4), (4, 8))  # of the last features, in places
SCALES, FEWEST = (0.4, 2.6), 30  # sizes of an original that are looked for; places that could agree, at least
FALSE_ALARMS, CALIBRATED = 0.005, 1_000


class Originals(NamedTuple):
    """What pictures are compared with."""

    whole: Tensor  # (3, N, D) unit features of all: as they are, mirrored, and half as large
    parts: Tensor  # (N, W, D)
    middle: Sequence[Tensor]  # (N, C, S, S) of the three


@dataclass(frozen=True, eq=False)
class PhotoCopies:
    """One row a picture.

    Attributes:
        row: (B,) int64, the training picture that it agrees with most.
        agreement: (B,) float64, how much.
        threshold: above it a picture is called a copy; None where too few pictures say how much is chance.
        false_alarms: the share of pictures that are no copies and lie above it, as was asked for.
        calibrated_on: how many pictures the threshold rests on.
    """

    row: np.ndarray
    agreement: np.ndarray
    threshold: float | None
    false_alarms: float
    calibrated_on: int

    @property
    def near_copy(self) -> np.ndarray:
        """(B,) bool, the verdict."""
        return np.asarray(self.agreement > (np.inf if self.threshold is None else self.threshold))


def photo_copies(
    images: Tensor,
    training: Tensor,
    *,
    heldout: Tensor | None = None,
    false_alarms: float = FALSE_ALARMS,
    seed: int = 0,
    progress: bool = False,
) -> PhotoCopies:
    """Compare colour pictures (B, 3, H, W) of bytes with training pictures (N, 3, H, W).

    The threshold is set on `heldout` pictures (m, 3, H, W), which were never trained on, or on the training pictures,
    each against all others, which must not hold copies of each other then.
    """
    for name, values in (("pictures", images), ("training pictures", training)):
        if values.dtype != torch.uint8 or values.ndim != 4 or values.shape[1] != 3 or len(values) == 0:
            given = f"{values.dtype} {tuple(values.shape)}"
            raise UsageError(f"the {name} must be bytes of colour (B, 3, H, W), got {given}")
    themselves = heldout is None or len(heldout) == 0
    others = training if heldout is None or themselves else heldout
    rows = torch.randperm(len(others), generator=keyed_generator(seed, 63))[:CALIBRATED].sort().values
    net = layers()
    with progress_bar("matching places", 3 * len(training) + len(rows) + len(images), progress) as update:
        known = originals(views(training), net, update)
        done = 3 * len(training)
        queries = maps(views(others[rows]), net, update, done)
        _, chance = best_matches(*queries, known, rows.tolist() if themselves else None)
        row, agreement = best_matches(*maps(views(images), net, update, done + len(rows)), known)
    return PhotoCopies(row, agreement, threshold_of(chance, false_alarms), false_alarms, len(rows))


def threshold_of(chance: np.ndarray, false_alarms: float) -> float | None:
    """What at most such a share of pictures that are no copies lies above, one more counted in.

    >>> threshold_of(np.arange(999.0), 0.005), threshold_of(np.arange(100.0), 0.005)
    (994.0, None)
    """
    allowed = math.floor(false_alarms * (len(chance) + 1) + 1e-9)
    return float(np.sort(chance)[-allowed]) if allowed else None


def layers() -> nn.Sequential:
    """The frozen network's layers, with the published weights."""
    net = lite0((3, SIDE, SIDE))
    load_published(net)
    assert isinstance(net, Pretrained) and isinstance(net.body.layers, nn.Sequential)
    return net.body.layers.eval()


def views(images: Tensor) -> list[Tensor]:
    """(3, 256, 256) bytes of each picture."""
    found = []
    for one in images:
        wide = F.interpolate(one[None].float(), size=(SIDE, SIDE), mode="bicubic", antialias=True, align_corners=False)
        found.append(wide[0].round().clamp(0, 255).to(torch.uint8))
    return found


def halved(view: Tensor) -> Tensor:
    """A view half as large."""
    return F.avg_pool2d(view[None].float(), 2)[0].round().to(torch.uint8)


@torch.inference_mode()
def maps(seen: Sequence[Tensor], net: nn.Module, update: Update | None = None, done: int = 0) -> tuple[Tensor, Tensor]:
    """The last (B, 1280, S, S) and the middle features (B, 112, 2 S, 2 S) of views of one size."""

    def each() -> Iterator[tuple[Tensor, Tensor]]:
        for number, view in enumerate(seen):
            x = middle = (view[None].float() - 127) / 128
            for layer in net.children():
                x = layer(x)
                middle = x if x.shape[1] == CHANNELS else middle
            if update is not None:
                update(done + number + 1, "")
            yield x[0].half(), middle[0].half()

    last, middles = zip(*each(), strict=True)
    return torch.stack(last), torch.stack(middles)


def originals(seen: Sequence[Tensor], net: nn.Module, update: Update | None = None) -> Originals:
    """All that is kept of training pictures."""
    kinds = (list(seen), [one.flip(2) for one in seen], [halved(one) for one in seen])
    return originals_of([maps(some, net, update, number * len(seen)) for number, some in enumerate(kinds)])


def originals_of(found: Sequence[tuple[Tensor, Tensor]]) -> Originals:
    """The same from the maps of pictures as they are, mirrored and half as large."""
    parts = parts_of(found[0][0])
    wholes = torch.stack([parts[:, 0], *(parts_of(last)[:, 0] for last, _ in found[1:])])
    return Originals(wholes, parts, [middle for _, middle in found])


def parts_of(last: Tensor) -> Tensor:
    """(B, W, D) unit features of the whole, and of parts where there are places enough."""
    last = last.float()
    side = last.shape[2]
    found = [last.mean((2, 3))]
    for high, wide in PARTS if side >= 8 else ():
        for top in range(0, side - high + 1, 2):
            for left in range(0, side - wide + 1, 2):
                found.append(last[:, :, top : top + high, left : left + wide].mean((2, 3)))
    return F.normalize(torch.stack(found, 1), dim=2)


def likenesses(last: Tensor, known: Originals) -> Tensor:
    """(B, N) the best cosine of a part of a picture with a whole original, or of the whole with a part."""
    of = parts_of(last)
    best = torch.einsum("bd,nwd->bnw", of[:, 0], known.parts).amax(2)
    for whole in known.whole:
        best = torch.maximum(best, torch.einsum("bwd,nd->bwn", of, whole).amax(1))
    return best


def best_matches(
    last: Tensor, middle: Tensor, known: Originals, without: Sequence[int] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """(B,) the original that each picture agrees with most, and how much; `without` names one for each to pass over."""
    near = likenesses(last, known)
    if without is not None:
        near[torch.arange(len(near)), torch.tensor(without)] = -1
    rows, values = [], []
    for place, few in enumerate(near.topk(min(FEW, near.shape[1] - (without is not None)), 1).indices.tolist()):
        query = unit_places(middle[place])
        each = [max(agreement(query, unit_places(kind[row])) for kind in known.middle) for row in few]
        rows.append(few[int(np.argmax(each))])
        values.append(max(each))
    return np.array(rows, dtype=np.int64), np.array(values, dtype=np.float64)


def unit_places(middle: Tensor) -> Tensor:
    """(C, S * S) unit features of the places of a map, without its mean."""
    wide = middle.float()
    return F.normalize((wide - wide.mean((1, 2), keepdim=True)).flatten(1), dim=0)


def agreement(query: Tensor, other: Tensor) -> float:
    """How much the places of two maps agree on one shift and one scale."""
    grids = [_grid(math.isqrt(one.shape[1])) for one in (query, other)]
    cosines = query.t() @ other
    there, back = cosines.argmax(1), cosines.argmax(0)
    mutual = (back[there] == torch.arange(len(there))).nonzero()[:, 0]
    a, b = grids[0][mutual], grids[1][there[mutual]]
    length = [(side[:, None] - side[None]).norm(dim=2) for side in (a, b)]
    pairs = ((length[0] >= 3) & (length[1] >= 2)).nonzero()
    if len(pairs) == 0:
        return 0.0
    first, second = pairs[torch.linspace(0, len(pairs) - 1, min(len(pairs), PAIRS)).long()].unbind(1)
    scale = length[1][first, second] / length[0][first, second]
    shift = b[first] - scale[:, None] * a[first]
    missed = (scale[:, None, None] * a[None] + shift[:, None] - b[None]).abs().amax(2)
    near = (missed <= scale.clamp_min(1)[:, None]) & (scale > SCALES[0])[:, None] & (scale < SCALES[1])[:, None]
    best = int(near.sum(1).argmax())
    there_all = scale[best] * grids[0] + shift[best]
    inside = float(((there_all >= -0.5) & (there_all <= grids[1].max() + 0.5)).all(1).sum())
    could = max(min(inside, inside * float(scale[best]) ** 2), FEWEST)
    weight = cosines[mutual, there[mutual]].clamp_min(0) ** 2
    return float((near[best] * weight).sum()) / math.sqrt(could)


def _grid(side: int) -> Tensor:
    """(S * S, 2) row and column of each place."""
    return torch.cartesian_prod(torch.arange(side), torch.arange(side)).float()

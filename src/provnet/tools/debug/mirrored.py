"""Photographs that are the mirror image of another: one picture, though no pixel of the two need agree.

Digits and other drawings are left out (`LEAST`): the mirror image of one may be another that somebody drew.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from provnet.base.batches import pieces
from provnet.data.modalities.decode import are_pictures

LEAST = 48  # pixels of the shorter side; smaller pictures are drawings, or tell too little
SEARCHED, COMPARED = 8, 32  # sides of the pictures that are searched and compared
SAME, SYMMETRIC = 0.99, 0.98  # correlations: of a picture with a mirrored one, and of one with its own mirror image
CLOSE = 6.0  # grey levels by which they may differ, on average
PART = 2048  # samples that are compared with all others at a time


def mirrored_pairs(images: Tensor) -> np.ndarray:
    """(P, 2) rows of pictures (N, C, H, W) of bytes of which one is the mirror image of the other.

    >>> pictures = torch.randint(0, 256, (3, 3, 8, 8)).repeat_interleave(8, 2).repeat_interleave(8, 3).byte()
    >>> mirrored_pairs(torch.cat([pictures, pictures[1:2].flip(3)])).tolist()
    [[1, 3]]
    """
    if images.dtype != torch.uint8 or not are_pictures(images, LEAST) or len(images) < 2:
        return np.empty((0, 2), dtype=np.int64)
    coarse, turned = _reduced(images, SEARCHED), _reduced(images, SEARCHED, turned=True)
    flat, found = _unit(coarse), list[Tensor]()
    for rows in pieces(len(images), PART):
        likeness = _unit(turned[rows]) @ flat.T
        value, row = likeness.topk(min(3, len(images)), dim=1)
        one = torch.arange(len(images))[rows][:, None].expand_as(row)
        chosen = (value > SYMMETRIC) & (row > one)
        found.append(torch.stack([one[chosen], row[chosen]], 1))
    pairs = torch.cat(found)
    kept = [pairs[part][_same(images, pairs[part])] for part in pieces(len(pairs), PART)]
    return np.asarray(torch.cat(kept).numpy()) if kept else np.empty((0, 2), dtype=np.int64)


def _same(images: Tensor, pairs: Tensor) -> Tensor:
    """(P,) bool, whether pairs of rows are mirror images, looked at closely."""
    one, other = (_reduced(images[pairs[:, side]], COMPARED) for side in (0, 1))
    turned = one.flip(3)
    agrees = (_unit(turned) * _unit(other)).sum(1)
    own = (_unit(one) * _unit(turned)).sum(1)
    difference = (turned - other).abs().flatten(1).mean(1)
    return (agrees > SAME) & (own < SYMMETRIC) & (difference < CLOSE)


def _reduced(images: Tensor, side: int, *, turned: bool = False) -> Tensor:
    parts = [F.adaptive_avg_pool2d(images[rows].float(), side) for rows in pieces(len(images), PART)]
    whole = torch.cat(parts)
    return whole.flip(3) if turned else whole


def _unit(images: Tensor) -> Tensor:
    """Rows without their mean, at length one."""
    flat = images.flatten(1)
    return F.normalize(flat - flat.mean(1, keepdim=True), dim=1)

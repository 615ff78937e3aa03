"""Calibration: when to say "no supporting sample".

After training the features of training samples are measured (`models.support`), then a threshold is set on distorted
copies of training samples (noise and one-pixel shifts): the level is the share of such copies that would be turned
away.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from provnet.attribution import attribute
from provnet.data.batches import fold, keyed_generator
from provnet.data.distort import add_noise, shift
from provnet.models.provenance import ProvenanceNet

LEVEL = 0.05
MEASURED = 10_000
LEAST = 5  # of each class at least, or all that it has: a mean of none, or of one, would not support its own samples
CALIBRATED = 2_000


def calibrate(
    net: ProvenanceNet, images: Tensor, seed: int, level: float = LEVEL, labels: Tensor | None = None
) -> dict[str, Any]:
    """Measure the training features and return the threshold below which an input counts as unsupported.

    Uses up to 10,000 training samples to measure, with a few more of classes that are rare among them, and up to 2,000
    distorted ones to set the threshold. `labels` are those of the images, where not all of them are indexed.
    """
    device = next(net.parameters()).device
    pick = torch.randperm(len(images), generator=keyed_generator(seed, 5))
    known = net.index_map.labels if labels is None else labels
    chosen = _measured(pick, known.cpu())
    net.eval()
    with torch.inference_mode():
        features = torch.cat([net(b.to(device)).support_features for b in torch.split(images[chosen], 256)])
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(fold(seed, 6))
        net.support.fit(features.clone(), known[chosen.to(known.device)].to(device))
    copies = [add_noise(images[pick[:CALIBRATED]], seed)]
    if images.ndim == 4:
        copies.append(shift(images[pick[:CALIBRATED]], seed))
    with torch.inference_mode():
        batches = [batch for copy in copies for batch in torch.split(copy, 256)]
        support = torch.cat([attribute(net, net(batch.to(device)), 1).support.cpu() for batch in batches])
    return {
        "statistic": "minus the Mahalanobis distance from the training samples of the predicted class",
        "threshold": float(torch.quantile(support.double(), level)),
        "level": level,
        "calibrated_on": "distorted training samples (noise, shift)" if len(copies) == 2 else "noisy training samples",
        "n": len(support),
    }


def _measured(pick: Tensor, labels: Tensor) -> Tensor:
    """The first samples of a random order, and the first of each class: no class that has samples goes without."""
    if len(pick) <= MEASURED:
        return pick
    given = labels[pick]
    by_class = given.argsort(stable=True)
    sizes = torch.bincount(given)
    place = torch.empty_like(pick)  # of each sample among those of its class
    place[by_class] = torch.arange(len(pick)) - (sizes.cumsum(0) - sizes)[given[by_class]]
    return pick[(torch.arange(len(pick)) < MEASURED) | (place < LEAST)]

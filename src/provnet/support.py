"""Calibration: when to say "no supporting sample".

After training the features of training samples are measured (`models.support`), then a threshold is set on distorted
copies of training samples (noise and one-pixel shifts): the level is the share of such copies that would be turned
away.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from provnet.attribution import attribute
from provnet.chunks import at_once
from provnet.data.batches import fold, keyed_generator
from provnet.data.distort import add_noise, shift
from provnet.models.provenance import ProvenanceNet, ProvenanceOutput

LEVEL = 0.05
MEASURED = 10_000
LEAST = 5  # of each class at least, or all that it has: a mean of none, or of one, would not support its own samples
CALIBRATED = 2_000
Bar = Callable[[str, int], AbstractContextManager[Callable[[int, str], None]]]  # title, total -> (done, text)


def calibrate(
    net: ProvenanceNet,
    images: Tensor,
    seed: int,
    level: float = LEVEL,
    labels: Tensor | None = None,
    *,
    progress: Bar | None = None,
) -> dict[str, Any]:
    """Measure the training features and return the threshold below which an input counts as unsupported.

    Uses up to 10,000 training samples to measure, with a few more of classes that are rare among them, and up to 2,000
    distorted ones to set the threshold. `labels` are those of the images, where not all of them are indexed.
    `progress` makes the bar that is moved meanwhile (`training.progress`): of large pictures it takes minutes.
    """
    device = next(net.parameters()).device
    pick = torch.randperm(len(images), generator=keyed_generator(seed, 5))
    known = net.index_map.labels if labels is None else labels
    chosen = _measured(pick, known.cpu())
    distorted = pick[:CALIBRATED]
    copiers = [add_noise, shift] if images.ndim == 4 else [add_noise]
    total, done = len(chosen) + len(copiers) * len(distorted), 0
    net.eval()
    with nullcontext(_unseen) if progress is None else progress("calibration", total) as update:

        def passed(given: Tensor, rows: Tensor, read: Callable[[ProvenanceOutput], Tensor]) -> Tensor:
            nonlocal done
            parts = []
            with torch.inference_mode():
                for some in torch.split(rows, at_once(given.shape[1:], device.type)):
                    parts.append(read(net(given[some].to(device))))
                    done += len(some)
                    update(done, "")
                return torch.cat(parts)

        features = passed(images, chosen, lambda output: output.support_features)
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(fold(seed, 6))
            net.support.fit(features.clone(), known[chosen.to(known.device)].to(device))
        every = torch.arange(len(distorted))
        copies = (copier(images[distorted], seed) for copier in copiers)  # one at a time: they may be large
        support = torch.cat([passed(c, every, lambda out: attribute(net, out, 1).support.cpu()) for c in copies])
    return {
        "statistic": "minus the Mahalanobis distance from the training samples of the predicted class",
        "threshold": float(torch.quantile(support.double(), level)),
        "level": level,
        "calibrated_on": "distorted training samples (noise, shift)" if len(copiers) == 2 else "noisy training samples",
        "n": len(support),
    }


def _unseen(done: int, text: str) -> None:
    """No bar."""


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

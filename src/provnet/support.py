"""When to say "no supporting sample": a threshold on the support score, calibrated after training.

The right index is known only for training samples, so the threshold is set on distorted copies of them (noise and
one-pixel shifts): the level is the share of such copies that would be turned away.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from provnet.attribution import attribute
from provnet.data.batches import keyed_generator
from provnet.data.distort import add_noise, shift
from provnet.models.provenance import ProvenanceNet

LEVEL = 0.05
MOST = 2_000


def calibrate(net: ProvenanceNet, images: Tensor, seed: int, level: float = LEVEL) -> dict[str, Any]:
    """Threshold below which an input counts as unsupported, from at most 2,000 training samples, distorted."""
    pick = torch.randperm(len(images), generator=keyed_generator(seed, 5))[:MOST]
    chosen = images[pick]
    copies = [add_noise(chosen, seed)] + ([shift(chosen, seed)] if chosen.ndim == 4 else [])
    device = next(net.parameters()).device
    net.eval()
    with torch.inference_mode():
        batches = [batch for copy in copies for batch in torch.split(copy, 256)]
        support = torch.cat([attribute(net, net(batch.to(device)), 1).support.cpu() for batch in batches])
    return {
        "statistic": "index score of the best sample, in logits",
        "threshold": float(torch.quantile(support.double(), level)),
        "level": level,
        "calibrated_on": "distorted training samples (noise, shift)" if len(copies) == 2 else "noisy training samples",
        "n": len(support),
    }

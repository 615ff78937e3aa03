"""From one picture to another through the latents, with the training samples behind every step.

Letters: S steps, C channels, H W height and width, L latents.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from provnet.chunks import at_once
from provnet.errors import UsageError
from provnet.explanation import Explanation
from provnet.generation.sampling import raw_pictures, to_bytes
from provnet.generation.sources import explain_latents
from provnet.inputs import Fitted, run_of, whole
from provnet.modelfile import Run
from provnet.models.vae import answer_at, posterior_of, vae_of

FEWEST, MOST = 2, 200


@dataclass(frozen=True, eq=False)
class Path:
    """What lies between two pictures.

    Attributes:
        images: (S, C, H, W) uint8; the first and the last are the two pictures, rebuilt.
        shares: (S,) how far each is from the first to the last, 0..1.
        explanation: class and training samples of each.
    """

    images: np.ndarray
    shares: np.ndarray
    explanation: Explanation

    def __len__(self) -> int:
        return len(self.shares)

    def __repr__(self) -> str:
        """One line: pixels would fill a page."""
        return f"Path({len(self)} steps, {self.explanation!r})"


def interpolate(
    run: Run | Fitted, first: Tensor | np.ndarray, last: Tensor | np.ndarray, steps: int = 9, k: int = 5
) -> Path:
    """Go from one raw image (C, H, W) to another in equal steps of their latents.

    Training samples are looked for within the class that the run sees at each step, so the class of the sources changes
    on the way where the two pictures are of different classes.

    >>> import provnet
    >>> from provnet.generation import fit_generator
    >>> data = provnet.open_data("embedded", limit=40)
    >>> run = fit_generator(data, "modern", changes={"epochs": 1})
    >>> len(interpolate(run, data.images[0], data.images[1], steps=4))
    4
    """
    run = run_of(run)
    if not FEWEST <= whole("steps", steps) <= MOST:
        raise UsageError(f"steps must lie in {FEWEST}..{MOST}, got {steps}")
    net = run.network.eval()
    vae, device = vae_of(net), next(net.parameters()).device
    ends_given = [raw_pictures(each) for each in (first, last)]
    for each in ends_given:
        if tuple(each.shape) != tuple(run.config.network.input_shape):
            shape = run.config.network.input_shape
            raise UsageError(f"a path goes from one picture of shape {shape} to another, got {tuple(each.shape)}")
    both = torch.stack([each.float() for each in ends_given]).to(device)
    shares = torch.linspace(0, 1, steps)
    with torch.inference_mode():
        ends = posterior_of(net, both).mean
        seen = answer_at(net, ends).logits.argmax(1)
        z = torch.lerp(ends[:1], ends[1:], shares.to(device).unsqueeze(1))
        parts = []
        few = at_once(net.normalise.input_shape, device.type)
        for some, share in zip(torch.split(z, few), torch.split(shares.to(device), few), strict=True):
            one, other = seen[:1].expand(len(some)), seen[1:].expand(len(some))
            logits = vae.paint_between(vae.hidden(some), one, other, share)
            parts.append(to_bytes(logits.float().sigmoid()).cpu())
    images = torch.cat(parts).numpy()
    return Path(images, shares.numpy(), explain_latents(run, z.cpu().numpy(), None, k))

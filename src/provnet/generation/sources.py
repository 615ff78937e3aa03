"""The training samples behind latents: those of generated pictures, and of points on a path between two pictures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from provnet.attribution import attribute
from provnet.chunks import at_once
from provnet.equal import equal_slots
from provnet.errors import UsageError
from provnet.explanation import Explanation, active_network, explain, joined
from provnet.generation.sampling import Generated
from provnet.inputs import Fitted, run_of, whole
from provnet.modelfile import Run
from provnet.models.vae import answer_at, vae_of


def sources(run: Run | Fitted, made: Generated, k: int = 5) -> Explanation:
    """Class, confidence and the k training samples behind each generated picture.

    Samples are told from the latents that it was made of, within its class (`labels`). Withheld ones are never named.
    Where a class could be asked for, `predicted` is what the run sees when it looks at the picture again.

    >>> import provnet
    >>> from provnet.generation import fit_generator, generate
    >>> run = fit_generator(provnet.open_data("embedded", limit=40), "modern", changes={"epochs": 1})
    >>> sources(run, generate(run, 2, label="7"), k=3).label.tolist()
    [[7, 7, 7], [7, 7, 7]]
    """
    run = run_of(run)
    if not isinstance(made, Generated):
        raise UsageError(f"sources are told of what generate(...) made, a Generated; got {type(made).__name__}")
    found = explain_latents(run, made.latents, made.labels, k)
    # latents are drawn wider than means lie: support, and the class where it was asked for, are told from the picture
    seen = explain(run, made.images, k=1)
    found = replace(found, support=seen.support, supported=seen.supported)
    told = vae_of(run.network).conditional
    return replace(found, predicted=seen.predicted, confidence=seen.confidence) if told else found


def explain_latents(run: Run | Fitted, latents: np.ndarray, classes: np.ndarray | None, k: int = 5) -> Explanation:
    """The same for latents (n, L) and classes (n,), or without classes for those that the run predicts."""
    run = run_of(run)
    net, kept = active_network(run)
    k = whole("k", k)
    vae_of(net.eval())
    device = next(net.parameters()).device
    equal = equal_slots(net, run.samples, "plain")
    parts = []
    with torch.inference_mode():
        size = at_once(net.normalise.input_shape, device.type)
        for start in range(0, len(latents), size):
            rows = slice(start, start + size)
            given = None if classes is None else torch.from_numpy(np.asarray(classes[rows])).to(device)
            z = torch.from_numpy(np.asarray(latents[rows], dtype=np.float32)).to(device)
            parts.append(attribute(net, answer_at(net, z, given), k, equal=equal))
    found = joined(parts, run)
    return found if kept is None else replace(found, index=np.where(found.index >= 0, kept[found.index], -1))

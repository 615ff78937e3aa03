"""Sliders for a run that makes pictures: the directions in which the latents of its training samples differ most.

Letters: L latents, S sliders, n samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from provnet.app.served import Served
from provnet.data.batches import keyed_generator
from provnet.generation.measures import latent_means
from provnet.generation.sampling import generate

SLIDERS = 12
LOOKED_AT = 2_000  # training samples that the directions come from
FARTHEST = 3.0  # standard deviations to each side


@dataclass(frozen=True, eq=False)
class Axes:
    """What sliders move.

    Attributes:
        middle: (L,) the mean of the latents.
        direction: (S, L) unit vectors, the one with the most variance first.
        spread: (S,) standard deviation along each.
    """

    middle: np.ndarray
    direction: np.ndarray
    spread: np.ndarray

    def positions(self, z: np.ndarray) -> np.ndarray:
        """Where the sliders stand for latents (L,), in standard deviations."""
        return np.asarray(self.direction @ (z - self.middle) / self.spread)

    def moved(self, z: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """The latents with the sliders set; what they do not move stays as it is."""
        change = (positions - self.positions(z)) * self.spread
        return np.asarray(z + change @ self.direction, dtype=np.float32)


def find_axes(served: Served) -> Axes:
    """The sliders of a run, from its training pictures where they are there, else from pictures that it makes."""
    if served.training is None:
        values = generate(served.run, 256, seed=0).latents
    else:
        rows = torch.randperm(len(served.training), generator=keyed_generator(0, 42))[:LOOKED_AT]
        values = latent_means(served.run, served.training.images[rows].numpy())
    return axes_of(values.astype(np.float64))


def axes_of(values: np.ndarray) -> Axes:
    """The principal directions of latents (n, L); each points to where its largest part is positive.

    >>> found = axes_of(np.array([[0.0, 0.0], [2.0, 0.0], [4.0, 0.1], [6.0, 0.0]]))
    >>> [f"{value:.2f}" for value in found.moved(found.middle, np.array([1.0, 0.0]))]
    ['5.24', '0.04']
    """
    middle = values.mean(0)
    _, strength, direction = np.linalg.svd(values - middle, full_matrices=False)
    direction = direction * np.sign(direction[np.arange(len(direction)), np.abs(direction).argmax(1)])[:, None]
    spread = np.maximum(strength / np.sqrt(len(values)), 1e-6)
    return Axes(middle, direction[:SLIDERS], spread[:SLIDERS])

"""Modality: what a kind of sample is. All that is said of shape, bytes and looks of samples is said by one of these."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from provnet.base.batches import Inputs

Perturb = Callable[[Any, int], Any]  # (inputs, seed) -> changed copies; row i draws from (seed, i) alone


@dataclass(frozen=True)
class Preview:
    """How a sample is shown: as a picture, uint8 (H, W) or (H, W, 3), or as text; else not at all."""

    picture: np.ndarray | None = None
    text: str = ""


class Modality(ABC):
    """A kind of sample: how it is read, batched, hashed, shown and perturbed; one file each.

    An *item* is a sample as people see it: a text, a row of a table. Where the inputs of the network are the samples,
    as pictures are, they are the items.

    Attributes:
        name: what a run calls it.
        calibrated_on: the perturbed copies by which the threshold of support is set; empty means all.
    """

    name: ClassVar[str]
    calibrated_on: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def read(self, raw: bytes, name: str) -> Any:
        """The item that a file holds; `name` is what an error calls it."""

    @abstractmethod
    def batch(self, items: Sequence[Any]) -> Inputs:
        """Items as a network receives them."""

    @abstractmethod
    def content(self, item: Any) -> bytes:
        """What an item is hashed by: equal for samples that are the same, different for all others."""

    @abstractmethod
    def show(self, item: Any) -> Preview:
        """An item as people can look at it."""

    def perturbed(self, inputs: Inputs) -> Mapping[str, Perturb]:
        """Small changes after which a sample must still be recognised, by name: those that apply to such inputs."""
        return {}

    def copies(self, inputs: Any) -> Mapping[str, Perturb]:
        """Changed copies by which a membership audit tells what was trained on from what only looks like it."""
        return self.perturbed(inputs)

    def to_json(self) -> dict[str, Any]:
        """What a run keeps of it among the options of its data; nothing where the shape of a sample says it all."""
        return {"modality": self.name}

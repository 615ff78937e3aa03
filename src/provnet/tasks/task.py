"""Task: what a network is trained to say, and what one key stands for. A new task is one file beside this one.

Letters: B batch, C classes, D features, Q queries (one for each sample, or for each box, segment or token of it).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

from torch import Tensor


class Answers(NamedTuple):
    """What a model says of a batch."""

    what: Tensor  # (B, ...): a class, a mask, a number
    sure: Tensor  # (B,) how sure it is, 0..1
    group: Tensor | None  # (B,) int64: the group of samples to look in; None where there are no groups


class Pooled(NamedTuple):
    """The features that are compared with keys."""

    features: Tensor  # (Q, D)
    owner: Tensor | None  # (Q,) int64: the row of the batch that each belongs to; None: one for each row, in order


class Task(ABC):
    """Three methods say what a task is; `output` is what the model gives, its logits for most tasks.

    Nothing here may depend on the value of a tensor: on a GPU a step of training is recorded once and replayed.
    """

    parts: tuple[str, ...] = ()  # names of what `extra` measures, for the log of training
    rebuilds = False  # whether the model gives its input back, which then must lie in [0, 1]

    @abstractmethod
    def loss(self, output: Tensor, target: Any, smoothing: float = 0.0, there: Tensor | None = None) -> Tensor:
        """(B,) each sample's own loss; with label smoothing, over the classes (B, C) that are `there`."""

    @abstractmethod
    def answer(self, output: Tensor) -> Answers:
        """What is said, how sure, and the group to look in."""

    @abstractmethod
    def right(self, output: Tensor, target: Any) -> Tensor:
        """(B,) how right each answer is, from 0 (or False) to 1 (or True)."""

    def pool(self, features: Tensor, output: Tensor | None) -> Pooled:
        """What one key stands for: the whole sample, unless a task says otherwise."""
        return Pooled(features, None)

    def extra(self, made: Any) -> tuple[Tensor, Tensor] | None:
        """What a batch as a whole adds to the loss, (), and its `parts`; `made` is what a model gives beside output."""
        return None

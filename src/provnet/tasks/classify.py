"""One class for each sample."""

from __future__ import annotations

import torch
from torch import Tensor

from provnet.heads.losses import index_loss
from provnet.tasks.task import Answers, Task


class Classify(Task):
    """Cross-entropy over classes; the exemplars of an answer are looked for in its class.

    >>> logits = torch.tensor([[2.0, 0.0], [0.0, 1.0]])
    >>> Classify().answer(logits).what.tolist(), Classify().right(logits, torch.tensor([0, 0])).tolist()
    ([0, 1], [True, False])
    """

    def loss(self, output: Tensor, target: Tensor, smoothing: float = 0.0, there: Tensor | None = None) -> Tensor:
        """Cross-entropy in full precision: (B, C), (B,) -> (B,)."""
        return index_loss(output, there, target, smoothing)

    def answer(self, output: Tensor) -> Answers:
        """The likeliest class and its probability. The class is that of the logits: probabilities may tie sooner."""
        what = output.argmax(1)
        sure = torch.log_softmax(output.float(), 1).gather(1, what.unsqueeze(1)).squeeze(1).exp()
        return Answers(what, sure, what)

    def right(self, output: Tensor, target: Tensor) -> Tensor:
        """Whether the likeliest class is that of the sample."""
        return output.argmax(1) == target

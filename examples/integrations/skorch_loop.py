"""skorch: a net whose batches carry the index, and whose loss adds that of the index.

python examples/integrations/skorch_loop.py
"""

from __future__ import annotations

from typing import Any

import torch
from skorch import NeuralNet
from torch import Tensor, nn

import provnet
from provnet.runs.run import Run


class Attached(NeuralNet):  # type: ignore[misc]
    """Unpacks (x, y, index) and adds `prov.loss(index)` to the loss of a step."""

    prov: provnet.Provenance
    index: Tensor

    def train_step_single(self, batch: Any, **fit_params: Any) -> Any:
        """One step on (x, y, index)."""
        x, y, self.index = batch
        return super().train_step_single((x, y), **fit_params)

    def get_loss(self, y_pred: Tensor, y_true: Tensor, *args: Any, training: bool = False, **kwargs: Any) -> Tensor:
        """The criterion's, and the index's while it trains."""
        loss: Tensor = super().get_loss(y_pred, y_true, *args, training=training, **kwargs)
        return loss + self.prov.loss(self.index) if training else loss


def main(epochs: int = 2, limit: int | None = None) -> Run:
    """Train, then finish."""
    data = provnet.open_data("embedded", limit=limit)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
    net = Attached(
        model, nn.CrossEntropyLoss, max_epochs=epochs, optimizer=torch.optim.Adam, train_split=None, verbose=0
    ).initialize()
    net.prov = provnet.attach(net.module_, data)
    net.partial_fit(net.prov.dataset(), y=None)
    return net.prov.finish()


if __name__ == "__main__":
    print(main())

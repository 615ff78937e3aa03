"""Lightning: a callback that takes the index out of each batch and adds the index loss before the backward pass.

prov = provnet.attach(module.model, data)
trainer = L.Trainer(callbacks=[prov.for_lightning()])
trainer.fit(module, DataLoader(prov.dataset(), batch_size=64, shuffle=True))
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from provnet.attached.provenance import Provenance
from provnet.base.errors import UsageError

try:
    from lightning.pytorch import Callback
except ImportError as error:
    raise UsageError(
        f"Lightning cannot be imported ({error}); install provnet[integrations], or write the loop out"
    ) from error

LABELLED = 3  # parts of a batch of samples with labels: x, y, index


class ProvenanceCallback(Callback):  # type: ignore[misc, unused-ignore]
    """For `Trainer(callbacks=[...])`; its state is part of Lightning's own checkpoints."""

    def __init__(self, prov: Provenance) -> None:
        self.prov, self.parts = prov, LABELLED if prov.data.samples.grouping is not None else LABELLED - 1
        self.index: Any = None

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Take the index out: `training_step` is given (x, y), as ever."""
        if isinstance(batch, dict) and "index" in batch:
            self.index = batch.pop("index")
        elif isinstance(batch, list) and len(batch) == self.parts:
            self.index = batch.pop()
        else:
            given = f"{len(batch)} parts" if isinstance(batch, list) else type(batch).__name__
            due = "[x, y, index]" if self.parts == LABELLED else "[x, index]"
            raise UsageError(
                f"a batch of training must end with the index, {due}, got {given}; use "
                "DataLoader(prov.dataset(), ...), whose batches are lists"
            )

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Tensor) -> None:
        """Add the index loss to the loss that Lightning is about to go back through."""
        index, self.index = self.index, None
        if index is None:
            raise UsageError(
                "a second backward pass of one batch: attach reads one; add prov.loss(index) by hand instead"
            )
        own = self.prov.loss(index)
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        own = own / trainer.accumulate_grad_batches
        loss.add_(own if scaler is None else scaler.scale(own))

    def state_dict(self) -> dict[str, Any]:
        """Part of Lightning's checkpoint."""
        return self.prov.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint of Lightning."""
        self.prov.load_state_dict(state_dict)

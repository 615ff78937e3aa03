"""Hugging Face Trainer: a data set, a collator and a callback; the index is one more column of the batch.

    prov = provnet.attach(model, data)
    trainer = Trainer(model=model, args=arguments, **prov.for_trainer())

The callback takes the index out before the model sees it, and adds the index loss to the model's own. Its state lies
beside the Trainer's checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from provnet.attached.provenance import Provenance
from provnet.attached.samples import Augment
from provnet.base.errors import IntegrityError, UsageError

try:
    from transformers import TrainerCallback, default_data_collator
except ImportError as error:
    raise UsageError(
        f"the Trainer of Hugging Face cannot be imported ({error}); install provnet[integrations], or write the "
        "loop out"
    ) from error

INDEX = "index"
FILE = "provenance.safetensors"
Collator = Callable[[list[Any]], Mapping[str, Any]]


def trainer_arguments(
    prov: Provenance, collator: Collator | None = None, augment: Augment | None = None
) -> dict[str, Any]:
    """What `Trainer` is given: train_dataset, data_collator and callbacks."""
    return {
        "train_dataset": prov.dataset(augment),
        "data_collator": IndexCollator(prov, collator),
        "callbacks": [ProvenanceCallback(prov)],
    }


class IndexCollator:
    """Batches for a model of Hugging Face: what `collator` makes of (x, y, index), and the column `index`.

    Samples of an evaluation set, which have no index, go through it as well.
    """

    def __init__(self, prov: Provenance, collator: Collator | None = None) -> None:
        self.collator: Collator = collator or default_data_collator
        self.name = getattr(prov.model, "main_input_name", "input_ids")
        self.labelled = prov.data.samples.grouping is not None

    def __call__(self, items: list[Any]) -> dict[str, Any]:
        """Samples -> a batch by column."""
        features, index = zip(*map(self._split, items), strict=True)
        batch = dict(self.collator(list(features)))
        if all(one is not None for one in index):
            batch[INDEX] = torch.tensor([int(one) for one in index])
        return batch

    def _split(self, item: Any) -> tuple[dict[str, Any], Any]:
        if isinstance(item, Mapping):
            return {name: value for name, value in item.items() if name != INDEX}, item.get(INDEX)
        x, *rest = item
        columns = dict(x) if isinstance(x, Mapping) else {self.name: x}
        if not self.labelled:
            return columns, rest[-1] if rest else None
        if len(rest) == 2 or (rest and not isinstance(rest[0], Tensor) and "labels" not in columns):
            columns["labels"] = int(rest[0])
        return columns, rest[-1] if len(rest) == 2 else None


class ProvenanceCallback(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Adds the index loss to the loss of the model while a Trainer trains it."""

    def __init__(self, prov: Provenance) -> None:
        self.prov = prov
        self.index: Tensor | None = None
        self.items: Any = None
        self.handles: list[RemovableHandle] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Hook the model; of a training that is resumed, go on from the keys of its checkpoint."""
        if args.n_gpu > 1:
            raise UsageError("the Trainer would copy the model for each GPU (DataParallel); start it with torchrun")
        if state.global_step:
            self._resume(args, state.global_step)
        self.handles = [
            self.prov.model.register_forward_pre_hook(self._take, with_kwargs=True, prepend=True),
            self.prov.model.register_forward_hook(self._add),
        ]

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Leave the model as it was."""
        for handle in self.handles:
            handle.remove()
        self.handles = []

    def on_save(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Write the keys beside the Trainer's own files."""
        if not state.is_world_process_zero:
            self.prov.state_dict()  # every process takes part
            return
        parts = self.prov.state_dict()
        tensors = {name: value.contiguous() for name, value in parts.items() if isinstance(value, Tensor)}
        words = {name: value for name, value in parts.items() if isinstance(value, str)}
        place = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        place.mkdir(parents=True, exist_ok=True)
        save_file(tensors, place / FILE, words)

    def _resume(self, args: Any, step: int) -> None:
        from safetensors import safe_open

        places = [Path(args.output_dir) / f"checkpoint-{step}"]
        if isinstance(args.resume_from_checkpoint, str):
            places.insert(0, Path(args.resume_from_checkpoint))
        found = next((place / FILE for place in places if (place / FILE).is_file()), None)
        if found is None:
            if self.prov.bank.count.any():
                return  # a state that was loaded by hand
            raise IntegrityError(
                f"the training goes on from step {step}, but {places[0] / FILE} is not there: nobody knows what was "
                "seen; resume from a checkpoint that was written with provenance, or prov.load_state_dict(state) first"
            )
        with safe_open(found, "pt") as file:
            words = file.metadata()
        self.prov.load_state_dict({**load_file(found), **words})

    def _take(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Before the model: the index out of the batch."""
        self.index, self.items = kwargs.get(INDEX), kwargs.get("num_items_in_batch")
        return args, {name: value for name, value in kwargs.items() if name != INDEX}

    def _add(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        """After the model: the index loss on top of its own."""
        index, self.index = self.index, None
        if not module.training:
            return output
        if index is None:
            raise UsageError(
                "a batch of training has no column index: train on prov.dataset(), and give the Trainer all of "
                "**prov.for_trainer(); of a data set of your own with such a column set remove_unused_columns=False"
            )
        own = self.prov.loss(index)
        if self.items is not None:  # the loss of a step is a mean over all of its batches then, not over each
            own = own * (len(index) / self.items)
        if isinstance(output, tuple):
            return (output[0] + own.to(output[0].device), *output[1:])
        if (output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)) is None:
            raise UsageError(
                "the model gives no loss: the batches need labels, or add prov.loss(index) to a loss of yours"
            )
        output["loss"] = output["loss"] + own.to(output["loss"].device)
        return output

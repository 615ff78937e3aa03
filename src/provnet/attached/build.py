"""A network around somebody's model: the model asked about two samples, its layer found, and what cannot be refused."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from provnet.base.errors import DataError, UsageError
from provnet.data.dataset import Dataset, DataSpec, image_data
from provnet.data.open import has_split
from provnet.heads.index_map import IndexMap
from provnet.models.attached import AttachedNet, Prepare, Transform, key_width, moved
from provnet.models.backbones import only_asked
from provnet.models.tap import Reader, locate, unwrapped

FIRST = 2  # samples that the model is asked about when it is attached
BYTES = 255.0


def build_around(
    model: nn.Module,
    data: Dataset,
    at: Any = "auto",
    *,
    pool: str | Reader | None = None,
    transform: Transform | None = None,
    groups: str | None = None,
    trained: bool = False,
) -> AttachedNet:
    """The network that names samples of the data by the features of a model; its keys are not set yet.

    >>> import provnet
    >>> data = provnet.open_data("embedded", limit=20)
    >>> build_around(nn.Sequential(nn.Flatten(), nn.Linear(784, 10)), data).index_head.keys.shape
    torch.Size([20, 512])
    """
    image_data("the training data", data)
    if len(data) == 0:
        raise DataError("there are no samples to attach to; open some")
    if groups not in (None, "class"):
        raise UsageError(f'groups must be "class" or None (among all samples), got {groups!r:.80}')
    if transform is not None and not callable(transform):
        raise UsageError(f"transform must be a function of one stored sample, got {transform!r:.80}")
    if transform is not None and data.items is not None:
        raise UsageError(
            "transform= is for one tensor per sample; what makes inputs of samples of modality "
            f"{data.modality.name} is that modality"
        )
    if data.samples.grouping is None:
        raise UsageError("the samples have no labels, and a model that gives class scores has classes; open both")
    own = unwrapped(model)
    if next(own.parameters(), None) is None:
        raise UsageError(f"the {type(own).__name__} has no parameters; give a model that learns, or has learned")
    scale = BYTES if data.inputs.dtype == torch.uint8 else 1.0
    prepare = Prepare(data.inputs.dtype, scale, transform, None if data.items is None else data.modality)
    rows = torch.arange(FIRST) % len(data)
    inputs = moved(prepare(data.inputs[rows]), next(own.parameters()).device)
    tap = locate(own, inputs, at, pool)
    with only_asked(own):
        taken = tap.read(inputs)
    names = data.class_names
    if taken.logits.shape[1] != len(names):
        raise UsageError(
            f"the model gives {taken.logits.shape[1]} class scores, the data have {len(names)} classes; give all "
            "names in the order of the model's scores, open_data(..., class_names=[...]), or another last layer"
        )
    index_map = IndexMap(data.samples.labels, len(names))
    features = taken.features.shape[1]
    sizes = features, key_width(features, trained=trained)
    return AttachedNet(tap, sizes, index_map, prepare, conditional=groups is not None)


def test_split(spec: DataSpec) -> DataSpec | None:
    """How to open the test split of a source, where it has one."""
    with suppress(UsageError):  # the source may have been moved since it was opened
        if spec.split == "train" and has_split(spec, "test"):
            return replace(spec, split="test")
    return None

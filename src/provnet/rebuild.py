"""From a checked config, sample table and weights file to a network; shapes are compared before memory is taken."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from provnet.data.identity import SampleTable
from provnet.errors import IntegrityError, UnsafeFileError, UsageError
from provnet.indexing import IndexMap
from provnet.models.config import NetworkConfig
from provnet.models.provenance import NETWORKS, Normalise, ProvenanceNet, build
from provnet.runconfig import CUSTOM
from provnet.safefile import Layout, compare_layouts, layouts_of, read_layouts, read_tensors

TABLE = 1 << 27  # entries of the index map's table, or of the single branch's class table


def rebuild(
    config: NetworkConfig, samples: SampleTable, file: io.BufferedReader, backbone: nn.Module | None = None
) -> ProvenanceNet:
    """Build the network that the config names and load its weights; in evaluation mode, on the CPU."""
    if config.backbone == CUSTOM and backbone is None:
        raise UsageError("this run was trained with a backbone given as object; give it again: backbone=module")
    if config.backbone != CUSTOM and backbone is not None:
        raise UsageError(f'this run has the backbone "{config.backbone}" of provnet; leave the backbone argument out')
    network = _build(config, samples, backbone)
    found, expected = read_layouts(file), layouts_of(network.state_dict())
    _compare_head(found, expected, len(samples), file.name)
    weights = read_tensors(file, expected)
    network.load_state_dict(weights, strict=True, assign=backbone is None)
    return network.eval()


def check_state(config: NetworkConfig, samples: SampleTable, state: Mapping[str, Tensor], name: str) -> None:
    """See that a network can be read back from what will be written of it."""
    found = layouts_of(state)
    if config.backbone == CUSTOM:  # cannot be built without the object: its head must still fit the samples
        shared = NETWORKS[config.network].head == "shared" and config.head == "plain"
        rows = int(torch.bincount(torch.from_numpy(samples.labels)).max()) if shared else len(samples)
        rows_of = "index_head.linear.weight" if config.head == "plain" else "index_head.keys"
        _compare_head(found, {rows_of: Layout("", (rows, *found[rows_of].shape[1:]))}, len(samples), name)
        return
    expected = layouts_of(_build(config, samples, None).state_dict())
    _compare_head(found, expected, len(samples), name)
    compare_layouts(found, expected, name)


def _build(config: NetworkConfig, samples: SampleTable, backbone: nn.Module | None) -> ProvenanceNet:
    """Named networks are built without memory for weights; one with a given backbone for real, but reproducibly."""
    classes = len(samples.class_names)
    if config.classes != classes:
        raise IntegrityError(f"config.json has {config.classes:,} classes, samples.safetensors {classes:,}")
    largest = int(torch.bincount(torch.from_numpy(samples.labels)).max()) if len(samples) else 0
    by_class = config.network == "single" and config.head == "plain"
    wide = max(classes * largest, classes * len(samples) if by_class else 0)
    if wide > TABLE:
        raise UnsafeFileError(f"{len(samples):,} samples in {classes:,} classes need a table past the limit {TABLE:,}")
    try:
        index_map = IndexMap(samples.labels, classes)
        if backbone is not None:
            with torch.random.fork_rng(devices=[]):
                return build(config, index_map, backbone.to("cpu")).to("cpu")
        with torch.device("meta"):
            network = build(config, index_map)
    except (UsageError, RuntimeError) as error:
        raise IntegrityError(f"config.json describes a network that cannot be built: {error}") from None
    network.normalise = Normalise(config)  # small, and not among the weights: real values
    return network


def _compare_head(found: Mapping[str, Layout], expected: Mapping[str, Layout], n: int, path: Any) -> None:
    """The one contradiction that deserves its own words: who stands behind an index."""
    for name in ("index_head.linear.weight", "index_head.keys"):
        if name in found and name in expected and found[name].shape[:1] != expected[name].shape[:1]:
            rows = f"{expected[name].shape[0]:,} rows"
            raise IntegrityError(
                f"samples.safetensors has {n:,} samples, for which the index head needs {rows}; "
                f"{path} has {', '.join(map(str, found[name].shape[:1]))}"
            )

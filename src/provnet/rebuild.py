"""From a checked config, sample table and weights file to a network; shapes are compared before memory is taken."""

from __future__ import annotations

import copy
import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from provnet.data.identity import SampleTable
from provnet.errors import IntegrityError, UnsafeFileError, UsageError
from provnet.indexing import IndexMap
from provnet.models.backbones import StandIn
from provnet.models.config import NetworkConfig
from provnet.models.provenance import Normalise, ProvenanceNet, build
from provnet.models.support import LOOKS, Support
from provnet.runconfig import CUSTOM, RunConfig
from provnet.safefile import Layout, all_finite, compare_layouts, layouts_of, read_layouts, read_tensors

STEPS = "index_head.steps"
_LOOKS = "support.looks."  # runs of pictures had none at first
_HEAD = "index_head."  # as large as there are samples
TABLE = 1 << 27  # entries of the index map's table, or of the single branch's class table


def rebuild(
    config: NetworkConfig, samples: SampleTable, file: io.BufferedReader, backbone: nn.Module | None = None
) -> ProvenanceNet:
    """Build the network that the config names and load its weights; in evaluation mode, on the CPU.

    A backbone given as object is copied: two networks never share its weights.
    """
    if config.backbone == CUSTOM and backbone is None:
        raise UsageError(
            "this run was trained with a backbone given as object; give it again, in Python: provnet.load(folder, "
            'backbone=module), or for any command provnet.cli.main(["explain", ...], backbone=module)'
        )
    if backbone is not None and not isinstance(backbone, nn.Module):
        raise UsageError(f"backbone must be an nn.Module, the one that the run was trained with; got {backbone!r:.80}")
    if config.backbone != CUSTOM and backbone is not None:
        raise UsageError(f'this run has the backbone "{config.backbone}" of provnet; leave the backbone argument out')
    network = _build(config, samples, None if backbone is None else own_copy(backbone))
    found = read_layouts(file)
    _open_looks(network, found)
    expected = layouts_of(network.state_dict())
    if backbone is not None:
        _compare_backbone(found, expected)
    _compare_head(found, expected, len(samples), file.name)
    plain = config.key_type == "bf16" and STEPS not in found  # bf16 keys had no factors at first
    weights = read_tensors(file, {name: one for name, one in expected.items() if not (plain and name == STEPS)})
    if plain:
        weights[STEPS] = 1 / torch.linalg.vector_norm(weights["index_head.keys"].float(), dim=1).clamp(min=1e-12)
    network.load_state_dict(weights, strict=True, assign=backbone is None)
    if backbone is None:
        _check_answer(network.eval(), config, file.name)
    return network.eval()


def _check_answer(network: ProvenanceNet, config: NetworkConfig, name: str) -> None:
    """Refuse weights that are finite, but by which the answer to a usual input is not."""
    mean, std = network.normalise.mean, network.normalise.std
    usual = [((mean + steps * std) * config.scale).expand(1, *config.input_shape) for steps in (0, 1)]
    with torch.inference_mode():
        output = network(torch.cat(usual))
        support = network.support(output.support_features, output.classes)
    best = [] if output.index_scores is None else [output.index_scores.amax(1)]  # slots without a sample have -inf
    if not all(map(all_finite, (output.features, output.logits, output.index_features, support, *best))):
        raise IntegrityError(f"{name}: by these weights the answer to a usual input is not finite; restore the run")


def own_copy(backbone: nn.Module) -> nn.Module:
    """A copy of a module that somebody gave, with its hooks and on its device; the original is left as it is.

    >>> given = nn.Linear(2, 3)
    >>> torch.equal(own_copy(given).weight, given.weight)
    True
    """
    known: dict[int, Any] = {}
    for part in backbone.modules():  # torch does not copy what a module keeps of its last pass; values are enough
        kept = [value for value in vars(part).values() if isinstance(value, Tensor) and not value.is_leaf]
        known |= {id(value): value.detach().clone() for value in kept}
    try:
        with torch.inference_mode(False):  # a copy made in that mode could not be trained
            copied = copy.deepcopy(backbone, known)
        return copied.float() if torch.get_default_dtype() == torch.float64 else copied  # it may be of that default
    except (RuntimeError, TypeError) as error:
        raise UsageError(
            f"the backbone cannot be copied ({error}); a run keeps a copy of its own, so give a module that "
            "copy.deepcopy can copy"
        ) from None


@contextmanager
def float32_default() -> Iterator[None]:
    """Networks are made of float32 whatever torch's default is; the caller's own is put back.

    >>> with float32_default():
    ...     nn.Linear(2, 3).weight.dtype
    torch.float32
    """
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(usual)


def check_state(config: NetworkConfig, samples: SampleTable, state: Mapping[str, Tensor], backbone: nn.Module) -> None:
    """See that a network can be read back from what will be written of it; `backbone` is its own."""
    found, given = layouts_of(state), None
    if config.backbone == CUSTOM:  # reading gives the same module again, around which all else is built
        given = StandIn(backbone, config.input_shape)
        found = {name: one for name, one in found.items() if not name.startswith("backbone.")}
    network = _build(config, samples, given)
    _open_looks(network, found)
    expected = layouts_of(network.state_dict())
    _compare_head(found, expected, len(samples), "network")
    try:
        compare_layouts(found, expected, "the network")
    except IntegrityError as error:
        raise UsageError(
            f"this network cannot be saved as a run, since nothing could read it again: {error}; save one that "
            "provnet.training.fit.fit or provnet.models.provenance.build made, or keep the weights of this one "
            "yourself (safetensors.torch.save_model)"
        ) from None


def check_table(config: RunConfig, samples: SampleTable, name: str) -> None:
    """See that the table is that of the samples that were trained on: one of another run would name wrong ones.

    The run keeps their fingerprint. It says nothing of what is left once some were erased, nor of a table that holds
    the indexed samples alone.
    """
    data, subset = config.training.get("data"), config.training.get("subset")
    data = data if isinstance(data, Mapping) else {}
    then = data.get("fingerprint")
    more = isinstance(subset, Mapping) and subset.get("rest_content") is not None
    if then is None or more or config.erased:
        return
    own = samples.select(~samples.added) if samples.added.any() else samples
    if own.fingerprint != then:
        raise IntegrityError(
            f"{name} is not the sample table of this run: it has {len(own):,} samples with the fingerprint "
            f"{own.fingerprint[:12]}, the training data {data.get('samples')} with {str(then)[:12]}; take the files "
            "from one and the same run"
        )


def _build(config: NetworkConfig, samples: SampleTable, backbone: nn.Module | None) -> ProvenanceNet:
    """Named networks are built without memory for weights; one with a given backbone for real, but reproducibly."""
    classes = len(samples.class_names)
    if config.classes != classes:
        raise IntegrityError(f"config.json has {config.classes:,} classes, samples.safetensors {classes:,}")
    largest = int(torch.bincount(torch.tensor(samples.labels)).max()) if len(samples) else 0
    by_class = config.network == "single" and config.head == "plain"
    wide = max(classes * largest, classes * len(samples) if by_class else 0)
    if wide > TABLE:
        raise UnsafeFileError(f"{len(samples):,} samples in {classes:,} classes need a table past the limit {TABLE:,}")
    try:
        index_map = IndexMap(samples.labels, classes)
        if backbone is not None:
            with torch.random.fork_rng(devices=[]), float32_default():
                return build(config, index_map, backbone.to("cpu")).to("cpu")
        with torch.device("meta"), float32_default():
            network = build(config, index_map)
    except (UsageError, RuntimeError) as error:
        if backbone is not None:
            raise UsageError(f"the backbone given is not the one that this run was trained with: {error}") from None
        raise IntegrityError(f"config.json describes a network that cannot be built: {error}") from None
    network.normalise = Normalise(config)  # small, and not among the weights: real values
    return network


def _open_looks(network: ProvenanceNet, found: Mapping[str, Layout]) -> None:
    """Make room for the spread of the pictures' looks, where the run has it."""
    if any(name.startswith(_LOOKS) for name in found):
        with float32_default():
            network.support.looks = Support(1, LOOKS)


def _compare_backbone(found: Mapping[str, Layout], expected: Mapping[str, Layout]) -> None:
    """Weights that do not fit the module that was given tell of another module, not of damage."""
    wanted, there = ({name: one for name, one in of.items() if not name.startswith(_HEAD)} for of in (expected, found))
    try:
        compare_layouts(there, wanted, "the run")
    except IntegrityError as error:
        raise UsageError(f"the backbone given is not the one that this run was trained with: {error}") from None


def _compare_head(found: Mapping[str, Layout], expected: Mapping[str, Layout], n: int, path: Any) -> None:
    """The one contradiction that deserves its own words: who stands behind an index."""
    for name in ("index_head.linear.weight", "index_head.keys"):
        if name in found and name in expected and found[name].shape[:1] != expected[name].shape[:1]:
            rows = f"{expected[name].shape[0]:,} rows"
            raise IntegrityError(
                f"samples.safetensors has {n:,} samples, for which the index head needs {rows}; "
                f"{path} has {', '.join(map(str, found[name].shape[:1]))}"
            )

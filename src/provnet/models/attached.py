"""AttachedNet: a provenance network around a finished or foreign model, whose weights are its owner's.

The class scores are the model's own, bit for bit, in one forward pass. Samples are compared by the features that a tap
reads, standardised or whitened. Nothing here has parameters.

Letters: B batch, C classes, D features.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from provnet.base.batches import Fields, Inputs
from provnet.base.errors import IntegrityError, UsageError
from provnet.data.modalities.modality import Modality
from provnet.data.modalities.text import trimmed
from provnet.heads.heads import ExemplarHead, IndexHead
from provnet.heads.index_map import IndexMap
from provnet.heads.support import Support, looks_of
from provnet.models.backbones import only_asked
from provnet.models.network import WIDEST_KEY, AttachedModel, IndexTrunk, NetworkConfig, ProvenanceNet, Seen
from provnet.models.tap import Reader, Tap, ask, class_scores, module_at, unwrapped
from provnet.models.whitening import KeySpace

SCALE = 16.0  # of the cosine: fixed, so that the user's optimiser has nothing of ours to train
Transform = Callable[[Any], Any]  # a stored sample -> the model's input, a tensor or tensors by name
OWN = "input"  # the one tensor of Fields that are the model's own input, and no stored samples
# types of samples as they are kept
STORED = {"uint8": torch.uint8, "float32": torch.float32, "int32": torch.int32, "int64": torch.int64}
_PASS = threading.Lock()  # hooks are the model's: two passes at once would read each other's features


class Given(NamedTuple):
    """What a run that is attached to a model does not hold, and is given again when it is read."""

    model: nn.Module
    at: Reader | None = None
    pool: Reader | None = None
    transform: Transform | None = None
    modality: Modality | None = None  # of samples that are made ready by an object, such as a tokenizer


class Prepare(nn.Module):
    """From stored samples to the model's input: one deterministic function of each sample.

    By default pictures of bytes become float32 in 0..1 and everything else stays as it is. Floats stand for bytes where
    those are stored: a distorted picture is still in units of 0..255.

    >>> Prepare(torch.uint8, 255.0)(torch.full((1, 1, 1, 1), 255, dtype=torch.uint8)).tolist()
    [[[[1.0]]]]
    """

    def __init__(
        self,
        stored: torch.dtype,
        scale: float,
        transform: Transform | None = None,
        modality: Modality | None = None,
    ) -> None:
        super().__init__()
        self.stored, self.scale, self.transform, self.modality = stored, scale, transform, modality

    def forward(self, inputs: Inputs) -> Any:
        """(B, ...) stored -> what the model takes; the model's own input stays as it is."""
        if isinstance(inputs, Fields):
            return inputs[OWN] if tuple(inputs.keys()) == (OWN,) else trimmed(dict(inputs.named()))
        if self.transform is None:
            return inputs.float() / self.scale if self.scale != 1 else inputs.to(self.stored)
        if inputs.requires_grad:
            return self._with_gradient(inputs)
        if inputs.dtype != self.stored and self.stored == torch.uint8:
            inputs = inputs.round().clamp(0, 255)
        return moved(stacked([self.transform(one) for one in inputs.to(self.stored).cpu()]), inputs.device)

    def _with_gradient(self, inputs: Tensor) -> Any:
        """The same with a gradient, where the function makes of floats what it makes of the stored type."""
        assert self.transform is not None
        kept = inputs.detach().round()
        plain, found = self(kept.to(self.stored)), stacked([self.transform(one) for one in inputs])
        same = stacked([self.transform(one) for one in kept])
        alike = isinstance(found, Tensor) and found.requires_grad and torch.allclose(same, plain, atol=1e-5)
        if not alike:
            raise UsageError(
                "transform= has no gradient that an attack could follow; leave attacks out (--attacks none), or let "
                "the model normalise its input itself"
            )
        return found


def stacked(inputs: list[Any]) -> Any:
    """Inputs of single samples as one batch; samples of different shapes are refused.

    >>> stacked([{"a": torch.zeros(2)}, {"a": torch.ones(2)}])["a"].shape
    torch.Size([2, 2])
    """
    first = inputs[0]
    if isinstance(first, Mapping):
        return {name: stacked([one[name] for one in inputs]) for name in first}
    tensors = [one if isinstance(one, Tensor) else torch.as_tensor(one) for one in inputs]
    if len({one.shape for one in tensors}) > 1:
        shapes = ", ".join(sorted({str(tuple(one.shape)) for one in tensors})[:3])
        raise UsageError(f"transform= gives samples of different shapes ({shapes}); all must have one")
    return torch.stack(tensors)


def moved(inputs: Any, device: torch.device | str) -> Any:
    """A tensor, or tensors by name, on a device."""
    if isinstance(inputs, Mapping):
        return {name: one.to(device) for name, one in inputs.items()}
    return inputs.to(device)


class AttachedNet(ProvenanceNet):
    """Somebody's model with a tap and a head of keys. The model itself is never written, copied or changed.

    While one of its passes lasts the model is in evaluation mode; then it is as it was before.
    """

    index_head: ExemplarHead

    def __init__(
        self, tap: Tap, features: int, index_map: IndexMap, prepare: Prepare, *, conditional: bool = False
    ) -> None:
        width = min(features, WIDEST_KEY)
        space = KeySpace(features, width)
        super().__init__(
            normalise=prepare,  # type: ignore[arg-type]
            backbone=tap.model,
            task_head=nn.Identity(),  # the model's own
            index_trunk=IndexTrunk(space),
            index_head=ExemplarHead(width, index_map, conditional=conditional, scale=SCALE),
            index_map=index_map,
            support=Support(index_map.classes, features),
        )
        self.tap, self.prepare, self.space = tap, prepare, space
        self._weights: tuple[str, tuple[int, ...]] | None = None

    def _know_samples(self, index_head: IndexHead, index_map: IndexMap) -> None:
        super()._know_samples(index_head, index_map)
        self.has_empty = self.has_empty and self.index_head.conditional  # else the answer is the model's own

    @property
    def fixed_features(self) -> bool:
        """Never: nobody knows whether a model that came finished has learned from these labels."""
        return False

    def freeze(self, sha256: str | None = None) -> str:
        """From here on the model must have the weights of now; their SHA-256."""
        found = sha256 or weights_sha256(self.tap.model)
        self._weights = found, _versions(self.tap.model)
        return found

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """All but the model, which is not part of a run."""
        prefix = kwargs.get("prefix", "")
        state: dict[str, Any] = super().state_dict(*args, **kwargs)
        for name in [name for name in state if name.startswith((f"{prefix}backbone.", f"{prefix}space."))]:
            del state[name]
        return state

    def train(self, mode: bool = True) -> AttachedNet:
        """The mode of all but the model, which is its owner's."""
        self.training = mode
        for name, part in self.named_children():
            if name != "backbone":
                part.train(mode)
        return self

    def see(self, inputs: Any) -> Seen:
        """Features, class scores and looks of stored samples, or of the model's own inputs: one pass of the model."""
        self._same_weights()
        where = self.index_map.labels.device
        given = moved(self.normalise(inputs), next(self.tap.model.parameters()).device)
        with _PASS, only_asked(self.tap.model):
            taken = self.tap.read(given)
        logits = taken.logits.to(where)
        if logits.shape[1] != self.index_map.classes:
            raise UsageError(
                f"the model gives {logits.shape[1]} class scores, the training samples have {self.index_map.classes}"
            )
        pictures = isinstance(given, Tensor) and given.ndim == 4 and given.is_floating_point()
        looks = looks_of(given).to(where) if pictures else None
        return Seen(taken.features.float().to(where), self._without_empty(logits), looks)

    def features(self, inputs: Any) -> Tensor:
        """Those that `see` sees, alone."""
        return self.see(inputs).features

    def graded_scores(self, inputs: Any) -> Tensor:
        """(B, C) with a gradient for the inputs, as far as transform has one."""
        if not self.tap.place.scores:
            raise UsageError("this run has no classes, so there is no answer to attack; leave attacks out")
        with only_asked(self.tap.model), torch.enable_grad():
            return class_scores(ask(self.tap.model, self.normalise(inputs)))

    def _same_weights(self) -> None:
        """Refuse a model that was trained on since: the keys are of the weights of then."""
        if self._weights is None:
            return
        then, versions = self._weights
        now = _versions(self.tap.model)
        if now == versions:
            return
        if weights_sha256(self.tap.model) != then:
            raise IntegrityError(
                "the model's weights have changed since its samples were indexed: its keys are those of the weights of "
                "then; load these again, or index the samples anew: provnet.index(model, data)"
            )
        self._weights = then, now


def described(net: AttachedNet, sha256: str) -> AttachedModel:
    """What a run keeps of its model: never the weights themselves."""
    place, prepare = net.tap.place, net.prepare
    return AttachedModel(
        name=type(net.tap.model).__name__,
        sha256=sha256,
        module=place.module,
        side=place.side,
        pool=place.pool,
        scores=place.scores,
        features=int(net.support.mean.shape[1]),
        width=int(net.index_head.keys.shape[1]),
        stored=next(name for name, dtype in STORED.items() if dtype == prepare.stored),
        transform=_name(prepare.transform),
    )


def _name(transform: Transform | None) -> str:
    """What a function is called; "" for none."""
    if transform is None:
        return ""
    return str(getattr(transform, "__qualname__", type(transform).__qualname__))


def build_attached(config: NetworkConfig, index_map: IndexMap, given: Given | None) -> AttachedNet:
    """The network of a run around the model given; without one around nothing, for its layout alone."""
    about = config.attached
    assert about is not None
    model = nn.Identity() if given is None else unwrapped(given.model)
    if given is not None:
        _refuse_other_model(model, about, given)
    tap = Tap(model, about.place, function=given and given.at, pool=given and given.pool)
    prepare = Prepare(STORED[about.stored], config.scale, given and given.transform, given and given.modality)
    conditional = config.network.startswith("class-conditional")
    return AttachedNet(tap, about.features, index_map, prepare, conditional=conditional)


def _refuse_other_model(model: nn.Module, about: AttachedModel, given: Given) -> None:
    wanted = {"at": about.side == "function", "pool": about.pool == "function", "transform": bool(about.transform)}
    for name, needed in wanted.items():
        have = getattr(given, name) is not None
        if needed != have:
            words = f"was made with {name}= ({about.transform or 'a function'})" if needed else f"has no {name}="
            way = f"give it again: provnet.load(folder, model=..., {name}=...)" if needed else "leave it out"
            raise UsageError(f"this run {words}; {way}")
    now = weights_sha256(model)
    if now != about.sha256:
        raise IntegrityError(
            f"the model given is not the one that this run was attached to: a {type(model).__name__} with weights "
            f"{now[:12]}, the run's is a {about.name} with {about.sha256[:12]}; load the weights of then into it first"
        )
    if about.module:
        module_at(model, about.module)


def _versions(model: nn.Module) -> tuple[int, ...]:
    """What changes whenever weights are written to; it costs nothing."""
    return tuple(part for one in model.state_dict(keep_vars=True).values() for part in _version(one))


def _version(value: Any) -> tuple[int, ...]:
    return (id(value), value._version) if isinstance(value, Tensor) and not value.is_inference() else ()


def weights_sha256(model: nn.Module) -> str:
    """SHA-256 over the names, types, shapes and bytes of a model's weights and buffers.

    >>> a, b = nn.Linear(2, 3), nn.Linear(2, 3)
    >>> _ = b.load_state_dict(a.state_dict())
    >>> weights_sha256(a) == weights_sha256(b), len(weights_sha256(a))
    (True, 64)
    """
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        if not isinstance(value, Tensor):
            continue
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        flat = value.detach().contiguous().reshape(-1)
        raw = flat.view(torch.uint8) if flat.numel() else flat.to(torch.uint8)
        digest.update(np.ascontiguousarray(raw.cpu().numpy()).data)
    return digest.hexdigest()

"""ProvenanceNet: one backbone, a class branch and an index branch; NETWORKS: the paper's four, by name.

Letters: B batch, C classes, D features, N samples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from provnet.base.batches import is_matrix
from provnet.base.errors import UsageError, choose, one_of
from provnet.base.options import check_network, check_number
from provnet.data.modalities.decode import are_pictures, is_picture
from provnet.heads.exemplar import ExemplarHead
from provnet.heads.heads import INDEX_HEADS, IndexHead
from provnet.heads.index_map import IndexMap
from provnet.heads.scores import Equal, Scores
from provnet.heads.support import Support, looks_of
from provnet.models.backbones import BACKBONES, SHARING, branch, custom_design, cut_at, output_shape


@dataclass(frozen=True)
class NetworkConfig:
    """A network of the closed tables NETWORKS and BACKBONES.

    Attributes:
        network: a name in NETWORKS.
        backbone: a name in BACKBONES or SHARING, or `custom` for a module given as object (needed again at load).
        input_shape: (C, H, W) or (F,).
        classes: C, empty classes included.
        mean, std: one a channel (or a feature), in units of `raw / scale`.
        scale: 255 for bytes, 1 for floats.
        conditional: concatenate the one-hot class (class-conditional only).
        alpha: label mixing, the probability that the target is another sample of the class.
        level: sharing level of the backbones of app. 7.6.
        head: a name in HEADS; `plain` is the paper's output layer.
        key_width, key_scale, key_type: of an exemplar head: features of a key (0: the backbone's own, or 128 of them
            where those are more than 512), factor of the cosine (0: learned), how keys are stored (fp32, bf16, int8).
    """

    network: str
    backbone: str
    input_shape: tuple[int, ...]
    classes: int
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    scale: float = 1.0
    conditional: bool = True
    alpha: float = 0.0
    level: int = 3
    head: str = "plain"
    key_width: int = 0
    key_scale: float = 0.0
    key_type: str = "fp32"

    def __post_init__(self) -> None:
        check_network(self)
        if len(self.input_shape) not in (1, 3) or min(self.input_shape) < 1:
            raise UsageError(f"input_shape must be (C, H, W) or (F,) with positive sizes, got {self.input_shape}")
        if self.classes < 1:
            raise UsageError(f"classes must be 1 or more, got {self.classes}")
        if len(self.mean) != len(self.std) or len(self.mean) not in (1, self.input_shape[0]):
            raise UsageError(f"mean and std need one value or {self.input_shape[0]}, got {len(self.mean)}")
        if not all(math.isfinite(v) for v in (*self.mean, *self.std, self.scale)) or min(*self.std, self.scale) <= 0:
            raise UsageError("mean, std and scale must be finite, std and scale above 0")
        check_number("key_scale", self.key_scale)
        if not 0 <= self.key_scale <= 64:
            raise UsageError(f"key_scale must lie in 0..64, 0 to have it learned; got {self.key_scale}")

    def to_json(self) -> dict[str, Any]:
        """A plain dictionary for config.json."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> NetworkConfig:
        """The inverse of `to_json`; lists become tuples.

        >>> config = NetworkConfig("single", "mlp", (4,), classes=2)
        >>> NetworkConfig.from_json(config.to_json()) == config
        True
        """
        plain: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in value.items()}
        return cls(**plain)


def shape_words(shape: tuple[int, ...], given: tuple[int, ...]) -> str:
    """What to do with samples of another shape than a network takes.

    >>> shape_words((1, 28, 28), (28, 28))
    'this network takes samples of shape (1, 28, 28), got (28, 28); add the axis of the channel: images[:, None]'
    """
    way = "resize them first"
    if is_picture(shape) and shape[0] == 1 and given == shape[1:]:
        way = "add the axis of the channel: images[:, None]"
    elif is_picture(shape) and given == (*shape[1:], shape[0]):
        way = "bring the channels to the front: numpy.moveaxis(images, -1, 1)"
    return f"this network takes samples of shape {shape}, got {given}; {way}"


# backbones that also make pictures, see `models.generators`
GENERATORS = ("vae-paper", "vae-paper-mean", "vae-faces", "vae-modern")


class Normal(NamedTuple):
    """A normal distribution of latents, independent in each: mean and log of the variance, (B, L) or () for all."""

    mean: Tensor
    log_variance: Tensor


class Made(NamedTuple):
    """A batch rebuilt through sampled latents: everything that the generative losses need."""

    target: Tensor  # (B, C, H, W) pixels in [0, 1]
    logits: Tensor  # (B, C, H, W) of the rebuilt pixels
    posterior: Normal  # q(z | x)
    prior: Normal  # p(z), or p(z | class)
    feature: Tensor  # () distance of the features of both pictures; 0 where there is none
    warmth: Tensor  # () what the divergence counts now, 0..1
    weight: float  # what all of this counts beside class and index


WIDEST_KEY, NARROW_KEY = 512, 128
NEVER = -1e4  # the score of a class that cannot be, or less: finite, and its probability is exactly zero


class ProvenanceOutput(NamedTuple):
    """What a provenance network says of a batch."""

    features: Tensor  # backbone's output: (B, D), or feature maps at sharing levels 1-3
    logits: Tensor  # (B, C) class scores
    classes: Tensor  # (B,) the classes that the index branch was conditioned on
    index_features: Tensor  # (B, D) last hidden layer of the index branch
    index_scores: Tensor | None  # (B, slots), only the head knows what a slot is; None where keys stand for outputs
    looks: Tensor | None = None  # (B, 3) of pictures, see `models.support`; not in training
    made: Made | None = None  # what a generator made, while it is trained

    @property
    def support_features(self) -> Tensor:
        """(B, D) features that `Support` measures: the backbone's, or the index branch's where those are maps."""
        return self.features if is_matrix(self.features) else self.index_features


class Normalise(nn.Module):
    """Raw pixels or values -> (x / scale - mean) / std, one mean and std a channel."""

    mean: Tensor
    std: Tensor

    def __init__(self, config: NetworkConfig, *, own: bool = True) -> None:
        super().__init__()
        # another's backbone may take the pixels in the order they usually have
        self.channels_last = own and is_picture(config.input_shape)
        shape = (1, -1) + (1,) * (len(config.input_shape) - 1)
        self.input_shape = config.input_shape
        self.scale = config.scale
        self.register_buffer("mean", torch.tensor(config.mean, dtype=torch.float32).reshape(shape), persistent=False)
        self.register_buffer("std", torch.tensor(config.std, dtype=torch.float32).reshape(shape), persistent=False)

    @property
    def spread(self) -> Tensor:
        """The standard deviation of each channel or feature in raw units, to broadcast over one sample."""
        return self.std[0] * self.scale

    def forward(self, images: Tensor) -> Tensor:
        """(B, ...) raw -> (B, ...) float32."""
        if tuple(images.shape[1:]) != self.input_shape:
            raise UsageError(shape_words(self.input_shape, tuple(images.shape[1:])))
        values = (images.float() / self.scale - self.mean) / self.std
        if self.channels_last:  # convolutions, BatchNorm and pooling are faster this way
            return torch.empty_like(values, memory_format=torch.channels_last).copy_(values)
        return values.contiguous()


class IndexTrunk(nn.Module):
    """Hidden layers of the index branch; with `classes` > 0 the one-hot class is concatenated to the features."""

    def __init__(self, body: nn.Module, classes: int = 0) -> None:
        super().__init__()
        self.body = body
        self.classes = classes

    def forward(self, features: Tensor, classes: Tensor) -> Tensor:
        """(B, D), (B,) -> (B, D')."""
        if self.classes:
            features = torch.cat([features, F.one_hot(classes, self.classes).to(features.dtype)], 1)
        out: Tensor = self.body(features)
        return out


class ProvenanceNet(nn.Module):
    """A network that answers and names the training samples behind the answer.

    Without a task head (single branch) the class scores are the log-sum-exp of the index scores per class; they
    carry no gradient, since the paper trains that network on indices alone.

    >>> index_map = IndexMap([0, 0, 1])
    >>> net = build(NetworkConfig("class-independent", "mlp", (4,), classes=2), index_map).eval()
    >>> net(torch.zeros(5, 4)).index_scores.shape
    torch.Size([5, 3])
    """

    def __init__(
        self,
        *,
        normalise: Normalise,
        backbone: nn.Module,
        task_head: nn.Module | None,
        index_trunk: IndexTrunk,
        index_head: IndexHead,
        index_map: IndexMap,
        support: Support,
    ) -> None:
        super().__init__()
        self.normalise = normalise
        self.backbone = backbone
        self.task_head = task_head
        self.index_trunk = index_trunk
        self.index_head = index_head
        self.index_map = index_map
        self.support = support
        self.has_empty = bool((index_map.sizes == 0).any())
        if task_head is None:
            index_head.prepare_members()

    def forward(self, images: Tensor, classes: Tensor | None = None) -> ProvenanceOutput:
        """Raw images (B, ...) -> outputs. The index branch is conditioned on `classes`, else on the predicted ones."""
        values = self.normalise(images)
        output = self.answer(self.backbone(values), classes)
        return output if self.training or not are_pictures(values) else output._replace(looks=looks_of(values))

    def answer(self, features: Tensor, classes: Tensor | None = None) -> ProvenanceOutput:
        """The same from the backbone's features (B, D)."""
        if self.task_head is None:
            none = torch.zeros(len(features), dtype=torch.int64, device=features.device)
            index_features = self.index_trunk(features, none)
            scores = self.index_head.output(index_features, none)
            seen = None if scores is None else scores.detach()
            logits = self.index_head.scores(index_features.detach(), none, seen).by_class()
            return ProvenanceOutput(features, logits, logits.argmax(1), index_features, scores)
        logits = self._without_empty(self.task_head(features))
        given = logits.argmax(1) if classes is None else classes
        index_features = self.index_trunk(features, given)
        scores = self.index_head.output(index_features, given)
        return ProvenanceOutput(features, logits, given, index_features, scores)

    def scores(self, output: ProvenanceOutput, *, joint: bool = False, equal: Equal | None = None) -> Scores:
        """The scores behind an output: what can be asked about the samples that this network knows."""
        log_class = torch.log_softmax(output.logits.float(), 1) if joint else None
        return self.index_head.scores(output.index_features, output.classes, output.index_scores, log_class, equal)

    def _without_empty(self, logits: Tensor) -> Tensor:
        """A class without samples keeps its place but is never predicted."""
        if not self.has_empty:
            return logits
        never = (logits.detach().amin(1, keepdim=True) + NEVER / 2).clamp(max=NEVER)
        return torch.where(self.index_map.sizes == 0, never, logits)


def build(config: NetworkConfig, index_map: IndexMap, backbone: nn.Module | None = None) -> ProvenanceNet:
    """Build a network of the closed table, initialised as the paper says; `backbone` replaces the named one.

    >>> net = build(NetworkConfig("class-conditional", "small", (1, 8, 8), classes=2), IndexMap([0, 1, 1]))
    >>> net.index_head.to_index(torch.tensor([[1]]), torch.tensor([1])).tolist()
    [[2]]
    """
    kind = choose("network", config.network, NETWORKS)
    if config.classes != index_map.classes:
        raise UsageError(f"the config has {config.classes} classes, the index map {index_map.classes}")
    if config.backbone in GENERATORS and backbone is None:
        from provnet.models.vae import build_generator

        return build_generator(config, index_map)
    by_keys = config.head != "plain"  # keys of all classes share one space: the class is not concatenated
    concatenated = config.classes if kind.concatenates and config.conditional and not by_keys else 0
    parts = _parts(config, kind, concatenated, backbone)
    width = parts.index_width
    head: IndexHead
    head = _exemplar_head(width, config, kind, index_map) if by_keys else INDEX_HEADS[kind.head](width, index_map)
    task_head = nn.Sequential(parts.task, nn.Linear(parts.task_width, config.classes)) if kind.task else None
    trunk = IndexTrunk(parts.index, concatenated)
    for module in (task_head, trunk, head, parts.shared if backbone is None else None):
        if module is not None:
            _initialise(module)
    for layer in head.modules():
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, 0.0, 0.01)
    return ProvenanceNet(
        normalise=Normalise(config, own=backbone is None),
        backbone=parts.shared,
        task_head=task_head,
        index_trunk=trunk,
        index_head=head,
        index_map=index_map,
        support=Support(config.classes, parts.support_width),
    )


def _exemplar_head(width: int, config: NetworkConfig, kind: Kind, index_map: IndexMap) -> ExemplarHead:
    conditional = kind.head != "flat"
    return ExemplarHead(width, index_map, conditional=conditional, scale=config.key_scale, stored=config.key_type)


class _Parts(NamedTuple):
    """The layers below the two output layers, and how many features each branch ends with."""

    shared: nn.Module
    task: nn.Module
    task_width: int
    index: nn.Module
    index_width: int
    support_width: int


def _parts(config: NetworkConfig, kind: Kind, concatenated: int, backbone: nn.Module | None) -> _Parts:
    if backbone is None and config.backbone in SHARING:
        if concatenated:
            raise UsageError(f'backbone "{config.backbone}" has no class input; set conditional off (--no-conditional)')
        level = config.level if kind.task else 4
        cut = cut_at(config.backbone, config.input_shape, level)
        width = SHARING[config.backbone][3]
        if config.head == "plain":
            return _Parts(cut.shared, cut.task, width, cut.index, width, width)
        projection, key_width = _projection(width, config)
        measured = width if level == 4 else key_width  # below level 4 maps are shared: see `support_features`
        return _Parts(cut.shared, cut.task, width, nn.Sequential(cut.index, projection), key_width, measured)
    if backbone is None:
        one_of("backbone", config.backbone, ("auto", *BACKBONES, *SHARING))  # all that may be asked for
    design = custom_design(backbone) if backbone is not None else choose("backbone", config.backbone, BACKBONES)
    shared = backbone if backbone is not None else design.make(config.input_shape)
    features = output_shape(shared, config.input_shape)
    if len(features) != 1 or features[0] == 0:
        found = ", ".join(map(str, ("B", *features)))
        raise UsageError(f"a backbone must give (B, D) features, this one gives ({found}); end it with nn.Flatten()")
    if config.head == "plain":
        index, index_width = branch(features[0] + concatenated, design.trunk, design.last_dropout), design.trunk[-1][0]
    else:
        index, index_width = _projection(features[0], config)
    task, task_width = branch(features[0], design.task), design.task[-1][0] if design.task else features[0]
    return _Parts(shared, task, task_width, index, index_width, features[0])


def _projection(features: int, config: NetworkConfig) -> tuple[nn.Sequential, int]:
    """From features to keys, and their width. The features themselves serve best; wide ones are made narrower."""
    if config.key_width == 0 and features <= WIDEST_KEY:
        return nn.Sequential(), features
    width = config.key_width or NARROW_KEY
    return nn.Sequential(nn.Linear(features, width)), width


def _initialise(module: nn.Module) -> None:
    """App. 7.1: convolutions Kaiming fan_out, linear layers N(0, .02); BatchNorm is 1 and 0 as built."""
    for part in module.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(part, nn.Linear):
            nn.init.normal_(part.weight, 0.0, 0.02)
        else:
            continue
        if part.bias is not None:
            nn.init.zeros_(part.bias)


def parameter_count(module: nn.Module) -> int:
    """How many numbers are trained.

    >>> parameter_count(nn.Linear(2, 3))
    9
    """
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


@dataclass(frozen=True)
class Kind:
    """What tells the paper's networks apart."""

    head: str
    task: bool
    concatenates: bool


NETWORKS: dict[str, Kind] = {
    "single": Kind("flat", task=False, concatenates=False),
    "class-independent": Kind("flat", task=True, concatenates=False),
    "class-conditional": Kind("shared", task=True, concatenates=True),
    "class-conditional-heads": Kind("per-class", task=True, concatenates=False),
}

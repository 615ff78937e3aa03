"""ProvenanceNet: one backbone, a class branch and an index branch; NETWORKS: the paper's four, by name.

Letters: B batch, C classes, D features, N samples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import copy
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from provnet.base.batches import Inputs, at_once, is_matrix, keyed_generator
from provnet.base.errors import UsageError, choose, one_of
from provnet.base.options import check_network, check_number
from provnet.data.dataset import ResidentData
from provnet.data.modalities.decode import is_picture
from provnet.heads.heads import INDEX_HEADS, ExemplarHead, IndexHead, PerClassHead
from provnet.heads.index_map import IndexMap
from provnet.heads.losses import IndexLoss
from provnet.heads.scores import Equal, Scores
from provnet.heads.support import Support, looks_of
from provnet.models.backbones import BACKBONES, SHARING, Design, branch, custom_design, cut_at, output_shape
from provnet.models.pretrained import FOLDER, LITE0, Pretrained, from_folder
from provnet.models.tap import Place
from provnet.models.text import KEY as TEXT_KEY
from provnet.models.text import TEXT, Columns, TextEncoder, TextSupport, make_encoder, nearness
from provnet.models.vae import GENERATORS, VAE, sample
from provnet.models.whitening import KEY, KeySpace, Standardise
from provnet.tasks import TASKS
from provnet.tasks.generate import Made, Normal
from provnet.tasks.task import Task


@dataclass(frozen=True)
class AttachedModel:
    """What a run keeps of a model that it is attached to; its weights stay its owner's.

    Attributes:
        name: of its class.
        sha256: over its weights.
        module, side, pool: where features are read, see `models.tap.Place`.
        features, width: how many, and how many numbers a key has.
        stored: the type of the stored samples.
        transform: what the function from them to the model's input is called, "" for none.
        scores: whether the model gives class scores.
    """

    name: str
    sha256: str
    module: str
    side: str
    pool: str
    features: int
    width: int
    stored: str
    transform: str = ""
    scores: bool = True

    @property
    def place(self) -> Place:
        """Where features are read."""
        return Place(self.module, self.side, self.pool, self.scores)


@dataclass(frozen=True)
class NetworkConfig:
    """A network of the closed tables NETWORKS and BACKBONES.

    Attributes:
        network: a name in NETWORKS.
        backbone: a name in BACKBONES or SHARING, `text`, `huggingface` for a model that came in a folder, or `custom`
            for a module given as object (needed again at load).
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
        attached: the model of somebody else around which the network is, or None; the backbone is `custom` then.
        architecture: of `huggingface`: the layers as JSON, see `pretrained.folder_architecture`; of `text` its size.
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
    attached: AttachedModel | None = None
    architecture: str = ""

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

    @property
    def task(self) -> str:
        """What it is trained to say: a name in TASKS."""
        return "generate" if self.backbone in GENERATORS else "classify"

    def to_json(self) -> dict[str, Any]:
        """A plain dictionary for config.json; a model around it and an architecture only where there are any."""
        plain = asdict(self)
        return {name: value for name, value in plain.items() if name not in ("architecture", "attached") or value}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> NetworkConfig:
        """The inverse of `to_json`; lists become tuples.

        >>> config = NetworkConfig("single", "mlp", (4,), classes=2)
        >>> NetworkConfig.from_json(config.to_json()) == config
        True
        """
        plain: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in value.items()}
        if plain.get("attached") is not None:
            plain["attached"] = AttachedModel(**plain["attached"])
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


WIDEST_KEY, NARROW_KEY = 512, 128
NEVER = -1e4  # the score of a class that cannot be, or less: finite, and its probability is exactly zero


class ProvenanceOutput(NamedTuple):
    """What a provenance network says of a batch."""

    features: Tensor  # backbone's output: (B, D), or feature maps at sharing levels 1-3
    logits: Tensor  # (B, C) class scores
    classes: Tensor  # (B,) the classes that the index branch was conditioned on
    index_features: Tensor  # (B, D) last hidden layer of the index branch
    index_scores: Tensor | None  # (B, slots), only the head knows what a slot is; None where keys stand for outputs
    looks: Tensor | None = None  # (B, 3) of pictures, see `heads.support`; (B, 1) of texts; not in training
    made: Made | None = None  # what a generator made, while it is trained

    @property
    def support_features(self) -> Tensor:
        """(B, D) features that `Support` measures: the backbone's, or the index branch's where those are maps."""
        return self.features if is_matrix(self.features) else self.index_features


class Seen(NamedTuple):
    """What a network sees in a batch before its index branch is asked."""

    features: Tensor  # (B, D), or feature maps
    logits: Tensor | None  # (B, C) class scores; None: they are made of the index scores
    looks: Tensor | None = None  # (B, 3) of pictures, see `heads.support`; not in training


class Normalise(nn.Module):
    """Raw pixels or values -> (x / scale - mean) / std, one mean and std a channel."""

    mean: Tensor
    std: Tensor

    def __init__(self, config: NetworkConfig, *, own: bool = True) -> None:
        super().__init__()
        self.pictures = is_picture(config.input_shape)
        self.channels_last = own and self.pictures  # another's backbone may take pixels in the order they usually have
        shape = (1, -1) + (1,) * (len(config.input_shape) - 1)
        self.input_shape = config.input_shape
        self.scale = config.scale
        self.register_buffer("mean", torch.tensor(config.mean, dtype=torch.float32).reshape(shape), persistent=False)
        self.register_buffer("std", torch.tensor(config.std, dtype=torch.float32).reshape(shape), persistent=False)

    @property
    def spread(self) -> Tensor:
        """The standard deviation of each channel or feature in raw units, to broadcast over one sample."""
        return self.std[0] * self.scale

    def forward(self, images: Inputs) -> Tensor:
        """(B, ...) raw -> (B, ...) float32."""
        if not isinstance(images, Tensor):
            raise UsageError(f"this network takes one tensor per batch, got {type(images).__name__}")
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
    carry no gradient, since the paper trains that network on indices alone. A network with features and class scores of
    its own has another `see` and `features`, and any module as `task_head`: it says that there are class scores.

    >>> index_map = IndexMap([0, 0, 1])
    >>> net = build(NetworkConfig("class-independent", "mlp", (4,), classes=2), index_map).eval()
    >>> net(torch.zeros(5, 4)).index_scores.shape
    torch.Size([5, 3])
    """

    task: Task = TASKS["classify"]

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
        self._know_samples(index_head, index_map)
        self.support = support

    def _know_samples(self, index_head: IndexHead, index_map: IndexMap) -> None:
        self.index_head, self.index_map = index_head, index_map
        self.has_empty = bool((index_map.sizes == 0).any())
        if self.task_head is None:
            index_head.prepare_members()

    def with_head(self, index_head: IndexHead, index_map: IndexMap) -> Self:
        """The same network with another head and the map of the samples that may be predicted; all else is shared."""
        made = copy(self)
        made._modules = dict(self._modules)
        made._know_samples(index_head, index_map)
        return made.train(self.training)

    @property
    def fixed_features(self) -> bool:
        """Whether the backbone is frozen: its features were not learned from the labels of this training."""
        return not any(p.requires_grad for p in self.backbone.parameters())

    def on_features(self, width: int) -> Self:
        """The same network without its backbone: its inputs are the features (B, D) that a frozen one makes."""
        made = copy(self)
        made._modules = dict(self._modules)
        made.normalise = Normalise(NetworkConfig("single", "mlp", (width,), classes=1))
        made.backbone = nn.Identity()
        return made

    def forward(self, inputs: Inputs, classes: Tensor | None = None) -> ProvenanceOutput:
        """Raw inputs -> outputs. The index branch is conditioned on `classes`, or else on the predicted classes."""
        seen = self.see(inputs)
        output = self.answer(seen.features, seen.logits, classes)
        if isinstance(self.support, TextSupport) and not self.training:
            return output._replace(looks=nearness(self.index_head, output.index_features, output.classes))
        return output._replace(looks=seen.looks)

    def see(self, inputs: Inputs) -> Seen:
        """Features, class scores and looks of raw inputs (B, ...): all that depends on what an input is."""
        values = self.normalise(inputs)
        features = self.backbone(values)
        pictures = self.normalise.pictures and not self.training
        return Seen(features, self.class_scores(features), looks_of(values) if pictures else None)

    def features(self, inputs: Inputs) -> Tensor:
        """Those that `see` sees, alone."""
        found: Tensor = self.backbone(self.normalise(inputs))
        return found

    def graded_scores(self, inputs: Inputs) -> Tensor | None:
        """(B, C) of the class branch, with a gradient for the inputs; None without such a branch."""
        return None if self.task_head is None else self.task_head(self.features(inputs))

    def class_scores(self, features: Tensor) -> Tensor | None:
        """(B, C) of the class branch, (B, D) -> logits; None without one."""
        return None if self.task_head is None else self._without_empty(self.task_head(features))

    def answer(self, features: Tensor, logits: Tensor | None, classes: Tensor | None = None) -> ProvenanceOutput:
        """From features and class scores to the samples behind them."""
        pooled = self.pooled(features, logits)
        if logits is None:
            none = torch.zeros(len(features), dtype=torch.int64, device=features.device)
            index_features = self.index_trunk(pooled, none)
            scores = self.index_head.output(index_features, none)
            known = None if scores is None else scores.detach()
            logits = self.index_head.scores(index_features.detach(), none, known).by_class()
            return ProvenanceOutput(features, logits, self._groups(logits), index_features, scores)
        given = self._groups(logits) if classes is None else classes
        index_features = self.index_trunk(pooled, given)
        scores = self.index_head.output(index_features, given)
        return ProvenanceOutput(features, logits, given, index_features, scores)

    def pooled(self, features: Tensor, logits: Tensor | None) -> Tensor:
        """(B, D) features that the index branch looks at; a key of this network stands for a whole sample."""
        found = self.task.pool(features, logits)
        assert found.owner is None, "this network has one key for each sample, not for parts of it"
        return found.features

    def _groups(self, logits: Tensor) -> Tensor:
        """(B,) the groups to look in; one for all samples where the task has none."""
        group = self.task.answer(logits).group
        return torch.zeros(len(logits), dtype=torch.int64, device=logits.device) if group is None else group

    def after_epoch(self, samples: ResidentData, seed: int, epoch: int) -> dict[str, float]:
        """Figures for the log that need passes of their own over the training samples; none here."""
        return {}

    def after_training(self, images: Tensor, labels: Tensor) -> None:
        """What is learned from the training samples after the weights; nothing here."""

    def index_loss(self, output: ProvenanceOutput, index: Tensor, smoothing: float, negatives: int = 0) -> IndexLoss:
        """Cross-entropy of each target index (B,), and whether it was found; see `IndexHead.loss`."""
        given = output.index_features, output.classes, output.index_scores
        return self.index_head.loss(*given, index, smoothing, negatives)

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


class ProvenanceVAE(ProvenanceNet):
    """A provenance network whose backbone is a generator. While it is trained, latents are sampled.

    >>> config = NetworkConfig("class-conditional-heads", "vae-paper", (1, 28, 28), classes=2)
    >>> net = build(config, IndexMap([0, 1, 1])).eval()
    >>> net.picture(torch.zeros(4, 128), torch.zeros(4, dtype=torch.int64)).shape
    torch.Size([4, 1, 28, 28])
    """

    task = TASKS["generate"]

    @property
    def vae(self) -> VAE:
        """The generator itself."""
        return vae_of(self)

    def forward(self, inputs: Inputs, classes: Tensor | None = None) -> ProvenanceOutput:
        """Raw images (B, C, H, W) -> outputs; in training also the pictures rebuilt through sampled latents."""
        if not self.training:
            return super().forward(inputs, classes)
        vae, x = self.vae, self.normalise(inputs)
        posterior = vae.encode(x)
        hidden = vae.hidden(sample(posterior))
        features = vae.look(hidden)
        output = self.answer(features, self.class_scores(features), classes)
        logits = vae.paint(hidden, output.classes)
        made = Made(
            target=x,
            logits=logits,
            posterior=posterior,
            prior=vae.prior(output.classes),
            feature=vae.feature_loss(x, logits),
            warmth=vae.warmth(len(x)),
            weight=vae.weight,
        )
        return output._replace(made=made)

    def picture(self, z: Tensor, classes: Tensor) -> Tensor:
        """Latents (B, L) -> pixels in [0, 1] (B, C, H, W)."""
        return picture(self, z, classes)

    @torch.inference_mode()
    def after_epoch(self, samples: ResidentData, seed: int, epoch: int) -> dict[str, float]:
        """Class and index accuracy on training samples, at the mean of their latents and at drawn ones.

        The index is that of the given class's head. Large data are measured on every k-th sample.
        """
        if self.index_map.n != len(samples):
            return {}
        device, training = next(self.parameters()).device, self.training
        self.eval()
        hits = torch.zeros(4, dtype=torch.int64, device=device)
        every = torch.arange(0, len(samples), -(-len(samples) // MEASURED), device=samples.images.device)
        generator = keyed_generator(seed, epoch, DRAWN)
        for index in torch.split(every, features_at_once(samples.images, device)):
            images, labels = samples.batch(index)
            posterior = posterior_of(self, images)
            for place, z in enumerate((posterior.mean, sample(posterior, generator))):
                output = answer_at(self, z, labels)
                right = self.scores(output).best(1).index[:, 0] == index.to(device)
                hits[2 * place] += self.task.right(output.logits, labels).sum()
                hits[2 * place + 1] += right.sum()
        self.train(training)
        return dict(zip(FIGURES, (hits / len(every)).tolist(), strict=True))

    @torch.inference_mode()
    def after_training(self, images: Tensor, labels: Tensor) -> None:
        """How the latents of the training samples of each class are spread."""
        device = next(self.parameters()).device
        self.eval()
        parts = [posterior_of(self, part.to(device)) for part in torch.split(images, features_at_once(images, device))]
        whole = Normal(torch.cat([part.mean for part in parts]), torch.cat([part.log_variance for part in parts]))
        self.vae.settle(whole, labels.to(device))


MEASURED = 60_000  # samples that are looked at after an epoch
DRAWN = 11  # kind of randomness, beside order (1), targets (2) and others
FIGURES = ("class_at_mean", "index_at_mean", "class_at_sample", "index_at_sample")
SMALL = {"cpu": 1024, "cuda": 8192}  # samples at a time where they are small: features alone, without scores


def features_at_once(images: Inputs, device: torch.device) -> int:
    """How many of these go through a backbone at a time when nothing but features is asked for."""
    return at_once(images.shape[1:], device.type, SMALL[device.type])


def vae_of(net: ProvenanceNet) -> VAE:
    """The generator of a network; one without is refused."""
    if isinstance(net.backbone, VAE):
        return net.backbone
    raise UsageError("this run does not generate pictures; train one that does: provnet train DATA --task generate")


def posterior_of(net: ProvenanceNet, images: Tensor) -> Normal:
    """Raw images -> distribution of their latents."""
    return vae_of(net).encode(net.normalise(images))


def answer_at(net: ProvenanceNet, z: Tensor, classes: Tensor | None = None) -> ProvenanceOutput:
    """Class and index of what the decoder would make of latents z (B, L)."""
    vae = vae_of(net)
    features = vae.look(vae.hidden(z))
    return net.answer(features, net.class_scores(features), classes)


def picture(net: ProvenanceNet, z: Tensor, classes: Tensor) -> Tensor:
    """Latents (B, L) and classes (B,) -> pixels in [0, 1]; only a conditional generator looks at the classes."""
    vae = vae_of(net)
    return vae.paint(vae.hidden(z), classes).float().sigmoid()


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
        return _build_generator(config, index_map)
    by_keys = config.head != "plain"  # keys of all classes share one space: the class is not concatenated
    concatenated = config.classes if kind.concatenates and config.conditional and not by_keys else 0
    parts = _parts(config, kind, concatenated, backbone)
    width = parts.index_width
    head: IndexHead
    head = _exemplar_head(width, config, kind, index_map) if by_keys else INDEX_HEADS[kind.head](width, index_map)
    task_head = None
    if kind.task:  # features of no width hold the scores already
        last = [nn.Linear(parts.task_width, config.classes)] if parts.task_width else []
        task_head = nn.Sequential(parts.task, *last)
    trunk = IndexTrunk(parts.index, concatenated)
    for module in (task_head, trunk, head, parts.shared if backbone is None else None):
        if module is not None and not isinstance(module, Pretrained):
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
        support=_support(config, parts),
    )


def _support(config: NetworkConfig, parts: _Parts) -> Support:
    if isinstance(parts.shared, TextEncoder):
        return TextSupport(config.classes, parts.support_width, parts.shared.width)
    return Support(config.classes, parts.support_width)


def _build_generator(config: NetworkConfig, index_map: IndexMap) -> ProvenanceVAE:
    """A generator with a class head and an index head, initialised as torch does.

    A plain head has one layer for each class, all of them rows of one matrix (`PerClassHead`); an exemplar head looks
    among the keys of the class.
    """
    plain = config.head == "plain"
    if config.network != ("class-conditional-heads" if plain else "class-conditional"):
        raise UsageError(
            f'a generator with head "{config.head}" cannot be a "{config.network}" network; '
            'use "class-conditional-heads" with plain heads, "class-conditional" with keys'
        )
    vae = GENERATORS[config.backbone](config.input_shape, config.classes, index_map.n)
    trunk, width = nn.Sequential(), vae.features
    if not plain:
        width = config.key_width or NARROW_KEY
        trunk = nn.Sequential(nn.Linear(vae.features, width))
    head = (
        PerClassHead(width, index_map) if plain else _exemplar_head(width, config, NETWORKS[config.network], index_map)
    )
    # latents need a hidden layer before classes can be told by a line; a decoder's feature does not (the paper)
    task, task_width = (
        (branch(vae.features, ((256, 0.0),)), 256) if vae.conditional else (nn.Sequential(), vae.features)
    )
    return ProvenanceVAE(
        normalise=Normalise(config),
        backbone=vae,
        task_head=nn.Sequential(task, nn.Linear(task_width, config.classes)),
        index_trunk=IndexTrunk(trunk),
        index_head=head,
        index_map=index_map,
        support=Support(config.classes, vae.features),
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
    if backbone is None and config.backbone == TEXT:
        return _text_parts(config, concatenated)
    if backbone is None:
        one_of("backbone", config.backbone, ("auto", *BACKBONES, *SHARING, TEXT, FOLDER))  # all that may be asked for
    of_folder = backbone is None and config.backbone == FOLDER
    name = LITE0 if of_folder else config.backbone  # both have the same branches
    design = custom_design(backbone) if backbone is not None else choose("backbone", name, BACKBONES)
    shared = backbone if backbone is not None else design.make(config.input_shape) if not of_folder else None
    shared = shared if shared is not None else from_folder(config.input_shape, config.architecture)
    features = output_shape(shared, config.input_shape)
    if len(features) != 1 or features[0] == 0:
        found = ", ".join(map(str, ("B", *features)))
        raise UsageError(f"a backbone must give (B, D) features, this one gives ({found}); end it with nn.Flatten()")
    if design.measured:
        return _measured_parts(shared, features[0], concatenated, design, config)
    if config.head == "plain":
        index, index_width = branch(features[0] + concatenated, design.trunk, design.last_dropout), design.trunk[-1][0]
    else:
        index, index_width = _projection(features[0], config)
    task, task_width = branch(features[0], design.task), design.task[-1][0] if design.task else features[0]
    return _Parts(shared, task, task_width, index, index_width, features[0])


def _text_parts(config: NetworkConfig, concatenated: int) -> _Parts:
    """Class scores and keys stand side by side among the features of texts."""
    width = config.key_width or TEXT_KEY
    shared = make_encoder(config.architecture, config.classes, width)
    index: nn.Module
    index, index_width = Columns(0, width), width
    if config.head == "plain":
        body = branch(width + concatenated, ((512, 0.0),))
        index, index_width = nn.Sequential(Columns(0, width), body), 512
        if concatenated:
            raise UsageError("a plain head of texts has no class input; set conditional off, or take head exemplar")
    whole = width + config.classes
    return _Parts(shared, Columns(width, whole), 0, index, index_width, whole)


def _measured_parts(shared: nn.Module, width: int, concatenated: int, design: Design, config: NetworkConfig) -> _Parts:
    """Behind pretrained features: classes by a linear layer on them standardised, keys of them whitened."""
    task = nn.Sequential(Standardise(width))
    if config.head != "plain":
        made = min(config.key_width or KEY, width)
        return _Parts(shared, task, width, KeySpace(width, made), made, width)
    if concatenated:
        raise UsageError(
            f'a plain head of backbone "{config.backbone}" has no class input; set conditional off (--no-conditional), '
            "or take head exemplar"
        )
    index = nn.Sequential(Standardise(width), *branch(width, design.trunk))
    return _Parts(shared, task, width, index, design.trunk[-1][0], width)


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

"""CNN1 (class) and CNN2 (index) of app. 7.6: some layers shared, each with its own batches and optimiser.

The paper does not say how their steps alternate, nor names optimiser and schedule here: steps are spread evenly over an
epoch, each in an order of its own; AdamW with the weight decay of app. 7.1, a constant rate, no label smoothing. On a
GPU all but the output layer multiply bf16 copies of their weights; layers and updates are compiled, which needs a C
compiler there (TORCH_COMPILE_DISABLE=1 does without), and a step is recorded once and replayed.

Letters: B batch, N samples.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from provnet.answers.attributor import Attributor
from provnet.base.batches import fold, keyed_generator
from provnet.base.errors import NonFiniteError
from provnet.base.options import NetworkOptions
from provnet.data.dataset import ImageData
from provnet.models.network import ProvenanceNet, build, parameter_count
from provnet.training.setup import plan
from provnet_paper.records import Figure
from provnet_paper.samples import spread_rows

BETAS = (0.9, 0.999)
EPS = 1e-8


class OnePassAdamW:
    """AdamW for `weights`; `used` is what is multiplied: copies of lower precision, or the weights themselves."""

    def __init__(
        self,
        weights: Sequence[Tensor],
        used: Sequence[Tensor],
        *,
        rate: float,
        decay: float,
        backend: Any = None,
    ) -> None:
        self.weights = [weight.detach() for weight in weights]
        self.copies = [
            None if rounded is weight else rounded.detach() for weight, rounded in zip(weights, used, strict=True)
        ]
        self.means = [torch.zeros_like(weight) for weight in self.weights]
        self.squares = [torch.zeros_like(weight) for weight in self.weights]
        self.steps = torch.zeros((), dtype=torch.float64, device=self.weights[0].device)
        self.rate, self.decay = rate, decay
        self.update = torch.compile(_update, dynamic=False, fullgraph=True, backend=backend) if backend else _update

    @torch.no_grad()
    def __call__(self, grads: Sequence[Tensor]) -> None:
        """One step, gradients in the order of the weights."""
        self.steps += 1
        rises = [(1 - beta**self.steps).to(self.weights[0].dtype) for beta in BETAS]
        self.update(self.weights, self.copies, self.means, self.squares, list(grads), rises, self.rate, self.decay)


def _update(
    weights: list[Tensor],
    copies: list[Tensor | None],
    means: list[Tensor],
    squares: list[Tensor],
    grads: list[Tensor],
    rises: list[Tensor],
    rate: float,
    decay: float,
) -> None:
    first, second = rises  # what the moments, which begin at zero, have reached of what they follow
    for weight, rounded, mean, square, grad in zip(weights, copies, means, squares, grads, strict=True):
        wide = grad.to(weight.dtype)
        mean.lerp_(wide, 1 - BETAS[0])
        square.mul_(BETAS[1]).addcmul_(wide, wide, value=1 - BETAS[1])
        weight.mul_(1 - rate * decay).sub_(rate / first * mean / ((square / second).sqrt() + EPS))
        if rounded is not None:
            rounded.copy_(weight)


DECAY = 2e-5
WARM = 3  # steps before a recording, in which libraries choose their algorithms
BRANCHES = ("class", "index")
BACKENDS: dict[str, Any] = {"cuda": "inductor"}  # what compiles layers and updates, where they are compiled
COPIES = {"cuda": torch.bfloat16}  # what weights are rounded to for products, where they are
# batches and rates of CNN1 and CNN2, as app. 7.6 prints them
PRINTED: dict[str, tuple[tuple[int, int], tuple[float, float]]] = {
    "small": ((64, 32), (1e-3, 1e-4)),
    "medium": ((64, 32), (1e-3, 1e-4)),
    "large": ((64, 32), (5e-4, 5e-4)),
    "xlarge": ((32, 16), (2e-4, 2e-4)),
}
# Larger ones stay at the printed rates with larger batches: at raised ones the index network of Large did not learn.
ROOTED = ("small", "medium")


@dataclass(frozen=True)
class TwoCnns:
    """How a pair is built and trained; batches and rates are of CNN1 and CNN2."""

    size: str
    level: int
    epochs: int
    batches: tuple[int, int]
    rates: tuple[float, float]
    raised: int = 1  # by which factor the batches are larger than printed

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "weight_decay": DECAY}


def pair(size: str, level: int, epochs: int, raised: int = 1) -> TwoCnns:
    """The paper's recipe; with batches `raised` times larger the rates of ROOTED grow by its root, as suits Adam."""
    batches, rates = PRINTED[size]
    factor = math.sqrt(raised) if size in ROOTED else 1.0
    return TwoCnns(
        size,
        level,
        epochs,
        (batches[0] * raised, batches[1] * raised),
        (float(f"{rates[0] * factor:.3g}"), float(f"{rates[1] * factor:.3g}")),
        raised,
    )


def built(data: ImageData, recipe: TwoCnns, seed: int, device: str) -> ProvenanceNet:
    """The network with weights drawn by the seed."""
    wanted = NetworkOptions(network="class-independent", backbone=f"sharing-{recipe.size}", level=recipe.level)
    shape, index_map = plan(data, wanted, "fast")
    with _randomness(torch.device(device)):
        torch.manual_seed(fold(seed, 0))
        net = build(shape, index_map).to(device)
    if device == "cuda":
        net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return net


def shared_share(net: ProvenanceNet) -> float:
    """The share of all parameters that both networks use."""
    return parameter_count(net.backbone) / parameter_count(net)


def train_both(
    net: ProvenanceNet,
    data: ImageData,
    recipe: TwoCnns,
    seed: int,
    on_epoch: Callable[[int], None] = lambda epoch: None,
) -> list[dict[str, float]]:
    """Train both; returns loss and accuracy of each as they were trained, a row an epoch."""
    device = next(net.parameters()).device
    images, labels = data.images.to(device), data.labels.to(device)
    if device.type in BACKENDS:
        torch.compiler.reset()  # it takes eight kinds of layers in a process, and no more
    used = bf16_copy(net)
    steps = [_Step(net, used, name, images, labels, recipe) for name in BRANCHES]
    course = []
    with _randomness(device), warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"\s*Online softmax is disabled")  # of so many outputs; nothing to do
        for epoch in range(recipe.epochs):
            course.append(_epoch(used, steps, recipe, seed, epoch, len(data)))
            on_epoch(epoch + 1)
    net.eval()
    return course


def _epoch(net: ProvenanceNet, steps: list[_Step], recipe: TwoCnns, seed: int, epoch: int, n: int) -> dict[str, float]:
    """One pass of each network over all samples; returns loss and accuracy of each."""
    net.train()
    device = next(net.parameters()).device
    orders = [torch.randperm(n, generator=keyed_generator(seed, epoch, place)) for place in range(2)]
    batches = [torch.split(order.to(device), size) for order, size in zip(orders, recipe.batches, strict=True)]
    with _tf32(device):
        torch.manual_seed(fold(seed, 1 + epoch))
        for place, number in alternating(len(batches[0]), len(batches[1])):
            steps[place](batches[place][number])
    found = {key: value for step in steps for key, value in step.told().items()}
    if not all(math.isfinite(value) for value in found.values()):
        raise NonFiniteError(f"the loss is not finite in epoch {epoch + 1}; lower the rates, now {recipe.rates}")
    return found


def alternating(first: int, second: int) -> list[tuple[int, int]]:
    """(network, number of its batch), the batches of both spread evenly over an epoch."""
    places = [
        ((number + 0.5) / count, place, number) for place, count in ((0, first), (1, second)) for number in range(count)
    ]
    return [(place, number) for _, place, number in sorted(places)]


@contextmanager
def _randomness(device: torch.device) -> Iterator[None]:
    """The caller's random state is put back afterwards."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        yield


@contextmanager
def _tf32(device: torch.device) -> Iterator[None]:
    """Wide layers multiply fp32 weights themselves: let them be rounded as mixed precision does; put back after."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = device.type == "cuda" or before
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def bf16_copy(net: ProvenanceNet) -> ProvenanceNet:
    """What is multiplied in training: a copy in bf16 on a GPU, but for the output layer; elsewhere the network itself.

    Scores of sixty thousand samples that are rounded to bf16 tie: that layer multiplies its own weights, as TF32.
    """
    kind = next(net.parameters()).device.type
    if kind not in COPIES:
        return net
    used = copy.deepcopy(net).to(COPIES[kind])
    used.index_head = net.index_head
    return used


class _Step:
    """A training step of one of the two networks, recorded on a GPU; `used` is `net`, or its rounded copy."""

    def __init__(
        self, net: ProvenanceNet, used: ProvenanceNet, name: str, images: Tensor, labels: Tensor, recipe: TwoCnns
    ) -> None:
        place, backend = BRANCHES.index(name), BACKENDS.get(images.device.type)
        self.normalise, self.used = net.normalise, used
        self.name, self.images, self.labels = name, images, labels
        self.size, self.cuda = recipe.batches[place], images.device.type == "cuda"
        self.weights = _weights(used, name)
        self.update = OnePassAdamW(
            _weights(net, name), self.weights, rate=recipe.rates[place], decay=DECAY, backend=backend
        )
        self.sums = torch.zeros(3, dtype=torch.float64, device=images.device)  # loss, right answers, samples
        # whole or not at all: what cannot be compiled is an error, not a slower run
        self.compiled = (
            torch.compile(self._loss, dynamic=False, fullgraph=True, backend=backend) if backend else self._loss
        )
        self.graph: Any = None
        self.rows = torch.zeros(self.size, dtype=torch.int64, device=images.device)
        self.done = 0

    def __call__(self, rows: Tensor) -> None:
        """Train on these samples (B,)."""
        if not self.cuda or len(rows) != self.size or self.done < WARM:
            self._train(rows)
            self.done += 1
            return
        self.rows.copy_(rows)
        if self.graph is None:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self._train(self.rows)
        self.graph.replay()

    def _train(self, rows: Tensor) -> None:
        images, labels = self.images.index_select(0, rows), self.labels.index_select(0, rows)
        target = labels if self.name == "class" else rows
        # the last batch is smaller: not worth a compilation of its own
        loss, right = (self.compiled if len(rows) == self.size else self._loss)(images, labels, target)
        self.update(torch.autograd.grad(loss, self.weights))
        with torch.no_grad():
            self.sums += torch.stack(
                [loss.detach().double() * len(rows), right.double(), right.double() * 0 + len(rows)]
            )

    def _loss(self, images: Tensor, labels: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Mean loss and number of right answers of a batch, targets (B,)."""
        scores = self._scores(images, labels)
        return F.cross_entropy(scores.float(), target), (scores.detach().argmax(1) == target).sum()

    def _scores(self, images: Tensor, labels: Tensor) -> Tensor:
        features = self.used.backbone(self.normalise(images).to(self.weights[0].dtype))
        if self.name == "class":
            assert self.used.task_head is not None
            scores: Tensor = self.used.task_head(features)
        else:
            head: Any = self.used.index_head
            scores = head(self.used.index_trunk(features, labels).float(), labels)
        return scores

    def told(self) -> dict[str, float]:
        """Mean loss and accuracy since the last call."""
        loss, right, n = self.sums.tolist()
        self.sums.zero_()
        return {f"{self.name}_loss": loss / n, f"{self.name}_accuracy": right / n}


def _weights(net: ProvenanceNet, name: str) -> list[Tensor]:
    """All that one of the two networks trains, the shared layers first."""
    own: tuple[nn.Module | None, ...] = (net.task_head,) if name == "class" else (net.index_trunk, net.index_head)
    return [weight for part in (net.backbone, *own) if part is not None for weight in part.parameters()]


KS = (1, 5, 10)
BATCH = {"cpu": 256, "cuda": 1000}


def pair_hits(net: ProvenanceNet, train: ImageData, test: ImageData) -> dict[str, np.ndarray]:
    """(n,) right or wrong, by figure; `train` are the indexed samples in the order of the network's index."""
    classes, index = answers(net, test.images, max(KS))
    own = answers(net, train.images, 5)[1]
    rows, truth = torch.arange(len(train)).unsqueeze(1), test.labels
    same = net.index_map.labels.cpu()[index.clamp(min=0)] == truth.unsqueeze(1)
    same &= index >= 0
    found = {
        "class_accuracy": classes == truth,
        "index_accuracy": own[:, 0] == rows[:, 0],
        "index_at_5": (own == rows).any(1),
        **{f"any_at_{k}": same[:, :k].any(1) for k in KS},
    }
    return {name: values.numpy() for name, values in found.items()}


def rates(hits: dict[str, np.ndarray]) -> dict[str, Figure]:
    """Right or wrong answers as (rate, n)."""
    return {name: (float(values.mean()), len(values)) for name, values in hits.items()}


def answers(net: ProvenanceNet, images: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(N,) predicted classes and (N, k) named samples of raw pictures, on the CPU."""
    ask = Attributor(net)
    found = ask.each(images, lambda answered: vars(answered.best(k)), batch_size=BATCH[ask.device.type])
    return found["predicted"].cpu(), found["index"].cpu()


def point(net: ProvenanceNet, train: ImageData, test: ImageData) -> dict[str, float]:
    """A point of the curves: class accuracy on unseen samples, index accuracy on evenly spread training samples."""
    rows = spread_rows(len(train))
    kind = next(net.parameters()).device.type
    with torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda"):  # the last figures are in full precision
        classes, _ = answers(net, test.images, 1)
        _, own = answers(net, train.images[rows], 1)
    return {
        "class": float((classes == test.labels).double().mean()),
        "index": float((own[:, 0] == rows).double().mean()),
    }

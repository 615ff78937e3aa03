"""FGSM and PGD: the smallest change of each pixel that hurts one given network most, within epsilon.

White-box: each network is attacked through its own gradients, so unlike the conditions these rows are another test set
for every network. Epsilon is on [0, 1] pixels; pixels stay within [0, 1] and are not rounded to bytes. What is
raised is the loss of the class scores: of the class branch, or in a single branch of the log-sum-exp of the index
scores per class.

Letters: B batch, C classes, N samples.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from provnet.data.batches import fold
from provnet.data.keyed import sample_keys, uniform
from provnet.errors import UsageError, choose
from provnet.inputs import real
from provnet.models.exemplar import ExemplarHead
from provnet.models.provenance import ProvenanceNet

STREAM = 32  # keeps the random start apart from other draws


@dataclass(frozen=True)
class Attack:
    """Steps of gradient ascent on the loss.

    Attributes:
        name: what it is called.
        steps: how many.
        step: length of each, as a part of epsilon.
        random_start: begin anywhere within epsilon, drawn for each sample, not at the picture itself.
    """

    name: str
    steps: int
    step: float
    random_start: bool

    def words(self, epsilon: float) -> str:
        """What is shown to people."""
        more = f", {self.steps} steps" if self.steps > 1 else ""
        return f"{self.name.upper()}, ε {epsilon:g}{more}"


def attack(
    net: ProvenanceNet,
    images: Tensor,
    labels: Tensor,
    keys: Tensor,
    how: Attack | str,
    *,
    epsilon: float = 0.1,
    seed: int = 0,
    low: float = 0.0,
    high: float = 1.0,
) -> Tensor:
    """Attacked copies of raw pictures (B, ...), float32 in raw units, on the network's device.

    `labels` (B,) are the true classes, `keys` (B,) int64 names each sample for the random start. Floats have values
    from `low` to `high`, bytes from 0 to 255. The network is left in evaluation mode; its weights stay as they are.

    >>> from provnet.indexing import IndexMap
    >>> from provnet.models.config import NetworkConfig
    >>> from provnet.models.provenance import build
    >>> net = build(NetworkConfig("class-independent", "mlp", (4,), classes=2), IndexMap([0, 1, 1]))
    >>> moved = attack(net, torch.full((2, 4), 0.5), torch.tensor([0, 1]), torch.arange(2), "fgsm", epsilon=0.1)
    >>> round(float((moved - 0.5).abs().max()), 6)
    0.1
    """
    how = choose("attack", how, ATTACKS) if isinstance(how, str) else how
    if not 0 < real("epsilon", epsilon) <= 1:
        raise UsageError(f"epsilon must lie above 0 and at most at 1, on pixels from 0 to 1; got {epsilon}")
    if labels.shape != images.shape[:1] or keys.shape != images.shape[:1]:
        raise UsageError(f"one label and one key a picture are needed, {len(images)} here")
    device = next(net.parameters()).device
    if images.dtype == torch.uint8:
        low, high = 0.0, 255.0
    net.eval()
    start = (images.to(device).float() - low) / (high - low)
    moved, truth = start, labels.to(device)
    if how.random_start:
        drawn = sample_keys(keys.to(device), seed=fold(seed, STREAM), epoch=how.steps)
        moved = start + (uniform(drawn, 0, start[0].numel()).view(start.shape) * 2 - 1) * epsilon
        moved = moved.clamp(0, 1)
    for _ in range(how.steps):
        direction = _gradient(net, moved, truth, low, high).sign()
        moved = moved + direction * (how.step * epsilon)
        moved = torch.minimum(torch.maximum(moved, start - epsilon), start + epsilon).clamp(0, 1)
    return moved * (high - low) + low


def class_scores(net: ProvenanceNet, images: Tensor) -> Tensor:
    """(B, C) class scores that carry a gradient, also of a single branch, whose own do not.

    >>> from provnet.indexing import IndexMap
    >>> from provnet.models.config import NetworkConfig
    >>> from provnet.models.provenance import build
    >>> net = build(NetworkConfig("single", "mlp", (4,), classes=2), IndexMap([0, 1, 1])).eval()
    >>> x = torch.zeros(5, 4)
    >>> torch.allclose(class_scores(net, x), net(x).logits, atol=1e-5)
    True
    """
    features = net.backbone(net.normalise(images))
    if net.task_head is not None:
        scores: Tensor = net.task_head(features)
        return scores
    none = torch.zeros(len(images), dtype=torch.int64, device=images.device)
    index_features = net.index_trunk(features, none)
    head = net.index_head
    each: Tensor = head(index_features, none).float()
    members = _members(head) if isinstance(head, ExemplarHead) else net.members
    top = each.detach().amax(1, keepdim=True)
    sums: Tensor = (each - top).exp() @ members
    return sums.clamp_min(torch.finfo(torch.float32).tiny).log() + top


def _members(head: ExemplarHead) -> Tensor:
    """(N, C) one-hot classes of the keys, in their order: by class."""
    each, classes = head.index_map.sizes, head.index_map.classes
    return F.one_hot(torch.arange(classes, device=each.device).repeat_interleave(each), classes).float()


def _gradient(net: ProvenanceNet, unit: Tensor, truth: Tensor, low: float, high: float) -> Tensor:
    with torch.enable_grad():
        at = unit.detach().requires_grad_()
        loss = F.cross_entropy(class_scores(net, at * (high - low) + low), truth, reduction="sum")
        (found,) = torch.autograd.grad(loss, at)
    return found


ATTACKS: dict[str, Attack] = {
    "fgsm": Attack("fgsm", steps=1, step=1.0, random_start=False),
    "pgd": Attack("pgd", steps=10, step=0.25, random_start=True),
}

"""Training, one network or many at once: small networks leave a GPU idle, so that fifty of them take the time of one.

Many at once are one network whose weights have a leading axis (torch.func); gradients, AdamW and SGD act on each alone,
so that each is trained as it would be by itself. Convolutions are written as products of patches for that, because
grouped convolutions are slow.

Letters: E networks, N samples, B batch.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
import torch.nn.functional as F
from subjects import Recipe
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from provnet.influence.keys import margins

State = dict[str, Tensor]


class Patches(nn.Conv2d):
    """A convolution as a product of patches with the weights."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, C', H', W')."""
        (kernel, _), (stride, _), (edge, _) = self.kernel_size, self.stride, (self.padding[0], 0)
        x = F.pad(x, (edge,) * 4)
        cut = x.unfold(2, kernel, stride).unfold(3, kernel, stride)  # (B, C, H', W', k, k)
        found = cut.permute(0, 2, 3, 1, 4, 5).flatten(3) @ self.weight.flatten(1).T
        return (found if self.bias is None else found + self.bias).permute(0, 3, 1, 2)


class Norm(nn.BatchNorm2d):
    """BatchNorm written out, as torch's own is not done for many networks at once on a GPU."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, ...) -> (B, C, ...), by the batch in training and by the running averages afterwards."""
        if not self.training:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps)
        over = [0, *range(2, x.ndim)]
        shape = [1, -1, *[1] * (x.ndim - 2)]
        mean, var = x.mean(over), x.var(over, unbiased=False)
        count, rate = x.numel() / x.shape[1], self.momentum or 0.0
        assert self.running_mean is not None and self.running_var is not None
        self.running_mean.mul_(1 - rate).add_(mean.detach(), alpha=rate)
        self.running_var.mul_(1 - rate).add_(var.detach(), alpha=rate * count / (count - 1))
        scale = self.weight * (var + self.eps).rsqrt()
        return x * scale.view(shape) + (self.bias - mean * scale).view(shape)


def amp(recipe: Recipe, device: str) -> AbstractContextManager[object]:
    """bf16 where the recipe says so."""
    return torch.autocast(torch.device(device).type, torch.bfloat16, enabled=recipe.bf16)


def losses(scores: Tensor, y: Tensor) -> Tensor:
    """(B,) of each sample; of a text the mean over its characters."""
    each = F.cross_entropy(scores, y, reduction="none")
    return each if each.ndim == 1 else each.mean(1)


def optimiser(weights: list[Tensor], recipe: Recipe, steps: int) -> tuple[torch.optim.Optimizer, Callable[[], None]]:
    """The optimiser, and what moves its rate after a step."""
    fused = weights[0].is_cuda
    made: torch.optim.Optimizer
    if recipe.sgd:
        nesterov = recipe.cycle > 0
        made = torch.optim.SGD(
            weights, recipe.rate, recipe.momentum, weight_decay=recipe.decay, nesterov=nesterov, fused=fused
        )
    else:
        made = torch.optim.AdamW(weights, recipe.rate, recipe.betas, weight_decay=recipe.decay, fused=fused)
    if recipe.cycle == 0:
        return made, lambda: None
    cycled = torch.optim.lr_scheduler.OneCycleLR(made, recipe.rate, total_steps=steps, pct_start=recipe.cycle)
    return made, cycled.step


def moved(x: Tensor, rows: Tensor) -> Tensor:
    """Pictures moved by up to two pixels, one move for the batch, and half of them mirrored; `x` is padded by two."""
    side = x.shape[-1] - 4
    down, right = (int(torch.randint(5, ())) for _ in range(2))
    cut = x[rows, :, down : down + side, right : right + side]
    mirrored = (torch.rand(len(rows), device=x.device) < 0.5).view(-1, 1, 1, 1)
    return torch.where(mirrored, cut.flip(3), cut).contiguous(memory_format=torch.channels_last)


def train_one(
    make: Callable[[], nn.Module],
    x: Tensor,
    y: Tensor,
    rows: Tensor,
    recipe: Recipe,
    seed: int,
    watch: Callable[[int, nn.Module], None] | None = None,
) -> tuple[nn.Module, Tensor]:
    """A network trained on some samples, and (epochs, N) losses at each sample's own steps.

    `watch` is given each epoch and the network at its end.
    """
    torch.manual_seed(seed)
    device = str(x.device)
    net = make().to(device)
    net = net.to(memory_format=torch.channels_last).train() if x.ndim == 4 else net.train()
    per_epoch = -(-len(rows) // recipe.batch)
    step, slide = optimiser(list(net.parameters()), recipe, recipe.epochs * per_epoch)
    course = torch.zeros(recipe.epochs, len(x), device=device)
    padded = F.pad(x, (2, 2, 2, 2), mode="reflect") if recipe.augment else x
    for epoch in range(recipe.epochs):
        for part in torch.split(rows[torch.randperm(len(rows), device=device)], recipe.batch):
            inputs = moved(padded, part) if recipe.augment else x[part]
            with amp(recipe, device):
                scores = net(inputs)
            loss = losses(scores, y[part])
            step.zero_grad(set_to_none=True)
            loss.mean().backward()
            if recipe.clip:
                nn.utils.clip_grad_norm_(net.parameters(), recipe.clip)
            step.step()
            slide()
            course[epoch, part] = loss.detach()
        if watch is not None:
            watch(epoch, net)
    return net.eval(), course


class Plain(nn.Module):
    """The mean loss of a batch."""

    def __init__(self, net: nn.Module, recipe: Recipe) -> None:
        super().__init__()
        self.net, self.recipe = net, recipe

    def forward(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """As in `train_one`."""
        with amp(self.recipe, inputs.device.type):
            scores = self.net(inputs)
        return losses(scores, targets).mean()


Pace = Callable[[int, int, nn.Module, torch.optim.Optimizer], None]


def train_many(
    made: list[nn.Module], x: Tensor, y: Tensor, rows: Tensor, recipe: Recipe, pace: Pace | None = None
) -> tuple[State, State]:
    """E networks in one: each of `made` gives the loss of inputs and targets, and has its own row of `rows` (E, n).

    The stacked weights and statistics. `y` is (N, ...), or (E, N) where a sample's target depends on the network;
    `pace` sets the rate of a step instead of the recipe.
    """
    base, own_targets = made[0], len(y) != len(x)
    for each in base.modules():
        if type(each) in (nn.Conv2d, nn.BatchNorm1d, nn.BatchNorm2d):
            each.__class__ = Patches if type(each) is nn.Conv2d else Norm
    weights, held = stack_module_state(made)
    for weight in weights.values():
        weight.requires_grad_(True)

    def lost(own: State, other: State, inputs: Tensor, targets: Tensor) -> Tensor:
        found: Tensor = functional_call(base, (own, other), (inputs, targets))
        return found

    every = vmap(lost, randomness="different")
    count, size = rows.shape
    per_epoch = -(-size // recipe.batch)
    step, slide = optimiser(list(weights.values()), recipe, recipe.epochs * per_epoch)
    for epoch in range(recipe.epochs):
        order = rows.gather(1, torch.rand(count, size, device=x.device).argsort(1))
        for number, part in enumerate(torch.split(order, recipe.batch, 1)):
            if pace is not None:
                pace(epoch * per_epoch + number, per_epoch, base, step)
            loss = every(weights, held, x[part], y.gather(1, part) if own_targets else y[part])
            step.zero_grad(set_to_none=True)
            loss.sum().backward()
            if recipe.clip:
                clip(list(weights.values()), recipe.clip)
            step.step()
            slide()
    return {name: each.detach() for name, each in weights.items()}, held


def clip(weights: list[Tensor], most: float) -> None:
    """The gradient of each network cut to a norm, as `clip_grad_norm_` does for one."""
    grads = [each.grad for each in weights if each.grad is not None]
    norm = torch.stack([each.flatten(1).norm(dim=1) for each in grads]).norm(dim=0)
    factor = (most / (norm + 1e-6)).clamp(max=1.0)
    for each in grads:
        each.mul_(factor.view(-1, *[1] * (each.ndim - 1)))


@torch.no_grad()
def measured(score: Callable[[Tensor], Tensor], x: Tensor, classes: Tensor, recipe: Recipe, part: int = 200) -> Tensor:
    """(B,) margins of classes (B,), or minus the mean loss of texts (B, T)."""
    found = []
    for inputs, asked in zip(torch.split(x, part), torch.split(classes, part), strict=True):
        with amp(recipe, str(x.device)):
            scores = score(inputs)
        found.append(margins(scores.float(), asked) if asked.ndim == 1 else -losses(scores.float(), asked))
    return torch.cat(found)

"""Our own generator: residual, for a class that is asked for, drawn from what the training samples' latents look like.

What it does otherwise than the paper's: the decoder is told the class at every block; each class has a prior of its
own; rebuilt pictures are compared by the encoder's own features, too; the divergence counts little at first; latents of
new pictures are drawn from a normal distribution measured on the latents of each class after training, not from the
prior, which they never fit quite. Class and index are told from the latents, keys stand for training samples.

Letters: B batch, C channels, H W height and width, L latents, K classes.
"""

from __future__ import annotations

from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from provnet.errors import UsageError
from provnet.models.made import Normal
from provnet.models.vae import VAE, Shape, gaussian

WIDTHS = (32, 64, 128)  # maps at full, half and quarter size
LATENTS = 32
EMBEDDED = 32
FEATURE = 10.0  # weight of the feature loss
WARM = 10  # passes over the data until the divergence counts in full
FEW = 64  # classes that have a covariance of their own
OWN = 32.0  # samples with which a class's own covariance counts as much as that of all


@final
class ModernVAE(VAE):
    """Residual encoder and decoder, 32 latents; see the head of this file."""

    latents, features, weight, conditional = LATENTS, LATENTS, 1.0, True
    seen: Tensor
    centre: Tensor
    spread: Tensor

    def __init__(self, shape: Shape, classes: int, n: int) -> None:
        super().__init__()
        if len(shape) != 3 or shape[1] % 4 or shape[2] % 4:
            raise UsageError(f"this generator takes pictures whose sides are multiples of 4, got {shape}; use --size")
        one, two, three = WIDTHS
        self.low, self.n = (three, shape[1] // 4, shape[2] // 4), n
        flat = three * self.low[1] * self.low[2]
        self.stages = nn.ModuleList(
            [
                nn.Sequential(nn.Conv2d(shape[0], one, 3, padding=1), _Block(one)),
                nn.Sequential(nn.Conv2d(one, two, 3, stride=2, padding=1), _Block(two)),
                nn.Sequential(nn.Conv2d(two, three, 3, stride=2, padding=1), _Block(three)),
            ]
        )
        self.squeeze = nn.Sequential(nn.Flatten(), nn.Linear(flat, 256), nn.BatchNorm1d(256), nn.SiLU())
        self.mean = nn.Linear(256, LATENTS)
        self.log_variance = nn.Linear(256, LATENTS)
        self.prior_mean = nn.Embedding(classes, LATENTS)
        self.prior_log_variance = nn.Embedding(classes, LATENTS)
        nn.init.normal_(self.prior_mean.weight, std=0.5)
        nn.init.zeros_(self.prior_log_variance.weight)
        self.embed = nn.Embedding(classes, EMBEDDED)
        self.project = nn.Linear(LATENTS + EMBEDDED, flat)
        self.rise = nn.ModuleList([_Block(three, EMBEDDED), _Block(two, EMBEDDED), _Block(one, EMBEDDED)])
        self.between = nn.ModuleList([nn.Conv2d(three, two, 3, padding=1), nn.Conv2d(two, one, 3, padding=1)])
        self.finish = nn.Sequential(nn.BatchNorm2d(one), nn.SiLU(), nn.Conv2d(one, shape[0], 3, padding=1))
        self.register_buffer("seen", torch.zeros(()))  # samples trained on so far
        self.register_buffer("centre", torch.zeros(classes, LATENTS))
        self.register_buffer("spread", torch.zeros(classes if classes <= FEW else 1, LATENTS, LATENTS))

    def encode(self, x: Tensor) -> Normal:
        """(B, C, H, W) -> (B, L)."""
        for stage in self.stages:
            x = stage(x)
        h = self.squeeze(x)
        return gaussian(self.mean(h), self.log_variance(h))

    def hidden(self, z: Tensor) -> Tensor:
        """The latents themselves."""
        return z

    def look(self, hidden: Tensor) -> Tensor:
        """The latents themselves."""
        return hidden

    def paint(self, hidden: Tensor, classes: Tensor) -> Tensor:
        """(B, L), (B,) -> logits (B, C, H, W)."""
        return self._paint(hidden, self.embed(classes))

    def paint_between(self, hidden: Tensor, one: Tensor, other: Tensor, share: Tensor) -> Tensor:
        """What the decoder is told of the class goes over from one to the other."""
        return self._paint(hidden, torch.lerp(self.embed(one), self.embed(other), share.unsqueeze(1)))

    def _paint(self, hidden: Tensor, told: Tensor) -> Tensor:
        x = self.project(torch.cat([hidden, told.to(hidden.dtype)], 1)).unflatten(1, self.low)
        x = self.rise[0](x, told)
        for between, block in zip(self.between, list(self.rise)[1:], strict=True):
            x = block(between(F.interpolate(x, scale_factor=2.0, mode="nearest")), told)
        logits: Tensor = self.finish(x)
        return logits

    def prior(self, classes: Tensor) -> Normal:
        """That of each class, learned."""
        return gaussian(self.prior_mean(classes), self.prior_log_variance(classes))

    def feature_loss(self, x: Tensor, logits: Tensor) -> Tensor:
        """Distance of the encoder's features, each at length one, summed over its stages.

        The encoder is held still, so that it cannot make both alike by seeing less; its statistics are put aside.
        """
        still = {name: value.detach() for name, value in self.stages.named_parameters()}
        still |= {name: value.clone() for name, value in self.stages.named_buffers()}
        made, total = logits.sigmoid().to(x.dtype), torch.zeros((), device=x.device)
        for number, stage in enumerate(self.stages):
            own = {name.split(".", 1)[1]: v for name, v in still.items() if name.startswith(f"{number}.")}
            with torch.no_grad():
                x = torch.func.functional_call(stage, own, (x,))
            made = torch.func.functional_call(stage, own, (made,))
            apart = F.normalize(made.float(), dim=1) - F.normalize(x.float(), dim=1)
            total = total + apart.square().sum(1).mean()
        return FEATURE * total

    def warmth(self, batch: int) -> Tensor:
        """Rises from 0 to 1 over the first passes; counted in a buffer, so that checkpoints and recordings know it."""
        now = (self.seen / (WARM * self.n)).clamp(max=1.0)
        self.seen += batch
        return now

    def draw(self, noise: Tensor, classes: Tensor) -> Tensor:
        """From the distribution that the latents of each class turned out to have."""
        factor = self.spread[classes if len(self.spread) > 1 else torch.zeros_like(classes)]
        return self.centre[classes] + torch.einsum("bij,bj->bi", factor, noise)

    @torch.no_grad()
    def settle(self, posterior: Normal, labels: Tensor) -> None:
        """Mean and covariance of the latents of each class; few samples lean on the covariance of all classes."""
        mean, variance = posterior.mean.double(), posterior.log_variance.double().exp()
        counts = torch.bincount(labels, minlength=len(self.centre)).double()
        centre = torch.zeros_like(self.centre, dtype=torch.float64).index_add_(0, labels, mean)
        centre = centre / counts.clamp(min=1).unsqueeze(1)
        away = mean - centre[labels]
        whole = away.t() @ away + torch.diag(variance.sum(0))
        found = [whole / len(mean)]
        if len(self.spread) > 1:
            found = []
            for each, count in enumerate(counts.tolist()):
                mine = labels == each
                own = away[mine].t() @ away[mine] + torch.diag(variance[mine].sum(0))
                found.append((own + OWN * whole / len(mean)) / (count + OWN))
        tiny = 1e-6 * torch.eye(LATENTS, dtype=torch.float64, device=mean.device)
        self.centre.copy_(torch.where(counts.unsqueeze(1) > 0, centre, mean.mean(0)))
        self.spread.copy_(torch.linalg.cholesky(torch.stack(found) + tiny))


class _Block(nn.Module):
    """Two convolutions added to their input; with `told` the class scales and shifts the maps between them."""

    def __init__(self, channels: int, told: int = 0) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.BatchNorm2d(channels), nn.SiLU(), nn.Conv2d(channels, channels, 3, padding=1))
        self.norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)
        self.film = nn.Linear(told, 2 * channels) if told else None

    def forward(self, x: Tensor, told: Tensor | None = None) -> Tensor:
        """(B, C, H, W), (B, told) -> (B, C, H, W)."""
        inner = self.norm(self.first(x))
        if self.film is not None and told is not None:
            scale, shift = self.film(told).unsqueeze(2).unsqueeze(3).chunk(2, 1)
            inner = inner * (1 + scale) + shift
        out: Tensor = x + self.second(F.silu(inner))
        return out

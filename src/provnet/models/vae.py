"""ProvenanceVAE: a network that makes pictures and names the training samples behind them (§5.5, app. 7.10 to 7.15).

A variational autoencoder takes the place of the backbone. An encoder gives a distribution of latents z for a picture; a
decoder makes a picture of z; on a feature inside the decoder sit the class head and the index head. So a picture is
explained by its own latents (z = mean), and a generated one by the latents that it was made of.

Letters: B batch, C channels, H W height and width, L latents, D features.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from provnet.base.errors import UsageError
from provnet.data.modalities.decode import is_picture
from provnet.tasks.generate import Normal

Shape = tuple[int, ...]
LOWEST, HIGHEST = -12.0, 8.0  # of a log variance: exp() stays finite and is never 0


class VAE(nn.Module, ABC):
    """What every generator can do; as a backbone it gives the decoder's feature at the mean of the latents."""

    latents: int
    features: int
    weight = 0.6  # of reconstruction and divergence, λ_gen
    conditional = False  # whether pictures are made for a class that is asked for

    @abstractmethod
    def encode(self, x: Tensor) -> Normal:
        """Pixels in [0, 1] (B, C, H, W) -> distribution of latents (B, L)."""

    @abstractmethod
    def hidden(self, z: Tensor) -> Tensor:
        """Latents (B, L) -> what the decoder knows of them where the heads look."""

    @abstractmethod
    def look(self, hidden: Tensor) -> Tensor:
        """From `hidden` to the feature (B, D) that class and index are told by."""

    @abstractmethod
    def paint(self, hidden: Tensor, classes: Tensor) -> Tensor:
        """From `hidden` to the logits of pixels (B, C, H, W)."""

    def paint_between(self, hidden: Tensor, one: Tensor, other: Tensor, share: Tensor) -> Tensor:
        """As `paint`, between two classes (B,): `share` (B,) of the other. Without class input it is the same."""
        return self.paint(hidden, one)

    def prior(self, classes: Tensor) -> Normal:
        """The distribution that latents are drawn towards: standard normal."""
        zero = torch.zeros((), device=classes.device)
        return Normal(zero, zero)

    def draw(self, noise: Tensor, classes: Tensor) -> Tensor:
        """Standard normal noise (B, L) -> latents to make pictures of."""
        return noise

    def feature_loss(self, x: Tensor, logits: Tensor) -> Tensor:
        """How far the features of a rebuilt picture lie from those of the picture; 0 where that is not asked for."""
        return torch.zeros((), device=x.device)

    def warmth(self, batch: int) -> Tensor:
        """What the divergence counts at this step, 0..1."""
        return torch.ones((), device=next(self.parameters()).device)

    def settle(self, posterior: Normal, labels: Tensor) -> None:
        """After training: learn from the latents of all training samples how to draw new ones."""

    def forward(self, x: Tensor) -> Tensor:
        """Pixels in [0, 1] (B, C, H, W) -> features (B, D) at the mean of the latents."""
        return self.look(self.hidden(self.encode(x).mean))


def sample(posterior: Normal, generator: torch.Generator | None = None) -> Tensor:
    """Latents drawn from their distribution, by torch's own generator or a given one (of the CPU)."""
    mean = posterior.mean
    where = mean.device if generator is None else torch.device("cpu")
    noise = torch.randn(mean.shape, generator=generator, device=where).to(mean.device)
    return mean + (posterior.log_variance / 2).exp() * noise


def gaussian(mean: Tensor, log_variance: Tensor) -> Normal:
    """What two layers give, in full precision and within bounds."""
    return Normal(mean.float(), log_variance.float().clamp(LOWEST, HIGHEST))


@final
class PaperVAE(VAE):
    """Conv 64 (stride 2), 128 (stride 2), 256; 128 latents; back through 256 maps, deconv 128, 64, 32, conv C.

    The heads look at the mean over positions of the 128 maps. No skips: the paper says "U-Net" but describes none. Nor
    does it say whether its losses are sums or means over pixels: with `mean` reconstruction and divergence are divided
    by the number of pixel values, so that class and index count for more beside them.
    """

    latents, features = 128, 128

    def __init__(self, shape: Shape, *, mean: bool = False) -> None:
        super().__init__()
        if not is_picture(shape) or shape[1] % 4 or shape[2] % 4:
            raise UsageError(
                f"the paper's generator takes pictures whose sides are multiples of 4, got {shape}; see --size"
            )
        if mean:
            self.weight = VAE.weight / math.prod(shape)
        self.low = (256, shape[1] // 4, shape[2] // 4)
        flat = math.prod(self.low)
        self.encoder = nn.Sequential(
            *_block(nn.Conv2d(shape[0], 64, 3, stride=2, padding=1)),
            *_block(nn.Conv2d(64, 128, 3, stride=2, padding=1)),
            *_block(nn.Conv2d(128, 256, 3, padding=1)),
            nn.Flatten(),
        )
        self.mean = nn.Linear(flat, self.latents)
        self.log_variance = nn.Linear(flat, self.latents)
        self.project = nn.Linear(self.latents, flat)
        self.lift = nn.Sequential(*_block(nn.ConvTranspose2d(256, 128, 3, padding=1)))
        self.finish = nn.Sequential(
            *_block(nn.ConvTranspose2d(128, 64, 3, stride=2, padding=1, output_padding=1)),
            *_block(nn.ConvTranspose2d(64, 32, 3, stride=2, padding=1, output_padding=1)),
            nn.Conv2d(32, shape[0], 3, padding=1),
        )

    def encode(self, x: Tensor) -> Normal:
        """(B, C, H, W) -> (B, L)."""
        h = self.encoder(x)
        return gaussian(self.mean(h), self.log_variance(h))

    def hidden(self, z: Tensor) -> Tensor:
        """(B, L) -> (B, 128, H/4, W/4)."""
        maps: Tensor = self.lift(self.project(z).unflatten(1, self.low))
        return maps

    def look(self, hidden: Tensor) -> Tensor:
        """The mean of each map."""
        return hidden.mean((2, 3))

    def paint(self, hidden: Tensor, classes: Tensor) -> Tensor:
        """The rest of the decoder; it has no class input."""
        logits: Tensor = self.finish(hidden)
        return logits


@final
class FacesVAE(VAE):
    """Three full connections in, 100 latents, three out; the heads look at the first layer of the decoder.

    The paper gives neither widths nor the layer of the heads: 1,024 each, with BatchNorm and ReLU as in its other one.
    """

    latents, features = 100, 1024

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape, flat, width = shape, math.prod(shape), self.features
        self.encoder = nn.Sequential(nn.Flatten(), *_dense(flat, width), *_dense(width, width))
        self.mean = nn.Linear(width, self.latents)
        self.log_variance = nn.Linear(width, self.latents)
        self.lift = nn.Sequential(*_dense(self.latents, width))
        self.finish = nn.Sequential(*_dense(width, width), nn.Linear(width, flat))

    def encode(self, x: Tensor) -> Normal:
        """(B, ...) -> (B, L)."""
        h = self.encoder(x)
        return gaussian(self.mean(h), self.log_variance(h))

    def hidden(self, z: Tensor) -> Tensor:
        """(B, L) -> (B, 1024)."""
        first: Tensor = self.lift(z)
        return first

    def look(self, hidden: Tensor) -> Tensor:
        """The layer itself."""
        return hidden

    def paint(self, hidden: Tensor, classes: Tensor) -> Tensor:
        """The other two layers; no class input."""
        logits: Tensor = self.finish(hidden).unflatten(1, self.shape)
        return logits


def _block(layer: nn.Conv2d | nn.ConvTranspose2d) -> tuple[nn.Module, ...]:
    return layer, nn.BatchNorm2d(layer.out_channels), nn.ReLU()


def _dense(inputs: int, outputs: int) -> tuple[nn.Module, ...]:
    return nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs), nn.ReLU()


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
        if not is_picture(shape) or shape[1] % 4 or shape[2] % 4:
            raise UsageError(f"this generator takes pictures whose sides are multiples of 4, got {shape}; see --size")
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


def _paper(shape: Shape, classes: int, n: int) -> VAE:
    return PaperVAE(shape)


def _paper_mean(shape: Shape, classes: int, n: int) -> VAE:
    return PaperVAE(shape, mean=True)


def _faces(shape: Shape, classes: int, n: int) -> VAE:
    return FacesVAE(shape)


GENERATORS: dict[str, Callable[[Shape, int, int], VAE]] = {  # by shape, classes and samples
    "vae-paper": _paper,
    "vae-paper-mean": _paper_mean,
    "vae-faces": _faces,
    "vae-modern": ModernVAE,
}

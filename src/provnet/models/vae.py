"""ProvenanceVAE: a network that makes pictures and names the training samples behind them (§5.5, app. 7.10 to 7.15).

A variational autoencoder takes the place of the backbone. An encoder gives a distribution of latents z for a picture; a
decoder makes a picture of z; on a feature inside the decoder sit the class head and the index head. So a picture is
explained by its own latents (z = mean), and a generated one by the latents that it was made of.

Letters: B batch, C channels, H W height and width, L latents, D features.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from provnet.errors import UsageError
from provnet.models.made import Made, Normal
from provnet.models.provenance import ProvenanceNet, ProvenanceOutput

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


class ProvenanceVAE(ProvenanceNet):
    """A provenance network whose backbone is a generator. While it is trained, latents are sampled.

    >>> from provnet.indexing import IndexMap
    >>> from provnet.models.config import NetworkConfig
    >>> from provnet.models.provenance import build
    >>> config = NetworkConfig("class-conditional-heads", "vae-paper", (1, 28, 28), classes=2)
    >>> net = build(config, IndexMap([0, 1, 1])).eval()
    >>> net.picture(torch.zeros(4, 128), torch.zeros(4, dtype=torch.int64)).shape
    torch.Size([4, 1, 28, 28])
    """

    @property
    def vae(self) -> VAE:
        """The generator itself."""
        return vae_of(self)

    def forward(self, images: Tensor, classes: Tensor | None = None) -> ProvenanceOutput:
        """Raw images (B, C, H, W) -> outputs; in training also the pictures rebuilt through sampled latents."""
        if not self.training:
            return super().forward(images, classes)
        vae, x = self.vae, self.normalise(images)
        posterior = vae.encode(x)
        hidden = vae.hidden(sample(posterior))
        output = self.answer(vae.look(hidden), classes)
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


def vae_of(net: ProvenanceNet) -> VAE:
    """The generator of a network; one without is refused."""
    if isinstance(net.backbone, VAE):
        return net.backbone
    raise UsageError("this run makes no pictures; train one that does: provnet train DATA --task generate")


def sample(posterior: Normal, generator: torch.Generator | None = None) -> Tensor:
    """Latents drawn from their distribution, by torch's own generator or a given one (of the CPU)."""
    mean = posterior.mean
    where = mean.device if generator is None else torch.device("cpu")
    noise = torch.randn(mean.shape, generator=generator, device=where).to(mean.device)
    return mean + (posterior.log_variance / 2).exp() * noise


def posterior_of(net: ProvenanceNet, images: Tensor) -> Normal:
    """Raw images -> distribution of their latents."""
    return vae_of(net).encode(net.normalise(images))


def answer_at(net: ProvenanceNet, z: Tensor, classes: Tensor | None = None) -> ProvenanceOutput:
    """Class and index of what the decoder would make of latents z (B, L)."""
    vae = vae_of(net)
    return net.answer(vae.look(vae.hidden(z)), classes)


def picture(net: ProvenanceNet, z: Tensor, classes: Tensor) -> Tensor:
    """Latents (B, L) and classes (B,) -> pixels in [0, 1]; only a conditional generator looks at the classes."""
    vae = vae_of(net)
    return vae.paint(vae.hidden(z), classes).float().sigmoid()


def gaussian(mean: Tensor, log_variance: Tensor) -> Normal:
    """What two layers give, in full precision and within bounds."""
    return Normal(mean.float(), log_variance.float().clamp(LOWEST, HIGHEST))

"""The paper's two generators: convolutions for small pictures (app. 7.10 to 7.13), and full connections for faces.

Letters: B batch, C channels, H W height and width, L latents, D features.
"""

from __future__ import annotations

import math
from typing import final

from torch import Tensor, nn

from provnet.errors import UsageError
from provnet.models.made import Normal
from provnet.models.vae import VAE, Shape, gaussian


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
        if len(shape) != 3 or shape[1] % 4 or shape[2] % 4:
            raise UsageError(
                f"the paper's generator takes pictures whose sides are multiples of 4, got {shape}; --size"
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

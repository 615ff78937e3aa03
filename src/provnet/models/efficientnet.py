"""EfficientNet-Lite0 (Tan and Le 2019, without squeeze-and-excitation, ReLU6), batch norm folded into its convolutions.

Only the layers: weights come from `models.pretrained`. Folded, a layer is a convolution with a bias, which is what the
layer computes in evaluation mode; fine-tuning then trains it without statistics of batches.

Letters: B batch, H W height and width.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import torch.nn.functional as F
from torch import Tensor, nn

SIDE = 224  # pixels that the published weights were trained with
WIDTH = 1280  # features
EPSILON = 1e-3  # of its batch norm
MEAN, STD, SCALE = (127 / 255,) * 3, (128 / 255,) * 3, 255.0  # its own normalisation: (byte - 127) / 128

# repeats, kernel, stride, expansion, channels in, channels out
_STAGES = (
    (1, 3, 1, 1, 32, 16),
    (2, 3, 2, 6, 16, 24),
    (2, 5, 2, 6, 24, 40),
    (3, 3, 2, 6, 40, 80),
    (3, 5, 1, 6, 80, 112),
    (4, 5, 2, 6, 112, 192),
    (1, 3, 1, 6, 192, 320),
)


class _Convolution(nn.Conv2d):
    """A convolution padded as TensorFlow does: with stride 2 one pixel more below and to the right."""

    def __init__(self, given: int, made: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__(given, made, kernel, stride, padding=kernel // 2 if stride == 1 else 0, groups=groups)
        before = (kernel - stride) // 2
        self.around = None if stride == 1 else (before, kernel - stride - before)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, C', H / stride, W / stride)."""
        return super().forward(x if self.around is None else F.pad(x, self.around * 2))


class _Block(nn.Module):
    """Widen, filter each channel alone, narrow; with the input added where the shapes are equal."""

    def __init__(self, kernel: int, stride: int, expansion: int, given: int, made: int) -> None:
        super().__init__()
        wide = given * expansion
        widen = [] if expansion == 1 else [_Convolution(given, wide, 1), nn.ReLU6(inplace=True)]
        each = [_Convolution(wide, wide, kernel, stride, groups=wide), nn.ReLU6(inplace=True)]
        self.layers = nn.Sequential(*widen, *each, _Convolution(wide, made, 1))
        self.adds = stride == 1 and given == made

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, C', H / stride, W / stride)."""
        out: Tensor = self.layers(x)
        return out + x if self.adds else out


@final
class EfficientNetLite0(nn.Module):
    """Normalised pictures (B, 3, H, W) -> pooled features (B, 1280); smaller ones than 224 pixels are enlarged.

    >>> import torch
    >>> EfficientNetLite0()(torch.zeros(1, 3, 224, 224)).shape
    torch.Size([1, 1280])
    """

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [_Convolution(3, 32, 3, 2), nn.ReLU6(inplace=True)]
        for repeats, kernel, stride, expansion, given, made in _STAGES:
            layers.append(_Block(kernel, stride, expansion, given, made))
            layers += [_Block(kernel, 1, expansion, made, made) for _ in range(repeats - 1)]
        self.layers = nn.Sequential(*layers, _Convolution(320, WIDTH, 1), nn.ReLU6(inplace=True))

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, 1280)."""
        if min(x.shape[2:]) < SIDE:
            scale = SIDE / min(x.shape[2:])
            size = [round(side * scale) for side in x.shape[2:]]
            x = F.interpolate(x, size=size, mode="bicubic", antialias=True, align_corners=False)
        pooled: Tensor = self.layers(x).mean((2, 3))
        return pooled


def folded(published: Mapping[str, Tensor], net: nn.Module) -> dict[str, Tensor]:
    """The published weights (convolution, then batch norm, then the classifier) as the weights of `net`."""
    given = iter((name, value) for name, value in published.items() if not name.endswith("num_batches_tracked"))
    made: dict[str, Tensor] = {}
    for name, module in net.named_modules():
        if isinstance(module, nn.Conv2d):
            weight, gain, bias, mean, variance = (next(given)[1] for _ in range(5))
            factor = gain / (variance + EPSILON).sqrt()
            made[f"{name}.weight"] = weight * factor.view(-1, 1, 1, 1)
            made[f"{name}.bias"] = bias - mean * factor
    left = [name for name, _ in given]
    assert left == ["_fc.weight", "_fc.bias"], left
    return made

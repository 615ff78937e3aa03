"""Changed copies of training samples that keep their index: shifts, slight warps, flips, colour, erasing, noise.

Letters: B batch, C channels, H height, W width, F features. Every number drawn is a pure function of (seed, epoch,
index), see data/keyed.py, so the copy of a sample does not depend on the batch it is in, on order, workers, processes
or device. Only operations that IEEE 754 rounds in one way are used (no sine, no `grid_sample`, no float sums), so a
CPU and a GPU give the same bytes; compiled into fused code, a pixel may differ by one.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from provnet.base.batches import normal, sample_keys, uniform
from provnet.base.errors import UsageError, choose, one_of
from provnet.data.modalities.decode import is_picture

FILLS = ("zero", "reflect")
ERASE_FILLS = ("zero", "mean")


@dataclass(frozen=True)
class Policy:
    """What may happen to a sample, and how strongly. All is off by default.

    Attributes:
        shift: most pixels to each side, whole pixels, each as likely.
        fill: what comes in from outside, `zero` or `reflect`.
        scale: least and largest size of the picture's content, (1, 1) leaves it.
        rotate: most degrees to each side, 0 to 90.
        warp_share: share of samples that are scaled and rotated; the others stay sharp.
        flip: mirror half of the samples left to right.
        brightness, contrast: largest change, on [0, 1] pixels and as a factor from 1 - contrast to 1 + contrast.
        erase: largest share of the area that a rectangle may cover.
        erase_fill: what it is filled with, `zero` or the picture's `mean` colour.
        erase_share: share of samples that get one.
        noise: largest sigma on [0, 1] pixels (of a feature's spread for floats), drawn for each sample from 0 up.
        noise_share: share of samples that get noise.
        keep: share of samples left exactly as they are.
    """

    shift: int = 0
    fill: str = "zero"
    scale: tuple[float, float] = (1.0, 1.0)
    rotate: float = 0.0
    warp_share: float = 1.0
    flip: bool = False
    brightness: float = 0.0
    contrast: float = 0.0
    erase: float = 0.0
    erase_fill: str = "zero"
    erase_share: float = 1.0
    noise: float = 0.0
    noise_share: float = 1.0
    keep: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.shift, int) or isinstance(self.shift, bool) or not 0 <= self.shift <= 1024:
            raise UsageError(f"shift must be a whole number of pixels from 0 to 1024, got {self.shift}")
        if not isinstance(self.flip, bool):
            raise UsageError(f"flip must be True or False, got {self.flip}")
        one_of("fill", self.fill, FILLS)
        one_of("erase_fill", self.erase_fill, ERASE_FILLS)
        for name in ("brightness", "contrast", "erase", "noise", "warp_share", "erase_share", "noise_share", "keep"):
            if not _number(value := getattr(self, name)) or not 0 <= value <= 1:
                raise UsageError(f"{name} must be a number from 0 to 1, got {value}")
        if not _number(self.rotate) or not 0 <= self.rotate <= 90:
            raise UsageError(f"rotate must be degrees from 0 to 90, got {self.rotate}")
        pair = tuple(self.scale) if isinstance(self.scale, (tuple, list)) else ()
        if len(pair) != 2 or not all(map(_number, pair)) or not 0.1 <= pair[0] <= pair[1] <= 10:
            raise UsageError(f"scale must be (least, largest) with 0.1 <= least <= largest <= 10, got {self.scale}")
        object.__setattr__(self, "scale", pair)  # a list when it was read from JSON

    @property
    def warps(self) -> bool:
        """Whether pixels are interpolated, not only moved."""
        return self.warp_share > 0 and (self.rotate > 0 or self.scale != (1, 1))

    @property
    def idle(self) -> bool:
        """Whether nothing can happen to any picture."""
        strengths = (self.shift, self.warps, self.flip, self.brightness, self.contrast, self.noise * self.noise_share)
        return self.keep == 1 or not (any(strengths) or (self.erase and self.erase_share))

    def to_json(self) -> dict[str, Any]:
        """A plain dictionary; `Policy(**record)` is its inverse."""
        return {**asdict(self), "scale": list(self.scale)}


def auto_policy(shape: tuple[int, ...]) -> str:
    """The name in POLICIES for samples of this shape: (F,) or (C, H, W).

    >>> auto_policy((1, 28, 28)), auto_policy((3, 32, 32)), auto_policy((1, 8, 8)), auto_policy((30,))
    ('digits', 'photos', 'tiny', 'noise')
    """
    if not is_picture(shape) or min(shape[1:]) < 4:
        return "noise"
    if min(shape[1:]) < 16:
        return "tiny"
    return "digits" if shape[0] == 1 else "photos"


def _number(value: object) -> bool:
    """Whether it is a number; NaN is caught by the bounds."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


POLICIES: dict[str, Policy] = {
    "none": Policy(),
    # vectors, and pictures only a few pixels high or wide
    "noise": Policy(noise=0.15, keep=0.1),
    # pictures of fewer than 16 pixels a side
    "tiny": Policy(shift=1, erase=0.05, erase_share=0.5, noise=0.12, keep=0.1),
    # grey pictures: a mirrored digit is another sign
    "digits": Policy(
        shift=2, scale=(0.9, 1.1), rotate=8.0, warp_share=0.5, erase=0.1, erase_share=0.5, noise=0.15, keep=0.1
    ),
    "photos": Policy(
        shift=4,
        fill="reflect",
        flip=True,
        erase=0.25,
        erase_fill="mean",
        erase_share=0.7,
        noise=0.12,
        noise_share=0.25,
        keep=0.05,
    ),
}


__all__ = ["POLICIES", "Policy", "augment", "auto_policy"]

# The draws of a sample: what each is for. New ones go to the end, so that the others keep their values.
DRAWS = 16
KEEP, DOWN, RIGHT, WARP, SCALE, ROTATE, FLIP, BRIGHTNESS, CONTRAST, ERASE, AREA, ASPECT, TOP, LEFT, SIGMA = range(15)
NOISY = 15
PIXELS = 64  # number of the first draw of the noise; below it is room for more draws of a sample


def augment(
    images: Tensor, index: Tensor, policy: Policy | str, *, seed: int, epoch: int | Tensor, std: Tensor | None = None
) -> Tensor:
    """The changed copy of each sample for this epoch: same shape, type and device (the very tensor if nothing changes).

    Pictures are uint8 (B, C, H, W). Floats, (B, F) or (B, C, H, W), get noise alone: their range and background are
    not known. `std` is the spread of each feature, a shape of one sample or a part that broadcasts (default 1).
    `epoch` may be a tensor, see `sample_keys`.

    >>> images = torch.arange(2 * 64, dtype=torch.uint8).view(2, 1, 8, 8)
    >>> both = augment(images, torch.tensor([4, 9]), "tiny", seed=0, epoch=2)
    >>> torch.equal(augment(images[1:], torch.tensor([9]), "tiny", seed=0, epoch=2), both[1:])
    True
    """
    policy = choose("augmentation", policy, POLICIES) if isinstance(policy, str) else policy
    _check(images, index, policy)
    if policy.idle or len(images) == 0 or (images.dtype != torch.uint8 and policy.noise == 0):
        return images
    keys = sample_keys(index.to(images.device), seed=seed, epoch=epoch)
    drawn = uniform(keys, 0, DRAWS)
    each = (-1,) + (1,) * (images.ndim - 1)  # one number a sample, to broadcast
    kept = (drawn[:, KEEP] < policy.keep).view(each)
    sigma = torch.where(drawn[:, NOISY] < policy.noise_share, drawn[:, SIGMA] * policy.noise, 0.0).view(each)
    if images.dtype != torch.uint8:
        noise = normal(keys, PIXELS, images[0].numel()).view(images.shape) * sigma
        noise = noise if std is None else noise * std.to(images.device, torch.float32)
        return torch.where(kept, images, images + noise.to(images.dtype))
    out = _move(images, drawn, policy)
    if policy.brightness or policy.contrast:
        out = _recolour(out, images, drawn, policy)
    if policy.erase and policy.erase_share:
        out = _erase(out, images, drawn, policy)
    if policy.noise:
        out = normal(keys, PIXELS, images[0].numel()).view(images.shape).mul_(sigma * 255).add_(out)
    if out.dtype != torch.uint8:
        out = out.round_().clamp_(0, 255).to(torch.uint8)
    return torch.where(kept, images, out)


def _move(images: Tensor, drawn: Tensor, policy: Policy) -> Tensor:
    """Shift, flip and warp in one go: where each pixel comes from, then one gather, or four where it lies between."""
    if not (policy.shift or policy.flip or policy.warps):
        return images
    height, width = images.shape[2:]
    rows = torch.arange(height, device=images.device).float() - (height - 1) / 2  # from the middle
    columns = torch.arange(width, device=images.device).float() - (width - 1) / 2
    y, x = rows.view(1, -1, 1), columns.view(1, 1, -1)
    choices = 2 * policy.shift + 1
    down = (policy.shift + (height - 1) / 2) - (drawn[:, DOWN, None, None] * choices).floor()
    right = (policy.shift + (width - 1) / 2) - (drawn[:, RIGHT, None, None] * choices).floor()
    if policy.flip:
        x = torch.where(drawn[:, FLIP, None, None] < 0.5, -x, x)
    if policy.warps:
        warped = drawn[:, WARP, None, None] < policy.warp_share
        least, largest = policy.scale
        size = torch.where(warped, drawn[:, SCALE, None, None] * (largest - least) + least, 1.0)
        # t = tan(angle / 2) gives cosine and sine by +, * and / alone: the same bits on every device
        t = torch.where(warped, _around(drawn[:, ROTATE, None, None], math.tan(math.radians(policy.rotate) / 2)), 0.0)
        across = (1 + t * t) * size
        cosine, sine = (1 - t * t) / across, 2 * t / across
        y, x = (cosine * y + down) + sine * x, (cosine * x + right) - sine * y
    else:
        y, x = y + down, x + right
    y, x = _inside(y, height, policy.fill), _inside(x, width, policy.fill)
    # a frame of zeros: what lies outside, and a right and lower neighbour for every pixel
    frame = F.pad(images, (1, 2, 1, 2)).flatten(2)
    left, top = x.floor(), y.floor()
    corner = (top.long() + 1).mul_(width + 3) + left.long().add_(1)  # (B, H, W)
    if not policy.warps:
        return _pick(frame, corner)
    x, y = (x - left).unsqueeze(1), (y - top).unsqueeze(1)
    upper, lower = (
        _between(_pick(frame[:, :, step:], corner), _pick(frame[:, :, step + 1 :], corner), x)
        for step in (0, width + 3)
    )
    return _between(upper, lower, y)


def _between(start: Tensor, end: Tensor, share: Tensor) -> Tensor:
    """Linear interpolation, one rounding at a time (a fused multiply-add would differ between devices)."""
    start = start.float()
    return end.float().sub_(start).mul_(share).add_(start)


def _inside(position: Tensor, side: int, fill: str) -> Tensor:
    """Positions beyond the picture: folded back, or moved into the frame of zeros."""
    if fill == "zero":
        return position.clamp(-1, side)
    return (side - 1 - (side - 1 - position.abs()).abs()).clamp_(min=0)


def _pick(frame: Tensor, corner: Tensor) -> Tensor:
    """The pixels at these places of (B, C, places), for every channel: (B, C, H, W)."""
    batch, channels = frame.shape[:2]
    places = corner.flatten(1).unsqueeze(1).expand(batch, channels, -1)
    return frame.gather(2, places).view(batch, channels, *corner.shape[1:])


def _recolour(out: Tensor, images: Tensor, drawn: Tensor, policy: Policy) -> Tensor:
    """Contrast around the picture's mean, then brightness."""
    mean = _mean(images.flatten(1))  # (B,)
    contrast = 1 + _around(drawn[:, CONTRAST], policy.contrast)
    offset = mean * (1 - contrast) + _around(drawn[:, BRIGHTNESS], policy.brightness * 255)
    return (out * contrast.view(-1, 1, 1, 1)).add_(offset.view(-1, 1, 1, 1))


def _erase(out: Tensor, images: Tensor, drawn: Tensor, policy: Policy) -> Tensor:
    """Cover a rectangle; it is never larger than the share of the area drawn for it."""
    height, width = images.shape[2:]
    side = (drawn[:, AREA] * policy.erase).sqrt()  # of a square, as a share of the picture's sides
    stretch = 1 + (drawn[:, ASPECT] * 2 - 1).abs()  # 1 to 2, as often wide as high
    wide = drawn[:, ASPECT] < 0.5
    chosen = drawn[:, ERASE] < policy.erase_share

    def along(pixels: int, share: Tensor, where: Tensor) -> Tensor:  # (B, pixels): which of them are covered
        length = (share * pixels).floor().clamp_(max=pixels)
        start = (where * (pixels - length + 1)).floor()
        position = torch.arange(pixels, device=images.device)
        return (position >= start[:, None]) & (position < (start + length)[:, None])

    rows = along(height, torch.where(wide, side / stretch, side * stretch), drawn[:, TOP])
    columns = along(width, torch.where(wide, side * stretch, side / stretch), drawn[:, LEFT])
    covered = (rows & chosen[:, None])[:, None, :, None] & columns[:, None, None, :]
    if policy.erase_fill == "zero":
        return out.masked_fill(covered, 0)
    return torch.where(covered, _mean(images.flatten(2)).round()[:, :, None, None].to(out.dtype), out)


def _around(drawn: Tensor, most: float) -> Tensor:
    """From [0, 1) to [-most, most)."""
    return (drawn * 2 - 1) * most


def _mean(pixels: Tensor) -> Tensor:
    """Means of bytes over the last dimension; summed as integers, which has one result in any order."""
    return (pixels.sum(-1).double() * (1 / pixels.shape[-1])).float()


def _check(images: Tensor, index: Tensor, policy: Policy) -> None:
    """Refuse what cannot be augmented, in words."""
    if images.ndim not in (2, 4) or not (images.is_floating_point() or (images.dtype, images.ndim) == (torch.uint8, 4)):
        raise UsageError(
            f"augmentation takes uint8 pictures (B, C, H, W) or floats (B, F) or (B, C, H, W), got {images.dtype} of "
            f"shape {tuple(images.shape)}"
        )
    if index.dtype != torch.int64 or index.shape != images.shape[:1]:
        raise UsageError(
            f"augmentation takes one int64 index a sample, {len(images)} here, got {index.dtype} of shape "
            f"{tuple(index.shape)}"
        )
    if images.dtype == torch.uint8 and policy.shift >= min(images.shape[2:]):
        raise UsageError(
            f"a shift of up to {policy.shift} pixels is too much for pictures of {images.shape[2]} x "
            f"{images.shape[3]}; give a smaller shift, or another augment (--augment)"
        )

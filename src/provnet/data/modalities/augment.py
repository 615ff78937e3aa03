"""Changed copies of samples: `augment` for training, and small distortions under which a sample must be recognised.

A training copy keeps its index: shifts, slight warps, flips, colour, erasing, noise. Every number drawn is a pure
function of (seed, epoch, index), so the copy of a sample does not depend on the batch it is in, on order, workers,
processes or device. Only operations that IEEE 754 rounds in one way are used (no sine, no `grid_sample`, no float
sums), so a CPU and a GPU give the same bytes; compiled into fused code, a pixel may differ by one.

The distortions are noise, one-pixel shift and JPEG. They take raw samples, uint8 (N, C, H, W) or floats, and give uint8
or float32 back; each draws from (seed) alone. Beside what they are given and give back they hold a few MB.

Letters: B batch, C channels, H height, W width, F features.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from provnet.base.batches import keyed_generator, normal, sample_keys, uniform
from provnet.base.errors import UsageError, choose, one_of
from provnet.data.modalities.decode import are_pictures, is_picture

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
    if policy.idle:
        return
    if images.ndim not in (2, 4) or not (images.is_floating_point() or (images.dtype, images.ndim) == (torch.uint8, 4)):
        raise UsageError(
            f"augmentation takes uint8 pictures (B, C, H, W) or floats (B, F) or (B, C, H, W), got {images.dtype} of "
            f"shape {tuple(images.shape)}"
        )
    if index.dtype != torch.int64 or index.shape != images.shape[:1]:
        raise UsageError(
            f"augmentation takes one int64 index per sample, {len(images)} here, got {index.dtype} of shape "
            f"{tuple(index.shape)}"
        )
    if images.dtype == torch.uint8 and policy.shift >= min(images.shape[2:]):
        raise UsageError(
            f"a shift of up to {policy.shift} pixels is too much for pictures of {images.shape[2]} x "
            f"{images.shape[3]}; give a smaller shift, or another augment (--augment)"
        )


VALUES = 2**20  # in work at a time
GROUP = 16  # values that torch.randn makes together
_STEPS = [(dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if (dy, dx) != (0, 0)]


def add_noise(images: Tensor, seed: int, sigma: float = 0.1, spread: Tensor | None = None) -> Tensor:
    """Gaussian noise: sigma on [0, 1] pixels, clamped; for floats, sigma of each feature's spread.

    That is the `spread` given (`spread_of`), as for parts of a whole, else the one among these samples.

    >>> add_noise(torch.zeros(2, 1, 4, 4, dtype=torch.uint8), seed=0).dtype
    torch.uint8
    """
    generator = keyed_generator(seed, 11)
    if images.dtype != torch.uint8:
        values = images.cpu().float()
        wide = spread_of(values) if spread is None else spread.cpu()
        noise = torch.randn(images.shape, generator=generator).mul_(sigma)  # becomes what is given back
        return noise.mul_(wide).add_(values)
    given = images.cpu().contiguous()
    out = torch.empty_like(given)
    for part in draws(given.numel(), VALUES):
        some = torch.randn(part.stop - part.start, generator=generator).mul_(sigma)
        some.add_(given.view(-1)[part].float().div_(255))
        out.view(-1)[part] = some.clamp_(0, 1).mul_(255).round_().to(torch.uint8)
    return out


def spread_of(values: Tensor) -> Tensor:
    """(1, ...) the standard deviation of each feature over N samples.

    >>> spread_of(torch.tensor([[1.0, 5.0], [3.0, 5.0]])).tolist()
    [[1.0, 0.0]]
    """
    return values.float().std(0, correction=0, keepdim=True)


def draws(count: int, most: int) -> Iterator[slice]:
    """Parts in which torch.randn draws `count` numbers as it does at once: whole groups, and no last part below one.

    It fills 16 numbers at a time, draws the last 16 anew where the count is no multiple of 16, and goes another way
    below 16.

    >>> a, b = keyed_generator(3), keyed_generator(3)
    >>> parts = [torch.randn(part.stop - part.start, generator=a) for part in draws(70, 32)]
    >>> [len(part) for part in parts], torch.equal(torch.cat(parts), torch.randn(70, generator=b))
    ([32, 38], True)
    """
    step = max(GROUP, most - most % GROUP)
    start = 0
    while start < count:
        stop = start + step if count - start - step >= GROUP else count
        yield slice(start, stop)
        start = stop


def shift(images: Tensor, seed: int) -> Tensor:
    """One pixel to one of the eight neighbours, zero-filled, the direction drawn for each sample.

    >>> int(shift(torch.full((1, 1, 3, 3), 9, dtype=torch.uint8), seed=0).eq(0).sum()) in (3, 5)
    True
    """
    if not are_pictures(images):
        raise UsageError(f"only pictures (N, C, H, W) can be shifted, got shape {tuple(images.shape)}")
    images = images.cpu()
    n, _, height, width = images.shape
    direction = torch.randint(0, len(_STEPS), (n,), generator=keyed_generator(seed, 12))
    out = torch.empty_like(images)
    for some in torch.split(torch.arange(n), max(1, VALUES // max(images[:1].numel(), 1))):
        padded = torch.nn.functional.pad(images[some], (1, 1, 1, 1))
        for number, (dy, dx) in enumerate(_STEPS):
            rows = direction[some] == number
            out[some[rows]] = padded[rows][:, :, 1 - dy : 1 - dy + height, 1 - dx : 1 - dx + width]
    return out


def jpeg(images: Tensor, quality: int = 50) -> Tensor:
    """Encode and decode every picture as JPEG.

    >>> jpeg(torch.zeros(1, 3, 8, 8, dtype=torch.uint8)).shape
    torch.Size([1, 3, 8, 8])
    """
    if images.dtype != torch.uint8 or not are_pictures(images):
        raise UsageError(f"JPEG takes uint8 pictures (N, C, H, W), got {images.dtype} of shape {tuple(images.shape)}")
    out = np.empty(tuple(images.shape), np.uint8)
    for row, picture in enumerate(images.cpu().numpy()):
        buffer = io.BytesIO()
        Image.fromarray(picture[0] if len(picture) == 1 else picture.transpose(1, 2, 0)).save(
            buffer, "JPEG", quality=quality
        )
        back = np.asarray(Image.open(buffer))
        out[row] = back[None] if back.ndim == 2 else back.transpose(2, 0, 1)
    return torch.from_numpy(out)


def perturbations(images: Tensor) -> dict[str, Callable[[Tensor, int], Tensor]]:
    """The distortions, by name, of (images, seed) that apply to this kind of data: all of bytes, noise of vectors.

    They are not made here: each copy is as large as the data, so they are best made one after the other.

    >>> sorted(perturbations(torch.zeros(2, 1, 4, 4, dtype=torch.uint8)))
    ['jpeg', 'noise', 'shift']
    """
    ways: dict[str, Callable[[Tensor, int], Tensor]] = {"noise": add_noise}
    if are_pictures(images):
        ways["shift"] = shift
    if are_pictures(images) and images.dtype == torch.uint8:
        ways["jpeg"] = lambda images, _: jpeg(images)
    return ways


PHOTOGRAPH = 64  # pixels a side of colour pictures from which on they are taken for photographs
CUT = 0.05  # of each side of a photograph


def cut(images: Tensor, seed: int, share: float = CUT) -> Tensor:
    """Cut a share of height and of width off, at a place drawn for each picture, and enlarge the rest to fill.

    >>> cut(torch.zeros(2, 3, 64, 64, dtype=torch.uint8), seed=0).shape
    torch.Size([2, 3, 64, 64])
    """
    images = images.cpu()
    n, _, height, width = images.shape
    lost = [max(1, round(share * side)) for side in (height, width)]
    place = torch.rand(n, 2, generator=keyed_generator(seed, 13))
    starts = (place * torch.tensor([lost[0] + 1, lost[1] + 1])).long().tolist()
    out = torch.empty_like(images)
    for row, (top, left) in enumerate(starts):
        inner = images[row : row + 1, :, top : top + height - lost[0], left : left + width - lost[1]].float()
        grown = F.interpolate(inner, size=(height, width), mode="bilinear", antialias=True)[0]
        out[row] = grown.round().clamp(0, 255).to(torch.uint8) if images.dtype == torch.uint8 else grown
    return out


def photograph_copies(shape: tuple[int, ...]) -> dict[str, Callable[[Tensor, int], Tensor]]:
    """The distortions that people know from photographs, by name; none for smaller or grey pictures (C, H, W).

    >>> sorted(photograph_copies((3, 224, 224))), sorted(photograph_copies((1, 224, 224)))
    (['crop', 'mirror'], [])
    """
    if len(shape) != 3 or shape[0] != 3 or min(shape[1:]) < PHOTOGRAPH:
        return {}
    return {"crop": cut, "mirror": lambda images, _: images.flip(3)}


SIDE = 28  # a crop takes one pixel off each side of a picture of this size, in proportion of others
Copy = Callable[[Tensor, int], Tensor]


@dataclass(frozen=True, eq=False)
class Noise:
    """Noise of `sigma`: on pixels from 0 to 1, or in units of the `spread` of each feature of floats.

    Attributes:
        sigma: how much.
        spread: (1, ...) of each feature; None takes that of the samples given together.
    """

    sigma: float
    spread: Tensor | None = None

    def __call__(self, images: Tensor, seed: int) -> Tensor:
        """Noisy copies of raw samples."""
        return add_noise(images, seed, self.sigma, self.spread)


def fix_copy(copy: Copy, images: Tensor) -> Copy:
    """The same distortion for parts of these samples: what it needs to know of all of them is looked at now.

    >>> values = torch.tensor([[0.0], [8.0]])
    >>> noise = fix_copy(COPIES["noise-0.1"], values)
    >>> bool((noise(values[:1], 0) != values[:1]).all())
    True
    """
    if not isinstance(copy, Noise) or copy.spread is not None or images.dtype == torch.uint8:
        return copy
    return replace(copy, spread=spread_of(images))


def crop(images: Tensor) -> Tensor:
    """Cut the margin of raw pictures (N, C, H, W) off, 1 pixel in 28 on each side, and enlarge the rest to fill.

    >>> crop(torch.zeros(2, 1, 28, 28, dtype=torch.uint8)).shape
    torch.Size([2, 1, 28, 28])
    """
    if not are_pictures(images):
        raise UsageError(f"only pictures (N, C, H, W) can be cropped, got shape {tuple(images.shape)}")
    height, width = images.shape[2:]
    top, left = max(1, round(height / SIDE)), max(1, round(width / SIDE))
    inner = images[:, :, top : height - top, left : width - left].float()
    if 0 in inner.shape:
        raise UsageError(f"pictures of {height} x {width} are too small to be cropped")
    grown = F.interpolate(inner, size=(height, width), mode="bilinear", antialias=True)
    return grown.round().clamp(0, 255).to(torch.uint8) if images.dtype == torch.uint8 else grown


def copies_of(images: Tensor) -> dict[str, Copy]:
    """The distortions that apply to this kind of data, by name: all of bytes, not JPEG of floats, noise of vectors.

    Noise on floats has the spread of these samples, whatever it is applied to: members and others are distorted alike.

    >>> sorted(copies_of(torch.zeros(1, 4)))
    ['noise-0.05', 'noise-0.1']
    """
    picture = are_pictures(images)
    fits = {
        "noise-0.05": True,
        "noise-0.1": True,
        "shift": picture,
        "crop": are_pictures(images, least=3),
    }
    fits["jpeg-50"] = picture and images.dtype == torch.uint8
    return {name: fix_copy(copy, images) for name, copy in COPIES.items() if fits[name]}


COPIES: dict[str, Copy] = {
    "noise-0.05": Noise(0.05),
    "noise-0.1": Noise(0.1),
    "shift": shift,
    "jpeg-50": lambda images, _: jpeg(images, 50),
    "crop": lambda images, _: crop(images),
}
WORDS = {
    "noise-0.05": "noise, σ = 0.05",
    "noise-0.1": "noise, σ = 0.1",
    "shift": "one pixel aside",
    "jpeg-50": "JPEG, quality 50",
    "crop": "margin cut, enlarged",
}

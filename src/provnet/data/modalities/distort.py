"""Small distortions under which a sample must still be recognised: noise, one-pixel shift, JPEG.

All take raw images, uint8 (N, C, H, W) or floats, and give uint8 or float32 back; each draws from (seed) alone. Beside
what they are given and give back they hold a few MB, however many and however large the pictures are.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from provnet.base.batches import keyed_generator
from provnet.base.errors import UsageError
from provnet.data.modalities.decode import are_pictures

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


def of_photographs(shape: tuple[int, ...]) -> dict[str, Callable[[Tensor, int], Tensor]]:
    """The distortions that people know from photographs, by name; none for smaller or grey pictures (C, H, W).

    >>> sorted(of_photographs((3, 224, 224))), sorted(of_photographs((1, 224, 224)))
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


def of_all(copy: Copy, images: Tensor) -> Copy:
    """The same distortion for parts of these samples: what it needs to know of all of them is looked at now.

    >>> values = torch.tensor([[0.0], [8.0]])
    >>> noise = of_all(COPIES["noise-0.1"], values)
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
        raise UsageError(f"only pictures (N, C, H, W) can be cut, got shape {tuple(images.shape)}")
    height, width = images.shape[2:]
    top, left = max(1, round(height / SIDE)), max(1, round(width / SIDE))
    inner = images[:, :, top : height - top, left : width - left].float()
    if 0 in inner.shape:
        raise UsageError(f"pictures of {height} x {width} are too small to be cut")
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
    return {name: of_all(copy, images) for name, copy in COPIES.items() if fits[name]}


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

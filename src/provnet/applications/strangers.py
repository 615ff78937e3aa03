"""Pictures that no training sample supports: noise, one colour, and letters and shapes drawn for the purpose.

They come in the run's own shape, type and range of values, each a pure function of the seed.

Letters: n pictures, C channels, H W height and width.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

LETTERS = "ACEFHKMNPRTUVWXY"  # those that look like a digit (B, D, G, I, J, L, O, Q, S, Z) are left out
Draw = Callable[[ImageDraw.ImageDraw, int, np.random.Generator], None]
LARGE = 112  # pixels a side that is drawn at least, then made smaller: smooth edges
LEAST = 8  # pixels a side that a letter needs
BUILT_IN = ("noise", "constant", "letters", "shapes")


def uniform_noise(like: Tensor, n: int, seed: int = 0) -> Tensor:
    """Every value by itself, as likely anywhere in the range of `like`.

    >>> uniform_noise(torch.zeros(2, 1, 8, 8, dtype=torch.uint8), 3).shape
    torch.Size([3, 1, 8, 8])
    """
    drawn = np.random.default_rng([seed, 63]).random((n, *like.shape[1:]), dtype=np.float32)
    return _typed(torch.from_numpy(drawn), like)


def constant(like: Tensor, n: int, seed: int = 0) -> Tensor:
    """Pictures of one colour (vectors: of one value a feature range); the first is black, the second white.

    >>> constant(torch.zeros(2, 1, 8, 8, dtype=torch.uint8), 3)[1].unique().tolist()
    [255]
    """
    channels = like.shape[1] if like.ndim == 4 else 1
    drawn = np.random.default_rng([seed, 64]).random((n, channels), dtype=np.float32)
    drawn[:2] = np.arange(len(drawn[:2]), dtype=np.float32)[:, None]
    values = torch.from_numpy(drawn).view(n, channels, *([1] * (like.ndim - 2)))
    return _typed(values.expand(n, *like.shape[1:]).contiguous(), like)


def letters(like: Tensor, n: int, seed: int = 0) -> Tensor:
    """Letters, in many sizes, angles and places, light on dark; in colour where `like` has colour."""
    return _typed(_drawn(like, n, np.random.default_rng([seed, 65]), _letter), like)


def shapes(like: Tensor, n: int, seed: int = 0) -> Tensor:
    """Filled and outlined triangles, squares, stars and grids.

    >>> shapes(torch.zeros(2, 3, 16, 16, dtype=torch.uint8), 2).dtype
    torch.uint8
    """
    return _typed(_drawn(like, n, np.random.default_rng([seed, 66]), _shape), like)


def strangers(like: Tensor, n: int, seed: int = 0) -> dict[str, Tensor]:
    """All kinds that there are for such data: (n, C, H, W) pictures large enough for a letter get all four.

    >>> list(strangers(torch.zeros(2, 4), 3))
    ['noise', 'constant']
    """
    found = {"noise": uniform_noise(like, n, seed), "constant": constant(like, n, seed)}
    if like.ndim == 4 and like.shape[1] in (1, 3) and min(like.shape[2:]) >= LEAST:
        found |= {"letters": letters(like, n, seed), "shapes": shapes(like, n, seed)}
    return found


def _typed(values: Tensor, like: Tensor) -> Tensor:
    """Values in 0..1 as bytes, or as floats over the range of `like` (of each feature, where those are vectors)."""
    if like.dtype == torch.uint8:
        return values.mul(255).round().to(torch.uint8)
    low, high = (like.amin(0), like.amax(0)) if like.ndim == 2 else (like.min(), like.max())
    return (low + values * (high - low)).to(like.dtype)


def _drawn(like: Tensor, n: int, chance: np.random.Generator, draw: Draw) -> Tensor:
    channels, height, width = like.shape[1:]
    out = np.zeros((n, channels, height, width), dtype=np.float32)
    for row in range(n):
        side = max(height, width)
        side *= max(1, -(-LARGE // side))
        mask = Image.new("L", (side, side), 0)
        draw(ImageDraw.Draw(mask), side, chance)
        mask = mask.rotate(float(chance.uniform(-25, 25)), Image.Resampling.BILINEAR)
        small = np.asarray(mask.resize((width, height), Image.Resampling.BOX), dtype=np.float32) / 255
        front, back = (1.0, 0.0) if channels == 1 else (chance.random((3, 1, 1)), chance.random((3, 1, 1)) * 0.4)
        out[row] = back + small * (front - back)
    return torch.from_numpy(out).clamp(0, 1)


def _letter(pen: ImageDraw.ImageDraw, side: int, chance: np.random.Generator) -> None:
    font = ImageFont.load_default(size=float(chance.uniform(0.6, 0.9)) * side)
    x, y = (float(side / 2 + chance.uniform(-0.06, 0.06) * side) for _ in range(2))
    text = LETTERS[int(chance.integers(len(LETTERS)))]
    pen.text((x, y), text, 255, font, anchor="mm", stroke_width=int(chance.integers(0, max(2, side // 28))))


def _shape(pen: ImageDraw.ImageDraw, side: int, chance: np.random.Generator) -> None:
    kind = int(chance.integers(4))
    radius, line = side * float(chance.uniform(0.28, 0.4)), max(2, side // 14)
    if kind == 3:
        step = max(4, int(side * chance.uniform(0.14, 0.24)))
        for at in range(step // 2, side, step):
            pen.line([(at, 0), (at, side)], 255, line // 2)
            pen.line([(0, at), (side, at)], 255, line // 2)
        return
    corners = (3, 4, 10)[kind]
    points = []
    for i in range(corners):
        far = radius * (0.45 if corners == 10 and i % 2 else 1.0)
        angle = 2 * math.pi * i / corners
        points.append((side / 2 + far * math.cos(angle), side / 2 + far * math.sin(angle)))
    filled = bool(chance.integers(2))
    pen.polygon(points, 255 if filled else None, 255, line)

"""Policy: what augmentation may do to a sample and how strongly; POLICIES: the ones with a name."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from provnet.errors import UsageError, one_of

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
    if len(shape) != 3 or min(shape[1:]) < 4:
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

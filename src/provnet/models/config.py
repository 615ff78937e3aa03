"""NetworkConfig: everything that decides a network's shape; what config.json keeps of it."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from provnet.errors import UsageError, one_of

HEADS = ("plain", "exemplar", "exemplar-trained")
KEY_TYPES = ("fp32", "bf16", "int8")
NUMBERS: dict[str, Any] = {
    "alpha": numbers.Real,
    "level": numbers.Integral,
    "key_width": numbers.Integral,
    "key_scale": numbers.Real,
}


@dataclass(frozen=True)
class NetworkConfig:
    """A network of the closed tables NETWORKS and BACKBONES.

    Attributes:
        network: a name in NETWORKS.
        backbone: a name in BACKBONES or SHARING, or `custom` for a module given as object (needed again at load).
        input_shape: (C, H, W) or (F,).
        classes: C, empty classes included.
        mean, std: one a channel (or a feature), in units of `raw / scale`.
        scale: 255 for bytes, 1 for floats.
        conditional: concatenate the one-hot class (class-conditional only).
        alpha: label mixing, the probability that the target is another sample of the class.
        level: sharing level of the backbones of app. 7.6.
        head: a name in HEADS; `plain` is the paper's output layer.
        key_width, key_scale, key_type: of an exemplar head: features of a key (0: the backbone's own, or 128 of them
            where those are more than 512), factor of the cosine (0: learned), how keys are stored (fp32, bf16, int8).
    """

    network: str
    backbone: str
    input_shape: tuple[int, ...]
    classes: int
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    scale: float = 1.0
    conditional: bool = True
    alpha: float = 0.0
    level: int = 3
    head: str = "plain"
    key_width: int = 0
    key_scale: float = 0.0
    key_type: str = "fp32"

    def __post_init__(self) -> None:
        for name, kind in NUMBERS.items():
            value = getattr(self, name)
            if not isinstance(value, kind):
                what = "a whole number" if kind is numbers.Integral else "a number"
                raise UsageError(f"{name} must be {what}, got {value!r}; leave it out for the usual value")
        if not isinstance(self.conditional, bool):
            raise UsageError(f"conditional must be True or False, got {self.conditional!r}")
        if not 0 <= self.alpha <= 1:
            raise UsageError(f"alpha must lie in [0, 1], 0 for no label mixing; got {self.alpha}")
        if len(self.input_shape) not in (1, 3) or min(self.input_shape) < 1:
            raise UsageError(f"input_shape must be (C, H, W) or (F,) with positive sizes, got {self.input_shape}")
        if self.classes < 1:
            raise UsageError(f"classes must be 1 or more, got {self.classes}")
        if len(self.mean) != len(self.std) or len(self.mean) not in (1, self.input_shape[0]):
            raise UsageError(f"mean and std need one value or {self.input_shape[0]}, got {len(self.mean)}")
        if not all(math.isfinite(v) for v in (*self.mean, *self.std, self.scale)) or min(*self.std, self.scale) <= 0:
            raise UsageError("mean, std and scale must be finite, std and scale above 0")
        one_of("head", self.head, HEADS)
        one_of("key_type (--keys)", self.key_type, KEY_TYPES)
        if not 0 <= self.key_width <= 4096:
            raise UsageError(
                f"key_width (--key-width) must be a whole number from 0 to 4096, 0 to choose it; got {self.key_width}"
            )
        if not 0 <= self.key_scale <= 64:
            raise UsageError(f"key_scale must lie in 0..64, 0 to have it learned; got {self.key_scale}")

    def to_json(self) -> dict[str, Any]:
        """A plain dictionary for config.json."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> NetworkConfig:
        """The inverse of `to_json`; lists become tuples.

        >>> config = NetworkConfig("single", "mlp", (4,), classes=2)
        >>> NetworkConfig.from_json(config.to_json()) == config
        True
        """
        plain: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in value.items()}
        return cls(**plain)


def shape_words(shape: tuple[int, ...], given: tuple[int, ...]) -> str:
    """What to do with samples of another shape than a network takes.

    >>> shape_words((1, 28, 28), (28, 28))
    'this network takes samples of shape (1, 28, 28), got (28, 28); add the axis of the channel: images[:, None]'
    """
    way = "resize them first"
    if len(shape) == 3 and shape[0] == 1 and given == shape[1:]:
        way = "add the axis of the channel: images[:, None]"
    elif len(shape) == 3 and given == (*shape[1:], shape[0]):
        way = "bring the channels to the front: numpy.moveaxis(images, -1, 1)"
    return f"this network takes samples of shape {shape}, got {given}; {way}"

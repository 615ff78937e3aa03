"""Backbones: what turns a picture (or a vector) into features, and how wide the branches on top of each are.

Letters: B batch, C channels, H W height and width, D features.
`BACKBONES` at the bottom is the closed table that model files may name. Wherever a name is accepted, an
`nn.Module` that maps (B, C, H, W) to (B, D) is too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from provnet.base.errors import UsageError, choose
from provnet.data.modalities.decode import is_picture
from provnet.heads.heads import WideLinear
from provnet.models.pretrained import LEAST, LITE0, installed, lite0

Shape = tuple[int, ...]
MANY = 20_000  # samples from which on preset `robust` takes a larger network and another recipe


@dataclass(frozen=True)
class Design:
    """A backbone and the hidden layers of its branches, each as (width, dropout).

    With `measured` its features are frozen, and what is measured on them stands before both branches.
    """

    make: Callable[[Shape], nn.Module]
    task: tuple[tuple[int, float], ...]
    trunk: tuple[tuple[int, float], ...]
    last_dropout: float = 0.0
    measured: bool = False


def branch(inputs: int, layers: tuple[tuple[int, float], ...], last_dropout: float = 0.0) -> nn.Sequential:
    """Hidden layers of a branch: Linear, BatchNorm, ReLU, Dropout for each (width, dropout).

    >>> branch(8, ((4, 0.1),))(torch.zeros(2, 8)).shape
    torch.Size([2, 4])
    """
    parts: list[nn.Module] = []
    for width, dropout in layers:
        parts += [WideLinear(inputs, width), nn.BatchNorm1d(width), nn.ReLU()]
        parts += [nn.Dropout(dropout)] if dropout else []
        inputs = width
    parts += [nn.Dropout(last_dropout)] if last_dropout else []
    return nn.Sequential(*parts)


def output_shape(module: nn.Module, shape: Shape) -> Shape:
    """Shape of what a module gives for one input of this shape, without touching its state.

    >>> output_shape(nn.Flatten(), (1, 4, 4))
    (16,)
    """
    given = torch.zeros(1, *shape, device=_device(module))
    try:
        with only_asked(module):
            out = module(given)
    except (RuntimeError, ValueError, TypeError, IndexError, AssertionError) as error:
        raise UsageError(
            f"the backbone does not take a batch of shape {tuple(given.shape)} ({error}); "
            f"give one for samples of shape {shape}, or samples of the shape that it takes"
        ) from error
    if not isinstance(out, Tensor):
        raise UsageError(f"a backbone must give one tensor (B, D), this one gives a {type(out).__name__}; {_WRAP}")
    if not out.is_floating_point() or (out.dtype != given.dtype and not torch.is_autocast_enabled(given.device.type)):
        raise UsageError(f"a backbone must give {given.dtype} features, this one gives {out.dtype}; {_WRAP}")
    if out.ndim == 0 or len(out) != 1:
        raise UsageError(
            f"a backbone must give (B, D) features, a row for each sample; of a batch of 1 this one makes "
            f"a tensor of shape {tuple(out.shape)}; {_WRAP}"
        )
    return tuple(out.shape[1:])


class StandIn(nn.Module):
    """Gives features of the shape of a given backbone's, at no cost; the class branch is that one's, too."""

    def __init__(self, backbone: nn.Module, shape: Shape) -> None:
        super().__init__()
        self.features = output_shape(backbone, shape)
        self.task_layers = custom_design(backbone).task

    def forward(self, x: Tensor) -> Tensor:
        """(B, ...) -> (B, *features)."""
        return x.new_zeros(len(x), *self.features)


def check_alone(module: nn.Module, inputs: Tensor) -> None:
    """Refuse a backbone whose features of a sample differ with its company in the batch, or from time to time.

    What is answered and named for a picture would depend on the pictures asked with it, or on chance.

    >>> check_alone(nn.Flatten(), torch.rand(2, 1, 4, 4))
    """
    given = inputs.to(_device(module))
    with only_asked(module):
        alone = module(given[:1].clone())
        try:
            together = module(given.clone())
        except (RuntimeError, ValueError, TypeError, IndexError, AssertionError) as error:
            raise UsageError(
                f"the backbone takes one sample but not {len(given)} at a time ({error}); {_WRAP}"
            ) from error
    if together.shape != (len(given), *alone.shape[1:]):
        raise UsageError(
            f"a backbone must give (B, D) features, a row for each sample; of a batch of {len(given)} this one makes a "
            f"tensor of shape {tuple(together.shape)}; {_WRAP}"
        )
    differ = float((together[:1] - alone).abs().max())
    if differ > 0.01 * float(alone.abs().max()):  # much more than rounding makes of it
        raise UsageError(
            "in evaluation mode this backbone gives other features for the same sample alone and in a batch of "
            f"{len(given)}; leave out what takes statistics of the batch (BatchNorm with track_running_stats=False) or "
            "draws at random (F.dropout without training=self.training)"
        )


def _device(module: nn.Module) -> torch.device:
    return next((p.device for p in module.parameters()), torch.device("cpu"))


@contextmanager
def only_asked(module: nn.Module) -> Iterator[None]:
    """In evaluation mode, without gradients; every part is left in the mode that it came in."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, training in modes:
            part.training = training


_WRAP = "wrap it in a module whose forward returns the features"


def conv_block(inputs: int, outputs: int, pool: nn.Module | None) -> nn.Sequential:
    """3x3 convolution, padded, BatchNorm, ReLU and a pooling layer.

    The largest of four stays the largest when negative values are cut: where that is the pooling it comes before the
    ReLU, which then has a quarter to go through, with the same result.
    """
    rest: list[nn.Module] = [nn.ReLU(), *([pool] if pool is not None else [])]
    if isinstance(pool, nn.MaxPool2d):
        rest.reverse()
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), *rest)


def _pool() -> nn.MaxPool2d:
    return nn.MaxPool2d(2, ceil_mode=True)  # equals the paper's pooling for even sizes and never runs out of pixels


def _pictures_only(name: str, shape: Shape) -> int:
    if not is_picture(shape):
        raise UsageError(f'backbone "{name}" takes pictures (C, H, W), got vectors of shape {shape}; use "mlp"')
    return shape[0]


def paper_single(shape: Shape) -> nn.Module:
    """App. 7.1: conv 128-256-512, pooled to 4x4, 8,192 features."""
    c = _pictures_only("paper-single", shape)
    last = nn.AdaptiveAvgPool2d((4, 4))
    return nn.Sequential(
        conv_block(c, 128, _pool()), conv_block(128, 256, _pool()), conv_block(256, 512, last), nn.Flatten()
    )


def paper_two_branch(shape: Shape) -> nn.Module:
    """App. 7.2: conv 64-128-256, pooled to 4x4, then the projection 4,096 -> 2,048 (dropout .3)."""
    c = _pictures_only("paper", shape)
    last = nn.AdaptiveAvgPool2d((4, 4))
    convs = (conv_block(c, 64, _pool()), conv_block(64, 128, _pool()), conv_block(128, 256, last))
    return nn.Sequential(*convs, nn.Flatten(), branch(4096, ((2048, 0.3),)))


def small(shape: Shape) -> nn.Module:
    """For small grey pictures on a CPU: conv 32-64-64, pooled to 4x4, 256 features."""
    c = _pictures_only("small", shape)
    last = nn.AdaptiveAvgPool2d((4, 4))
    convs = (conv_block(c, 32, _pool()), conv_block(32, 64, _pool()), conv_block(64, 64, last))
    return nn.Sequential(*convs, nn.Flatten(), branch(1024, ((256, 0.1),)))


class Residual(nn.Module):
    """Adds two convolution blocks to their own input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(conv_block(channels, channels, None), conv_block(channels, channels, None))

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, C, H, W)."""
        out: Tensor = x + self.body(x)
        return out


def residual(shape: Shape) -> nn.Module:
    """A residual CNN for colour pictures: 64-128-256-512 with three residual blocks, the top of each of 512 maps."""
    c = _pictures_only("residual", shape)
    return nn.Sequential(
        conv_block(c, 64, None),
        conv_block(64, 128, _pool()),
        Residual(128),
        conv_block(128, 256, _pool()),
        Residual(256),
        conv_block(256, 512, _pool()),
        Residual(512),
        nn.AdaptiveMaxPool2d((1, 1)),
        nn.Flatten(),
    )


def medium(shape: Shape) -> nn.Module:
    """For many small grey pictures: conv 32-64-128 with two residual blocks, 128 x 2x2 = 512 features."""
    c = _pictures_only("medium", shape)
    return nn.Sequential(
        conv_block(c, 32, None),
        conv_block(32, 64, _pool()),
        Residual(64),
        conv_block(64, 128, _pool()),
        Residual(128),
        nn.AdaptiveMaxPool2d((2, 2)),
        nn.Flatten(),
    )


def mlp(shape: Shape) -> nn.Module:
    """For vectors (or flattened small pictures): one hidden layer of 256."""
    inputs = int(torch.Size(shape).numel())
    return nn.Sequential(nn.Flatten(), branch(inputs, ((256, 0.0), (128, 0.0))))


def auto_backbone(shape: Shape, network: str, preset: str, n: int = 0) -> str:
    """The name that "auto" stands for: by input shape, and the paper's own layers under the preset `paper`.

    Under `robust`, MANY small grey pictures and more get a larger one. Under `default` colour pictures of LEAST pixels
    or more get the pretrained one where its weights are installed, and others a small one where there is no GPU.

    >>> auto_backbone((1, 28, 28), "single", "paper"), auto_backbone((3, 32, 32), "single", "fast")
    ('paper-single', 'residual')
    """
    if not is_picture(shape):
        return "mlp"
    if preset == "paper":
        return "paper-single" if network == "single" else "paper"
    if shape[0] == 1 and max(shape[1:]) <= 32:
        return "medium" if preset == "robust" and n >= MANY else "small"
    if preset == "default" and takes_pretrained(shape) and installed():
        return LITE0
    return "small" if preset == "default" and not torch.cuda.is_available() else "residual"


def takes_pretrained(shape: Shape) -> bool:
    """Whether `auto` takes pretrained weights for samples of this shape where they are installed.

    >>> takes_pretrained((3, 224, 224)), takes_pretrained((3, 32, 32)), takes_pretrained((1, 224, 224))
    (True, False, False)
    """
    return is_picture(shape) and shape[0] == 3 and min(shape[1:]) >= LEAST


BACKBONES: dict[str, Design] = {
    "paper-single": Design(paper_single, task=((512, 0.2),), trunk=((4096, 0.4), (2048, 0.2)), last_dropout=0.1),
    "paper": Design(paper_two_branch, task=((512, 0.2),), trunk=((2048, 0.2), (1024, 0.1))),
    "small": Design(small, task=((128, 0.1),), trunk=((512, 0.0),)),
    "medium": Design(medium, task=(), trunk=((512, 0.0),)),
    "residual": Design(residual, task=(), trunk=((1024, 0.0),)),
    "mlp": Design(mlp, task=(), trunk=((256, 0.0),)),
    LITE0: Design(lite0, task=(), trunk=((512, 0.0),), measured=True),
}


def custom_design(backbone: nn.Module) -> Design:
    """The branches of a backbone given as an object: CUSTOM; it may name the class branch's layers as `task_layers`.

    >>> body = nn.Flatten()
    >>> body.task_layers = ()  # classes by one linear layer
    >>> custom_design(body).task, custom_design(nn.Flatten()).task
    ((), ((256, 0.1),))
    """
    layers = getattr(backbone, "task_layers", CUSTOM.task)
    try:
        task = tuple((int(width), float(dropout)) for width, dropout in layers)
    except (TypeError, ValueError):
        task = ((0, 0.0),)
    if any(width < 1 or not 0 <= dropout < 1 for width, dropout in task):
        raise UsageError(
            f"task_layers of a backbone must be pairs (width, dropout), width 1 or more and dropout in [0, 1), "
            f"got {layers!r}; () asks for a linear layer alone"
        )
    return replace(CUSTOM, task=task)


CUSTOM = Design(lambda shape: nn.Identity(), task=((256, 0.1),), trunk=((512, 0.0),))


LEVELS = (1, 2, 3, 4)


@dataclass(frozen=True)
class Cut:
    """What the two branches share, and what each has for itself."""

    shared: nn.Module
    task: nn.Module
    index: nn.Module


def cut_at(name: str, shape: Shape, level: int) -> Cut:
    """Build one size and cut it at a level.

    >>> cut = cut_at("sharing-small", (1, 28, 28), 3)
    >>> sum(p.numel() for p in cut.shared.parameters())
    92672
    """
    channels = choose("sharing size", name, SHARING)
    if level not in LEVELS:
        raise UsageError(f"level must be one of {LEVELS}, got {level}")
    if not is_picture(shape):
        raise UsageError(f'backbone "{name}" takes pictures (C, H, W), got vectors of shape {shape}; use "mlp"')
    return Cut(
        nn.Sequential(*_blocks(channels, shape)[:level]),
        nn.Sequential(*_blocks(channels, shape)[level:]),
        nn.Sequential(*_blocks(channels, shape)[level:]),
    )


class PooledConv(nn.Sequential):
    """Convolution, ReLU and pooling, the pooling done first: the bias and the ReLU then have a quarter to go through.

    The largest of four stays the largest when a bias is added and negative values are cut: the result is the same.

    >>> block = PooledConv(nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
    >>> block(torch.zeros(1, 1, 4, 4)).shape
    torch.Size([1, 2, 2, 2])
    """

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, C', H/2, W/2)."""
        conv: Any
        conv, relu, pool = self
        maps = pool(F.conv2d(x, conv.weight, padding=conv.padding))
        out: Tensor = relu(maps + conv.bias.to(maps.dtype)[:, None, None])
        return out


def _blocks(channels: tuple[int, int, int, int], shape: Shape) -> list[nn.Module]:
    """The four blocks of one CNN without its output layer."""
    a, b, c, hidden = channels
    pool = nn.MaxPool2d(2, ceil_mode=True)
    convs: list[nn.Module] = [
        PooledConv(nn.Conv2d(shape[0], a, 3, padding=1), nn.ReLU(), pool),
        PooledConv(nn.Conv2d(a, b, 3, padding=1), nn.ReLU(), pool),
        nn.Sequential(nn.Conv2d(b, c, 3, padding=1), nn.ReLU()),
    ]
    flat = int(torch.Size(output_shape(nn.Sequential(*convs), shape)).numel())
    return [*convs, nn.Sequential(nn.Flatten(), nn.Linear(flat, hidden), nn.ReLU(), nn.Dropout(0.5))]


SHARING: dict[str, tuple[int, int, int, int]] = {
    "sharing-small": (32, 64, 128, 128),
    "sharing-medium": (64, 128, 256, 256),
    "sharing-large": (128, 256, 512, 512),
    "sharing-xlarge": (256, 512, 1024, 1024),
}

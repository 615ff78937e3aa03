"""FilledConv: a convolution from or to very few channels, which a GPU does with eight of them.

Fast products of a GPU take channels by eights; for a grey picture its libraries fall back to slow ones. So missing
channels are filled up with zeros there, in the picture and in the weights, and made ones too many are dropped: the same
sums with zeros among them. Weights keep their shape, and a CPU multiplies them as they are.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

FEW = 2  # channels that are filled up
EIGHT = 8


class FilledConv(nn.Conv2d):
    """nn.Conv2d, with few channels filled up on a GPU.

    >>> import torch
    >>> FilledConv(1, 4, 3, padding=1)(torch.zeros(2, 1, 6, 6)).shape
    torch.Size([2, 4, 6, 6])
    """

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, C', H', W')."""
        if not x.is_cuda:
            return super().forward(x)
        return filled(self, x, self.bias)


def filled(conv: nn.Conv2d, x: Tensor, bias: Tensor | None) -> Tensor:
    """What a convolution makes of x, few channels filled up; the bias may be added elsewhere.

    >>> import torch
    >>> conv, x = nn.Conv2d(1, 4, 3, stride=2, padding=1), torch.rand(2, 1, 6, 6)
    >>> torch.allclose(filled(conv, x, conv.bias), conv(x), atol=1e-6)
    True
    """
    made, taken = conv.weight.shape[:2]
    more_in, more_out = (EIGHT - size if size <= FEW else 0 for size in (taken, made))
    weight = F.pad(conv.weight, (0, 0, 0, 0, 0, more_in, 0, more_out)) if more_in or more_out else conv.weight
    if more_in:
        x = F.pad(x, (0, 0, 0, 0, 0, more_in))
    if more_out and bias is not None:
        bias = F.pad(bias, (0, more_out))
    out = F.conv2d(x, weight, bias, conv.stride, conv.padding, conv.dilation)
    return out[:, :made] if more_out else out

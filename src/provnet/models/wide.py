"""WideLinear: a linear layer with so many weights that reading them, not multiplying, takes the time.

Mixed precision copies fp32 weights to bf16 at every step and bf16 gradients back. With small batches these copies cost
more than the products gain; such a layer multiplies the fp32 weights themselves (as TF32 where training allows it).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LARGE = 2**20  # weights
FEW = 256  # samples in a batch


class WideLinear(nn.Linear):
    """nn.Linear, without autocast where it has many weights and the batch is small.

    >>> WideLinear(4, 2)(torch.zeros(3, 4)).shape
    torch.Size([3, 2])
    """

    def forward(self, x: Tensor) -> Tensor:
        """(B, D) -> (B, D')."""
        if not x.is_cuda or self.weight.numel() < LARGE or len(x) > FEW:
            return super().forward(x)
        with torch.autocast("cuda", enabled=False):
            return F.linear(x.float(), self.weight, self.bias)

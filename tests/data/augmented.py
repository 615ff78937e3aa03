"""Pictures and their changed copies."""

from __future__ import annotations

import torch
from torch import Tensor

from provnet.base.batches import keyed_generator
from provnet.data.modalities.augment import Policy, augment

EVERYTHING = Policy(
    shift=3, fill="reflect", scale=(0.8, 1.3), rotate=20.0, warp_share=0.7, flip=True, brightness=0.1, contrast=0.2,
    erase=0.2, erase_fill="mean", erase_share=0.6, noise=0.1, keep=0.1,
)  # fmt: skip


def pictures(n: int, *shape: int) -> Tensor:
    return torch.randint(0, 256, (n, *shape), dtype=torch.uint8, generator=keyed_generator(n, *shape))


def made(images: Tensor, policy: Policy | str, seed: int = 0, epoch: int = 0) -> Tensor:
    return augment(images, torch.arange(len(images)), policy, seed=seed, epoch=epoch)


def alike(picture: Tensor, n: int) -> Tensor:
    return picture.expand(n, *picture.shape).contiguous()

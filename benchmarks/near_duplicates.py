"""Planted near-copies among digits: how many `provnet debug` groups with the digit they were made of.

    python benchmarks/near_duplicates.py [--limit 2500] [--each 30] [--seed 0] [--threads 1]

So many copies of each kind are made of different embedded digits: noise, a shift by a pixel, JPEG, brighter and darker
by a tenth. Candidates are looked for by pixels alone, without a network. A stranger is a digit of which no copy was
made; one in any group is a false alarm.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from provnet import open_data
from provnet.data.modalities.augment import add_noise, jpeg, shift
from provnet.tools.debug.duplicates import duplicates
from provnet.tools.debug.signals import nearest_others


def times(factor: float) -> Callable[[Tensor], Tensor]:
    """Brighter or darker."""
    return lambda images: (images.float() * factor).round().clamp(0, 255).to(torch.uint8)


KINDS: dict[str, Callable[[Tensor], Tensor]] = {
    "noise .1": lambda images: add_noise(images, 0, 0.1),
    "shift by a pixel": lambda images: shift(images, 0),
    "JPEG": jpeg,
    "brighter by a tenth": times(1.1),
    "darker by a tenth": times(0.9),
}


def main() -> None:
    """Plant, group, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, default=2500)
    parser.add_argument("--each", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    digits = open_data("embedded", limit=given.limit)
    drawn = torch.randperm(len(digits), generator=torch.Generator().manual_seed(given.seed))
    rows = dict(zip(KINDS, torch.split(drawn, given.each), strict=False))
    images = torch.cat([digits.images, *(KINDS[kind](digits.images[rows[kind]]) for kind in KINDS)])
    chosen = torch.cat([rows[kind] for kind in KINDS])
    labels = torch.cat([digits.labels, digits.labels[chosen]])
    data = open_data(images, labels.numpy())
    near = nearest_others(F.normalize(images.flatten(1).float(), dim=1), 10)
    group = duplicates(data.samples, data.images, near).group
    found = (group[chosen.numpy()] == group[len(digits) :]) & (group[len(digits) :] >= 0)
    for kind, hits in zip(KINDS, np.split(found, len(KINDS)), strict=True):
        print(f"{kind}: {int(hits.sum())} of {len(hits)}")
    strangers = np.setdiff1d(np.arange(len(digits)), chosen.numpy())
    print(f"strangers in a group: {int((group[strangers] >= 0).sum())} of {len(strangers):,}")


if __name__ == "__main__":
    main()

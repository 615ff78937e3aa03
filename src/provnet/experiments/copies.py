"""Training samples as changed copies: how many still find themselves under noise, shift and JPEG."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from provnet.data.distort import perturbations
from provnet.data.imagedata import ImageData
from provnet.experiments.markdown import number
from provnet.experiments.records import Figure, Result

SOME = 10_000  # training samples, evenly spread
PREFIX = "index_accuracy_perturbed_"
KINDS = {"noise": "noise", "shift": "shift", "jpeg": "JPEG"}  # in this order: a file gives figures back by the alphabet
HEAD = " / ".join(KINDS.values())


def spread_rows(n: int) -> Tensor:
    """SOME of n places, evenly spread.

    >>> spread_rows(3).tolist(), len(spread_rows(60_000))
    ([0, 1, 2], 10000)
    """
    return torch.linspace(0, n - 1, min(SOME, n), dtype=torch.float64).round().long()


def copy_figures(train: ImageData, seed: int, first: Callable[[Tensor], Tensor]) -> dict[str, Figure]:
    """The share of copies for which `first`, the index named first for raw pictures (n, ...), is the sample's own.

    >>> import provnet
    >>> few = provnet.open_data("embedded", limit=40)
    >>> copy_figures(few, 0, lambda images: torch.arange(len(images)))["index_accuracy_perturbed_noise"]
    (1.0, 40)
    """
    rows = spread_rows(len(train))
    some = train.images[rows]
    found = {name: first(change(some, seed)) == rows for name, change in perturbations(some).items()}
    return {f"{PREFIX}{name}": (float(hits.double().mean()), len(rows)) for name, hits in found.items()}


def copies_of(one: Result) -> str:
    """The rates of a result for a table's column.

    >>> rates = {"jpeg": 0.75, "noise": 0.5, "shift": 0.25}
    >>> copies_of(Result({f"{PREFIX}{name}": (rate, 10) for name, rate in rates.items()}, {}, {}))
    '50.00 / 25.00 / 75.00'
    """
    known = [one.figures.get(f"{PREFIX}{name}") for name in KINDS]  # flat vectors have fewer kinds of copies
    return " / ".join("–" if figure is None else number(figure[0]) for figure in known)

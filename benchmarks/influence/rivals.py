"""Other ways to foretell what training without some samples gives, computed on the same trained networks.

TRAK is written here, as its library takes far longer: gradients of the margin at all weights, a sparse random
projection (each weight is added to one column, with a random sign), a ridge, the mean over networks times the mean of
1 - p. It is judged with every width, ridge and number of networks; which are reported is decided on other queries.
`peers_methods.py` has the libraries.

Letters: N training samples, Q queries, W projected width, T networks.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator

import numpy as np
import torch
import torch.nn.functional as F
from subjects import Data, Recipe
from together import amp, losses
from torch import Tensor, nn

from provnet.influence.keys import margins
from provnet.influence.layers import Gradients

RIDGES = (0.01, 0.1, 1.0, 10.0)  # of the mean of the diagonal


def asked(net: nn.Module, recipe: Recipe) -> Gradients:
    """What catches the gradients of margins, or of minus the mean losses of texts."""

    def numbers(x: Tensor, targets: Tensor) -> Tensor:
        with amp(recipe, str(x.device)):
            scores = net(x)
        return margins(scores.float(), targets) if targets.ndim == 1 else -losses(scores.float(), targets)

    return Gradients(net, numbers)


def gradients(net: nn.Module, recipe: Recipe, x: Tensor, targets: Tensor, part: int) -> Iterator[dict[str, Tensor]]:
    """(B, in * out) gradients of every layer, some samples at a time."""
    caught = asked(net, recipe)
    caught.probe(x[:3], targets[:3])
    whole = {
        name: (torch.eye(one.inputs, device=x.device), torch.eye(one.outputs, device=x.device))
        for name, one in caught.layers.items()
    }
    for rows in torch.split(torch.arange(len(x), device=x.device), part):
        found: dict[str, Tensor] = {}

        def add(name: str, left: Tensor, right: Tensor, found: dict[str, Tensor] = found) -> None:
            made = torch.einsum("bti,btj->bij", left.float(), right.float()).flatten(1)
            found[name] = found[name] + made if name in found else made

        caught(x[rows], targets[rows], whole, see=add)
        yield found


class Trak:
    """TRAK of one network after another."""

    def __init__(self, data: Data, recipe: Recipe, classes: Tensor, width: int, part: int) -> None:
        self.data, self.recipe, self.classes, self.width, self.part = data, recipe, classes, width, part

    def projected(self, net: nn.Module, seed: int) -> tuple[Tensor, Tensor]:
        """(N, W) and (Q, W)."""
        device = self.data.x.device
        chance = torch.Generator(device=device).manual_seed(seed)
        places: dict[str, tuple[Tensor, Tensor]] = {}

        def all_of(x: Tensor, targets: Tensor) -> Tensor:
            rows = []
            for found in gradients(net, self.recipe, x, targets, self.part):
                total = torch.zeros(len(next(iter(found.values()))), self.width, device=device)
                for name, one in found.items():
                    if name not in places:
                        size = one.shape[1]
                        column = torch.randint(self.width, (size,), generator=chance, device=device)
                        places[name] = column, torch.randint(2, (size,), generator=chance, device=device) * 2.0 - 1
                    column, sign = places[name]
                    total.index_add_(1, column, one * sign)
                rows.append(total)
            return torch.cat(rows)

        return all_of(self.data.x, self.data.y), all_of(self.data.query_x, self.classes)

    def foretold(self, net: nn.Module, seed: int, counted: list[Tensor]) -> dict[str, list[Tensor]]:
        """Width and ridge -> (Q, S) sums for each of `counted` (N, S), what each sample counts in each subset."""
        train, query = self.projected(net, seed)
        found = {}
        for width in (self.width // 4, self.width):  # columns that are added up are a narrower projection of that kind
            a, b = (each.unflatten(1, (width, -1)).sum(2) for each in (train, query))
            gram = (a.T @ a).double()
            for ridge in RIDGES:
                solved = gram.clone()
                solved.diagonal().add_(ridge * gram.diagonal().mean())
                turned = torch.linalg.solve(solved, b.T.double()).T.float()
                found[f"width {width}, ridge {ridge:g}"] = [turned @ (a.T @ each) for each in counted]
        return found


@torch.no_grad()
def neighbours(net: nn.Module, data: Data, recipe: Recipe) -> Tensor:
    """(Q, N) cosine of the centred features before the last layer; of texts their mean over characters."""
    before: list[Tensor] = []
    last = [each for each in net.modules() if isinstance(each, nn.Linear)][-1]
    handle = last.register_forward_pre_hook(lambda _, given: before.append(given[0].float()))

    def features(x: Tensor) -> Tensor:
        before.clear()
        for part in torch.split(x, 250):
            with amp(recipe, str(x.device)):
                net(part)
        found = torch.cat(before)
        return found.mean(1) if found.ndim == 3 else found

    train, query = features(data.x), features(data.query_x)
    handle.remove()
    mean = train.mean(0)
    return F.normalize(query - mean) @ F.normalize(train - mean).T


def bm25(texts: tuple[list[str], list[str]], pieces: Callable[[str], list[str]]) -> np.ndarray:
    """(Q, N) of texts, by their pieces: words, or runs of characters."""
    train, query = ([Counter(pieces(text)) for text in side] for side in texts)
    seen = Counter(piece for counts in train for piece in counts)
    usual = sum(sum(counts.values()) for counts in train) / len(train)
    places: dict[str, list[tuple[int, float]]] = {}
    for row, counts in enumerate(train):
        size = 1.2 * (0.25 + 0.75 * sum(counts.values()) / usual)
        for piece, count in counts.items():
            rare = math.log(1 + (len(train) - seen[piece] + 0.5) / (seen[piece] + 0.5))
            places.setdefault(piece, []).append((row, rare * count * 2.2 / (count + size)))
    found = np.zeros((len(query), len(train)), np.float32)
    for out, counts in zip(found, query, strict=True):
        for piece in counts:
            for row, value in places.get(piece, ()):
                out[row] += value
    return found


def four(text: str) -> list[str]:
    """Runs of four characters."""
    return [text[i : i + 4] for i in range(len(text) - 3)]

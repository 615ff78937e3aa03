"""What influence weights are judged on: data, networks and recipes, by name.

`small-*` is the plain CNN of `peers_cnn.py` on 5,000 pictures; `resnet9` learns the first 25,000 pictures of CIFAR-10;
`gpt` reads 256 characters of tiny Shakespeare at a time; `dattri-*` follow the settings of dattri's benchmark (its
networks, rates and epochs, queries asked about their true label), so that published figures stand beside ours.
`own` is provnet's class-conditional network with the preset `fast`; see `together.py` for how many are trained at once.

Letters: N training samples, Q queries, C classes.
"""

from __future__ import annotations

import lzma
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from peers_cnn import Cnn
from torch import Tensor, nn

from provnet import open_data

QUERIES = 1000
MEAN, SPREAD = (125.3, 123.0, 113.9), (63.0, 62.1, 66.7)  # of CIFAR-10's bytes


@dataclass(frozen=True)
class Recipe:
    """How a network is trained. `cycle` is the share of the steps in which the rate rises; 0 keeps it constant."""

    epochs: int
    batch: int
    rate: float
    sgd: bool = False
    momentum: float = 0.9
    decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    cycle: float = 0.3
    clip: float = 0.0
    augment: bool = False
    bf16: bool = False


@dataclass(frozen=True, eq=False)
class Data:
    """Normalised inputs with their targets; targets of texts are the characters that follow."""

    x: Tensor
    y: Tensor
    query_x: Tensor
    query_y: Tensor
    text: tuple[list[str], list[str]] | None = None  # of the samples and of the queries

    def on(self, device: str) -> Data:
        """The same on a device."""
        moved = {name: getattr(self, name).to(device) for name in ("x", "y", "query_x", "query_y")}
        return replace(self, **moved)


@dataclass(frozen=True)
class Subject:
    """A setting: what is trained on what and how, and how many halves the truth has.

    Attributes:
        many: whether its networks are trained many at once; large ones fill a GPU alone.
        halves, times, again: random halves, trainings on each, and on how many of them once more for the reliability.
        true_label: whether queries are asked about their true label instead of the predicted class.
    """

    name: str
    data: Callable[[Path], Data]
    net: Callable[[], nn.Module]
    recipe: Recipe
    many: int
    halves: int
    times: int = 1
    again: int = 0
    true_label: bool = False


def normalised(images: Tensor, mean: tuple[float, ...], spread: tuple[float, ...]) -> Tensor:
    """Bytes (B, C, H, W) to floats."""
    one, other = (torch.tensor(each).view(1, -1, 1, 1) for each in (mean, spread))
    return (images.float() - one) / other


def pictures(source: str, limit: int | None = 5000, first: int | None = None) -> Callable[[Path], Data]:
    """So many pictures of each class, or the first of all, and 1,000 unseen ones."""

    def read(folder: Path) -> Data:
        train = open_data(source, data_dir=folder, limit=limit)
        test = open_data(source, split="test", data_dir=folder, limit=QUERIES)
        x, y = (each[:first] for each in (train.images, train.labels))
        if source == "cifar10":
            mean, spread = MEAN, SPREAD
        else:
            mean, spread = (float(x.float().mean()),), (float(x.float().std()),)
        return Data(normalised(x, mean, spread), y, normalised(test.images, mean, spread), test.labels)

    return read


def cats_and_dogs(folder: Path) -> Data:
    """The 4,933 cats and dogs among CIFAR-10's first 25,000 pictures, and 1,000 unseen ones: dattri's CIFAR-2."""

    def taken(split: str, first: int, count: int) -> tuple[Tensor, Tensor]:
        data = open_data("cifar10", split=split, data_dir=folder)
        rows = ((data.labels == 3) | (data.labels == 5))[:first].nonzero()[:, 0][:count]
        images = normalised(data.images[rows], (127.5,) * 3, (127.5,) * 3)
        return images, (data.labels[rows] == 5).long()

    return Data(*taken("train", 25_000, 5000), *taken("test", 10_000, QUERIES))


LENGTH, UNSEEN_TEXTS = 256, 400


def shakespeare(folder: Path) -> Data:
    """Pieces of 257 characters: all but the last are read, all but the first are foretold."""
    text = _text(folder)
    code = {char: number for number, char in enumerate(sorted(set(text)))}
    count = len(text) // (LENGTH + 1)
    pieces = [text[i * (LENGTH + 1) : (i + 1) * (LENGTH + 1)] for i in range(count)]
    order = np.random.default_rng(0).permutation(count)
    test, train = order[:UNSEEN_TEXTS], np.sort(order[UNSEEN_TEXTS:])

    def coded(rows: np.ndarray) -> tuple[Tensor, Tensor]:
        ids = torch.tensor([[code[char] for char in pieces[row]] for row in rows])
        return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()

    return Data(*coded(train), *coded(test), ([pieces[i] for i in train], [pieces[i] for i in test]))


def _text(folder: Path) -> str:
    """The plays, plain or packed."""
    plain = next(iter(sorted(folder.glob("tinyshakespeare*/*.txt"))), None)
    return plain.read_text("utf-8") if plain else lzma.open(folder / "tinyshakespeare.txt.xz", "rt").read()


def block(inside: int, outside: int, pool: bool = False) -> nn.Sequential:
    """Convolution, BatchNorm, ReLU."""
    conv = nn.Conv2d(inside, outside, 3, padding=1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outside), nn.ReLU(), *([nn.MaxPool2d(2)] if pool else []))


class ResNet9(nn.Module):
    """Nine layers, 6.6 million parameters."""

    def __init__(self, width: int = 64, classes: int = 10) -> None:
        super().__init__()
        w = width
        self.stem, self.c1 = block(3, w), block(w, 2 * w, True)
        self.r1 = nn.Sequential(block(2 * w, 2 * w), block(2 * w, 2 * w))
        self.c2, self.c3 = block(2 * w, 4 * w, True), block(4 * w, 8 * w, True)
        self.r2 = nn.Sequential(block(8 * w, 8 * w), block(8 * w, 8 * w))
        self.fc = nn.Linear(8 * w, classes)

    def features(self, x: Tensor) -> Tensor:
        """What the last layer sees."""
        x = self.c1(self.stem(x))
        x = x + self.r1(x)
        x = self.c3(self.c2(x))
        return (x + self.r2(x)).amax((2, 3))

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return 0.125 * self.fc(self.features(x)).float()


class Twice(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.BatchNorm2d(outside)
        self.conv2, self.bn2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False), nn.BatchNorm2d(outside)
        self.shortcut = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x: Tensor) -> Tensor:
        """As usual in residual networks."""
        out = F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))
        return F.relu(out + self.shortcut(x))


class DattriResNet9(nn.Module):
    """dattri's ResNet-9: no pooling before the end, dropout of its CIFAR-2 setting is 0."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64)
        self.layers = nn.Sequential(Twice(64, 128, 1), Twice(128, 256, 2), Twice(256, 512, 2))
        self.linear = nn.Linear(512, 2)

    def features(self, x: Tensor) -> Tensor:
        """What the last layer sees."""
        return self.layers(F.relu(self.bn1(self.conv1(x)))).mean((2, 3))

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.linear(self.features(x)).float()


class Attention(nn.Module):
    """One layer of a transformer that reads from left to right."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.n1, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width, bias=False)
        self.proj, self.n2 = nn.Linear(width, width, bias=False), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        size = x.shape
        parts = self.qkv(self.n1(x)).view(*size[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        later = torch.ones(size[1], size[1], dtype=torch.bool, device=x.device).triu(1)
        match = (parts[0] * parts[0].shape[-1] ** -0.5) @ parts[1].transpose(2, 3)
        seen = match.float().masked_fill(later, -torch.inf).softmax(3).to(match.dtype) @ parts[2]
        x = x + self.drop(self.proj(seen.transpose(1, 2).reshape(size)))
        return x + self.drop(self.down(F.gelu(self.up(self.n2(x)))))


class Gpt(nn.Module):
    """A small language model of characters."""

    def __init__(
        self, width: int = 256, heads: int = 4, layers: int = 4, dropout: float = 0.0, chars: int = 65
    ) -> None:
        super().__init__()
        self.tok, self.pos, self.drop = nn.Embedding(chars, width), nn.Embedding(LENGTH, width), nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Attention(width, heads, dropout) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, chars, bias=False)
        for each in self.modules():
            if isinstance(each, nn.Linear | nn.Embedding):
                nn.init.normal_(each.weight, 0, 0.02)

    def features(self, ids: Tensor) -> Tensor:
        """(B, T, D) what the last layer sees."""
        x = self.drop(self.tok(ids) + self.pos.weight[: ids.shape[1]])
        for each in self.blocks:
            x = each(x)
        return self.norm(x)

    def forward(self, ids: Tensor) -> Tensor:
        """(B, C, T) logits."""
        return self.head(self.features(ids)).float().transpose(1, 2)


def mlp() -> nn.Module:
    """The multilayer perceptron of dattri."""
    hidden = [nn.Linear(784, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 64), nn.ReLU(), nn.Dropout(0.1)]
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(64, 10))


def regression() -> nn.Module:
    """Logistic regression."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))


SMALL = Recipe(epochs=12, batch=64, rate=2e-3, decay=1e-3)
DEEP = Recipe(
    epochs=12, batch=512, rate=0.8, sgd=True, decay=5e-4, cycle=0.25, augment=True, bf16=True
)  # Nesterov's momentum
TEXT = Recipe(epochs=15, batch=64, rate=2e-3, decay=0.1, betas=(0.9, 0.95), cycle=0.25, clip=1.0, bf16=True)
PLAIN = Recipe(epochs=20, batch=64, rate=0.01, sgd=True, momentum=0.0, cycle=0.0)
SUBJECTS = {
    each.name: each
    for each in (
        Subject("small-mnist", pictures("mnist"), lambda: Cnn((1, 28, 28), 10), SMALL, 100, 100, 2),
        Subject("small-fashion", pictures("fashion-mnist"), lambda: Cnn((1, 28, 28), 10), SMALL, 100, 100, 2),
        Subject("small-cifar10", pictures("cifar10"), lambda: Cnn((3, 32, 32), 10), SMALL, 100, 100, 2),
        Subject("resnet9", pictures("cifar10", None, 25_000), ResNet9, DEEP, 1, 100, 1, 20),
        Subject("gpt", shakespeare, Gpt, TEXT, 15, 60, 1, 15),
        Subject("dattri-mlp", pictures("mnist"), mlp, replace(PLAIN, epochs=50, momentum=0.9), 50, 50, 4, 0, True),
        Subject("dattri-regression", pictures("mnist"), regression, PLAIN, 50, 50, 4, 0, True),
        Subject(
            "dattri-cifar2",
            cats_and_dogs,
            DattriResNet9,
            replace(PLAIN, epochs=10, momentum=0.9, bf16=True),
            1,
            50,
            1,
            15,
            True,
        ),
    )
}

"""Small pictures inside a file of results, so that figures are drawn from it alone."""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw
from torch import Tensor

from provnet.base.batches import keyed_generator
from provnet.data.dataset import ImageData
from provnet.data.modalities.augment import perturbations
from provnet.data.open import open_data
from provnet.report.sheet import face
from provnet.samples.identity import Groups
from provnet_paper.records import Figure

MOST = 64 * 2**20  # bytes that a packed value may hold


def pack_array(values: Any) -> dict[str, Any]:
    """An array of bytes or of bools as JSON values.

    >>> pack_array(np.zeros((2, 1, 28, 28), dtype=np.uint8))["shape"]
    [2, 1, 28, 28]
    """
    array = np.asarray(values)
    kind = "bool" if array.dtype == np.bool_ else "uint8"
    content = np.packbits(array) if kind == "bool" else array.astype(np.uint8)
    text = base64.b64encode(zlib.compress(content.tobytes(), 9)).decode()
    return {"shape": list(array.shape), "kind": kind, "zlib": text}


def unpack_array(value: Mapping[str, Any]) -> np.ndarray:
    """The inverse of `packed`."""
    content = zlib.decompressobj().decompress(base64.b64decode(value["zlib"]), MOST)
    array = np.frombuffer(content, dtype=np.uint8)
    if value["kind"] == "bool":
        array = np.unpackbits(array)[: int(np.prod(value["shape"]))].astype(np.bool_)
    return array.reshape(value["shape"])


DISTANCES_AT_ONCE = 1_000  # samples whose distances to all others are held at a time


def nearer(asked: Tensor, first: Tensor, second: Tensor) -> np.ndarray:
    """(n,) whether `asked` is nearer to `first` than to `second`, picture by picture."""
    away = [(_flat(asked) - _flat(one)).square().sum(1) for one in (first, second)]
    return np.asarray((away[0] < away[1]).numpy())


def same_group(images: Tensor, groups: np.ndarray) -> np.ndarray:
    """(n,) whether the nearest other picture lies in the same group (n,)."""
    pixels = _flat(images)
    nearest = []
    for start in range(0, len(pixels), DISTANCES_AT_ONCE):
        away = torch.cdist(pixels[start : start + DISTANCES_AT_ONCE], pixels)
        mine = torch.arange(len(away))
        away[mine, start + mine] = torch.inf
        nearest.append(away.argmin(1))
    return np.asarray(groups[torch.cat(nearest).numpy()] == groups)


def by_chance(groups: np.ndarray) -> float:
    """How often another sample, drawn by chance, lies in the same group."""
    _, sizes = np.unique(groups, return_counts=True)
    n = len(groups)
    return float((sizes * (sizes - 1)).sum() / (n * (n - 1)))


def named_rows(index: np.ndarray) -> Tensor:
    """Samples that are named; where there are fewer than five, the last one again."""
    return torch.from_numpy(np.where(index >= 0, index, index[index >= 0][-1]))


def _flat(images: Tensor) -> Tensor:
    return images.flatten(1).to(torch.float64)  # sums of squares of whole numbers stay exact, so equal is equal


ODD_KINDS = ("inverted", "two mixed", "noise", "letters")


def wrong_labels(data: ImageData, share: float, seed: int) -> tuple[ImageData, np.ndarray]:
    """The data with some labels replaced by a random other one, and (N,) which."""
    chance, classes = np.random.default_rng(seed), len(data.class_names)
    labels, wrong = data.samples.labels.copy(), np.zeros(len(data), dtype=np.bool_)
    rows = chance.choice(len(data), max(1, round(share * len(data))), replace=False)
    labels[rows] = (labels[rows] + chance.integers(1, classes, len(rows))) % classes
    wrong[rows] = True
    return replace(data, samples=replace(data.samples, grouping=Groups(data.class_names, labels))), wrong


def odd_pictures(data: ImageData, share: float, seed: int) -> tuple[ImageData, np.ndarray]:
    """The data with some pictures replaced, and (N,) which of KINDS each is, -1 for those left as they were."""
    chance = np.random.default_rng(seed)
    images, labels = data.images.numpy().copy(), data.samples.labels
    kind = np.full(len(data), -1)
    rows = chance.choice(len(data), max(len(ODD_KINDS), round(share * len(data))), replace=False)
    kind[rows] = np.arange(len(rows)) % len(ODD_KINDS)
    for row in rows.tolist():
        name = ODD_KINDS[kind[row]]
        if name == "inverted":
            images[row] = 255 - images[row]
        elif name == "two mixed":
            other = int(chance.choice(np.flatnonzero(labels != labels[row])))
            images[row] = np.maximum(images[row], data.images[other].numpy())
        elif name == "noise":
            images[row] = chance.integers(0, 256, images[row].shape)
        else:
            images[row] = _letter(chance, images.shape[2])
    return open_data(images, labels, class_names=data.class_names), kind


def _letter(chance: np.random.Generator, side: int) -> np.ndarray:
    """A letter that looks like no digit, slightly turned."""
    picture = Image.new("L", (side, side), 0)
    text = "ABEFGHJKMNPQRTUWXY"[int(chance.integers(18))]
    ImageDraw.Draw(picture).text((side / 2, side / 2), text, fill=255, font=face(side * 5 // 7).font, anchor="mm")
    return np.asarray(picture.rotate(float(chance.uniform(-15, 15))))


MOST_TURNED = 45.0  # degrees either way
AT_ONCE = 10_000


def turn(images: Tensor, seed: int) -> Tensor:
    """Each turned by its own angle, uniform in ±45°; what comes in from outside is black."""
    angles = (torch.rand(len(images), generator=keyed_generator(seed, 81)) * 2 - 1) * math.radians(MOST_TURNED)
    parts = []
    for few, angle in zip(torch.split(images, AT_ONCE), torch.split(angles, AT_ONCE), strict=True):
        cos, sin, none = angle.cos(), angle.sin(), torch.zeros_like(angle)
        matrix = torch.stack([torch.stack([cos, -sin, none], 1), torch.stack([sin, cos, none], 1)], 1)
        grid = F.affine_grid(matrix, list(few.shape), align_corners=False)
        parts.append(F.grid_sample(few.float(), grid, align_corners=False).round().clamp(0, 255).to(torch.uint8))
    return torch.cat(parts)


def thicken(images: Tensor, seed: int) -> Tensor:
    """Every pixel takes the lightest value of its 3×3 neighbours."""
    return torch.cat([F.max_pool2d(few.float(), 3, 1, 1).to(torch.uint8) for few in torch.split(images, AT_ONCE)])


DRAWINGS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "plain": lambda images, seed: images,
    "turned": turn,
    "inverted": lambda images, seed: 255 - images,  # dark on light
    "thickened": thicken,
}


SOME = 10_000  # training samples, evenly spread
PREFIX = "index_accuracy_perturbed_"
KINDS = {"noise": "noise", "shift": "shift", "jpeg": "JPEG"}


def spread_rows(n: int) -> Tensor:
    """SOME of n places, evenly spread."""
    return torch.linspace(0, n - 1, min(SOME, n), dtype=torch.float64).round().long()


def copy_figures(train: ImageData, seed: int, first: Callable[[Tensor], Tensor]) -> dict[str, Figure]:
    """The share of copies for which `first`, the index named first for raw pictures (n, ...), is the sample's own."""
    rows = spread_rows(len(train))
    some = train.images[rows]
    found = {name: first(change(some, seed)) == rows for name, change in perturbations(some).items()}
    return {f"{PREFIX}{name}": (float(hits.double().mean()), len(rows)) for name, hits in found.items()}

"""Photographs with planted wrong labels and foreign pictures, as frozen features: which are wrong is known here alone.

    python benchmarks/photo_sets.py DATA CACHE

DATA holds the folders pets, lfw, CamVid, stanford-dogs (pictures) and cifar-10-batches-bin. CACHE gets features of
EfficientNet-Lite0 for each, which the other benchmarks of photographs read: pictures stretched to 224 pixels, one view.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from provnet.models.pretrained import SIDE, lite0, load_published

SIMILAR = (0.5, 0.3, 0.2)  # chances of the nearest, second and third class
FOREIGN = ("cifar", "lfw", "camvid")
DOGS = 50  # photographs of each of the 120 breeds, of 64 pixels


@dataclass(frozen=True, eq=False)
class Planted:
    """Features (N, D), labels as given (N,), and the right ones, -1 for pictures of no class."""

    x: np.ndarray
    given: np.ndarray
    right: np.ndarray
    classes: int

    @property
    def wrong(self) -> np.ndarray:
        """(N,) bool, another class is right."""
        return np.asarray((self.right >= 0) & (self.right != self.given))

    @property
    def foreign(self) -> np.ndarray:
        """(N,) bool, no class is right."""
        return np.asarray(self.right < 0)


def read(cache: Path, name: str) -> dict[str, np.ndarray]:
    """One file of features."""
    held = np.load(cache / f"{name}.npz", allow_pickle=False)
    return {key: held[key] for key in held.files}


def planted(
    x: np.ndarray,
    right: np.ndarray,
    means: np.ndarray,
    rate: float,
    chance: np.random.Generator,
    *,
    strangers: np.ndarray | None = None,
    share: float = 0.0,
    similar: bool = True,
) -> Planted:
    """Labels flipped to a similar class (by the means of classes, (C, D), of other pictures) or to any."""
    n, classes, given = len(right), len(means), right.copy()
    flip = chance.permutation(n)[: round(rate * n)]
    if similar:
        unit = means - means.mean(0)
        unit = unit / np.linalg.norm(unit, axis=1, keepdims=True)
        alike = unit @ unit.T
        np.fill_diagonal(alike, -9)
        near = np.argsort(-alike, 1)[:, : len(SIMILAR)]
        given[flip] = near[right[flip], chance.choice(len(SIMILAR), len(flip), p=SIMILAR)]
    else:
        given[flip] = (right[flip] + chance.integers(1, classes, len(flip))) % classes
    count = round(share * n)
    if count and strangers is not None:
        more = strangers[chance.permutation(len(strangers))[:count]]
        x, given = np.concatenate([x, more]), np.concatenate([given, chance.choice(right, count)])
        right = np.concatenate([right, np.full(count, -1)])
    order = chance.permutation(len(given))
    return Planted(x[order].astype(np.float32), given[order], right[order], classes)


def pets(cache: Path, seed: int, rate: float = 0.1, share: float = 0.04, *, similar: bool = True) -> Planted:
    """700 photographs of 20 breeds, and 28 of something else: another kind of thing for each seed."""
    held, strangers = read(cache, "pets"), read(cache, "foreign")[FOREIGN[seed % 3]]
    test = held["split"] == 1
    means = np.stack([held["a"][test & (held["y"] == c)].mean(0) for c in range(20)])
    chance = np.random.default_rng(1000 + seed)
    chosen = held["a"][~test], held["y"][~test].astype(np.int64)
    return planted(*chosen, means, rate, chance, strangers=strangers, share=share, similar=similar)


def pets_test(cache: Path) -> tuple[np.ndarray, np.ndarray]:
    """The 300 others."""
    held = read(cache, "pets")
    test = held["split"] == 1
    return held["a"][test].astype(np.float32), held["y"][test].astype(np.int64)


def cifar10(cache: Path, seed: int, rate: float, *, similar: bool = True, n: int = 2000) -> Planted:
    """2,000 of the test pictures of CIFAR-10; class means are of others."""
    held, chance = read(cache, "cifar10_test"), np.random.default_rng(3000 + seed)
    rows = chance.permutation(len(held["y"]))
    rest = rows[n : n + 4000]
    means = np.stack([held["a"][rest][held["y"][rest] == c].mean(0, dtype=np.float64) for c in range(10)])
    x, right = held["a"][rows[:n]].astype(np.float32), held["y"][rows[:n]].astype(np.int64)
    return planted(x, right, means, rate, chance, similar=similar)


def dogs(cache: Path, seed: int, rate: float, *, similar: bool = True) -> tuple[Planted, tuple[np.ndarray, np.ndarray]]:
    """Of 20 breeds 40 photographs each, and the 10 others that there are with their right labels."""
    held, chance = read(cache, "dogs"), np.random.default_rng(7000 + seed)
    breeds = np.sort(chance.permutation(np.unique(held["y"]))[:20])
    rows = [chance.permutation(np.flatnonzero(held["y"] == breed))[:DOGS] for breed in breeds]
    sides = [np.concatenate([some[part] for some in rows]) for part in (slice(0, 40), slice(40, DOGS))]
    (x, y), test = ((held["a"][side].astype(np.float32), np.searchsorted(breeds, held["y"][side])) for side in sides)
    means = np.stack([test[0][test[1] == number].mean(0) for number in range(len(breeds))])
    return planted(x, y, means, rate, chance, similar=similar), test


@torch.inference_mode()
def features(pictures: Iterable[np.ndarray], batch: int = 16) -> np.ndarray:
    """(S, S, 3) uint8 pictures -> (N, 1280)."""
    net = lite0((3, SIDE, SIDE))
    load_published(net)
    body, found = net.body.eval().to(memory_format=torch.channels_last), []
    for group in _groups(pictures, batch):
        x = torch.from_numpy(np.stack(group)).permute(0, 3, 1, 2).float()
        found.append(body(((x - 127) / 128).contiguous(memory_format=torch.channels_last)).numpy())
    return np.concatenate(found)


def _groups(pictures: Iterable[np.ndarray], size: int) -> Iterator[list[np.ndarray]]:
    group: list[np.ndarray] = []
    for picture in pictures:
        group.append(picture)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group


def _stretched(picture: Image.Image) -> np.ndarray:
    return np.asarray(picture.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BICUBIC))


def _of_files(files: list[Path]) -> np.ndarray:
    return features(_stretched(Image.open(file)) for file in files)


def make(data: Path, cache: Path) -> None:
    """Write the files of features."""
    cache.mkdir(parents=True, exist_ok=True)
    chance = np.random.default_rng(0)
    files = [file for split in ("train", "test") for file in sorted((data / "pets" / split).rglob("*.jpg"))]
    names = sorted({file.parent.name for file in files})
    y = np.array([names.index(file.parent.name) for file in files])
    split = np.array([int("test" in file.parts) for file in files])
    np.savez(cache / "pets.npz", a=_of_files(files), y=y, split=split)
    raw = np.frombuffer((data / "cifar-10-batches-bin" / "test_batch.bin").read_bytes(), np.uint8).reshape(-1, 3073)
    pictures, label = raw[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), raw[:, 0].astype(np.int64)
    animals = np.flatnonzero(~np.isin(label, [3, 5]))[:600]  # neither cats nor dogs
    strangers = {"cifar": features(_stretched(Image.fromarray(pictures[i])) for i in animals)}
    for name, folder, most in (("lfw", data / "lfw", 400), ("camvid", data / "CamVid" / "train", 200)):
        found = sorted(folder.rglob("*.jpg"))
        strangers[name] = _of_files([found[i] for i in chance.permutation(len(found))[:most]])
    np.savez(cache / "foreign.npz", **strangers)
    np.savez(cache / "cifar10_test.npz", a=features(_stretched(Image.fromarray(each)) for each in pictures), y=label)
    breeds = [sorted(folder.glob("*.jpg"))[:DOGS] for folder in sorted((data / "stanford-dogs" / "train").iterdir())]
    number = np.repeat(np.arange(len(breeds)), [len(files) for files in breeds])
    np.savez(cache / "dogs.npz", a=_of_files([file for files in breeds for file in files]), y=number)


if __name__ == "__main__":
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("data", type=Path)
    asked.add_argument("cache", type=Path)
    given = asked.parse_args()
    make(given.data, given.cache)

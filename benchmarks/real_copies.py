"""Copies of photographs at 256 pixels: frozen features and matched places beside the copy ratio, hashes and kNN.

    python benchmarks/real_copies.py --data-dir DIR --cache FOLDER [--out benchmarks/results/real_copies.json]

Pets (short side 224) and Stanford Dogs (64 pixels, enlarged). Of pictures of a gallery six kinds of copies are made;
near misses are pictures that are not in the gallery, those whose features lie nearest to one that is, changed in the
same six ways and as they are. Every statistic has one threshold, which is set on near misses of other pictures, with
another gallery, to .5 % of false alarms over all kinds together; the autoencoder that repaints learned from these, too.
A copy counts as found where it is flagged and its own original is named.

pixel hash       equal pixels.
perceptual hash  64 bits of a cosine transform, Hamming distance.
kNN, features    cosine of EfficientNet-Lite0's pooled features with the nearest picture.
copy ratio       `provnet.tools.copies.near_copies` on 32 pixels.
feature ratio    distance to the nearest picture over that to the next ones, by features of parts and mirror images.
matched places   `provnet.tools.copies.photos`: places of both pictures that agree on one shift and one scale.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from machine import machine
from PIL import Image, ImageDraw, ImageEnhance, ImageFont
from torch import Tensor, nn

from provnet.base.stats import clopper_pearson
from provnet.tools.copies.near_copies import copy_ratios
from provnet.tools.copies.photos import Originals, best_matches, layers, likenesses, maps, originals_of, parts_of

SIDE = 256
KINDS = ("crop", "mirror", "colour", "text", "collage", "repainted")
RATE = 0.005
RESULTS = Path(__file__).parent / "results"


class Part(NamedTuple):
    """Pictures of one half of the benchmark: a gallery, others, and what fills collages."""

    gallery: list[Image.Image]
    others: list[Image.Image]
    fill: list[Image.Image]


def photographs(data_dir: Path) -> list[list[Image.Image]]:
    """Pets and dogs, drawn by a seed."""
    found = []
    for name, most in (("pets", 1000), ("stanford-dogs", 1000)):
        files = sorted((data_dir / name).rglob("*.jpg"))
        rows = np.random.default_rng(0).permutation(len(files))[:most]
        found.append([Image.open(files[row]).convert("RGB") for row in rows.tolist()])
    return found


def parts(photos: list[list[Image.Image]]) -> dict[str, Part]:
    """Two halves that share no picture; of each kind of photograph as many."""
    cuts = {"thresholds": (0, 100, 200, 230), "report": (230, 430, 630, 660)}

    def between(low: int, high: int) -> list[Image.Image]:
        return [one for each in photos for one in each[low:high]]

    return {name: Part(*(between(*ends) for ends in pairwise(at))) for name, at in cuts.items()}


def as_view(picture: Image.Image) -> np.ndarray:
    """(256, 256, 3) bytes."""
    return np.asarray(picture.resize((SIDE, SIDE), Image.Resampling.BICUBIC))


class Painter(nn.Module):
    """An autoencoder: what it makes of a picture has none of its pixels."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        down = [nn.Conv2d(3, width, 4, 2, 1), nn.ReLU(), nn.Conv2d(width, 2 * width, 4, 2, 1), nn.ReLU()]
        up = [nn.ConvTranspose2d(2 * width, width, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(width, 3, 4, 2, 1)]
        self.body = nn.Sequential(*down, nn.Conv2d(2 * width, 8, 1), nn.Conv2d(8, 2 * width, 1), nn.ReLU(), *up)

    def forward(self, x: Tensor) -> Tensor:
        """(B, 3, H, W) in 0..1 -> the same shape."""
        made: Tensor = self.body(x).sigmoid()
        return made


def painter(pictures: Sequence[Image.Image], steps: int) -> Painter:
    """An autoencoder of parts of pictures."""
    torch.manual_seed(0)
    net, rng = Painter(), np.random.default_rng(0)
    views = torch.from_numpy(np.stack([as_view(one) for one in pictures])).permute(0, 3, 1, 2)
    optimizer = torch.optim.Adam(net.parameters(), 2e-3)
    for _ in range(steps):
        top, left = rng.integers(0, SIDE - 64, 2)
        rows = torch.from_numpy(rng.integers(0, len(views), 16))
        real = views[rows, :, top : top + 64, left : left + 64].float() / 255
        loss = F.mse_loss(net(real), real)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return net.eval()


def changed(
    picture: Image.Image, kind: str, rng: np.random.Generator, fill: Sequence[Image.Image], net: Painter
) -> np.ndarray:
    """A picture changed in one way, as it is compared."""
    width, height = picture.size
    if kind == "crop":
        share = rng.uniform(0.65, 0.9)
        wide, high = round(share * width), round(share * height)
        left, top = rng.integers(0, width - wide + 1), rng.integers(0, height - high + 1)
        picture = picture.crop((left, top, left + wide, top + high))
    elif kind == "mirror":
        picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    elif kind == "colour":
        for change in (ImageEnhance.Color, ImageEnhance.Brightness, ImageEnhance.Contrast):
            picture = change(picture).enhance(rng.uniform(0.6, 1.5))
        gains = rng.uniform(0.8, 1.2, 3)
        picture = Image.fromarray((np.asarray(picture) * gains).clip(0, 255).astype(np.uint8))
    elif kind == "text":
        picture = picture.resize((SIDE, SIDE), Image.Resampling.BICUBIC)
        draw = ImageDraw.Draw(picture)
        for _ in range(rng.integers(2, 5)):
            words = "".join(rng.choice(list("ABCDEFGHIJKLMNOPRSTUVW "), 12))
            font = ImageFont.load_default(int(rng.integers(24, 44)))
            draw.text(tuple(rng.integers(0, 160, 2)), words, tuple(rng.integers(0, 256, 3).tolist()), font=font)
    elif kind == "collage":
        sheet = Image.new("RGB", (SIDE, SIDE))
        x, y = (round(SIDE * rng.uniform(0.4, 0.6)) for _ in range(2))
        boxes = [(0, 0, x, y), (x, 0, SIDE, y), (0, y, x, SIDE), (x, y, SIDE, SIDE)]
        if rng.random() < 0.5:
            boxes = [(0, 0, x, SIDE), (x, 0, SIDE, SIDE)]
        own = int(rng.integers(len(boxes)))
        for place, (left, top, right, bottom) in enumerate(boxes):
            shown = picture if place == own else fill[int(rng.integers(len(fill)))]
            sheet.paste(shown.resize((right - left, bottom - top), Image.Resampling.BICUBIC), (left, top))
        picture = sheet
    view = as_view(picture)
    if kind == "repainted":
        with torch.inference_mode():
            made = net(torch.from_numpy(view.copy()).permute(2, 0, 1)[None].float() / 255)[0]
        view = (made * 255).round().byte().permute(1, 2, 0).numpy()
    return view


class Features:
    """Maps of the frozen network, kept by content."""

    def __init__(self, folder: Path) -> None:
        self.net, self.folder = layers(), folder
        folder.mkdir(parents=True, exist_ok=True)

    def __call__(self, seen: Sequence[np.ndarray]) -> tuple[Tensor, Tensor]:
        """The last and the middle features of square views."""
        made = []
        for view in seen:
            path = self.folder / f"{hashlib.sha256(view.tobytes()).hexdigest()}.npz"
            if not path.exists():
                last, middle = maps([torch.from_numpy(view.copy()).permute(2, 0, 1)], self.net)
                np.savez(path, last=last[0].numpy(), middle=middle[0].numpy())
            with np.load(path) as kept:
                made.append((torch.from_numpy(kept["last"]), torch.from_numpy(kept["middle"])))
        return torch.stack([one for one, _ in made]), torch.stack([one for _, one in made])


class Gallery(NamedTuple):
    """What pictures are compared with: views, and features of them, of their mirror images and of small ones."""

    views: np.ndarray
    known: Originals


def gallery_of(pictures: Sequence[Image.Image], features: Features) -> Gallery:
    """All that is asked of a gallery."""
    seen = np.stack([as_view(one) for one in pictures])
    half = [np.asarray(Image.fromarray(one).resize((SIDE // 2, SIDE // 2), Image.Resampling.BICUBIC)) for one in seen]
    mirrored = [np.ascontiguousarray(one[:, ::-1]) for one in seen]
    return Gallery(seen, originals_of([features(list(some)) for some in (seen, mirrored, half)]))


def ratios(cosines: Tensor) -> Tensor:
    """(B,) distance to the nearest over the usual one to the next twenty."""
    order = (2 - 2 * cosines.topk(21, 1).values).clamp_min(1e-9).sqrt()
    return order[:, 0] / order[:, 1:].median(1).values


def hash_bits(view: np.ndarray) -> np.ndarray:
    """64 bits: which of the 8 by 8 lowest waves of the grey picture lie above their median."""
    grey = np.asarray(Image.fromarray(view).convert("L").resize((32, 32), Image.Resampling.BICUBIC), np.float64)
    waves = np.cos(np.pi / 32 * np.outer(np.arange(8), np.arange(32) + 0.5))
    found = (waves @ grey @ waves.T).flatten()
    return np.asarray(found > np.median(found[1:]))


def scored(views: np.ndarray, gallery: Gallery, features: Features) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Statistic -> (n,) score, higher for copies, and (n,) the picture of the gallery that is named."""
    found: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    known = {one.tobytes(): row for row, one in enumerate(gallery.views)}
    rows = np.array([known.get(one.tobytes(), -1) for one in views])
    found["pixel hash"] = (rows >= 0).astype(np.float64), rows
    bits, keys = (np.stack([hash_bits(one) for one in each]) for each in (views, gallery.views))
    apart = (bits[:, None] != keys[None]).sum(2)
    found["perceptual hash"] = -apart.min(1).astype(np.float64), apart.argmin(1)
    last, middle = features(list(views))
    cosines = parts_of(last)[:, 0] @ gallery.known.whole[0].t()
    found["kNN, features"] = cosines.amax(1).numpy(), cosines.argmax(1).numpy()
    as_tensor = [torch.from_numpy(one.copy()).permute(0, 3, 1, 2) for one in (views, gallery.views)]
    ours = copy_ratios(as_tensor[0], as_tensor[1])
    found["copy ratio"] = -ours.ratio, ours.row
    near = likenesses(last, gallery.known)
    found["feature ratio"] = -ratios(near).numpy(), near.argmax(1).numpy()
    row, value = best_matches(last, middle, gallery.known)
    found["matched places"] = value, row
    return found


def near_misses(part: Part, gallery: Gallery, features: Features, count: int) -> list[Image.Image]:
    """Those of the others whose features lie nearest to a picture of the gallery."""
    last, _ = features([as_view(one) for one in part.others])
    nearest = (parts_of(last)[:, 0] @ gallery.known.whole[0].t()).amax(1)
    return [part.others[row] for row in nearest.topk(count).indices.tolist()]


def made(pictures: Sequence[Image.Image], kind: str, part: Part, net: Painter, seed: int) -> np.ndarray:
    """(n, 256, 256, 3) one changed picture of each."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    return np.stack([changed(one, kind, rng, part.fill, net) for one in pictures])


def thresholds(part: Part, net: Painter, features: Features) -> tuple[dict[str, float], int]:
    """The score of each statistic above which RATE of these near misses lie, all kinds together."""
    gallery = gallery_of(part.gallery, features)
    misses = near_misses(part, gallery, features, 100)
    views = [np.stack([as_view(one) for one in misses]), *(made(misses, kind, part, net, 1) for kind in KINDS)]
    found = [scored(one, gallery, features) for one in views]
    every = {name: np.sort(np.concatenate([one[name][0] for one in found])) for name in found[0]}
    n = len(next(iter(every.values())))
    return {name: float(values[-1 - int(RATE * n)]) for name, values in every.items()}, n


def report(part: Part, net: Painter, features: Features, cuts: dict[str, float], each: int) -> Iterator[dict[str, Any]]:
    """What each statistic finds of each kind, and what it takes for copies."""
    gallery = gallery_of(part.gallery, features)
    step = len(part.gallery) // each
    chosen = list(range(0, len(part.gallery), step))[:each]
    misses = near_misses(part, gallery, features, 200)
    for kind in (*KINDS, "unchanged"):
        own = [] if kind == "unchanged" else [part.gallery[row] for row in chosen]
        others = misses if kind == "unchanged" else misses[:: len(misses) // each][:each]
        wrong = np.stack([as_view(one) for one in others]) if not own else made(others, kind, part, net, 3)
        of_others = scored(wrong, gallery, features)
        of_copies = scored(made(own, kind, part, net, 2), gallery, features) if own else {}
        for name, cut in cuts.items():
            alarms = clopper_pearson(int((of_others[name][0] > cut).sum()), len(wrong))
            row: dict[str, Any] = {"kind": kind, "statistic": name, "false_alarms": alarms.to_json()}
            if own:
                score, named = of_copies[name]
                row["found"] = clopper_pearson(int(((score > cut) & (named == chosen)).sum()), len(own)).to_json()
            yield row


def main() -> None:
    """Read the command line, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=RESULTS / "real_copies.json")
    parser.add_argument("--each", type=int, default=100, help="copies, and near misses, of each kind")
    parser.add_argument("--steps", type=int, default=400, help="of the autoencoder")
    asked = parser.parse_args()
    began = time.perf_counter()
    halves, features = parts(photographs(asked.data_dir)), Features(asked.cache)
    given = halves["thresholds"]
    net = painter(given.gallery + given.others, asked.steps)
    cuts, n = thresholds(given, net, features)
    print(json.dumps(cuts), f"{time.perf_counter() - began:.0f} s", flush=True)
    rows = []
    for row in report(halves["report"], net, features, cuts, asked.each):
        rows.append(row)
        found = row["found"]["value"] if "found" in row else float("nan")
        print(
            f"{row['kind']:10} {row['statistic']:16} {found:.3f}  false {row['false_alarms']['value']:.3f}", flush=True
        )
    result = {"machine": machine(rates=False), "rate": RATE, "near_misses_of_thresholds": n, "thresholds": cuts}
    result |= {"gallery": len(halves["report"].gallery), "seconds": round(time.perf_counter() - began, 1), "rows": rows}
    asked.out.write_text(json.dumps(result, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()

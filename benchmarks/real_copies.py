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
matched places   of the five nearest: places of both whose features name each other and agree on one shift and scale.
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
from provnet.models.pretrained import lite0, load_published
from provnet.tools.copies.near_copies import copy_ratios

SIDE = 256
KINDS = ("crop", "mirror", "colour", "text", "collage", "repainted")
RATE, FEW = 0.005, 5  # of false alarms; pictures of the gallery whose places are matched
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
    """Maps of EfficientNet-Lite0: (1280, 8, 8) of a view, and (112, 16, 16) of a middle layer; kept by content."""

    def __init__(self, folder: Path) -> None:
        self.net = lite0((3, SIDE, SIDE)).eval()
        load_published(self.net)
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    @torch.inference_mode()
    def __call__(self, views: Sequence[np.ndarray]) -> tuple[Tensor, Tensor]:
        """Both maps of square views, in half precision."""
        made = []
        for view in views:
            path = self.folder / f"{hashlib.sha256(view.tobytes()).hexdigest()}.npz"
            if not path.exists():
                x = (torch.from_numpy(view.copy()).permute(2, 0, 1)[None].float() - 127) / 128
                layers = self.net.body.layers  # type: ignore[union-attr]
                middle = x
                for layer in layers:
                    x = layer(x)
                    if x.shape[2] == view.shape[0] // 16 and x.shape[1] == 112:
                        middle = x
                np.savez(path, last=x[0].half().numpy(), middle=middle[0].half().numpy())
            with np.load(path) as kept:
                made.append((torch.from_numpy(kept["last"]), torch.from_numpy(kept["middle"])))
        return torch.stack([one for one, _ in made]), torch.stack([one for _, one in made])


def windows(maps: Tensor) -> Tensor:
    """(N, W, D) unit features of the whole and of parts, from maps (N, D, S, S)."""
    maps = maps.float()
    side = maps.shape[2]
    found = [maps.mean((2, 3))]
    for high, wide in ((6, 6), (4, 4), (8, 4), (4, 8)):
        if max(high, wide) > side or side < 8:
            continue
        for top in range(0, side - high + 1, 2):
            for left in range(0, side - wide + 1, 2):
                found.append(maps[:, :, top : top + high, left : left + wide].mean((2, 3)))
    return F.normalize(torch.stack(found, 1), dim=2)


class Gallery(NamedTuple):
    """What pictures are compared with: views, and features of them, of their mirror images and of small ones."""

    views: np.ndarray
    whole: Tensor  # (V, N, D): as they are, mirrored, small
    part: Tensor  # (N, W, D)
    middle: Tensor  # (V, N, C, S, S) as they are, mirrored
    small: Tensor  # (N, C, S/2, S/2)


def gallery_of(pictures: Sequence[Image.Image], features: Features) -> Gallery:
    """All that is asked of a gallery."""
    views = np.stack([as_view(one) for one in pictures])
    last, middle = features(list(views))
    mirrored, middle_mirrored = features([np.ascontiguousarray(one[:, ::-1]) for one in views])
    half = [np.asarray(Image.fromarray(one).resize((SIDE // 2, SIDE // 2), Image.Resampling.BICUBIC)) for one in views]
    small, small_middle = features(half)
    parts_of = windows(last)
    whole = torch.stack([parts_of[:, 0], windows(mirrored)[:, 0], windows(small)[:, 0]])
    return Gallery(views, whole, parts_of, torch.stack([middle, middle_mirrored]), small_middle)


def near_by_features(last: Tensor, gallery: Gallery) -> Tensor:
    """(B, N) the best cosine of any part of a query with a whole of the gallery, or of its whole with a part."""
    of = windows(last)
    best = torch.full((len(of), gallery.whole.shape[1]), -1.0)
    for whole in gallery.whole:
        best = torch.maximum(best, torch.einsum("bwd,nd->bwn", of, whole).amax(1))
    return torch.maximum(best, torch.einsum("bd,nwd->bnw", of[:, 0], gallery.part).amax(2))


def ratios(cosines: Tensor) -> Tensor:
    """(B,) distance to the nearest over the usual one to the next twenty."""
    order = (2 - 2 * cosines.topk(21, 1).values).clamp_min(1e-9).sqrt()
    return order[:, 0] / order[:, 1:].median(1).values


def matched(query: Tensor, other: Tensor) -> int:
    """How many places (C, S, S) of two maps name each other and agree on one shift and scale."""
    grids, units = [], []
    for maps in (query, other):
        maps = maps.float()
        maps = maps - maps.mean((1, 2), keepdim=True)
        units.append(F.normalize(maps.flatten(1), dim=0))
        rows, columns = torch.meshgrid(*(torch.arange(side) for side in maps.shape[1:]), indexing="ij")
        grids.append(torch.stack([rows.flatten(), columns.flatten()], 1).float())
    likeness = units[0].t() @ units[1]
    there, back = likeness.argmax(1), likeness.argmax(0)
    mutual = (back[there] == torch.arange(len(there))).nonzero()[:, 0]
    if len(mutual) < 3:
        return 0
    a, b = grids[0][mutual], grids[1][there[mutual]]
    apart = (a[:, None] - a[None]), (b[:, None] - b[None])
    length = apart[0].norm(dim=2), apart[1].norm(dim=2)
    usable = (length[0] >= 3) & (length[1] >= 1)
    pairs = usable.nonzero()
    if len(pairs) == 0:
        return 0
    pairs = pairs[torch.linspace(0, len(pairs) - 1, min(len(pairs), 300)).long()]
    scale = length[1][pairs[:, 0], pairs[:, 1]] / length[0][pairs[:, 0], pairs[:, 1]]
    shift = b[pairs[:, 0]] - scale[:, None] * a[pairs[:, 0]]
    guess = scale[:, None, None] * a[None] + shift[:, None]
    near = (guess - b[None]).abs().amax(2) <= torch.maximum(scale, torch.ones(()))[:, None]
    agreed = near.sum(1)[(scale > 0.4) & (scale < 2.6)]
    return int(agreed.max()) if len(agreed) else 0


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
    cosines = windows(last)[:, 0] @ gallery.whole[0].t()
    found["kNN, features"] = cosines.amax(1).numpy(), cosines.argmax(1).numpy()
    as_tensor = [torch.from_numpy(one.copy()).permute(0, 3, 1, 2) for one in (views, gallery.views)]
    ours = copy_ratios(as_tensor[0], as_tensor[1])
    found["copy ratio"] = -ours.ratio, ours.row
    near = near_by_features(last, gallery)
    found["feature ratio"] = -ratios(near).numpy(), near.argmax(1).numpy()
    counts, named = [], []
    for row in range(len(views)):
        few = near[row].topk(FEW).indices.tolist()
        each = []
        for place in few:
            maps = [gallery.middle[0, place], gallery.middle[1, place], gallery.small[place]]
            each.append(max(matched(middle[row], one) for one in maps))
        counts.append(max(each))
        named.append(few[int(np.argmax(each))])
    found["matched places"] = np.array(counts, np.float64), np.array(named)
    return found


def near_misses(part: Part, gallery: Gallery, features: Features, count: int) -> list[Image.Image]:
    """Those of the others whose features lie nearest to a picture of the gallery."""
    last, _ = features([as_view(one) for one in part.others])
    nearest = (windows(last)[:, 0] @ gallery.whole[0].t()).amax(1)
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
        others = misses if kind == "unchanged" else misses[:each]
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

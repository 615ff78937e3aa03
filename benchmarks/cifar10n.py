"""Labels that people gave to CIFAR-10 (CIFAR-10N): which are wrong, how many, and what correcting them is worth.

    python benchmarks/cifar10n.py FOLDER --out FILE [--samples N]

FOLDER holds cifar10_train_a.npz, cifar10_train_b.npz, cifar10_test.npz (compressed by the median edge predictor) and
cifar10n_train.npz. Features are those of EfficientNet-Lite0 (`provnet[vision]`), of each picture and its mirror image.
The settings were chosen on labels drawn from CIFAR-10H and on planted flips (docs/debugging.md); nothing here. The
baselines get the same features; the scores of cleanlab are made by their published formulas: it may not be there.
"""

from __future__ import annotations

import argparse
import json
import lzma
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from label_baselines import (
    answers,
    by_probabilities,
    confident_learning,
    f1,
    margin_over_course,
    measured,
    neighbours_votes,
    out_of_fold,
    softmax_regression,
)
from machine import machine
from torch import Tensor

from provnet.models.pretrained import SIDE, lite0, load_published
from provnet.tools.debug.assess import Assessment, assess
from provnet.tools.debug.compute import certain

CLASSES, KINDS, HALF = 10, ("worst", "aggregate", "random1"), 25_000
PUBLISHED = {"worst": {"SimiFeat-rank F1 (Zhu 2022)": 0.833}}
CERTAINTY, FIX = 0.9, 0.8


def unpacked(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """(N, 32, 32, 3) uint8 pictures and labels (N,)."""
    held = np.load(path, allow_pickle=False)
    n, height, width, _ = (int(side) for side in held["shape"])
    planes = np.frombuffer(lzma.decompress(held["images"].tobytes()), np.uint8).reshape(3, n, height, width)
    green, red, blue = (_median(plane) for plane in planes)
    half = np.uint8(128)
    return np.stack([red + green - half, green, blue + green - half], -1), held["labels"].astype(np.int64)


def _median(rest: np.ndarray) -> np.ndarray:
    """Undo the median edge predictor of (N, H, W) residuals, modulo 256."""
    n, height, width = rest.shape
    made = np.zeros((height + 1, width + 1, n), np.int16)
    given = np.ascontiguousarray(rest.transpose(1, 2, 0))
    for i in range(height):
        for j in range(width):
            above, left, corner = made[i, j + 1], made[i + 1, j], made[i, j]
            most, least = np.maximum(above, left), np.minimum(above, left)
            said = np.where(corner >= most, least, np.where(corner <= least, most, above + left - corner))
            made[i + 1, j + 1] = (said + given[i, j]) & 255
    return made[1:, 1:].astype(np.uint8).transpose(2, 0, 1)


@torch.inference_mode()
def features(pictures: np.ndarray, device: str, batch: int = 500) -> Tensor:
    """(N, 1280) of a picture and its mirror image."""
    net = lite0((3, SIDE, SIDE))
    load_published(net)
    kind = torch.bfloat16 if device == "cuda" else torch.float32
    body = net.body.to(device, kind).to(memory_format=torch.channels_last).eval()
    found = []
    for some in torch.split(torch.from_numpy(pictures), batch):
        x = some.to(device).permute(0, 3, 1, 2).float()
        x = F.interpolate(x, size=(SIDE, SIDE), mode="bicubic", antialias=True, align_corners=False).clamp(0, 255)
        x = ((x - 127) / 128).to(kind).contiguous(memory_format=torch.channels_last)
        found.append((body(x).float() + body(x.flip(3)).float()) / 2)
    return torch.cat(found)


def after_fix(
    z: Tensor, given: Tensor, found: Assessment, test: tuple[Tensor, Tensor], penalty: float
) -> dict[str, Any]:
    """Test accuracy of a linear classifier on the features: labels as given, certain ones corrected, and as `fix` does
    it: those right with FIX corrected, other doubtful samples left out.
    """
    suspicious = torch.from_numpy((found.mislabel >= 0.5) | (found.foreign >= 0.5)).to(z.device)
    labels, chosen = {}, {}
    for least in (CERTAINTY, FIX):
        rows = torch.from_numpy(certain(found.sure, found.foreign, least)).to(z.device)
        chosen[least] = rows[suspicious[rows]]
        labels[least] = given.clone()
        labels[least][chosen[least]] = torch.from_numpy(found.suggested).to(z.device)[chosen[least]]
    doubtful = suspicious.clone()
    doubtful[chosen[FIX]] = False

    def accuracy(keep: Tensor, labels: Tensor) -> float:
        weight = softmax_regression(z[keep], labels[keep], CLASSES, penalty)
        return float((answers(test[0], weight).argmax(1) == test[1]).float().mean())

    every = torch.ones_like(doubtful)
    return {
        "given": accuracy(every, given),
        "corrected": accuracy(every, labels[CERTAINTY]),
        "fixed": accuracy(~doubtful, labels[FIX]),
        "fix": {"changed": len(chosen[FIX]), "left out": int(doubtful.sum())},
    }


def one_kind(
    x: Tensor, labels: np.ndarray, clean: np.ndarray, test: tuple[Tensor, Tensor], seed: int
) -> dict[str, Any]:
    """All figures of one set of labels."""
    wrong, began = labels != clean, time.perf_counter()
    found = assess(x, labels, CLASSES, seed=seed, draws=20)
    ours = time.perf_counter() - began
    given = torch.from_numpy(labels).to(x.device)
    mean, spread = x.mean(0), x.std(0) + 1e-6
    z, seen = (x - mean) / spread, ((test[0] - mean) / spread, test[1])
    p, penalty = out_of_fold(z, given, CLASSES, seed)
    votes, outvoted = neighbours_votes(x, labels, CLASSES)
    orders = {"provnet": found.as_mislabels().odds, **by_probabilities(p, labels)}
    orders |= {"votes of ten neighbours (SimiFeat)": votes}
    orders |= {"margin over the course (AUM), linear": margin_over_course(z, given, CLASSES)}
    rows = certain(found.sure, found.foreign, CERTAINTY)
    best = softmax_regression(z, torch.from_numpy(clean).to(x.device), CLASSES, penalty)
    return {
        "n": len(labels),
        "wrong": int(wrong.sum()),
        "orders": measured(wrong, orders, "provnet"),
        "f1_of_flags": {
            "provnet": f1(wrong, found.mislabel >= 0.5),
            "confident learning, 5-fold": f1(wrong, confident_learning(p, labels)),
            "predicted otherwise, 5-fold": f1(wrong, p.argmax(1) != labels),
            "outvoted by ten neighbours (SimiFeat)": f1(wrong, outvoted),
        },
        "expected": vars(found.expected) | {"not predicted": round((1 - found.accuracy) * len(labels))},
        "cannot_tell": found.doubt,
        "corrections": {
            "changed": len(rows),
            "right": int((found.suggested[rows] == clean[rows]).sum()),
            "broke a right label": int((~wrong[rows]).sum()),
        },
        "test_accuracy": after_fix(z, given, found, seen, penalty)
        | {"right labels": float((answers(seen[0], best).argmax(1) == seen[1]).float().mean()), "n": len(test[1])},
        "penalty": penalty,
        "seconds": ours,
    }


def main() -> None:
    """Measure, print, write."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("folder", type=Path)
    asked.add_argument("--out", type=Path, required=True)
    asked.add_argument("--samples", type=int, default=50_000)
    asked.add_argument("--keep", type=Path, help="folder for the features, which aqua.py reads")
    asked.add_argument("--seed", type=int, default=0)
    given = asked.parse_args()
    device, began = "cuda" if torch.cuda.is_available() else "cpu", time.perf_counter()
    halves = ("train_a", "train_b")[: 1 if given.samples <= HALF else 2]
    parts = [unpacked(given.folder / f"cifar10_{name}.npz") for name in halves]
    pictures, clean = (np.concatenate(each)[: given.samples] for each in zip(*parts, strict=True))
    shown, answer = (each[: max(given.samples // 5, 100)] for each in unpacked(given.folder / "cifar10_test.npz"))
    labels = np.load(given.folder / "cifar10n_train.npz", allow_pickle=False)
    assert (labels["clean"][: given.samples] == clean).all(), "the labels are of other pictures"
    print(f"{time.perf_counter() - began:.0f} s: {len(clean):,} pictures unpacked", flush=True)
    x, seen = features(pictures, device), (features(shown, device), torch.from_numpy(answer).to(device))
    print(f"{time.perf_counter() - began:.0f} s: features made", flush=True)
    if given.keep is not None:
        given.keep.mkdir(parents=True, exist_ok=True)
        np.savez(given.keep / "cifar10_train.npz", a=x.cpu().numpy().astype(np.float16), y=clean)
    found: dict[str, Any] = {"machine": machine(rates=False), "seed": given.seed, "published": PUBLISHED}
    for kind in KINDS:
        noisy = (labels["random"][:, 0] if kind == "random1" else labels[kind])[: given.samples].astype(np.int64)
        found[kind] = one_kind(x, noisy, clean, seen, given.seed)
        print(f"{time.perf_counter() - began:.0f} s: {kind} {json.dumps(found[kind])}", flush=True)
        given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()

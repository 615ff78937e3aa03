"""Generators on whole data sets against the bars that we set ourselves: curves, index, sources judged from outside.

    python benchmarks/generation.py --data mnist --generator paper modern --device cuda --data-dir DIR
        [--out benchmarks/results/generation-mnist.json] [--pictures DIR | --sheet FILE.png] [--epochs N] [--limit N]
    python benchmarks/generation.py --data lfw --generator faces --device cuda --data-dir DIR --out FILE.json

For each generator: losses and accuracies of every epoch on the training samples, at the mean of the latents and at
drawn ones; reconstruction; 10,000 generated pictures, whose class as an independent classifier sees it (trained apart:
another network, another seed) is compared with the class of the first training sample that the generator names; a
Fréchet distance in the features of that classifier. LFW: people with at most 25 pictures, those with 2 to 25 apart, and
one epoch beside one epoch of a loop over the heads of all people. With `--pictures` the contact sheet and the curves
are drawn; faces go only to folders that git ignores.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from pathlib import Path
from typing import Any

import lightning_fabric  # noqa: F401  its first import from a slow disk is not training
import numpy as np
import torch
from generation_loop import loop_epoch
from machine import machine
from torch import Tensor

from provnet import open_data
from provnet.answers.metrics import agreement_by_class, class_agreement, frechet
from provnet.answers.queries import Query
from provnet.base.options import RunOptions
from provnet.base.stats import wilson
from provnet.cli.generate import source_cards
from provnet.data.dataset import ImageData
from provnet.runs.run import Run
from provnet.tools.generate.compute import (
    GENERATOR_NAMES,
    fit_generator,
    generate,
    index_hits,
    rebuilding_error,
    sources,
)
from provnet.tools.generate.page import course_png, sheet_png
from provnet.training.config import train_config
from provnet.training.fit import fit

AT_MOST = 25  # pictures of a person
BARS: dict[tuple[str, str], dict[str, float]] = {
    ("mnist", "paper"): {"class_at_mean": 0.99},
    ("fashion-mnist", "paper"): {"class_at_mean": 0.95},
    ("mnist", "paper-mean"): {"class_at_mean": 0.99},
    ("fashion-mnist", "paper-mean"): {"class_at_mean": 0.95},
    ("mnist", "modern"): {"index_at_mean": 0.95, "agreement": 0.95},
    ("fashion-mnist", "modern"): {"index_at_mean": 0.95, "agreement": 0.88},
    ("lfw", "faces"): {"class_at_mean": 0.90, "index_at_mean": 0.90, "index_at_mean_2_to_25": 0.85},
}


def people(data: ImageData, at_most: int = AT_MOST) -> ImageData:
    """The samples of classes that have at most so many; the other classes stay without samples."""
    sizes = np.bincount(data.samples.labels, minlength=len(data.class_names))
    return data.select(np.flatnonzero(sizes[data.samples.labels] <= at_most))


def rate(hits: np.ndarray) -> dict[str, Any]:
    """A share with n and interval."""
    return wilson(int(hits.sum()), len(hits)).to_json()


def seen_by(judge: Run, images: Tensor, device: str) -> tuple[np.ndarray, np.ndarray]:
    """Classes (n,) and features (n, D) of an independent classifier."""
    net = judge.network.to(device).eval()
    with torch.inference_mode():
        parts = [net(batch.to(device)) for batch in torch.split(images, 1024)]
    classes = torch.cat([part.logits.argmax(1).cpu() for part in parts]).numpy()
    return classes, torch.cat([part.support_features.float().cpu() for part in parts]).numpy()


def independent(train: ImageData, test: ImageData, given: argparse.Namespace) -> tuple[Run, dict[str, Any]]:
    """A classifier trained apart: other layers, another seed, no index."""
    began = time.perf_counter()
    config = train_config("robust", epochs=given.judge_epochs, seed=1001, index_weight=0.0)
    backbone = "medium" if train.shape[0] == 1 else "residual"
    judge = fit(
        train,
        config.using(network="class-independent", head="exemplar", backbone=backbone),
        RunOptions(device=given.device),
    )
    classes, _ = seen_by(judge, test.images, given.device)
    about = {"backbone": backbone, "epochs": given.judge_epochs, "seconds": round(time.perf_counter() - began, 2)}
    return judge, about | {"class_accuracy_on_test": rate(classes == test.samples.labels)}


def directions(features: np.ndarray, most: int = 64) -> np.ndarray:
    """The main directions (D, 64) of features; distances in all of 512 take minutes and say the same."""
    values, vectors = np.linalg.eigh(np.cov(features.astype(np.float64), rowvar=False))
    return np.asarray(vectors[:, np.argsort(values)[::-1][:most]])


def judged(run: Run, judge: Run, test: ImageData, given: argparse.Namespace) -> dict[str, Any]:
    """What an independent classifier says of generated pictures and of their first sources."""
    began = time.perf_counter()
    made = generate(run, given.made, seed=0)
    seconds = time.perf_counter() - began
    found = sources(run, made, 5)
    classes, features = seen_by(judge, torch.from_numpy(made.images), given.device)
    real = seen_by(judge, test.images, given.device)[1]
    middle, axes = len(real) // 2, directions(real)
    features, real = features @ axes, real @ axes
    space = f"{axes.shape[1]} main directions of the features of the independent classifier of this benchmark"
    five = np.array([np.bincount(row[row >= 0], minlength=len(test.class_names)).argmax() for row in found.label])
    again = generate(run, given.made, seed=0)
    return {
        "made": len(made),
        "made_in_seconds": round(seconds, 2),
        "same_seed_same_pictures": bool((again.images == made.images).all()),
        "agreement": class_agreement(classes, found.label).to_json(),
        "agreement_of_supported": class_agreement(classes, found.label, found.supported).to_json(),
        "agreement_with_most_of_five": rate(classes == five),
        "agreement_with_class_asked_for": rate(classes == made.labels),
        "agreement_by_class": {
            k: v.to_json() for k, v in agreement_by_class(classes, found.label, test.class_names).items()
        },
        "supported": rate(found.supported),
        "different_first_sources": len(np.unique(found.index[:, 0])),
        "frechet": frechet(features, real, space=space).to_json(),
        "frechet_of_real_halves": frechet(real[:middle], real[middle:], space=space).to_json(),
    }


def trained(data: ImageData, name: str, given: argparse.Namespace) -> tuple[Run, dict[str, Any]]:
    """Train a generator; its course, its seconds, and how often training samples are found at the end."""
    course: list[dict[str, Any]] = []
    times: list[float] = [time.perf_counter()]

    def keep(row: Any) -> None:
        course.append(dict(row))
        times.append(time.perf_counter())

    changes = {"epochs": given.epochs, "seed": given.seed, "batch_size": given.batch_size}
    out = None if given.runs is None else given.runs / f"{given.data}-{name}"
    run = fit_generator(
        data,
        name,
        changes=changes,
        on_epoch=keep,
        where=RunOptions(device=given.device, out=out, overwrite=out is not None),
    )
    seconds = time.perf_counter() - times[0]
    run.network.to(given.device)
    hits = index_hits(run, data, np.arange(len(data)), seed=0)
    epochs = np.diff(times)
    found: dict[str, Any] = {
        "settings": dict(run.config.training),
        "parameters": sum(p.numel() for p in run.network.parameters()),
        "seconds": round(seconds, 2),
        "seconds_an_epoch": round(float(np.median(epochs)), 4),
        **{key: rate(value) for key, value in hits.items()},
        "course": [{k: round(v, 6) for k, v in row.items()} for row in course],
    }
    head = run.network.index_head
    if hasattr(head, "learned"):
        found["index_learned"] = wilson(*head.learned.tolist()).to_json()
    sizes = np.bincount(data.samples.labels)[data.samples.labels]
    if given.data == "lfw":
        found |= {f"{key}_2_to_25": rate(value[sizes > 1]) for key, value in hits.items()}
        found["people"] = {
            "all": len(np.unique(data.samples.labels)),
            "with_2_to_25": int((np.bincount(data.samples.labels) > 1).sum()),
        }
    return run, found


def draw(run: Run, name: str, found: dict[str, Any], given: argparse.Namespace) -> None:
    """The contact sheet and the curves, each as a picture."""
    made = generate(run, 12, seed=3)
    names = [f"generated-{number:02d}" for number in range(1, 13)]
    queries = [Query(n, image, "") for n, image in zip(names, made.images, strict=True)]
    classes = [run.samples.class_names[i] for i in made.labels.tolist()]
    over = [f"{kind}, seen as" for kind in classes]
    cards = source_cards(run, sources(run, made, 5), queries, None, str(given.data_dir), over)
    given.pictures.mkdir(parents=True, exist_ok=True)
    sheet = given.sheet if given.sheet is not None else given.pictures / f"{given.data}-{name}-sheet.png"
    sheet.write_bytes(sheet_png(cards))
    (given.pictures / f"{given.data}-{name}-course.png").write_bytes(
        course_png(found["course"], f"{given.data}, {name}")
    )


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """All generators on one data set."""
    opening = {"data_dir": str(given.data_dir), **({"limit": given.limit} if given.limit else {})}
    faces = given.data == "lfw"
    data = people(open_data("lfw", **opening)) if faces else open_data(given.data, **opening)
    test = data if faces else open_data(given.data, split="test", **opening)
    result: dict[str, Any] = {"data": given.data, "samples": len(data), "fingerprint": data.samples.fingerprint}
    judge = None
    if not faces:
        judge, result["judge"] = independent(data, test, given)
    result["generators"] = {}
    for name in given.generator:
        run, found = trained(data, name, given)
        found["rebuilt"] = {"train": rebuilding_error(run, data)} | (
            {} if faces else {"test": rebuilding_error(run, test)}
        )
        if judge is not None:
            found |= judged(run, judge, test, given)
        if faces:
            seconds = loop_epoch(data, name, given.device)
            found["loop"] = {"seconds_an_epoch": round(seconds, 4), "ratio": seconds / found["seconds_an_epoch"]}
        wanted = BARS.get((given.data, name), {})
        found["bars"] = {key: {"bar": bar, "met": (found[key]["value"] or 0.0) >= bar} for key, bar in wanted.items()}
        if faces:
            found["bars"]["loop"] = {"bar": 10, "met": found["loop"]["ratio"] >= 10}
        if given.pictures is not None:
            draw(run, name, found, given)
        result["generators"][name] = found
        show(given.data, name, found)
    return result


def show(data: str, name: str, found: dict[str, Any]) -> None:
    """The chief figures as lines."""
    print(f"\n{data}, {name}: {found['seconds']} s, {found['seconds_an_epoch']} s an epoch")
    for key, value in found.items():
        if isinstance(value, dict) and {"value", "low", "high", "n"} <= set(value) and value["n"]:
            bar = found["bars"].get(key)
            verdict = "" if bar is None else f"  bar {bar['bar']:.0%}: {'met' if bar['met'] else 'MISSED'}"
            ends = f"({value['low']:.2%} to {value['high']:.2%}, n {value['n']:,})"
            print(f"  {key:34s} {value['value']:8.2%}  {ends}{verdict}")
    for split, values in found["rebuilt"].items():
        bce, mse = values["reconstruction_bce"], values["reconstruction_mse"]
        errors = f"cross-entropy {bce['value']:.2f}, mean square error {mse['value']:.5f}"
        print(f"  rebuilt, {split}: {errors}, n {bce['n']:,}")
    if "frechet" in found:
        ours, halves = found["frechet"]["distance"]["value"], found["frechet_of_real_halves"]["distance"]["value"]
        print(f"  Fréchet distance {ours:.3f} (halves of the real pictures: {halves:.3f}), {found['frechet']['space']}")
    if "loop" in found:
        loop = found["loop"]
        print(f"  a loop over heads: {loop['seconds_an_epoch']} s an epoch, {loop['ratio']:.1f} times ours")


def ignored(folder: Path) -> bool:
    """Whether git ignores what lies in a folder, or it lies outside of the project."""
    root = Path(__file__).resolve().parents[1]
    if not folder.resolve().is_relative_to(root):
        return True
    asked = ["git", "check-ignore", "-q", str(folder.resolve() / "x.png")]
    return subprocess.run(asked, cwd=root, check=False).returncode == 0


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", choices=("mnist", "fashion-mnist", "lfw"), required=True)
    parser.add_argument("--generator", nargs="+", choices=GENERATOR_NAMES, required=True)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--epochs", type=int, help="default: 70 (paper, paper-mean), 150 (faces), 40 (modern)")
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--judge-epochs", type=int, default=12)
    parser.add_argument("--made", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--runs", type=Path, help="keep the runs in this folder")
    parser.add_argument("--pictures", type=Path, help="folder for the contact sheet and the curves")
    parser.add_argument("--sheet", type=Path, help="the contact sheet, of one generator; the curves go beside it")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.device == "auto":
        given.device = "cuda" if torch.cuda.is_available() else "cpu"
    if given.sheet is not None:
        if len(given.generator) > 1:
            parser.error("--sheet is for one generator; give --pictures DIR for several")
        given.pictures = given.sheet.parent
    if given.data == "lfw" and given.pictures is not None and not ignored(given.pictures):
        parser.error(f"faces are not published: {given.pictures} must be a folder that git ignores, such as out/")
    began = time.perf_counter()
    result = {"machine": machine(rates=False)} | measure(given)
    result["seconds"] = round(time.perf_counter() - began, 1)
    print(f"\n{result['seconds']} s in all")
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()

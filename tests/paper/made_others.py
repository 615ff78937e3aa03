"""Results made by hand for the experiments beside table 2: every cell at full scale, with plausible numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from provnet.tools.robustness.conditions import CONDITIONS
from provnet_paper.debugging import SHOWN
from provnet_paper.frame import EXPERIMENTS
from provnet_paper.records import SCALES, Figure, Result, Results, Told, printed
from provnet_paper.samples import ODD_KINDS as KINDS
from provnet_paper.samples import packed

from .made import ORIGIN, told

N, TRAIN = 10_000, 60_000
SAMPLES = {"train": TRAIN, "test": N, "indexed": 6_000}
Made = tuple[dict[str, Figure], Told]


def pictures(n: int, seed: int = 0) -> Told:
    """Blobs that look like nothing, of the size of digits."""
    chance = np.random.default_rng(seed)
    y, x = np.mgrid[:28, :28]
    centres = chance.uniform(8, 20, (n, 2))
    blobs = [255 * np.exp(-((y - a) ** 2 + (x - b) ** 2) / 30) for a, b in centres]
    return packed(np.stack(blobs)[:, None].astype(np.uint8))


def of_paper(name: str, data: str, setting: str, above: float) -> dict[str, Figure]:
    """The paper's numbers of a cell, so much above."""
    found = [one for one in printed(name) if (one.data, one.setting) == (data, setting)]
    return {one.figure: (min(1.0, one.value + above), TRAIN if "index" in one.figure else N) for one in found}


def mixing(data: str, setting: str, seed: int) -> Made:
    alpha = float(setting.removesuffix("-as-printed"))
    hard = 0.25 if data == "fashion-mnist" else 0.15
    figures: dict[str, Figure] = {
        "index_accuracy": (1.0 - 0.999 * alpha**6, TRAIN),
        "index_accuracy_sampled_targets": (1.0 - alpha * 0.99, TRAIN),
        "index_at_5": (1.0 - 0.99 * alpha**6, TRAIN),
        "any_at_1_train": (1.0 - 0.01 * alpha, TRAIN),
        "any_at_1": (0.99 - hard * (1 - alpha) ** 2, N),
        "any_at_5": (0.998 - hard * (1 - alpha) ** 2 / 5, N),
        "majority_at_5": (0.98 - hard * (1 - alpha) ** 2, N),
        "class_accuracy": (0.985 - hard * (1 - alpha) ** 2, N),
    }
    figures |= {f"index_accuracy_perturbed_{name}": (0.9, N) for name in ("noise", "shift", "jpeg")}
    classes = [[label, label, (label + (alpha < 0.5)) % 10] for label in range(10)]
    return figures, {"pictures": pictures(30, seed), "classes": classes}


def subsets(data: str, setting: str, seed: int) -> Made:
    way, share = setting.split("-")[:2]
    part, easy = int(share) / 100, 0.03 if way == "diverse" else 0.0
    top = 0.993 if data == "mnist" else 0.92
    figures = {
        "class_accuracy": (top - 0.01 * (1 - part), N),
        "any_at_1": (0.7 + 0.1 * part + easy + 0.03 * math.sin(12 * part), N),
        "any_at_5": (0.92 + 0.04 * part, N),
        "any_at_10": (0.96 + 0.02 * part, N),
        "index_accuracy": (1.0, int(TRAIN * part)),
    }
    return figures, {"index_head": int(256 * TRAIN * part), "samples": SAMPLES | {"indexed": int(TRAIN * part)}}


def sharing(data: str, setting: str, seed: int) -> Made:
    figures = of_paper("sharing", data, setting.removesuffix("-as-printed"), 0.001)
    level = int(setting.split("-")[1])
    last = figures["index_accuracy"][0]
    epochs = [*range(1, 21), *range(25, 151, 5)]
    curve = [
        {
            "epoch": epoch,
            "index": last * (1 - math.exp(-epoch / (20 + 5 * level))),
            "class": figures["class_accuracy"][0] * (1 - 0.1 * math.exp(-epoch / 4)),
        }
        for epoch in epochs
    ]
    loss = [8 * math.exp(-epoch / 40) + 0.2 * (level == 4) * (epoch % 2) for epoch in range(150)]
    return figures, {"curve": curve, "loss": {"index": loss, "class": loss}, "shared": 0.1 * level}


def robustness(data: str, setting: str, seed: int) -> Made:
    chance, setting = np.random.default_rng([seed, 1]), setting.removesuffix("-as-printed")
    luck = chance.random((len(CONDITIONS), N))
    rates = []
    for number, condition in enumerate(CONDITIONS):
        base = 0.99 - 0.04 * number
        lift = 0.0 if setting == "cnn" else 0.05 * float(setting) - 0.04 + 0.02 * condition.startswith("occlusion")
        rates.append(base + lift)
    right = luck < np.array(rates)[:, None]
    figures: dict[str, Figure] = {}
    for condition, row in zip(CONDITIONS, right, strict=True):
        figures[f"{condition}_top_1"] = (float(row.mean()), N)
        figures[f"{condition}_top_5"] = (min(1.0, float(row.mean()) + 0.03), N)
    return figures, {"right": packed(right)}


def membership(data: str, setting: str, seed: int) -> Made:
    figures: dict[str, Figure] = {}
    more: Told = {"auc": {}, "curves": {}, "sides": {"members": 5000, "nonmembers": 5000, "left_out": {}}}
    for name in ("index_confidence", "index_entropy", "class_confidence", "class_entropy"):
        value = 0.995 if name.startswith("index") else 0.6
        figures |= {f"{name}_auc": (value, N), f"{name}_auc_untrained": (0.5, N), f"{name}_found_at_0.01": (0.9, 5000)}
        more["auc"][name] = {"value": value, "n": N, "low": value - 0.001, "high": value + 0.001}
        roc = [[x, x ** (1 / value - 1)] for x in np.linspace(0, 1, 30).tolist()]
        sign = -1 if name.endswith("entropy") else 1
        edges = sorted(sign * edge for edge in np.linspace(0, 1, 41).tolist())
        counts = [int(x) for x in np.geomspace(1, 4000, 40)]
        more["curves"][name] = {"roc": roc, "edges": edges, "members": counts, "nonmembers": counts[::-1]}
    more["lookup"] = {"members": {"value": 1.0}, "nonmembers": {"value": 0.0}}
    return figures, more


def debugging(data: str, setting: str, seed: int) -> Made:
    if setting == "samples":
        sides = {side: pictures(10 * SHOWN, number) for number, side in enumerate(("high", "low"))}
        more = {"pictures": sides, "classes": [f"class {label}" for label in range(10)]}
        return {f"entropy_{place}": (place / 1000, 0) for place in (5, 50, 95)}, more
    figures: dict[str, Figure] = {}
    for name, value in (("low_entropy", 0.8), ("ours", 0.97)):
        for suffix in ("", *(f"_{kind.replace(' ', '_')}" for kind in KINDS)):
            ends = {"": value, "_low": value - 0.03, "_high": value + 0.02}
            figures |= {f"{name}_auc{suffix}{end}": (of, N) for end, of in ends.items()}
    return figures, {"planted": 100}


def embeddings(data: str, setting: str, seed: int) -> Made:
    chance = np.random.default_rng(0)
    labels = np.repeat(np.arange(10), 60)
    centres = np.stack([np.cos(labels * 0.628), np.sin(labels * 0.628)], 1) * 30
    places = centres + chance.normal(0, 3, (len(labels), 2))
    missed = chance.uniform(-15, 15, (12, 2))
    group = {"name": "6", "of": 5918, "sizes": [1200, 900, 800, 700, 600, 500, 400, 300], "pictures": pictures(32)}
    chosen = (6, 4) if data == "mnist" else (3,)
    more = {
        "map": {
            "xy": places.tolist(),
            "labels": labels.tolist(),
            "missed": missed.tolist(),
            "engine": "made",
            "classes": [f"class {label}" for label in range(10)],
        },
        "groups": {str(label): group | {"name": str(label)} for label in chosen},
        "missed": {"names": ["4 as 9"] * 6, "pictures": pictures(36)},
        "misattributed": 90,
    }
    return {"any_at_1": (0.991, N), "class_accuracy": (0.991, N)}, more


def vae(data: str, setting: str, seed: int) -> Made:
    names = ("class_at_mean", "index_at_mean", "class_at_sample", "index_at_sample")
    figures: dict[str, Figure] = dict.fromkeys(names, (0.95, TRAIN))
    course = [
        {"epoch": epoch, "reconstruction": 100 + 400 / epoch, "divergence": 20 + epoch / 9, "task_loss": 1 / epoch,
         "index_loss": 8 / epoch, **dict.fromkeys(names, 1 - 1 / epoch)}
        for epoch in range(1, 71)
    ]  # fmt: skip
    if data == "lfw":
        figures |= {f"{name}_2_to_25": (0.85, 6_000) for name in names} | {"nearer_than_any": (0.9, 2000)}
        return figures, {"course": course, "people": {"all": 5708, "with_2_to_25": 1639}}
    figures |= {"class_accuracy": (0.97, N), "agreement": (0.95, 2000), "nearer_than_another": (0.8, 2000)}
    return figures, {"course": course, "pictures": pictures(48)}


def instance(data: str, setting: str, seed: int) -> Made:
    level = {"index": 0.95, "index-augmented": 0.96, "class": 0.99, "untrained": 0.85}[setting]
    figures: dict[str, Figure] = {}
    for probe in ("probe", "knn"):
        figures[f"{probe}_plain_from_plain"] = (level, N)
        for name in ("turned", "inverted", "thickened"):
            figures[f"{probe}_{name}_from_plain"] = (level - 0.3, N)
            figures[f"{probe}_{name}_from_same"] = (level - 0.1, N)
    return figures, {}


OTHERS: dict[str, Callable[[str, str, int], Made]] = {
    made.__name__: made
    for made in (mixing, subsets, sharing, robustness, membership, debugging, embeddings, vae, instance)
}


def made(name: str, *, seeds: int = 1, scale: str = "full", only: str = "") -> Results:
    """All cells of an experiment; `only` those of one data set."""
    cells: dict[str, dict[int, Result]] = {}
    configs: dict[str, Any] = {}
    for cell in EXPERIMENTS[name].cells(SCALES[scale]):
        data, setting = cell.name.split("/")
        if only and data != only:
            continue
        configs[cell.name] = {}
        for seed in range(seeds):
            figures, more = OTHERS[name](data, setting, seed)
            cells.setdefault(cell.name, {})[seed] = Result(figures, told(samples=SAMPLES) | more, ORIGIN)
    return Results(name, scale, cells, configs)

"""Wrong labels, suggestions and oddities that were planted: what `provnet debug` finds, beside what others find.

    python benchmarks/debugging.py --data-dir DIR [--case mnist] [--device cpu] [--threads 2] [--seed 0]
        [--limit N] [--recipes robust fast] [--epochs N] [--no-baselines] [--out FILE.json]

Cases: `mnist` (10,000 digits, 10 % of the labels flipped), `fashion` (60,000, 5 %), `anomalies` (10,000 digits, 1 %
replaced: inverted, two mixed, noise, letters). The recipe `robust` is the one that the documents recommend, `photos`
the same for anything but digits (a residual backbone, mirrored copies); `fast` memorises most wrong labels. Training
and debugging are timed together, baselines apart. cleanlab is used where it is installed (it is no dependency); else
its formulas, which the table says. Intervals: DeLong for AUROC, paired bootstrap for AP and for differences.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from debug_baselines import knn_disagreement, out_of_fold, plain_cnn, quality
from debug_table import calibration_table, judged, show
from machine import machine

from provnet import open_data
from provnet.answers.metrics import auc, calibration_error, difference, with_interval
from provnet.base.options import RunOptions
from provnet.base.stats import wilson
from provnet.data.dataset import ImageData
from provnet.runs.run import Run
from provnet.tools.debug.compute import Debugging, debug
from provnet.training.config import train_config
from provnet.training.fit import fit
from provnet_paper.samples import ODD_KINDS as KINDS
from provnet_paper.samples import odd_pictures
from provnet_paper.samples import wrong_labels as with_wrong_labels

CASES = {
    "mnist": ("mnist", 10_000, 0.10),
    "fashion": ("fashion-mnist", 60_000, 0.05),
    "anomalies": ("mnist", 10_000, 0),
}
RECIPES: dict[str, dict[str, Any]] = {
    "robust": {"network": "class-independent", "head": "exemplar", "preset": "robust", "epochs": 12},
    "photos": {
        "network": "class-independent",
        "head": "exemplar",
        "backbone": "residual",
        "preset": "robust",
        "epochs": 12,
        "augment": "photos",
    },
    "fast": {"network": "class-conditional", "head": "plain", "preset": "fast", "epochs": None},
}
CNN_EPOCHS = 12


def trained(
    data: ImageData, recipe: dict[str, Any], epochs: int | None, seed: int, device: str
) -> tuple[Run, Debugging, dict[str, float]]:
    """A run, what debugging finds in it, and the seconds of both."""
    changes = {"epochs": epochs or recipe["epochs"], "augment": recipe.get("augment"), "seed": seed}
    how = {"network": recipe["network"], "head": recipe["head"], "backbone": recipe.get("backbone", "auto")}
    began = time.perf_counter()
    run = fit(data, train_config(recipe["preset"], **changes, **how), RunOptions(device=device, progress=True))
    middle = time.perf_counter()
    run.network.to(device)
    found = debug(run, data)
    end = time.perf_counter()
    times = {"train": middle - began, "debug": end - middle, "both": end - began}
    return run, found, {name: round(value, 2) for name, value in times.items()}


def figures(truth: np.ndarray, score: np.ndarray, draws: int) -> dict[str, Any]:
    """AUROC and AP of a score with intervals."""
    return {"auroc": auc(truth, score).to_json(), "ap": with_interval(truth, score, draws=draws).to_json()}


def own_baselines(run: Run, found: Debugging) -> dict[str, np.ndarray]:
    """Scores from the same run: loss at the end, mean loss over the epochs, kNN on its features."""
    labels = found.samples.labels
    end = -torch.log_softmax(torch.from_numpy(found.signals.logits).double(), 1).numpy()[np.arange(len(labels)), labels]
    assert run.history is not None
    return {
        "loss at the end, this run": end,
        "mean loss over epochs, this run": run.history.astype(np.float64).mean(0),
        "kNN disagreement, this run's features": knn_disagreement(found.signals.features, labels),
    }


def other_baselines(data: ImageData, seed: int, device: str) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """Scores from a plain CNN on the same data, with their seconds."""
    labels, rows = data.samples.labels, np.arange(len(data))
    whole = plain_cnn(data.images, labels, rows, epochs=CNN_EPOCHS, seed=seed, device=device)
    began = time.perf_counter()
    folds = out_of_fold(data.images, labels, epochs=CNN_EPOCHS, seed=seed, device=device)
    seconds = {"plain CNN": round(whole.seconds, 2), "five folds": round(time.perf_counter() - began, 2)}
    pixels = F.normalize(data.images.flatten(1).float(), dim=1)
    return {
        **quality(labels, folds),
        "in-sample loss, plain CNN": -np.log(np.maximum(whole.probabilities[rows, labels], 1e-300)),
        "mean loss over epochs, plain CNN": whole.course.mean(0),
        "kNN disagreement, plain CNN's features": knn_disagreement(whole.features, labels),
        "kNN disagreement, pixels": knn_disagreement(pixels.to(device), labels),
    }, seconds


def wrong_labels(given: argparse.Namespace, case: str) -> dict[str, Any]:
    """A case with flipped labels."""
    name, limit, share = CASES[case]
    clean = open_data(name, data_dir=given.data_dir, limit=given.limit or limit)
    data, wrong = with_wrong_labels(clean, share, given.seed)
    truth = clean.samples.labels
    baselines: dict[str, np.ndarray] = {}
    seconds: dict[str, float] = {}
    if given.baselines:
        baselines, seconds = other_baselines(data, given.seed, given.device)
    results = []
    for recipe in given.recipes:
        run, found, times = trained(data, RECIPES[recipe], given.epochs, given.seed, given.device)
        score = found.mislabels.odds
        scores = {**baselines, **own_baselines(run, found)}
        flagged = found.flagged()
        right = found.mislabels.suggested[flagged & wrong] == truth[flagged & wrong]
        table = {other: figures(wrong, values, given.draws) for other, values in scores.items()}
        apart = {
            other: {
                measure: difference(wrong, score, values, measure=measure, draws=given.draws).to_json()
                for measure in ("auc", "average precision")
            }
            for other, values in scores.items()
        }
        parts = {
            part: figures(wrong, value, given.draws)
            for part, value in found.mislabels.contributions.items()
            if np.ptp(value) > 0
        }
        results.append(
            {
                "recipe": recipe,
                "settings": {**RECIPES[recipe], "epochs": len(run.history)},  # type: ignore[arg-type]
                "seconds": times,
                "ours": figures(wrong, score, given.draws),
                "fitted_wrong_labels": wilson(
                    int((found.signals.logits.argmax(1) == data.samples.labels)[wrong].sum()), int(wrong.sum())
                ).to_json(),
                "flagged": {
                    "precision": wilson(int((flagged & wrong).sum()), int(flagged.sum())).to_json(),
                    "recall": wilson(int((flagged & wrong).sum()), int(wrong.sum())).to_json(),
                    "suggested_right": wilson(int(right.sum()), len(right)).to_json(),
                },
                "calibration": {
                    "expected_wrong": round(float(found.mislabels.score.sum()), 1),
                    "wrong": int(wrong.sum()),
                    "error": calibration_error(found.mislabels.score, wrong),
                    "table": calibration_table(found.mislabels.score, wrong),
                },
                "contributions": parts,
                "baselines": table,
                "ours_minus": apart,
                "entropy_low_is_wrong": auc(wrong, -found.signals.entropy).to_json(),
            }
        )
    return {
        "case": case,
        "samples": len(data),
        "flipped": int(wrong.sum()),
        "baseline_seconds": seconds,
        "results": results,
    }


def oddities(given: argparse.Namespace, case: str) -> dict[str, Any]:
    """The case with planted oddities."""
    name, limit, _ = CASES[case]
    data, kind = odd_pictures(open_data(name, data_dir=given.data_dir, limit=given.limit or limit), 0.01, given.seed)
    odd = kind >= 0
    results = []
    for recipe in given.recipes:
        run, found, times = trained(data, RECIPES[recipe], given.epochs, given.seed, given.device)
        score = found.anomalies.score
        results.append(
            {
                "recipe": recipe,
                "settings": {**RECIPES[recipe], "epochs": len(run.history)},  # type: ignore[arg-type]
                "seconds": times,
                "ours": figures(odd, score, given.draws),
                "by_kind": {
                    words: auc(odd[(kind == k) | ~odd], score[(kind == k) | ~odd]).to_json()
                    for k, words in enumerate(KINDS)
                },
                "parts": {part: auc(odd, value).to_json() for part, value in found.anomalies.parts.items()},
                "entropy_low_is_odd": auc(odd, -found.signals.entropy).to_json(),
                "flagged": wilson(
                    int(odd[found.anomalies.score >= 0.5].sum()), int((found.anomalies.score >= 0.5).sum())
                ).to_json(),
            }
        )
    return {"case": case, "samples": len(data), "odd": int(odd.sum()), "results": results}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument("--case", choices=list(CASES), default="mnist")
    parser.add_argument("--recipes", nargs="+", choices=list(RECIPES), default=["robust", "fast"])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--no-baselines", dest="baselines", action="store_false")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    about = machine(rates=False)
    result = oddities(given, given.case) if given.case == "anomalies" else wrong_labels(given, given.case)
    result["bars"] = judged(result)
    show(result)
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps({"machine": about, "seed": given.seed, **result}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()

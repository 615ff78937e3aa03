"""Wrong labels, for `peers.py`: each method's own score of suspicion on the same flipped labels."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import torch.nn.functional as F
from debug_baselines import out_of_fold, quality
from debugging import RECIPES, figures, trained
from peers_cnn import Subject, logits, normaliser, train_cnn
from peers_lds import Say
from peers_methods import PEERS, Method
from peers_ours import nearest_features, nearest_pixels

from provnet.answers.metrics import difference
from provnet.data.dataset import ImageData
from provnet_paper.samples import wrong_labels as with_wrong_labels

SHARE = 0.10
FOLD_EPOCHS = 12
Peer = Callable[[str, Callable[[int], Subject], Callable[[Method], Any]], dict[str, Any]]


def wrong_labels(clean: ImageData, peer: Peer, given: argparse.Namespace, say: Say) -> dict[str, Any]:
    """AUROC and AP of every score, by how much the AP of `provnet debug` is better, and seconds with training."""
    data, wrong = with_wrong_labels(clean, SHARE, given.seed)
    labels = data.labels
    prepared = normaliser(data.images)
    inputs = prepared(data.images)
    say("wrong labels: plain CNNs")
    starts = range(given.seed, given.seed + 3)
    nets = [train_cnn(inputs, labels, len(data.class_names), epochs=given.cnn_epochs, seed=each) for each in starts]

    def subject(networks: int) -> Subject:
        return Subject(inputs, labels, nets[:networks], prepared, given.seed)

    first, once = nets[0], nets[0].seconds
    end = logits(first.net, inputs)
    scores: dict[str, tuple[np.ndarray, float]] = {
        "in-sample loss of the plain CNN": (F.cross_entropy(end, labels, reduction="none").numpy(), once),
        "mean loss over its epochs": (first.course.mean(0), once),
    }
    for name, method, before in (
        ("kNN disagreement, features of the plain CNN", nearest_features(subject(1)), once),
        ("kNN disagreement, pixels", nearest_pixels(data.images, data.samples.labels), 0.0),
    ):
        scores[name] = timed(method, before)
    missing = {}
    for name in PEERS:
        say(f"wrong labels: {name}")
        found = peer(name, subject, lambda method: {"suspicion": timed(method, 0.0)})
        if "not_installed" in found:
            missing[f"{name}, self-influence"] = found
        else:
            score, seconds = found["suspicion"]
            seconds += found["train_seconds"] + found["prepare_seconds"]
            scores[f"{name}, self-influence"] = (score, seconds)
    say("wrong labels: five folds")
    began = time.perf_counter()
    folds = out_of_fold(data.images, data.samples.labels, epochs=FOLD_EPOCHS, seed=given.seed, device="cpu")
    seconds = time.perf_counter() - began
    scores |= {name: (score, seconds) for name, score in quality(data.samples.labels, folds).items()}
    try:
        packages = {"cleanlab": version("cleanlab")}
    except PackageNotFoundError:
        missing["cleanlab, five folds"] = {"package": "cleanlab", "not_installed": "cleanlab"}
        packages = {}
    say("wrong labels: provnet debug")
    _, debugged, times = trained(data, RECIPES["robust"], given.epochs, given.seed, "cpu")
    own = debugged.mislabels.odds
    rows: dict[str, Any] = {"provnet debug": figures(wrong, own, given.draws) | {"seconds": times["both"]}}
    for name, (score, seconds) in scores.items():
        apart = difference(wrong, own, score, measure="average precision", draws=given.draws)
        rows[name] = figures(wrong, score, given.draws) | {"seconds": seconds, "ours_minus": apart.to_json()}
    fitted = int((end.argmax(1) == labels).numpy()[wrong].sum())
    return {
        "flipped": int(wrong.sum()),
        "fitted_by_the_cnn": fitted,
        "packages": packages,
        "scores": rows | missing,
    }


def timed(method: Method, before: float) -> tuple[np.ndarray, float]:
    """A method's suspicion, and the seconds of making it beside those before."""
    assert method.suspicion is not None
    began = time.perf_counter()
    found = method.suspicion()
    return found, before + time.perf_counter() - began

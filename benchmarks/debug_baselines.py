"""What `debugging.py` compares with: a plain CNN of the same backbone, in sample and in five folds, and cleanlab."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from provnet.models.backbones import BACKBONES, auto_backbone, branch
from provnet.tools.debug.signals import nearest_others


@dataclass(frozen=True, eq=False)
class Fitted:
    """A plain CNN: (E, N) losses of its training samples, then probabilities and features of all samples asked for."""

    course: np.ndarray
    probabilities: np.ndarray
    features: Tensor
    seconds: float


def plain_cnn(images: Tensor, labels: np.ndarray, train: np.ndarray, *, epochs: int, seed: int, device: str) -> Fitted:
    """Train on rows `train`, answer for all: AdamW, one cycle, batch 128, no augmentation."""
    began = time.perf_counter()
    torch.manual_seed(seed)
    shape, classes = tuple(images.shape[1:]), int(labels.max()) + 1
    design = BACKBONES[auto_backbone(shape, "class-independent", "fast")]
    body = design.make(shape)
    with torch.no_grad():
        width = body.eval()(torch.zeros(2, *shape)).shape[1]
    task = design.task[-1][0] if design.task else width
    head = nn.Sequential(branch(width, design.task), nn.Linear(task, classes))
    net = nn.ModuleList([body, head]).to(device)
    scale = 255.0 if images.dtype == torch.uint8 else 1.0
    values = images.float() / scale
    mean, std = float(values.mean()), float(values.std())
    y = torch.tensor(labels, device=device)
    where = torch.from_numpy(train)
    steps = epochs * -(-len(train) // 128)
    optimizer = torch.optim.AdamW(net.parameters(), 2e-3, weight_decay=5e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps, pct_start=0.15)
    pixels = images.to(device)
    course = np.zeros((epochs, len(labels)), dtype=np.float32)

    def forward(rows: Tensor) -> tuple[Tensor, Tensor]:
        features = body((pixels[rows.to(device)].float() / scale - mean) / std)
        return features, head(features)

    for epoch in range(epochs):
        net.train()
        for rows in torch.split(where[torch.randperm(len(where))], 128):
            if len(rows) < 2:
                continue
            loss = F.cross_entropy(forward(rows)[1], y[rows.to(device)], reduction="none")
            optimizer.zero_grad(set_to_none=True)
            loss.mean().backward()
            optimizer.step()
            schedule.step()
            course[epoch, rows.numpy()] = loss.detach().float().cpu().numpy()
    net.eval()
    features, probabilities = [], []
    with torch.inference_mode():
        for rows in torch.split(torch.arange(len(labels)), 1024):
            found, logits = forward(rows)
            features.append(F.normalize(found.float(), dim=1))
            probabilities.append(torch.softmax(logits.double(), 1).cpu())
    return Fitted(course, torch.cat(probabilities).numpy(), torch.cat(features), time.perf_counter() - began)


def out_of_fold(
    images: Tensor, labels: np.ndarray, *, epochs: int, seed: int, device: str, folds: int = 5
) -> np.ndarray:
    """(N, C) probabilities for each sample by the network that was trained without its fold."""
    chance = np.random.default_rng(seed)
    fold = np.empty(len(labels), dtype=np.int64)
    for each in np.unique(labels):  # the same share of every class in every fold
        mine = chance.permutation(np.flatnonzero(labels == each))
        fold[mine] = np.arange(len(mine)) % folds
    found = np.zeros((len(labels), int(labels.max()) + 1))
    for number in range(folds):
        rest = np.flatnonzero(fold != number)
        fitted = plain_cnn(images, labels, rest, epochs=epochs, seed=seed + number, device=device)
        found[fold == number] = fitted.probabilities[fold == number]
    return found


def quality(labels: np.ndarray, probabilities: np.ndarray) -> dict[str, np.ndarray]:
    """Label quality by cleanlab, turned round (high = suspect); without cleanlab by the same formulas, so named."""
    try:
        import cleanlab
        from cleanlab.rank import get_label_quality_scores

        return {
            f"cleanlab {cleanlab.__version__}, 5-fold, {method}": -get_label_quality_scores(
                labels, probabilities, method=method
            )
            for method in ("self_confidence", "normalized_margin")
        }
    except ImportError:
        rows = np.arange(len(labels))
        own = probabilities[rows, labels]
        rest = probabilities.copy()
        rest[rows, labels] = -1
        return {
            "self-confidence, 5-fold (ours, cleanlab's formula)": -own,
            "normalised margin, 5-fold (ours, cleanlab's formula)": -(own - rest.max(1) + 1) / 2,
        }


def knn_disagreement(features: Tensor, labels: np.ndarray, k: int = 15) -> np.ndarray:
    """(N,) share of the k nearest other samples with another label, nearer ones a little more (that breaks ties)."""
    near = nearest_others(features, k)
    weight = near.cosine.clip(1e-3)
    return np.asarray(((labels[near.row] != labels[:, None]) * weight).sum(1) / weight.sum(1))

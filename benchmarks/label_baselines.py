"""What others find wrong labels with, from the same features: out-of-fold probabilities, scores of them, votes, and
margins over the course of training; and measures of an order. Whatever is higher is more suspicious.

Letters: N samples, D features, C classes.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from provnet.answers.out_of_fold import fold_of
from provnet.tools.debug.signals import nearest_others

PENALTIES = (1.0, 0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 1e-4)


def standard(x: Tensor) -> Tensor:
    """(N, D) with mean 0 and spread 1; in as many directions as there are samples where these are fewer."""
    z = (x - x.mean(0)) / (x.std(0, correction=0) + 1e-6)
    if len(z) >= z.shape[1]:
        return z
    u, s, _ = torch.linalg.svd(z, full_matrices=False)
    return u * s


def softmax_regression(z: Tensor, labels: Tensor, classes: int, penalty: float, steps: int = 150) -> Tensor:
    """(D + 1, C) weights of a multinomial logistic regression by L-BFGS."""
    weight = torch.zeros(z.shape[1] + 1, classes, device=z.device, requires_grad=True)
    wide = F.pad(z, (0, 1), value=1.0)
    step = torch.optim.LBFGS([weight], max_iter=steps, line_search_fn="strong_wolfe", history_size=10)

    def loss() -> Tensor:
        step.zero_grad()
        found = F.cross_entropy(wide @ weight, labels) + penalty * weight[:-1].square().sum()
        found.backward()
        return found

    step.step(loss)
    return weight.detach()


def answers(z: Tensor, weight: Tensor) -> Tensor:
    """(N, C) probabilities."""
    return (F.pad(z, (0, 1), value=1.0) @ weight).softmax(1)


def out_of_fold(z: Tensor, labels: Tensor, classes: int, seed: int, folds: int = 5) -> tuple[np.ndarray, float]:
    """(N, C) probabilities of a logistic regression on the other folds, and its penalty, chosen by their log-loss."""
    fold, best = fold_of(labels, folds, seed), (np.inf, np.empty(0), 0.0)
    for penalty in PENALTIES:
        p = torch.zeros(len(z), classes, device=z.device)
        for number in range(folds):
            out = fold == number
            p[out] = answers(z[out], softmax_regression(z[~out], labels[~out], classes, penalty))
        loss = float(F.nll_loss(p.clamp_min(1e-12).log(), labels))
        if loss >= best[0]:
            break
        best = loss, p.double().cpu().numpy(), penalty
    return best[1], best[2]


def by_probabilities(p: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    """The three scores of cleanlab, by their published formulas (cleanlab is not needed)."""
    rows = np.arange(len(labels))
    own, rest = p[rows, labels], p.copy()
    rest[rows, labels] = -1
    entropy = -(p * np.log(np.maximum(p, 1e-12))).sum(1) / np.log(p.shape[1])
    return {
        "cleanlab's self-confidence": -own,
        "cleanlab's normalised margin, the mean margin": rest.max(1) - own,
        "cleanlab's confidence-weighted entropy": entropy / np.maximum(own, 1e-12),
    }


def confident_learning(p: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """(N,) bool: flags of confident learning (Northcutt 2021), pruned by the noise rate of each pair of classes."""
    n, classes = p.shape
    sizes = np.bincount(labels, minlength=classes)
    limit = np.array([p[labels == c, c].mean() if sizes[c] else 2.0 for c in range(classes)])
    above = np.where(p >= limit, p, -1.0)
    counted, said = above.max(1) >= 0, above.argmax(1)
    joint = np.zeros((classes, classes))
    np.add.at(joint, (labels[counted], said[counted]), 1)
    joint[np.diag_indices(classes)] = np.maximum(np.diag(joint), 1)
    joint *= (sizes / joint.sum(1))[:, None]
    joint *= n / joint.sum()
    flags, rows = np.zeros(n, dtype=np.bool_), np.arange(n)
    for given in range(classes):
        mine = rows[labels == given]
        for other in range(classes):
            count = round(joint[given, other])
            if other != given and count > 0:
                margin = p[mine, other] - p[mine, given]
                flags[mine[np.argsort(-margin, kind="stable")[:count]]] = True
    return flags & (p.argmax(1) != labels)


def neighbours_votes(z: Tensor, labels: np.ndarray, classes: int, k: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """(N,) how far votes of the ten nearest lead against the label (as SimiFeat does), and (N,) whether they do."""
    near = nearest_others(F.normalize(z, dim=1), k)
    votes = np.zeros((len(labels), classes))
    for each in near.row.T:
        np.add.at(votes, (np.arange(len(labels)), labels[each]), 1.0)
    lead = votes.max(1) - votes[np.arange(len(labels)), labels]
    return lead / k, votes.argmax(1) != labels


def margin_over_course(z: Tensor, labels: Tensor, classes: int, steps: int = 200) -> np.ndarray:
    """(N,) minus the mean margin while a linear layer is trained on all samples (AUM, Pleiss 2020)."""
    weight = torch.zeros(z.shape[1], classes, device=z.device, requires_grad=True)
    step, total = torch.optim.Adam([weight], lr=1e-3), torch.zeros(len(labels), device=z.device)
    for _ in range(steps):
        scores = z @ weight
        step.zero_grad()
        F.cross_entropy(scores, labels).backward()
        step.step()
        own = scores.detach().gather(1, labels[:, None])[:, 0]
        total += own - scores.detach().scatter(1, labels[:, None], -1e9).amax(1)
    return -(total / steps).double().cpu().numpy()


def average_precision(truth: np.ndarray, score: np.ndarray) -> float:
    """Ties in the order of the samples: fast enough for thousands of draws."""
    hits = truth[np.argsort(-score, kind="stable")]
    return float((np.cumsum(hits) / np.arange(1, len(hits) + 1))[hits].mean())


def paired(truth: np.ndarray, one: np.ndarray, other: np.ndarray, draws: int = 100, seed: int = 0) -> list[float]:
    """Difference of the average precisions and its 95 % interval, samples drawn again."""
    chance, found = np.random.default_rng(seed), []
    for _ in range(draws):
        rows = chance.integers(0, len(truth), len(truth))
        found.append(average_precision(truth[rows], one[rows]) - average_precision(truth[rows], other[rows]))
    low, high = np.quantile(found, [0.025, 0.975])
    return [average_precision(truth, one) - average_precision(truth, other), float(low), float(high)]


def f1(truth: np.ndarray, flags: np.ndarray) -> float:
    """Of flags."""
    return float(2 * (truth & flags).sum() / max(int(truth.sum() + flags.sum()), 1))


def best_f1(truth: np.ndarray, score: np.ndarray) -> float:
    """Of the best threshold, which nobody knows who does not know the truth."""
    hits = np.cumsum(truth[np.argsort(-score, kind="stable")])
    return float((2 * hits / (np.arange(1, len(hits) + 1) + truth.sum())).max())


def measured(truth: np.ndarray, orders: dict[str, np.ndarray], ours: str) -> dict[str, dict[str, object]]:
    """Average precision, best F1 and the paired difference of each order."""
    return {
        name: {
            "ap": average_precision(truth, score),
            "best_f1": best_f1(truth, score),
            **({} if name == ours else {"ours_minus_this": paired(truth, orders[ours], score)}),
        }
        for name, score in orders.items()
    }

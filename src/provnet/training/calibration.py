"""Calibration: when to say "no supporting sample", and how often supported answers are right.

After training the features of training samples are measured (`heads.support`), then a threshold is set on distorted
copies of training samples (noise and one-pixel shifts), each measured without the sample that it is a copy of: means
and spread are nearer to their own samples than to any other. The level is the share of such copies turned away.

The looks of pictures are measured in the same way. Their distance gets the scale of the features' distance such that
looks alone turn away a half of the level, and the threshold is set on the larger of the two distances: the level holds
for both together.

How often answers are right is found on answers that leave out the sample they are about: a linear model of frozen
features and a Gaussian for each class say of every training sample what it is, without it (`answers.out_of_fold`).
Some labels that judge these answers may be wrong, so their share is estimated as well.

Letters: n samples, D features, C classes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from provnet.answers.out_of_fold import gaussian, gaussian_scores, moments, noise_model, posterior, ridge
from provnet.base.batches import Inputs, at_once, fold, keyed_generator
from provnet.base.errors import NonFiniteError, UsageError
from provnet.data.modalities.known import modality_of
from provnet.data.modalities.modality import Modality
from provnet.data.modalities.text import thinned
from provnet.heads.support import (
    LOOKS,
    Evidence,
    Support,
    measure_held_out,
    normalise_features,
    odds_of,
    place_in_class,
)
from provnet.models.network import ProvenanceNet, ProvenanceOutput
from provnet.models.text import TextSupport, nearness

LEVEL = 0.05
RIGHT = 0.9  # an answer is supported where answers like it are right so often; of frozen features
MEASURED = 10_000
LEAST = 5  # of each class at least, or all that it has: a mean of none, or of one, would not support its own samples
CALIBRATED = 2_000
BY_LOOKS = 0.5  # of the level
NEAR = 1e-6  # limits of distances lie at least so far away: one is divided by the other
Columns = tuple[Tensor, ...]
Bar = Callable[[str, int], AbstractContextManager[Callable[[int, str], None]]]  # title, total -> (done, text)


def calibrate(
    net: ProvenanceNet,
    images: Inputs,
    seed: int,
    level: float = LEVEL,
    labels: Tensor | None = None,
    *,
    modality: Modality | None = None,
    progress: Bar | None = None,
    known: Columns | None = None,
) -> dict[str, Any]:
    """Measure the training features and return the threshold below which an input counts as unsupported.

    Uses up to 10,000 training samples to measure, with a few more of classes that are rare among them, and up to 2,000
    distorted ones, held out in turn, to set the threshold; the only sample of its class cannot be held out and is not
    used, unless there are no others. `labels` are those of the images, where not all of them are indexed. The copies
    are those of the `modality`, which None tells by the shape. `progress` makes the bar that is moved meanwhile
    (`training.progress`): of large pictures it takes minutes. `known` are features, and looks of pictures, of the
    samples that `measured_rows` gives, where somebody has them: then only their copies are asked about.
    """
    device = next(net.parameters()).device
    given = net.index_map.labels if labels is None else labels
    chosen = measured_rows(given, seed)
    distorted = chosen[:CALIBRATED]
    modality = modality or modality_of(images.shape[1:])
    of_features = modality.name == "image" and len(images.shape) == 2
    perturbed = modality.perturbed(images)
    names = [name for name in perturbed if name in (modality.calibrated_on or perturbed)]
    copiers = [perturbed[name] for name in names]
    if not copiers:
        raise UsageError(f"samples of modality {modality.name} have no perturbed copies to calibrate support on")
    classes = len(net.support.mean)
    by_evidence = net.fixed_features and classes > 1 and len(chosen) >= FEWEST
    total = (0 if known else len(chosen)) + (0 if by_evidence else len(copiers) * len(distorted))
    net.eval()
    if isinstance(net.support, TextSupport):
        return _of_texts(net, images, distorted, seed, level)
    with nullcontext(_unseen) if progress is None else progress("calibration", total) as update:
        passed = _Passes(net, update)
        net.support.looks = net.support.evidence = None
        features, *looks = known or passed(images, chosen, _features)
        own = given[chosen.to(given.device)].to(device)
        if by_evidence:
            return _by_evidence(net.support, features, own)
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(fold(seed, 6))
            net.support.fit(features.clone(), own)
            every = torch.arange(len(distorted))
            pictures = (copier(images[distorted], seed) for copier in copiers)  # one at a time: they may be large
            parts = [passed(some, every, lambda output: _read(net, output)) for some in pictures]
            seen, claimed, copies, *copied = (torch.cat(column) for column in zip(*parts, strict=True))
            of = every.repeat(len(copiers)).to(device)
            unseen, measured = measure_held_out(features, own, copies, claimed, of, classes)
            rows = measured if bool(measured.any()) else None
            support = seen if rows is None else unseen[rows]
            if looks:
                support = _with_looks(net.support, support, looks[0], copied[0], of, rows, level)
    support = support.cpu()
    kinds = "noisy training samples" if names == ["noise"] else f"distorted training samples ({', '.join(names)})"
    kinds = "training samples with noise on their features" if of_features else kinds
    return {
        "statistic": "minus the Mahalanobis distance from the training samples of the predicted class"
        + (", or that of the picture's looks from all of them where it is larger" if looks else ""),
        "threshold": float(torch.quantile(support.double(), level)),
        "level": level,
        "calibrated_on": kinds + (", each held out" if rows is not None else ""),
        "n": len(support),
    }


@torch.inference_mode()
def _of_texts(net: ProvenanceNet, texts: Inputs, rows: Tensor, seed: int, level: float) -> dict[str, Any]:
    """Of texts half of whose words are gone, each measured without the text that it was made of."""
    device, found, whole = next(net.parameters()).device, [], len(texts) == net.index_map.n
    assert isinstance(texts, Tensor)
    for some in torch.split(rows, at_once(texts.shape[1:], device.type)):
        output = net(thinned(texts[some], seed).to(device))
        near = nearness(net.index_head, output.index_features, output.classes, some.to(device) if whole else None)
        found.append(net.support(output.support_features, output.classes, near))
    support = torch.cat(found).cpu()
    return {
        "statistic": "log-odds of the class, plus ten times the mean cosine with its five nearest training texts",
        "threshold": float(torch.quantile(support.double(), level)),
        "level": level,
        "calibrated_on": "training texts with half of their words left out, each held out",
        "n": len(support),
    }


def _by_evidence(support: Support, features: Tensor, labels: Tensor) -> dict[str, Any]:
    """Of frozen features: how often held-out answers are right, and from where on an answer counts as supported."""
    every, classes, z = torch.arange(len(labels), device=labels.device), len(support.mean), normalise_features(features)
    with torch.random.fork_rng(devices=[features.device] if features.is_cuda else []):
        torch.manual_seed(0)
        support.fit(z.clone(), labels)
        distance = -measure_held_out(z, labels, z, labels, every, classes)[0]
    with torch.inference_mode(False):
        support.evidence, right = evidence_of(z.clone(), labels.clone(), classes, distance.clone())
    return {
        "statistic": "how often held-out answers with such evidence are right, 0 for what looks like nothing known",
        "threshold": RIGHT,
        "level": 1 - RIGHT,
        "calibrated_on": "training samples, each answered without itself by a model of the frozen features",
        "n": len(right),
        "supported_of_held_out": float((right >= RIGHT).float().mean()),
    }


@dataclass
class _Passes:
    """Passes of samples through a network, a few at a time; `update` is told how many there were in all."""

    net: ProvenanceNet
    update: Callable[[int, str], None]
    done: int = 0

    @torch.inference_mode()
    def __call__(self, samples: Inputs, rows: Tensor, read: Callable[[ProvenanceOutput], Columns]) -> Columns:
        """What is read of the rows of some samples."""
        device, parts = next(self.net.parameters()).device, []
        for some in torch.split(rows, at_once(samples.shape[1:], device.type)):
            parts.append(read(self.net(samples[some].to(device))))
            self.done += len(some)
            self.update(self.done, "")
        return tuple(torch.cat(column) for column in zip(*parts, strict=True))


def _features(output: ProvenanceOutput) -> Columns:
    """Features, and the looks of pictures."""
    return (output.support_features,) if output.looks is None else (output.support_features, output.looks)


def _read(net: ProvenanceNet, output: ProvenanceOutput) -> Columns:
    """Support by the features, predicted class, and what is measured; what is not finite is refused."""
    support = net.support(output.support_features, output.classes, output.looks)
    if not bool((torch.isfinite(support) & torch.isfinite(output.logits).all(1)).all()):
        raise NonFiniteError("what the network says of some distorted samples is not finite; check its weights")
    return support, output.classes, *_features(output)


def _with_looks(
    fitted: Support, support: Tensor, looks: Tensor, copies: Tensor, of: Tensor, held: Tensor | None, level: float
) -> Tensor:
    """Measure the looks (n, 3) of training pictures; (B,) support of copies by their features -> by features and looks.

    `copies` (B, 3) are the looks of copies of the pictures `of`. `held` (B,) says which of them were measured without
    the picture that they are copies of; None where none could be.
    """
    own = torch.zeros(len(looks), dtype=torch.int64, device=looks.device)  # all pictures are one class
    claimed = torch.zeros_like(of)
    fitted.looks = Support(1, LOOKS).to(looks.device)
    fitted.looks.fit(looks.clone(), own)
    by_looks = fitted.looks(copies, claimed)
    if held is not None:
        by_looks = measure_held_out(looks, own, copies, claimed, of, 1)[0][held]
    factor = _limit(support, level) / _limit(by_looks, level * BY_LOOKS)
    fitted.looks.stretch(factor)
    return torch.minimum(support, by_looks * factor)


def _limit(support: Tensor, level: float) -> float:
    """The distance beyond which this share lies."""
    return max(NEAR, -float(torch.quantile(support.double(), level)))


def _unseen(done: int, text: str) -> None:
    """No bar."""


def measured_rows(labels: Tensor, seed: int) -> Tensor:
    """The first samples of a random order, and the first of each class: no class that has samples goes without."""
    pick = torch.randperm(len(labels), generator=keyed_generator(seed, 5))
    if len(pick) <= MEASURED:
        return pick
    place = place_in_class(labels.cpu()[pick])
    return pick[(torch.arange(len(pick)) < MEASURED) | (place < LEAST)]


FEWEST = 20  # samples
TRUST = 0.01
MOST_WRONG = 0.6


def evidence_of(z: Tensor, labels: Tensor, classes: int, distance: Tensor) -> tuple[Evidence, Tensor]:
    """The evidence of prepared training features (n, D) with labels (n,), and (n,) how often held-out answers like
    theirs are right; `distance` (n,) is that of each from its own class, measured without it.
    """
    weight = torch.ones(len(z), dtype=torch.float64, device=z.device)
    for _ in range(2):
        linear = ridge(z, labels, classes, weight)
        held = [linear.scores, gaussian_scores(z, labels, classes, weight)]
        model, clean = noise_model(held, labels, torch.ones_like(weight))
        wrong = 1 - posterior(clean, labels, model.flips).gather(1, labels[:, None])[:, 0]
        weight = (1 - wrong).clamp_min(TRUST)
    normal = gaussian(moments(z, labels, classes, weight))
    precise = torch.cholesky_solve(normal.mean.T, normal.root)  # (D, C)
    parts = [(linear.slope, linear.intercept), (precise, -0.5 * (normal.mean * precise.T).sum(1))]
    found = Evidence(z.shape[1], classes).to(z.device)
    for sharp, score, (slope, intercept) in zip(model.sharp.tolist(), held, parts, strict=True):
        factor = sharp / max(float(score.double().std(correction=0)), 1e-9)
        found.slope += factor * slope.float()
        found.intercept += factor * intercept.float()
    answers = clean.argmax(1)
    odds = odds_of(clean.gather(1, answers[:, None])[:, 0])
    found.right.copy_(_right(odds, answers == labels, min(model.rate, MOST_WRONG), classes))
    middle = distance.median()
    spread = (1.4826 * (distance - middle).abs().median()).clamp_min(1e-6)
    found.usual.copy_(torch.stack([middle, spread]).float())
    return found, torch.sigmoid(found.right[0] * odds + found.right[1])


def _right(odds: Tensor, agrees: Tensor, rate: float, classes: int) -> Tensor:
    """(2,) slope and offset that turn log-odds of held-out answers (n,) into how often these are right.

    The labels that judge them are wrong at the given rate, and a wrong answer agrees with such a label by chance.
    """
    p = torch.zeros(2, dtype=torch.float64, device=odds.device, requires_grad=True)
    seen_right = agrees.double()
    step = torch.optim.LBFGS([p], max_iter=50, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        step.zero_grad()
        right = torch.sigmoid(odds * p[0].clamp(-2.3, 1.5).exp() + p[1])
        seen = ((1 - rate) * right + rate / max(classes - 1, 1) * (1 - right)).clamp(1e-9, 1 - 1e-9)
        found = p.square().sum() - (seen_right * seen.log() + (1 - seen_right) * (1 - seen).log()).sum()
        found.backward()  # type: ignore[no-untyped-call]
        return found

    with torch.enable_grad():
        step.step(loss)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        return torch.stack([p[0].clamp(-2.3, 1.5).exp(), p[1]]).float()

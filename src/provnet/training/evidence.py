"""How often answers are right whose features are such: found on answers that leave out the sample they are about.

A linear model of frozen features and a Gaussian for each class say of every training sample what it is, without it
(`answers.out_of_fold`). Some labels that judge these answers may be wrong, so their share is found, too.

Letters: n samples, D features, C classes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from provnet.answers.label_noise import noise_model, posterior
from provnet.answers.out_of_fold import gaussian, gaussian_scores, moments, ridge
from provnet.heads.support import Evidence, odds_of, prepared

FEWEST = 20  # samples
TRUST = 0.01
MOST_WRONG = 0.6


def evidence_of(features: Tensor, labels: Tensor, classes: int, distance: Tensor) -> tuple[Evidence, Tensor]:
    """The evidence of training features (n, D) with labels (n,), and (n,) how often held-out answers like theirs are
    right; `distance` (n,) is that of each from its own class, measured without it.
    """
    z = prepared(features)
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

"""How good a generator is: rebuilt pictures, class and index of training samples, a distance to real pictures.

Letters: n pictures, L latents.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from provnet.answers.attributor import Attributor
from provnet.answers.evaluation import own_classes, trained_rows
from provnet.answers.metrics import frechet, group_hit
from provnet.base.batches import at_once, keyed_generator
from provnet.base.stats import Interval, t_quantile, wilson
from provnet.data.dataset import ImageData, image_data
from provnet.models.network import answer_at, posterior_of, vae_of
from provnet.models.vae import sample
from provnet.runs.inputs import Fitted, run_of, whole_number
from provnet.runs.run import Run
from provnet.tasks.generate import Normal
from provnet.tools.generate.compute import BATCH, generate, raw_pictures

SPACE = "means of this run's own latents; comparable within this run only"
MADE = 2_000  # pictures that are made and compared with as many real ones
DRAWN = 14  # kind of randomness


def measure_generator(
    run: Run | Fitted,
    train: ImageData | None = None,
    test: ImageData | None = None,
    *,
    index: np.ndarray | None = None,
    seed: int = 0,
    made: int = MADE,
) -> dict[str, Any]:
    """All figures of a run that makes pictures, as plain values with n and interval.

    `train` are its training samples (`index` says which, where some are missing), `test` others. Withheld samples are
    left out; data that are not those of the run are refused. Reconstruction is
    measured at the mean of the latents: binary cross-entropy summed over the pixels of a picture, and the mean square
    error of a pixel in [0, 1]. The index is looked for within the given class.

    >>> import provnet
    >>> from provnet.tools.generate import fit_generator
    >>> data = provnet.open_data("embedded", limit=40)
    >>> run = fit_generator(data, "faces", changes={"epochs": 1})
    >>> sorted(measure_generator(run, data, made=20))
    ['frechet', 'train']
    """
    run = run_of(run)
    found: dict[str, Any] = {}
    made = whole_number("made", made)
    if train is not None:
        image_data("the training data", train)
    if test is not None:
        test = own_classes(run, test)
    if test is not None and len(test):
        found["test"] = rebuilding_error(run, test)
    if train is not None and len(train):
        own = trained_rows(run, train, index)
        if run.samples.withheld.any():
            active = np.flatnonzero(~run.samples.withheld[own])
            own, train = own[active], train.select(active)
    if train is not None and len(train):
        found["train"] = rebuilding_error(run, train) | latent_index_accuracy(run, train, own, seed)
    real = test if test is not None and len(test) else train
    count = min(made, 0 if real is None else len(real))
    if real is not None and count >= 2:
        rows = torch.randperm(len(real), generator=keyed_generator(seed, DRAWN))[:count]
        pictures = generate(run, count, seed=seed).images
        sides = latent_means(run, pictures), latent_means(run, real.images[rows].numpy())
        found["frechet"] = frechet(*sides, space=SPACE).to_json()
    return found


@torch.inference_mode()
def rebuilding_error(run: Run | Fitted, data: ImageData) -> dict[str, Any]:
    """Reconstruction of pictures at the mean of their latents, and the class that is seen there."""
    run = run_of(run)
    net = run.network.eval()
    vae, device = vae_of(net), next(net.parameters()).device
    entropy, error, right = [], [], 0
    few = at_once(data.shape, device.type, BATCH)
    for images, labels in zip(torch.split(data.images, few), torch.split(data.labels, few), strict=True):
        target = net.normalise(images.to(device))
        z = vae.encode(target).mean
        seen = answer_at(net, z).logits.argmax(1)
        logits = vae.paint(vae.hidden(z), seen).float()
        each = F.binary_cross_entropy_with_logits(logits, target, reduction="none").flatten(1).sum(1)
        entropy.append(each.cpu().numpy())
        error.append((logits.sigmoid() - target).square().flatten(1).mean(1).cpu().numpy())
        right += int((seen.cpu() == labels).sum())
    return {
        "reconstruction_bce": mean_of(np.concatenate(entropy)).to_json(),
        "reconstruction_mse": mean_of(np.concatenate(error)).to_json(),
        "class_accuracy": wilson(right, len(data)).to_json(),
    }


def latent_index_accuracy(run: Run | Fitted, data: ImageData, own: np.ndarray, seed: int = 0) -> dict[str, Any]:
    """Whether training samples are found by their own latents: at the mean, and drawn from their distribution.

    Where there are equal pictures, which no network can tell apart, figures stand beside in which each of them counts.
    """
    run = run_of(run)
    right, found = _answers(run, data, seed)
    figures = {
        "class_accuracy_drawn": _rate(right["sample"]),
        "index_accuracy": _rate(found["mean"] == own),
        "index_accuracy_drawn": _rate(found["sample"] == own),
    }
    if run.samples.index_ceiling < 1:
        groups = run.samples.groups
        figures["index_accuracy_group"] = _rate(group_hit(found["mean"][:, None], own, groups))
        figures["index_accuracy_drawn_group"] = _rate(group_hit(found["sample"][:, None], own, groups))
    return figures


def index_hits(run: Run | Fitted, data: ImageData, own: np.ndarray, seed: int = 0) -> dict[str, np.ndarray]:
    """(n,) bool each: class and index right at the mean and at drawn latents; withheld samples are never found.

    Of equal pictures the first is named, as `explain` does: only that one is right, see `samples.index_ceiling`.

    >>> import provnet
    >>> from provnet.tools.generate import fit_generator
    >>> data = provnet.open_data("embedded", limit=20)
    >>> run = fit_generator(data, "faces", changes={"epochs": 1})
    >>> sorted(index_hits(run, data, np.arange(20)))
    ['class_at_mean', 'class_at_sample', 'index_at_mean', 'index_at_sample']
    """
    right, found = _answers(run_of(run), data, seed)
    hits: dict[str, np.ndarray] = {}
    for where in right:
        hits |= {f"class_at_{where}": right[where], f"index_at_{where}": found[where] == own}
    return hits


@torch.inference_mode()
def _answers(run: Run, data: ImageData, seed: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """By `mean` and `sample`: (n,) bool whether the class is right, and (n,) int64 the sample named within it."""
    ask, generator = Attributor(run), keyed_generator(seed, DRAWN, 1)
    net, few = ask.network.eval(), ask.at_once(data.shape, most=BATCH)
    z: dict[str, list[Tensor]] = {"mean": [], "sample": []}
    for batch in torch.split(data.images, BATCH):  # so many latents are drawn together
        seen = [posterior_of(net, images.to(ask.device)) for images in torch.split(batch, few)]
        posterior = Normal(*(torch.cat(values) for values in zip(*seen, strict=True)))
        z["mean"] += torch.split(posterior.mean, few)
        z["sample"] += torch.split(sample(posterior, generator), few)
    right: dict[str, np.ndarray] = {}
    index: dict[str, np.ndarray] = {}
    labels = torch.split(data.labels, [len(some) for some in z["mean"]])
    for where, parts in z.items():
        pairs = zip(parts, labels, strict=True)
        found = ask.over(pairs, lambda answered: vars(answered.best(1)), how=answer_at)
        right[where] = (found["predicted"].cpu() == data.labels).numpy()
        index[where] = found["index"][:, 0].cpu().numpy()
    return right, index


@torch.inference_mode()
def latent_means(run: Run | Fitted, images: np.ndarray) -> np.ndarray:
    """(n, L) what the run's own encoder sees in raw pictures."""
    run = run_of(run)
    net = run.network.eval()
    device = next(net.parameters()).device
    given = raw_pictures(images)
    batches = torch.split(given, at_once(given.shape[1:], device.type, BATCH))
    return np.asarray(torch.cat([posterior_of(net, batch.to(device)).mean.cpu() for batch in batches]).numpy())


def mean_of(values: np.ndarray) -> Interval:
    """A mean with its 95 % interval; a single value has none.

    >>> mean_of(np.array([1.0, 2.0, 3.0])).value
    2.0
    """
    n, middle = len(values), float(values.mean())
    if n < 2:
        return Interval(middle, n, None, None, "a single value has no interval")
    half = t_quantile(n - 1) * float(values.std(ddof=1)) / math.sqrt(n)
    return Interval(middle, n, middle - half, middle + half)


def _rate(hits: np.ndarray) -> dict[str, Any]:
    return wilson(int(hits.sum()), len(hits)).to_json()

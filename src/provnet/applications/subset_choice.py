"""From data and a wish ("30%, prototypes") to an IndexSubset: features of a run, or of a quick network made for it.

Letters: N samples, D features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from provnet.applications.subsets import choose_rows, per_class
from provnet.chunks import at_once
from provnet.data.imagedata import ImageData, image_data
from provnet.errors import DataError, UsageError
from provnet.inputs import Fitted, run_of, whole
from provnet.modelfile import Run
from provnet.training.config import train_config
from provnet.training.fit import fit
from provnet.training.progress import progress_bar
from provnet.training.subset import IndexSubset

QUICK = 5  # epochs of the network that is trained for its features alone
BATCH = 1024  # where samples are small


@dataclass(frozen=True, eq=False)
class Seen:
    """What a network makes of samples: backbone features (N, D) float32, and by how much the best class leads (N,)."""

    features: np.ndarray
    margins: np.ndarray


def index_subset(
    data: ImageData,
    asked: str | int,
    select: str = "stratified",
    *,
    classes_on: str = "all",
    run: Run | Fitted | None = None,
    seed: int = 0,
    device: str = "auto",
    progress: bool = False,
) -> IndexSubset:
    """Choose the samples to index: a percentage or a number of them, by a way of `applications.subsets`.

    All ways but `stratified` look at features: those of `run`, else of a network with the class branch alone that is
    trained on the data for 5 epochs of preset fast, by the same seed.

    >>> import provnet
    >>> data = provnet.open_data("embedded", limit=100)
    >>> chosen = index_subset(data, "30%")
    >>> len(chosen.rows), chosen.about["select"]
    (30, 'stratified')
    """
    run = None if run is None else run_of(run)
    image_data("the training data", data)
    seed = whole("seed", seed, 0)
    counts = per_class(asked, data.samples.labels, len(data.class_names))
    about: dict[str, Any] = {"asked": str(asked), "select": select, "seed": seed}
    given: dict[str, Any] = {}
    if select != "stratified":
        if run is None:
            run, about["features"] = quick_run(data, seed=seed, device=device, progress=progress), QUICK_WORDS
        else:
            about["features"] = f"a given run, {run.config.network.network}, backbone {run.config.network.backbone}"
        seen = look(run, data, device=device, progress=progress)
        given = {"features": seen.features, "margins": seen.margins}
    elif run is not None:
        raise UsageError("a stratified subset is drawn by the seed and needs no run; leave --select-from out")
    rows = choose_rows(select, data.samples.labels, counts, seed=seed, **given)
    return IndexSubset(rows, classes_on, about)


def quick_run(data: ImageData, *, seed: int = 0, device: str = "auto", progress: bool = False) -> Run:
    """A network for its features alone: one indexed sample a class, whose loss counts nothing, so it learns classes."""
    labels = data.samples.labels
    first = np.unique(labels, return_index=True)[1]
    config = train_config("fast", epochs=QUICK, index_weight=0.0, seed=seed)
    return fit(data, index_subset=IndexSubset(np.sort(first)), config=config, device=device, progress=progress)


@torch.inference_mode()
def look(run: Run | Fitted, data: ImageData, *, device: str = "auto", progress: bool = False) -> Seen:
    """Features and margins of all samples, one pass; the margin is the best class score minus the second best."""
    run = run_of(run)
    shape = run.config.network.input_shape
    if data.shape != shape:
        raise DataError(f"the run to select from takes samples of shape {shape}, the data have {data.shape}")
    cuda = torch.cuda.is_available() if device == "auto" else device == "cuda"
    where = torch.device("cuda" if cuda else "cpu")
    net, features, margins = run.network.to(where).eval(), list[Tensor](), list[Tensor]()
    size = at_once(shape, where.type, BATCH)
    with progress_bar("features", len(data), progress) as update:
        for start in range(0, len(data), size):
            output = net(data.images[start : start + size].to(where))
            best = output.logits.float().topk(min(2, output.logits.shape[1]), 1).values
            features.append(output.support_features.float().cpu())
            margins.append((best[:, 0] - best[:, -1]).cpu())
            update(min(start + size, len(data)), "")
    net.cpu()
    return Seen(torch.cat(features).numpy(), torch.cat(margins).numpy())


QUICK_WORDS = f"a class branch alone, preset fast, {QUICK} epochs"

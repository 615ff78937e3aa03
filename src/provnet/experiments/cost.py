"""What the index branch costs: class accuracy, time and parameters of the same network with and without it.

Claim: two branches give classes and indices at once, "at the cost of larger models and greater computational demands"
    than a single branch (sec. 5.1; sizes stand under table 2, times of single branches were not compared); "The index
    head also adds computational cost and may impact main-task performance" (sec. 6; the paper does not say how much).
Command: provnet reproduce cost --data-dir DIR --device cuda
Expected: class accuracy within the interval of the network without an index branch; most of the parameters and of the
    training time are the index branch's; a query costs little more.
Device: one H200; `--scale tiny` runs on two CPU cores.
Time: 9 minutes a seed, 3 minutes a data set, alone on the GPU.

Preset `paper`, side by side in one process: the class branch alone, then with either index branch, by one loop that
treats them alike; seconds of an epoch are the median after the first two. A query is a picture in and the class out, or
class and five training samples with weights and support, finite-checked; the median of 15 turns after 2.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from provnet.attribution import attribute
from provnet.data.imagedata import ImageData
from provnet.experiments import networks
from provnet.experiments.cost_words import VARIANTS, cost_figures, section
from provnet.experiments.origin import resolved
from provnet.experiments.records import Cell, Experiment, Job, Scale, Told
from provnet.experiments.settings import MAIN
from provnet.experiments.without_index import network, trained
from provnet.models.provenance import ProvenanceNet, parameter_count
from provnet.training.config import for_samples, train_config

TURNS = 15


def cells(scale: Scale) -> list[Cell]:
    """A data set each; `tiny` has the embedded digits.

    >>> [cell.name for cell in cells(Scale("full"))]
    ['mnist', 'fashion-mnist', 'cifar10']
    """
    return [_cell(data, scale) for data in (("mnist",) if scale.name == "tiny" else MAIN)]


def _cell(data: str, scale: Scale) -> Cell:
    config: dict[str, Any] = {
        "data": networks.source(data, scale),
        "training": networks.recipe(data, "paper", {}, scale),
        "samples": [scale.train, scale.test],
        "networks": list(VARIANTS),
    }
    missing = partial(networks.missing, networks.source(data, scale))
    return Cell(data, config, partial(run, data), seconds=190.0, missing=missing)


def run(data: str, job: Job) -> Told:
    """Train the three networks one after the other, then let them answer in turns."""
    train, test = networks.opened(data, job)
    config = train_config("paper", seed=job.seed, epochs=job.scale.epochs)
    config = for_samples(config, len(train), train.shape)
    where, steps = resolved(job.device), config.epochs * len(VARIANTS)
    nets: dict[str, ProvenanceNet] = {}
    found: dict[str, dict[str, Any]] = {}
    figures = {}
    for number, (name, kind) in enumerate(VARIANTS.items()):
        net = network(train, kind, "paper", job.seed)

        def tell(epoch: int, done: int = number * config.epochs) -> None:
            job.tell(0.95 * (done + epoch) / steps)

        epochs = trained(net, train, config, where, tell)
        figures[name] = (_class_accuracy(net, test, where), len(test))
        nets[name] = net
        # the first epochs warm up, and one of them records the step
        middle = statistics.median(epochs[min(2, len(epochs) - 1) :])
        found[name] = {"parameters": parameter_count(net), "epoch_seconds": middle, "train_seconds": sum(epochs)}
    for batch in (1, 256):
        for name, ms in query_ms(nets, test, where, batch, 3 if job.scale.name == "tiny" else TURNS).items():
            found[name][f"query_ms_{batch}"] = ms
    return {"figures": figures, "networks": found, "samples": {"train": len(train), "test": len(test)}}


def _class_accuracy(net: ProvenanceNet, test: ImageData, device: str) -> float:
    hits = 0
    with torch.inference_mode():
        for images, labels in zip(torch.split(test.images, 256), torch.split(test.labels, 256), strict=True):
            hits += int((net(images.to(device)).logits.argmax(1).cpu() == labels).sum())
    return hits / len(test)


def query_ms(nets: dict[str, ProvenanceNet], test: ImageData, device: str, batch: int, turns: int) -> dict[str, float]:
    """Median milliseconds of a query in batches of this size; the networks take turns."""
    images = test.images[:batch].to(device)
    asked = {name: _asking(net, VARIANTS[name] is not None) for name, net in nets.items()}
    times: dict[str, list[float]] = {name: [] for name in nets}
    with torch.inference_mode():
        for turn in range(turns + 2):
            for name, ask in asked.items():
                began = time.perf_counter()
                ask(images)
                took = time.perf_counter() - began
                if turn >= 2:  # libraries choose their algorithms at first
                    times[name].append(1e3 * took / len(images))
    return {name: statistics.median(values) for name, values in times.items()}


def _asking(net: ProvenanceNet, exemplars: bool) -> Callable[[torch.Tensor], Any]:
    """A function that answers and waits until the answer is in main memory."""
    if exemplars:
        return lambda images: attribute(net, net(images), 5).index.cpu()
    return lambda images: net(images).logits.argmax(1).cpu()


EXPERIMENT = Experiment("cost", str(__doc__), cells, section, cost_figures)

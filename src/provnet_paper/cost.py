"""What the index branch costs: class accuracy, time and parameters of the same network with and without it."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, final

import torch
from torch import Tensor, nn

from provnet.answers.attributor import Attributor
from provnet.base.options import NetworkOptions
from provnet.data.dataset import ImageData, ResidentData
from provnet.heads.heads import OutputHead
from provnet.heads.index_map import TargetSampler
from provnet.heads.support import Support
from provnet.models.network import IndexTrunk, ProvenanceNet, build, parameter_count
from provnet.training.config import TrainConfig, for_samples, train_config
from provnet.training.loop import Learner, TrainingSet, fresh_state, train
from provnet.training.setup import make_fabric, plan
from provnet_paper import networks
from provnet_paper.measures import difference_of_rates, mean, plain
from provnet_paper.networks import DATA, MAIN
from provnet_paper.plots import BLUE, GREY, ORANGE, panels, png, tidy
from provnet_paper.records import Cell, Experiment, Job, Result, Results, Scale, Table, Told
from provnet_paper.store import resolve_device

# name of a network in the results -> its kind in NETWORKS, None without an index branch
VARIANTS: dict[str, str | None] = {
    "without": None,
    "class-conditional": "class-conditional",
    "class-independent": "class-independent",
}
WORDS = {
    "without": "class branch alone",
    "class-conditional": "with class-conditional index",
    "class-independent": "with class-independent index",
}


COLUMNS = {
    "": "class",
    "_parameters": "parameters",
    "_epoch_seconds": "seconds of an epoch",
    "_query_ms_1": "ms of a query alone",
    "_query_ms_256": "ms of one of 256 queries at once",
}


def read(kept: Result) -> Result:
    """With parameters and times of each network as figures."""
    plain = {f"{name}_{what}": (float(value), 0) for name, each in kept.told["networks"].items()
             for what, value in each.items()}  # fmt: skip
    return replace(kept, figures={**kept.figures, **plain})


def cost_figures(results: Results) -> dict[str, bytes]:
    """Class accuracy less that of the class branch alone; bars of parameters and times, a panel each."""
    there = [data for data in MAIN if results.cells.get(data)]
    if not there:
        return {}
    shown = (
        ("parameters, millions", "parameters", 1e-6),
        ("seconds of an epoch", "epoch_seconds", 1.0),
        ("milliseconds of a query, batch 1", "query_ms_1", 1.0),
    )
    drawing, (first, *every) = panels(1, 1 + len(shown), (13, 1.5 + 0.75 * len(there)), sharey=True, squeeze=True)
    _class_panel(first, results, there)
    for axes, (title, what, factor) in zip(every, shown, strict=True):
        for place, (name, colour) in enumerate(zip(WORDS, (GREY, BLUE, ORANGE), strict=True)):
            values = [(mean(results, data, f"{name}_{what}") or (0.0, 0))[0] * factor for data in there]
            heights = [row + (place - 1) * 0.27 for row in range(len(there))]
            drawn = axes.barh(heights, values, height=0.25, color=colour, label=WORDS[name])
            axes.bar_label(drawn, labels=[plain(value) for value in values], padding=3, fontsize=8)
        axes.set_title(title, fontsize=10)
        axes.margins(x=0.2)
        tidy(axes)
    first.set_yticks(range(len(there)), [DATA[data] for data in there])
    first.invert_yaxis()
    drawing.legend(*every[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return {"": png(drawing)}


def _class_panel(axes: Any, results: Results, there: list[str]) -> None:
    """Points with 95 % intervals, at the heights of their bars beside."""
    for place, (name, colour) in enumerate(zip(WORDS, (GREY, BLUE, ORANGE), strict=True)):
        for row, data in enumerate(there):
            ours, plain = (mean(results, data, one) for one in (name, "without"))
            if name == "without" or ours is None or plain is None:
                continue
            gap, height = difference_of_rates(ours, plain), row + (place - 1) * 0.27
            axes.plot([100 * gap.low, 100 * gap.high], [height, height], color=colour, lw=1.5)
            axes.plot(100 * gap.value, height, "o", color=colour, ms=6)
            at = {"textcoords": "offset points", "ha": "right", "va": "center", "fontsize": 8}
            axes.annotate(f"{100 * gap.value:+.2f}", (100 * gap.low, height), (-4, 0), **at)
    axes.axvline(0, color=GREY, lw=1)
    axes.set_title("class accuracy less that of\nthe class branch alone, points", fontsize=10)
    axes.margins(x=0.2)
    tidy(axes)


@final
class NoIndex(OutputHead):
    """One slot that every sample has, without a weight: its loss is 0, its cost next to nothing."""

    def forward(self, features: Tensor, classes: Tensor) -> Tensor:
        """(B, D) -> (B, 1), all zero."""
        return features.new_zeros(len(features), 1)

    def valid(self, classes: Tensor) -> None:
        """The slot is always there."""

    def to_slot(self, index: Tensor) -> Tensor:
        """The first and only one."""
        return torch.zeros_like(index)

    def to_index(self, slots: Tensor, classes: Tensor) -> Tensor:
        """It names nobody."""
        return torch.full_like(slots, -1)


def network(data: ImageData, kind: str | None, preset: str, seed: int) -> ProvenanceNet:
    """A network of the paper by its name; None is the class-independent one without its index branch."""
    torch.manual_seed(seed)
    shape, index_map = plan(data, NetworkOptions(network=kind or "class-independent"), preset)
    net = build(shape, index_map)
    if kind is not None:
        return net
    head: Any = NoIndex()
    return ProvenanceNet(
        normalise=net.normalise,
        backbone=net.backbone,
        task_head=net.task_head,
        index_trunk=IndexTrunk(nn.Identity()),
        index_head=head,
        index_map=index_map,
        support=Support(shape.classes, 1),
    )


def train_timed(
    net: ProvenanceNet, data: ImageData, config: TrainConfig, device: str, on_epoch: Callable[[int], None]
) -> list[float]:
    """Train it by the loop of `fit`, recorded on a GPU; returns the seconds of each epoch."""
    fabric = make_fabric(device, 1, config.precision)
    cuda = fabric.device.type == "cuda"
    rate = torch.tensor(config.lr, device=fabric.device) if cuda else config.lr
    adamw = torch.optim.AdamW(
        net.parameters(), rate, config.betas, weight_decay=config.weight_decay, fused=True, capturable=cuda
    )
    if cuda:
        net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    model, optimizer = fabric.setup(net, adamw)
    samples = ResidentData(data.images, data.labels, fabric.device, None)
    ends = [_now(fabric.device)]

    def ended(state: Any) -> None:
        ends.append(_now(fabric.device))
        on_epoch(len(ends) - 1)

    train(
        Learner(fabric, net, model, optimizer),
        TrainingSet(samples, data.samples.sample_ids),
        TargetSampler(net.index_map, 0.0),
        config,
        fresh_state(len(data), fabric.device),
        on_step=lambda state, row: None,
        on_epoch=ended,
        recorded=cuda,
    )
    net.eval()
    return [later - earlier for earlier, later in itertools.pairwise(ends)]


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


TURNS = 15


def cells(scale: Scale) -> list[Cell]:
    """A data set each; `tiny` has the embedded digits."""
    return [_cell(data, scale) for data in (("mnist",) if scale.name == "tiny" else MAIN)]


def _cell(data: str, scale: Scale) -> Cell:
    config = {"training": networks.recipe(data, "paper", {}, scale), "networks": list(VARIANTS)}
    return networks.cell(data, data, scale, partial(run, data), 190.0, config)


def run(data: str, job: Job) -> Told:
    """Train the three networks one after the other, then let them answer in turns."""
    train, test = networks.open_samples(data, job)
    config = train_config("paper", seed=job.seed, epochs=job.scale.epochs)
    config = for_samples(config, len(train), train.shape)
    where, steps = resolve_device(job.device), config.epochs * len(VARIANTS)
    nets: dict[str, ProvenanceNet] = {}
    found: dict[str, dict[str, Any]] = {}
    figures = {}
    for number, (name, kind) in enumerate(VARIANTS.items()):
        net = network(train, kind, "paper", job.seed)

        def tell(epoch: int, done: int = number * config.epochs) -> None:
            job.tell(0.95 * (done + epoch) / steps)

        epochs = train_timed(net, train, config, where, tell)
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
        ask = Attributor(net)
        return lambda images: ask.over([(images, None)], lambda answered: vars(answered.best(5)))["index"].cpu()
    return lambda images: net(images).logits.argmax(1).cpu()


TABLE = Table(
    {data: DATA[data] for data in MAIN}, WORDS, COLUMNS, head="network", cell="{data}", figure="{row}{column}"
)
EXPERIMENT = Experiment("cost", cells, cost_figures, (TABLE,), read=read)

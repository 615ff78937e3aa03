"""What indices alone teach: features of a network trained without a label, against those of class supervision."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from provnet.base.errors import NonFiniteError
from provnet.data.dataset import ImageData
from provnet.heads.keys import unit
from provnet.heads.retrieval import top_k
from provnet.models.network import ProvenanceNet
from provnet_paper import networks
from provnet_paper.measures import mean
from provnet_paper.networks import PAIRS
from provnet_paper.plots import BLUE, GREY, ORANGE, panels, png, tidy
from provnet_paper.records import Cell, Experiment, Figure, Job, Results, Scale, Table, Told
from provnet_paper.samples import DRAWINGS

NETWORKS = {
    "index": "indices alone",
    "index-augmented": "indices alone, augmented",
    "class": "classes alone",
    "untrained": "untrained",
}
ASKED = {
    "plain_from_plain": "as they are",
    "turned_from_plain": "turned",
    "inverted_from_plain": "inverted",
    "thickened_from_plain": "thickened",
    "turned_from_same": "turned, probe too",
    "inverted_from_same": "inverted, probe too",
    "thickened_from_same": "thickened, probe too",
}
PROBES = {"probe": "linear probe", "knn": "nearest neighbour"}


def instance_figures(results: Results) -> dict[str, bytes]:
    """Bars of the linear probe, a panel a data set."""
    there = [data for data in PAIRS if any(cell.startswith(f"{data}/") for cell in results.cells)]
    if not there:
        return {}
    drawing, every = panels(len(there), 1, (9.5, 1.2 + 2.6 * len(there)), sharex=True)
    colours = {"index": BLUE, "index-augmented": "#3b9e8f", "class": ORANGE, "untrained": GREY}
    for axes, data in zip(every[:, 0], there, strict=True):
        kinds = [kind for kind in NETWORKS if f"{data}/{kind}" in results.cells]
        for place, kind in enumerate(kinds):
            values = [mean(results, f"{data}/{kind}", f"probe_{asked}") for asked in ASKED]
            at = [x + (place - (len(kinds) - 1) / 2) * 0.2 for x in range(len(ASKED))]
            heights = [100 * one[0] if one is not None else 0.0 for one in values]
            axes.bar(at, heights, width=0.19, color=colours[kind], label=NETWORKS[kind])
            for x, one in zip(at, values, strict=True):
                if one is not None:
                    axes.text(x, 100 * one[0] + 1, f"{100 * one[0]:.1f}", ha="center", va="bottom", fontsize=6.5)
        axes.set_xticks(range(len(ASKED)), [words.replace(", ", ",\n") for words in ASKED.values()], fontsize=9)
        n = next(one[1] for one in values if one is not None)
        axes.set_title(
            f"{PAIRS[data]}: class of {n:,} unseen samples by a linear probe, %; intervals below", fontsize=10
        )
        tidy(axes)
        axes.grid(axis="y", alpha=0.25)
        axes.set_axisbelow(True)
    drawing.legend(*every[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    return {"": png(drawing)}


BATCH = 1000
RIDGE = 1e-3  # of the mean variance of a standardised feature, for each sample


@torch.inference_mode()
def features_of(net: ProvenanceNet, images: Tensor) -> Tensor:
    """(N, D) float32 features of the backbone, where the network lies."""
    net.eval()
    device = next(net.parameters()).device
    parts = [net.backbone(net.normalise(few.to(device))).float().flatten(1) for few in torch.split(images, BATCH)]
    found = torch.cat(parts)
    if not bool(torch.isfinite(found).all()):
        raise NonFiniteError("the features are not finite; check the weights")
    return found


def probe_hits(known: Tensor, labels: Tensor, asked: Tensor, truth: Tensor, classes: int) -> Tensor:
    """(M,) whether a linear map from standardised features to one-hot classes names the class, on the CPU."""
    mean, std = known.mean(0), known.std(0).clamp(min=1e-6)
    x = ((known - mean) / std).double()
    y = F.one_hot(labels.to(x.device), classes).double()
    gram = x.T @ x + RIDGE * len(x) * torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
    weights = torch.linalg.solve(gram, x.T @ (y - y.mean(0)))
    scores = ((asked - mean) / std).double() @ weights + y.mean(0)
    named: Tensor = scores.argmax(1).cpu()
    return named == truth


def knn_hits(known: Tensor, labels: Tensor, asked: Tensor, truth: Tensor) -> Tensor:
    """(M,) whether the nearest known sample by cosine has the class, on the CPU."""
    bank = unit(known)
    rows = [top_k(unit(few), bank, 1).row[:, 0].cpu() for few in torch.split(asked, BATCH)]
    named: Tensor = labels[torch.cat(rows)]
    return named == truth


EPOCHS = 20
KINDS: dict[str, dict[str, Any]] = {
    "index": {"network": "single"},
    "index-augmented": {"network": "single", "changes": {"augment": "digits"}},
    "class": {"network": "class-independent", "changes": {"index_weight": 0.0}},
    "untrained": {"network": "class-independent", "changes": {"epochs": 1, "lr": 1e-12, "index_weight": 0.0}},
}


def cells(scale: Scale) -> list[Cell]:
    """A kind of supervision each; `tiny` has two."""
    if scale.name == "tiny":
        return [_cell("mnist", kind, scale) for kind in ("index", "class")]
    return [_cell(data, kind, scale) for data in PAIRS for kind in NETWORKS]


def _cell(data: str, kind: str, scale: Scale) -> Cell:
    how = KINDS[kind]
    changes = {"epochs": EPOCHS, **how.get("changes", {})}
    training = networks.words_of_preset("fast", changes, scale)
    config = {"network": how["network"], "training": training, "drawings": list(DRAWINGS), "backbone": "medium"}
    seconds = 8.0 if kind == "untrained" else 30.0
    return networks.cell(f"{data}/{kind}", data, scale, partial(run, data, kind, changes), seconds, config)


def run(data: str, kind: str, changes: dict[str, Any], job: Job) -> Told:
    """Train, then read the class off the features by two probes, on each way of drawing."""
    backbone = "small" if job.scale.name == "tiny" else "medium"
    found, train, test, told = networks.train_network(
        data, job, preset="fast", changes=changes, network=KINDS[kind]["network"], backbone=backbone, part=(0.0, 0.7)
    )
    net = found.network
    figures: dict[str, Figure] = {}
    plain = features_of(net, train.images)
    for number, (name, change) in enumerate(DRAWINGS.items()):
        unseen = features_of(net, change(test.images, job.seed))
        _ask(figures, f"{name}_from_plain", plain, train, unseen, test)
        if name != "plain":
            again = features_of(net, change(train.images, job.seed + 1))
            _ask(figures, f"{name}_from_same", again, train, unseen, test)
        job.tell(0.7 + 0.3 * (number + 1) / len(DRAWINGS))
    return {"figures": figures, **told}


def _ask(
    figures: dict[str, Figure], name: str, known: torch.Tensor, train: ImageData, asked: torch.Tensor, test: ImageData
) -> None:
    classes = len(train.class_names)
    for probe, hits in (("probe", probe_hits(known, train.labels, asked, test.labels, classes)),
                        ("knn", knn_hits(known, train.labels, asked, test.labels))):  # fmt: skip
        figures[f"{probe}_{name}"] = (float(hits.double().mean()), len(test))


TABLES = tuple(
    Table(PAIRS, NETWORKS, ASKED, head=f"class by {words}", figure=f"{probe}_{{column}}")
    for probe, words in PROBES.items()
)
EXPERIMENT = Experiment("instance", cells, instance_figures, TABLES)

"""What a pair of CNNs is asked: class of unseen samples, own index of training samples, class through the index."""

from __future__ import annotations

import torch

from provnet.attribution import attribute
from provnet.data.imagedata import ImageData
from provnet.experiments.records import Figure
from provnet.models.provenance import ProvenanceNet

KS = (1, 5, 10)
BATCH = {"cpu": 256, "cuda": 1000}
SOME = 10_000  # training samples that a curve is measured on


def pair_figures(net: ProvenanceNet, train: ImageData, test: ImageData) -> dict[str, Figure]:
    """All figures as (rate, n); `train` are the indexed samples in the order of the network's index.

    >>> import provnet
    >>> from provnet.experiments.two_cnns import built, pair
    >>> few = provnet.open_data("embedded", limit=40)
    >>> sorted(pair_figures(built(few, pair("small", 1, 1), 0, "cpu").eval(), few, few))[:2]
    ['any_at_1', 'any_at_10']
    """
    classes, index = answers(net, test, max(KS))
    own = answers(net, train, 5)[1]
    rows, truth = torch.arange(len(train)).unsqueeze(1), test.labels
    same = net.index_map.labels.cpu()[index.clamp(min=0)] == truth.unsqueeze(1)
    same &= index >= 0
    n, m = len(test), len(train)
    return {
        "class_accuracy": (float((classes == truth).double().mean()), n),
        "index_accuracy": (float((own[:, :1] == rows).double().mean()), m),
        "index_at_5": (float((own == rows).any(1).double().mean()), m),
        **{f"any_at_{k}": (float(same[:, :k].any(1).double().mean()), n) for k in KS},
    }


def answers(net: ProvenanceNet, data: ImageData, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(N,) predicted classes and (N, k) named samples, on the CPU."""
    net.eval()
    device = next(net.parameters()).device
    classes, index = [], []
    with torch.inference_mode():
        for images in torch.split(data.images, BATCH[device.type]):
            found = attribute(net, net(images.to(device)), min(k, net.index_map.n))
            classes.append(found.predicted.cpu())
            index.append(found.index.cpu())
    return torch.cat(classes), torch.cat(index)


def point(net: ProvenanceNet, train: ImageData, test: ImageData) -> dict[str, float]:
    """A point of the curves: class accuracy on unseen samples, index accuracy on evenly spread training samples."""
    rows = torch.linspace(0, len(train) - 1, min(SOME, len(train))).round().long()
    kind = next(net.parameters()).device.type
    with torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda"):  # the last figures are in full precision
        classes, _ = answers(net, test, 1)
        _, own = answers(net, train.select(rows), 1)
    return {
        "class": float((classes == test.labels).double().mean()),
        "index": float((own[:, 0] == rows).double().mean()),
    }

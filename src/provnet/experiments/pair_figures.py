"""What a pair of CNNs is asked: class of unseen samples, own index of training samples, class through the index."""

from __future__ import annotations

import numpy as np
import torch

from provnet.attribution import attribute
from provnet.data.imagedata import ImageData
from provnet.experiments.copies import spread_rows
from provnet.experiments.records import Figure
from provnet.models.provenance import ProvenanceNet

KS = (1, 5, 10)
BATCH = {"cpu": 256, "cuda": 1000}


def pair_hits(net: ProvenanceNet, train: ImageData, test: ImageData) -> dict[str, np.ndarray]:
    """(n,) right or wrong, by figure; `train` are the indexed samples in the order of the network's index.

    >>> import provnet
    >>> from provnet.experiments.two_cnns import built, pair
    >>> few = provnet.open_data("embedded", limit=40)
    >>> sorted(pair_hits(built(few, pair("small", 1, 1), 0, "cpu").eval(), few, few))[:2]
    ['any_at_1', 'any_at_10']
    """
    classes, index = answers(net, test.images, max(KS))
    own = answers(net, train.images, 5)[1]
    rows, truth = torch.arange(len(train)).unsqueeze(1), test.labels
    same = net.index_map.labels.cpu()[index.clamp(min=0)] == truth.unsqueeze(1)
    same &= index >= 0
    found = {
        "class_accuracy": classes == truth,
        "index_accuracy": own[:, 0] == rows[:, 0],
        "index_at_5": (own == rows).any(1),
        **{f"any_at_{k}": same[:, :k].any(1) for k in KS},
    }
    return {name: values.numpy() for name, values in found.items()}


def rates(hits: dict[str, np.ndarray]) -> dict[str, Figure]:
    """Right or wrong answers as (rate, n).

    >>> rates({"class_accuracy": np.array([True, False])})
    {'class_accuracy': (0.5, 2)}
    """
    return {name: (float(values.mean()), len(values)) for name, values in hits.items()}


def answers(net: ProvenanceNet, images: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(N,) predicted classes and (N, k) named samples of raw pictures, on the CPU."""
    net.eval()
    device = next(net.parameters()).device
    classes, index = [], []
    with torch.inference_mode():
        for some in torch.split(images, BATCH[device.type]):
            found = attribute(net, net(some.to(device)), min(k, net.index_map.n))
            classes.append(found.predicted.cpu())
            index.append(found.index.cpu())
    return torch.cat(classes), torch.cat(index)


def point(net: ProvenanceNet, train: ImageData, test: ImageData) -> dict[str, float]:
    """A point of the curves: class accuracy on unseen samples, index accuracy on evenly spread training samples."""
    rows = spread_rows(len(train))
    kind = next(net.parameters()).device.type
    with torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda"):  # the last figures are in full precision
        classes, _ = answers(net, test.images, 1)
        _, own = answers(net, train.images[rows], 1)
    return {
        "class": float((classes == test.labels).double().mean()),
        "index": float((own[:, 0] == rows).double().mean()),
    }

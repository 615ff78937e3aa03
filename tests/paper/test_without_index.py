"""The network without an index branch has none, and is trained by the same loop."""

from __future__ import annotations

import torch

import provnet
from provnet.models.network import parameter_count
from provnet.training.config import train_config
from provnet_paper.cost import network, train_timed


def test_it_has_no_weights_of_an_index_branch() -> None:
    data = provnet.open_data("embedded", limit=40)
    net, whole = network(data, None, "fast", 0), network(data, "class-independent", "fast", 0)
    names = {name.split(".")[0] for name, _ in net.named_parameters()}
    assert names == {"backbone", "task_head"}
    alone = sum(parameter_count(part) for part in (whole.backbone, whole.task_head) if part is not None)
    assert parameter_count(net) == alone
    both = zip(net.backbone.parameters(), whole.backbone.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in both)  # drawn alike


def test_it_learns() -> None:
    data = provnet.open_data("embedded", limit=200)
    net = network(data, None, "fast", 0)
    done: list[int] = []
    seconds = train_timed(net, data, train_config("fast", epochs=6, batch_size=32), "cpu", done.append)
    assert done == [1, 2, 3, 4, 5, 6]
    assert len(seconds) == 6 and min(seconds) > 0
    with torch.inference_mode():
        right = net(data.images).logits.argmax(1) == data.labels
    assert right.float().mean() > 0.5

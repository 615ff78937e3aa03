"""A generator whose index heads are called one after another, a layer for each person: what ours is compared with."""

from __future__ import annotations

import time

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from provnet.data.dataset import ImageData
from provnet.models.network import ProvenanceVAE, build
from provnet.models.vae import sample
from provnet.tasks.generate import Generate, Made
from provnet.tools.generate.compute import recipe
from provnet.training.setup import plan


class LoopHeads(nn.Module):
    """One layer for each person, called one after another: what our packed matrix is compared with."""

    def __init__(self, features: int, sizes: list[int]) -> None:
        super().__init__()
        self.heads = nn.ModuleList([nn.Linear(features, max(size, 1)) for size in sizes])

    def forward(self, features: Tensor, labels: Tensor, local: Tensor) -> Tensor:
        """The mean index loss of a batch; persons that do not occur in it cost nothing."""
        losses = []
        for person in torch.unique(labels).tolist():
            mine = labels == person
            losses.append(F.cross_entropy(self.heads[person](features[mine]), local[mine], reduction="sum"))
        return torch.stack(losses).sum() / len(labels)


def loop_epoch(data: ImageData, name: str, device_name: str) -> float:
    """Seconds of one epoch with a loop over heads, after one that warms up; all else as in our own training."""
    device, wanted = torch.device(device_name), recipe(name)
    shape, index_map = plan(data, wanted.wanted, "fast")
    net = build(shape, index_map).to(device).train()
    assert isinstance(net, ProvenanceVAE)
    heads = LoopHeads(net.vae.features, index_map.sizes.tolist()).to(device)
    weights = [p for part in (net.vae, net.task_head, heads) if part is not None for p in part.parameters()]
    optimizer = torch.optim.Adam(weights, wanted.lr, fused=True)
    images, labels, local = data.images.to(device), data.labels.to(device), net.index_map.local.to(device)
    seconds = 0.0
    for _ in range(2):
        _wait(device)
        began = time.perf_counter()
        for index in torch.split(torch.randperm(len(data), device=device), wanted.batch_size):
            if len(index) > 1:
                with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                    loss = _loop_loss(net, heads, images[index], labels[index], local[index])
                loss.backward()
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
        _wait(device)
        seconds = time.perf_counter() - began
    return seconds


def _loop_loss(net: ProvenanceVAE, heads: LoopHeads, images: Tensor, labels: Tensor, local: Tensor) -> Tensor:
    vae, x = net.vae, net.normalise(images)
    posterior = vae.encode(x)
    hidden = vae.hidden(sample(posterior))
    features, one = vae.look(hidden), torch.ones((), device=x.device)
    assert net.task_head is not None
    made = Made(x, vae.paint(hidden, labels), posterior, vae.prior(labels), 0 * one, one, vae.weight)
    told = F.cross_entropy(net.task_head(features).float(), labels) + heads(features, labels, local)
    return Generate().extra(made)[0] + 0.4 * told


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()

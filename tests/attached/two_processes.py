"""Run by `torchrun` as two processes, or alone: twenty steps of somebody's own loop in float64.

`python -m torch.distributed.run --nproc-per-node 2 -m tests.attached.two_processes FOLDER`
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import provnet
from provnet.attached.provenance import attach
from provnet.base.batches import keyed_generator
from tests.attached.made import mlp, vectors

STEPS, BATCH = 20, 8


def double(x: Tensor) -> Tensor:
    return x.double()


def main(folder: Path, name: str) -> None:
    """Train, finish, and leave losses, keys and what is named."""
    many = dist.is_initialized()
    rank, processes = (dist.get_rank(), dist.get_world_size()) if many else (0, 1)
    data, model = vectors(), mlp().double()
    model.append(nn.Identity())
    wrapped = DistributedDataParallel(model) if many else model
    prov = attach(wrapped, data, transform=double, weight=1.0)
    samples = prov.dataset()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    order = torch.cat([torch.randperm(len(data), generator=keyed_generator(epoch)) for epoch in range(4)])
    losses = []
    for step in range(STEPS):
        rows = order[step * BATCH : (step + 1) * BATCH][rank::processes]
        x, y, index = torch.utils.data.default_collate([samples[int(row)] for row in rows])
        loss = F.cross_entropy(wrapped(x), y) + prov.loss(index)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        whole = loss.detach().clone()
        if many:
            dist.all_reduce(whole)
        losses.append(whole / processes)
    run = prov.finish()
    found = provnet.explain(run, data, k=3)
    assert run.history is not None
    tensors = {
        "losses": torch.stack(losses),
        "keys": run.network.index_head.keys,
        "index": torch.from_numpy(found.index),
        "count": torch.from_numpy(prov.bank.count),
        "history": torch.from_numpy(run.history),
    }
    save_file({key: value.contiguous() for key, value in tensors.items()}, folder / f"{name}.safetensors")


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    try:
        main(Path(sys.argv[1]), os.environ["RANK"])
    finally:
        dist.destroy_process_group()

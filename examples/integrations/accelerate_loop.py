"""A loop of Hugging Face Accelerate: attach before `prepare`, and give the loader to it like any other.

accelerate launch examples/integrations/accelerate_loop.py
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader

import provnet
from provnet.runs.run import Run


def main(epochs: int = 2, limit: int | None = None) -> Run:
    """Train with gradient accumulation, then finish."""
    accelerator = Accelerator(gradient_accumulation_steps=2)
    data = provnet.open_data("embedded", limit=limit)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
    prov = provnet.attach(model, data)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    loader = DataLoader(prov.dataset(), batch_size=32, shuffle=True)
    wrapped, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for _ in range(epochs):
        for x, y, index in loader:
            with accelerator.accumulate(wrapped):
                loss = F.cross_entropy(wrapped(x), y) + prov.loss(index)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
    return prov.finish()


if __name__ == "__main__":
    print(main())

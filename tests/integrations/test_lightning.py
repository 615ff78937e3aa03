"""Lightning itself: two lines for its user, fifty steps, accumulation, bf16, and a training that goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader

import provnet
from provnet.attached.provenance import Provenance
from provnet.base.errors import UsageError
from tests.attached.made import attach, cnn, train

LIMIT = 80


class Classifier(pl.LightningModule):
    """A module as its owner wrote it: it knows nothing of an index."""

    def __init__(self, model: nn.Module, optimizer: Any = torch.optim.AdamW) -> None:
        super().__init__()
        self.model, self.optimizer = model, optimizer

    def training_step(self, batch: Any, number: int) -> Tensor:
        x, y = batch
        loss = F.cross_entropy(self.model(x), y)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> Any:
        return self.optimizer(self.parameters(), 2e-3)


def go(folder: Path, steps: int = 50, resume: str | None = None, **given: Any) -> tuple[Provenance, nn.Module]:
    torch.manual_seed(0)
    model = cnn()
    prov = attach(model, provnet.open_data("embedded", limit=LIMIT))
    trainer = pl.Trainer(
        max_steps=steps, accelerator="cpu", devices=1, default_root_dir=folder, logger=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[prov.for_lightning()], **given,
    )  # fmt: skip
    torch.manual_seed(0)
    trainer.fit(Classifier(model), DataLoader(prov.dataset(), batch_size=16, shuffle=True), ckpt_path=resume)
    trainer.save_checkpoint(folder / f"{steps}.ckpt")
    return prov, model


def test_fifty_steps(tmp_path: Path) -> None:
    prov, _ = go(tmp_path)
    run = prov.finish()
    assert prov.bank.count.sum() == 50 * 16
    found = provnet.explain(run, prov.data, k=1)
    assert found.index[:, 0].tolist() == list(range(LIMIT))
    assert run.history is not None and run.history[-1].mean() < run.history[0].mean()


def test_it_does_what_a_plain_loop_does(tmp_path: Path) -> None:
    prov, model = go(tmp_path, 10)
    other = cnn()
    plain = attach(other, prov.data)
    train(other, plain)
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, two)


@pytest.mark.parametrize("given", [{"accumulate_grad_batches": 2}, {"precision": "bf16-mixed"}])
def test_ways_to_train(tmp_path: Path, given: dict[str, Any]) -> None:
    prov, _ = go(tmp_path, **given)
    assert len(provnet.explain(prov.finish(), prov.data, k=1)) == LIMIT


def test_accumulated_steps_are_those_of_one_large_batch(tmp_path: Path) -> None:
    data = provnet.open_data("embedded", limit=32)
    ends = []
    for batch, times in ((16, 2), (32, 1)):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(784, 8), nn.ReLU(), nn.Linear(8, 10))
        prov = attach(model, data, weight=1.0)
        trainer = pl.Trainer(
            max_epochs=1, accelerator="cpu", devices=1, default_root_dir=tmp_path, logger=False,
            enable_progress_bar=False, enable_model_summary=False, callbacks=[prov.for_lightning()],
            accumulate_grad_batches=times, enable_checkpointing=False,
        )  # fmt: skip
        prov.bank.keys.copy_(F.normalize(torch.randn(32, 8, generator=torch.Generator().manual_seed(3)), dim=1))
        prov.bank.count += 1
        prov.bank._learn = lambda _: None  # type: ignore[method-assign]  # nor statistics
        prov.bank.settle = lambda **_: None  # type: ignore[method-assign]  # keys move between two steps of one
        trainer.fit(Classifier(model, torch.optim.SGD), DataLoader(prov.dataset(), batch_size=batch))
        ends.append([one.detach().clone() for one in model.parameters()])
    for one, two in zip(*ends, strict=True):
        torch.testing.assert_close(one, two, atol=1e-6, rtol=0)


def test_a_checkpoint_of_lightning_has_the_keys(tmp_path: Path) -> None:
    whole, _ = go(tmp_path / "whole", 20)
    go(tmp_path / "part", 10)
    part, _ = go(tmp_path / "part", 20, resume=str(tmp_path / "part/10.ckpt"))
    one, two = whole.state_dict(), part.state_dict()
    assert one["count"].sum() == two["count"].sum() == 20 * 16  # ten of these are from the first half
    part.finish()


def test_a_batch_without_an_index(tmp_path: Path) -> None:
    model = cnn()
    prov = attach(model, provnet.open_data("embedded", limit=LIMIT))
    trainer = pl.Trainer(
        max_steps=2, accelerator="cpu", devices=1, default_root_dir=tmp_path, logger=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[prov.for_lightning()],
    )  # fmt: skip
    images = [torch.zeros(1, 28, 28)] * 8
    pairs = [(one, 1) for one in images]  # a label is no index
    for given, words in ((images, "got Tensor"), (pairs, r"\[x, y, index\], got 2 parts")):
        with pytest.raises(UsageError, match=f"must end with the index, .*{words}"):
            trainer.fit(Classifier(model), DataLoader(given, batch_size=4))  # type: ignore[arg-type]


def test_samples_without_labels(tmp_path: Path) -> None:
    class Learner(Classifier):
        def training_step(self, batch: Any, number: int) -> Tensor:
            (x,) = batch
            out: Tensor = self.model(x).var()
            return out

    model, bare = cnn(), provnet.open_data(provnet.open_data("embedded", limit=LIMIT).images)
    prov = attach(model, bare)
    trainer = pl.Trainer(
        max_epochs=1, accelerator="cpu", devices=1, default_root_dir=tmp_path, logger=False, enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=False, callbacks=[prov.for_lightning()],
    )  # fmt: skip
    trainer.fit(Learner(model), DataLoader(prov.dataset(), batch_size=16, shuffle=True))
    assert prov.finish().explain(bare, k=1).index[:, 0].tolist() == list(range(LIMIT))

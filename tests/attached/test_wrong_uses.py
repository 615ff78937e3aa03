"""Wrong uses of attach, one line each: who does it, and what the error says. Every one names what to do instead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import provnet
from provnet.attached.provenance import Provenance, index
from provnet.base.errors import DataError, IntegrityError, NonFiniteError, ProvnetError, UsageError
from provnet.models.tap import class_scores
from provnet.runs.run import write_run
from tests.attached.made import attach, cnn, loader, mlp, train, vectors

Use = Callable[[Path], Any]


def attached(**given: Any) -> tuple[nn.Module, Provenance]:
    model = mlp()
    return model, attach(model, vectors(), **given)


def step(rows: Any, *, model: nn.Module | None = None, batch: int | None = None, **given: Any) -> Tensor:
    """One step of a loop that gives `rows` as index."""
    own = model or mlp()
    prov = attach(own, vectors(), **given)
    own(prov.data.images[: len(rows) if batch is None else batch])
    return prov.loss(rows)


class Stateless(nn.Module):
    """Features that depend on the company of a sample."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.last = nn.BatchNorm1d(6, track_running_stats=False), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        """(B, 6) -> (B, 3)."""
        out: Tensor = self.last(self.norm(x))
        return out


class Company(Stateless):
    """As if all were asked for together."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, 6) -> (B, 3)."""
        out: Tensor = self.last(x - x.mean(0))
        return out


class Twice(nn.Module):
    """One layer, used twice in a pass."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.last = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        """(B, 6) -> (B, 3)."""
        out: Tensor = self.last(self.layer(self.layer(x)))
        return out


class Gives(nn.Module):
    """A model that gives something else than class scores."""

    def __init__(self, given: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.layer, self.given = nn.Linear(6, 3), given

    def forward(self, x: Tensor) -> Any:
        """Whatever it was made to give."""
        return self.given(self.layer(x))


def no_forward(_: Path) -> Any:
    _, prov = attached()
    return prov.loss(torch.arange(4))


def twice_for_one_batch(_: Path) -> Any:
    model, prov = attached()
    model(prov.data.images[:4])
    prov.loss(torch.arange(4))
    return prov.loss(torch.arange(4))


def evaluation_mode(_: Path) -> Any:
    model, prov = attached()
    model.eval()(prov.data.images[:4])
    return prov.loss(torch.arange(4))


def no_grad(_: Path) -> Any:
    model, prov = attached()
    with torch.no_grad():
        model(prov.data.images[:4])
        return prov.loss(torch.arange(4))


def frozen(_: Path) -> Any:
    model, prov = attached()
    for one in model[0].parameters():  # type: ignore[index]
        one.requires_grad_(False)
    model(prov.data.images[:4])
    return prov.loss(torch.arange(4))


def not_finite(_: Path) -> Any:
    model, prov = attached()
    with torch.no_grad():
        model[0].weight[0, 0] = torch.nan  # type: ignore[index]
    model(prov.data.images[:4])
    return prov.loss(torch.arange(4))


def half_precision(_: Path) -> Any:
    model, prov = attached()
    with torch.no_grad():
        model[0].weight.mul_(1e5)  # type: ignore[index]
    model.half()(prov.data.images[:4].half())
    prov._check.steps = 9
    return prov.loss(torch.arange(4))


def finished_twice(_: Path) -> Any:
    model, prov = attached()
    train(model, prov)
    prov.finish()
    return prov.finish()


def loss_after_finish(_: Path) -> Any:
    model, prov = attached()
    train(model, prov)
    prov.finish()
    model(prov.data.images[:4])
    return prov.loss(torch.arange(4))


def never_seen(_: Path) -> Any:
    model, prov = attached()
    for rows in torch.arange(39).split(13):
        (model(prov.data.images[rows]).sum() + prov.loss(rows)).backward()
    return prov.finish()


def saved_before_finish(folder: Path) -> Any:
    return write_run(attached()[1], folder / "run")  # type: ignore[arg-type]


def changed_sample(_: Path) -> Any:
    _, prov = attached()
    prov.data.images[3] += 1
    return list(loader(prov))


def changed_before_finish(_: Path) -> Any:
    model, prov = attached()
    train(model, prov)
    prov.data.images[3] += 1
    return prov.finish()


def other_state(_: Path) -> Any:
    _, prov = attached()
    other = attach(mlp(), vectors(30))
    return prov.load_state_dict(other.state_dict())


def state_of_another_layer(_: Path) -> Any:
    _, prov = attached()
    return prov.load_state_dict(attach(mlp(), vectors(), at="0").state_dict())


def trained_on_since(_: Path) -> Any:
    model, data = mlp(), vectors()
    run = index(model, data)
    train(model, attach(model, data))
    return provnet.explain(run, data, k=1)


def bytes_fed(_: Path) -> Any:
    data = provnet.open_data("embedded", limit=40)
    prov = attach(model := cnn(), data)
    model(data.images[:4].float())  # 0..255, not 0..1
    return prov.loss(torch.arange(4))


def normalised_elsewhere(_: Path) -> Any:
    data = provnet.open_data("embedded", limit=40)
    prov = attach(model := cnn(), data)
    model((data.images[:8].float() / 255 - 0.13) / 0.31)
    return prov.loss(torch.arange(8))


def in_a_worker(_: Path) -> Any:
    """A worker process sees the change, and what it raises arrives."""
    _, prov = attached()
    prov.data.images[3] += 1
    return list(DataLoader(prov.dataset(), batch_size=8, num_workers=1))


def wrapped_afterwards(_: Path) -> Any:
    """As peft does: what it wraps is called by its forward, not as a module."""
    model, prov = attached()

    class Around(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, x: Tensor) -> Any:
            """Without the hooks of `inner`."""
            return self.inner.forward(x)

    Around()(prov.data.images[:4])
    return prov.loss(torch.arange(4))


def random_transform(_: Path) -> Any:
    return index(mlp(), vectors(), transform=lambda x: x + torch.randn(6) * 1e-3)


def of_shapes(_: Path) -> Any:
    return index(mlp(), vectors(), transform=lambda x: x[: 5 + int(x[0] > -1)])


def no_classes(_: Path) -> Any:
    return attach(mlp(classes=7), vectors())


def sequence(pool: Any = None) -> Use:
    layers = nn.Sequential(nn.Unflatten(1, (3, 2)), nn.Linear(2, 5), nn.Flatten(), nn.Linear(15, 3))
    return lambda _: attach(layers, vectors(), at="1", pool=pool)


WRONG: dict[str, tuple[Use, type[ProvnetError], str]] = {
    # where
    "a layer that is not there": (
        lambda _: attach(mlp(), vectors(), at="layer1"), UsageError, 'no module "layer1".*last ones are: 0, 1, 2'),
    "a layer misspelt": (
        lambda _: attach(nn.Sequential(mlp()), vectors(), at="0,1"), UsageError, 'Did you mean "0.1"'),
    "a module of another model": (
        lambda _: attach(mlp(), vectors(), at=nn.Linear(2, 2)), UsageError, "no part of the model"),
    "a number for a layer": (
        lambda _: attach(mlp(), vectors(), at=1), UsageError, 'at must be "auto", the name'),  # type: ignore[arg-type]
    "the class scores": (lambda _: attach(mlp(), vectors(), at="2"), UsageError, "class scores themselves"),
    "the whole classifier": (lambda _: attach(mlp(), vectors(), at=""), UsageError, "names the whole model"),
    "its output by a function": (
        lambda _: attach(mlp(), vectors(), at=lambda out: out), UsageError, "class scores themselves"),
    "a sequence without a pooling": (sequence(), UsageError, "is a sequence.*pool=mean, cls, last"),
    "an unknown pooling": (sequence("max"), UsageError, 'unknown pool "max"'),
    "a pooling that leaves a sequence": (sequence(lambda x: x), UsageError, "pool= must give one row"),
    "a layer used twice": (lambda _: attach(Twice(), vectors(), at="layer"), UsageError, "ran 2 times"),
    "a layer never used": (
        lambda _: attach(_unused(), vectors(), at="1.spare"), UsageError, "did not run"),
    "no linear layer": (
        lambda _: attach(nn.Sequential(nn.Unflatten(1, (6, 1, 1)), nn.Conv2d(6, 3, 1), nn.Flatten()), vectors()),
        UsageError, "no linear layer gives this model's 3 class scores"),
    # the model
    "a class, not a model": (lambda _: attach(nn.Linear, vectors()), UsageError, "nn.Module that was made"),  # type: ignore[arg-type]
    "DataParallel": (lambda _: attach(nn.DataParallel(mlp()), vectors()), UsageError, "use DistributedDataParallel"),
    "features that depend on the batch": (lambda _: attach(Company(), vectors()), UsageError, "alone and in a batch"),
    "statistics of a batch of one": (
        lambda _: attach(Stateless(), vectors()), UsageError, "does not take torch.float32 of shape"),
    "other classes": (no_classes, UsageError, "gives 7 class scores, the data have 3.*class_names"),
    "no class scores": (lambda _: attach(Gives(lambda x: [1]), vectors()), UsageError, "looks for class scores"),
    "scores of every position": (
        lambda _: attach(Gives(lambda x: x.unsqueeze(1)), vectors()), UsageError, "one row for each sample"),
    "a model that was trained on since": (trained_on_since, IntegrityError, "weights have changed"),
    "a model wrapped afterwards": (wrapped_afterwards, UsageError, "after it is wrapped"),
    # settings
    "a weight below 0": (lambda _: attached(weight=-1), UsageError, "weight must be a number from 0 up"),
    "a weight that is none": (lambda _: attached(weight="0.1"), UsageError, "weight must be a number"),
    "unknown groups": (lambda _: attached(groups="scene"), UsageError, 'groups must be "class" or None'),
    "a share of negatives": (lambda _: attached(negatives=0.5), UsageError, "whole number of keys"),
    "a transform that is none": (lambda _: attached(transform="norm"), UsageError, "must be a function of one stored"),
    "a transform that draws": (random_transform, UsageError, "make it deterministic"),
    "a transform of many shapes": (of_shapes, UsageError, "samples of different shapes"),
    "an unknown policy": (lambda _: attached()[1].dataset("strong"), UsageError, 'unknown augment policy "strong"'),
    "an augment that transforms": (
        lambda _: attached()[1].dataset(lambda x: x.double())[0], UsageError, "augment must give what it is given"),
    "a name for data": (lambda _: attach(mlp(), "mnist"), UsageError, "open them first"),  # type: ignore[arg-type]
    "no data": (lambda _: attach(mlp(), vectors().select(np.arange(0))), DataError, "no samples to attach to"),
    # a step
    "a float index": (lambda _: step(torch.arange(4.0)), UsageError, "int64 numbers.*float32"),
    "a bool index": (lambda _: step(torch.ones(4, dtype=torch.bool)), UsageError, "int64 numbers.*bool"),
    "an index of shape (B, 1)": (lambda _: step(torch.arange(4)[:, None]), UsageError, r"int64 of shape \(4, 1\)"),
    "the ids": (lambda _: step(["train/0", "train/1"]), UsageError, "int64 numbers of the batch's samples"),
    "an index out of range": (lambda _: step(torch.tensor([0, 40])), UsageError, r"must lie in 0\.\.39.*got 40"),
    "a negative index": (lambda _: step(torch.tensor([0, -1])), UsageError, "got -1"),
    "another batch": (lambda _: step(torch.arange(4), batch=5), UsageError, "names 4 samples.* had 5"),
    "no forward pass": (no_forward, UsageError, "made no forward pass"),
    "one forward pass, two losses": (twice_for_one_batch, UsageError, "once for each call"),
    "evaluation mode": (evaluation_mode, UsageError, r"call model\.train\(\)"),
    "no gradients": (no_grad, UsageError, "weight=0"),
    "frozen below": (frozen, UsageError, "frozen.*weight=0"),
    "NaN": (not_finite, NonFiniteError, "hold NaN or infinity.*no key was moved"),
    "half precision": (half_precision, NonFiniteError, "use bfloat16"),
    "bytes fed as floats": (bytes_fed, UsageError, "transform="),
    "normalised elsewhere": (normalised_elsewhere, UsageError, "spread.*transform="),
    # samples
    "a sample changed while training": (changed_sample, DataError, '"train/3" has changed since it was opened'),
    "a sample changed in a worker": (in_a_worker, DataError, "has changed since it was opened"),
    "a sample changed before finish": (changed_before_finish, DataError, '"train/3" has changed'),
    "a sample never seen": (never_seen, UsageError, '1 of 40 samples were never in a batch: "train/39".*select'),
    "a data set with fewer samples": (lambda _: attached()[1].dataset()[40], IndexError, "numbered from 0 to 39"),  # type: ignore[dict-item]
    # the end
    "finish twice": (finished_twice, UsageError, "was finished before"),
    "a loss after finish": (loss_after_finish, UsageError, "attach the model again"),
    "save before finish": (saved_before_finish, UsageError, "expected a run, got Provenance"),
    "a state of other data": (other_state, IntegrityError, "of other training data"),
    "a state of another layer": (state_of_another_layer, UsageError, "was made at the output of 0"),
    "the user's own state": (
        lambda _: attached()[1].load_state_dict(mlp().state_dict()), UsageError, r"no state of prov.state_dict\(\)"),
}  # fmt: skip


def _unused() -> nn.Module:
    class Spare(nn.Linear):
        def __init__(self) -> None:
            super().__init__(12, 3)
            self.spare = nn.Linear(2, 2)

    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 12), Spare())


@pytest.mark.parametrize("use", WRONG)
def test_wrong_uses_are_refused_in_words(use: str, tmp_path: Path) -> None:
    do, kind, words = WRONG[use]
    with pytest.raises(kind, match=f"(?s){words}") as caught:
        do(tmp_path)
    if "worker" not in use:  # which brings its own trace along
        assert "\n" not in str(caught.value)


def test_there_are_forty() -> None:
    assert len(WRONG) >= 40


def test_no_key_is_moved_by_a_step_that_was_refused() -> None:
    model, prov = attached()
    for rows in torch.arange(40).split(20):
        (model(prov.data.images[rows]).sum() + prov.loss(rows)).backward()
    before = prov.state_dict()["keys"]
    for do, _, _ in (WRONG["NaN"], WRONG["another batch"]):
        with pytest.raises(ProvnetError):
            do(Path())
    model(prov.data.images[:5])
    with pytest.raises(UsageError):
        prov.loss(torch.arange(4))
    assert torch.equal(prov.state_dict()["keys"], before)


@pytest.mark.parametrize(
    "given",
    [torch.zeros(2, 3), {"logits": torch.zeros(2, 3)}, (torch.tensor(0.5), torch.zeros(2, 3)), torch.zeros(2, 1)],
)
def test_forms_of_class_scores(given: Any) -> None:
    assert class_scores(given).shape[0] == 2


def test_a_binary_score_is_that_of_the_second_class() -> None:
    rows = torch.randn(30, 6)
    data = provnet.open_data(rows.numpy(), [i % 2 for i in range(30)])
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))
    found = provnet.explain(index(model, data), data, k=1)
    with torch.no_grad():
        due = torch.sigmoid(model(data.images)[:, 0])
    assert found.predicted.tolist() == (due > 0.5).long().tolist()
    sure = torch.from_numpy(found.confidence)
    torch.testing.assert_close(sure, torch.maximum(due, 1 - due))

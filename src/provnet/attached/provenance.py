"""Provenance: any model names its training samples, by two lines in anybody's training loop, or one afterwards.

    data = provnet.open_data("photos/")
    prov = provnet.attach(model, data)
    for x, y, index in DataLoader(prov.dataset(), batch_size=64, shuffle=True):
        loss = criterion(model(x), y) + prov.loss(index)
        ...
    run = prov.finish()

Model, loss, optimiser and schedule stay the user's: nothing here has parameters, and the hooks only look.

Letters: B batch, C classes, D features, N samples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, final

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from provnet.attached.bank import MOST, Bank
from provnet.attached.build import build_around, test_split
from provnet.attached.finish import make_run
from provnet.attached.samples import Augment, IndexedSamples
from provnet.attached.steps import StepCheck
from provnet.base.errors import IntegrityError, UsageError
from provnet.base.files import shown
from provnet.data.dataset import Dataset
from provnet.models.attached import AttachedNet, Transform
from provnet.models.tap import Reader, Tap
from provnet.runs.run import Run

WEIGHT = 0.03  # of the index loss beside the user's own: see docs/your-model.md
NAMED = 5  # samples in an error
At = str | nn.Module | Callable[[Any], Tensor]


def attach(
    model: nn.Module,
    data: Dataset,
    at: At = "auto",
    *,
    pool: str | Reader | None = None,
    transform: Transform | None = None,
    weight: float = WEIGHT,
    groups: str | None = None,
    negatives: int | None = None,
) -> Provenance:
    """Attach provenance to a model that you train in a loop of your own.

    Args:
        model: gives class scores: a tensor (B, C), something with `.logits`, or a tuple that holds them.
        data: the training samples, from `provnet.open_data`.
        at: where its features are read: "auto" (what the last linear layer is given), the dotted name of a module, a
            module, or a function of the model's output.
        pool: how a sequence of features becomes one row for each sample: "mean" (without padding), "cls", "last", or
            a function.
        transform: from a stored sample to the model's input, deterministic; default: pictures in 0..1, all else as is.
        weight: of the index loss; with 0 `loss` only records.
        groups: "class" looks for samples among those of the predicted class; default: among all.
        negatives: tell a sample from so many keys, another part of them in each step; None: from all, up to 262,144.

    >>> import provnet
    >>> data = provnet.open_data("embedded", limit=40)
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(784, 16), nn.ReLU(), nn.Linear(16, 10))
    >>> prov = attach(model, data)
    >>> prov.at
    'the input of 3'
    >>> optimizer = torch.optim.SGD(model.parameters(), 0.1)
    >>> for x, y, index in torch.utils.data.DataLoader(prov.dataset(), batch_size=20, shuffle=True):
    ...     loss = F.cross_entropy(model(x), y) + prov.loss(index)
    ...     loss.backward()
    ...     optimizer.step()
    >>> prov.finish().explain(data.images[:2], k=3).index[:, 0].tolist()
    [0, 1]
    """
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < float("inf"):
        raise UsageError(f"weight must be a number from 0 up, got {weight!r:.80}; 0 only records")
    if negatives is not None and (isinstance(negatives, bool) or not isinstance(negatives, int) or negatives < 2):
        raise UsageError(f"negatives must be a whole number of keys, 2 or more, or None; got {negatives!r:.80}")
    net = build_around(model, data, at, pool=pool, transform=transform, groups=groups, trained=weight > 0)
    return Provenance(net, data, float(weight), MOST if negatives is None else negatives)


def index(
    model: nn.Module,
    data: Dataset,
    at: At = "auto",
    *,
    pool: str | Reader | None = None,
    transform: Transform | None = None,
    groups: str | None = None,
) -> Run:
    """A run of a finished model: its samples are indexed, nothing is trained, its answers stay equal bit for bit.

    The arguments are those of `attach`.

    >>> import provnet
    >>> data = provnet.open_data("embedded", limit=40)
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(784, 16), nn.ReLU(), nn.Linear(16, 10))
    >>> run = index(model, data)
    >>> bool((run.explain(data, k=1).predicted == model(data.images / 255).argmax(1).numpy()).all())
    True
    """
    net = build_around(model, data, at, pool=pool, transform=transform, groups=groups)
    return make_run(net, data, test=test_split(data.spec), whiten=True)


@final
class Provenance:
    """What `attach` gives: the samples to train on, the index loss of a step, and at the end the run."""

    def __init__(self, net: AttachedNet, data: Dataset, weight: float, negatives: int) -> None:
        self.data, self.weight, self.negatives, self.finished = data, weight, negatives, False
        self.model = net.tap.model
        self.bank = Bank(net)
        self._net = net
        self._labels = torch.tensor(data.samples.labels)
        self._tap = Tap(self.model, net.tap.place, function=net.tap.function, pool=net.tap.pool)
        self._check = StepCheck(net, data, trained=weight > 0)
        self._test = test_split(data.spec)  # now: at the end the data may lie elsewhere
        self._tap.hook()

    def __repr__(self) -> str:
        """One line: to what, where, over what."""
        return f"Provenance({type(self.model).__name__}, at {self.at}; {self.data.samples!r})"

    @property
    def at(self) -> str:
        """Where the features are read, in words."""
        return str(self._tap.place)

    def dataset(self, augment: Augment | None = None) -> IndexedSamples:
        """The samples as (x, y, index), after `augment` and `transform`.

        `augment` is a name in POLICIES of provnet.data.modalities.augment, "robust" for that of this kind of sample,
        or a function of one stored sample. Each sample is hashed when it is first fetched.
        """
        return IndexedSamples(self.data, self._net.prepare, augment)

    def for_trainer(self, collator: Any = None, augment: Augment | None = None) -> dict[str, Any]:
        """Arguments for a Hugging Face `Trainer`: train_dataset, data_collator (around yours) and callbacks."""
        from provnet.attached.huggingface import trainer_arguments

        return trainer_arguments(self, collator, augment)

    def for_lightning(self) -> Any:
        """A callback for a Lightning `Trainer`."""
        from provnet.attached.lightning import ProvenanceCallback

        return ProvenanceCallback(self)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def loss(self, index: Any) -> Tensor:
        """The index loss of the batch that the model has just seen, times `weight`: one number, where the model lies.

        It also notes who was seen, the features, and each sample's own loss.
        """
        if self.finished:
            raise UsageError("this training was finished, prov.finish(); attach the model again to go on")
        numbers = self._check.numbers(index)
        taken = self._tap.take()
        if not self._check.step(numbers, taken):
            self.bank.waiting.clear()
            self._check.refuse_not_finite(taken.features.dtype)
        features = taken.features if taken.features.dtype == torch.float64 else taken.features.float()
        self.bank.to(features)
        self.bank.settle()
        reduced = self.bank.reduced(features, learn=True)
        labels = self._labels[numbers]
        with torch.no_grad():
            own = F.cross_entropy(taken.logits.float(), labels.to(taken.logits.device), reduction="none")
        if self.weight == 0:
            self.bank.note(numbers, reduced, own, None)
            return reduced.new_zeros(())
        loss = self.bank.loss(reduced, numbers, labels, self.negatives) * self.weight
        self.bank.note(numbers, reduced, own, loss)
        return loss if loss.dtype == torch.float64 else loss.float()

    def state_dict(self) -> dict[str, Any]:
        """Keys, who was seen, counts and losses: beside the user's own checkpoint, to go on from after a kill."""
        return {**self.bank.state(), "fingerprint": self.data.samples.fingerprint, "at": self.at}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from `state_dict`; a state of other data or another layer is refused."""
        if not isinstance(state, Mapping) or not {"fingerprint", "at"} <= set(state):
            raise UsageError("this is no state of prov.state_dict(); give what that returned")
        then = str(state["fingerprint"])
        if then != self.data.samples.fingerprint:
            raise IntegrityError(
                f"the state is of other training data: fingerprint {then[:12]}, these have "
                f"{self.data.samples.fingerprint[:12]}; attach to the data of then, in their order"
            )
        if state["at"] != self.at:
            raise UsageError(f"the state was made at {state['at']}, this model is attached at {self.at}")
        self.bank.load(state)

    def finish(self) -> Run:
        """All keys in one pass, support calibrated, every hash checked again; the run that explains.

        The model is asked in evaluation mode, and left in its own. Samples that were never seen are an error: what was
        not trained on is not to be named. It can be done once.
        """
        if self.finished:
            raise UsageError("this training was finished before; prov.finish() gives one run, keep it")
        self.bank.settle(all_of_them=True)
        missing = np.flatnonzero(self.bank.count == 0)
        if len(missing):
            ids = ", ".join(f'"{shown(self.data.samples.sample_ids[i])}"' for i in missing[:NAMED])
            more = f" and {len(missing) - NAMED:,} more" if len(missing) > NAMED else ""
            raise UsageError(
                f"{len(missing):,} of {len(self.data):,} samples were never in a batch: {ids}{more}; train on all, or "
                "attach to those that you train on: provnet.attach(model, data.select(rows))"
            )
        how = {"index_weight": self.weight, "steps": self._check.steps, "epochs": len(self.bank.epochs)}
        run = make_run(self._net, self.data, self.bank, how=how, test=self._test, whiten=self.weight == 0)
        self.finished = True
        self._tap.unhook()
        return run

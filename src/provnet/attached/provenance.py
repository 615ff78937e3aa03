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

import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, final

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from provnet.attached.samples import Augment, IndexedSamples, refuse_others
from provnet.attached.steps import MOST, Bank, StepCheck, sent
from provnet.base import __version__
from provnet.base.batches import MOST as MOST_AT_ONCE
from provnet.base.batches import at_once
from provnet.base.errors import DataError, IntegrityError, NonFiniteError, UsageError
from provnet.base.files import shown
from provnet.base.progress import progress_bar
from provnet.data.dataset import Dataset, DataSpec, image_data
from provnet.data.open import has_split
from provnet.heads.index_map import IndexMap
from provnet.influence.of_run import Along
from provnet.models.attached import AttachedNet, Prepare, Transform, described, moved
from provnet.models.backbones import only_asked
from provnet.models.keys import share_keys
from provnet.models.network import NetworkConfig
from provnet.models.tap import Reader, Tap, locate, unwrapped
from provnet.runs.run import Run, RunConfig
from provnet.training.calibration import calibrate, measured_rows

WEIGHT = 0.0  # of the index loss beside the user's own: see docs/your-model.md
NAMED = 5  # samples in an error
FIRST = 2  # samples that the model is asked about when it is attached
BYTES = 255.0
HELD = 2**27  # numbers of features that are kept until their statistics are known
MEASURED = 16_384  # samples for these otherwise
PIECE = 1024  # samples whose keys are set at a time
AT_ONCE = 1024  # samples that a GPU is asked about, where they are small
HELD_KEYS = 262_144  # keys of training that samples look for themselves among
ASKED_TWICE = 4  # samples that transform is held against itself on
SEED = 0  # of the samples that support is measured on
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
    """Attach provenance to a model that you train in your own loop.

    Args:
        model: gives class scores: a tensor (B, C), something with `.logits`, or a tuple that holds them. Where the
            samples have no labels it may give anything.
        data: the training samples, from `provnet.open_data`.
        at: where its features are read: "auto" (the input of the last linear layer, of a model of texts the mean of its
            last hidden states), the dotted name of a module, a module, or a function of the model's output.
        pool: how a sequence of features becomes one row for each sample: "mean" (without padding), "cls", "last", or
            a function.
        transform: from a stored sample to the model's input, deterministic; default: pictures in 0..1, all else as is.
        weight: of the index loss; with 0, the default, `loss` only records, and the training is your own, bit for bit.
        groups: "class" looks for samples among those of the predicted class; default: among all.
        negatives: how many keys a sample is compared with in a step, drawn each time; None: all, up to 262,144.

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
    net = build_around(model, data, at, pool=pool, transform=transform, groups=groups)
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
    """A run of a trained model: its samples are indexed, nothing is trained, and its answers do not change by a bit.

    The arguments are those of `attach`.

    >>> import provnet
    >>> data = provnet.open_data("embedded", limit=40)
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(784, 16), nn.ReLU(), nn.Linear(16, 10))
    >>> run = index(model, data)
    >>> bool((run.explain(data, k=1).predicted == model(data.images / 255).argmax(1).numpy()).all())
    True
    """
    net = build_around(model, data, at, pool=pool, transform=transform, groups=groups)
    return make_run(net, data, test=test_split(data.spec))


@final
class Provenance:
    """What `attach` returns: the samples to train on, the index loss of a step, and at the end the run."""

    def __init__(self, net: AttachedNet, data: Dataset, weight: float, negatives: int) -> None:
        self.data, self.weight, self.negatives, self.finished = data, weight, negatives, False
        self.model = net.tap.model
        self.bank = Bank(net, pulls=weight > 0)
        self._net = net
        self._along: Along | None = None
        self._labels = None if data.samples.grouping is None else torch.tensor(data.samples.labels)
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

    def keep_snapshots(self) -> Provenance:
        """Keep weights along the training, so that the run's influence comes from all of it; call it before the loop.

        They take as much memory as half of the model, seven times or less; `finish` puts them into the run.
        """
        self._along = self._along or Along(self._net, len(self.data))
        return self

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
        if self._along is not None:
            self._along.note(len(numbers))
        self.bank.settle()
        labels, own = self._own_losses(taken.logits, numbers)
        if not self.bank.pulls:
            self.bank.note(numbers, None, own, None)
            return taken.features.new_zeros((), dtype=torch.float32)
        features = taken.features if taken.features.dtype == torch.float64 else taken.features.float()
        self.bank.to(features)
        reduced = self.bank.reduced(features, learn=True)
        loss = self.bank.loss(reduced, numbers, labels, self.negatives) * self.weight
        self.bank.note(numbers, reduced, own, loss)
        return loss if loss.dtype == torch.float64 else loss.float()

    @torch.no_grad()
    def _own_losses(self, logits: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """(B,) labels and each sample's own loss, where the model lies; NaN without labels."""
        there = sent(numbers, logits.device)
        if self._labels is None:
            return torch.zeros_like(there), logits.new_full((len(numbers),), torch.nan, dtype=torch.float32)
        self._labels = self._labels.to(logits.device)
        labels = self._labels[there]
        return labels, F.cross_entropy(logits.float(), labels, reduction="none")

    def state_dict(self) -> dict[str, Any]:
        """Keys, who was seen, counts and losses: beside the user's own checkpoint, to go on from after a kill."""
        along = {} if self._along is None else {"along": self._along.state()}
        return {**self.bank.state(), **along, "fingerprint": self.data.samples.fingerprint, "at": self.at}

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
        if "along" in state:
            self._along = Along(self._net, len(self.data), state["along"])
        self.bank.load({name: value for name, value in state.items() if name != "along"})

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
        run = make_run(self._net, self.data, self.bank, how=how, test=self._test)
        run = run if self._along is None else replace(run, snapshots=self._along.finished())
        self.finished = True
        self._tap.unhook()
        return run


# from a model and its samples to a network


def build_around(
    model: nn.Module,
    data: Dataset,
    at: Any = "auto",
    *,
    pool: str | Reader | None = None,
    transform: Transform | None = None,
    groups: str | None = None,
) -> AttachedNet:
    """The network that names samples of the data by the features of a model; its keys are not set yet.

    Samples without labels are one group, and the model may give anything: no class scores are read.

    >>> import provnet
    >>> data = provnet.open_data("embedded", limit=20)
    >>> build_around(nn.Sequential(nn.Flatten(), nn.Linear(784, 10)), data).index_head.keys.shape
    torch.Size([20, 512])
    """
    image_data("the training data", data)
    if len(data) == 0:
        raise DataError("there are no samples to attach to; open some")
    if groups not in (None, "class"):
        raise UsageError(f'groups must be "class" or None (among all samples), got {groups!r:.80}')
    if transform is not None and not callable(transform):
        raise UsageError(f"transform must be a function of one stored sample, got {transform!r:.80}")
    if transform is not None and data.items is not None:
        raise UsageError(
            "transform= is for one tensor per sample; what makes inputs of samples of modality "
            f"{data.modality.name} is that modality"
        )
    scores = data.samples.grouping is not None
    if groups is not None and not scores:
        raise UsageError("groups= looks among the samples of a class, and these samples have no labels; leave it out")
    own = unwrapped(model)
    if next(own.parameters(), None) is None:
        raise UsageError(f"the {type(own).__name__} has no parameters; give a model that learns, or has learned")
    scale = BYTES if data.inputs.dtype == torch.uint8 else 1.0
    prepare = Prepare(data.inputs.dtype, scale, transform, None if data.items is None else data.modality)
    rows = torch.arange(FIRST) % len(data)
    inputs = moved(prepare(data.inputs[rows]), next(own.parameters()).device)
    tap = locate(own, inputs, at, pool, scores=scores)
    with only_asked(own):
        taken = tap.read(inputs)
    classes = len(data.class_names) if scores else 1
    if taken.logits.shape[1] != classes:
        raise UsageError(
            f"the model gives {taken.logits.shape[1]} class scores, the data have {classes} classes; give all "
            "names in the order of the model's scores, open_data(..., class_names=[...]), or another last layer"
        )
    index_map = IndexMap(data.samples.labels if scores else np.zeros(len(data), np.int64), classes)
    return AttachedNet(tap, taken.features.shape[1], index_map, prepare, conditional=groups is not None)


def test_split(spec: DataSpec) -> DataSpec | None:
    """How to open the test split of a source, where it has one."""
    with suppress(UsageError):  # the source may have been moved since it was opened
        if spec.split == "train" and has_split(spec, "test"):
            return replace(spec, split="test")
    return None


# from the network to a run


def make_run(
    net: AttachedNet,
    data: Dataset,
    bank: Bank | None = None,
    *,
    how: Mapping[str, Any] | None = None,
    test: DataSpec | None = None,
) -> Run:
    """The run of a model; `bank` holds the keys of training, None where nothing was trained."""
    _refuse_random(net, data)
    net.eval().to(next(net.tap.model.parameters()).device)
    sha256 = net.freeze()
    known = _set_keys(net, data, bank)
    support = calibrate(net, data.inputs, seed=SEED, modality=data.modality, known=known)
    config = RunConfig(
        _network(net, data, sha256),
        data=data.spec,
        test=test,
        training={
            "attached": dict(how or {}),
            "data": {"samples": len(data), "fingerprint": data.samples.fingerprint},
        },
        support=support,
        versions={"provnet": __version__, "torch": torch.__version__, "python": platform.python_version()},
    )
    return Run(net, config, data.samples, None if bank is None else bank.history())


def _set_keys(net: AttachedNet, data: Dataset, bank: Bank | None) -> tuple[Tensor, ...]:
    """Set every key to the features of its sample; note how many samples the keys of training find.

    Gives features, and looks of pictures, of the samples that support is measured on: nobody asks for them again.
    """
    head, n, features = net.index_head, len(data), int(net.support.mean.shape[1])
    few = n * features <= HELD
    looked = torch.arange(n) if few else torch.arange(0, n, -(-n // MEASURED))
    held = [torch.cat(column) for column in zip(*(given for _, given in _asked(net, data, looked)), strict=True)]
    _refuse_not_finite(held[0])
    net.space.measure(held[0])
    head.open_keys(trained=False)
    measured = measured_rows(net.index_map.labels, SEED)
    place = torch.full((n,), -1).index_copy_(0, measured, torch.arange(len(measured)))
    known = tuple(column.new_empty(len(measured), column.shape[1]) for column in held)
    learned = bank if bank is not None and bank.pulls else None
    parts = zip(torch.split(looked, PIECE), zip(*(torch.split(one, PIECE) for one in held), strict=True), strict=True)
    hits = 0
    for rows, given in parts if few else _asked(net, data, torch.arange(n)):
        if not few:
            _refuse_not_finite(given[0])
        there = rows.to(net.index_map.labels.device)
        head.set_keys(there, net.space(given[0]))
        hits += 0 if learned is None else _found(learned, given[0], there)
        own = place[rows] >= 0
        for column, part in zip(known, given, strict=True):
            column[place[rows][own].to(column.device)] = part[own.to(part.device)]
    head.learned.copy_(torch.tensor([hits, n if learned else 0]))
    share_keys(head, data.samples.groups)
    head.close_keys()
    return known


def _asked(net: AttachedNet, data: Dataset, looked: Tensor) -> Iterator[tuple[Tensor, tuple[Tensor, ...]]]:
    """(rows, features and looks) of some samples; nobody waits for a GPU here, and hashes are made meanwhile."""
    device = next(net.tap.model.parameters()).device
    most = AT_ONCE if device.type == "cuda" else MOST_AT_ONCE
    with progress_bar("keys", len(looked), False) as update:
        for rows in torch.split(looked, at_once(data.shape, device.type, most)):
            with torch.inference_mode():
                seen = net.see(data.inputs[rows].to(device))
            refuse_others(data, rows)
            yield rows, tuple(one.clone() for one in (seen.features, seen.looks) if one is not None)
            update(len(rows), "")


def _refuse_not_finite(features: Tensor) -> None:
    if not bool(torch.isfinite(features).all()):
        raise NonFiniteError("the features of some training samples hold NaN or infinity; check the weights")


def _found(bank: Bank, features: Tensor, index: Tensor) -> int:
    """How many of these samples their own key of training is the nearest to; of many keys, among a part of them."""
    bank.to(features)
    scores = bank.reduced(features) @ bank.keys[:HELD_KEYS].t()
    own = (bank.reduced(features) * bank.keys[bank.rows[index]]).sum(1)
    return int((scores.amax(1) <= own + 1e-6).sum())


def _refuse_random(net: AttachedNet, data: Dataset) -> None:
    """Ask transform twice about the same samples: keys must be those of the very same input later."""
    if net.prepare.transform is None:
        return
    some = data.inputs[torch.arange(min(ASKED_TWICE, len(data)))]
    once, again = (net.prepare(some) for _ in range(2))
    pairs = [(once[name], again[name]) for name in once] if isinstance(once, Mapping) else [(once, again)]
    if not all(torch.equal(one, other) for one, other in pairs):
        raise UsageError(
            "transform gives another input for the same sample each time; make it deterministic, and give what draws "
            "at random to prov.dataset(augment=)"
        )


def _network(net: AttachedNet, data: Dataset, sha256: str) -> NetworkConfig:
    return NetworkConfig(
        "class-conditional" if net.index_head.conditional else "class-independent",
        "custom",
        data.shape,
        net.index_map.classes,
        scale=net.prepare.scale,
        conditional=False,
        head="exemplar",
        attached=described(net, sha256),
    )

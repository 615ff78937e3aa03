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
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, final

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import provnet
from provnet.attached.bank import Bank
from provnet.attached.samples import Augment, IndexedSamples, inputs_of, refuse_others
from provnet.base.batches import at_once
from provnet.base.errors import DataError, IntegrityError, NonFiniteError, UsageError
from provnet.base.files import shown
from provnet.base.progress import progress_bar
from provnet.data.dataset import Dataset, DataSpec, image_data
from provnet.data.open import has_split
from provnet.heads.index_map import IndexMap
from provnet.heads.keys import unit
from provnet.models.attached import AttachedNet, Prepare, Transform, described
from provnet.models.keys import share_keys
from provnet.models.network import NetworkConfig
from provnet.models.tap import Reader, Taken, Tap, locate, rows_of, unwrapped
from provnet.runs.run import Run, RunConfig
from provnet.training.calibration import calibrate

WEIGHT = 0.1  # of the index loss beside the user's own
FIRST = 2  # samples that the model is asked about when it is attached
LOOKED = 3  # steps whose input is held against what the dataset yields
FAR = 2.0  # times as large or as small: another unit
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
    negatives: int = 0,
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
        negatives: tell a sample from so many drawn keys instead of from all, 0 for all.

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
    >>> provnet.explain(prov.finish(), data.images[:2], k=3).index[:, 0].tolist()
    [0, 1]
    """
    return Provenance(
        model, data, at, pool=pool, transform=transform, weight=weight, groups=groups, negatives=negatives
    )


def index(
    model: nn.Module,
    data: Dataset,
    at: At = "auto",
    *,
    pool: str | Reader | None = None,
    transform: Transform | None = None,
    groups: str | None = None,
) -> Run:
    """A run of a model that is finished: its samples are indexed, nothing is trained, its answers stay equal bit for bit.

    The arguments are those of `attach`.

    >>> data = provnet.open_data("embedded", limit=40)
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(784, 16), nn.ReLU(), nn.Linear(16, 10))
    >>> run = index(model, data)
    >>> bool((provnet.explain(run, data.images, k=1).predicted == model(data.images / 255).argmax(1).numpy()).all())
    True
    """
    return Provenance(model, data, at, pool=pool, transform=transform, weight=0.0, groups=groups, hooked=False)._run()


@final
class Provenance:
    """What `attach` gives: the samples to train on, the index loss of a step, and at the end the run."""

    def __init__(
        self,
        model: nn.Module,
        data: Dataset,
        at: At = "auto",
        *,
        pool: str | Reader | None = None,
        transform: Transform | None = None,
        weight: float = WEIGHT,
        groups: str | None = None,
        negatives: int = 0,
        hooked: bool = True,
    ) -> None:
        self.data = image_data("the training data", data)
        if len(data) == 0:
            raise DataError("there are no samples to attach to; open some")
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < float("inf"):
            raise UsageError(f"weight must be a number from 0 up, got {weight!r:.80}; 0 only records")
        if isinstance(negatives, bool) or not isinstance(negatives, int) or negatives < 0:
            raise UsageError(f"negatives must be a whole number of keys, 0 for all; got {negatives!r:.80}")
        if groups not in (None, "class"):
            raise UsageError(f'groups must be "class" or None (among all samples), got {groups!r:.80}')
        if transform is not None and not callable(transform):
            raise UsageError(f"transform must be a function of one stored sample, got {transform!r:.80}")
        if transform is not None and data.items is not None:
            raise UsageError(
                f"transform= is for one tensor per sample; what makes inputs of {data.modality.name} samples is their modality"
            )
        self.weight, self.negatives, self.transform = float(weight), negatives, transform
        self.model = unwrapped(model)
        values = data.inputs
        scale = 255.0 if values.dtype == torch.uint8 else 1.0
        self.prepare = Prepare(values.dtype, scale, transform, None if data.items is None else data.modality)
        first = torch.arange(len(data))[: max(FIRST, 1)]
        first = first.repeat(FIRST)[:FIRST] if len(first) < FIRST else first
        inputs = inputs_of(data, self.prepare, first, self.device)
        tap = locate(self.model, inputs, at, pool)
        with torch.no_grad():
            taken = _asked(tap, inputs)
        names = data.class_names
        if taken.logits.shape[1] != len(names):
            raise UsageError(
                f"the model gives {taken.logits.shape[1]} class scores, the data have {len(names)} classes; give all "
                "names in the order of the model's scores, open_data(..., class_names=[...]), or another last layer"
            )
        index_map = IndexMap(data.samples.labels, len(names))
        self._net = AttachedNet(tap, taken.features.shape[1], index_map, self.prepare, conditional=groups is not None)
        self._trunk = self._net.index_trunk
        self._labels = torch.tensor(data.samples.labels)
        self.bank = Bank(self._net.index_head)
        self._tap = Tap(self.model, tap.place, function=tap.function, pool=tap.pool)
        self._steps, self._doubt = 0, torch.ones((), dtype=torch.bool)
        self.finished = False
        self._test = _test_split(data.spec)  # now: at the end the data may lie elsewhere
        if hooked:
            self._tap.hook()

    def __repr__(self) -> str:
        """One line: to what, where, over what."""
        return f"Provenance({type(self.model).__name__}, at {self.at}; {self.data.samples!r})"

    @property
    def at(self) -> str:
        """Where the features are read, in words."""
        return str(self._tap.place)

    @property
    def device(self) -> torch.device:
        """Where the model lies."""
        return next((one.device for one in self.model.parameters()), torch.device("cpu"))

    def dataset(self, augment: Augment | None = None) -> IndexedSamples:
        """The samples as (x, y, index), or (x, index) without labels, after `augment` and `transform`.

        `augment` is a name in POLICIES of provnet.data.modalities.augment, "robust" for that of this kind of sample,
        or a function of one stored sample. Each sample is hashed when it is first fetched.
        """
        return IndexedSamples(self.data, self.prepare, augment)

    def for_trainer(self, collator: Any = None, augment: Augment | None = None) -> dict[str, Any]:
        """Arguments for a Hugging Face `Trainer`: train_dataset, data_collator (around yours) and callbacks."""
        from provnet.attached.huggingface import trainer_arguments

        return trainer_arguments(self, collator, augment)

    def for_lightning(self) -> Any:
        """A callback for a Lightning `Trainer`."""
        from provnet.attached.lightning import ProvenanceCallback

        return ProvenanceCallback(self)

    @torch.compiler.disable
    def loss(self, index: Any) -> Tensor:
        """The index loss of the batch that the model has just seen, times `weight`; () float32, on the model's device.

        It also notes who was seen, the features, and each sample's own loss.
        """
        if self.finished:
            raise UsageError("this training was finished, prov.finish(); attach the model again to go on")
        numbers = self._numbers(index)
        taken = self._tap.take()
        self._check(numbers, taken)
        features = taken.features if taken.features.dtype == torch.float64 else taken.features.float()
        reduced = F.normalize(self._trunk.to(features.device).body(features), dim=1)
        self.bank.to(reduced)
        self.bank.settle()
        labels = self._labels[numbers]
        with torch.no_grad():
            own = F.cross_entropy(taken.logits.float(), labels.to(taken.logits.device), reduction="none")
        if self.weight == 0:
            loss = reduced.new_zeros(())
            self.bank.note(numbers, reduced, own, None)
            return loss
        loss = self.bank.loss(reduced, numbers, labels, self.negatives) * self.weight
        self.bank.note(numbers, reduced, own, loss)
        return loss if loss.dtype == torch.float64 else loss.float()

    def state_dict(self) -> dict[str, Any]:
        """Keys, who was seen, counts and losses: beside the user's own checkpoint, so that a training can be resumed."""
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
        run = self._run(self.bank.keys, self.bank.history())
        self.finished = True
        self._tap.unhook()
        return run

    # what a step is checked for

    def _numbers(self, index: Any) -> Tensor:
        """(B,) int64 on the CPU."""
        if isinstance(index, np.ndarray):
            index = torch.from_numpy(index)
        if isinstance(index, list | tuple) and index and all(isinstance(i, int | np.integer) for i in index):
            index = torch.tensor([int(i) for i in index])
        if not isinstance(index, Tensor) or index.dtype != torch.int64 or index.ndim != 1 or len(index) == 0:
            given = f"{index.dtype} of shape {tuple(index.shape)}" if isinstance(index, Tensor) else f"{index!r:.80}"
            raise UsageError(
                f"index must be the int64 numbers of the batch's samples, (B,), as prov.dataset() yields them; got {given}"
            )
        numbers = index.detach().cpu()
        low, high = int(numbers.min()), int(numbers.max())
        if low < 0 or high >= len(self.data):
            raise UsageError(
                f"index must lie in 0..{len(self.data) - 1}, the samples that the model was attached to; got "
                f"{low if low < 0 else high}. Take it from prov.dataset(), or attach to all samples that you train on"
            )
        return numbers

    def _check(self, numbers: Tensor, taken: Taken) -> None:
        """Refuse a step that would write wrong keys."""
        features = taken.features
        if not self.model.training:
            raise UsageError("the model is in evaluation mode; call model.train() before you train it")
        if len(features) != len(numbers):
            raise UsageError(
                f"index names {len(numbers)} samples, the model's last forward pass had {len(features)}; call "
                "prov.loss(index) with the numbers of the very batch that the model has just seen"
            )
        if features.shape[1] != self._trunk_width():
            raise UsageError(
                f"{self.at} gives {features.shape[1]} features in training and {self._trunk_width()} when it was "
                "attached; name a layer of one width"
            )
        if taken.logits.shape[1] != self._net.index_map.classes:
            raise UsageError(
                f"the model gives {taken.logits.shape[1]} class scores, {self._net.index_map.classes} before"
            )
        if self.weight > 0 and not torch.is_grad_enabled():
            raise UsageError("gradients are switched off (torch.no_grad): call prov.loss where you train, or weight=0")
        if self.weight > 0 and not features.requires_grad:
            raise UsageError(
                f"the features carry no gradient ({self.at}): the layers below are frozen, or run under reentrant "
                "gradient checkpointing (use_reentrant=False). Or only record: attach(..., weight=0)"
            )
        self._finite(features)
        if self._steps < LOOKED:
            self._same_input(numbers, taken.given)
        self._steps += 1

    def _trunk_width(self) -> int:
        return int(self._net.support.mean.shape[1])

    def _finite(self, features: Tensor) -> None:
        """Refuse NaN and infinity: on a GPU one step later, so that nothing waits for it."""
        finite = torch.isfinite(features.detach()).all()
        before, self._doubt = self._doubt, finite
        if not bool(before) or (not finite.is_cuda and not bool(finite)):
            self.bank.waiting.clear()
            half = " (float16 ends at 65,504: use bfloat16)" if features.dtype == torch.float16 else ""
            raise NonFiniteError(
                f"the features hold NaN or infinity{half} ({self.at}); no key was moved by them. Lower the learning rate, "
                "or skip such batches"
            )

    def _same_input(self, numbers: Tensor, given: Any) -> None:
        """Refuse a model that is fed otherwise than the dataset yields: `finish` would ask it about something else."""
        wanted = self.prepare(self.data.inputs[numbers[:64]])
        if isinstance(wanted, Tensor) and isinstance(given, Mapping):
            given = next((one for one in given.values() if isinstance(one, Tensor) and one.ndim == wanted.ndim), None)
        if not isinstance(wanted, Tensor) or not isinstance(given, Tensor):
            if isinstance(wanted, Mapping) and isinstance(given, Mapping) and not set(wanted) <= set(given):
                raise UsageError(
                    f"the model was called with {', '.join(given)}, prov.dataset() yields {', '.join(wanted)}; say with "
                    "transform= how a stored sample becomes the model's input"
                )
            if isinstance(wanted, Tensor) != isinstance(given, Tensor) and isinstance(given, Tensor | Mapping):
                raise UsageError(
                    f"the model was called with {_kind(given)}, prov.dataset() yields {_kind(wanted)}; say with "
                    "transform= how a stored sample becomes the model's input"
                )
            return
        seen, due = given.detach()[:64], wanted
        problem = ""
        if seen.is_floating_point() != due.is_floating_point():
            problem = f"of {seen.dtype}, prov.dataset() yields {due.dtype}"
        elif seen.ndim != due.ndim or (due.ndim == 4 and seen.shape[1] != due.shape[1]):
            problem = f"of shape {tuple(seen.shape)}, prov.dataset() yields {tuple(due.shape)}"
        elif due.is_floating_point() and due.numel() > 1:
            mean, spread = float(due.mean()), float(due.std())
            here, wide = float(seen.float().mean()), float(seen.float().std())
            other = not wide / FAR <= spread <= wide * FAR or abs(here - mean) > FAR * max(spread, wide)
            if other and max(spread, wide) > 0:
                problem = f"of mean {here:.3g} and spread {wide:.3g}, prov.dataset() yields mean {mean:.3g} and spread {spread:.3g}"
        if problem:
            raise UsageError(
                f"the model was fed input {problem}: it would be asked about other input than it learned; say with "
                "transform= how a stored sample becomes the model's input, and train on prov.dataset()"
            )

    # the run

    def _run(self, learned: Tensor | None = None, history: np.ndarray | None = None) -> Run:
        """Ask the model about every sample, set the keys, calibrate; `learned` are the keys of training."""
        self._deterministic()
        net, head, n = self._net, self._net.index_head, len(self.data)
        net.eval().to(self.device)
        sha256 = net.freeze()
        head.open_keys(trained=False)
        hits, size = 0, at_once(self.data.shape, self.device.type)
        if learned is not None:
            head.keys.copy_(learned)
        made = torch.zeros_like(head.keys)
        with torch.inference_mode(), progress_bar("keys", n, False) as update:
            for rows in torch.split(torch.arange(n), size):
                refuse_others(self.data, rows)
                output = net(self.data.inputs[rows].to(self.device))
                features = output.index_features
                if not bool(torch.isfinite(features).all()):
                    raise NonFiniteError(
                        "the features of some training samples hold NaN or infinity; check the weights"
                    )
                if learned is not None:
                    labels = net.index_map.labels[rows.to(self.device)]
                    hits += int((head.best(features, labels, 1).index[:, 0].cpu() == rows).sum())
                made[head.rows[rows.to(self.device)]] = unit(features)
                update(len(rows), "")
        head.keys.copy_(made)
        head.learned.copy_(torch.tensor([hits, n if learned is not None else 0]))
        share_keys(head, self.data.samples.groups)
        head.close_keys()
        support = calibrate(net, self.data.inputs, seed=0, modality=self.data.modality)
        return Run(net, self._config(sha256, support), self.data.samples, history)

    def _deterministic(self) -> None:
        """Ask transform twice about the same samples: keys must be those of the very same input later."""
        if self.transform is None:
            return
        some = torch.arange(len(self.data))[:4]
        once, again = (self.prepare(self.data.inputs[some]) for _ in range(2))
        same = (
            all(torch.equal(once[name], again[name]) for name in once)
            if isinstance(once, Mapping)
            else torch.equal(once, again)
        )
        if not same:
            raise UsageError(
                "transform gives another input for the same sample each time; make it deterministic, and give what draws "
                "at random to prov.dataset(augment=)"
            )

    def _config(self, sha256: str, support: dict[str, Any]) -> RunConfig:
        samples = self.data.samples
        conditional = self._net.index_head.conditional
        network = NetworkConfig(
            "class-conditional" if conditional else "class-independent",
            "custom",
            self.data.shape,
            len(self.data.class_names),
            scale=self.prepare.scale,
            conditional=False,
            head="exemplar",
            attached=described(self._net, sha256),
        )
        training = {
            "attached": {"index_weight": self.weight, "steps": self._steps, "epochs": len(self.bank.epochs)},
            "data": {"samples": len(samples), "fingerprint": samples.fingerprint},
        }
        versions = {"provnet": provnet.__version__, "torch": torch.__version__, "python": platform.python_version()}
        return RunConfig(
            network, data=self.data.spec, test=self._test, training=training, support=support, versions=versions
        )


def _test_split(spec: DataSpec) -> DataSpec | None:
    """How to open the test split of a source, where it has one."""
    with suppress(UsageError):  # the source may have been moved since it was opened
        if spec.split == "train" and has_split(spec, "test"):
            return replace(spec, split="test")
    return None


def _asked(tap: Tap, inputs: Any) -> Taken:
    from provnet.models.backbones import only_asked

    with only_asked(tap.model):
        return tap.read(rows_of(inputs, slice(0, 1)))


def _kind(value: Any) -> str:
    return f"tensors named {', '.join(map(str, value))}" if isinstance(value, Mapping) else f"a tensor of {value.dtype}"

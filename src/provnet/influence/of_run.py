"""The influence of a run's samples: weights kept along the training, keys made of them, and both kept in the run.

`snapshots.safetensors` holds the weights of some epochs in bf16, `influence.safetensors` what a score is computed from.
A run without snapshots, or a model that was finished before, is asked at its last weights alone.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from provnet.base.errors import IntegrityError, UsageError
from provnet.base.options import InfluenceOptions, with_changes
from provnet.data.dataset import Dataset
from provnet.influence.keys import Influence, Part, Subject, course_of, influence_of
from provnet.models.attached import AttachedNet
from provnet.models.network import ProvenanceNet
from provnet.models.tap import ask, class_scores
from provnet.runs.files import own_copy
from provnet.runs.inputs import Fitted, run_of
from provnet.runs.run import Run, answering_state
from provnet.runs.safe import read_json

MOST_BYTES = 200_000_000  # of snapshots that are kept without being asked for
ALONG = (1, 2, 3, 5, 7, 9)  # twelfths of a training after which weights are kept; the first ones say most
ABOUT = "about"
NO_KEYS = (
    "this run has no influence keys yet; make them: provnet influence RUN, or in Python "
    "run = provnet.prepare_influence(run)"
)


def epochs_kept(epochs: int) -> tuple[int, ...]:
    """The epochs after which weights are kept; the last is not among them, as the run has its weights.

    >>> epochs_kept(12), epochs_kept(3), epochs_kept(1), epochs_kept(60)
    ((1, 2, 3, 5, 7, 9), (1, 2), (), (5, 10, 15, 25, 35, 45))
    """
    found = {max(1, round(part * epochs / 12)) for part in ALONG}
    return tuple(sorted(one for one in found if one < epochs))


def snapshot(net: ProvenanceNet) -> dict[str, Tensor]:
    """What a network answers by, as it is now: in bf16, on the CPU."""
    return {name: value.detach().to("cpu", torch.bfloat16, copy=True) for name, value in _moving(net).items()}


def snapshot_bytes(net: ProvenanceNet) -> int:
    """What one snapshot takes."""
    return sum(2 * value.numel() for value in _moving(net).values())


def _moving(net: ProvenanceNet) -> dict[str, Tensor]:
    """The trained part of what a network answers by; there is none without a class branch."""
    still = {name for name, value in net.named_parameters() if not value.requires_grad}
    frozen = net.fixed_features
    found = answering_state(net).items()
    moving = {k: v for k, v in found if k not in still and not (frozen and k.startswith("backbone."))}
    return moving if net.task_head is not None else {}


class Along:
    """Snapshots in a loop of somebody else, where an epoch is N samples seen and nobody says how many there will be.

    >>> kept = {epoch: {} for epoch in range(1, 13)}
    >>> along = Along(None, 100, {"seen": 1200, "snapshots": kept})
    >>> along.thin()
    >>> sorted(along.snapshots)
    [1, 2, 3, 5, 7, 9, 12]
    """

    def __init__(self, net: Any, n: int, state: Mapping[str, Any] | None = None) -> None:
        self.net, self.n = net, n
        self.seen = 0 if state is None else int(state["seen"])
        self.snapshots: dict[int, dict[str, Tensor]] = {} if state is None else dict(state["snapshots"])

    def note(self, count: int) -> None:
        """So many samples more were seen."""
        before, self.seen = self.seen // self.n, self.seen + count
        epoch = self.seen // self.n
        if epoch > before:
            self.snapshots[epoch] = snapshot(self.net)
            if len(self.snapshots) >= 2 * len(ALONG):
                self.thin()

    def thin(self) -> None:
        """Drop what a training of as many epochs as there were until now has no use for."""
        last = max(self.snapshots, default=0)
        wanted = {min(self.snapshots, key=lambda one: abs(one - epoch)) for epoch in (*epochs_kept(last), last)}
        self.snapshots = {epoch: one for epoch, one in self.snapshots.items() if epoch in wanted}

    def state(self) -> dict[str, Any]:
        """What it takes to go on."""
        return {"seen": self.seen, "snapshots": dict(self.snapshots)}

    def finished(self) -> dict[int, dict[str, Tensor]]:
        """Those of the whole training; the last are the model's own weights."""
        self.thin()
        last = max(self.snapshots, default=0)
        return {epoch: one for epoch, one in self.snapshots.items() if epoch < last}


class Scores(nn.Module):
    """Stored samples -> class scores, with the names that a run's network has for what it answers by."""

    def __init__(self, net: ProvenanceNet, *, copied: bool) -> None:
        super().__init__()
        if net.task_head is None:
            raise UsageError(
                "a single-branch network has no class branch whose gradients could be followed; influence needs one: "
                "train with --network class-conditional"
            )
        self.attached = isinstance(net, AttachedNet)
        self.normalise = net.normalise
        self.backbone = own_copy(net.backbone) if copied else net.backbone
        self.task_head = own_copy(net.task_head)

    def forward(self, inputs: Any) -> Tensor:
        """(B, ...) -> (B, C)."""
        given = self.normalise(inputs)
        found: Tensor = (
            class_scores(ask(self.backbone, given)) if self.attached else self.task_head(self.backbone(given))
        )
        return found


def subject_of(run: Run) -> Subject:
    """What is asked of a run: a copy of its network, where the weights of then are put into it."""
    copied = bool(run.snapshots) or not isinstance(run.network, AttachedNet)
    return Subject(Scores(run.network, copied=copied))


def prepare_influence(
    run: Run | Fitted, data: Dataset | None = None, options: InfluenceOptions | None = None, **changes: Any
) -> Run:
    """The run with influence keys, for `weights="influence"`; `data` are its training samples, else opened again.

    `Run.save` keeps them. It takes a pass over the data for each snapshot of the training, and one more.

    >>> import provnet
    >>> from provnet.training.config import train_config
    >>> from provnet.training.fit import fit
    >>> data = provnet.open_data("embedded", limit=60)
    >>> run = prepare_influence(fit(data, train_config("fast", epochs=2)))
    >>> run.scores(data.images[:3], weights="influence").shape
    (3, 60)
    """
    run = run_of(run)
    if run.samples.grouping is None:
        raise UsageError("influence is that of classified samples, and those of this run have no labels")
    asked = with_changes(InfluenceOptions, options, changes)
    given = run.data(data, progress=asked.progress)
    if len(given) != len(run.samples):
        raise UsageError(
            f"{len(run.samples) - len(given):,} of {len(run.samples):,} training samples are not there, so their "
            "influence cannot be computed; give the data of then (--data)"
        )
    course = None if run.history is None else course_of(torch.tensor(run.history).clamp_min(0))
    labels = torch.tensor(run.samples.labels)
    states = [state for _, state in sorted(run.snapshots.items())]
    found = influence_of(
        subject_of(run), given.inputs, labels, snapshots=states, course=course, options=asked, progress=asked.progress
    )
    found.keys[torch.tensor(run.samples.added, device=found.device)] = 0  # what was not trained on taught nothing
    return replace(run, influence=_tensors(found, sorted(run.snapshots)))


def _tensors(found: Influence, epochs: list[int]) -> dict[str, Tensor]:
    """Everything that scores are computed from, in the form that a file holds."""
    about = {"epochs": epochs, "agreement": round(found.agreement, 4)}
    kept = {
        ABOUT: _packed(about),
        "keys": found.keys,
        "course": found.course.float(),
        "spread": torch.tensor([part.spread for part in found.parts]),
    }
    for part in found.parts:
        kept[f"{part.number}/onto"] = part.onto
        for name, (left, right) in part.maps.items():
            kept |= {f"{part.number}/left/{name}": left.bfloat16(), f"{part.number}/right/{name}": right.bfloat16()}
            kept[f"{part.number}/turn/{name}"] = part.turn[name]
    return {name: one.detach().cpu().contiguous() for name, one in kept.items()}


_RESTORED: weakref.WeakKeyDictionary[Run, Influence] = weakref.WeakKeyDictionary()


def influence(run: Run) -> Influence:
    """The influence of a run's samples, from what the run holds; made once."""
    if run.influence is None:
        raise UsageError(NO_KEYS)
    device = next(run.network.parameters()).device
    known = _RESTORED.get(run)
    if known is None or known.device != device:
        known = _RESTORED[run] = _restored(run, run.influence, device)
    return known


def _restored(run: Run, kept: Mapping[str, Tensor], device: torch.device) -> Influence:
    about = about_influence(run)
    kept = {name: one.to(device) for name, one in kept.items()}
    states = [*(run.snapshots[epoch] for epoch in about["epochs"]), None]
    parts = []
    for number, state in enumerate(states):
        names = [name.split("/", 2)[2] for name in kept if name.startswith(f"{number}/turn/")]
        maps = {k: (kept[f"{number}/left/{k}"].float(), kept[f"{number}/right/{k}"].float()) for k in names}
        part = Part(state, number, maps, spread=float(kept["spread"][number]))
        part.turn = {name: kept[f"{number}/turn/{name}"] for name in names}
        part.onto = kept[f"{number}/onto"]
        parts.append(part)
    keys = shared_keys(kept["keys"], run)
    made = Influence(subject_of(run), parts, keys, kept["course"], float(about["agreement"]))
    made.unit = None if about.get("unit") is None else float(about["unit"])
    return made


def with_unit(run: Run | Fitted, unit: tuple[float, float, float], words: str) -> Run:
    """The run with the log-odds that one unit of its influence stands for, with their interval and where they are from.

    What was foretold before was in units of `unit` as it was then.
    """
    run = run_of(run)
    about = about_influence(run)
    before = about.get("unit") or 1.0
    about |= dict(zip(("unit", "unit_low", "unit_high"), (before * one for one in unit), strict=True))
    assert run.influence is not None
    return replace(run, influence={**run.influence, ABOUT: _packed({**about, "unit_from": words})})


def _packed(about: Mapping[str, Any]) -> Tensor:
    return torch.tensor(list(json.dumps(about).encode()), dtype=torch.uint8)


def shared_keys(keys: Tensor, run: Run) -> Tensor:
    """Equal samples with equal labels have one key: batches that were cut another way are rounded another way."""
    samples = run.samples
    numbers = np.unique(samples.groups * len(samples.class_names) + samples.labels, return_inverse=True)[1].reshape(-1)
    if len(numbers) == 0 or numbers.max() + 1 == len(numbers):
        return keys
    groups = torch.tensor(numbers, device=keys.device)
    count = torch.bincount(groups).to(keys.device)
    sums = torch.zeros(len(count), keys.shape[1], device=keys.device).index_add_(0, groups, keys.float())
    return (sums / count[:, None])[groups].to(keys.dtype)


def about_influence(run: Run | Fitted) -> dict[str, Any]:
    """The epochs that the keys were made at, and how well compact scores agree with whole ones."""
    run = run_of(run)
    if run.influence is None:
        raise UsageError(NO_KEYS)
    raw = bytes(run.influence[ABOUT].numpy().tobytes())
    about = read_json(raw, "influence.safetensors")
    missing = [epoch for epoch in about.get("epochs", [None]) if epoch not in run.snapshots]
    if missing or not isinstance(about.get("agreement"), float):
        raise IntegrityError(
            "influence.safetensors does not fit the snapshots of this run; make it again: provnet influence"
        )
    return about

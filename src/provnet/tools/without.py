"""What the answers would be without some training samples: foretold from influence, and found by training again.

The log-odds of an answer are its logit minus the log-sum-exp of the others. Influence foretells how they change; how
large its unit is, only trainings with and without the samples can say, which is the slope of what they find on what was
foretold.

Letters: Q queries, R trainings.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor

from provnet.answers.attributor import Answered, Attributor
from provnet.base.batches import Inputs
from provnet.base.errors import UsageError, did_you_mean
from provnet.base.files import shown
from provnet.base.options import NetworkOptions, RunOptions
from provnet.base.progress import forecast, progress_bar
from provnet.base.stats import t_quantile
from provnet.data.dataset import Dataset
from provnet.influence.keys import margins
from provnet.influence.of_run import about_influence
from provnet.models.pretrained import FOLDER
from provnet.runs.files import CUSTOM
from provnet.runs.inputs import Fitted, run_of
from provnet.runs.run import Run
from provnet.training.config import TrainConfig
from provnet.training.fit import fit

Figure = tuple[float, float, float]  # a value with the ends of its 95 % interval


@dataclass(frozen=True, eq=False)
class Without:
    """Answers to some queries with and without a group of training samples.

    Attributes:
        group: how many samples the group has.
        predicted: the class that each query is asked about: the run's own answer.
        log_odds: (Q,) of that answer now.
        foretold: (Q,) change of the log-odds without the group; in log-odds where there is a unit, else in units of
            the usual influence of one sample.
        found: (Q, 3) the same by trainings with and without, with its interval; None where there were none.
        slope: of what was found on what was foretold, in units that were foretold.
        rank: rank correlation of both; None for less than five queries.
        trainings: R of each kind.
        unit: whether what was foretold is in log-odds.
    """

    group: int
    predicted: tuple[str, ...]
    log_odds: np.ndarray
    foretold: np.ndarray
    unit: bool
    found: np.ndarray | None = None
    slope: Figure | None = None
    rank: float | None = None
    trainings: int = 0

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        arrays = {name: None if one is None else one.tolist() for name, one in self._arrays().items()}
        return {**{name: value for name, value in vars(self).items() if name not in arrays}, **arrays}

    def _arrays(self) -> dict[str, np.ndarray | None]:
        return {"log_odds": self.log_odds, "foretold": self.foretold, "found": self.found}


def group_of(run: Run | Fitted, ids: Sequence[str], sources: Sequence[str]) -> np.ndarray:
    """The samples with these ids or from these contributors, as positions; what the run does not have is refused."""
    run = run_of(run)
    places = run.samples.id_places
    for name in ids:
        if name not in places:
            raise UsageError(f'the run has no sample "{shown(name)}".{did_you_mean(name, list(places)[:20_000])}')
    known = sorted({name for name in run.samples.sources if name})
    for name in sources:
        if name not in known:
            allowed = ", ".join(map(shown, known[:8])) or "none: its data say nothing of sources"
            raise UsageError(f'no sample of the run is from "{shown(name)}"; it knows {allowed}')
    chosen = {places[name] for name in ids} | {i for i, name in enumerate(run.samples.sources) if name in sources}
    if not chosen:
        raise UsageError("no sample was named; give --id ID or --source NAME, more than once for several")
    hidden = [run.samples.sample_ids[i] for i in sorted(chosen) if run.samples.withheld[i]]
    if hidden:
        raise UsageError(f'"{shown(hidden[0])}" is withheld, so nothing is said of it; restore it first')
    if len(chosen) == len(run.samples):
        raise UsageError("these are all samples of the run; without them there is nothing to train on")
    return np.array(sorted(chosen))


def without(run: Run | Fitted, queries: Inputs, group: np.ndarray) -> Without:
    """Foretell the answers to raw inputs (Q, ...) without the samples at these positions."""
    run = run_of(run)
    asked = torch.from_numpy(group).unsqueeze(0)

    def read(answered: Answered) -> Mapping[str, Tensor]:
        device = answered.logits.device
        weight = answered.weight(asked.to(device).expand(len(answered.logits), -1))
        return {"foretold": -weight.sum(1).cpu(), "logits": answered.logits.cpu()}

    found = Attributor(run, "influence").each(queries, read)
    classes = found["logits"].argmax(1)
    names = tuple(run.samples.class_names[int(one)] for one in classes)
    odds = margins(found["logits"], classes).numpy()
    unit = about_influence(run).get("unit") is not None
    return Without(len(group), names, odds, found["foretold"].numpy(), unit)


def _logits(run: Run, queries: Inputs) -> Tensor:
    """(Q, C) on the CPU."""
    return Attributor(run).each(queries, lambda answered: {"logits": answered.logits.cpu()})["logits"]


def train_without(
    run: Run | Fitted,
    data: Dataset,
    queries: Inputs,
    foretold: Without,
    group: np.ndarray,
    times: int,
    *,
    progress: bool = False,
) -> Without:
    """Train so many times with and without the samples, by the run's own recipe; with what that found.

    Both trainings of a pair begin from the same seed.
    """
    run = run_of(run)
    recipe = recipe_of(run)
    others = np.setdiff1d(np.arange(len(run.samples)), group)
    classes = torch.tensor([run.samples.class_names.index(name) for name in foretold.predicted])
    device = next(run.network.parameters()).device.type
    changes = np.zeros((times, len(classes)))
    with progress_bar("training again", 2 * times, progress) as update:
        for turn in range(times):
            began = time.perf_counter()
            odds = []
            for part in (data, data.select(others)):
                where = RunOptions(device=device, snapshots=False)
                made = fit(part, replace(recipe, seed=recipe.seed + 1 + turn), where)
                made.network.to(device)
                odds.append(margins(_logits(made, queries), classes).numpy())
                update(2 * turn + len(odds), "")
            changes[turn] = odds[1] - odds[0]
            if turn == 0:
                forecast("training again", (time.perf_counter() - began) * (times - 1), enabled=progress)
    return compared(foretold, changes)


def compared(foretold: Without, changes: np.ndarray) -> Without:
    """What was foretold beside the changes (R, Q) that pairs of trainings found."""
    mean, half = _mean(changes)
    slopes = changes @ foretold.foretold / max(float(foretold.foretold @ foretold.foretold), 1e-30)
    slope, away = _mean(slopes[:, None])
    return replace(
        foretold,
        found=np.stack([mean, mean - half, mean + half], 1),
        trainings=len(changes),
        slope=(float(slope[0]), float(slope[0] - away[0]), float(slope[0] + away[0])),
        rank=float(spearmanr(foretold.foretold, mean).statistic) if len(mean) >= 5 else None,
    )


def _mean(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(R, Q) -> mean and half of its 95 % interval."""
    times = len(values)
    return values.mean(0), t_quantile(times - 1) * values.std(0, ddof=1) / times**0.5


def recipe_of(run: Run) -> TrainConfig:
    """The recipe that a run was trained by; a network of somebody else has none here."""
    network, settings = run.config.network, run.config.training.get("training")
    if network.attached is not None or network.backbone in (CUSTOM, FOLDER) or not isinstance(settings, Mapping):
        raise UsageError(
            "this network was not trained by provnet from a network of its own, so it cannot be trained again here; "
            "leave --retrain out, and train it without the samples in your own loop"
        )
    known = {one.name for one in fields(TrainConfig)} - {"asked", "wanted"}
    given: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()
    }
    wanted = {one.name: getattr(network, one.name) for one in fields(NetworkOptions)}
    recipe: dict[str, Any] = {name: value for name, value in given.items() if name in known}
    return TrainConfig(**recipe, wanted=NetworkOptions(**wanted))

"""fix: correct the labels of a run's data description, train again beside it, and say what changed.

Nothing that a user has is written to: the new run remembers the changes, as any run that decisions were applied to. The
old run stays as it is, so going back is to use it; `fixed.json` in the new one names it and what was changed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from provnet.answers.attributor import explain
from provnet.answers.evaluation import own_classes
from provnet.base.atomic import write_bytes
from provnet.base.errors import DataError, IntegrityError, UsageError
from provnet.base.files import read_file
from provnet.base.options import SUBSET, NetworkOptions, RunOptions
from provnet.base.stats import Interval, wilson
from provnet.data.apply import apply_decisions
from provnet.data.dataset import DataSpec
from provnet.data.open import reopen
from provnet.data.select import FIRST, holdout
from provnet.models.pretrained import FOLDER
from provnet.runs.data import in_terms_of
from provnet.runs.files import CUSTOM
from provnet.runs.inputs import Fitted, run_of
from provnet.runs.run import Run, read_run
from provnet.samples.decisions import Decision
from provnet.tools.debug.compute import FLAGGED, Debugging, debug
from provnet.tools.debug.files import decisions_for_flags
from provnet.training.config import TrainConfig
from provnet.training.fit import fit as train_again
from provnet.training.session import has_begun

FIXED = "fixed.json"
CLEAR = 0.8  # probability from which on a suggestion is taken; chosen on planted flips and votes of CIFAR-10H
LARGEST = 1 << 26
Z = 1.959964


@dataclass(frozen=True)
class Answer:
    """A test sample that the two runs answer differently."""

    sample_id: str
    label: str
    before: str
    after: str


@dataclass(frozen=True, eq=False)
class Fixed:
    """The new run, and what is different.

    Attributes:
        run: the new run.
        changes: what was changed: relabel or drop.
        labels: what each label was before, in the order of the changes.
        before, after: accuracy on the test split, by the labels as they are given; n = 0 without one.
        difference: after minus before on the same samples, with a paired 95 % interval.
        answers: the test samples that are answered differently.
    """

    run: Run
    changes: tuple[Decision, ...]
    labels: tuple[str, ...]
    before: Interval
    after: Interval
    difference: Interval
    answers: tuple[Answer, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        changes = [
            {
                "sample_id": one.sample_id,
                "sha256": one.sha256,
                "decision": one.kind,
                "label": label,
                "new": one.new_label,
            }
            for one, label in zip(self.changes, self.labels, strict=True)
        ]
        return {
            "changes": changes,
            "relabelled": sum(one.kind == "relabel" for one in self.changes),
            "dropped": sum(one.kind == "drop" for one in self.changes),
            "before": self.before.to_json(),
            "after": self.after.to_json(),
            "difference": self.difference.to_json(),
            "answers_changed": [vars(one) for one in self.answers],
        }


def fix(
    run: Run | Fitted,
    out: str | Path | None = None,
    *,
    decisions: Sequence[Decision] | None = None,
    certainty: float = CLEAR,
    leave_out: bool = True,
    found: Debugging | None = None,
    device: str = "auto",
    progress: bool = False,
) -> Fixed:
    """Apply decisions, or suggestions that are right with the `certainty`, and train again with the same recipe.

    Without `decisions` the labels are looked at first; `found` holds what was found before. With `leave_out` flagged
    samples whose right label is not clear, and those of no class, are dropped. With `out` the new run is written there,
    with `fixed.json` beside its files; killed before its end, the same call goes on.
    """
    run = run_of(run)
    config = _recipe_of(run)
    going_on = out is not None and is_unfinished(out)
    if decisions is None:
        looked = debug(run, progress=progress) if found is None else found
        decisions = decisions_for_flags(looked, FLAGGED, certainty)
        if leave_out:
            doubtful = _doubtful(looked, decisions)
            dropped = {one.sample_id for one in doubtful}
            decisions = [one for one in decisions if one.sample_id not in dropped] + doubtful
    chosen = [one for one in decisions if one.kind != "keep"]
    if not chosen:
        raise UsageError(
            "nothing to change: no decision relabels or drops a sample, and no suggestion is certain enough"
        )
    data, test, labels = _changed_data(run, chosen, progress=progress)
    where = RunOptions(out=None if out is None else Path(out), device=device, progress=progress, resume=going_on)
    origin = {
        "from": None if run.folder is None else str(run.folder.resolve()),
        "fingerprint": run.samples.fingerprint,
    }
    try:
        new = train_again(data, config, where, test=test)
    except IntegrityError as error:
        if going_on:
            raise UsageError(f"{out} already holds another run; choose another folder: {error}") from None
        raise
    made = _compared(run, new, tuple(chosen), tuple(labels), progress=progress)
    if out is not None:
        write_bytes(Path(out) / FIXED, (json.dumps({**origin, **made.to_json()}, indent=1) + "\n").encode())
    return made


def is_unfinished(folder: str | Path) -> bool:
    """Whether a run was begun here that no `fixed.json` tells of yet: `fix` goes on with it if it is the same.

    >>> is_unfinished("nowhere")
    False
    """
    return has_begun(Path(folder)) and not (Path(folder) / FIXED).exists()


def _doubtful(found: Debugging, decisions: Sequence[Decision]) -> list[Decision]:
    """A drop for each flagged label, and each sample of no class, that no decision changes; none if it cannot tell."""
    if found.mislabels.cannot_tell:
        return []
    changed = {one.sample_id for one in decisions if one.kind != "keep"}
    names, suspicious = found.samples.sample_ids, found.flagged() | (found.anomalies.score >= FLAGGED)
    rows = [row for row in np.flatnonzero(suspicious).tolist() if names[row] not in changed]
    return [Decision(names[row], found.samples.hex(row), "drop") for row in rows]


def undo(folder: str | Path) -> tuple[Path, Mapping[str, Any]]:
    """The run that a fixed one was made from, checked to be what it was, and what was changed.

    Nothing has to be put back, as nothing but the new run was written; that one may be removed.
    """
    place = Path(folder) / FIXED
    if not place.is_file():
        raise UsageError(f"{folder} was not made by provnet fix: it holds no {FIXED}")
    try:
        about = json.loads(read_file(place, LARGEST, FIXED))
        old, fingerprint = Path(about["from"]), about["fingerprint"]
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{place} is damaged or names no run; the run before is where you had it") from None
    if not old.is_dir():
        raise DataError(f"the run before is not at {old} any more; without that folder there is no way back")
    if read_run(old).samples.fingerprint != fingerprint:
        raise DataError(f"{old} is another run now than the one that {folder} was made from")
    return old, about


def _recipe_of(run: Run) -> TrainConfig:
    """The recipe that trains a run again; one that cannot be repeated from the run alone is refused."""
    settings, network = run.config.training.get("training"), run.config.network
    if not isinstance(settings, Mapping):
        raise UsageError("the run does not say how it was trained; train again by hand: provnet train")
    if network.task != "classify":
        raise UsageError("fix is for runs that tell classes; train a generator again by hand: provnet train --apply")
    if run.config.training.get(SUBSET) is not None or run.config.added:
        raise UsageError(
            "a run with an index over some samples, or with added ones, is trained again by hand: see debug"
        )
    if run.config.erased or run.samples.withheld.any():
        raise UsageError(
            "samples of this run are withheld or erased, and must not come back; see provnet debug --review"
        )
    backbone: Any = network.backbone
    if network.backbone == CUSTOM:
        if not run.network.fixed_features:
            raise UsageError("the first weights of this run's own backbone are not kept; train again by hand with fit")
        backbone = run.network.backbone
    if network.backbone == FOLDER:
        raise UsageError("the folder of the pretrained model is not kept; train again by hand: provnet train --apply")
    names = ("network", "head", "key_type", "key_width", "alpha", "conditional", "level")
    wanted = NetworkOptions(backbone=backbone, **{name: getattr(network, name) for name in names})
    given = {name: value for name, value in settings.items() if name in TrainConfig.__dataclass_fields__}
    return TrainConfig(**{**given, "betas": tuple(given["betas"])}, asked=tuple(sorted(given)), wanted=wanted)


def _changed_data(run: Run, chosen: Sequence[Decision], *, progress: bool) -> tuple[Any, Any, list[str]]:
    """The training data with all decisions, those of before among them; the test data; and the labels before."""
    spec = run.config.data
    if spec is None or spec.kind == "arrays":
        raise UsageError("the run's data were given as arrays and cannot be opened again; use apply_decisions and fit")
    options = dict(spec.options)
    sides, earlier = options.pop("holdout", []), options.pop("decisions", None)
    options.pop(FIRST, None)
    whole = reopen(replace(spec, options=options), progress=progress)
    before: dict[str, Decision] = {}
    if earlier is not None:
        before = {one.sample_id: one for one in _earlier(whole, reopen(_with(spec, options, earlier)))}
    names = whole.samples.class_names
    labels = []
    for one in chosen:
        place = whole.samples.id_places.get(one.sample_id)
        there = before[one.sample_id].new_label if one.sample_id in before else ""
        labels.append(there or (names[int(whole.samples.labels[place])] if place is not None else ""))
    data = apply_decisions(whole, list({**before, **{one.sample_id: one for one in chosen}}.values()))
    if not sides:
        return data, run.config.test, labels
    if len(sides) != 1 or sides[0][1] != "train":
        raise UsageError("samples were held out more than once; train again by hand: provnet train --apply")
    kept, held = holdout(data, sides[0][0], given=whole)
    return kept, held.spec, labels


def _with(spec: DataSpec, options: Mapping[str, Any], earlier: Any) -> DataSpec:
    return replace(spec, options={**options, "decisions": earlier})


def _earlier(whole: Any, changed: Any) -> list[Decision]:
    """The decisions that lead from the data to what they were changed to."""
    one, other = whole.samples, changed.samples
    found = []
    for i, name in enumerate(one.sample_ids):
        place = other.id_places.get(name)
        if place is None:
            found.append(Decision(name, one.hex(i), "drop"))
        elif other.class_names[int(other.labels[place])] != one.class_names[int(one.labels[i])]:
            found.append(Decision(name, one.hex(i), "relabel", other.class_names[int(other.labels[place])]))
    return found


def _compared(old: Run, new: Run, changes: tuple[Decision, ...], labels: tuple[str, ...], *, progress: bool) -> Fixed:
    """Both runs on the old one's test split, by its labels as they are given."""
    none = wilson(0, 0)
    test = old.test(progress=progress)
    if test is None or len(test) == 0:
        return Fixed(new, changes, labels, none, none, none, ())
    given = []
    for each in (old, new):
        seen = in_terms_of(each.config, own_classes(each, test))
        said, names = explain(each, seen.inputs, k=1, warn=False).predicted, each.samples.class_names
        given.append(np.array([names[int(c)] for c in said], dtype=object))
    truth = np.array([test.samples.class_names[int(c)] for c in test.samples.labels], dtype=object)
    right = [each == truth for each in given]
    rows = np.flatnonzero(given[0] != given[1])
    answers = tuple(Answer(test.samples.sample_ids[i], truth[i], given[0][i], given[1][i]) for i in rows.tolist())
    rates = [wilson(int(each.sum()), len(truth)) for each in right]
    return Fixed(new, changes, labels, rates[0], rates[1], paired_difference(*right), answers)


def paired_difference(before: np.ndarray, after: np.ndarray) -> Interval:
    """The difference of two shares of the same samples, with Agresti and Min's 95 % interval.

    >>> found = paired_difference(np.array([True, False, False, True]), np.array([True, True, True, True]))
    >>> found.value, found.low < 0 < found.high
    (0.5, True)
    """
    n = len(before)
    won, lost = float((after & ~before).sum()) + 0.5, float((before & ~after).sum()) + 0.5
    middle, m = (won - lost) / (n + 2), n + 2
    half = Z * math.sqrt(max(won + lost - (won - lost) ** 2 / m, 0.0)) / m
    return Interval((won - lost) / n, n, max(middle - half, -1.0), min(middle + half, 1.0))

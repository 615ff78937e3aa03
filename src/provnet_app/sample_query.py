"""Which samples, in which order: filters and sorting over the whole table at once, one page of it given out."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from provnet.tools.debug.compute import DROP, FLAGGED
from provnet_app.fields import DIGITS, Name, Strict, rounded
from provnet_app.jobs import Scores
from provnet_app.limits import PAGE, TAG
from provnet_app.security import ApiError, not_ready, unknown
from provnet_app.state import State

Sort = Literal["index", "mislabel", "anomaly", "typicality", "label", "group", "selection"]
Flag = Literal["mislabel", "anomaly", "duplicate", "conflict", "added"]
SCORED = ("mislabel", "anomaly", "typicality")
ODD = 0.5


class Wanted(Strict):
    """The parameters of GET /samples."""

    offset: Annotated[int, Field(ge=0, lt=2**53), DIGITS] = 0
    limit: Annotated[int, Field(ge=1, le=PAGE), DIGITS] = 100
    sort: Sort = "index"
    order: Literal["asc", "desc"] = "asc"
    class_: Annotated[int | None, Field(alias="class", ge=0, lt=2**53), DIGITS] = None
    suggested: Annotated[int | None, Field(ge=0, lt=2**53), DIGITS] = None  # class that a flagged label should be
    flag: Flag | None = None
    tag: Annotated[Name | None, Field(max_length=TAG)] = None
    decision: Literal["none", "any", "keep", "relabel", "drop"] | None = None
    minimum: Annotated[float | None, Field(ge=0, le=1, allow_inf_nan=False)] = None
    maximum: Annotated[float | None, Field(ge=0, le=1, allow_inf_nan=False)] = None
    selection: Annotated[str | None, StringConstraints(pattern=r"^[0-9a-f]{16}$")] = None
    group: Annotated[int | None, Field(ge=0, lt=2**53), DIGITS] = None
    text: Annotated[str | None, StringConstraints(max_length=200, pattern=r"^[^\x00]*$")] = None
    id: Name | None = None  # one sample alone; `text` finds train/10 for train/1, too

    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class SampleRecord(BaseModel):
    """A training sample with what was found about it."""

    index: int
    sample_id: str
    sha256: str
    label: str
    class_: Annotated[int, Field(alias="class")]
    source: str | None
    mislabel: float | None
    suggested: str | None
    suggested_class: int | None
    advised: Literal["keep", "relabel", "drop"] | None
    anomaly: float | None
    typicality: float | None
    group: int | None
    group_size: int
    exact: bool
    conflict: bool
    flags: list[str]
    decision: str | None
    new_label: str | None
    tags: list[str]
    shown: bool

    model_config = ConfigDict(populate_by_name=True)


def chosen(state: State, wanted: Wanted) -> np.ndarray:
    """All samples that fit, in order."""
    state.decisions.refresh()
    state.tags.refresh()
    samples, scores = state.served.run.samples, scores_of(state)
    fits = ~samples.withheld
    if wanted.class_ is not None:
        fits &= samples.labels == wanted.class_
    if wanted.flag is not None:
        fits &= flagged(state, wanted.flag)
    if wanted.suggested is not None:
        fits &= flagged(state, "mislabel") & (_needed(scores).suggested == wanted.suggested)
    if wanted.decision is not None:
        fits &= state.decisions.mask(wanted.decision)
    if wanted.tag is not None:
        fits &= state.tags.mask(wanted.tag)
    if wanted.id is not None:
        place = samples.id_places.get(wanted.id, -1)
        fits &= np.arange(len(samples)) == place
    if wanted.group is not None:
        fits &= _needed(scores).group == wanted.group
    picked = None if wanted.selection is None else state.selections.find(wanted.selection)
    if wanted.selection is not None:
        if picked is None:
            raise unknown("selection", "selection")
        inside = np.zeros(len(samples), dtype=np.bool_)
        inside[picked] = True
        fits &= inside
    elif wanted.sort == "selection":
        raise ApiError(422, "invalid", "the order of a selection needs a selection", "sort")
    if wanted.sort in SCORED:
        values = np.round(getattr(_needed(scores), wanted.sort).astype(np.float64), 4)  # as they are shown
        fits &= _needed(scores).known
        fits &= values >= (0.0 if wanted.minimum is None else wanted.minimum)
        fits &= values <= (1.0 if wanted.maximum is None else wanted.maximum)
    if wanted.sort == "group" and wanted.group is None:
        fits &= _needed(scores).group >= 0
    rows = np.flatnonzero(fits)
    if wanted.text:
        part = wanted.text.casefold()
        rows = rows[[part in samples.sample_ids[i].casefold() for i in rows.tolist()]] if len(rows) else rows
    return _sorted(state, rows, wanted, picked)


def _sorted(state: State, rows: np.ndarray, wanted: Wanted, picked: np.ndarray | None) -> np.ndarray:
    if wanted.sort == "index":
        return rows if wanted.order == "asc" else rows[::-1]
    if picked is not None and wanted.sort == "selection":
        place = np.empty(len(state.served.run.samples), dtype=np.int64)
        place[picked] = np.arange(len(picked))
        ordered = rows[np.argsort(place[rows])]
        return ordered if wanted.order == "asc" else ordered[::-1]
    values = (
        state.served.run.samples.labels if wanted.sort == "label" else getattr(_needed(scores_of(state)), wanted.sort)
    )
    by = values[rows].astype(np.float64)
    if (
        wanted.sort == "mislabel"
    ):  # pictures under several labels, of which at least one is wrong, are the most suspicious
        by += _needed(scores_of(state)).conflict[rows] & (by >= FLAGGED)
    return rows[np.argsort(by if wanted.order == "asc" else -by, kind="stable")]


def flagged(state: State, flag: str) -> np.ndarray:
    """(N,) bool: samples with a flag."""
    if flag == "added":
        return state.served.run.samples.added
    scores = _needed(scores_of(state))
    return {
        "mislabel": scores.mislabel >= FLAGGED,
        "anomaly": scores.anomaly >= ODD,
        "duplicate": scores.group >= 0,
        "conflict": scores.conflict,
    }[flag]


def scores_of(state: State) -> Scores | None:
    """The scores, where they were computed."""
    found = state.jobs.result("scores")
    return found if isinstance(found, Scores) else None


def _needed(scores: Scores | None) -> Scores:
    if scores is None:
        raise not_ready("scores")
    return scores


def sample_records(state: State, rows: np.ndarray) -> list[SampleRecord]:
    """Samples as the page shows them."""
    scores = scores_of(state)
    sizes = np.bincount(scores.group[scores.group >= 0]) if scores is not None and (scores.group >= 0).any() else None
    return [_record(state, int(row), scores, sizes) for row in rows]


def _record(state: State, row: int, scores: Scores | None, sizes: np.ndarray | None) -> SampleRecord:
    samples, names = state.served.run.samples, state.served.run.samples.class_names
    label = int(samples.labels[row])
    choice = state.decisions.choices.get(row)
    known = scores is not None and bool(scores.known[row])
    flags = ["added"] if samples.added[row] else []
    found: dict[str, object] = dict.fromkeys(
        ("mislabel", "suggested", "suggested_class", "advised", "anomaly", "typicality", "group")
    )
    found |= {"group_size": 1, "exact": False, "conflict": False}
    if scores is not None and known:
        group = int(scores.group[row])
        dropped = int(scores.suggested[row]) == DROP
        other = None if dropped or scores.cannot_tell else int(scores.suggested[row])
        wrong = bool(scores.mislabel[row] >= FLAGGED)
        found = {
            **{name: rounded(float(getattr(scores, name)[row]), 4) for name in SCORED},
            "suggested": None if other is None else names[other],
            "suggested_class": other,
            "advised": "drop" if dropped else "relabel" if wrong and other is not None else "keep",
            "group": group if group >= 0 else None,
            "group_size": int(sizes[group]) if sizes is not None and group >= 0 else 1,
            "exact": bool(scores.exact[row]),
            "conflict": bool(scores.conflict[row]),
        }
        marks = (wrong, scores.anomaly[row] >= ODD, group >= 0, scores.conflict[row])
        named = zip(("mislabel", "anomaly", "duplicate", "conflict"), marks, strict=True)
        flags = [name for name, is_so in named if is_so] + flags
    return SampleRecord(
        index=row,
        sample_id=samples.sample_ids[row],
        sha256=samples.hex(row),
        label=names[label],
        class_=label,
        source=samples.sources[row],
        flags=flags,
        decision=choice.kind if choice else None,
        new_label=(choice.new_label or None) if choice else None,
        tags=list(state.tags.tags.get(row, ())),
        shown=state.library.is_shown(row),
        **found,  # type: ignore[arg-type]
    )

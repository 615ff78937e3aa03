"""Run: what the run is, how it was trained, what was measured of it, and whether its files are what they were."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter
from pydantic import BaseModel, Field

import provnet
from provnet.base.errors import ProvnetError
from provnet.base.files import read_file
from provnet.data.modalities.table import Table
from provnet.data.modalities.text import Text
from provnet.models.network import NETWORKS, parameter_count
from provnet.runs.card import bank_state
from provnet.runs.files import RunConfig
from provnet.runs.fileset import NAME
from provnet.runs.run import verify_files
from provnet.tools.generate.compute import is_generator
from provnet_app.limits import BATCH, PAGE, PIXELS, SHEET, UPLOAD, WITHOUT, K
from provnet_app.routes import Interval, Label, Weights, gives, router
from provnet_app.served import WEIGHTS, Served, hashes
from provnet_app.state import State

LOG = "log.jsonl"
LARGEST = 10_000_000  # bytes of a log that are read


class Series(BaseModel):
    """One curve; null where an epoch has no value."""

    name: str
    values: list[float | None]


class Measure(Interval):
    """One measure; `group` tells those of one name apart."""

    name: str
    group: str


class Outcome(BaseModel):
    """One check; `passed` is null where it could not be measured."""

    group: str
    name: str
    words: str
    passed: bool | None
    figure: Interval | None
    percent: bool
    bar: str
    note: str


class FileRecord(BaseModel):
    """One file; `why` is "ok" or what is wrong with it."""

    name: str
    ok: bool
    why: str


def card(served: Served) -> str:
    """README.md of the run; empty where it has none."""
    if served.folder is None:
        return ""
    try:
        return read_file(served.folder / "README.md", 1_000_000).decode("utf-8", "replace")
    except ProvnetError:
        return ""


def curves(served: Served) -> tuple[list[int], list[Series]]:
    """Epochs and what was logged of each; a damaged line is passed over."""
    rows: list[dict[str, Any]] = []
    if served.folder is not None and (served.folder / LOG).is_file():
        try:
            lines = read_file(served.folder / LOG, LARGEST).decode("utf-8", "replace").splitlines()
        except ProvnetError:
            lines = []
        rows = [row for row in map(_row, lines) if row is not None]
    last = {row["epoch"]: row for row in rows}  # an epoch that was repeated after a stop counts once
    epochs = sorted(last)
    names = list(dict.fromkeys(name for row in rows for name in row if name not in ("epoch", "step")))
    return epochs, [Series(name=name, values=[_number(last[e].get(name)) for e in epochs]) for name in names]


def _row(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and type(found.get("epoch")) is int else None


def _number(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and math.isfinite(value) else None


def measures(found: Mapping[str, Any], name: str = "", group: str = "") -> list[Measure]:
    """Nested measures as a flat list: intervals as they are, plain numbers without one.

    >>> measures({"a": {"value": 1.0, "low": 0.9, "high": 1.0, "n": 9}, "b": {"x": 0.5}})[1].group
    'x'
    """
    flat: list[Measure] = []
    for key, value in found.items():
        own = (key, "") if not name else (name, f"{group}.{key}" if group else key)
        if isinstance(value, Mapping) and {"value", "n"} <= set(value):
            flat.append(Measure(name=own[0], group=own[1], **_interval(value)))
        elif isinstance(value, Mapping):
            flat += measures(value, *own)
        elif (number := _number(value)) is not None:
            flat.append(Measure(name=own[0], group=own[1], value=number, low=None, high=None, n=None))
    return flat


def _interval(value: Mapping[str, Any]) -> dict[str, Any]:
    n = value.get("n")
    why = value.get("why")
    numbers = {name: _number(value.get(name)) for name in ("value", "low", "high")}
    return {**numbers, "n": n if type(n) is int else None, "why": why if isinstance(why, str) else None}


def checks(served: Served, config: RunConfig) -> tuple[list[Outcome], bool]:
    """What `provnet check` kept, and whether it belongs to the samples as they are now."""
    kept = config.checks
    listed = kept.get("outcomes") if kept is not None else None
    if kept is None or not isinstance(listed, list):
        return [], False
    outcomes = [
        Outcome(
            group=str(one.get("group", "")),
            name=str(one.get("key", "")),
            words=str(one.get("words", "")),
            passed=one.get("passed") if isinstance(one.get("passed"), bool) else None,
            figure=Interval(**_interval(one["figure"])) if isinstance(one.get("figure"), Mapping) else None,
            percent=bool(one.get("percent", True)),
            bar=str(one.get("bar", "")),
            note=str(one.get("note", "")),
        )
        for one in listed
        if isinstance(one, Mapping)
    ]
    return outcomes, kept.get("samples") == bank_state(served.run.samples)


def files(folder: Path | None, opened: Mapping[str, str]) -> list[FileRecord]:
    """Every file against the manifest and against what was opened; nothing for a run without a folder."""
    if folder is None:
        return []
    try:
        found = verify_files(folder)
    except ProvnetError:
        return [FileRecord(name=NAME, ok=False, why="there is no run in the folder any more")]
    now = hashes(folder)
    others = {name for name, digest in opened.items() if now.get(name, digest) != digest}
    return [
        FileRecord(name=one.name, ok=False, why="another one than the app has opened")
        if one.name in others and not one.exit_code
        else FileRecord(name=one.name, ok=not one.exit_code, why=one.why.replace(f"{folder}/", ""))
        for one in found
    ]


VIEWS = ("explain", "data", "answers", "map", "membership", "credit", "run")


class ClassRecord(Label):
    """A class and how many samples may be named of it."""

    samples: int


class ColumnRecord(BaseModel):
    """A column of a table: numbers, or one of some values."""

    name: str
    kind: str
    values: list[str]


class Input(BaseModel):
    """What the network takes; `drawable` where a person can draw it, `large` where pictures are photographs.

    `typed` says whether a text, or a row with these `columns`, can be typed.
    """

    shape: list[int]
    kind: str
    typed: bool
    columns: list[ColumnRecord]
    picture: bool
    height: int | None
    width: int | None
    channels: int | None
    drawable: bool
    large: bool


class TrainingPictures(BaseModel):
    """How many training pictures are there, and what changed."""

    available: int
    facts: list[str]


class TestSplit(BaseModel):
    """The test split, or why there is none."""

    samples: int
    why: str


class Limits(BaseModel):
    """What one request may ask for."""

    upload_bytes: int = UPLOAD
    pixels: int = PIXELS
    k: int = K
    batch: int = BATCH
    page: int = PAGE
    sheet: int = SHEET
    without: int = WITHOUT


class RunRecord(BaseModel):
    """The run in short; `weights` are the ways of weighing exemplars that differ for its network."""

    name: str
    version: str
    task: Literal["classify", "generate"]
    network: str
    backbone: str
    head: str
    parameters: int
    input: Input
    classes: list[ClassRecord]
    samples: int
    withheld: int
    added: int
    erased: int
    exposure: Literal["ids", "thumb", "full"]
    training_pictures: TrainingPictures
    test: TestSplit
    contributors: bool
    beside: str | None
    weights: list[Weights]
    limits: Limits
    views: list[str]


class RunState(BaseModel):
    """What became of the run's folder since it was opened, and what is wrong with the decisions, if anything."""

    changed: str
    decisions: str


class Card(BaseModel):
    """The model card, Markdown."""

    markdown: str


class History(BaseModel):
    """The class loss over all samples, epoch by epoch."""

    epochs: list[int]
    median: list[float]
    p90: list[float]


class Curves(BaseModel):
    """What training logged."""

    epochs: list[int]
    series: list[Series]
    history: History | None


class Evaluation(BaseModel):
    """What was measured, each with its interval and n where it has one."""

    measures: list[Measure]


class Checks(BaseModel):
    """What trust checks found; `current` is false where the samples changed since."""

    checks: dict[str, Any] | None
    outcomes: list[Outcome]
    current: bool
    how: str


class DataState(BaseModel):
    """The training data as they are now."""

    available: int
    left_out: int
    facts: list[str]


class Files(BaseModel):
    """Every file against its hash, looked at now."""

    verified: bool
    files: list[FileRecord]
    data: DataState
    model_sha256: str | None
    data_fingerprint: Annotated[str, Field(min_length=64)]


def run_routes(state: State) -> APIRouter:
    """GET /run and what lies below it."""
    routes, served = router("run"), state.served

    @routes.get("/run", responses=gives())
    async def run() -> RunRecord:
        """The run in short, and what may be asked of it."""
        return _run(state)

    @routes.get("/run/state", responses=gives())
    async def run_state() -> RunState:
        """Whether the run in the folder is still the one that was opened, and its decisions are in order."""
        changed = await asyncio.to_thread(state.on_disk.changed)
        return RunState(changed=changed, decisions=await asyncio.to_thread(lambda: state.decisions.trouble))

    @routes.get("/run/card", responses=gives())
    async def run_card() -> Card:
        """The model card."""
        if await asyncio.to_thread(state.on_disk.is_other):
            return Card(markdown="The card of the run that is shown here is not in its folder any more.")
        return Card(markdown=await asyncio.to_thread(card, served))

    @routes.get("/run/curves", responses=gives())
    async def run_curves() -> Curves:
        """Losses and accuracies by epoch."""
        other = await asyncio.to_thread(state.on_disk.is_other)
        epochs, series = ([], []) if other else await asyncio.to_thread(curves, served)
        return Curves(epochs=epochs, series=series, history=_history(served.run.history))

    @routes.get("/run/evaluation", responses=gives())
    async def run_evaluation() -> Evaluation:
        """What was measured."""
        config = await asyncio.to_thread(state.on_disk.config, served.run.config)
        return Evaluation(measures=measures(config.evaluation or {}))

    @routes.get("/run/checks", responses=gives())
    async def run_checks() -> Checks:
        """What trust checks found."""
        config = await asyncio.to_thread(state.on_disk.config, served.run.config)
        outcomes, current = checks(served, config)
        raw = config.checks
        return Checks(checks=None if raw is None else dict(raw), outcomes=outcomes, current=current, how=HOW)

    @routes.get("/run/files", responses=gives())
    async def run_files() -> Files:
        """Check every file of the run against its hash, now."""
        found = await asyncio.to_thread(files, served.folder, state.on_disk.opened)
        there = state.library.row >= 0
        return Files(
            verified=bool(found) and all(one.ok for one in found),
            files=found,
            data=DataState(
                available=int(there.sum()),
                left_out=int((~there & ~served.run.samples.withheld).sum()),
                facts=list(served.facts),
            ),
            model_sha256=state.on_disk.opened.get(WEIGHTS),
            data_fingerprint=served.run.samples.fingerprint,
        )

    return routes


def _run(state: State) -> RunRecord:
    served = state.served
    run, samples, network = served.run, served.run.samples, served.run.config.network
    shape = network.input_shape
    picture = state.uploads.rule is not None
    sizes = np.bincount(samples.labels[state.library.active], minlength=len(samples.class_names))
    generates = is_generator(run)
    own = state.library.modality
    columns = own.columns if isinstance(own, Table) else ()
    return RunRecord(
        name=served.name,
        version=provnet.__version__,
        task="generate" if generates else "classify",
        network=network.network,
        backbone=network.backbone,
        head=network.head,
        parameters=parameter_count(run.network),
        input=Input(
            shape=list(shape),
            kind=own.name,
            typed=isinstance(own, Text) or bool(columns),
            columns=[ColumnRecord(name=one.name, kind=one.kind, values=list(one.values)) for one in columns],
            picture=picture,
            height=shape[1] if picture else None,
            width=shape[2] if picture else None,
            channels=shape[0] if picture else None,
            drawable=picture and shape[0] == 1 and max(shape[1:]) <= 64,
            large=picture and state.library.is_large,
        ),
        classes=[
            ClassRecord(class_=number, label=name, samples=int(sizes[number]))
            for number, name in enumerate(samples.class_names)
        ],
        samples=len(state.library.active),
        withheld=int(samples.withheld.sum()),
        added=int(samples.added.sum()),
        erased=run.config.erased,
        exposure=served.exposure,  # type: ignore[arg-type]
        training_pictures=TrainingPictures(available=int((state.library.row >= 0).sum()), facts=list(served.facts)),
        test=TestSplit(samples=0 if served.test is None else len(served.test), why=served.test_why),
        contributors=state.own_people is not None,
        beside=None if served.beside is None else served.beside.name,
        weights=_weights(network.network),
        limits=Limits(),
        views=[*VIEWS, *(["generate"] if generates else [])],
    )


def _weights(network: str) -> list[Weights]:
    """Joint weights differ from plain ones where a class branch stands beside an index over the samples of all classes.

    Within one class P(class) is a common factor, and without a class branch it is the sum of the plain weights.
    """
    kind = NETWORKS[network]
    return ["plain", "joint"] if kind.task and kind.head == "flat" else ["plain"]


def _history(losses: np.ndarray | None) -> History | None:
    if losses is None or losses.size == 0:
        return None
    values = losses.astype(np.float64)
    return History(
        epochs=list(range(1, len(values) + 1)),
        median=np.median(values, axis=1).round(5).tolist(),
        p90=np.quantile(values, 0.9, axis=1).round(5).tolist(),
    )


HOW = "provnet check RUN"

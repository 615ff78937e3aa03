"""Facts about a run out of its folder, as plain records: card, logged curves, measures, checks, hashes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from provnet.app.fields import Interval
from provnet.app.on_disk import hashes
from provnet.app.served import Served
from provnet.card import bank_state
from provnet.data.files import read_file
from provnet.errors import ProvnetError
from provnet.fileset import NAME
from provnet.modelfile import verify_files
from provnet.runconfig import RunConfig

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

"""Kept results: a small file a cell and seed, written whole; NAME.json, which holds all of them, one line a seed.

A cell that was run is found again in either, so a run goes on after a stop, on another machine, or from the committed
NAME.json alone. A result is used only under the config that made it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from provnet.atomic import write_bytes
from provnet.errors import IntegrityError
from provnet.experiments.records import Cell, Result, Results
from provnet.safejson import read_json

LIMIT = 20_000_000  # bytes of a file


def results_file(out: Path, name: str, scale: str) -> Path:
    """Where all results of an experiment are; those of smaller scales lie apart.

    >>> results_file(Path("results"), "table2", "tiny").as_posix()
    'results/tiny/table2.json'
    """
    return (out if scale == "full" else out / scale) / f"{name}.json"


def cell_file(out: Path, name: str, scale: str, cell: str, seed: int) -> Path:
    """Where one cell with one seed is kept."""
    return results_file(out, name, scale).parent / "cells" / name / f"{cell.replace('/', '.')}.{seed}.json"


def keep(out: Path, name: str, scale: str, cell: Cell, seed: int, result: Result) -> None:
    """Write one result, whole or not at all."""
    record = {"experiment": name, "scale": scale, "cell": cell.name, "seed": seed, "config": plain(cell.config)}
    record |= _as_json(result)
    write_bytes(cell_file(out, name, scale, cell.name, seed), (_dump(record) + "\n").encode())


def kept(out: Path, name: str, scale: str, cells: list[Cell]) -> dict[str, dict[int, Result]]:
    """What is there of these cells under their present config, of every seed."""
    configs = {cell.name: plain(cell.config) for cell in cells}
    found: dict[str, dict[int, Result]] = {cell.name: {} for cell in cells}
    whole = results_file(out, name, scale)
    if whole.is_file():
        before = read_results(whole)
        for cell, seeds in before.cells.items():
            if cell in found and before.configs[cell] == configs[cell]:
                found[cell].update(seeds)
    for record in _records(whole.parent / "cells" / name):
        if configs.get(record["cell"]) == record["config"]:
            found[record["cell"]][record["seed"]] = _from_json(record)
    return {cell: dict(sorted(seeds.items())) for cell, seeds in found.items()}


def write_results(out: Path, name: str, scale: str, cells: list[Cell], absent: Mapping[str, str]) -> Results:
    """Gather what is kept into NAME.json and return it."""
    found = kept(out, name, scale, cells)
    results = Results(
        name,
        scale,
        {cell: seeds for cell, seeds in found.items() if seeds},
        {cell.name: plain(cell.config) for cell in cells if found[cell.name]},
        {cell: why for cell, why in absent.items() if not found.get(cell)},
    )
    write_bytes(results_file(out, name, scale), _text(results).encode())
    return results


def read_results(path: Path) -> Results:
    """The inverse of `write_results`."""
    value = read_json(path.read_bytes(), path.name, limit=LIMIT)
    try:
        cells = {
            cell: {int(seed): _from_json(one, value["origins"]) for seed, one in entry["seeds"].items()}
            for cell, entry in value["cells"].items()
        }
        configs = {cell: entry["config"] for cell, entry in value["cells"].items()}
        return Results(value["experiment"], value["scale"], cells, configs, value["absent"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise IntegrityError(f"{path} is not a file of results ({error!r}); make it again: provnet reproduce") from None


def plain(value: Any) -> Any:
    """What a JSON file gives back for a value: lists for tuples, text for keys.

    >>> plain({1: (2.0, None)})
    {'1': [2.0, None]}
    """
    return json.loads(json.dumps(value))


def _records(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
        record = read_json(path.read_bytes(), path.name, limit=LIMIT)
        if not {"cell", "seed", "config", "figures", "told", "origin"} <= set(record):
            raise IntegrityError(f"{path} is not a kept cell; remove it, and the cell is run again")
        yield record


def _as_json(result: Result) -> dict[str, Any]:
    record: dict[str, Any] = plain({"figures": result.figures, "told": result.told, "origin": result.origin})
    return record


def _from_json(value: Mapping[str, Any], origins: Mapping[str, Any] | None = None) -> Result:
    figures = {name: (float(rate), int(n)) for name, (rate, n) in value["figures"].items()}
    return Result(figures, value["told"], value["origin"] if origins is None else origins[value["origin"]])


def _dump(value: Any) -> str:
    return json.dumps(value, sort_keys=True, allow_nan=False)


def _text(results: Results) -> str:
    """JSON that people can compare: one line a config, one a seed, one a place that results come from."""
    origins: dict[str, str] = {}
    blocks = []
    for cell, seeds in results.cells.items():
        lines = []
        for seed, result in seeds.items():
            record = _as_json(result)
            text = _dump(record["origin"])
            record["origin"] = hashlib.sha256(text.encode()).hexdigest()[:8]
            origins[record["origin"]] = text
            lines.append(f'    "{seed}": {_dump(record)}')
        config = _dump(results.configs[cell])
        blocks.append(f'  {_dump(cell)}: {{"config": {config}, "seeds": {{\n' + ",\n".join(lines) + "\n   }}")
    made = ",\n".join(f'  "{key}": {text}' for key, text in sorted(origins.items()))
    return (
        f'{{"experiment": {_dump(results.name)}, "scale": {_dump(results.scale)},\n'
        f' "absent": {_dump(results.absent)},\n'
        ' "cells": {\n' + ",\n".join(blocks) + '\n },\n "origins": {\n' + made + "\n }}\n"
    )

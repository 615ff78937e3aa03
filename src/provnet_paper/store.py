"""Kept results: a small file a cell and seed, written whole; NAME.json, which holds all of them, one line a seed.

A cell that was run is found again in either, so a run goes on after a stop, on another machine, or from the committed
NAME.json alone. A result is used only under the config that made it.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import provnet
from provnet.base.atomic import write_bytes
from provnet.base.errors import IntegrityError, UsageError, one_of
from provnet.base.options import RunOptions
from provnet.data.dataset import ImageData
from provnet.runs.run import Run, has_run, read_run, write_run
from provnet.runs.safe import read_json
from provnet.training.config import TrainConfig
from provnet.training.fit import fit
from provnet_paper.records import Cell, Job, Result, Results

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


def kept_cells(out: Path, name: str, scale: str, cells: list[Cell]) -> dict[str, dict[int, Result]]:
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
    found = kept_cells(out, name, scale, cells)
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
    """What a JSON file gives back for a value: lists for tuples, text for keys."""
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


COMMIT = "PROVNET_COMMIT"  # for machines that have the source without its history; a + at its end says: with changes


@cache
def origin(device: str) -> dict[str, Any]:
    """Everything beside config and seed that a figure may depend on; `device` is `cpu` or `cuda`."""
    import torch

    commit, dirty = _commit()
    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else f"cpu, {processor()}",
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "provnet": provnet.__version__,
        "commit": commit,
        "dirty": dirty,
        "source_sha256": source_sha256(),
    }


def resolve_device(device: str) -> str:
    """`cpu` or `cuda`, for a name that may be `auto`."""
    import torch

    from provnet.training.setup import DEVICES

    one_of("device", device, DEVICES)
    if device == "cuda" and not torch.cuda.is_available():
        raise UsageError('device "cuda" was asked for, but no GPU is visible; use --device cpu')
    return ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device


def free_memory() -> None:
    """Give back what the last network held on a GPU, so that the next one finds all of it free."""
    import gc

    import torch

    if torch.cuda.is_available():
        gc.collect()
        torch.cuda.empty_cache()


def _commit() -> tuple[str | None, bool | None]:
    """The commit and whether tracked files differ from it; None where nothing says so (an installed wheel)."""
    given = os.environ.get(COMMIT)
    if given:
        return given.rstrip("+"), given.endswith("+")
    folder = Path(__file__).resolve().parents[2]
    if not (folder / ".git").exists():
        return None, None

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    try:
        return git("rev-parse", "HEAD") or None, bool(git("status", "--porcelain", "--", "src"))
    except OSError:  # no git on this machine
        return None, None


def source_sha256() -> str:
    """A hash over all source files of provnet: equal hashes mean equal code, with or without git."""
    root = Path(provnet.__file__).parent.parent
    whole = hashlib.sha256()
    for path in sorted(path for room in ("provnet", "provnet_paper") for path in (root / room).rglob("*.py")):
        whole.update(path.relative_to(root).as_posix().encode() + b"\0")
        whole.update(hashlib.sha256(path.read_bytes()).digest())
    return whole.hexdigest()


def processor() -> str:
    """The processor's name where the system says it."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def trained_or_taken(
    train: ImageData,
    config: TrainConfig,
    job: Job,
    on_epoch: Callable[[Mapping[str, Any]], None],
    **wishes: Any,
) -> tuple[Run, bool]:
    """A trained network on its device, and whether it was taken from the shelf."""
    place = _place(train, config, job, wishes)
    taken = place is not None and has_run(place)
    if place is not None and taken:
        run = read_run(place)
    else:
        run = fit(train, config.using(**wishes), RunOptions(device=job.device), on_epoch=on_epoch)
        if place is not None:
            _lay_down(run, place)
    run.network.to(resolve_device(job.device))
    return run, taken


def _place(train: ImageData, config: TrainConfig, job: Job, wishes: Mapping[str, Any]) -> Path | None:
    """Named after everything that decides the weights, the source included; a backbone of one's own has no name."""
    if job.networks is None or not all(isinstance(value, str | int | float) for value in wishes.values()):
        return None
    told = {
        "samples": train.samples.fingerprint,
        "training": config.to_json(),
        "fit": dict(wishes),
        "device": resolve_device(job.device),
        "source": source_sha256(),
    }
    name = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]
    return job.networks / f"{wishes.get('network', 'network')}-{name}"


def _lay_down(run: Run, place: Path) -> None:
    """Written aside, then renamed: a cell in another process finds the whole run or none."""
    aside = place.with_name(f".{place.name}-{os.getpid()}")
    write_run(run, aside)
    try:
        aside.rename(place)
    except OSError:  # the other process was first, with the same weights
        for path in aside.iterdir():
            path.unlink()
        aside.rmdir()

"""What `provnet train` says of its data before, and of its course after."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table

from provnet.cli.again import path_word
from provnet.cli.output import interval_cells, say, show

if TYPE_CHECKING:
    from provnet.data.imagedata import ImageData
    from provnet.modelfile import Run


def data_warnings(data: ImageData, network: str = "class-conditional") -> list[str]:
    """What a reader of the figures has to know about the data, one line each.

    >>> import numpy as np, provnet
    >>> data = provnet.open_data(np.arange(12.0).reshape(3, 4), ["cat", "cat", "dog"])
    >>> data_warnings(data)
    ['1 class has one sample, which is named whatever input is taken for that class: dog']
    >>> data_warnings(data, "class-independent")
    []
    """
    import numpy as np

    from provnet.data.duplicates import duplicate_facts
    from provnet.data.files import brief
    from provnet.models.provenance import NETWORKS

    samples = data.samples
    lines = duplicate_facts(samples)
    sizes = np.bincount(samples.labels, minlength=len(samples.class_names))
    empty = int((sizes == 0).sum())
    if empty:
        words = "has no sample and is" if empty == 1 else "have no sample and are"
        lines.append(f"{empty:,} of {len(sizes):,} classes {words} never predicted")
    alone = [brief(samples.class_names[number]) for number in np.flatnonzero(sizes == 1)]
    if len(data) == 1:
        lines.append("there is one sample in all: every accuracy is meaningless")
    elif len(samples.class_names) == 1:
        lines.append("there is a single class: class accuracy is meaningless")
    elif alone and network in NETWORKS and NETWORKS[network].head != "flat":  # else the index is among all samples
        what = "1 class has" if len(alone) == 1 else f"{len(alone):,} classes have"
        names = ", ".join(alone[:3]) + (", ..." if len(alone) > 3 else "")
        lines.append(f"{what} one sample, which is named whatever input is taken for that class: {names}")
    if data.skipped:
        files = "file" if len(data.skipped) == 1 else "files"
        lines.append(f"{len(data.skipped):,} bad {files} left out; the first: {data.skipped[0]}")
    return lines


def data_words(data: ImageData) -> str:
    """Source, samples, classes and shape in a line."""
    classes = f"{len(data.class_names):,} {'class' if len(data.class_names) == 1 else 'classes'}"
    shape = " x ".join(str(side) for side in data.shape)
    return f"{data.spec.source}: {len(data):,} samples, {classes}, {shape}"


def network_words(data: ImageData, preset: str, given: Mapping[str, Any]) -> str:
    """The network that will be trained, with its parameter count."""
    import torch

    from provnet.models.provenance import build, parameter_count
    from provnet.training.plan import plan

    network, backbone = given.get("network", "class-conditional"), given.get("backbone", "auto")
    shaping = {
        name: given[name]
        for name in ("conditional", "alpha", "level", "head", "key_type", "key_width")
        if name in given
    }
    config, index_map = plan(data, network, backbone, preset, **shaping)
    with torch.device("meta"):
        count = parameter_count(build(config, index_map))
    keys = "" if config.head == "plain" else f", {config.head} head"
    return f"{config.network}{keys}, backbone {config.backbone}, {count:,} parameters, preset {preset}"


def run_result(run: Run, folder: Path, seconds: float) -> dict[str, Any]:
    """What `train --json` prints; the accuracies are those of the last epoch, measured while training."""
    from provnet.models.provenance import parameter_count
    from provnet.stats import wilson

    samples, last = run.samples, read_course(folder)[-1]
    n, learned = len(samples), run.config.training["data"]["samples"]  # the second: also those without an index
    return {
        "run": str(folder),
        "network": run.config.network.network,
        "backbone": run.config.network.backbone,
        "parameters": parameter_count(run.network),
        "samples": n,
        "classes": len(samples.class_names),
        "fingerprint": samples.fingerprint,
        "index_ceiling": samples.index_ceiling,
        "label_conflicts": len(samples.conflicts()),
        "epochs": last["epoch"],
        "seconds": round(seconds, 3),
        "loss": last["loss"],
        "class_accuracy": wilson(round(last["class_accuracy"] * learned), learned).to_json(),
        "index_accuracy": wilson(round(last["index_accuracy"] * n), n).to_json(),
    }


def read_course(folder: Path) -> list[dict[str, Any]]:
    """The log of a run, one row an epoch."""
    from provnet.data.files import read_file
    from provnet.training.folder import LOG

    return [json.loads(line) for line in read_file(folder / LOG).splitlines()]


def show_result(result: Mapping[str, Any], folder: Path, *, resumed: bool = False) -> None:
    """The end of `train`, for people; of a resumed run the time is that since it went on."""
    from provnet.report.text import seconds

    show(course_table(read_course(folder)))
    for name in ("class", "index"):
        value, ends, n = interval_cells(result[f"{name}_accuracy"])
        say(f"{name} accuracy while training, last epoch: {value} (95 %: {ends}, n = {n})")
    words = "went on for" if resumed else "trained in"
    say(f"{words} {seconds(result['seconds'])}; run written to {folder}", "bold")
    say(f"next: provnet evaluate {path_word(folder)}")


def course_table(course: list[dict[str, Any]], most: int = 8) -> Table:
    """Some epochs of the course, the first and the last among them.

    >>> row = {"epoch": 1, "loss": 1.0, "class_accuracy": 0.5, "index_accuracy": 0.1}
    >>> course_table([row] * 100).row_count
    8
    """
    from provnet.report.text import percent

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("epoch", "loss", "class accuracy", "index accuracy"):
        table.add_column(name, justify="right")
    count = min(most, len(course))
    for number in sorted({round(i * (len(course) - 1) / max(count - 1, 1)) for i in range(count)}):
        row = course[number]
        shares = (percent(row["class_accuracy"], 2), percent(row["index_accuracy"], 2))
        table.add_row(str(row["epoch"]), f"{row['loss']:.4f}", *shares)
    return table

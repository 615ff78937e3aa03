"""Options of `provnet train` for an index over some samples, and what the command says of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.table import Table

from provnet.cli.opened import open_run
from provnet.cli.output import is_first_process, say, show
from provnet.errors import UsageError
from provnet.processes import world_size

if TYPE_CHECKING:
    from provnet.data.imagedata import ImageData
    from provnet.modelfile import Run
    from provnet.training.subset import IndexSubset

_PANEL = "Index over some samples"
Asked = Annotated[
    str | None,
    typer.Option(
        "--index-subset",
        metavar="30%|N",
        help="Index only so many samples; every class keeps at least one. Default: all.",
        rich_help_panel=_PANEL,
    ),
]
Select = Annotated[
    str | None,
    typer.Option(
        metavar="stratified|prototypes|boundary|diverse",
        help="Which samples: drawn by the seed (default), near k-means centres, of smallest margin, far apart.",
        rich_help_panel=_PANEL,
    ),
]
SelectFrom = Annotated[
    Path | None,
    typer.Option(
        metavar="RUN",
        help="Select by this run's features. Default: a class branch alone, trained quickly.",
        rich_help_panel=_PANEL,
    ),
]
ClassesOn = Annotated[
    str | None,
    typer.Option(
        metavar="all|subset",
        help="What the class branch learns from. Default: all; for a single branch subset.",
        rich_help_panel=_PANEL,
    ),
]


def chosen_subset(
    data: ImageData,
    asked: str | None,
    select: str | None,
    classes_on: str | None,
    select_from: Path | None,
    given: Mapping[str, Any],
    seed: int,
) -> IndexSubset | None:
    """The samples to index, or None where all are; options that would do nothing are refused."""
    if asked is None:
        for name, value in (("select", select), ("select-from", select_from), ("subset-classes-on", classes_on)):
            if value is not None:
                raise UsageError(f"--{name} is for --index-subset; give that too, such as --index-subset 30%")
        return None

    from provnet.applications.subset_choice import index_subset
    from provnet.applications.subsets import SELECTIONS
    from provnet.errors import one_of

    way = one_of("selection", select or "stratified", SELECTIONS)
    several = given.get("devices", 1) > 1 or world_size() > 1
    if several and way != "stratified" and select_from is None:
        raise UsageError(f"several processes cannot make features for --select {way}; give a run with --select-from")
    usual = "subset" if given.get("network") == "single" else "all"
    run = None if select_from is None else open_run(select_from)
    where, shown = given.get("device", "auto"), is_first_process()
    return index_subset(
        data, asked, way, classes_on=classes_on or usual, run=run, seed=seed, device=where, progress=shown
    )


def subset_record(run: Run, data: ImageData) -> dict[str, Any]:
    """What an index over some samples saves: numbers of the index head and of the network, beside those for all.

    A key counts as much as a row of an output layer: both are stored, one is trained.
    """
    import torch

    from provnet.indexing import IndexMap
    from provnet.models.provenance import build
    from provnet.training.subset import KEY

    config = run.config.network
    every = IndexMap(data.samples.labels, config.classes)
    with torch.device("meta"):
        whole = build(config, every)
    about = run.config.training[KEY]
    named = {name: about[name] for name in ("asked", "select", "classes_on", "indexed", "of")}
    return named | {
        "index_head": _numbers(run.network.index_head),
        "index_head_of_all": _numbers(whole.index_head),
        "network": _numbers(run.network),
        "network_of_all": _numbers(whole),
    }


def show_subset(record: Mapping[str, Any]) -> None:
    """The table at the end of `train`."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("numbers stored", "all indexed", "this run", "saved"):
        table.add_column(name, justify="left" if name == "numbers stored" else "right")
    for words, name in (("samples with an index", "indexed"), ("index head", "index_head"), ("network", "network")):
        whole, here = record["of" if name == "indexed" else f"{name}_of_all"], record[name]
        table.add_row(words, f"{whole:,}", f"{here:,}", f"{1 - here / whole:.1%}")
    show(table)
    learned = "all samples" if record["classes_on"] == "all" else "the indexed samples alone"
    say(f"indexed: {record['asked']}, {record['select']}; the class branch learned from {learned}")


def _numbers(module: Any) -> int:
    """Trained numbers, and keys, which are stored like them."""
    keys = [value for name, value in module.named_buffers() if name.split(".")[-1] == "keys"]
    return sum(value.numel() for value in (*module.parameters(), *keys))

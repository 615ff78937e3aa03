"""An index over some of the samples: class and retrieved classes with 10 to 100 % of the training data."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from provnet.base.stats import wilson
from provnet.models.network import parameter_count
from provnet.tools.subsets import index_subset
from provnet_paper import networks
from provnet_paper.measures import mean
from provnet_paper.networks import PAIRS
from provnet_paper.plots import BLUE, GREY, ORANGE, panels, png, tidy
from provnet_paper.records import Cell, Experiment, Job, Result, Results, Scale, Table, Told, printed_numbers
from provnet_paper.store import resolve_device
from provnet_paper.two_cnns import TwoCnns, built, pair, pair_hits, rates, train_both

SHARES = tuple(range(10, 101, 10))
CHOSEN = (10, 30)
WAYS = ("stratified", "prototypes", "boundary", "diverse")
PRINTED = "mnist/stratified-30-as-printed"
FIGURES = {
    "class_accuracy": "main branch",
    "any_at_1": "any@1",
    "any_at_5": "any@5",
    "any_at_10": "any@10",
    "index_accuracy": "own index",
    "indexed": "samples",
    "index_head": "index head",
    "parameters": "parameters",
}


def read(kept: Result) -> Result:
    """With the size of the index head and the number of indexed samples as figures."""
    plain = {"index_head": (float(kept.told["index_head"]), 0), "indexed": (float(kept.told["samples"]["indexed"]), 0)}
    return replace(kept, figures={**kept.figures, **plain})


LINES = {
    "class_accuracy": ("black", "o", "main branch"),
    "any_at_10": ("#3b9e8f", "^", "any@10"),
    "any_at_5": (BLUE, "s", "any@5"),
    "any_at_1": (ORANGE, "D", "any@1"),
}
MARKS = {"prototypes": "P", "boundary": "X", "diverse": "*"}
# the main branch above on a scale of its own: beside retrieved classes its differences are not seen
ROWS = {"main branch: accuracy, %": ("class_accuracy",), "retrieved classes: accuracy, %": tuple(LINES)[1:]}


def subsets_figures(results: Results) -> dict[str, bytes]:
    """Accuracy over the share, a column a data set; the paper's as open marks, chosen samples as grey ones."""
    there = [data for data in PAIRS if any(cell.startswith(f"{data}/") for cell in results.cells)]
    if not there:
        return {}
    drawing, every = panels(len(ROWS), len(there), (1.5 + 4.8 * len(there), 6.4), sharex=True, height_ratios=(1, 1.7))
    handles: dict[str, Any] = {}
    for row, (words, figures) in zip(every, ROWS.items(), strict=True):
        for axes, data in zip(row, there, strict=True):
            _panel(axes, results, data, figures)
            found, names = axes.get_legend_handles_labels()
            handles |= dict(zip(names, found, strict=True))
        row[0].set_ylabel(words)
    for column, data in enumerate(there):
        paper = "; open marks: the paper's; bands: 95 % intervals" if results.scale == "full" else ""
        every[0][column].set_title(f"{PAIRS[data]}{paper}", fontsize=11)
        every[-1][column].set_xlabel("share of the training samples, %")
    order = [name for name in (*(words for _, _, words in LINES.values()), *MARKS) if name in handles]
    drawing.legend(
        [handles[name] for name in order],
        [f"{name} (main branch, any@1)" if name in MARKS else name for name in order],
        loc="outside lower center",
        ncols=4,
        frameon=False,
    )
    return {"": png(drawing)}


def _panel(axes: Any, results: Results, data: str, figures: tuple[str, ...]) -> None:
    for figure in figures:
        colour, marker, words = LINES[figure]
        found = [(share, mean(results, f"{data}/stratified-{share}", figure)) for share in SHARES]
        points = [(share, one[0], wilson(one[0] * one[1], one[1])) for share, one in found if one is not None]
        if points:
            shares, rates, intervals = zip(*points, strict=True)
            axes.plot(shares, [100 * rate for rate in rates], color=colour, marker=marker, ms=5, lw=1.5, label=words)
            ends = ([100 * one.low for one in intervals], [100 * one.high for one in intervals])
            axes.fill_between(shares, *ends, color=colour, alpha=0.15, lw=0)
        paper = [(int(one.setting.split("-")[1]), 100 * one.value) for one in printed_numbers("subsets")
                 if (one.data, one.figure) == (data, figure)]  # fmt: skip
        if results.scale == "full":
            axes.plot(*zip(*paper, strict=True), color=colour, marker=marker, ms=7, mfc="none", lw=0.7, ls=":")
    for way, marker in MARKS.items():
        for share in CHOSEN:
            one = mean(results, f"{data}/{way}-{share}", figures[-1])  # of retrieved classes those of the first
            if one is not None:
                axes.plot(share, 100 * one[0], marker=marker, color=GREY, ms=8, ls="", label=way)
    tidy(axes, grid=True)


SIZE, LEVEL, EPOCHS, RAISED = "medium", 1, 100, 4
# seconds, and seconds for each per cent: a network for features, then a sample at a time on the CPU
CHOOSING = {"stratified": (0.0, 0.0), "boundary": (12.0, 0.0), "diverse": (12.0, 1.0), "prototypes": (15.0, 2.0)}


def cells(scale: Scale) -> list[Cell]:
    """A way of choosing and a share each; `tiny` has two."""
    if scale.name == "tiny":
        return [_cell("mnist", way, 30, scale) for way in ("stratified", "diverse")]
    found = [_cell(data, "stratified", share, scale) for share in SHARES for data in PAIRS]
    found += [_cell(data, way, share, scale) for share in CHOSEN for data in PAIRS for way in WAYS[1:]]
    return [*found, _cell("mnist", "stratified", 30, scale, printed=True)]


def _cell(data: str, way: str, share: int, scale: Scale, *, printed: bool = False) -> Cell:
    size = "small" if scale.name == "tiny" else SIZE
    recipe = pair(size, LEVEL, scale.epochs or EPOCHS, 1 if printed else RAISED)
    name = PRINTED if printed else f"{data}/{way}-{share}"
    config: dict[str, Any] = {"pair": recipe.to_json(), "select": way, "share": share}
    seconds = 3.0 + (1.0 if printed else 0.3) * share + CHOOSING[way][0] + CHOOSING[way][1] * share
    return networks.cell(name, data, scale, partial(run, data, way, share, recipe), seconds, config)


def run(data: str, way: str, share: int, recipe: TwoCnns, job: Job) -> Told:
    """Choose, train both networks on what was chosen, and ask them."""
    train, test = networks.open_samples(data, job)
    device = resolve_device(job.device)
    chosen = index_subset(train, f"{share}%", way, classes_on="subset", seed=job.seed, device=device)
    job.tell(0.0)  # choosing took its time
    few = train.select(chosen.rows)
    net = built(few, recipe, job.seed, device)
    train_both(net, few, recipe, job.seed, lambda epoch: job.tell(0.95 * epoch / recipe.epochs))
    return {
        "figures": rates(pair_hits(net, few, test)),
        "parameters": parameter_count(net),
        "index_head": parameter_count(net.index_head),
        "samples": {"train": len(train), "indexed": len(few), "test": len(test)},
    }


SUBSETS = {f"stratified-{share}": f"{share} %" for share in SHARES} | {
    PRINTED.split("/")[1]: "30 %, batches as printed"
}
SUBSETS |= {f"{way}-{share}": f"{share} %, {way}" for share in CHOSEN for way in WAYS[1:]}
TABLE = Table(PAIRS, SUBSETS, FIGURES, head="subset")
EXPERIMENT = Experiment("subsets", cells, subsets_figures, (TABLE,), read, "subsets")

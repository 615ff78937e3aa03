"""An index over some of the samples: class and retrieved classes with 10 to 100 % of the training data.

Claim: 30 % of MNIST match the class accuracy of all data, FashionMNIST saturates beyond 50 %, with an index head that
    much smaller; on complex data chosen samples may serve better than random ones (sec. 4.3, app. 7.5, its table).
Command: provnet reproduce subsets --data-dir DIR --device cuda --seeds 1
Expected: class accuracy rises with the share and is within the interval of all data from about 70 %; any@5 and any@10
    are steadier than any@1; whether chosen samples beat random ones is measured.
Device: one H200; `--scale tiny` runs on two CPU cores.
Time: 17 minutes for one seed, three to five cells at a time beside other work.

A flat head over the subset, both branches trained on the subset alone, the first convolution shared, 100 epochs (guide,
4). Size and rates are not stated: Medium of app. 7.6 with its rates. To fit the time batches are 4 times the printed
64/32, rates twice; one cell is trained with the printed ones, too. Samples are chosen by the features of a class branch
that was trained alone for a few epochs.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from provnet.applications.subset_choice import index_subset
from provnet.experiments import networks, runs
from provnet.experiments.origin import resolved
from provnet.experiments.pair_figures import pair_hits, rates
from provnet.experiments.records import Cell, Experiment, Job, Scale, Told
from provnet.experiments.subsets_plots import subsets_figures
from provnet.experiments.subsets_words import CHOSEN, PAIRS, PRINTED, SHARES, WAYS, section
from provnet.experiments.two_cnns import TwoCnns, built, pair, trained
from provnet.models.provenance import parameter_count

SIZE, LEVEL, EPOCHS, RAISED = "medium", 1, 100, 4
# seconds, and seconds for each per cent: a network for features, then a sample at a time on the CPU
CHOOSING = {"stratified": (0.0, 0.0), "boundary": (12.0, 0.0), "diverse": (12.0, 1.0), "prototypes": (15.0, 2.0)}


def cells(scale: Scale) -> list[Cell]:
    """A way of choosing and a share each; `tiny` has two.

    >>> [cell.name for cell in cells(Scale("tiny"))], len(cells(Scale("full")))
    (['mnist/stratified-30', 'mnist/diverse-30'], 33)
    """
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
    return runs.cell(name, data, scale, partial(run, data, way, share, recipe), seconds, config)


def run(data: str, way: str, share: int, recipe: TwoCnns, job: Job) -> Told:
    """Choose, train both networks on what was chosen, and ask them."""
    train, test = networks.opened(data, job)
    device = resolved(job.device)
    chosen = index_subset(train, f"{share}%", way, classes_on="subset", seed=job.seed, device=device)
    job.tell(0.0)  # choosing took its time
    few = train.select(chosen.rows)
    net = built(few, recipe, job.seed, device)
    trained(net, few, recipe, job.seed, lambda epoch: job.tell(0.95 * epoch / recipe.epochs))
    return {
        "figures": rates(pair_hits(net, few, test)),
        "parameters": parameter_count(net),
        "index_head": parameter_count(net.index_head),
        "samples": {"train": len(train), "indexed": len(few), "test": len(test)},
    }


EXPERIMENT = Experiment("subsets", str(__doc__), cells, section, subsets_figures)

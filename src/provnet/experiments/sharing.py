"""Model size and layer sharing: four sizes of CNN1 (class) and CNN2 (index), four levels of shared layers.

Claim: larger models are better in both branches; sharing more layers improves them and can hurt small ones; level 3 is
    best for most, levels 3 and 4 give the highest class consistency (sec. 4.4, app. 7.6, two tables).
Command: provnet reproduce sharing --data-dir DIR --device cuda --seeds 1
Expected: class accuracy near the paper's; memorisation complete for large models; several of the paper's sentences hold
    neither in its own tables nor in ours, and are named below.
Device: one H200; `--scale tiny` runs on two CPU cores.
Time: an estimated 50 minutes for one seed: 40 s a small pair, 55 s a medium, 75 s a large, 185 s an XLarge, 5 minutes
    for the two pairs with the batches as printed.

Layers, dropout, 150 epochs and rates as app. 7.6 prints them. To fit the time batches are 8 times larger (XLarge 16
times: 512 and 256 for all). Rates of Small and Medium are larger by the root of that; those of Large and XLarge are as
printed, since with larger ones CNN2 of Large at level 1 on MNIST never left chance. Two pairs are trained with the
printed batches, too: one whose rates grew, one whose rates did not. Which answers are right is kept, so that pairs are
compared sample by sample.
"""

from __future__ import annotations

from functools import partial

from provnet.experiments import networks, runs
from provnet.experiments.copies import copy_figures
from provnet.experiments.origin import resolved
from provnet.experiments.pair_figures import answers, pair_hits, point, rates
from provnet.experiments.pairs import kept_hits
from provnet.experiments.records import Cell, Experiment, Job, Scale, Told
from provnet.experiments.sharing_claims import LEVELS, PAIRS
from provnet.experiments.sharing_plots import sharing_figures
from provnet.experiments.sharing_words import AS_PRINTED, section
from provnet.experiments.two_cnns import TwoCnns, built, pair, shared_share, trained
from provnet.models.provenance import parameter_count

EPOCHS = 150
EARLY, EVERY = 20, 5  # a point of the curves every epoch at first, then every fifth
PAIRED = ("class_accuracy", "index_accuracy", "any_at_1", "any_at_5")
RAISED = {"small": 8, "medium": 8, "large": 8, "xlarge": 16}
SECONDS = {"small": 40.0, "medium": 55.0, "large": 75.0, "xlarge": 185.0}
WITH_PRINTED = {"mnist/small-3": 105.0, "mnist/large-4": 180.0}  # also run with the printed batches


def cells(scale: Scale) -> list[Cell]:
    """A pair each, small ones first, the largest last but for a second pair with the printed batches; `tiny` has two.

    >>> [cell.name for cell in cells(Scale("tiny"))], len(cells(Scale("full")))
    (['mnist/small-1', 'mnist/small-4'], 34)
    """
    if scale.name == "tiny":
        return [_cell("mnist", "small", level, scale) for level in (1, 4)]
    found = [_cell(data, size, level, scale) for size in RAISED for data in PAIRS for level in LEVELS]
    printed = []
    for name in WITH_PRINTED:
        data, setting = name.split("/")
        size, level = setting.split("-")
        printed.append(_cell(data, size, int(level), scale, printed=True))
    large = len(PAIRS) * len(LEVELS)
    first, *others = printed  # one is asked for; the others are more evidence
    return [*found[:-large], first, *found[-large:], *others]


def _cell(data: str, size: str, level: int, scale: Scale, *, printed: bool = False) -> Cell:
    recipe = pair(size, level, scale.epochs or EPOCHS, 1 if printed else RAISED[size])
    name = f"{data}/{size}-{level}"
    seconds = WITH_PRINTED[name] if printed else SECONDS[size]
    name += AS_PRINTED if printed else ""
    return runs.cell(name, data, scale, partial(run, data, recipe), seconds, {"pair": recipe.to_json()})


def run(data: str, recipe: TwoCnns, job: Job) -> Told:
    """Train one pair and ask it; curves on the way."""
    train, test = networks.opened(data, job)
    net = built(train, recipe, job.seed, resolved(job.device))
    curve: list[dict[str, float]] = []

    def ended(epoch: int) -> None:
        if epoch <= EARLY or epoch % EVERY == 0 or epoch == recipe.epochs:
            curve.append({"epoch": epoch, **point(net, train, test)})
        job.tell(0.97 * epoch / recipe.epochs)

    course = trained(net, train, recipe, job.seed, ended)
    hits = pair_hits(net, train, test)
    copies = copy_figures(train, job.seed, lambda images: answers(net, images, 1)[1][:, 0])
    return {
        "figures": rates(hits) | copies,
        **kept_hits({name: hits[name] for name in PAIRED}),
        "parameters": parameter_count(net),
        "shared": round(shared_share(net), 5),
        "curve": [{key: round(value, 5) for key, value in row.items()} for row in curve],
        **{
            kind: {name: [float(f"{row[f'{name}_{kind}']:.5g}") for row in course] for name in ("class", "index")}
            for kind in ("loss", "accuracy")  # as trained, epoch by epoch
        },
        "samples": {"train": len(train), "test": len(test)},
    }


EXPERIMENT = Experiment("sharing", str(__doc__), cells, section, sharing_figures)

"""Table 2: class and index accuracy of four networks on five data sets, with the paper's layers and recipe.

Claim: one network classifies unseen samples and names its training samples; the class-conditional one is strong in
    both, the single branch trades one for the other (sec. 5.1, table 2).
Command: provnet reproduce table2 --data-dir DIR --device cuda
Expected: of the 30 numbers of MNIST, FashionMNIST and CIFAR-10 at least 25 at or above the paper's less the half-width
    of their Wilson interval; the rest explained below the table.
Device: one H200; `--scale tiny` runs on two CPU cores.
Time: 18 minutes a seed of the three data sets, three cells at a time (1,067 s of seed 2); Stanford Dogs 3 minutes more.

Preset `paper`: 80 epochs, batch 128, AdamW 2e-3, no augmentation; layers as listed in app. 7.1 and 7.2. Departures are
in `remarks.csv`, and below the table.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from provnet_paper import networks
from provnet_paper.judge import SEEDS, findings, told
from provnet_paper.plots import against_paper
from provnet_paper.recipes import DATA, SETTINGS
from provnet_paper.records import Cell, Experiment, Job, Results, Scale, Told
from provnet_paper.table2_words import OWN, remarks, section_of

# about how long on an H200: an epoch of the single branch takes 1.7 s there (docs/speed.md), the smaller ones by their
# weights; 20 s and more go into drawing weights, and into asking all samples as they are and as changed copies
SECONDS = {"class-conditional": 80.0, "class-independent": 100.0, "single-0": 160.0, "single-0.5": 160.0}
SHARES = {"cifar10": 0.9, "cifar100": 0.9, "stanford-dogs": 0.5}  # fewer samples, larger pictures


def cells(scale: Scale) -> list[Cell]:
    """A network each; `tiny` has those of MNIST, on embedded digits.

    >>> [cell.name for cell in cells(Scale("tiny"))][:2], len(cells(Scale("full")))
    (['mnist/class-conditional', 'mnist/class-independent'], 20)
    """
    rows = ["mnist"] if scale.name == "tiny" else list(DATA)
    return [_cell(data, setting, scale) for data in rows for setting in SETTINGS]


def _cell(data: str, setting: str, scale: Scale) -> Cell:
    chosen = SETTINGS[setting]
    config: dict[str, Any] = {
        "data": networks.source(data, scale),
        "network": chosen.network,
        "alpha": chosen.alpha,
        "training": networks.recipe(data, "paper", {}, scale),
        "samples": [scale.train, scale.test],
    }
    return Cell(
        f"{data}/{setting}",
        config,
        partial(run, data, setting),
        seconds=SECONDS[setting] * SHARES.get(data, 1.0),
        missing=partial(networks.missing, networks.source(data, scale)),
    )


def run(data: str, setting: str, job: Job) -> Told:
    """Train and evaluate one network of the table."""
    chosen = SETTINGS[setting]
    wishes = {"network": chosen.network, "alpha": chosen.alpha}
    return networks.train_and_ask(data, job, preset="paper", changes={}, make=lambda: wishes)


def section(results: Results) -> list[str]:
    """The table as Markdown, data set by data set."""
    return section_of(results, remarks("table2"), claims=told(findings(results, OWN), results, SEEDS))


EXPERIMENT = Experiment("table2", str(__doc__), cells, section, against_paper)

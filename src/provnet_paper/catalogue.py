"""EXPERIMENTS: what `provnet reproduce` knows by name.

A new one is a file and a line here. The file opens with a title, then Claim, Command, Expected, Device and Time, and
ends with its EXPERIMENT: `cells(scale)` (for `tiny` a few seconds of embedded data), `section(results)` as Markdown and
`figures(results)` as PNGs. A cell's `run(job)` returns JSON values; `figures` among them are name -> (rate, n), the
rest (curves, counts, times) is kept as it is. Numbers of the paper go to paper.csv, its sentences and how each is tested
to claims.csv, remarks on single numbers to remarks.csv.
"""

from __future__ import annotations

from provnet_paper import (
    cost,
    debugging,
    embeddings,
    instance,
    membership,
    mixing,
    robustness,
    sharing,
    subsets,
    table2,
    table2_ours,
    vae,
)
from provnet_paper.records import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    "table2": table2.EXPERIMENT,
    "table2-ours": table2_ours.EXPERIMENT,
    "cost": cost.EXPERIMENT,
    "mixing": mixing.EXPERIMENT,
    "subsets": subsets.EXPERIMENT,
    "sharing": sharing.EXPERIMENT,
    "robustness": robustness.EXPERIMENT,
    "membership": membership.EXPERIMENT,
    "debugging": debugging.EXPERIMENT,
    "embeddings": embeddings.EXPERIMENT,
    "vae": vae.EXPERIMENT,
    "instance": instance.EXPERIMENT,
}

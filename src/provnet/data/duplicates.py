"""What exact duplicates in a data set mean for it, in words."""

from __future__ import annotations

import numpy as np

from provnet.data.files import shown
from provnet.data.identity import SampleTable


def duplicate_facts(samples: SampleTable) -> list[str]:
    """One line each about groups of equal pictures, the ceiling they impose, and groups with different labels.

    >>> import provnet
    >>> duplicate_facts(provnet.open_data("embedded").samples)
    []
    """
    counts = np.bincount(samples.groups)
    groups = int((counts > 1).sum())
    if not groups:
        return []
    lines = [
        f"{groups:,} groups of exact duplicates, {int(counts[counts > 1].sum()):,} of {len(samples):,} samples",
        f"exact index accuracy can reach at most {samples.index_ceiling:.4f}: equal pictures cannot be told apart",
    ]
    conflicts = samples.conflicts()
    if conflicts:
        first = ", ".join(
            f"{shown(samples.sample_ids[i])} ({shown(samples.class_names[samples.labels[i]])})"
            for i in conflicts[0][:3]
        )
        lines.append(f"{len(conflicts):,} groups of equal pictures carry different labels; the first: {first}")
    return lines

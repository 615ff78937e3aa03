"""What exact duplicates in a data set mean for it, in words."""

from __future__ import annotations

import numpy as np

from provnet.data.files import brief, shown
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
        one_of_each = {samples.labels[i]: i for i in reversed(conflicts[0])}  # reversed: the first sample of a label
        first = ", ".join(
            f"{shown(samples.sample_ids[i])} ({brief(samples.class_names[samples.labels[i]])})"
            for i in sorted(one_of_each.values())[:3]
        )
        many = "group of equal pictures carries" if len(conflicts) == 1 else "groups of equal pictures carry"
        lines.append(f"{len(conflicts):,} {many} different labels; the first: {first}")
    return lines

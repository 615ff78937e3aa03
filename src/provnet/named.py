"""Exemplar: a training sample, named so that anybody can check it, together with those that are the same picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from provnet.data.files import shown
from provnet.data.identity import SampleTable

LISTED = 10  # of equal samples: data may hold one picture thousands of times


@dataclass(frozen=True)
class Exemplar:
    """A training sample offered as explanation.

    Attributes:
        weight: its share of the explanation, 0..1; equal samples have the same.
        duplicates: ids of other samples that are the same picture, pixel by pixel, ten at most.
        duplicate_count: how many there are. Withheld ones are neither named nor counted.
    """

    sample_id: str
    sha256: str
    index: int
    label: str
    weight: float
    path: str | None
    duplicates: tuple[str, ...] = ()
    duplicate_count: int = 0

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**vars(self), "duplicates": list(self.duplicates)}


def named(samples: SampleTable, index: int, weight: float) -> Exemplar:
    """The sample at a position of the table.

    >>> import provnet
    >>> named(provnet.open_data("embedded").samples, 3, 0.5).duplicates
    ()
    """
    others = [i for i in samples.equal(index) if i != index and not samples.withheld[i]]
    return Exemplar(
        sample_id=samples.sample_ids[index],
        sha256=samples.hex(index),
        index=index,
        label=samples.class_names[int(samples.labels[index])],
        weight=weight,
        path=samples.paths[index],
        duplicates=tuple(samples.sample_ids[i] for i in others[:LISTED]),
        duplicate_count=len(others),
    )


def duplicate_words(sample: Exemplar, most: int = 3) -> str:
    """What a page says about equal samples; "" where there are none.

    >>> duplicate_words(Exemplar("a", "", 0, "7", 0.5, None, ("b", "c"), 2), most=1)
    'same picture as b and 1 more'
    """
    if not sample.duplicate_count:
        return ""
    ids = sample.duplicates[:most]
    more = sample.duplicate_count - len(ids)
    return f"same picture as {', '.join(map(shown, ids))}" + (f" and {more:,} more" if more else "")

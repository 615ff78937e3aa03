"""The modalities that a run can name, and how the one of some samples is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from provnet.data.modalities.decode import is_picture
from provnet.data.modalities.image import Image
from provnet.data.modalities.modality import Modality
from provnet.data.modalities.table import Table
from provnet.data.modalities.text import Text


def modality_of(shape: Sequence[int], options: Mapping[str, Any] | None = None) -> Modality:
    """The modality of samples: as the options of their data say, else told by the shape of what a network receives.

    >>> modality_of((1, 28, 28)).name, modality_of((4,)).name
    ('image', 'table')
    """
    given = options or {}
    name = given.get("modality", "image" if is_picture(shape) else "table")
    return MODALITIES.get(name, Table.from_json)(given)


MODALITIES: dict[str, Callable[[Mapping[str, Any]], Modality]] = {
    "image": lambda _: Image(),
    "table": Table.from_json,
    "text": Text.from_json,
}

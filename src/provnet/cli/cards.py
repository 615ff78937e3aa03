"""From explanations to the cards that pages and contact sheets draw; pictures only where their hash still fits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from provnet.cli.inputs import Query
    from provnet.data.evidence import Evidence
    from provnet.data.imagedata import ImageData
    from provnet.explanation import Explanation
    from provnet.report.records import ExplanationCard


def exemplar_evidence(explanation: Explanation, data: ImageData | Sequence[ImageData] | None) -> dict[int, Evidence]:
    """The picture of every exemplar, or why there is none, by index; each is read and hashed once."""
    import numpy as np

    from provnet.data.evidence import evidence

    wanted = np.unique(explanation.index[explanation.index >= 0])
    return dict(zip(wanted.tolist(), evidence(explanation.samples, data, wanted), strict=True))


def explanation_cards(
    explanation: Explanation, queries: Sequence[Query], pictures: dict[int, Evidence]
) -> list[ExplanationCard]:
    """One card an input."""
    from provnet.explanation import exemplar_card
    from provnet.report.records import ExplanationCard

    cards = []
    for query, one in zip(queries, explanation, strict=True):
        exemplars = tuple(exemplar_card(item, pictures[item.index]) for item in one.exemplars)
        cards.append(
            ExplanationCard(
                query=as_picture(query.image),
                name=query.name,
                predicted=one.predicted,
                confidence=one.confidence,
                supported=one.supported,
                exemplars=exemplars,
                truth=query.truth,
            )
        )
    return cards


def as_picture(image: np.ndarray) -> np.ndarray | None:
    """(C, H, W) as bytes (H, W) or (H, W, 3), floats brought to 0..255; None for anything that is no picture.

    >>> import numpy as np
    >>> as_picture(np.zeros((3, 2, 4), np.uint8)).shape
    (2, 4, 3)
    """
    from provnet.data.evidence import picture_of

    return picture_of(image)

"""From traced images to the plain records of their page; pictures only where their hash still fits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provnet.cli.cards import as_picture, explanation_cards

if TYPE_CHECKING:
    from provnet.applications.generated_records import Traced
    from provnet.cli.inputs import Query
    from provnet.data.evidence import Evidence
    from provnet.data.imagedata import ImageData
    from provnet.modelfile import Run
    from provnet.named import Exemplar
    from provnet.report.records import ExemplarCard


def attribute_report(
    run: Run,
    folder: Path,
    found: Traced,
    queries: list[Query],
    values: dict[str, Any],
    notes: Sequence[str],
    parts: Sequence[ImageData],
    top: int,
) -> bytes:
    """The page; `parts` are the training data as they are now, `top` limits what is shown of each kind."""
    import numpy as np

    from provnet.data.evidence import evidence
    from provnet.report.attribution import AttributionReport, CopyCard, SourceCard, attribution_html, difference

    order = np.lexsort((found.ratio, ~found.near_copy))[:top]
    flagged = order[found.near_copy[order]]
    sources = found.sources(min(top, 24))
    index = found.explanation.index[order]
    wanted = np.unique(
        np.concatenate([index[index >= 0], found.copy_index[flagged], [one.sample.index for one in sources]])
    ).astype(np.int64)
    pictures = dict(zip(wanted.tolist(), evidence(run.samples, parts, wanted), strict=True))
    config, about, nearest = run.config.network, values["about"], found.copies
    copies = []
    for row in flagged.tolist():
        image, sample = as_picture(queries[row].image), _card(nearest[row], pictures)
        copies.append(
            CopyCard(
                picture=image,
                difference=difference(image if queries[row].image.dtype == np.uint8 else None, sample.picture),
                name=queries[row].name,
                sample=sample,
                ratio=float(found.ratio[row]),
                p_value=float(found.p_value[row]),
                exact=bool(found.exact[row]),
            )
        )
    chosen = [queries[row] for row in order.tolist()]
    page = attribution_html(
        AttributionReport(
            run=str(folder),
            network=f"{config.network} network, head {config.head}, {len(run.samples):,} training samples",
            images="; ".join(about["images"][:5]) + ("; and more" if len(about["images"]) > 5 else ""),
            values=values,
            ratios=found.ratio.tolist(),
            reference=found.calibration.scores.tolist(),
            copies=tuple(copies),
            cards=tuple(explanation_cards(found.explanation[order], chosen, pictures)),
            sources=tuple(SourceCard(_card(one.sample, pictures), one.first, one.copies) for one in sources),
            notes=tuple(line[0].upper() + line[1:] + "." for line in notes),
            facts=(
                ("Seed", str(about["seed"])),
                ("Weights, SHA-256", about["model_sha256"]),
                ("Data fingerprint", about["data_fingerprint"]),
            ),
            hidden=(int(found.near_copy.sum()) - len(flagged), len(found) - len(order)),
        )
    )
    return page.encode("utf-8", "backslashreplace")


def _card(sample: Exemplar, pictures: dict[int, Evidence]) -> ExemplarCard:
    from provnet.explanation import exemplar_card

    return exemplar_card(sample, pictures[sample.index])

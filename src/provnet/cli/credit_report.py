"""From credit to the plain records of its page; pictures only where their hash still fits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provnet.cli.output import note
from provnet.cli.rundata import find_training_data

if TYPE_CHECKING:
    from provnet.applications.credit import Credit
    from provnet.modelfile import Run
    from provnet.report.credit import Leader

SAMPLES = 5


def credit_report(
    run: Run,
    folder: Path,
    found: Credit,
    values: dict[str, Any],
    notes: Sequence[str],
    source: tuple[str | None, str | None],
    top: int,
) -> bytes:
    """The page; `source` is where the training data are now, and the folder that names resolve under."""
    from provnet.report.credit import CreditReport, credit_html

    config, about = run.config.network, values["about"]
    page = credit_html(
        CreditReport(
            run=str(folder),
            network=f"{config.network} network, head {config.head}, {len(run.samples):,} training samples",
            queries=about["queries"],
            by=about["by"],
            values=values,
            leaders=_leaders(run, found, source, top),
            notes=tuple(line[0].upper() + line[1:] + "." for line in notes),
            facts=(
                ("Seed", str(about["seed"])),
                ("Weights, SHA-256", about["model_sha256"]),
                ("Data fingerprint", about["data_fingerprint"]),
            ),
        )
    )
    return page.encode("utf-8", "backslashreplace")


def _leaders(run: Run, found: Credit, source: tuple[str | None, str | None], top: int) -> tuple[Leader, ...]:
    from provnet.data.evidence import evidence
    from provnet.report.credit import Leader
    from provnet.report.records import ExemplarCard
    from provnet.report.text import percent

    first = [(place, one) for place, one in enumerate(found.ranking) if one.share.value][:top]
    if not first:
        return ()
    opened = find_training_data(run.config, run.samples, *source)
    if opened.data is None:
        note(f"no pictures of training samples, ids and hashes stand for them: {opened.why}", "warning")
    leaders = []
    for place, one in first:
        best = found.top(place, SAMPLES)
        whole = max(one.share.value or 0.0, 1e-12)
        cards = tuple(
            ExemplarCard(
                picture=seen.picture,
                sample_id=run.samples.sample_ids[i],
                sha256=run.samples.hex(i),
                label=run.samples.class_names[int(run.samples.labels[i])],
                weight=min(float(found.by_sample[i]) / whole, 1.0),
                note=seen.note,
            )
            for i, seen in zip(best.tolist(), evidence(run.samples, opened.parts, best), strict=True)
        )
        leaders.append(Leader(one.name, f"{percent(one.share.value or 0.0)} of the credit", cards))
    return tuple(leaders)

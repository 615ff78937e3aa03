"""What `provnet demo` does after explaining: it plants wrong labels and finds them, and asks who was in the data."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from provnet.cli.audit import audit
from provnet.cli.debug import SAMPLES, debug
from provnet.cli.output import say

if TYPE_CHECKING:
    from provnet.data.imagedata import ImageData
    from provnet.report.records import Finding

SHARE = 0.1  # of the labels are made wrong
DIGITS = 2000  # that they are planted among
EPOCHS = 12
PICTURES = 1000  # of each kind in the audit


def planted(data: ImageData, seed: int) -> tuple[ImageData, dict[str, str]]:
    """The data with a tenth of the labels replaced by wrong ones, and the right labels of those, by sample id."""
    import numpy as np

    from provnet.data.apply import apply_decisions
    from provnet.data.decisions_file import Decision

    chance, samples, names = np.random.default_rng(seed), data.samples, data.class_names
    rows = np.sort(chance.choice(len(data), max(1, round(SHARE * len(data))), replace=False))
    wrong = (samples.labels[rows] + chance.integers(1, len(names), len(rows))) % len(names)
    decisions = [
        Decision(samples.sample_ids[i], samples.hex(i), "relabel", names[label])
        for i, label in zip(rows.tolist(), wrong.tolist(), strict=True)
    ]
    right = {samples.sample_ids[i]: names[samples.labels[i]] for i in rows.tolist()}
    return apply_decisions(data, decisions), right


def find_planted(out: Path, *, seed: int, epochs: int | None, limit: int | None) -> tuple[Finding, ...]:
    """Train on digits with planted wrong labels, debug the run, and count what was found."""
    from provnet.data.sources import open_data
    from provnet.report.records import Finding
    from provnet.stats import wilson
    from provnet.training.config import train_config
    from provnet.training.fit import fit

    data, right = planted(open_data("embedded", limit=limit or DIGITS), seed)
    say(f"planting {len(right)} wrong labels among {len(data):,} digits, training on them, looking for them", "bold")
    config = train_config("robust", seed=seed, epochs=epochs or EPOCHS)
    run = out / "planted"
    fit(data, network="class-independent", config=config, out=run, overwrite=True, progress=True)
    debug(run=run, out=out / "debug", threshold=0.5, top=60, review=False)
    with (out / "debug" / SAMPLES).open(encoding="utf-8", newline="") as file:
        flagged = {row["sample_id"]: row for row in csv.DictReader(file) if float(row["mislabel"]) >= 0.5}
    hits = [name for name in flagged if name in right]
    corrected = sum(flagged[name]["suggested_label"] == right[name] for name in hits)
    link = "debug/report.html"
    return (
        Finding("Wrong labels found", wilson(len(hits), len(right)), "Of the labels made wrong, those flagged.", link),
        Finding("Flags that are right", wilson(len(hits), len(flagged)), "Of the labels flagged, those wrong.", link),
        Finding("Right label suggested", wilson(corrected, len(hits)), "Of the wrong labels found.", link),
    )


def ask_membership(out: Path, *, seed: int, limit: int | None) -> tuple[Finding, ...]:
    """Audit the demo's own run: how well training digits are told from others."""
    from provnet.report.records import Finding
    from provnet.stats import Interval

    say("telling training digits from others", "bold")
    audit(run=out, out=out / "audit", limit=limit or PICTURES, distort=False, seed=seed)
    scores: dict[str, Any] = json.loads((out / "audit" / "audit.json").read_text("utf-8"))["scores"]
    words = {"index_confidence": "index branch", "class_confidence": "class branch"}
    return tuple(
        Finding(
            f"AUC of membership, {branch}",
            Interval(**{key: scores[name]["auc"][key] for key in ("value", "n", "low", "high")}),
            "The chance that a training digit scores above another one; 50 % is guessing.",
            "audit/report.html",
        )
        for name, branch in words.items()
    )

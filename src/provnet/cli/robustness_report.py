"""From what was measured to the plain records of the robustness page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from provnet.cli.cards import as_picture

if TYPE_CHECKING:
    import numpy as np

    from provnet.applications.paired import Difference
    from provnet.applications.robustness import Measured
    from provnet.data.imagedata import ImageData
    from provnet.report.robustness import NetworkColumn, RobustnessReport


def robustness_report(
    measured: Sequence[Measured],
    gains: Mapping[tuple[str, str], Difference],
    test: ImageData,
    about: Mapping[str, Any],
    seed: int,
    pictures: int,
) -> RobustnessReport:
    """One column a network, the isolated CNN first, then by label mixing."""
    from provnet.applications.robustness import FIGURES
    from provnet.report.robustness import FIVE, ConditionRow, Gain, RobustnessReport, Share

    classes = len(test.class_names)
    columns = sorted(measured, key=lambda one: (not one.isolated, one.network != "single", one.alpha))
    rows = []
    for number, row in enumerate(measured[0].rows):
        theirs = [one.rows[number].figures for one in columns]
        shares: dict[str, list[Share | None]] = {}
        for figure in FIGURES:
            rates = [figures.get(figure) for figures in theirs]
            shares[figure] = [
                None
                if rate is None or rate.value is None
                else Share(rate.value, rate.n, rate.low or 0.0, rate.high or 0.0)
                for rate in rates
            ]
        if classes <= FIVE:  # five classes hold the right one whatever a class branch says
            chief = zip(columns, shares["top_5"], strict=True)
            shares["top_5"] = [share if one.network == "single" and not one.isolated else None for one, share in chief]
        found = [gains.get((one.name, row.condition)) for one in columns]
        rows.append(
            ConditionRow(
                name=row.condition,
                words=row.words,
                fixed=row.fixed,
                shares=shares,
                gains=[None if gain is None else Gain(gain.value, gain.low, gain.high) for gain in found],
                pictures=_pictures(test, row.condition, seed, pictures) if row.fixed else (),
            )
        )
    facts = [
        ("Test data", str(about["data"])),
        ("Fingerprint", str(about["fingerprint"])),
        ("Samples", f"{len(test):,}"),
        ("Seed of all draws", str(seed)),
        ("Epsilon of attacks", f"{about['epsilon']:g} on pixels from 0 to 1"),
    ]
    return RobustnessReport(str(about["data"]), len(test), [_network(one) for one in columns], rows, facts, classes)


def _network(one: Measured) -> NetworkColumn:
    from provnet.report.robustness import NetworkColumn

    if one.isolated:
        words = f"isolated CNN: backbone {one.backbone} with a class head, index branch not trained"
        return NetworkColumn(one.name, words, None, isolated=True)
    single = one.network == "single"
    return NetworkColumn(
        one.name,
        f"{one.network} network, backbone {one.backbone}, label mixing α {one.alpha:g}",
        one.alpha if single else None,
    )


def _pictures(test: ImageData, condition: str, seed: int, count: int) -> list[np.ndarray]:
    """A few test pictures under a condition, the same ones every time; none where they are no pictures."""
    import numpy as np

    from provnet.applications.conditions import distort
    from provnet.applications.robustness import sample_keys_of

    labels = test.samples.labels
    firsts = [int(np.flatnonzero(labels == label)[0]) for label in np.unique(labels)]  # one a class, then any
    rows = np.array(list(dict.fromkeys([*firsts, *range(len(test))]))[:count], dtype=np.int64)
    few = test.select(rows)
    copies = distort(few.images, sample_keys_of(few), condition, seed=seed).numpy()
    return [picture for copy in copies if (picture := as_picture(copy)) is not None]

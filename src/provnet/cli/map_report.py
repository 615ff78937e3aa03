"""From a map to the plain records of its page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from provnet.cli.cards import as_picture, exemplar_evidence, explanation_cards

if TYPE_CHECKING:
    import numpy as np

    from provnet.applications.mapping import SampleMap
    from provnet.cli.rundata import Resolved
    from provnet.data.imagedata import ImageData
    from provnet.modelfile import Run
    from provnet.report.map_page import ClusterCard, MapReport
    from provnet.report.records import ExplanationCard


def map_report(
    run: Run, found: SampleMap, training: Resolved, tests: ImageData | None, about: Mapping[str, Any], cards: int
) -> MapReport:
    """Entries: samples on the map, misattributed test samples, then exemplars that a limit left off the map."""
    import numpy as np

    from provnet.cli.rundata import spec_name
    from provnet.report.map_page import MapReport

    missed_named = np.full((len(found.test_rows), found.exemplars.shape[1]), -1, dtype=np.int64)
    if found.misattributed is not None:  # fewer columns where all classes are small
        missed_named[:, : found.misattributed.index.shape[1]] = found.misattributed.index
    named = [found.exemplars, missed_named]
    wanted = np.unique(np.concatenate([part.reshape(-1) for part in named]))
    extra = np.setdiff1d(wanted[wanted >= 0], found.index)
    places = len(found.index) + len(found.test_rows)
    entry = np.full(len(run.samples) + 1, -1, dtype=np.int64)  # the last stands for "none"
    entry[found.index] = np.arange(len(found.index))
    entry[extra] = places + np.arange(len(extra))
    members = np.concatenate([found.index, extra])
    ids = [run.samples.sample_ids[i] for i in found.index.tolist()]
    labels = [run.samples.labels[found.index]]
    if tests is not None:
        ids += [tests.samples.sample_ids[i] for i in found.test_rows.tolist()]
        labels.append(tests.samples.labels[found.test_rows])
    ids += [run.samples.sample_ids[i] for i in extra.tolist()]
    labels.append(run.samples.labels[extra])
    pictures = _pictures(training, members, tests, found.test_rows, len(found.index))
    missed = about["misattributed"]
    words = "" if missed is None else f"{len(found.test_rows):,} of {missed['n']:,}"
    words += "" if missed is None or missed["low"] is None else f" ({missed['low']:.2%} to {missed['high']:.2%})"
    words += f"; for {found.unnamed:,} more no sample may be named" if found.unnamed else ""
    facts = [
        ("Made by", f"{about['engine']} in {about['embedding_seconds']:.1f} s, perplexity {about['perplexity']:g}"),
        ("Seed", str(about["seed"])),
        ("Samples not shown", f"{about['withheld']:,} withheld, {about['left_out']:,} left out"),
        *([("Misattributed", words)] if words else []),
        ("Model SHA-256", str(about["model_sha256"])),
        ("Data fingerprint", run.samples.fingerprint),
    ]
    return MapReport(
        title="Map of the training samples",
        data=spec_name(run.config.data),
        class_names=run.samples.class_names,
        xy=np.concatenate([found.xy, found.test_xy]),
        train=len(found.index),
        labels=np.concatenate(labels),
        cluster=found.cluster,
        ids=ids,
        near=entry[np.concatenate(named)],
        pictures=pictures,
        groups=_groups(run, found, training),
        cards=_cards(found, training, tests, cards),
        missed=len(found.test_rows),
        tested=found.tested,
        facts=facts,
    )


def _pictures(
    training: Resolved, members: np.ndarray, tests: ImageData | None, test_rows: np.ndarray, before: int
) -> np.ndarray | None:
    """(e, H, W) or (e, H, W, 3) in the order of the entries; None where samples are no pictures."""
    import numpy as np

    from provnet.data.evidence import as_bytes

    images = training.data.images.numpy()
    if images.ndim != 4 or images.shape[1] not in (1, 3):
        return None
    row = np.zeros(int(training.index.max()) + 1, dtype=np.int64)
    row[training.index] = np.arange(len(training.index))
    there = np.isin(members, training.index)  # an exemplar whose file is gone has no picture: it stays black
    chosen = as_bytes(images[row[np.where(there, members, training.index[0])]])
    chosen = chosen * there[:, None, None, None].astype(np.uint8)
    parts = [chosen[:before], chosen[before:]]
    if tests is not None:
        parts.insert(1, as_bytes(tests.images.numpy()[test_rows]))
    every = np.concatenate(parts)
    return every[:, 0] if every.shape[1] == 1 else np.ascontiguousarray(every.transpose(0, 2, 3, 1))


def _groups(run: Run, found: SampleMap, training: Resolved) -> list[tuple[str, list[ClusterCard]]]:
    from provnet.report.map_page import ClusterCard
    from provnet.report.sprites import strip

    rows = {int(index): row for row, index in enumerate(training.index)}
    groups: dict[int, list[ClusterCard]] = {}
    for one in found.clusters:
        images = [training.data.images[rows[i]].numpy() for i in one.nearest.tolist()]
        pictures = [picture for image in images if (picture := as_picture(image)) is not None]
        ids = [run.samples.sample_ids[i] for i in one.nearest.tolist()]
        card = ClusterCard(one.number + 1, len(one.members), ids, strip(pictures) if pictures else None)
        groups.setdefault(one.label, []).append(card)
    return [(run.samples.class_names[label], cards) for label, cards in groups.items()]


def _cards(found: SampleMap, training: Resolved, tests: ImageData | None, most: int) -> list[ExplanationCard]:
    """The first misattributed test samples with their exemplars."""
    from provnet.cli.inputs import Query

    if tests is None or found.misattributed is None or not len(found.test_rows[:most]):
        return []
    few = found.misattributed[slice(0, most)]
    queries = [
        Query(
            tests.samples.sample_ids[i],
            tests.images[i].numpy(),
            tests.samples.hex(i),
            tests.class_names[int(tests.samples.labels[i])],
        )
        for i in found.test_rows[:most].tolist()
    ]
    return explanation_cards(few, queries, exemplar_evidence(few, training.data))

"""The CSV files of `provnet debug`: every sample, a corrected manifest, decisions to edit."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from provnet.cli.again import data_options, path_word
from provnet.cli.debug_held import STRANGE, held_rows
from provnet.cli.runsources import KEY
from provnet.data.csvfile import csv_text, quoted
from provnet.data.files import clean_text

if TYPE_CHECKING:
    import numpy as np

    from provnet.applications.debugging import Debugging
    from provnet.cli.debug_held import Barred
    from provnet.cli.rundata import Found
    from provnet.data.decisions_file import Decision
    from provnet.data.imagedata import ImageData
    from provnet.modelfile import Run


def samples_csv(result: Debugging, threshold: float) -> bytes:
    """One row a sample, all findings; numbers with six decimals."""
    import numpy as np

    columns = result.columns(threshold)
    texts = []
    for values in columns.values():
        if isinstance(values, np.ndarray) and values.dtype.kind == "f":
            texts.append([f"{value:z.6f}" for value in values.tolist()])
        else:
            texts.append(
                [quoted(str(value)) for value in (values.tolist() if isinstance(values, np.ndarray) else values)]
            )
    return _csv([list(columns), *zip(*texts, strict=True)])


class Corrected(NamedTuple):
    """corrected.csv, and how to use it.

    Attributes:
        content: of the file.
        command: that uses it, or none.
        left_out: how many samples of each kind are not in it, or are dropped by it, in words.
        indexed_alone: it leaves indexed samples alone, without the others that the network was trained on.
        is_manifest: it lists files; else it holds decisions, for the data as they are.
        why: there is no command although labels change; else empty.
    """

    content: bytes
    command: str
    left_out: tuple[tuple[int, str], ...] = ()
    indexed_alone: bool = False
    is_manifest: bool = False
    why: str = ""


def corrected_csv(run: Run, result: Debugging, found: Found, bar: Barred, out: Path, threshold: float) -> Corrected:
    """Labels replaced where a suggestion is sure: a manifest of all files, else decisions; and how to use it.

    A manifest names pictures below its own folder. Where the data lie elsewhere, `--root` says where.
    """
    from provnet.data.sources import data_root

    place = out / "corrected.csv"
    source = run.config.data
    part = found.parts[0] if len(found.parts) == 1 else None
    root = data_root(part.spec) if part is not None else None
    if root is None or part is None or any(path is None for path in result.samples.paths):
        return _corrections(run, result, found, bar, place, threshold)
    below, option = _relative_to(root, out)
    lines, left_out, others = _manifest(run, result, found, part, threshold)
    if any(clean_text(line[0]) != line[0] for line in lines):  # a manifest is UTF-8, which cannot name such a file
        return _corrections(run, result, found, bar, place, threshold)
    rows_out = [[_harmless(f"{below}{line[0]}"), *map(quoted, line[1:])] for line in lines]
    option += "" if source is None else data_options(source, samples=False)
    command = f"provnet train {path_word(place)}{option} --out RUN"
    return Corrected(_csv([["path", "label", "id", "source"], *rows_out]), command, left_out, not others, True)


def _corrections(run: Run, result: Debugging, found: Found, bar: Barred, place: Path, threshold: float) -> Corrected:
    """corrected.csv as decisions: sure labels, and a drop for all that must not be trained on again.

    There is no command where decisions had changed the data before: on the first data these would change right labels.
    """
    from provnet.data.apply import MOST
    from provnet.data.decisions_file import decisions_csv

    source = run.config.data
    dropped = {one.sample_id for one in bar.drops}
    rows = [one for one in decided(result, threshold) if one.kind == "relabel" and one.sample_id not in dropped]
    rows += bar.drops
    name, options = "DATA", "" if source is None else data_options(source)
    if found.table is not None:  # of the training data, which are the first part then
        now = found.parts[0].spec
        name, options = now.source, data_options(now if source is None else replace(source, data_dir=now.data_dir))
    elif source is not None and source.kind != "arrays":
        name = source.source
    why = bar.why
    if source is not None and "decisions" in source.options:
        why = f"decisions changed the data before; put the rows of {place.name} among those, and apply them together"
    elif len(rows) > MOST:
        why = f"{len(rows):,} samples would have to be relabelled or dropped, a run remembers at most {MOST:,}"
    command = f"provnet train {path_word(name)}{options} --apply {path_word(place)} --out RUN"
    return Corrected(decisions_csv(rows), "" if why else command, bar.left_out, bar.held_alone, why=why)


def _manifest(
    run: Run, result: Debugging, found: Found, part: ImageData, threshold: float
) -> tuple[list[tuple[str, str, str, str]], tuple[tuple[int, str], ...], int]:
    """Path, label, id and source of all samples of the data as they are now, what is left out of them, and how many of
    them the run does not hold.

    A label is replaced where the sample is what it was and still carries the label that the run knows. Withheld samples
    are named nowhere; after erasing, samples that the run does not hold may be erased ones, which must not come back.
    """
    import numpy as np

    from provnet.data.combine import data_name, free_ids

    known, names = run.samples, run.samples.class_names
    held = held_rows(run, part.samples if found.table is None else found.table)
    table, places, owner, used = held.table, held.places, held.owner, held.used
    given, better = result.samples.labels, _corrected(result, threshold)
    new = {int(result.index[i]): names[int(better[i])] for i in np.flatnonzero(better != given)}
    own_ids = [known.sample_ids[i] for i in owner[used].tolist() if i >= 0]
    more = iter(free_ids(own_ids, [table.sample_ids[p] for p in used[owner[used] < 0]], data_name(part.spec)))
    lines = []
    for p in used.tolist():
        i, label = int(owner[p]), table.class_names[int(table.labels[p])]
        if i >= 0 and places[i] == p and label == names[int(known.labels[i])]:
            label = new.get(i, label)
        name = known.sample_ids[i] if i >= 0 else next(more)
        lines.append((str(table.paths[p]), label, name, table.sources[p] or ""))
    about = run.config.training.get(KEY) if found.table is None else None
    of, indexed = (about.get("of"), about.get("indexed")) if isinstance(about, Mapping) else (None, None)
    unlisted = of - indexed if isinstance(of, int) and isinstance(indexed, int) else 0
    kinds = (
        (int(known.withheld.sum()), "withheld"),
        (len(known) - int(known.withheld.sum()) - len(own_ids), "not among the data any more"),
        (int(held.strange.sum()), STRANGE),
        (unlisted, "without an index, as files that were renamed or edited change what --limit and --holdout choose"),
    )
    return lines, tuple(kind for kind in kinds if kind[0]), len(used) - len(own_ids)


def decided(result: Debugging, threshold: float) -> list[Decision]:
    """A decision for every flagged sample, see `_decisions`."""
    return list(_decisions(result, threshold, _trained_suspects(result, threshold)).values())


def _decisions(result: Debugging, threshold: float, rows: Iterable[int]) -> dict[int, Decision]:
    """What is suggested for rows: the label that is advised, drop where none is right, else keep."""
    from provnet.applications.debugging import DROP
    from provnet.data.decisions_file import Decision

    names, samples = result.samples.class_names, result.samples
    advised = result.advised(threshold)
    found = {}
    for row in rows:
        better = int(advised[row])
        kind = "drop" if better == DROP else "keep" if better == samples.labels[row] else "relabel"
        label = names[better] if kind == "relabel" else ""
        found[row] = Decision(samples.sample_ids[row], samples.hex(row), kind, label)
    return found


def decisions_for(result: Debugging, threshold: float, bar: Barred) -> bytes:
    """decisions.csv: pictures under several labels first, then flagged labels, then odd samples to decide about.

    Last what must not be trained on again: of these samples nothing but id and hash is written.
    """
    import numpy as np

    from provnet.data.decisions_file import decisions_csv

    samples, names, twice = result.samples, result.samples.class_names, result.duplicates
    same = np.flatnonzero(twice.conflict)
    same = same[np.lexsort((-result.mislabels.score[same], twice.group[same], ~twice.certain[same]))]
    odd = np.flatnonzero(result.anomalies.score >= 0.5)
    odd = odd[np.argsort(-result.anomalies.score[odd], kind="stable")]
    why: dict[int, str] = {}
    for reason, more in (("conflict", same), ("label", result.suspects(threshold)), ("anomaly", odd)):
        why |= {row: reason for row in more.tolist() if row not in why and not samples.added[row]}
    chosen = _decisions(result, threshold, why)
    dropped = {one.sample_id for one in bar.drops}  # such a name stands for other content now
    rows = [row for row, one in chosen.items() if one.sample_id not in dropped]
    columns: dict[str, list[str]] = {
        "label": [names[int(samples.labels[row])] for row in rows],
        "best_other_label": [names[int(result.mislabels.suggested[row])] for row in rows],
        "mislabel": [f"{result.mislabels.score[row]:.6f}" for row in rows],
        "anomaly": [f"{result.anomalies.score[row]:.6f}" for row in rows],
    }
    more_columns = {name: [*values, *("" for _ in bar.drops)] for name, values in columns.items()}
    reasons = [*(why[row] for row in rows), *bar.reasons]
    return decisions_csv([*(chosen[row] for row in rows), *bar.drops], {"reason": reasons, **more_columns})


def _trained_suspects(result: Debugging, threshold: float) -> list[int]:
    """Suspects that were trained on: samples added later are not among the data that are trained on again."""
    return [row for row in result.suspects(threshold).tolist() if not result.samples.added[row]]


def _corrected(result: Debugging, threshold: float) -> np.ndarray:
    """(N,) labels, the advised one where there is one."""
    import numpy as np

    from provnet.applications.debugging import DROP

    advised = result.advised(threshold)
    return np.where(advised == DROP, result.samples.labels, advised)


def _relative_to(root: Path, out: Path) -> tuple[str, str]:
    """What stands before the paths, and the option that is needed where the data are not below the folder."""
    up = os.path.relpath(root.absolute(), out.absolute())
    if up == os.curdir:
        return "", ""
    if up == os.pardir or up.startswith(os.pardir + os.sep) or Path(up).is_absolute():
        return "", f" --root {path_word(root)}"
    return Path(up).as_posix() + "/", ""


def _harmless(path: str) -> str:
    """A path that no spreadsheet takes for a formula and that still leads there."""
    return path if quoted(path) == path else f"./{path}"


def _csv(rows: Iterable[Iterable[object]]) -> bytes:
    return csv_text(rows).encode("utf-8", "surrogateescape")

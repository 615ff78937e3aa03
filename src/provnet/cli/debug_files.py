"""The CSV files of `provnet debug`: every sample, a corrected manifest, decisions to edit."""

from __future__ import annotations

import csv
import io
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from provnet.cli.again import data_options
from provnet.data.csvfile import quoted

if TYPE_CHECKING:
    import numpy as np

    from provnet.applications.debugging import Debugging
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
            texts.append([f"{value:.6f}" for value in values.tolist()])
        else:
            texts.append(
                [quoted(str(value)) for value in (values.tolist() if isinstance(values, np.ndarray) else values)]
            )
    return _csv([list(columns), *zip(*texts, strict=True)])


def corrected_csv(run: Run, result: Debugging, found: Found, out: Path, threshold: float) -> tuple[bytes, str]:
    """Labels replaced where a suggestion is sure: a manifest of files, else decisions; and the command that uses it.

    A manifest names pictures below its own folder. Where the data lie elsewhere, `--root` says where. The command is
    empty where decisions had changed the data before: applied to the first data, these would change right labels.
    """
    from provnet.data.sources import data_root

    place = out / "corrected.csv"
    source = run.config.data
    part = found.parts[0] if len(found.parts) == 1 else None
    root = data_root(part.spec) if part is not None else None
    if root is None or part is None or any(path is None for path in result.samples.paths):
        name = source.source if source is not None and source.kind != "arrays" else "DATA"
        rows = [one for one in decided(result, threshold) if one.kind == "relabel"]
        from provnet.data.decisions_file import decisions_csv

        options = "" if source is None else data_options(source)
        command = f"provnet train {shlex.quote(name)}{options} --apply {shlex.quote(str(place))} --out RUN"
        return decisions_csv(rows), "" if source is not None and "decisions" in source.options else command
    labels = [result.samples.class_names[number] for number in _corrected(result, threshold).tolist()]
    below, option = _relative_to(root, out)
    paths = _paths_now(result, part)
    rows_out = [
        [_harmless(f"{below}{path}"), quoted(label), quoted(name), quoted(source_of or "")]
        for path, label, name, source_of in zip(
            paths, labels, result.samples.sample_ids, result.samples.sources, strict=True
        )
        if path is not None
    ]
    option += "" if source is None else data_options(source, samples=False)
    command = f"provnet train {shlex.quote(str(place))}{option} --out RUN"
    return _csv([["path", "label", "id", "source"], *rows_out]), command


def decided(result: Debugging, threshold: float) -> list[Decision]:
    """A decision for every flagged sample: the suggested label where it is sure, else keep."""
    from provnet.data.decisions_file import Decision

    names, samples = result.samples.class_names, result.samples
    corrected = _corrected(result, threshold)
    found = []
    for row in _trained_suspects(result, threshold):
        sure = corrected[row] != samples.labels[row]
        label = names[int(corrected[row])] if sure else ""
        found.append(Decision(samples.sample_ids[row], samples.hex(row), "relabel" if sure else "keep", label))
    return found


def decisions_for(result: Debugging, threshold: float) -> bytes:
    """decisions.csv: flagged labels first, then odd samples and conflicts; a person decides about those."""
    import numpy as np

    from provnet.data.decisions_file import Decision, decisions_csv

    samples, names = result.samples, result.samples.class_names
    rows = _trained_suspects(result, threshold)
    decisions, why = decided(result, threshold), ["label"] * len(rows)
    known = set(rows)
    odd = np.flatnonzero(result.anomalies.score >= 0.5)
    odd = odd[np.argsort(-result.anomalies.score[odd], kind="stable")]
    for reason, more in (("anomaly", odd), ("conflict", np.flatnonzero(result.duplicates.conflict))):
        for row in more.tolist():
            if row not in known and not samples.added[row]:
                known.add(row)
                rows.append(row)
                decisions.append(Decision(samples.sample_ids[row], samples.hex(row), "keep"))
                why.append(reason)
    more_columns: dict[str, list[object]] = {
        "reason": list(why),
        "label": [names[int(samples.labels[row])] for row in rows],
        "best_other_label": [names[int(result.mislabels.suggested[row])] for row in rows],
        "mislabel": [f"{result.mislabels.score[row]:.4f}" for row in rows],
        "anomaly": [f"{result.anomalies.score[row]:.4f}" for row in rows],
    }
    return decisions_csv(decisions, more_columns)


def _trained_suspects(result: Debugging, threshold: float) -> list[int]:
    """Suspects that were trained on: samples added later are not among the data that are trained on again."""
    return [row for row in result.suspects(threshold).tolist() if not result.samples.added[row]]


def _corrected(result: Debugging, threshold: float) -> np.ndarray:
    """(N,) labels, the suggested one where it is sure."""
    import numpy as np

    from provnet.applications.debugging import SURE

    sure = result.mislabels.agreement >= SURE
    return np.where(sure, result.suggested(threshold), result.samples.labels)


def _relative_to(root: Path, out: Path) -> tuple[str, str]:
    """What stands before the paths, and the option that is needed where the data are not below the folder."""
    up = os.path.relpath(root.absolute(), out.absolute())
    if up == os.curdir:
        return "", ""
    if up == os.pardir or up.startswith(os.pardir + os.sep) or Path(up).is_absolute():
        return "", f" --root {shlex.quote(str(root))}"
    return Path(up).as_posix() + "/", ""


def _paths_now(result: Debugging, part: ImageData) -> list[str | None]:
    """Where each sample's file is now, by content; its own name first."""
    found: list[str | None] = []
    for name, digest in zip(result.samples.sample_ids, result.samples.sha256, strict=True):
        places = part.samples.places.get(digest.tobytes(), ())
        best = sorted(places, key=lambda place: (part.samples.sample_ids[place] != name, place))
        found.append(part.samples.paths[best[0]] if best else None)
    return found


def _harmless(path: str) -> str:
    """A path that no spreadsheet takes for a formula and that still leads there."""
    return path if quoted(path) == path else f"./{path}"


def _csv(rows: list[object]) -> bytes:
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator="\n").writerows(rows)  # type: ignore[arg-type]
    return buffer.getvalue().encode("utf-8", "surrogateescape")

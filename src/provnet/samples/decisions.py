"""Decisions about samples (keep, relabel, drop) as a CSV file: `sample_id,sha256,decision[,new_label]`.

`provnet debug --review` writes one with its suggestions filled in, a person edits it, `provnet train --apply` uses it.
Columns with other names are for the reader's eye and are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from provnet.base.errors import DataError, did_you_mean
from provnet.base.files import shown
from provnet.samples.csvfile import csv_text, quoted, read_rows

KINDS = ("keep", "relabel", "drop")
NEEDED = ("sample_id", "sha256", "decision")


class Decision(NamedTuple):
    """What becomes of one sample; `row` is its line in the file, the header is row 1."""

    sample_id: str
    sha256: str
    kind: str
    new_label: str = ""
    row: int = 0


def read_decisions(path: Path) -> list[Decision]:
    """The rows of a file of decisions, checked: header, kinds, labels, one row a sample; an error names the row.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     place = Path(folder, "decisions.csv")
    ...     _ = place.write_text("sample_id,sha256,decision,new_label\\ntrain/3," + "ab" * 32 + ",relabel,7\\n")
    ...     read_decisions(place)[0].new_label
    '7'
    """
    file = shown(path.name)
    found: dict[str, Decision] = {}
    for number, cell in read_rows(path, NEEDED, ", and new_label to relabel"):
        one = _decision(cell, f"{file} row {number}", number)
        earlier = found.setdefault(one.sample_id, one)
        if earlier is not one:
            raise DataError(f"{file} row {number}: {shown(one.sample_id)} stands in row {earlier.row} already")
    return list(found.values())


def _decision(cell: Mapping[str, str], where: str, number: int) -> Decision:
    kind, digest, label = cell["decision"].strip().lower(), cell["sha256"].strip().lower(), cell.get("new_label", "")
    if kind not in KINDS:
        raise DataError(
            f'{where}: unknown decision "{shown(kind)}"; allowed: {", ".join(KINDS)}.{did_you_mean(kind, KINDS)}'
        )
    if not re.fullmatch("[0-9a-f]{64}", digest):
        raise DataError(f"{where}: sha256 must have 64 hexadecimal digits, got {shown(digest)[:80]!r}")
    if (kind == "relabel") != bool(label):
        why = "relabel needs a new_label" if kind == "relabel" else f'{kind} takes no new_label, got "{shown(label)}"'
        raise DataError(f"{where}: {why}")
    return Decision(cell["sample_id"], digest, kind, label, number)


def decisions_csv(decisions: Iterable[Decision], more: Mapping[str, Sequence[object]] | None = None) -> bytes:
    """The file that `read_decisions` reads; `more` holds further columns, one value a decision.

    A text that a spreadsheet would take for a formula gets a quote, which reading takes away again.

    >>> decisions_csv([Decision("a", "00" * 32, "keep")]).splitlines()[0]
    b'sample_id,sha256,decision,new_label'
    """
    extra = dict(more or {})
    rows = list(decisions)
    lines = [[*NEEDED, "new_label", *extra]]
    for i, one in enumerate(rows):
        texts = [quoted(one.sample_id), one.sha256, one.kind, quoted(one.new_label)]
        lines.append([*texts, *(quoted(str(extra[name][i])) for name in extra)])
    return csv_text(lines).encode("utf-8")

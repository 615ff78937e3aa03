"""Who contributed which sample: a CSV file `sample_id,contributor`, or the sources that the training data had."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from provnet.data.csvfile import read_rows
from provnet.data.files import shown
from provnet.data.identity import SampleTable
from provnet.errors import DataError, UsageError, did_you_mean

NEEDED = ("sample_id", "contributor")
HINTED = 20_000  # ids that an unknown one is compared with: that takes time


@dataclass(frozen=True)
class Contributors:
    """A contributor for each sample of a run.

    Attributes:
        names: one for each sample, None where none is listed.
        unlisted: samples without one.
        strangers: ids in the file that the run does not have (never trained on, or erased since).
        about: where it comes from.
    """

    names: tuple[str | None, ...]
    unlisted: int
    strangers: int
    about: str


def contributors_of(samples: SampleTable, path: Path | None) -> Contributors:
    """The contributors that a file names, or those that the run's own table has.

    >>> import provnet
    >>> samples = provnet.open_data("embedded", limit=20).samples
    >>> contributors_of(samples, None)
    Traceback (most recent call last):
    provnet.errors.UsageError: the run does not know who contributed its samples; give --by FILE ...
    """
    if path is None:
        if not any(samples.sources):
            raise UsageError(
                "the run does not know who contributed its samples; give --by FILE with the columns "
                f"{','.join(NEEDED)}, or train from data that say it: a manifest with a column source, an .npz with an "
                "array sources, or open_data(..., sources=...)"
            )
        names = tuple(name or None for name in samples.sources)
        return Contributors(names, sum(name is None for name in names), 0, "the sources of the training data")
    found = read_contributors(path)
    strangers = [name for name in found if name not in samples.id_places]
    if len(strangers) == len(found):
        near = list(samples.id_places)[:HINTED]
        hint = did_you_mean(shown(strangers[0]), map(shown, near)) or f' Its first one is "{shown(near[0])}".'
        raise DataError(
            f"{shown(path.name)}: none of its {len(found):,} ids is a sample of the run, such as "
            f'"{shown(strangers[0])}"; give the ids of the run.{hint}'
        )
    names = tuple(found.get(name) for name in samples.sample_ids)
    return Contributors(names, sum(name is None for name in names), len(strangers), path.name)


def read_contributors(path: Path) -> dict[str, str]:
    """Sample id -> contributor; header, empty cells and ids that stand twice are refused with their row.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     place = Path(folder, "sources.csv")
    ...     _ = place.write_text("sample_id,contributor\\ntrain/3,Ann\\n")
    ...     read_contributors(place)
    {'train/3': 'Ann'}
    """
    file = shown(path.name)
    found: dict[str, str] = {}
    rows: dict[str, int] = {}
    for number, cell in read_rows(path, NEEDED):
        sample_id, name = (cell[column] for column in NEEDED)
        name = name.strip()
        if not sample_id or not name:
            raise DataError(f"{file} row {number}: sample_id and contributor must not be empty")
        if sample_id in found:
            raise DataError(
                f"{file} row {number}: {shown(sample_id)} stands in row {rows[sample_id]} already, with "
                f'"{shown(found[sample_id])}"; a sample has one contributor'
            )
        found[sample_id], rows[sample_id] = name, number
    if not found:
        raise DataError(f"{file}: names no samples; give one row a sample, {','.join(NEEDED)}")
    return found

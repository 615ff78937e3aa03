"""The sources of a run whose samples were added or erased since training, opened again and put together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from provnet.errors import ProvnetError

if TYPE_CHECKING:
    import numpy as np

    from provnet.data.combine import Combined
    from provnet.data.identity import SampleTable
    from provnet.data.imagedata import DataSpec, ImageData
    from provnet.modelfile import RunConfig


KEY = "subset"  # of a run's settings, see training.subset


@dataclass(frozen=True, eq=False)
class Opened:
    """What could be opened of a run's sources.

    Attributes:
        combined: the samples of the run that are there; None where no source can be opened.
        why: why some sources cannot be opened, if samples are missing then; else empty.
        rows: the samples that would be there if nothing had changed, as others may lie in a source that cannot be
            opened; None means all of them.
        table: all samples of the training data, also those that the run does not hold; None where they are not there.
    """

    combined: Combined | None
    why: str = ""
    rows: np.ndarray | None = None
    table: SampleTable | None = None


def open_sources(
    config: RunConfig, samples: SampleTable, source: str | None, data_dir: str | None, progress: bool
) -> Opened:
    """The run's samples out of all its sources; `source` stands for the training data.

    A source that cannot be opened matters only if samples are missing then. Samples of the sources that the run does
    not hold (erased, or never added) are left out.
    """
    from provnet.data.combine import Combined, combine
    from provnet.data.imagedata import DataSpec

    specs = [config.data or DataSpec("arrays", "arrays"), *config.added]
    parts, why = _open(specs, source, data_dir, progress)
    if source is not None and not _fits(config, parts[0]):  # asked for by name: compared as it is
        return Opened(Combined(parts[0], (parts[0],), len(samples)))
    good = {number: part for number, part in parts.items() if _fits(config, part)}
    why += [f"{part.spec.source} now holds samples of shape {part.shape}" for n, part in parts.items() if n not in good]
    if not good:
        return Opened(None, "; ".join(why))
    table = good[0].samples if 0 in good else None
    found = combine(samples, list(good.values()))
    narrowed = [replace(spec, options=_wide(spec)) for spec in specs]
    if found.missing and narrowed != specs:
        # renamed or added files make `limit` and `holdout` choose others: look among all samples instead
        parts, _ = _open(narrowed, source, data_dir, progress)
        good = {number: part for number, part in parts.items() if _fits(config, part)}
        found = combine(samples, list(good.values()))
    if found.missing == 0:
        return Opened(found, table=table)
    rows = _expected(samples, found, list(good)) if len(good) < len(specs) else None
    if rows is not None and len(rows) < len(samples):
        found = combine(samples.select(rows), list(good.values()))
    else:
        why, rows = [], None
    first = next(iter(good.values()))
    return Opened(found if len(found.data) else Combined(first, (first,), len(samples)), "; ".join(why), rows, table)


def _expected(samples: SampleTable, found: Combined, numbers: list[int]) -> np.ndarray:
    """The rows that are there, or would be if nothing had changed: not those that may lie in a source that is not.

    Where an added sample came from is not kept. If its name now holds other content it was edited, but for names of
    the training data, which may have been there when the sample was added: then it was another of that name.
    """
    import numpy as np

    from provnet.data.compare import compare

    status = np.array(compare(samples, found.data.samples).status)
    added = {name for n, part in zip(numbers, found.parts, strict=True) if n > 0 for name in part.samples.sample_ids}
    edited = np.array([name in added for name in samples.sample_ids]) & (status == "edited")
    there = (status != "missing") & (status != "edited")
    return np.flatnonzero(there | np.where(samples.added, edited, 0 in numbers))


def _open(
    specs: list[DataSpec], source: str | None, data_dir: str | None, progress: bool
) -> tuple[dict[int, ImageData], list[str]]:
    """The sources that can be opened, by their number, and why others cannot."""
    from provnet.data.sources import reopen

    parts: dict[int, ImageData] = {}
    why: list[str] = []
    for number, spec in enumerate(specs):
        place = source if number == 0 else None
        try:
            parts[number] = reopen(spec, place, data_dir, progress)
        except ProvnetError as error:
            if place is not None:
                raise
            why.append(str(error))
    return parts, why


def _wide(spec: DataSpec) -> dict[str, object]:
    return {name: value for name, value in spec.options.items() if name not in ("limit", "holdout")}


def _fits(config: RunConfig, part: ImageData) -> bool:
    from provnet.inputs import BYTES

    is_bytes = not part.images.is_floating_point()
    return part.shape == config.network.input_shape and is_bytes == (config.network.scale == BYTES)

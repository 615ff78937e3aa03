"""The sources of a run whose samples were added or erased since training, opened again and put together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from provnet.errors import ProvnetError

if TYPE_CHECKING:
    import numpy as np

    from provnet.data.combine import Combined
    from provnet.data.identity import SampleTable
    from provnet.data.imagedata import DataSpec, ImageData
    from provnet.modelfile import RunConfig


KEY = "subset"  # of a run's settings, see training.subset
_REST = "the other samples, which have no index,"


def has_changed(config: RunConfig, samples: SampleTable) -> bool:
    """Whether the run no longer holds exactly the data that it was trained on."""
    return bool(config.added or config.erased or samples.added.any())


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


def rest_state(
    config: RunConfig, samples: SampleTable, table: SampleTable | None, rows: np.ndarray | None = None
) -> tuple[str, str]:
    """What became of samples that taught the class branch alone: what changed, and what cannot be compared; in words.

    `table` are the training data of now, `rows` the positions in it of the indexed samples, if they are known already.

    The run knows one hash of all their contents. Erased samples may still be among the data, and nothing says which
    they are: then nothing can be compared until they are removed from the data, too.
    """
    import numpy as np

    from provnet.data.compare import held

    kept = config.training.get(KEY)
    about: Mapping[str, Any] = kept if isinstance(kept, Mapping) else {}
    then = about.get("rest_content")
    if then is None:
        return "", ""
    if table is None:
        return "", f"{_REST} cannot be compared: the training data cannot be opened"
    if rows is None:
        rows = held(samples.select(~samples.added), table)
    rest = np.setdiff1d(np.arange(len(table)), rows)
    later = held(samples.select(samples.added), table) if samples.added.any() else rest[:0]
    # added ones had been trained on, or came from elsewhere
    if any(table.select(some).content_root == then for some in (rest, np.setdiff1d(rest, later))):
        return "", ""
    changed = f"{_REST} are not those of training time: {len(rest):,} now"
    if not config.erased and not len(later):
        return changed, ""
    of, indexed = about.get("of"), about.get("indexed")
    if not isinstance(of, int) or not isinstance(indexed, int):
        return "", f"{_REST} cannot be compared: the run does not say how many there were"
    extra = len(rest) - (of - indexed)
    if not 0 < extra <= config.erased + len(later):
        return changed, ""
    gone = "; remove what was erased from the data, too, and verify again" if config.erased else ""
    return "", f"{_REST} cannot be compared: {extra:,} of {len(rest):,} were erased or added, unknown which{gone}"


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

"""The sources of a run whose samples were added or erased since training, opened again and put together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from provnet.errors import ProvnetError

if TYPE_CHECKING:
    import numpy as np

    from provnet.data.combine import Combined
    from provnet.data.identity import SampleTable
    from provnet.data.imagedata import DataSpec, ImageData
    from provnet.modelfile import RunConfig


KEY = "subset"  # of a run's settings, see training.subset


def has_changed(config: RunConfig, samples: SampleTable) -> bool:
    """Whether the run no longer holds exactly the data that it was trained on."""
    return bool(config.added or config.erased or samples.added.any())


def open_sources(
    config: RunConfig, samples: SampleTable, source: str | None, data_dir: str | None, progress: bool
) -> tuple[Combined | None, str]:
    """The run's samples out of all its sources, and why some are not there; `source` stands for the training data.

    A source that cannot be opened matters only if samples are missing then. Samples of the sources that the run does
    not hold (erased, or never added) are left out.
    """
    from provnet.data.combine import Combined, combine
    from provnet.data.imagedata import DataSpec

    specs = [config.data or DataSpec("arrays", "arrays"), *config.added]
    parts, why = _open(specs, source, data_dir, progress)
    if source is not None and not _fits(config, parts[0]):  # asked for by name: compared as it is
        return Combined(parts[0], (parts[0],), len(samples)), ""
    good = [part for part in parts if _fits(config, part)]
    why += [f"{part.spec.source} now holds samples of shape {part.shape}" for part in parts if part not in good]
    found = combine(samples, good) if good else None
    narrowed = [replace(spec, options=_wide(spec)) for spec in specs]
    if found is not None and found.missing and narrowed != specs:
        # renamed or added files make `limit` and `holdout` choose others: look among all samples instead
        parts, _ = _open(narrowed, source, data_dir, progress)
        found = combine(samples, [part for part in parts if _fits(config, part)])
    if found is None or found.missing == 0:
        return found, "" if found else "; ".join(why)
    return (found if len(found.data) else Combined(good[0], (good[0],), len(samples))), "; ".join(why)


def rest_words(config: RunConfig, data: ImageData, rows: np.ndarray) -> str:
    """What became of samples that taught the class branch alone: the run knows their contents as a whole."""
    import numpy as np

    about = config.training[KEY]
    then = about.get("rest_content") if isinstance(about, Mapping) else None
    rest = np.setdiff1d(np.arange(len(data)), rows)
    if then is None or data.samples.select(rest).content_root == then:
        return ""
    return f"the other samples, which have no index, are not those of training time: {len(rest):,} now"


def _open(
    specs: list[DataSpec], source: str | None, data_dir: str | None, progress: bool
) -> tuple[list[ImageData], list[str]]:
    from provnet.data.sources import reopen

    parts, why = [], []
    for number, spec in enumerate(specs):
        place = source if number == 0 else None
        try:
            parts.append(reopen(spec, place, data_dir, progress))
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

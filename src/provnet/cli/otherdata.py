"""Data for a run beside its training samples, read as those were: picture files come in the run's colour mode."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from provnet.data.imagedata import DataSpec, ImageData
    from provnet.modelfile import RunConfig

PICTURES = ("folder", "csv")  # kinds of sources whose samples are picture files; arrays are taken as they are


def other_spec(
    given: DataSpec | None,
    source: str,
    data_dir: str | None,
    split: str,
    *,
    classes: bool = True,
    skip_bad: bool | None = None,
) -> DataSpec:
    """How to open the data at `source` for a run, by the rules of its training data (`given`).

    Where they have no test split, all of them stand for it. Where `classes` do not matter, names that belong to the
    training data say nothing about these. `skip_bad` None: bad files are left out if they were in training.

    >>> from provnet.data.imagedata import DataSpec
    >>> data = DataSpec("mnist", "idx", options={"size": [8, 8], "limit": 100})
    >>> other_spec(data, "embedded", None, "test", classes=False).options
    {'size': [8, 8]}
    """
    from provnet.data.imagedata import DECODING, DataSpec
    from provnet.data.sources import has_split, relocated

    given = given or DataSpec("arrays", "arrays")
    options = {name: value for name, value in given.options.items() if name in DECODING}
    if given.options.get("skip_bad", False) if skip_bad is None else skip_bad:
        options["skip_bad"] = True
    plain = replace(given, source=given.source if classes else "arrays", options=options)
    spec = relocated(plain, source, data_dir)
    return replace(spec, split=split if has_split(spec, split) else "all")


def in_mode(spec: DataSpec, shape: tuple[int, ...]) -> DataSpec:
    """The spec, by which picture files without a mode of their own come with the channels of samples of this shape."""
    from provnet.inputs import picture_mode

    return replace(spec, options={**picture_mode(shape), **spec.options}) if spec.kind in PICTURES else spec


def open_spec(config: RunConfig, spec: DataSpec, data_dir: str | None, *, progress: bool) -> ImageData:
    """Open data for a run, in its colour mode."""
    from provnet.data.sources import reopen

    return reopen(in_mode(spec, config.network.input_shape), None, data_dir, progress)

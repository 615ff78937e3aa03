"""Which samples may come to the bank of a run: of its shape, range and classes, and not there already."""

from __future__ import annotations

import numpy as np
import torch

from provnet.data.combine import with_classes
from provnet.data.files import brief, shown
from provnet.data.identity import SampleTable
from provnet.data.imagedata import ImageData, image_data, refuse_changed
from provnet.errors import DataError, NonFiniteError, UsageError
from provnet.inputs import BYTES, range_problem
from provnet.modelfile import Run
from provnet.samplefile import SAMPLES


def newcomers(run: Run, data: ImageData, *, skip_known: bool = False) -> ImageData:
    """The samples of `data` that can be added to a run, with its class numbers; what does not fit it is refused.

    A sample whose pixels the run has is refused by name, or left out with `skip_known`; so is the second of two equal
    ones.
    """
    _check_values(run, data)
    named = with_classes(data, run.samples.class_names)
    _refuse_untrained(run, named)
    fresh = _unknown(run.samples, named, skip_known=skip_known)
    if len(run.samples) + len(fresh) > SAMPLES:
        raise UsageError(f"a run holds at most {SAMPLES:,} samples, these would be {len(run.samples) + len(fresh):,}")
    return fresh


def _check_values(run: Run, data: ImageData) -> None:
    network = run.config.network
    if len(image_data("the samples to add", data)) == 0:
        raise DataError("there are no samples to add")
    if data.shape != network.input_shape:
        raise DataError(
            f"the samples to add have shape {data.shape}, the run takes {network.input_shape}; "
            "bring them to that shape first"
        )
    given = "bytes" if data.images.dtype == torch.uint8 else "float values"
    taken = "bytes" if network.scale == BYTES else "float values"
    if given != taken:
        raise DataError(f"the samples to add are {given}, the run was trained on {taken}; convert them first")
    if data.images.is_floating_point() and not bool(torch.isfinite(data.images).all()):
        raise NonFiniteError("the samples to add hold NaN or infinite values; clean them first")
    refuse_changed("the samples to add", data)
    problem = range_problem(network, data.images.numpy())
    if problem:
        raise DataError(f"the samples to add: {problem}")


def _refuse_untrained(run: Run, data: ImageData) -> None:
    """Refuse classes that had no samples in training; one whose samples were erased since still has its mean."""
    sizes = np.bincount(run.samples.labels, minlength=len(run.samples.class_names))
    never = (sizes == 0) & (run.network.support.mean == 0).all(1).cpu().numpy()
    found = np.flatnonzero(never[data.samples.labels])
    if len(found):
        name = brief(data.class_names[int(data.samples.labels[found[0]])])
        raise UsageError(f'class "{name}" had no samples in training: the run cannot tell it from others; train again')


def _unknown(samples: SampleTable, data: ImageData, *, skip_known: bool) -> ImageData:
    owners = {row.tobytes(): name for name, row in zip(samples.sample_ids, samples.pixel_sha256, strict=True)}
    fresh, known = [], []
    for i, row in enumerate(data.samples.pixel_sha256):
        owner = owners.get(row.tobytes())
        if owner is None:
            owners[row.tobytes()] = data.samples.sample_ids[i]
            fresh.append(i)
        else:
            known.append((i, owner))
    if not known:
        return data
    if skip_known:
        return data.select(np.array(fresh, dtype=np.int64))
    first, owner = known[0]
    place = samples.id_places.get(owner, -1)
    where = "comes before it" if place < 0 else "is in the run"
    if place >= 0 and samples.withheld[place]:
        where = "is in the run, withheld (restore it instead)"
    raise UsageError(
        f'"{shown(data.samples.sample_ids[first])}" has the pixels of "{shown(owner)}", which {where}; '
        f"{len(known):,} of {len(data):,} samples are known: leave them out with --skip-known"
    )

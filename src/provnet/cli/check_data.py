"""The data that `provnet check` needs: training samples, other data sets, and a run trained without a class."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from provnet.cli.heldout import drawn, open_others
from provnet.cli.opened import open_run
from provnet.cli.output import note
from provnet.cli.rundata import find_training_data, resolve
from provnet.data.files import brief
from provnet.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from provnet.applications.trust import LeftOut
    from provnet.data.imagedata import ImageData
    from provnet.modelfile import Run


def open_training(run: Run, source: str | None, data_dir: str | None) -> tuple[ImageData | None, np.ndarray | None]:
    """The training samples that are still what they were, and which they are; None where there are none."""
    found = find_training_data(run.config, run.samples, source, data_dir)
    if found.data is None:
        note(f"the training data cannot be opened, so some checks are not measured: {found.why}", "warning")
        return None, None
    resolved = resolve(run.samples, found.data)
    for line in resolved.facts:
        note(f"training data: {line}", "warning" if resolved.left_out else "note")
    return (resolved.data, resolved.index) if len(resolved.index) else (None, None)


def open_other(run: Run, source: str, data_dir: str | None, limit: int, seed: int) -> Tensor:
    """Pictures of another data set; those that have the pixels of a training sample are refused."""
    import numpy as np

    data = drawn(open_others(run, source, data_dir), limit, seed)
    known = {row.tobytes() for row in run.samples.pixel_sha256}
    own = np.array([row.tobytes() in known for row in data.samples.pixel_sha256])
    if own.any():
        raise UsageError(
            f"--other {source}: {int(own.sum()):,} of {len(data):,} pictures are training samples of the run; "
            "give data that it should abstain on"
        )
    return data.images


def open_left_out(folder: Path, unseen: ImageData | None, limit: int, seed: int, where: str) -> LeftOut:
    """A run without some classes, and unseen pictures: of its own classes, and of those that it lacks."""
    import numpy as np

    from provnet.applications.trust import LeftOut

    if unseen is None:
        raise UsageError("--left-out needs unseen data of all classes; give --test DATA")
    run = open_run(folder)
    if run.config.network.input_shape != unseen.shape:
        raise UsageError(
            f"--left-out {folder} takes samples of shape {run.config.network.input_shape}, the unseen data have "
            f"{unseen.shape}; give a run that was trained on samples of that shape"
        )
    sizes = np.bincount(run.samples.labels, minlength=len(run.samples.class_names))
    has = {name for name, count in zip(run.samples.class_names, sizes.tolist(), strict=True) if count}
    lacks = np.array([name not in has for name in unseen.class_names])[unseen.samples.labels]
    if not lacks.any() or lacks.all():
        raise UsageError(
            f"--left-out {folder} has {'all' if not lacks.any() else 'none'} of the classes of the test data; "
            "give a run that was trained without some of them"
        )
    own, strangers = (drawn(unseen.select(np.flatnonzero(rows)), limit, seed) for rows in (~lacks, lacks))
    names = sorted({unseen.class_names[int(label)] for label in np.unique(strangers.samples.labels)})
    run.network.to(where)
    few = ", ".join(map(brief, names[:5])) + (", ..." if len(names) > 5 else "")
    kind = "class" if len(names) == 1 else "classes"
    return LeftOut(run, own.images, strangers.images, f"left-out {kind} {few}")

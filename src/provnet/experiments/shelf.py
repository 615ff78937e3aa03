"""Networks on a shelf: what one cell trained, another with the same samples and recipe takes instead of training.

Mixing and robustness ask the same networks, and so do membership and debugging. What lies on the shelf are plain run
folders, which every other command opens too.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from provnet.data.imagedata import ImageData
from provnet.experiments.origin import resolved, source_sha256
from provnet.experiments.records import Job
from provnet.modelfile import Run, has_run, read_run, write_run
from provnet.training.config import TrainConfig
from provnet.training.fit import fit


def trained_or_taken(
    train: ImageData,
    config: TrainConfig,
    job: Job,
    on_epoch: Callable[[Mapping[str, Any]], None],
    **wishes: Any,
) -> tuple[Run, bool]:
    """A trained network on its device, and whether it was taken from the shelf.

    >>> import provnet, tempfile
    >>> from provnet.experiments.records import Scale
    >>> from provnet.training.config import train_config
    >>> few, config = provnet.open_data("embedded", limit=40), train_config("fast", epochs=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     job = Job(Scale("tiny"), 0, networks=Path(folder))
    ...     [trained_or_taken(few, config, job, lambda row: None, network="single")[1] for turn in range(2)]
    [False, True]
    """
    place = _place(train, config, job, wishes)
    taken = place is not None and has_run(place)
    if place is not None and taken:
        run = read_run(place)
    else:
        run = fit(train, config=config, device=job.device, on_epoch=on_epoch, **wishes)
        if place is not None:
            _lay_down(run, place)
    run.network.to(resolved(job.device))
    return run, taken


def _place(train: ImageData, config: TrainConfig, job: Job, wishes: Mapping[str, Any]) -> Path | None:
    """Named after everything that decides the weights, the source included; a backbone of one's own has no name."""
    if job.networks is None or not all(isinstance(value, str | int | float) for value in wishes.values()):
        return None
    told = {
        "samples": train.samples.fingerprint,
        "training": config.to_json(),
        "fit": dict(wishes),
        "device": resolved(job.device),
        "source": source_sha256(),
    }
    name = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]
    return job.networks / f"{wishes.get('network', 'network')}-{name}"


def _lay_down(run: Run, place: Path) -> None:
    """Written aside, then renamed: a cell in another process finds the whole run or none."""
    aside = place.with_name(f".{place.name}-{os.getpid()}")
    write_run(run, aside)
    try:
        aside.rename(place)
    except OSError:  # the other process was first, with the same weights
        for path in aside.iterdir():
            path.unlink()
        aside.rmdir()

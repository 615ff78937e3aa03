"""Queries for credit: whole data sets, or single pictures and arrays as `provnet explain` takes them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from provnet.cli.heldout import open_others
from provnet.cli.inputs import read_queries
from provnet.cli.output import note
from provnet.cli.rundata import spec_name

if TYPE_CHECKING:
    import numpy as np

    from provnet.modelfile import Run


def open_queries(run: Run, given: Sequence[str], data_dir: str | None) -> tuple[np.ndarray, str]:
    """Raw queries (n, ...) in the order given, and where they come from, in words."""
    import numpy as np

    parts: list[np.ndarray] = []
    names: list[str] = []
    for is_data, texts in itertools.groupby(given, _is_data):
        if is_data:
            for text in texts:
                data = open_others(run, text, data_dir)
                parts.append(data.images.numpy())
                names.append(f"{len(data):,} of {spec_name(data.spec)}")
            continue
        files: list[str] = []  # together, so that what is to be said of them is said once
        for text in texts:
            inside = _loose(text)
            files += inside or [text]
            names.append(f"{len(inside):,} pictures in {text}" if inside else text)
        parts.append(np.stack([query.image for query in read_queries(run, files, data_dir, strict=False)]))
    kinds = {part.dtype for part in parts}
    images = np.concatenate([part.astype(np.float32) for part in parts] if len(kinds) > 1 else parts)
    words = "; ".join(names[:5]) + (f"; and {len(names) - 5:,} more" if len(names) > 5 else "")
    _note_members(run, images)
    return images, words


def _is_data(text: str) -> bool:
    """A name of data, a folder of class folders, an .npz with labels or a manifest; anything else explain takes, too.

    A folder of pictures alone has no labels, which are not needed here: its pictures are taken one by one.
    """
    import zipfile

    from provnet.data.names import NAMES

    path = Path(text)
    if text in NAMES or path.is_dir():
        return text in NAMES or not _loose(text)
    if path.suffix.lower() == ".npz" and path.is_file() and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return any(Path(name).stem in ("labels", "y", "y_test", "test_labels") for name in archive.namelist())
    return path.suffix.lower() == ".csv" and path.is_file()


def _loose(text: str) -> list[str]:
    """The pictures in a folder without class folders; nothing of anything else."""
    from provnet.data.folder import loose_pictures

    return [str(path) for path in loose_pictures(Path(text))] if Path(text).is_dir() else []


def _note_members(run: Run, images: np.ndarray) -> None:
    """A query that is a training sample finds itself: its contributor gets nearly all of it."""
    from provnet.applications.queries import pixel_hashes
    from provnet.inputs import raw_tensor

    known = {row.tobytes() for row in run.samples.pixel_sha256[~run.samples.withheld]}
    own = sum(row.tobytes() in known for row in pixel_hashes(run, raw_tensor(images)))
    if own:
        note(f"{own:,} of {len(images):,} queries are training samples: they credit themselves most", "warning")

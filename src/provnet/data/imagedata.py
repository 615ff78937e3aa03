"""ImageData: pictures (or vectors), labels and the identity of every sample; DataSpec: how to open it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from provnet.data.files import shown
from provnet.data.hashing import hash_pixels
from provnet.data.identity import SampleTable, chosen_rows
from provnet.errors import DataError, UsageError

# options that choose and relabel among what was read, in this order; the third says that the second chose first
AFTER_READING = ("decisions", "holdout", "holdout_first")
DECODING = ("size", "mode", "background", "frame", "value_range")  # options that say how a picture is read, not which
HASHED, AT_ONCE = 2**30, 256  # bytes that are hashed again before they are trained on, and samples at a time


@dataclass(frozen=True)
class DataSpec:
    """How to open a data set again; kept in the run, so that pictures are found and re-hashed before they are shown.

    Attributes:
        source: a known name (`mnist`, `embedded`), an absolute path, or `arrays` for data given as objects.
        kind: the reader that was used (`embedded`, `digits`, `idx`, `cifar10`, `cifar100`, `folder`, `npz`, `csv`,
            `arrays`).
        split: `train`, `test` or `all`.
        data_dir: the folder that names resolve under, or None.
        options: everything else that changes the pictures (`size`, `mode`, `background`, `frame`, `value_range`,
            `skip_bad`, `limit`, `root`, and those of AFTER_READING).
    """

    source: str
    kind: str
    split: str = "train"
    data_dir: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """A plain dictionary for config.json."""
        return {**asdict(self), "options": dict(self.options)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> DataSpec:
        """The inverse of `to_json`."""
        return cls(**dict(value))


@dataclass(frozen=True, eq=False)
class ImageData:
    """A data set in memory with the identity of every sample.

    Attributes:
        images: uint8 (N, C, H, W) with C = 1 or 3; or float32 (N, C, H, W) or (N, F) where the values are not bytes.
        samples: the sample table, row i belongs to images[i].
        spec: how to open it again.
        skipped: `name: reason` of each file that was left out (`skip_bad`).
    """

    images: Tensor
    samples: SampleTable
    spec: DataSpec
    skipped: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        kinds = {"images": Tensor, "samples": SampleTable, "spec": DataSpec}
        wrong = [(name, kind) for name, kind in kinds.items() if not isinstance(getattr(self, name), kind)]
        for name, kind in wrong:
            given = type(getattr(self, name)).__name__
            raise UsageError(f"{name} must be a {kind.__name__}, got {given}; provnet.open_data makes an ImageData")
        if len(self.images) != len(self.samples):
            raise DataError(f"{len(self.images)} images but {len(self.samples)} rows in the sample table")

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        """One line: pixels and ids would fill a page."""
        kind = f"{'x'.join(map(str, self.images.shape[1:]))} {str(self.images.dtype).removeprefix('torch.')}"
        classes = len(self.class_names)
        return (
            f"ImageData({len(self):,} samples of {kind}, {classes} classes, from {self.spec.source}, {self.spec.split})"
        )

    @property
    def labels(self) -> Tensor:
        """(N,) int64 labels, a copy: whoever writes to it changes no sample."""
        return torch.from_numpy(self.samples.labels.copy())

    @property
    def class_names(self) -> tuple[str, ...]:
        """One name a class."""
        return self.samples.class_names

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample: (C, H, W) or (F,)."""
        return tuple(self.images.shape[1:])

    def select(self, indices: np.ndarray | Tensor) -> ImageData:
        """Some samples, in the order given, with their identities; or those that a bool mask marks.

        >>> import provnet
        >>> len(provnet.open_data("embedded").select(torch.arange(10)))
        10
        """
        rows = chosen_rows(indices, len(self))
        return ImageData(self.images[torch.from_numpy(rows)], self.samples.select(rows), self.spec, self.skipped)


def image_data(what: str, given: Any) -> ImageData:
    """Data that were opened; paths, names and arrays are refused with the way to open them.

    >>> image_data("the test data", "mnist")  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    UsageError: the test data must be an ImageData, got str; open them first: provnet.open_data(...)
    """
    if not isinstance(given, ImageData):
        raise UsageError(
            f"{what} must be an ImageData, got {type(given).__name__}; open them first: provnet.open_data(...)"
        )
    return given


def refuse_changed(what: str, data: ImageData) -> None:
    """Refuse samples that were written to since they were opened: their hashes would name other pictures.

    Of more than a gigabyte as many are looked at, evenly spaced.

    >>> import provnet
    >>> data = provnet.open_data("embedded", limit=20)
    >>> data.images[3] = 0
    >>> refuse_changed("the data", data)  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    DataError: the data: the values of "train/3" are not those that were opened; ...
    """
    size = data.images.numel() * data.images.element_size()
    for rows in torch.split(torch.arange(0, len(data), max(1, -(-size // HASHED))), AT_ONCE):
        now, then = hash_pixels(data.images[rows].cpu().numpy()), data.samples.pixel_sha256[rows.numpy()]
        changed = np.flatnonzero((now != then).any(1))
        if len(changed):
            name = shown(data.samples.sample_ids[int(rows[changed[0]])])
            raise DataError(
                f'{what}: the values of "{name}" are not those that were opened, so its hash would name another '
                "sample; open the changed ones: open_data(images, labels, ids=data.samples.sample_ids)"
            )


def spec_of(given: DataSpec | ImageData | None) -> DataSpec | None:
    """How to open data again: of data that are open, or as given."""
    if isinstance(given, ImageData):
        return given.spec
    if given is not None and not isinstance(given, DataSpec):
        raise UsageError(f"the test data must be a DataSpec or an ImageData, got {type(given).__name__}")
    return given

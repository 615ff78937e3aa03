"""Dataset: what a network receives, and the identity of every sample; DataSpec: how to open it again.

Inputs may be views of whole pictures. `Originals` says how to read the whole ones again, and what the views were.
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from provnet.base.batches import Fields, Inputs, is_column, tensors_of
from provnet.base.errors import DataError, UsageError
from provnet.base.files import shown
from provnet.data.modalities.known import modality_of
from provnet.data.modalities.modality import Modality
from provnet.data.scratch import copy_rows
from provnet.samples.identity import SampleTable, chosen_rows, hash_bytes, hash_pixels, hash_rows

Read = Callable[[], bytes | np.ndarray]  # the bytes of a picture file, or pixels (H, W) or (H, W, 3)


@dataclass(frozen=True, eq=False)
class Originals:
    """One row per sample.

    Attributes:
        views: (N, 32) SHA-256 of the inputs as they were opened; the sample table has those of the whole pictures.
        read: reads the picture once more, where it has no file of its own (`SampleTable.paths`); else None.
    """

    views: np.ndarray
    read: tuple[Read | None, ...]

    def select(self, rows: np.ndarray) -> Originals:
        """Those of some samples, in the order given."""
        return Originals(self.views[rows], tuple(self.read[i] for i in rows.tolist()))


def concatenate_originals(parts: Sequence[Any]) -> Originals | None:
    """Those of several data sets, one after the other; None where all inputs are the whole samples."""
    if all(part.originals is None for part in parts):
        return None
    views = [part.samples.pixel_sha256 if part.originals is None else part.originals.views for part in parts]
    read = [(None,) * len(part) if part.originals is None else part.originals.read for part in parts]
    return Originals(np.concatenate(views), tuple(one for each in read for one in each))


# options that choose and relabel among what was read, in this order; the third says that the second chose first
AFTER_READING = ("decisions", "holdout", "holdout_first")
DECODING = (
    "size",
    "fit",
    "mode",
    "background",
    "frame",
    "value_range",
    "length",
)  # how a picture or a text is read, not which
HASHED, AT_ONCE = 2**30, 256  # bytes that are hashed again before they are trained on, and samples at a time


@dataclass(frozen=True)
class DataSpec:
    """How to open a data set again; kept in the run, so that pictures are found and re-hashed before they are shown.

    Attributes:
        source: a known name (`mnist`, `embedded`), an absolute path, or `arrays` for data given as objects.
        kind: the reader that was used (`embedded`, `digits`, `idx`, `cifar10`, `cifar100`, `folder`, `npz`, `csv`,
            `table`, `tar`, `texts`, `arrays`).
        split: `train`, `test` or `all`.
        data_dir: the folder that names resolve under, or None.
        options: everything else that changes the pictures (`size`, `fit`, `mode`, `background`, `frame`, `value_range`,
            `skip_bad`, `limit`, `root`, and those of AFTER_READING); `modality`, where the shape does not say it.
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


class Batch(NamedTuple):
    """Some samples on their way to a network: the index travels with its sample."""

    inputs: Inputs
    target: Tensor | None  # (B,) labels; None where there are none
    index: Tensor  # type: ignore[assignment]  # (B,) int64, rows of the data set


@dataclass(frozen=True, eq=False, init=False)
class Dataset:
    """A data set with the identity of every sample.

    Attributes:
        inputs: what a network receives; row i belongs to sample i. Pictures are uint8 (N, C, H, W) with C = 1 or 3, or
            float32 (N, C, H, W); vectors float32 (N, F); several tensors are `Fields`. They may be
            mapped from a file, so nothing copies them as a whole.
        samples: the sample table.
        spec: how to open it again.
        skipped: `name: reason` of each file that was left out (`skip_bad`).
        items: the samples as people see them, such as texts and rows of a table, which then name them by their
            content; None where the inputs are the samples.
        modality: what the samples are.
        originals: if inputs are views of pictures, how to read the whole pictures, which identify samples; else None.
        notes: what was done to the samples while they were read, one line each, to be shown.
    """

    inputs: Inputs
    samples: SampleTable
    spec: DataSpec
    skipped: tuple[str, ...]
    items: Sequence[Any] | None
    modality: Modality
    originals: Originals | None
    notes: tuple[str, ...]

    def __init__(
        self,
        inputs: Inputs | None = None,
        samples: SampleTable | None = None,
        spec: DataSpec | None = None,
        skipped: tuple[str, ...] = (),
        items: Sequence[Any] | None = None,
        modality: Modality | None = None,
        originals: Originals | None = None,
        notes: tuple[str, ...] = (),
        *,
        images: Tensor | None = None,
    ) -> None:
        inputs = inputs if images is None else images  # the name that they had at first
        kinds = {"inputs": (inputs, Tensor | Fields), "samples": (samples, SampleTable), "spec": (spec, DataSpec)}
        for name, (value, kind) in kinds.items():
            if not isinstance(value, kind):
                wanted = getattr(kind, "__name__", "Tensor or Fields")
                raise UsageError(
                    f"{name} must be a {wanted}, got {type(value).__name__}; provnet.open_data makes a Dataset"
                )
        assert inputs is not None and samples is not None, "they were looked at"
        for what, count in (("inputs", len(inputs)), ("items", len(inputs if items is None else items))):
            if count != len(samples):
                raise DataError(f"{count} {what} but {len(samples)} rows in the sample table")
        own = modality or modality_of(inputs.shape[1:])
        given = (inputs, samples, spec, skipped, items, own, originals, notes)
        for one, content in zip(fields(self), given, strict=True):
            object.__setattr__(self, one.name, content)

    def __len__(self) -> int:
        return len(self.samples)

    def __repr__(self) -> str:
        """One line: pixels and ids would fill a page."""
        kind = f"{'x'.join(map(str, self.shape))} {str(self.inputs.dtype).removeprefix('torch.')}"
        classes = "no labels" if self.samples.grouping is None else f"{len(self.class_names)} classes"
        return f"Dataset({len(self):,} samples of {kind}, {classes}, from {self.spec.source}, {self.spec.split})"

    @property
    def images(self) -> Tensor:
        """The inputs, where they are one tensor."""
        if not isinstance(self.inputs, Tensor):
            raise UsageError(
                f"these samples are several tensors ({', '.join(self.inputs.keys())}); only samples of one tensor, "
                "such as pictures or vectors, can be used here"
            )
        return self.inputs

    @property
    def labels(self) -> Tensor:
        """(N,) int64 labels, a copy: writing to it does not change the samples."""
        return torch.from_numpy(self.samples.labels.copy())

    @property
    def class_names(self) -> tuple[str, ...]:
        """One name per class."""
        return self.samples.class_names

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample: (C, H, W) or (F,)."""
        return tuple(self.inputs.shape[1:])

    def fetch(self, rows: np.ndarray | Tensor) -> Batch:
        """Inputs and labels of some samples, with their indices.

        >>> import provnet
        >>> batch = provnet.open_data("embedded", limit=20).fetch(torch.tensor([4, 2]))
        >>> batch.inputs.shape, batch.index.tolist()
        (torch.Size([2, 1, 28, 28]), [4, 2])
        """
        index = torch.from_numpy(chosen_rows(rows, len(self)))
        grouping = self.samples.grouping
        return Batch(self.inputs[index], None if grouping is None else torch.tensor(grouping.of[index.numpy()]), index)

    def select(self, indices: np.ndarray | Tensor, samples: SampleTable | None = None) -> Dataset:
        """The samples at some positions, in the order given, or where a bool mask is True, with their identities.

        `samples` is their table where it is not a part of this one: a row that stands for two has two ids there.

        >>> import provnet
        >>> len(provnet.open_data("embedded").select(torch.arange(10)))
        10
        """
        rows = chosen_rows(indices, len(self))
        items = None if self.items is None else [self.items[i] for i in rows.tolist()]
        originals = None if self.originals is None else self.originals.select(rows)
        inputs, table = copy_rows(self.inputs, rows), self.samples.select(rows) if samples is None else samples
        return replace(self, inputs=inputs, samples=table, items=items, originals=originals)

    def hashes(self, rows: Tensor) -> np.ndarray:
        """(n, 32) hashes of some samples as they are in memory now: of their items, else of their inputs."""
        if self.items is not None:
            return hash_items(self.modality, [self.items[i] for i in rows.tolist()])
        return hash_inputs(self.inputs[rows])

    def changed(self, rows: Tensor) -> np.ndarray:
        """(n,) bool: which of some samples have changed since they were opened."""
        opened = self.samples.pixel_sha256 if self.originals is None else self.originals.views
        found = (self.hashes(rows) != opened[rows.numpy()]).any(1)
        if self.items is not None:  # what a network receives is made of them
            made = self.modality.batch([self.items[i] for i in rows.tolist()])
            found |= (hash_inputs(made) != hash_inputs(self.inputs[rows])).any(1)
        return np.asarray(found)


ImageData = Dataset  # its name while all samples were pictures


def hash_items(modality: Modality, items: Sequence[Any]) -> np.ndarray:
    """(n, 32) SHA-256 of the content of samples as people see them."""
    return np.array([hash_bytes(modality.content(item)) for item in items], dtype=np.uint8).reshape(-1, 32)


def hash_inputs(inputs: Inputs) -> np.ndarray:
    """(n, 32) SHA-256 of what a network receives of each sample; type and shape count too.

    >>> bool((hash_inputs(torch.zeros(1, 4)) == hash_inputs(torch.zeros(1, 2, 2))).all())
    False
    """
    if isinstance(inputs, Tensor):
        return hash_pixels(inputs.cpu().numpy())
    found = np.concatenate([hash_pixels(one.cpu().numpy()) for _, one in tensors_of(inputs)], axis=1)
    return hash_rows(found, " ".join(inputs.keys()).encode())


def image_data(what: str, given: Any) -> Dataset:
    """Data that were opened; paths, names and arrays are refused with the way to open them.

    >>> image_data("the test data", "mnist")  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    UsageError: the test data must be a Dataset, got str; open them first: provnet.open_data(...)
    """
    if not isinstance(given, Dataset):
        raise UsageError(
            f"{what} must be a Dataset, got {type(given).__name__}; open them first: provnet.open_data(...)"
        )
    return given


def refuse_changed(what: str, data: Dataset) -> None:
    """Refuse samples that were written to since they were opened: their hashes would name other ones.

    Of more than a gigabyte as many are looked at, evenly spaced.

    >>> import provnet
    >>> data = provnet.open_data("embedded", limit=20)
    >>> data.images[3] = 0
    >>> refuse_changed("the data", data)  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    DataError: the data: the values of "train/3" have changed since they were opened; ...
    """
    size = data.inputs.nbytes
    for rows in torch.split(torch.arange(0, len(data), max(1, -(-size // HASHED))), AT_ONCE):
        changed = data.changed(rows)
        if changed.any():
            name = shown(data.samples.sample_ids[int(rows[np.flatnonzero(changed)[0]])])
            raise DataError(
                f'{what}: the values of "{name}" have changed since they were opened, so its hash no longer '
                "names them; open the new values: open_data(images, labels, ids=data.samples.sample_ids)"
            )


def views_only(spec: DataSpec | None) -> bool:
    """Whether samples are named by what a network sees of them, as all were before there was a choice of fit.

    >>> views_only(DataSpec("pictures", "folder", options={"size": [8, 8]})), views_only(DataSpec("mnist", "idx"))
    (True, False)
    """
    given = {} if spec is None else spec.options
    return "fit" not in given and bool({"size", "mode"} & set(given))


def spec_of(given: DataSpec | Dataset | None) -> DataSpec | None:
    """How to open data again: of data that are open, or as given."""
    if isinstance(given, Dataset):
        return given.spec
    if given is not None and not isinstance(given, DataSpec):
        raise UsageError(f"the test data must be a DataSpec or a Dataset, got {type(given).__name__}")
    return given


Pair = tuple[Tensor, Tensor]  # images (B, ...) and labels (B,)


class ResidentData:
    """Images (N, ...) and labels (N,), given out in batches on one device.

    They are put on the device once if they take at most `budget` bytes there (None = they fit). Else they stay where
    they are, and `batches` fetches up to `ahead` batches in threads of its own before they are asked for. On a CPU
    there is nothing to copy and no thread, unless `threaded` asks for them: data in a file on a slow disk, and tests.

    >>> data = ResidentData(torch.arange(6).view(3, 2), torch.tensor([7, 8, 9]), "cpu", budget=10**6)
    >>> data.resident, [labels.tolist() for _, labels in data.batches([torch.tensor([2, 0]), torch.tensor([1])])]
    (True, [[9, 7], [8]])
    """

    def __init__(
        self,
        images: Tensor,
        labels: Tensor,
        device: torch.device | str,
        budget: int | None,
        *,
        threaded: bool = False,
        ahead: int = 4,
        workers: int = 2,
    ) -> None:
        if len(images) != len(labels):
            raise UsageError(f"{len(images):,} images but {len(labels):,} labels; give one label per image")
        self.device = torch.device(device)
        if not {images.device.type, labels.device.type} <= {"cpu", self.device.type}:
            raise UsageError(
                f"images and labels must lie on the CPU or on {self.device}, got {images.device} and {labels.device}"
            )
        if ahead < 1 or workers < 1:
            raise UsageError(f"ahead and workers must be 1 or more, got {ahead} and {workers}")
        self.ahead, self.workers = ahead, workers
        there = self.device.type == images.device.type != "cpu"  # made on the device in the first place
        fits = there or budget is None or images.nbytes + labels.nbytes <= budget
        self.resident = fits or (self.device.type == "cpu" and not threaded)
        where = self.device if self.resident else torch.device("cpu")
        self.images, self.labels = images.to(where), labels.to(where)

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, index: Tensor) -> Pair:
        """Images and labels of some indices on the device, fetched now."""
        where = _checked(index).to(self.images.device)
        found = self.images.index_select(0, where), self.labels.index_select(0, where)
        return found if self.resident else (found[0].to(self.device), found[1].to(self.device))

    def batches(self, indices: Sequence[Tensor]) -> Generator[Pair, None, None]:
        """The batches of these indices, in their order.

        The threads end with the generator: at its last batch, at an error, or when a loop over it is left early. Who
        keeps it in a variable closes it (`with contextlib.closing(data.batches(...)) as batches:`). Give indices that
        lie where the data do (`resident`: the device, else the CPU), so that none has to be copied first.
        """
        wanted = [_checked(index) for index in indices]
        return (self.batch(index) for index in wanted) if self.resident else self._stream([i.cpu() for i in wanted])

    def _stream(self, indices: Sequence[Tensor]) -> Generator[Pair, None, None]:
        copier = _Copier(self, max(map(len, indices), default=0)) if self.device.type == "cuda" else None
        fetch = self._fetch if copier is None else copier.fetch
        pending: deque[Future[_Fetched]] = deque()
        pool = ThreadPoolExecutor(self.workers, thread_name_prefix=THREADS)
        try:
            for index in indices:
                pending.append(pool.submit(fetch, index))
                if len(pending) > self.ahead:
                    yield _received(pending.popleft().result(), self.device)
            while pending:
                yield _received(pending.popleft().result(), self.device)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _fetch(self, index: Tensor) -> _Fetched:
        return _Fetched(self.images.index_select(0, index), self.labels.index_select(0, index), None)


class _Fetched(NamedTuple):
    """A batch on the device, and the event after which its copy is complete there."""

    images: Tensor
    labels: Tensor
    copied: torch.cuda.Event | None


class _Copier:
    """Gathers rows into pinned memory and copies them to a GPU on a stream of its own, beside the training."""

    def __init__(self, data: ResidentData, largest: int) -> None:
        self.data = data
        self.stream = torch.cuda.Stream(data.device)  # type: ignore[no-untyped-call, unused-ignore]
        self.buffers: queue.SimpleQueue[_Fetched] = queue.SimpleQueue()
        for _ in range(data.workers + 1):  # one is filled by each thread while the last copy is under way
            pinned = [
                torch.empty((largest, *t.shape[1:]), dtype=t.dtype, pin_memory=True) for t in (data.images, data.labels)
            ]
            self.buffers.put(_Fetched(pinned[0], pinned[1], None))

    def fetch(self, index: Tensor) -> _Fetched:
        """One batch; the buffer goes back at once, and its next user waits until it was copied."""
        buffer = self.buffers.get()
        try:
            if buffer.copied is not None:
                buffer.copied.synchronize()
            images, labels = buffer.images[: len(index)], buffer.labels[: len(index)]
            torch.index_select(self.data.images, 0, index, out=images)
            torch.index_select(self.data.labels, 0, index, out=labels)
            copied = torch.cuda.Event()  # type: ignore[no-untyped-call, unused-ignore]
            with torch.cuda.stream(self.stream):
                device = self.data.device
                found = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
                copied.record(self.stream)
            buffer = buffer._replace(copied=copied)
            return _Fetched(*found, copied)
        finally:
            self.buffers.put(buffer)  # whatever happened: another thread may be waiting for it


def _received(found: _Fetched, device: torch.device) -> Pair:
    """Let the caller's stream wait for the copy, and keep the memory until the caller's work on it is done."""
    if found.copied is not None:
        current = torch.cuda.current_stream(device)
        current.wait_event(found.copied)
        found.images.record_stream(current)
        found.labels.record_stream(current)
    return found.images, found.labels


def _checked(index: Tensor) -> Tensor:
    if index.dtype != torch.int64 or not is_column(index):
        raise UsageError(f"indices must be int64 of shape (B,), got {index.dtype} of shape {tuple(index.shape)}")
    return index


THREADS = "provnet-batches"

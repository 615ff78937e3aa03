"""Training data on the device where they fit; else in main memory or on disk, and batches made ready ahead of time.

Letters: B batch, N samples. The contents of a batch depend on its indices alone, never on where the data lie or on how
many threads fetch them. Tensors over a numpy.memmap (mode "c", for torch) work like any other, so the data may be
larger than main memory: a batch reads its rows from disk while the device works on the batches before it.
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import torch
from torch import Tensor

from provnet.errors import UsageError

Batch = tuple[Tensor, Tensor]  # images (B, ...) and labels (B,)


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
            raise UsageError(f"{len(images):,} images but {len(labels):,} labels; one label an image is needed")
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

    def batch(self, index: Tensor) -> Batch:
        """Images and labels of some indices on the device, fetched now."""
        where = _checked(index).to(self.images.device)
        found = self.images.index_select(0, where), self.labels.index_select(0, where)
        return found if self.resident else (found[0].to(self.device), found[1].to(self.device))

    def batches(self, indices: Sequence[Tensor]) -> Generator[Batch, None, None]:
        """The batches of these indices, in their order.

        The threads end with the generator: at its last batch, at an error, or when a loop over it is left early. Who
        keeps it in a variable closes it (`with contextlib.closing(data.batches(...)) as batches:`). Give indices that
        lie where the data do (`resident`: the device, else the CPU), so that none has to be copied first.
        """
        wanted = [_checked(index) for index in indices]
        return (self.batch(index) for index in wanted) if self.resident else self._stream([i.cpu() for i in wanted])

    def _stream(self, indices: Sequence[Tensor]) -> Generator[Batch, None, None]:
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


def _received(found: _Fetched, device: torch.device) -> Batch:
    """Let the caller's stream wait for the copy, and keep the memory until the caller's work on it is done."""
    if found.copied is not None:
        current = torch.cuda.current_stream(device)
        current.wait_event(found.copied)
        found.images.record_stream(current)
        found.labels.record_stream(current)
    return found.images, found.labels


def _checked(index: Tensor) -> Tensor:
    if index.dtype != torch.int64 or index.ndim != 1:
        raise UsageError(f"indices must be int64 of shape (B,), got {index.dtype} of shape {tuple(index.shape)}")
    return index


THREADS = "provnet-batches"

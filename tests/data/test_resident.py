"""Batches of data that fit the device and of data that do not: the same contents in the same order, no thread left."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from provnet.base.batches import bounds, order
from provnet.base.errors import UsageError
from provnet.data.dataset import THREADS, ResidentData

CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible")
N = 103


def made(dtype: torch.dtype = torch.uint8, n: int = N) -> tuple[Tensor, Tensor]:
    dice = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (n, 3, 5, 4), generator=dice, dtype=torch.uint8)
    return images.to(dtype), torch.randint(0, 10, (n,), generator=dice)


def an_epoch(n: int = N, size: int = 8) -> list[Tensor]:
    shuffled = order(n, 0, 0)
    return [shuffled[start:end] for start, end in bounds(n, size, least=2)]


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(THREADS)]


def check(data: ResidentData, images: Tensor, labels: Tensor, indices: list[Tensor]) -> None:
    """Every batch is what plain indexing gives, in order."""
    count = 0
    for index, (found, answers) in zip(indices, data.batches(indices), strict=True):
        assert found.dtype == images.dtype
        assert found.device == answers.device
        assert found.device.type == data.device.type
        assert torch.equal(found.cpu(), images[index.cpu()])
        assert torch.equal(answers.cpu(), labels[index.cpu()])
        count += 1
    assert count == len(indices)
    assert threads() == []


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("threaded", [False, True])
def test_batches_are_plain_indexing(dtype: torch.dtype, threaded: bool) -> None:
    images, labels = made(dtype)
    data = ResidentData(images, labels, "cpu", 0, threaded=threaded)
    assert data.resident is not threaded
    assert len(data) == N
    check(data, images, labels, an_epoch())
    found, answers = data.batch(torch.tensor([5, 5, 0]))
    assert torch.equal(found, images[[5, 5, 0]])
    assert torch.equal(answers, labels[[5, 5, 0]])


@given(st.lists(st.lists(st.integers(0, N - 1), max_size=9), max_size=12), st.integers(1, 5), st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_any_batches_ahead_and_threads(wanted: list[list[int]], ahead: int, workers: int) -> None:
    images, labels = made()
    data = ResidentData(images, labels, "cpu", 0, threaded=True, ahead=ahead, workers=workers)
    check(data, images, labels, [torch.tensor(index, dtype=torch.int64) for index in wanted])


def test_order_is_kept_when_an_early_batch_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels = made()
    data = ResidentData(images, labels, "cpu", 0, threaded=True, workers=3)
    fetch = data._fetch

    def slow(index: Tensor) -> object:
        time.sleep(0.02 if len(index) == 1 else 0)
        return fetch(index)

    monkeypatch.setattr(data, "_fetch", slow)
    check(data, images, labels, [torch.arange(1 + (i % 3 > 0)) + i for i in range(20)])


def test_the_budget_decides() -> None:
    images, labels = made()
    size = images.nbytes + labels.nbytes
    assert ResidentData(images, labels, "cpu", size, threaded=True).resident
    assert ResidentData(images, labels, "cpu", None, threaded=True).resident
    assert not ResidentData(images, labels, "cpu", size - 1, threaded=True).resident


def test_no_more_than_ahead_batches_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    data = ResidentData(*made(), "cpu", 0, threaded=True, ahead=2)
    fetch, started = data._fetch, []
    monkeypatch.setattr(data, "_fetch", lambda index: (started.append(index), fetch(index))[1])
    batches = data.batches(an_epoch())
    for number in range(1, 6):
        next(batches)
        assert len(started) <= number + 2
    batches.close()
    assert threads() == []


def test_a_memory_map_is_read_batch_by_batch(tmp_path: Path) -> None:
    images, labels = made()
    images.numpy().tofile(tmp_path / "pixels")
    mapped = np.memmap(tmp_path / "pixels", np.uint8, mode="c", shape=tuple(images.shape))
    data = ResidentData(torch.from_numpy(mapped), labels, "cpu", 0, threaded=True)
    check(data, images, labels, an_epoch())
    assert data.images.data_ptr() == mapped.ctypes.data  # not read into memory as a whole


def test_leaving_early_ends_the_threads() -> None:
    data = ResidentData(*made(), "cpu", 0, threaded=True)
    for _ in data.batches(an_epoch()):
        assert threads() != []
        break
    assert threads() == []
    with contextlib.closing(data.batches(an_epoch())) as batches:
        next(batches)
    assert threads() == []
    data.batches(an_epoch())  # never begun: never a thread
    assert threads() == []


@pytest.mark.parametrize("kind", [KeyboardInterrupt, ValueError])
def test_an_error_in_the_loop_ends_the_threads(kind: type[BaseException]) -> None:
    data = ResidentData(*made(), "cpu", 0, threaded=True)

    def loop() -> None:
        for number, _ in enumerate(data.batches(an_epoch())):
            if number == 3:
                raise kind

    with pytest.raises(kind):
        loop()
    assert threads() == []


def test_an_error_in_a_thread_comes_out_in_its_turn() -> None:
    images, labels = made()
    data = ResidentData(images, labels, "cpu", 0, threaded=True, ahead=4)
    indices = [torch.tensor([1]), torch.tensor([2]), torch.tensor([N]), torch.tensor([3])]
    seen = []
    with pytest.raises(IndexError):
        for _, answers in data.batches(indices):
            seen.append(answers)
    assert torch.equal(torch.cat(seen), labels[1:3])  # the batches before it were given out
    assert threads() == []


@pytest.mark.parametrize("index", [torch.tensor([1], dtype=torch.int32), torch.tensor([True]), torch.tensor([[1]])])
def test_other_indices_are_refused(index: Tensor) -> None:
    for threaded in (False, True):
        data = ResidentData(*made(), "cpu", 0, threaded=threaded)
        with pytest.raises(UsageError, match="indices must be int64"):
            data.batches([index])
        with pytest.raises(UsageError, match="indices must be int64"):
            data.batch(index)


def test_bad_settings_are_refused() -> None:
    images, labels = made()
    with pytest.raises(UsageError, match="103 images but 102 labels"):
        ResidentData(images, labels[1:], "cpu", 0)
    with pytest.raises(UsageError, match="ahead and workers"):
        ResidentData(images, labels, "cpu", 0, ahead=0)
    with pytest.raises(UsageError, match="must lie on the CPU or on cpu, got meta"):
        ResidentData(images.to("meta"), labels, "cpu", 0)


@pytest.mark.gpu
@CUDA
@pytest.mark.parametrize("budget", [0, None])
def test_on_a_gpu(budget: int | None, tmp_path: Path) -> None:
    images, labels = made(n=20_000)
    images.numpy().tofile(tmp_path / "pixels")
    mapped = torch.from_numpy(np.memmap(tmp_path / "pixels", np.uint8, mode="c", shape=tuple(images.shape)))
    for source in (images, mapped):
        data = ResidentData(source, labels, "cuda", budget, workers=3)
        assert data.resident is (budget is None)
        check(data, images, labels, an_epoch(20_000, 64))
        check(data, images, labels, [index.cuda() for index in an_epoch(20_000, 512)])
        found, answers = data.batch(torch.tensor([3, 1]))
        assert torch.equal(found.cpu(), images[[3, 1]])
        assert torch.equal(answers.cpu(), labels[[3, 1]])
    assert ResidentData(images.cuda(), labels, "cuda", 0).resident  # it is there already


@pytest.mark.gpu
@CUDA
def test_a_busy_gpu_never_sees_a_batch_before_it_was_copied() -> None:
    images, labels = made(torch.float32, n=4_000)
    data = ResidentData(images.flatten(1), labels, "cuda", 0, ahead=8)
    weights = torch.randn(60, 4096, device="cuda")
    wide = torch.randn(4096, 4096, device="cuda")
    sums, expected = [], []
    for epoch in range(5):
        shuffled = order(4_000, 0, epoch)
        indices = [shuffled[start:end] for start, end in bounds(4_000, 256, least=2)]
        for index, (found, _) in zip(indices, data.batches(indices), strict=True):
            (found @ weights @ wide).relu_()  # keeps the GPU behind the threads that fill the buffers
            sums.append(found.double().sum(1))
            expected.append(images.flatten(1)[index].double().sum(1))
    assert torch.equal(torch.cat(sums).cpu(), torch.cat(expected))

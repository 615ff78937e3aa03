"""Too little disk or memory: said before the work where it can be known, else with the last good state kept."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import nn

from provnet.base.errors import DiskError, MemoryLimitError
from provnet.base.options import NetworkOptions
from provnet.models.network import parameter_count
from provnet.runs.run import has_run
from provnet.training import fit as fitting
from provnet.training import setup
from provnet.training.setup import plan
from tests.cases import cases
from tests.fitting import fit

from .made import NETWORKS, fit_quietly, interrupt, names, pictures, recipe, same_bits, step_of


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """The system refuses to let a file of this process grow beyond `size` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_is_full_at_a_checkpoint_leaves_the_one_before(tmp_path: Path) -> None:
    out = tmp_path / "run"
    interrupt(pictures(), out, at=4)
    before = names(out)
    with (
        largest_file(200_000),
        pytest.raises(DiskError, match=r"disk full writing .*step-0000000005.* [kMG]B free") as error,
    ):
        fit(pictures(), config=recipe(), out=out, resume=True, checkpoint_seconds=0)
    assert error.value.exit_code == 4
    assert names(out) == before
    assert step_of(out) == 4
    same_bits(fit(pictures(), config=recipe(), out=out, resume=True), fit(pictures(), config=recipe()))


def test_a_disk_that_is_full_at_the_end_leaves_the_last_checkpoint(tmp_path: Path) -> None:
    out = tmp_path / "run"
    interrupt(pictures(), out, at=9)
    with largest_file(200_000), pytest.raises(DiskError, match="disk full writing"):
        fit(pictures(), config=recipe(), out=out, resume=True)
    assert not has_run(out)
    assert step_of(out) == 9
    assert not [name for name in names(out) if "tmp" in name]
    same_bits(fit(pictures(), config=recipe(), out=out, resume=True), fit(pictures(), config=recipe()))


def test_a_disk_that_is_full_from_the_start_leaves_a_folder_that_can_be_used_again(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with largest_file(200_000), pytest.raises(DiskError, match="disk full writing"):
        fit(pictures(), config=recipe(), out=out)
    assert [name for name in names(out) if name not in (".lock", "log.jsonl")] == []
    fit(pictures(), config=recipe(), out=out)
    assert has_run(out)


def test_a_disk_that_is_too_small_is_refused_before_the_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=2_000_000))
    with pytest.raises(DiskError, match=r"needs about [\d.]+ MB .* 2\.0 MB free"):
        fit(pictures(), config=recipe(), out=tmp_path / "run", on_epoch=lambda row: pytest.fail("it trained"))


class Large(nn.Module):
    """A backbone of one's own with 10,000 features, so that the branches on top are what is large."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 10_000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x.flatten(1))


@cases("backbone", ["paper-single", "residual", Large()])
@cases("network", ["single", "class-conditional"])
def test_a_network_that_does_not_fit_is_refused_with_the_figure_before_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, network: str, backbone: str | nn.Module
) -> None:
    monkeypatch.setattr(setup, "available_memory", lambda *_: 64 << 20)
    monkeypatch.setattr(fitting, "build", lambda *parts: pytest.fail("it was made"))
    with pytest.raises(MemoryLimitError, match=r"needs about \d+\.\d GiB \([\d,]+ parameters, 23 samples\)") as error:
        fit(pictures(), network=network, backbone=backbone, config=recipe(), out=tmp_path / "run")
    assert error.value.exit_code == 5
    assert "0.1 GiB are free" in str(error.value)
    assert names(tmp_path) == []


@cases("name", NETWORKS)
def test_the_estimate_counts_the_parameters_that_will_be_there(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wishes = {"backbone": "small", **NETWORKS[name]}
    network, chosen = wishes["network"], wishes["backbone"]
    rest = {k: v for k, v in wishes.items() if k not in ("network", "backbone")}
    shape, index_map = plan(pictures(), NetworkOptions(network=network, backbone=chosen, **rest), "fast")
    counted = setup.check_memory(shape, index_map, recipe(), None)
    assert counted == parameter_count(fit_quietly(**wishes).network)


def test_the_estimate_of_a_backbone_of_ones_own_counts_its_branches() -> None:
    shape, index_map = plan(pictures(), NetworkOptions(network="single", backbone=Large()), "fast")
    assert setup.check_memory(shape, index_map, recipe(), Large()) == parameter_count(
        fit_quietly(network="single", backbone=Large()).network
    )


def test_the_scores_of_many_samples_count_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wide head costs its scores and their gradients, batch times samples, beside its weights."""
    shape, index_map = plan(pictures(4_000, shape=(1, 2, 2)), NetworkOptions(network="single", backbone="mlp"), "fast")
    count = setup.check_memory(shape, index_map, recipe(batch_size=2), None)
    monkeypatch.setattr(setup, "available_memory", lambda *_: 16 * count + 12 * 1000 * 4_000)
    setup.check_memory(shape, index_map, recipe(batch_size=900), None)
    with pytest.raises(MemoryLimitError):
        setup.check_memory(shape, index_map, recipe(batch_size=1100), None)


def test_a_limit_on_memory_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    free = setup.available_memory()
    assert 0 < free < 1 << 50
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (used + (100 << 20), resource.RLIM_INFINITY))
    assert 0 < setup.available_memory() <= 101 << 20


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: x"),
    ],
)
def test_memory_that_runs_out_in_training_is_named(error: Exception) -> None:
    class Hungry(Large):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.training:
                raise error
            return super().forward(x)

    with pytest.raises(MemoryLimitError, match=r"out of memory.*use a smaller batch or backbone"):
        fit(pictures(), backbone=Hungry(), config=recipe())

"""What a batch takes in training is told before it is trained on; what cannot fit is refused, nothing that fits is."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from provnet.base.errors import MemoryLimitError
from provnet.base.options import NetworkOptions
from provnet.models.backbones import StandIn
from provnet.models.network import ProvenanceNet, build, parameter_count
from provnet.training import setup
from provnet.training.setup import kept_bytes, plan
from tests.cases import cases
from tests.fitting import fit

from .made import NETWORKS, pictures, recipe

BACKBONES = ("small", "paper", "residual", "sharing-small")
SIDE, BATCH = 24, 6


class Own(nn.Module):
    """Two layers, of which the first may be frozen, and a note of what was seen last."""

    def __init__(self, *, frozen: bool = False, needs_numbers: bool = False) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 8, 3).requires_grad_(not frozen)
        self.second = nn.Conv2d(8, 4, 3)
        self.needs_numbers = needs_numbers
        self.last = ""

    def forward(self, x: Tensor) -> Tensor:
        assert not self.training, "it was trained"
        self.last = str(x.device)
        if self.needs_numbers and float(x.sum()) > 1e9:
            x = x / 2
        out: Tensor = self.second(self.first(x).relu()).mean((2, 3))
        return out


def without_numbers(backbone: str | nn.Module, **wishes: Any) -> ProvenanceNet:
    data = pictures(shape=(1, SIDE, SIDE))
    chosen = {"network": "class-independent", **wishes}
    shape, index_map = plan(data, NetworkOptions(backbone=backbone, **chosen), "fast")
    stand_in = StandIn(copy.deepcopy(backbone), (1, SIDE, SIDE)) if isinstance(backbone, nn.Module) else None
    with torch.device("meta"):
        return build(shape, index_map, stand_in)


def really_saved(net: ProvenanceNet, n: int) -> int:
    """Bytes that autograd saves in a pass that has numbers."""
    found: dict[int, Tensor] = {}

    def keep(value: Tensor) -> Tensor:
        found[value.untyped_storage().data_ptr()] = value
        return value

    net.train()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda value: value):
        features = net.backbone(torch.rand(n, 1, SIDE, SIDE))
        trunk = net.index_trunk(features, torch.zeros(n, dtype=torch.int64))
        task = None if net.task_head is None else net.task_head(features)
    own = {weight.untyped_storage().data_ptr() for weight in net.parameters()}
    assert trunk is not None or task is not None
    return sum(value.untyped_storage().nbytes() for place, value in found.items() if place not in own)


@cases("backbone", BACKBONES)
@cases("network", ["single", "class-conditional-heads"])
def test_what_is_told_is_what_is_kept(network: str, backbone: str) -> None:
    told = kept_bytes(without_numbers(backbone, network=network))
    wanted = NetworkOptions(network=network, backbone=backbone)
    with_numbers = build(*plan(pictures(shape=(1, SIDE, SIDE)), wanted, "fast"))
    more, fewer = (really_saved(with_numbers, n) for n in (3 * BATCH, BATCH))
    assert told == pytest.approx((more - fewer) / (2 * BATCH), rel=0.02)


@cases("name", NETWORKS)
def test_every_network_is_counted(name: str) -> None:
    given = {"backbone": "small", **NETWORKS[name]}
    net = without_numbers(given.pop("backbone"), **given)
    assert kept_bytes(net) > SIDE**2 * 4 * 8


def test_nothing_is_drawn_and_nothing_is_noted() -> None:
    backbone, before = Own(), torch.get_rng_state()
    net = without_numbers(backbone)
    backbone.last = "mine"
    assert kept_bytes(net, backbone) > 0
    assert backbone.last == "mine"
    assert all(weight.device.type == "cpu" for weight in backbone.parameters())
    assert torch.equal(torch.get_rng_state(), before)


def test_frozen_layers_keep_nothing_and_what_needs_numbers_is_not_counted() -> None:
    trained, frozen, other = Own(), Own(frozen=True), Own(needs_numbers=True)
    counted = {backbone: kept_bytes(without_numbers(backbone), backbone) for backbone in (trained, frozen, other)}
    assert counted[trained] > counted[frozen] > 0
    assert counted[other] == 0


def refused(free: int, monkeypatch: pytest.MonkeyPatch, backbone: str | nn.Module = "small", **wishes: Any) -> bool:
    data = pictures(40, shape=(1, SIDE, SIDE))
    wanted = NetworkOptions(network="class-independent", backbone=backbone, head="exemplar")
    shape, index_map = plan(data, wanted, "fast")
    monkeypatch.setattr(setup, "available_memory", lambda *_: free)
    custom = backbone if isinstance(backbone, nn.Module) else None
    settings = {name: wishes.pop(name) for name in ("precision", "batch_size") if name in wishes}
    try:
        setup.check_memory(shape, index_map, recipe(**settings), custom, **wishes)
    except MemoryLimitError:
        return True
    return False


@cases(
    ("wishes", "samples"),
    [
        ({"batch_size": 20}, 20),
        ({"batch_size": 400}, 40),  # there are no more
        ({"batch_size": 40, "precision": "32-true", "device": "cpu"}, 40),
        ({"batch_size": 40, "precision": "bf16-mixed"}, 20),
        ({"batch_size": 40, "devices": 2}, 20),
    ],
)
def test_a_batch_that_does_not_fit_is_refused_and_one_that_fits_is_not(
    wishes: dict[str, Any], samples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    net = without_numbers("small", head="exemplar")
    need = 12 * parameter_count(net) + 8 * 40 * 512 + samples * kept_bytes(net)  # weights and moments, keys, the batch
    assert refused(need - 1, monkeypatch, **wishes)
    assert not refused(need, monkeypatch, **wishes)


def test_processes_started_by_another_share_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    for processes, expected in (("1", True), ("4", False)):
        monkeypatch.setenv("WORLD_SIZE", processes)
        assert refused(8_000_000, monkeypatch, batch_size=40) == expected


def test_a_backbone_of_ones_own_is_counted_where_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert refused(600_000, monkeypatch, Own(), batch_size=40)
    assert not refused(600_000, monkeypatch, Own(needs_numbers=True), batch_size=40)


def test_the_message_says_what_to_lower(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "available_memory", lambda *_: 2**30)
    data = pictures(64, shape=(3, 224, 224))
    with pytest.raises(
        MemoryLimitError, match=r"of which 3\.\d are kept of each batch of 16; 1\.0 GiB .* use smaller batches"
    ):
        fit(data, backbone="residual", head="exemplar", config=recipe(batch_size=16))


def test_a_cpu_is_asked_where_a_cpu_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (7, 8))
    assert setup.available_memory() == setup.available_memory("cuda") == 7
    assert setup.available_memory("cpu") > 7


def test_mean_and_spread_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for data in (pictures(shape=(3, 9, 7)), pictures(shape=(1, 8, 8))):
        whole = setup.normalisation(data)
        monkeypatch.setattr(setup, "AS_ONE", 200)
        parts: list[int] = []
        split = torch.split
        monkeypatch.setattr(torch, "split", lambda values, size, p=parts, s=split: (p.append(size), s(values, size))[1])
        found = setup.normalisation(data)
        monkeypatch.setattr(torch, "split", split)
        monkeypatch.setattr(setup, "AS_ONE", 2**26)
        assert parts != []
        assert found[2] == whole[2] == 255.0
        for one, other in zip(whole[:2], found[:2], strict=True):
            assert other == pytest.approx(one, rel=1e-12)
            assert len(one) == data.shape[0]

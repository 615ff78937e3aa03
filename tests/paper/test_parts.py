"""Parts of the experiments: two CNNs that share layers, pictures in files, drawings, faces that are not kept."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import provnet
from provnet.answers.evaluation import NEVER
from provnet.heads.index_map import IndexMap, TargetSampler
from provnet.models.backbones import cut_at
from provnet.models.network import parameter_count
from provnet_paper import mixing, vae
from provnet_paper.plots import tile_pictures
from provnet_paper.records import SCALES, Job
from provnet_paper.samples import DRAWINGS, pack_array, unpack_array
from provnet_paper.two_cnns import (
    BACKENDS,
    BRANCHES,
    COPIES,
    OnePassAdamW,
    TwoCnns,
    _Step,
    alternating,
    bf16_copy,
    built,
    pair,
    pair_hits,
    rates,
    shared_share,
    train_both,
)

FEW = provnet.open_data("embedded", limit=60)


def test_both_networks_learn() -> None:
    recipe = TwoCnns("small", 2, 12, (16, 16), (1e-3, 1e-3))
    net = built(FEW, recipe, 0, "cpu")
    course = train_both(net, FEW, recipe, 0)
    assert course[-1]["class_loss"] < 0.6 * course[0]["class_loss"]
    assert course[-1]["index_loss"] < 0.9 * course[0]["index_loss"]
    figures = rates(pair_hits(net, FEW, FEW))
    assert figures["class_accuracy"][0] > 0.6
    assert figures["any_at_1"][0] <= figures["any_at_5"][0] <= figures["any_at_10"][0]
    assert figures["index_accuracy"][1] == len(FEW)


@pytest.mark.parametrize("branch", BRANCHES)
def test_a_step_of_one_network_changes_shared_layers_and_its_own(branch: str) -> None:
    recipe = pair("small", 1, 1)
    net = built(FEW, recipe, 0, "cpu").train()
    before = {name: value.clone() for name, value in net.named_parameters()}
    _Step(net, net, branch, FEW.images, FEW.labels, recipe)(torch.arange(20))
    moved = {name.split(".")[0] for name, value in net.named_parameters() if not torch.equal(value, before[name])}
    assert moved == {"backbone"} | ({"task_head"} if branch == "class" else {"index_trunk", "index_head"})


def test_every_batch_of_both_has_its_turn() -> None:
    turns = alternating(117, 235)
    assert sorted(turns) == [(0, i) for i in range(117)] + [(1, i) for i in range(235)]
    first = [place for place, _ in turns[:30]]
    assert 8 <= first.count(0) <= 12  # spread evenly


def test_the_same_seed_gives_the_same_weights() -> None:
    recipe = pair("small", 1, 1)
    nets = [built(FEW, recipe, seed, "cpu") for seed in (0, 0, 1)]
    for net, seed in zip(nets, (0, 0, 1), strict=True):
        train_both(net, FEW, recipe, seed)
    one, same, other = (torch.cat([p.flatten() for p in net.parameters()]) for net in nets)
    assert torch.equal(one, same) and not torch.equal(one, other)


@pytest.mark.parametrize(("size", "share"), [("small", 0.104), ("medium", 0.188)])
def test_level_4_shares_what_the_paper_says(size: str, share: float) -> None:
    cut = cut_at(f"sharing-{size}", (1, 28, 28), 4)
    width = {"small": 128, "medium": 256}[size]
    shared = parameter_count(cut.shared)
    assert shared / (shared + (width + 1) * (10 + 60_000)) == pytest.approx(share, abs=0.01)
    net = built(FEW, pair(size, 4, 1), 0, "cpu")
    assert shared_share(net) == pytest.approx(shared / (shared + (width + 1) * (10 + len(FEW))))


def test_sampled_targets_are_none_that_a_network_was_trained_on() -> None:
    epochs = [cell.config["training"]["epochs"] for cell in mixing.cells(SCALES["full"])]
    assert max(epochs) <= NEVER
    sampler = TargetSampler(IndexMap(FEW.labels), 1.0)
    assert not torch.equal(sampler.draw(0, NEVER), sampler.draw(0, 0))


def test_larger_batches_go_with_larger_rates_for_the_smaller_pairs() -> None:
    assert pair("xlarge", 1, 1).batches == (32, 16)
    assert pair("xlarge", 1, 1, raised=16).rates == pytest.approx((2e-4, 2e-4))
    assert pair("small", 1, 1, raised=4).rates == pytest.approx((2e-3, 2e-4))


@pytest.mark.parametrize("name", BRANCHES)
@pytest.mark.parametrize("level", [1, 4])
def test_the_layers_of_either_network_compile_in_one_piece(name: str, level: int) -> None:
    recipe = TwoCnns("small", level, 1, (16, 16), (1e-3, 1e-3))
    net = built(FEW, recipe, 0, "cpu").eval()
    step = _Step(net, net, name, FEW.images, FEW.labels, recipe)
    given = FEW.images[:16], FEW.labels[:16], FEW.labels[:16] if name == "class" else torch.arange(16)
    loss, right = torch.compile(step._loss, backend="eager", fullgraph=True)(*given)
    assert torch.allclose(loss, step._loss(*given)[0])
    assert 0 <= int(right) <= 16


def test_every_pair_of_a_process_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []

    def backend(graph: Any, inputs: object) -> Any:
        made.append(inputs)
        return graph.forward

    monkeypatch.setitem(BACKENDS, "cpu", backend)
    with torch._dynamo.config.patch(recompile_limit=2):  # of one function; it is 8
        for level, batch in ((1, 16), (4, 24)):  # two kinds of layers each: twice as many as are kept
            recipe = TwoCnns("small", level, 1, (batch, batch), (1e-3, 1e-3))
            train_both(built(FEW, recipe, 0, "cpu"), FEW, recipe, 0)
    assert len(made) == 8  # layers and updates of either network


@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16])
def test_one_pass_is_adamw(kind: torch.dtype) -> None:
    torch.manual_seed(0)
    ours = [torch.randn(5, 3, dtype=torch.float64), torch.randn(4, dtype=torch.float64)]
    theirs = [weight.clone().requires_grad_() for weight in ours]
    used = [ours[0].to(kind), ours[1]]  # float64 gives the weight itself
    step, other = OnePassAdamW(ours, used, rate=0.05, decay=0.1), torch.optim.AdamW(theirs, 0.05, weight_decay=0.1)
    for _ in range(20):
        grads = [torch.randn_like(weight) for weight in used]
        step(grads)
        for weight, grad in zip(theirs, grads, strict=True):
            weight.grad = grad.to(weight.dtype)
        other.step()
    for weight, expected, copy in zip(ours, theirs, used, strict=True):
        assert torch.allclose(weight, expected, rtol=1e-6, atol=1e-7)
        assert torch.equal(copy, weight.to(copy.dtype))


def test_training_on_rounded_copies_trains_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = TwoCnns("small", 2, 6, (16, 16), (1e-3, 1e-3))
    plain, net = (built(FEW, recipe, 0, "cpu") for _ in range(2))
    exact = train_both(plain, FEW, recipe, 0)
    monkeypatch.setitem(COPIES, "cpu", torch.bfloat16)
    assert bf16_copy(net).backbone is not net.backbone and bf16_copy(net).index_head is net.index_head
    course = train_both(net, FEW, recipe, 0)
    assert {weight.dtype for weight in net.parameters()} == {torch.float32}
    assert course != exact  # it was rounded
    for name in ("class_loss", "index_loss"):
        assert course[-1][name] == pytest.approx(exact[-1][name], rel=0.05)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")  # torch's own, as it compiles
def test_a_recorded_step_learns_on_a_gpu() -> None:
    recipe = TwoCnns("small", 3, 12, (16, 16), (1e-3, 1e-3))
    net = built(FEW, recipe, 0, "cuda")
    course = train_both(net, FEW, recipe, 0)
    assert course[-1]["class_loss"] < 0.6 * course[0]["class_loss"]
    assert rates(pair_hits(net, FEW, FEW))["class_accuracy"][0] > 0.6


@pytest.mark.parametrize("shape", [(3, 1, 4, 4), (2, 3, 5, 5), (0, 1, 4, 4)])
def test_pictures_come_back_as_they_were(shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    assert np.array_equal(unpack_array(pack_array(values)), values)
    right = np.random.default_rng(1).random((15, 77)) < 0.9
    assert np.array_equal(unpack_array(pack_array(right)), right)


def test_pictures_lie_side_by_side() -> None:
    values = np.zeros((4, 3, 2, 2), dtype=np.uint8)
    sheet = tile_pictures(values, 3)
    assert sheet.shape == (5, 8, 3)
    assert (sheet[:, 2] == 255).all() and (sheet[:2, :2] == 0).all()


def test_drawings_change_pictures_and_nothing_else() -> None:
    for name, change in DRAWINGS.items():
        found = change(FEW.images, 0)
        assert found.shape == FEW.images.shape and found.dtype == torch.uint8
        assert torch.equal(found, change(FEW.images, 0))
        assert torch.equal(found, FEW.images) == (name == "plain")
    assert (DRAWINGS["thickened"](FEW.images, 0) >= FEW.images).all()
    assert not torch.equal(DRAWINGS["turned"](FEW.images, 0), DRAWINGS["turned"](FEW.images, 1))


def test_faces_are_counted_apart_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.r_[np.flatnonzero(FEW.samples.labels == 0)[:1], np.flatnonzero(FEW.samples.labels == 1)[:4]]
    monkeypatch.setattr(vae, "_vae_people", lambda data_dir, limit: FEW.select(rows))
    told = vae.run("lfw", "faces", Job(SCALES["tiny"], 0, device="cpu"))
    assert "pictures" not in told
    assert told["people"] == {"all": 2, "with_2_to_25": 1}
    assert told["figures"]["index_at_mean"][1] == 5 and told["figures"]["index_at_mean_2_to_25"][1] == 4


def test_sizes_are_kept_within_a_person() -> None:
    cell = next(cell for cell in vae.cells(SCALES["full"]) if cell.name == "lfw/faces")
    assert isinstance(cell.run, partial) and cell.config["training"]["epochs"] == 150

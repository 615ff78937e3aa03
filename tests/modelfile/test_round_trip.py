"""What is written is what is read, for every network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

from provnet.base.errors import IntegrityError, NonFiniteError, UsageError
from provnet.heads.heads import ExemplarHead
from provnet.heads.index_map import IndexMap
from provnet.heads.support import LOOKS, Support
from provnet.models.network import NetworkConfig, build
from provnet.runs import fileset
from provnet.runs.files import rebuild
from provnet.runs.run import Run, RunConfig, has_run, read_run, read_samples, verify_files, write_run
from provnet.runs.safe import open_checked, read_json, read_tensors, sha256_file, write_json
from tests.cases import cases

from .made import NETWORKS, make_run, sample_table, weights_digest


def assert_same(one: Run, other: Run) -> None:
    assert weights_digest(one) == weights_digest(other)
    assert one.config == other.config
    for name in ("sample_ids", "class_names", "paths", "sources"):
        assert getattr(one.samples, name) == getattr(other.samples, name)
    for name in ("sha256", "pixel_sha256", "labels"):
        assert np.array_equal(getattr(one.samples, name), getattr(other.samples, name))
        assert getattr(other.samples, name).dtype == getattr(one.samples, name).dtype
    assert one.samples.fingerprint == other.samples.fingerprint
    assert (one.history is None) == (other.history is None)
    if one.history is not None and other.history is not None:
        assert np.array_equal(one.history, other.history)


@cases("network", NETWORKS)
@cases(("backbone", "shape"), [("mlp", (4,)), ("small", (1, 8, 8))])
def test_a_network_comes_back_bit_equal(tmp_path: Path, network: str, backbone: str, shape: tuple[int, ...]) -> None:
    run = make_run(network, backbone=backbone, shape=shape, mean=(0.3,), std=(0.7,), scale=255.0)
    write_run(run, tmp_path)
    again = read_run(tmp_path)
    assert_same(run, again)
    assert not again.network.training
    images = torch.randint(0, 256, (5, *shape)).float()
    for one, other in zip(run.network(images), again.network(images), strict=True):
        assert one is other is None or torch.equal(one, other)
    assert [check.why for check in verify_files(tmp_path)] == ["ok"] * 6
    assert_same(run, Run(again.network, *read_samples(tmp_path), again.history))


def test_looks_are_kept_and_a_run_from_before_they_were_measured_is_judged_by_features_alone(tmp_path: Path) -> None:
    before = make_run(backbone="small", shape=(1, 8, 8))
    write_run(before, tmp_path / "before")
    run = make_run(backbone="small", shape=(1, 8, 8))
    run.network.support.looks = Support(1, LOOKS)
    run.network.support.looks.fit(torch.randn(30, LOOKS), torch.zeros(30, dtype=torch.int64))
    write_run(run, tmp_path / "now")
    images = torch.full((4, 1, 8, 8), 1e5)  # far by its looks
    supports = []
    for name in ("before", "now"):
        again = read_run(tmp_path / name)
        write_run(again, tmp_path / "again" / name)
        assert_same(again, read_run(tmp_path / "again" / name))
        out = again.network(images)
        supports.append(again.network.support(out.support_features, out.classes, out.looks))
        known = again.network.support.looks is not None
        assert known == (name == "now")
        if not known:
            assert torch.equal(supports[0], again.network.support(out.support_features, out.classes))
    assert bool((supports[1] < supports[0]).all())


@pytest.mark.parametrize("backbone", ["mlp", "small", "sharing-small", "sharing-medium"])
def test_a_backbone_is_rebuilt_from_its_name(tmp_path: Path, backbone: str) -> None:
    write_run(make_run(backbone=backbone, shape=(1, 8, 8), conditional=False), tmp_path)
    assert read_run(tmp_path).config.network.backbone == backbone


def test_reading_leaves_the_random_state_alone(tmp_path: Path) -> None:
    write_run(make_run(), tmp_path)
    before = torch.get_rng_state()
    read_run(tmp_path)
    assert torch.equal(before, torch.get_rng_state())


def test_all_files_are_plain_safetensors_for_other_readers(tmp_path: Path) -> None:
    run = make_run()
    write_run(run, tmp_path)
    theirs = safetensors.torch.load_file(tmp_path / "model.safetensors")
    state = run.network.state_dict()
    assert theirs.keys() == state.keys()
    assert all(torch.equal(theirs[name], state[name]) for name in theirs)


def test_replacing_drops_what_the_new_run_does_not_have(tmp_path: Path) -> None:
    write_run(make_run(seed=1), tmp_path)
    (tmp_path / "log.jsonl").write_text("{}\n")
    (tmp_path / "checkpoints").mkdir()
    new = make_run("single", seed=2)
    write_run(Run(new.network, new.config, new.samples), tmp_path)
    assert_same(Run(new.network, new.config, new.samples), read_run(tmp_path))
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "README.md", "checkpoints", "config.json", "log.jsonl", "manifest.json", "model.safetensors",
        "samples.safetensors",
    ]  # fmt: skip


class Tied(nn.Module):
    """A backbone of one's own, with two names for one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(4, 4, bias=False)
        self.two = nn.Linear(4, 4, bias=False)
        self.two.weight = self.one.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.two(self.one(x).relu())
        return out


def test_a_backbone_of_ones_own_is_given_again(tmp_path: Path) -> None:
    samples = sample_table()
    config = NetworkConfig("class-independent", "custom", (4,), len(samples.class_names))
    net = build(config, IndexMap(samples.labels, config.classes), Tied()).eval()
    write_run(Run(net, RunConfig(config), samples), tmp_path)
    with pytest.raises(UsageError, match="backbone=module"):
        read_run(tmp_path)
    again = read_run(tmp_path, backbone=Tied())
    images = torch.rand(3, 4)
    assert torch.equal(net(images).index_scores, again.network(images).index_scores)
    with pytest.raises(UsageError, match=r"not the one that this run was trained with: the run: tensor 'backbone"):
        read_run(tmp_path, backbone=nn.Linear(4, 4))


def test_a_network_that_nothing_could_read_again_is_not_written(tmp_path: Path) -> None:
    samples = sample_table()
    for backbone in ("custom", "mlp"):
        config = NetworkConfig("class-independent", backbone, (4,), len(samples.class_names))
        net = build(config, IndexMap(samples.labels, config.classes), Tied() if backbone == "custom" else None).eval()
        net.task_head = nn.Linear(net.support.mean.shape[1], config.classes)
        with pytest.raises(UsageError, match=r"cannot be saved as a run, .* tensor 'task_head"):
            write_run(Run(net, RunConfig(config), samples), tmp_path / backbone)
        assert not (tmp_path / backbone / "manifest.json").exists()


def test_two_runs_read_with_one_module_do_not_share_it(tmp_path: Path) -> None:
    samples, module = sample_table(), Tied()
    config = NetworkConfig("class-independent", "custom", (4,), len(samples.class_names))
    nets = []
    for name in ("a", "b"):
        net = build(config, IndexMap(samples.labels, config.classes), Tied()).eval()
        write_run(Run(net, RunConfig(config), samples), tmp_path / name)
        nets.append(net)
    start = module.one.weight.detach().clone()
    read = [read_run(tmp_path / name, backbone=module).network for name in ("a", "b")]
    images = torch.rand(3, 4)
    for net, again in zip(nets, read, strict=True):
        assert torch.equal(net(images).index_scores, again(images).index_scores)
    assert torch.equal(module.one.weight, start)
    assert module.training


def test_bf16_keys_of_an_older_run_get_their_factors(tmp_path: Path) -> None:
    samples = sample_table()
    config = NetworkConfig(
        "class-independent", "mlp", (4,), len(samples.class_names), head="exemplar", key_width=8, key_type="bf16"
    )
    net = build(config, IndexMap(samples.labels, config.classes)).eval()
    head = net.index_head
    assert isinstance(head, ExemplarHead)
    head.open_keys(trained=False)
    head.set_keys(torch.arange(len(samples)), torch.randn(len(samples), 8))
    head.close_keys()
    state = {name: value for name, value in net.state_dict().items() if name != "index_head.steps"}
    safetensors.torch.save_file(state, tmp_path / "model.safetensors")
    with (tmp_path / "model.safetensors").open("rb") as file:
        again = rebuild(config, samples, file)
    read = again.index_head
    assert isinstance(read, ExemplarHead)
    assert torch.allclose(read.bank.unpacked(), head.bank.unpacked(), rtol=1e-6, atol=0)
    assert torch.allclose(read.bank.unpacked().norm(dim=1), torch.ones(len(samples)), rtol=1e-6)


def test_a_backbone_that_is_not_asked_for_is_refused(tmp_path: Path) -> None:
    write_run(make_run(), tmp_path)
    with pytest.raises(UsageError, match="leave the backbone argument out"):
        read_run(tmp_path, backbone=Tied())


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_network_that_is_not_finite_is_not_written(tmp_path: Path, value: float) -> None:
    run = make_run()
    with torch.no_grad():
        next(run.network.parameters())[0] = value
    with pytest.raises(NonFiniteError, match="NaN or infinity"):
        write_run(run, tmp_path / "run")
    assert not has_run(tmp_path / "run")


def test_a_network_that_does_not_fit_its_samples_is_not_written(tmp_path: Path) -> None:
    run, other = make_run("single", n=13), make_run("single", n=12)
    with pytest.raises(IntegrityError, match="12 samples, for which the index head needs 12 rows"):
        write_run(Run(run.network, run.config, other.samples), tmp_path)
    assert not has_run(tmp_path)


def test_a_setting_that_json_cannot_hold_is_refused(tmp_path: Path) -> None:
    run = make_run()
    for value in (float("nan"), object()):
        config = RunConfig(run.config.network, training={"loss": value})
        with pytest.raises(UsageError, match=r"config\.json takes plain JSON values"):
            write_run(Run(run.network, config, run.samples), tmp_path)


@pytest.mark.parametrize("number", [2**24 + 1, 2**31, 2**53 - 1])
def test_large_ids_stay_exact(tmp_path: Path, number: int) -> None:
    assert read_json(write_json({"index": number, "many": [number]}, "x"), "x") == {"index": number, "many": [number]}
    run = make_run()
    config = RunConfig(run.config.network, training={"index": number})
    write_run(Run(run.network, config, run.samples), tmp_path / "run")
    assert read_run(tmp_path / "run").config.training["index"] == number
    path = tmp_path / "ids.safetensors"
    safetensors.torch.save_file({"index": torch.tensor([number, -1])}, path)
    with open_checked(path, sha256=sha256_file(path)) as file:
        assert read_tensors(file)["index"].tolist() == [number, -1]


def test_a_file_that_gets_its_plain_name_while_it_is_opened_is_read(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer moves files out of `.next` one by one; each may be gone between looking for it and opening it."""
    names = [path.name for path in run.iterdir()]
    (run / ".next").mkdir()
    for name in names:
        (run / name).rename(run / ".next" / name)
    real, moved = fileset.open_checked, []

    def late(path: Path, **checks: Any) -> Any:
        if path.parent.name == ".next":
            moved.append(path.rename(run / path.name))
        return real(path, **checks)

    monkeypatch.setattr(fileset, "open_checked", late)
    assert weights_digest(read_run(run)) == weights_digest(make_run())
    assert len(moved) == len(names)

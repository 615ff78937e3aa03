"""Networks on a shelf: taken where everything is equal, trained where anything differs; figures stay the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import provnet
from provnet.training.config import train_config
from provnet_paper import store as shelf
from provnet_paper.frame import Plan, reproduce
from provnet_paper.records import SCALES, Job
from provnet_paper.store import trained_or_taken
from tests.cases import cases

CONFIG = train_config("fast", epochs=1)


def test_a_taken_network_has_the_same_weights(tmp_path: Path) -> None:
    data, job = provnet.open_data("embedded", limit=60), Job(SCALES["tiny"], 0, device="cpu", networks=tmp_path)
    first, taken = trained_or_taken(data, CONFIG, job, lambda row: None, network="single", alpha=0.5)
    again, taken_again = trained_or_taken(
        data, CONFIG, job, lambda row: pytest.fail("trained"), network="single", alpha=0.5
    )
    assert (taken, taken_again) == (False, True)
    weights = again.network.state_dict()
    assert all(torch.equal(value, weights[name]) for name, value in first.network.state_dict().items())
    assert again.samples.sample_ids == first.samples.sample_ids


@cases("what", ["samples", "seed", "recipe", "network", "source"])
def test_whatever_differs_is_trained(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, job = provnet.open_data("embedded", limit=60), Job(SCALES["tiny"], 0, device="cpu", networks=tmp_path)
    trained_or_taken(data, CONFIG, job, lambda row: None, network="single")
    config, wishes = CONFIG, {"network": "single"}
    if what == "samples":
        data = data.select(torch.arange(59))
    elif what == "seed":
        config = replace(config, seed=1)
    elif what == "recipe":
        config = replace(config, lr=config.lr / 2)
    elif what == "network":
        wishes = {"network": "class-independent"}
    else:
        monkeypatch.setattr(shelf, "source_sha256", lambda: "other")
    assert not trained_or_taken(data, config, job, lambda row: None, **wishes)[1]
    assert len(list(tmp_path.iterdir())) == 2


def test_without_a_shelf_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data, job = provnet.open_data("embedded", limit=20), Job(SCALES["tiny"], 0, device="cpu")
    assert not trained_or_taken(data, CONFIG, job, lambda row: None)[1]
    assert not list(tmp_path.iterdir())


def test_robustness_asks_the_networks_of_mixing(tmp_path: Path) -> None:
    plan = Plan("mixing", "tiny", 1, ("mnist/0.5",), device="cpu", out=tmp_path / "a", networks=tmp_path / "shelf")
    reproduce(plan)
    asked = replace(plan, name="robustness")
    taken = reproduce(asked).cells["mnist/0.5"][0]
    assert "take" in taken.told["seconds"] and "train" not in taken.told["seconds"]
    fresh = reproduce(replace(asked, out=tmp_path / "b", networks=None)).cells["mnist/0.5"][0]
    assert "train" in fresh.told["seconds"]
    assert fresh.figures == taken.figures


def test_debugging_asks_the_network_of_membership(tmp_path: Path) -> None:
    plan = Plan("membership", "tiny", 1, device="cpu", out=tmp_path / "a", networks=tmp_path / "shelf")
    reproduce(plan)
    taken = reproduce(replace(plan, name="debugging", only=("mnist/samples",))).cells["mnist/samples"][0]
    assert "take" in taken.told["seconds"]


def test_a_second_process_may_be_first(tmp_path: Path) -> None:
    data, job = provnet.open_data("embedded", limit=20), Job(SCALES["tiny"], 0, device="cpu", networks=tmp_path)
    run, _ = trained_or_taken(data, CONFIG, job, lambda row: None)
    (place,) = tmp_path.iterdir()
    before = {path.name: path.read_bytes() for path in place.iterdir()}
    shelf._lay_down(run, place)
    assert [path.name for path in tmp_path.iterdir()] == [place.name]
    assert {path.name: path.read_bytes() for path in place.iterdir()} == before

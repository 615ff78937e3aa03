"""Applications take large pictures in parts: a few at a time, with the results that they have as a whole."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import provnet
from provnet.data.dataset import ImageData
from provnet.data.modalities.augment import COPIES
from provnet.runs.run import Run
from provnet.tools.copies import compute as nearest_training
from provnet.tools.copies import near_copies
from provnet.tools.copies.compute import Nearest, nearest, nearest_pixels
from provnet.tools.copies.near_copies import copy_ratios
from provnet.tools.credit.compute import credit
from provnet.tools.debug import duplicates as near_duplicates
from provnet.tools.debug.compute import debug
from provnet.tools.debug.duplicates import duplicates
from provnet.tools.debug.signals import nearest_others
from provnet.tools.map.compute import index_features
from provnet.tools.membership import compute as redrawn
from provnet.tools.membership.compute import feature_scores, member_scores, pixel_scores
from provnet.tools.robustness.compute import measure
from provnet.tools.subsets import view_of
from provnet.tools.trust.compute import abstention, dependence, support_of
from tests.cases import cases

from ..digits import training
from ..test_chunks import FEW, LARGE, Counting, samples, trained
from .made import keyed

N = 24
Ask = Callable[[Run, ImageData], Any]
ASKED: dict[str, Ask] = {
    "support_of": lambda run, data: support_of(run, data.images),
    "abstention": lambda run, data: abstention(run, data.images, {"same": data.images}).kinds["same"].to_json(),
    "credit": lambda run, data: credit(run, data.images, ["a", "b"] * (len(data) // 2), draws=20).by_query,
    "debug": lambda run, data: debug(run, data).anomalies.typicality,
    "index_features": lambda run, data: index_features(run, data.images),
    "member_scores": lambda run, data: member_scores(run, data.images).values["contrast"],
    "copies": lambda run, data: member_scores(run, data.images, copy=COPIES["noise-0.1"]).values["contrast"],
    "look": lambda run, data: view_of(run, data).features,
    "dependence": lambda run, data: [
        one.spearman.value for one in dependence(run, data.images, data.images, np.arange(len(data))).steps
    ],
    "feature_scores": lambda run, data: feature_scores(run.network, data.images, data.images).numpy(),
    "measure": lambda run, data: [
        {name: rate.value for name, rate in row.figures.items()}
        for row in measure(run, data, conditions=["noise-0.1"], attacks=["fgsm"]).rows
    ],
}


def in_parts(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith(("provnet.tools.", "provnet.answers.")) and hasattr(module, "at_once"):
            monkeypatch.setattr(module, "at_once", lambda *_: size)


@cache
def large() -> tuple[Run, ImageData]:
    Counting.seen = []
    data = samples(N, LARGE)
    return trained(data, LARGE), data


@cases("name", ASKED)
def test_few_large_pictures_go_through_the_network_at_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run, data = large()
    seen: list[int] = []
    monkeypatch.setattr(Counting, "seen", seen, raising=False)
    ASKED[name](run, data)
    assert seen[:3] == [FEW, FEW, N - 2 * FEW]
    assert max(seen) == FEW


@cases("name", ASKED)
def test_parts_give_what_the_whole_gives(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run, data = keyed("class-conditional"), training()
    whole = ASKED[name](run, data)
    in_parts(monkeypatch, 7)
    found = ASKED[name](run, data)
    if name in ("abstention", "measure"):
        assert found == whole
    else:
        assert np.asarray(found) == pytest.approx(np.asarray(whole), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("ask", [support_of, index_features, member_scores])
def test_a_batch_size_that_is_given_is_kept(ask: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    run, data = large()
    seen: list[int] = []
    monkeypatch.setattr(Counting, "seen", seen, raising=False)
    ask(run, data.images, batch_size=20)
    assert seen == [20, 4]


def test_pictures_are_compared_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    images = training().images[:60]
    copied = torch.cat([images, images[:5] // 2])
    data = training().select(np.arange(60))
    near = nearest_others(torch.nn.functional.normalize(data.images.flatten(1).float(), dim=1), k=3)

    def all_of_it() -> tuple[np.ndarray, ...]:
        ratios = copy_ratios(copied, images)
        return ratios.ratio, ratios.cosine, ratios.row, duplicates(data.samples, data.images, near).group

    whole = all_of_it()
    in_parts(monkeypatch, 7)
    sizes: list[int] = []
    for room, name in ((near_copies, "shrink"), (near_duplicates, "_small")):
        monkeypatch.setattr(room, name, recorded(getattr(room, name), sizes))
    for one, other in zip(whole, all_of_it(), strict=True):
        assert other == pytest.approx(one, abs=1e-9)
    queries = [32, 32, 1]
    assert sorted(sizes)[-3:] == [7, 32, 32]  # queries are 32 at a time, everything else 7
    assert all(size <= 7 or size in queries for size in sizes)


def recorded(made: Callable[..., Tensor], sizes: list[int]) -> Callable[..., Tensor]:
    def counted(images: Tensor, *more: Any) -> Tensor:
        sizes.append(len(images))
        return made(images, *more)

    return counted


@pytest.mark.parametrize("block", [1, 2_000, 30_000])
def test_the_nearest_are_the_same_whatever_is_held(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    every = provnet.open_data("embedded", limit=90).images
    keys, queries = every[:70].clone(), every[60:]
    keys[[4, 30, 69]] = every[2]  # equal ones in several blocks: the lowest row counts
    keys[40:60] = every[65]  # and more of them than candidates
    floats = [each.flatten(1).float() for each in (queries, keys)]
    whole = [nearest_pixels(queries, keys), nearest(*floats), nearest_pixels(keys[30:31], keys)]
    monkeypatch.setattr(nearest_training, "BLOCK", block)
    monkeypatch.setattr(nearest_training, "NUMBERS", 4 * block)
    parts = [nearest_pixels(queries, keys), nearest(*floats), nearest_pixels(keys[30:31], keys)]
    for one, other in zip(whole, parts, strict=True):
        same(one, other)
    assert (whole[2].row.tolist(), whole[2].distance.tolist(), whole[2].following.tolist()) == ([2], [0.0], [0.0])
    exact = torch.cdist(floats[0].double() / 255, floats[1].double() / 255, compute_mode="donot_use_mm_for_euclid_dist")
    assert parts[0].distance * 28 == pytest.approx(exact.amin(1).numpy(), abs=1e-5)


def same(one: Nearest, other: Nearest) -> None:
    assert np.array_equal(one.row, other.row)
    assert other.distance == pytest.approx(one.distance, rel=1e-12)
    assert other.following == pytest.approx(one.following, rel=1e-12)


def test_pixels_are_compared_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    every = provnet.open_data("embedded", limit=90).images
    images, others_ = every[:40], every[30:]
    whole = pixel_scores(images, others_)
    monkeypatch.setattr(redrawn, "NUMBERS", 9 * 784)
    sizes: list[tuple[int, int]] = []
    cdist = torch.cdist
    monkeypatch.setattr(torch, "cdist", lambda a, b: (sizes.append((len(a), len(b))), cdist(a, b))[1])
    assert torch.allclose(pixel_scores(images, others_), whole, rtol=1e-6, atol=1e-3)  # of pixels up to 255
    assert max(max(pair) for pair in sizes) == 9
    assert len(sizes) == 5 * 7

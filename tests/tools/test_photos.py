"""Copies of photographs by the places that two pictures share: cut, mirrored, in a collage, painted; and no copies."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import provnet
from provnet.base.errors import UsageError
from provnet.tools.copies.compute import attribute_generated
from provnet.tools.copies.near_copies import copy_ratios
from provnet.tools.copies.photos import photo_copies, views
from provnet.training.config import train_config
from provnet.training.fit import fit


@pytest.fixture(scope="module")
def pictures() -> Tensor:
    """(14, 3, 96, 128) bytes: fields of colour with blobs and edges, each another."""
    draw = torch.Generator().manual_seed(0)
    coarse = [torch.rand(14, 3, side, side + 2, generator=draw) for side in (3, 9, 24)]
    mixed = sum(
        F.interpolate(one, size=(96, 128), mode=mode) * share
        for one, mode, share in zip(coarse, ("bicubic", "nearest", "nearest"), (0.5, 0.3, 0.2), strict=True)
    )
    assert isinstance(mixed, Tensor)
    return (mixed * 255).round().clamp(0, 255).to(torch.uint8)


def test_copies_agree_in_more_places_than_others(pictures: Tensor) -> None:
    training, others = pictures[:10], pictures[10:]
    collage = torch.cat([others[:1, :, :, :64], F.avg_pool2d(training[6:7].float(), (1, 2)).to(torch.uint8)], 3)
    resized = F.interpolate(training[4:5, :, 12:90, 20:120].float(), size=(96, 128), mode="bilinear").to(torch.uint8)
    painted = training[1:2].clone()
    painted[:, :, 30:60, 20:90] = 255
    made = torch.cat([training[8:9].flip(3), resized, collage, painted, others])
    found = photo_copies(made, training, false_alarms=0.1)
    assert found.row[:4].tolist() == [8, 4, 6, 1]
    assert found.threshold is not None and found.near_copy.tolist() == [True] * 4 + [False] * 4
    ratio = copy_ratios(made, training).ratio
    assert ratio[0] > ratio[3]  # what is mirrored escapes the ratio
    few = photo_copies(made[:1], training, heldout=others)
    assert few.threshold is None and not few.near_copy.any() and few.calibrated_on == 4


def test_only_pictures_of_colour_are_compared(pictures: Tensor) -> None:
    assert {tuple(one.shape) for one in views(pictures[:2])} == {(3, 256, 256)}
    for wrong in (pictures[:, :1], pictures.float(), pictures[:0], torch.from_numpy(np.zeros((2, 3), np.uint8))):
        with pytest.raises(UsageError, match="bytes of colour"):
            photo_copies(wrong, pictures)


def test_a_run_names_the_sample_behind_a_copy(pictures: Tensor) -> None:
    data = provnet.open_data(pictures[:10], np.arange(10) % 2)
    run = fit(data, train_config(epochs=1, backbone="small"))
    found = attribute_generated(pictures[8:9].flip(3), run, data=data, photos=True, false_alarms=0.1)
    told = found.to_records()[0]["matched_copy"]
    assert told["verdict"] and told["of"]["sample_id"] == data.samples.sample_ids[8]
    assert told["agreement"] > told["threshold"] and found.rates["matched_copies"].value == 1.0
    assert "matched_copy" not in attribute_generated(pictures[:1], run, data=data).to_records()[0]

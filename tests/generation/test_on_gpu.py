"""Generators on a GPU; run by hand there: `python -m pytest -m gpu tests/generation/test_on_gpu.py`."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import provnet
from provnet.base.options import RunOptions
from provnet.tools.generate.compute import fit_generator, generate, sources

from .made import NAMES

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible"),
]


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_step_trains_as_a_plain_one(name: str) -> None:
    data = provnet.open_data("embedded").select(torch.arange(512))
    rows: list[list[float]] = []
    for recorded in (False, True):
        course: list[float] = []
        changes = {"epochs": 8, "batch_size": 64, "precision": "32-true"}
        run = fit_generator(
            data,
            name,
            changes=changes,
            device="cuda",
            recorded=recorded,
            on_epoch=lambda row, kept=course: kept.append(row["reconstruction"]),  # type: ignore[misc]
        )
        rows.append(course)
        assert generate(run, 3).images.std() > 5
    assert np.allclose(rows[0], rows[1], rtol=0.05)
    assert rows[1][-1] < 0.7 * rows[1][0]


@pytest.mark.parametrize("name", NAMES)
def test_pictures_are_those_of_the_cpu_but_for_rounding(name: str) -> None:
    data = provnet.open_data("embedded").select(torch.arange(256))
    run = fit_generator(data, name, changes={"epochs": 4}, where=RunOptions(device="cuda"))
    run.network.to("cpu")
    here = generate(run, 16, seed=1)
    run.network.to("cuda")
    there = generate(run, 16, seed=1)
    assert np.abs(here.images.astype(int) - there.images).max() <= 8
    assert (sources(run, there, 3).label == there.labels[:, None]).all()

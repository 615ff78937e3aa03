"""Samples that are not bytes, as pictures: the app draws them as reports do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from provnet.data.modalities.image import picture_of
from provnet_app.library import Library, Uploads

from .made import made_run


@pytest.fixture
def library(tmp_path: Path) -> Library:
    """Of a run whose network takes floats as they are."""
    served = made_run(tmp_path)
    run = replace(served.run, config=replace(served.run.config, network=replace(served.run.config.network, scale=1.0)))
    return Library(replace(served, run=run), Uploads(run))


@pytest.mark.parametrize("ends", [(0.2, 0.4), (-0.02, 1.02), (0.0, 200.0), (-3.0, 5.0)])
def test_floats_look_as_in_reports(library: Library, ends: tuple[float, float]) -> None:
    image = np.linspace(*ends, 64, dtype=np.float32).reshape(1, 8, 8)
    drawn, reported = library.pixels(image), picture_of(image)
    assert drawn is not None
    assert np.array_equal(drawn, reported)


def test_a_pale_picture_stays_pale(library: Library) -> None:
    drawn = library.pixels(np.full((3, 8, 8), 0.8, np.float32))
    assert drawn is not None
    assert drawn.shape == (8, 8, 3)
    assert int(drawn.min()) == int(drawn.max()) == 204


def test_floats_of_a_network_for_bytes_are_bytes(tmp_path: Path) -> None:
    served = made_run(tmp_path)
    dark = np.full((1, 8, 8), 1.6, np.float32)  # by its values alone it might be white
    drawn = Library(served, Uploads(served.run)).pixels(dark)
    assert drawn is not None
    assert set(drawn.ravel().tolist()) == {2}

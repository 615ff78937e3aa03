"""Colours of classes on maps: seen on their ground, told apart also without full colour vision, the same everywhere."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import provnet
from provnet.tools.map.page import COLOURS, SHAPES

ROOT = Path(provnet.__file__).parent
PAGE, APP = ROOT / "report/templates/map_marks.js", ROOT / "../provnet_app/static/js/parts/colours.js"
GROUNDS = {"light": "#ffffff", "dark": "#1a1d24"}  # --card of the style sheets
# what dichromats see, in linear light (Machado, Oliveira and Fernandes 2009)
DEUTAN = [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
PROTAN = [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
LMS = [[0.4122215, 0.5363325, 0.0514460], [0.2119035, 0.6806995, 0.1073970], [0.0883025, 0.2817188, 0.6299787]]
LAB = [[0.2104543, 0.7936178, -0.0040720], [1.9779985, -2.4285922, 0.4505937], [0.0259040, 0.7827718, -0.8086758]]
PETROFF = ("#3f90da", "#ffa90e", "#bd1f01", "#94a4a2", "#832db6", "#a96b59", "#e76300", "#b9ac70", "#717581", "#92dadd")


def palettes(path: Path) -> dict[str, tuple[str, ...]]:
    found = re.findall(r"(light|dark): \[((?:\"#\w{6}\"(?:, )?){10})\]", path.read_text("utf-8"))
    return {name: tuple(re.findall(r"#\w{6}", text)) for name, text in found}


def linear(colours: tuple[str, ...]) -> np.ndarray:
    shares = np.array([[int(one[i : i + 2], 16) / 255 for i in (1, 3, 5)] for one in colours])
    return np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)


def contrasts(colours: tuple[str, ...], ground: str) -> np.ndarray:
    light = linear((*colours, ground)) @ [0.2126, 0.7152, 0.0722] + 0.05
    return np.maximum(light[:-1], light[-1]) / np.minimum(light[:-1], light[-1])


def nearest(colours: tuple[str, ...], seen: object) -> float:
    """The smallest difference of two colours (Oklab) to somebody who sees so."""
    places = np.cbrt((linear(colours) @ np.array(seen).T).clip(0, 1) @ np.array(LMS).T) @ np.array(LAB).T
    apart = np.linalg.norm(places[:, None] - places[None], axis=2)
    return float(apart[np.triu_indices(len(colours), 1)].min())


@pytest.mark.parametrize("ground", GROUNDS)
def test_colours_are_seen_and_told_apart(ground: str) -> None:
    colours = palettes(PAGE)[ground]
    assert contrasts(colours, GROUNDS[ground]).min() >= 3
    assert nearest(colours, np.eye(3)) > 0.18
    assert min(nearest(colours, DEUTAN), nearest(colours, PROTAN)) > 0.1


def test_the_measures_can_fail() -> None:
    assert contrasts(PETROFF, "#ffffff").min() < 2
    assert min(nearest(PETROFF, DEUTAN), nearest(PETROFF, PROTAN)) < 0.09


def test_page_app_and_picture_use_the_same() -> None:
    assert set(palettes(PAGE)) == set(GROUNDS)
    assert palettes(PAGE) == palettes(APP)
    assert palettes(PAGE)["light"] == COLOURS
    assert len(SHAPES) == 4
    for name, path in (
        ("report", ROOT / "report/templates/style.css"),
        ("app", ROOT / "../provnet_app/static/app.css"),
    ):
        assert all(f"--card: {ground}" in path.read_text("utf-8") for ground in GROUNDS.values()), name

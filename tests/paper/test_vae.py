"""What generated pictures are compared with."""

from __future__ import annotations

import numpy as np

import provnet
from provnet.tools.generate.compute import fit_generator
from provnet_paper.records import SCALES, Job
from provnet_paper.vae import _away, _made

FEW = provnet.open_data("embedded", limit=40)
JOB = Job(SCALES["tiny"], 0, device="cpu")


def test_faces_are_compared_with_anybody_and_their_pictures_are_not_kept() -> None:
    found = fit_generator(FEW, "faces", changes={"epochs": 1})
    figures, kept = _made(found, FEW, None, JOB)
    assert set(figures) == {"nearer_than_any", "five_nearer_than_any", "different_first_sources"}
    assert kept == {}
    more, pictures = _made(found, FEW, FEW, JOB)
    assert {name: more[name] for name in figures} == figures
    assert set(more) - set(figures) == {"nearer_than_another", "agreement", "judge_accuracy"}
    assert set(pictures) == {"pictures"}


def test_distances_are_of_the_pictures_named_and_missing_where_none_is() -> None:
    pictures = FEW.images[:2].numpy().astype(np.float32)
    away = _away(pictures, FEW, np.array([[0, 5, -1], [5, 1, -1]]))
    assert away[0, 0] == away[1, 1] == 0
    apart = np.abs(pictures[0] - FEW.images[5].numpy()).mean()
    assert away[0, 1] == np.float64(apart) and away[1, 0] > 0
    assert np.isnan(away[:, 2]).all()

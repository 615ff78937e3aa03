"""A class whose samples are all withheld: nothing is named for pictures that are taken for it, and that is counted."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import provnet
from provnet.base.errors import UsageError
from provnet.runs.run import Run
from provnet.tools.map.compute import sample_map
from provnet.tools.membership.compute import audit, member_scores
from provnet.tools.membership.member import UNKNOWN, UNNAMED, Heldout, memberships
from provnet.tools.robustness.compute import measure

from ..digits import training, unseen
from .made import keyed

INDEX = ("index_confidence", "index_entropy", "similarity", "contrast")
CLASSES = ("class_confidence", "class_entropy")


def hidden() -> tuple[Run, int]:
    """A class-conditional run without the class that it predicts most often, and that class."""
    run = keyed("class-conditional")
    gone = int(np.bincount(provnet.explain(run, unseen().images, k=1).predicted).argmax())
    return replace(run, samples=replace(run.samples, withheld=run.samples.labels == gone)), gone


def test_scores_of_the_index_branch_are_not_there() -> None:
    run, gone = hidden()
    found = member_scores(run, unseen().images)
    none = found.predicted == gone
    assert 0 < none.sum() < len(none)
    assert found.named.tolist() == (~none).tolist()
    for name in INDEX:
        assert np.isnan(found.values[name]).tolist() == none.tolist()
        assert np.isfinite(found.values[name][~none]).all()
    assert all(np.isfinite(found.values[name]).all() for name in CLASSES)


def test_a_verdict_says_that_no_sample_may_be_named() -> None:
    run, gone = hidden()
    predicted = provnet.explain(run, unseen().images, k=1).predicted
    heldout = Heldout("contrast", np.linspace(0, 1, 200), np.linspace(0, 1, 200))
    found = memberships(run, unseen().images, heldout=heldout)
    for one, guess in zip(found, predicted.tolist(), strict=True):
        json.dumps(one.to_json(), allow_nan=False)
        if guess == gone:
            assert (one.verdict, one.match, one.value, one.p_value, one.missed) == (UNKNOWN, None, None, None, None)
            assert one.why == UNNAMED
        else:
            assert one.value is not None and one.p_value is not None


def test_robustness_counts_them_as_wrong_and_says_how_many() -> None:
    run, gone = hidden()
    none = provnet.explain(run, unseen().images, k=1).predicted == gone
    row = measure(run, unseen(), conditions=["blur-1"]).rows[0]
    assert row.figures["unnamed"].value == none.mean() > 0
    assert row.figures["index_top_1"].value == pytest.approx(
        (row.figures["class_top_1"].value or 0) - (none & (unseen().samples.labels == gone)).mean()
    )
    assert row.figures["same_exemplar"].value == pytest.approx(1 - none.mean())
    assert "unnamed" not in measure(keyed("class-conditional"), unseen(), conditions=["blur-1"]).rows[0].figures
    single = keyed("single")
    without = replace(single, samples=replace(single.samples, withheld=single.samples.labels == gone))
    assert measure(without, unseen(), conditions=["blur-1"]).rows[0].figures["unnamed"].value == 0


def test_an_audit_leaves_them_out_and_counts_them() -> None:
    run, gone = hidden()
    own = training().select(np.flatnonzero(~run.samples.withheld))
    taken = [int((provnet.explain(run, data.images, k=1).predicted == gone).sum()) for data in (own, unseen())]
    found = audit(run, training(), unseen())
    assert found.left_out["members for which no sample may be named"] == taken[0]
    assert found.left_out["nonmembers for which no sample may be named"] == taken[1] > 0
    assert (found.members, found.nonmembers) == (len(own) - taken[0], len(unseen()) - taken[1])
    assert len(found.heldout) == found.nonmembers
    assert np.isfinite(found.heldout).all() and np.isfinite(found.copies).all()
    assert found.scores["similarity"].auc.n == found.members + found.nonmembers
    json.dumps(found.to_json(), allow_nan=False)
    only = unseen().select(np.flatnonzero(provnet.explain(run, unseen().images, k=1).predicted == gone))
    with pytest.raises(UsageError, match="whose samples are all withheld"):
        audit(run, training(), only, distort=False)


def test_a_map_counts_them_apart_from_the_misattributed() -> None:
    run, gone = hidden()
    found = sample_map(run, training(), unseen(), groups=1, engine="scikit-learn", perplexity=5)
    told = provnet.explain(run, unseen().images, k=1)
    none = told.predicted == gone
    assert (found.unnamed, found.tested) == (none.sum(), len(none) - none.sum())
    assert not none[found.test_rows].any()
    assert found.test_rows.tolist() == np.flatnonzero(~none & (told.label[:, 0] != unseen().samples.labels)).tolist()


def test_where_samples_are_left_nothing_is_left_out() -> None:
    run = keyed("class-conditional")
    assert member_scores(run, torch.zeros(1, 1, 28, 28, dtype=torch.uint8)).named.all()
    found = audit(run, training(), unseen(), distort=False)
    assert not any("named" in why for why in found.left_out)

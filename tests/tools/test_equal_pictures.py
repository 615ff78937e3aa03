"""Equal pictures share their weight in membership and robustness, too: explain and they name the same sample."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import provnet
from provnet.data.dataset import ImageData
from provnet.data.modalities.augment import add_noise
from provnet.runs.bank import withhold
from provnet.runs.run import Run
from provnet.tools.membership.compute import member_scores
from provnet.tools.membership.member import memberships
from provnet.tools.robustness.compute import distort, measure, sample_keys_of
from provnet.training.config import train_config
from tests.fitting import fit

NETWORKS = ("single", "class-independent", "class-conditional")
N = 40


@cache
def doubled() -> ImageData:
    """40 digits, each of them twice."""
    data = provnet.open_data("embedded", limit=N)
    rows = np.tile(np.arange(N), 2)
    return provnet.open_data(data.images[rows].numpy(), data.samples.labels[rows])


@cache
def run_of(network: str, head: str = "plain") -> Run:
    return fit(doubled(), network=network, head=head, config=train_config("fast", epochs=6, batch_size=16))


@pytest.mark.parametrize("network", NETWORKS)
def test_scores_are_of_the_sample_that_explain_names(network: str) -> None:
    run, images = run_of(network), add_noise(doubled().images[:N], 0)
    found, told = member_scores(run, images), provnet.explain(run, images, k=1)
    assert found.match.tolist() == told.index[:, 0].tolist()
    assert found.values["index_confidence"] == pytest.approx(told.weight[:, 0], rel=1e-3)
    for one, index in zip(memberships(run, images), told.index[:, 0].tolist(), strict=True):
        assert one.match is not None
        assert (one.match.index, one.match.equal) == (index, 2)


@pytest.mark.parametrize("network", NETWORKS)
def test_robustness_counts_what_explain_names(network: str) -> None:
    run, test = run_of(network), doubled().select(np.arange(N))
    first = provnet.explain(run, test.images, k=1).index[:, 0]
    for row in measure(run, test, conditions=["noise-0.1", "blur-1"]).rows:
        copies = distort(test.images, sample_keys_of(test), row.condition, seed=0)
        found = provnet.explain(run, copies, k=5).index
        assert row.figures["same_exemplar"].value == (found[:, 0] == first).mean()
        assert row.figures["same_exemplar_in_5"].value == (found == first[:, None]).any(1).mean()


def test_withheld_samples_are_not_counted_as_equal() -> None:
    run = run_of("single", "exemplar")
    hidden = withhold(run, [run.samples.sample_ids[3]])
    for each, count in ((run, 2), (hidden, 1)):
        (one,) = memberships(each, doubled().images[3:4])
        assert one.match is not None and one.match.equal == count

"""Images traced to training samples: names, abstention, near-copies, who is never named, totals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import provnet
from provnet.base.errors import DataError, NonFiniteError, UsageError
from provnet.data.modalities.augment import add_noise
from provnet.runs.run import Run
from provnet.tools.copies.compute import Traced, attribute_generated
from provnet.training.config import train_config
from tests.fitting import fit

EVERY = provnet.open_data("embedded", limit=700)
DATA, HELD, FRESH = (EVERY.select(torch.arange(*rows)) for rows in ((0, 120), (300, 420), (600, 640)))
NOISE = torch.randint(0, 256, (4, 1, 28, 28), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
IMAGES = torch.cat([add_noise(DATA.images[:6], 0, 0.05), FRESH.images[:20], NOISE, DATA.images[9:10]])
HEADS = {"exemplar": "class-independent", "plain": "class-conditional"}


def trained(head: str) -> Run:
    return fit(
        DATA, network=HEADS[head], head=head, backbone="mlp", config=train_config("fast", epochs=2, batch_size=64)
    )


@pytest.fixture(scope="module")
def run() -> Run:
    return trained("exemplar")


@pytest.fixture(scope="module", params=sorted(HEADS))
def traced(request: pytest.FixtureRequest, run: Run) -> Traced:
    chosen = run if request.param == "exemplar" else trained(request.param)
    return attribute_generated(IMAGES, chosen, data=DATA, heldout=HELD, k=3, false_alarms=0.01)


def test_copies_are_flagged_by_name_and_fresh_images_are_not(traced: Traced) -> None:
    assert traced.near_copy[:6].all()
    assert traced.near_copy[6:26].sum() <= 1
    assert not traced.near_copy[26:30].any()
    assert traced.copy_index[:6].tolist() == list(range(6))
    assert [one.sha256 for one in traced.copies[:6]] == [DATA.samples.hex(i) for i in range(6)]
    assert traced.exact.tolist() == [False] * 30 + [True]
    assert traced.p_value[30] == traced.p_value.min()


def test_records_agree_with_the_arrays(traced: Traced) -> None:
    records = traced.to_records()
    assert [one["near_copy"]["verdict"] for one in records] == traced.near_copy.tolist()
    assert [one["supported"] for one in records] == traced.explanation.supported.tolist()
    assert all(len(one["exemplars"]) == 3 and "weight" in one["exemplars"][0] for one in records)
    assert records[30]["control"]["pixels"]["distance"] == 0
    assert records[30]["control"]["pixels"]["sample_id"] == DATA.samples.sample_ids[9]
    for one in records:
        for named in (*one["exemplars"], one["near_copy"]["of"], *one["control"].values()):
            assert named["sha256"] == DATA.samples.hex(DATA.samples.id_places[named["sample_id"]])
    summary = traced.to_json()
    assert summary["near_copies"]["value"] == traced.near_copy.mean()
    assert summary["supported"]["value"] + summary["abstained"]["value"] == pytest.approx(1)
    assert summary["compared"] == 120
    with pytest.raises(UsageError, match="names"):
        traced.to_records(["one"])


def test_sources_add_up(traced: Traced) -> None:
    sources = traced.sources()
    found = traced.explanation
    assert sum(one.first for one in sources) == found.supported.sum()
    assert sum(one.copies for one in sources) == traced.near_copy.sum()
    whole = max(found.supported.sum(), 1)
    assert sum(one.sample.weight for one in sources) == pytest.approx(found.weight[found.supported].sum() / whole)
    assert [one.copies > 0 for one in sources] == sorted((one.copies > 0 for one in sources), reverse=True)
    assert len(traced.sources(2)) == 2


def test_withheld_samples_are_neither_named_nor_matched(run: Run) -> None:
    withheld = np.zeros(120, dtype=np.bool_)
    withheld[[0, 9]] = True
    secret = replace(run, samples=replace(run.samples, withheld=withheld))
    found = attribute_generated(
        torch.cat([IMAGES[:2], IMAGES[30:]]), secret, data=DATA, heldout=HELD.select(torch.arange(20))
    )
    named = {one["index"] for record in found.to_records() for one in record["exemplars"]}
    named |= {record["near_copy"]["of"]["index"] for record in found.to_records()}
    named |= {one["index"] for record in found.to_records() for one in record["control"].values()}
    assert not named & {0, 9}
    assert not found.exact.any()
    assert (found.withheld, found.compared) == (2, 118)


def test_data_in_another_order_or_not_complete(run: Run) -> None:
    part = DATA.select(torch.arange(119, 49, -1))
    found = attribute_generated(DATA.images[60:62], run, data=part, heldout=HELD, false_alarms=0.01)
    assert found.copy_index.tolist() == [60, 61]
    assert (found.compared, found.missing) == (70, 50)
    with pytest.raises(DataError, match="two or more"):
        attribute_generated(IMAGES[:1], run, data=FRESH)


def test_without_held_out_pictures_training_pictures_stand_in(run: Run) -> None:
    found = attribute_generated(IMAGES[:8], run, data=DATA, false_alarms=0.01)
    assert "training pictures" in found.calibration.about
    assert found.near_copy[:6].mean() >= 0.8
    assert (found.controls["pixels"].reference > 0).all()
    seen = attribute_generated(IMAGES[:1], run, data=DATA, heldout=EVERY.select(torch.arange(100, 140)))
    assert seen.heldout_trained == 20


def test_too_few_pictures_flag_equal_pixels_only(run: Run) -> None:
    found = attribute_generated(IMAGES[-2:], run, data=DATA, heldout=HELD.select(torch.arange(50)))
    assert found.near_copy.tolist() == [False, True]
    assert not found.calibration.enough


def test_bad_images_are_refused(run: Run) -> None:
    with pytest.raises(UsageError, match="takes images of shape"):
        attribute_generated(IMAGES[:, :, :20], run, data=DATA)
    with pytest.raises(UsageError, match="no samples were given"):
        attribute_generated(IMAGES[:0], run, data=DATA)
    with pytest.raises(NonFiniteError, match="NaN"):
        attribute_generated(torch.full((1, 1, 28, 28), torch.nan), run, data=DATA)

"""Verdicts on single pictures: what bytes, pixels and scores say, and who is never named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from provnet.base.errors import IntegrityError, UsageError
from provnet.runs.bank import add
from provnet.runs.run import Run
from provnet.tools.membership.compute import audit, member_scores
from provnet.tools.membership.member import ADDED, COPY, MEMBER, STRANGER, UNKNOWN, Heldout, memberships
from tests import banked

MEMBERS, OTHERS = banked.vectors(60, seed=1), banked.vectors(400, seed=2)


@pytest.fixture(scope="module")
def run() -> Run:
    return banked.banked_run(MEMBERS)


@pytest.fixture(scope="module")
def heldout(run: Run) -> Heldout:
    found = audit(run, MEMBERS, OTHERS)
    return Heldout(found.decides, found.heldout, found.copies)


def test_bytes_settle_it(run: Run) -> None:
    (one,) = memberships(run, MEMBERS.images[9:10], [MEMBERS.samples.hex(9)])
    assert (one.verdict, one.agrees) == (MEMBER, "bytes")
    assert one.match is not None
    assert (one.match.sample_id, one.match.sha256, one.match.index) == ("train/9", MEMBERS.samples.hex(9), 9)
    assert one.match.label == f"class {9 % 4}"


def test_pixels_settle_it_where_the_file_is_another(run: Run) -> None:
    (one,) = memberships(run, MEMBERS.images[9:10], ["ab" * 32])
    assert (one.verdict, one.agrees) == (MEMBER, "pixels")
    assert one.match is not None and one.match.index == 9


def test_copies_are_told_from_strangers(run: Run, heldout: Heldout) -> None:
    near = MEMBERS.images[:20] + 0.01 * torch.randn(20, 6, generator=torch.Generator().manual_seed(0))
    copies = memberships(run, near, heldout=heldout)
    assert sum(one.verdict == COPY for one in copies) >= 18
    for row, one in enumerate(copies):
        if one.verdict == COPY:
            assert one.agrees == "content"
            assert one.p_value is not None and one.p_value <= 0.01
            assert one.match is not None and one.match.index == row
    strangers = memberships(run, banked.vectors(200, seed=5).images, heldout=heldout)
    assert sum(one.verdict == COPY for one in strangers) <= 8  # 1 in 100 by design
    assert all(one.match is None for one in strangers if one.verdict == STRANGER)
    assert any(one.verdict == STRANGER for one in strangers)


def test_p_values_are_counted(run: Run, heldout: Heldout) -> None:
    images = banked.vectors(30, seed=6).images
    values = member_scores(run, images).values[heldout.score]
    for value, one in zip(values, memberships(run, images, heldout=heldout), strict=True):
        assert one.p_value == pytest.approx((1 + (heldout.others >= value).sum()) / (1 + len(heldout.others)))
        assert one.missed == pytest.approx((1 + (heldout.copies <= value).sum()) / (1 + len(heldout.copies)))
        assert one.heldout == len(heldout.others)
        assert one.verdict == (COPY if one.p_value <= 0.01 else STRANGER if one.missed <= 0.05 else UNKNOWN)


@pytest.mark.parametrize(
    ("others", "copies", "words"),
    [(None, 0, "no held-out scores"), (0, 0, "no held-out scores"), (50, 9, "too few"), (400, 0, "audit the run")],
)
def test_without_enough_to_compare_with_nothing_is_claimed(
    run: Run, heldout: Heldout, others: int | None, copies: int, words: str
) -> None:
    few = None if others is None else replace(heldout, others=heldout.others[:others], copies=heldout.copies[:copies])
    (one,) = memberships(run, torch.zeros(1, 6), heldout=few)
    assert one.verdict == UNKNOWN
    assert words in one.why
    assert one.match is not None  # a candidate


def test_withheld_samples_are_never_named(run: Run, heldout: Heldout) -> None:
    withheld = np.arange(60) == 9
    hidden = replace(run, samples=replace(run.samples, withheld=withheld))
    (one,) = memberships(hidden, MEMBERS.images[9:10], [MEMBERS.samples.hex(9)], heldout=heldout)
    assert one.verdict != MEMBER
    assert one.match is None or one.match.index != 9


def test_what_was_added_after_training_is_no_member(run: Run) -> None:
    both = banked.vectors(65, seed=1)
    new = both.select(np.arange(60, 65))
    more = add(run, new)
    before, later = memberships(more, torch.cat([both.images[:1], new.images[:1]]))
    assert (before.verdict, later.verdict) == (MEMBER, ADDED)
    assert later.agrees == "pixels" and later.match is not None and later.match.sample_id == new.samples.sample_ids[0]
    assert "not trained on it" in later.why
    found = audit(more, both, OTHERS, distort=False)
    assert found.members == 60
    assert found.left_out["samples added after training, which are no members"] == 5


def test_nobody_is_called_a_stranger_where_some_that_were_trained_on_cannot_be_compared(
    run: Run, heldout: Heldout
) -> None:
    strangers = banked.vectors(40, seed=5).images
    verdicts = [one.verdict for one in memberships(run, strangers, heldout=heldout)]
    assert STRANGER in verdicts
    training = {**run.config.training, "subset": {"of": 90, "indexed": 60, "rest_content": "a hash"}}
    for changes in ({"erased": 3}, {"training": training}):
        found = memberships(replace(run, config=replace(run.config, **changes)), strangers, heldout=heldout)
        assert STRANGER not in {one.verdict for one in found}
        assert "not all that were trained on can be compared" in found[verdicts.index(STRANGER)].why


def test_equal_samples_are_counted() -> None:
    data = MEMBERS.select(np.array([0, 1, 2, 3]))
    twice = replace(
        data,
        images=torch.cat([data.images, data.images[:1]]),
        samples=replace(
            MEMBERS.select(np.array([0, 1, 2, 3, 4])).samples,
            **{
                name: np.concatenate([getattr(data.samples, name), getattr(data.samples, name)[:1]])
                for name in ("sha256", "pixel_sha256")
            },
        ),
    )
    (one,) = memberships(banked.banked_run(twice), data.images[:1])
    assert one.match is not None
    assert one.match.equal == 2
    assert one.match.index in (0, 4)


def test_heldout_scores_go_through_json(heldout: Heldout) -> None:
    back = Heldout.from_json(heldout.to_json())
    assert back.others == pytest.approx(heldout.others)
    assert back.copies == pytest.approx(heldout.copies)
    for bad in (
        {"score": "x"},
        {"score": 3, "others": [], "copies": []},
        {"score": "x", "others": ["a"], "copies": []},
    ):
        with pytest.raises(IntegrityError, match="finite numbers"):
            Heldout.from_json(bad)


def test_what_does_not_belong_together_is_refused(run: Run, heldout: Heldout) -> None:
    with pytest.raises(UsageError, match="2 hashes for 1 pictures"):
        memberships(run, torch.zeros(1, 6), ["ab" * 32, "cd" * 32])
    with pytest.raises(UsageError, match="audit it again"):
        memberships(run, torch.zeros(1, 6), heldout=replace(heldout, score="similarity"))

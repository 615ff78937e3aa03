"""The bank of a run: who is named after samples were withheld, restored, erased and added."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from provnet.answers.attributor import explain
from provnet.answers.evaluation import evaluate
from provnet.answers.explanation import Explanation
from provnet.api.estimator import _probabilities
from provnet.base.errors import UsageError
from provnet.data.dataset import ImageData
from provnet.data.modalities.decode import BYTES
from provnet.data.open import open_data
from provnet.heads.heads import ExemplarHead
from provnet.heads.keys import unit
from provnet.models.keys import features_of
from provnet.runs import bank
from provnet.runs.run import Run, read_run, write_run
from tests.banked import BASE, CLASSES, LAST, MORE, RUNS, banked_run, ids, pieces, vectors
from tests.counts import count, grows
from tests.data.made import noise, write_folder

KINDS = st.sampled_from(sorted(RUNS))


def head_of(run: Run) -> ExemplarHead:
    assert isinstance(run.network.index_head, ExemplarHead)
    return run.network.index_head


def brute(run: Run, images: Tensor, weights: str) -> Tensor:
    """(B, N) the weight of every sample, from the definition, in float64; 0 for those that may not be named."""
    head, labels = head_of(run), torch.tensor(run.samples.labels)
    with torch.inference_mode():
        out, features = run.network(images), features_of(run.network, images)
    keys = head.bank.unpacked()[head.rows].double()
    scores = head.scale.detach().double() * (unit(features).double() @ keys.t())
    scores[:, torch.tensor(run.samples.withheld)] = -torch.inf
    conditional = run.config.network.network == "class-conditional"
    if conditional:
        scores[labels.unsqueeze(0) != out.classes.unsqueeze(1)] = -torch.inf
    if weights == "plain" or conditional:
        return torch.softmax(scores, 1).nan_to_num(0.0)
    sums = torch.zeros(len(images), CLASSES, dtype=torch.float64).index_add_(1, labels, scores.exp())
    chances = sums if run.config.network.network == "single" else torch.softmax(out.logits.double(), 1)
    chances = chances / chances.sum(1, keepdim=True)
    return (scores.exp() / sums.clamp_min(1e-300)[:, labels]) * chances[:, labels]


@given(
    KINDS, st.sets(st.integers(0, 11), min_size=1, max_size=11), st.integers(1, 15), st.sampled_from(["plain", "joint"])
)
@settings(deadline=None, max_examples=count(40, 1000))
def test_withheld_samples_are_never_named_and_their_share_goes_to_the_others(
    kind: tuple[str, str], chosen: set[int], k: int, weights: str
) -> None:
    run = bank.withhold(RUNS[kind], ids(*chosen))
    queries = torch.cat([BASE.images, MORE.images])
    found, expected = explain(run, queries, k=k, weights=weights), brute(run, queries, weights)
    assert not np.isin(found.index, sorted(chosen)).any()
    real = torch.from_numpy(found.index) >= 0
    mine = expected.gather(1, torch.from_numpy(found.index).clamp(min=0)).where(real, 0.0)
    torch.testing.assert_close(torch.from_numpy(found.weight).double(), mine, rtol=2e-4, atol=1e-6)
    best = expected.topk(found.index.shape[1], 1).values
    torch.testing.assert_close(mine, best, rtol=1e-6, atol=1e-9)
    whole = explain(RUNS[kind], queries, k=1)
    if kind[0] != "single":  # a class branch does not look at keys
        assert (found.predicted == whole.predicted).all()
        assert (found.confidence == whole.confidence).all()
    assert not RUNS[kind].samples.withheld.any()  # the run given stays as it was


@given(KINDS, st.sets(st.integers(0, 4), min_size=1))
@settings(deadline=None, max_examples=count(20, 300))
def test_added_and_erased_again_gives_back_the_same(kind: tuple[str, str], chosen: set[int]) -> None:
    run, rows = RUNS[kind], sorted(chosen)
    more = bank.add(run, MORE.select(np.array(rows)))
    assert more.samples.sample_ids[12:] == tuple(f"arrays/train/{row}" for row in rows)
    assert more.samples.added.tolist() == [False] * 12 + [True] * len(rows)
    back = bank.erase(more, more.samples.sample_ids[12:])
    assert back.samples.fingerprint == run.samples.fingerprint
    assert back.config == replace(run.config, erased=len(rows))
    for name, value in run.network.state_dict().items():
        assert torch.equal(back.network.state_dict()[name], value), name
    assert np.array_equal(back.history, run.history)  # type: ignore[arg-type]
    same_explanations(explain(run, MORE.images, k=12), explain(back, MORE.images, k=12))


def same_explanations(one: Explanation, other: Explanation) -> None:
    for name in ("predicted", "confidence", "index", "weight", "support"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


STEPS = st.lists(
    st.tuples(st.sampled_from(["withhold", "restore", "erase", "add", "files"]), st.integers(0, 2**16)), max_size=12
)


@grows
@given(KINDS, STEPS)
@settings(deadline=None, max_examples=count(20, 2000))
def test_names_are_right_after_any_sequence_of_changes(
    tmp_path_factory: pytest.TempPathFactory, kind: tuple[str, str], steps: list[tuple[str, int]]
) -> None:
    run, pool = RUNS[kind], [*pieces(BASE), *pieces(MORE), *pieces(LAST)]
    names = {piece.samples.hex(0): piece.samples.sample_ids[0] for piece in pool[:12]}  # content -> id
    hidden: set[str] = set()
    for action, number in steps:
        piece = pool[number % len(pool)]
        key = piece.samples.hex(0)
        before = run
        try:
            if action == "add":
                run = bank.add(run, piece)
                names[key] = run.samples.sample_ids[-1]
            elif action == "files":
                folder = tmp_path_factory.mktemp("run")
                run = read_run(write_run(run, folder))
            else:
                run = getattr(bank, action)(run, [names.get(key, "nobody")])
                hidden = (hidden | {key}) if action == "withhold" else hidden - {key}
                if action == "erase":
                    del names[key]
        except UsageError:
            assert run is before
            known = key in names
            active = set(names) - hidden
            fits = known if action == "add" else not known or active == {key}
            assert fits, f"{action} was refused without a reason"
    check_names(run, pool, names, hidden)


def check_names(run: Run, pool: list[ImageData], names: dict[str, str], hidden: set[str]) -> None:
    table = run.samples
    assert {table.hex(i): name for i, name in enumerate(table.sample_ids)} == names
    assert {table.hex(i) for i in np.flatnonzero(table.withheld)} == hidden
    labels = {piece.samples.hex(0): piece.class_names[int(piece.samples.labels[0])] for piece in pool}
    images = torch.cat([piece.images for piece in pool])
    given = torch.cat([piece.labels for piece in pool])
    sizes = np.bincount(table.labels, minlength=CLASSES)
    asked = np.flatnonzero(sizes[given.numpy()] > 0)
    conditional = run.config.network.network == "class-conditional"
    found = explain(run, images[asked], k=20, classes=given[asked] if conditional else None)
    for place, one in zip(asked.tolist(), found, strict=True):
        key = pool[place].samples.hex(0)
        for item in one.exemplars:
            assert names[item.sha256] == item.sample_id == table.sample_ids[item.index]
            assert labels[item.sha256] == item.label
            assert item.sha256 not in hidden
        if key in names and key not in hidden:
            assert one.exemplars[0].sha256 == key  # a sample finds itself


def test_a_class_whose_samples_are_all_withheld_has_no_exemplars() -> None:
    run = RUNS["class-conditional", "fp32"]
    before = explain(run, BASE.images, k=3)
    number = int(np.bincount(before.predicted).argmax())
    members = [run.samples.sample_ids[i] for i in np.flatnonzero(run.samples.labels == number)]
    found = explain(bank.withhold(run, members), BASE.images, k=3)
    mine = found.predicted == number
    assert (found.predicted == before.predicted).all()
    assert (found.index[mine] == -1).all()
    assert (found.weight[mine] == 0).all()
    assert (found.index[~mine] == before.index[~mine]).all()
    assert [one.exemplars for one in found[mine]] == [()] * int(mine.sum())
    gone = explain(bank.erase(run, members), BASE.images, k=3)
    assert not (gone.predicted == number).any()  # a class without samples is never predicted


def test_an_erased_class_may_come_back_and_one_never_trained_may_not() -> None:
    run = RUNS["single", "fp32"]
    emptied = bank.erase(run, ids(0, 4, 8))
    assert bank.add(emptied, MORE.select(np.array([0]))).samples.labels[-1] == 0
    three = vectors(9, seed=5, classes=3)
    with pytest.raises(UsageError, match='"class 3" had no samples in training'):
        bank.add(banked_run(three), MORE)


def test_predictions_of_a_single_branch_come_from_the_same_samples_as_its_explanations() -> None:
    run = bank.withhold(RUNS["single", "fp32"], ids(0, 4, 8))
    found = explain(run, BASE.images)
    chances = _probabilities(run, BASE.images)
    assert (chances.argmax(1) == found.predicted).all()
    assert not (found.predicted == 0).any()
    np.testing.assert_allclose(chances.max(1), found.confidence, rtol=1e-5)


def test_evaluation_leaves_withheld_samples_out() -> None:
    run = bank.withhold(RUNS["class-independent", "fp32"], ids(3, 4))
    found = evaluate(run, train=BASE)
    assert (found.index_accuracy.value, found.index_accuracy.n) == (1.0, 10)


def test_the_losses_of_an_added_sample_are_minus_one_and_an_erased_one_has_none(tmp_path: Path) -> None:
    run = bank.erase(bank.add(RUNS["single", "int8"], MORE), ids(2))
    again = read_run(write_run(run, tmp_path))
    old = RUNS["single", "int8"].history
    assert old is not None and again.history is not None
    assert np.array_equal(again.history[:, :11], np.delete(old, 2, axis=1))
    assert (again.history[:, 11:] == -1).all()


def test_known_bytes_decoded_by_other_rules_are_refused_with_the_options_of_training(tmp_path: Path) -> None:
    """One file would be two samples."""
    for i, name in enumerate("abc"):
        see_through = np.dstack([noise((6, 6, 3), i), np.full((6, 6), 90, np.uint8)])
        write_folder(tmp_path, {f"{name}/{i}.png": see_through})
    run = banked_run(open_data(tmp_path), scale=BYTES)
    write_folder(tmp_path, {"a/new.png": noise((6, 6, 3), 9)})
    words = r"\(3 of 4 samples\); open them .* background='white' instead of .*'black'"
    for skip in (False, True):
        with pytest.raises(UsageError, match=words):
            bank.add(run, open_data(tmp_path, background="black"), skip_known=skip)
    assert len(bank.add(run, open_data(tmp_path), skip_known=True).samples) == 4

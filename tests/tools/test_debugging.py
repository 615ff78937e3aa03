"""Debugging a run: planted wrong labels are found and corrected, for every network, without what may not be named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import provnet
from provnet.answers.metrics import auc, average_precision
from provnet.base.errors import UsageError
from provnet.heads.heads import ExemplarHead
from provnet.runs.bank import add, withhold
from provnet.tools.debug.compute import DROP, debug
from provnet.training.config import train_config
from tests import digits as small
from tests.fitting import fit
from tests.tools.planted import FLIPPED, digits, found, planted_run


def test_planted_wrong_labels_are_found() -> None:
    data, truth = digits()
    wrong = data.samples.labels != truth
    assert wrong.sum() == FLIPPED
    assert auc(wrong, found().mislabels.odds).value > 0.97  # type: ignore[operator]
    assert average_precision(wrong, found().mislabels.odds) > 0.85


def test_the_score_reads_as_a_probability() -> None:
    data, truth = digits()
    wrong, score = data.samples.labels != truth, found().mislabels.score
    assert ((score >= 0) & (score <= 1)).all()
    assert FLIPPED / 2 < score.sum() < 2 * FLIPPED
    assert wrong[score >= 0.8].mean() > 0.7
    assert wrong[score < 0.1].mean() < 0.05


def test_suggested_labels_are_mostly_right_and_never_the_given_one() -> None:
    data, truth = digits()
    result = found()
    hit = result.flagged() & (data.samples.labels != truth)
    assert hit.sum() > FLIPPED / 2
    assert (result.mislabels.suggested[hit] == truth[hit]).mean() > 0.8
    assert (result.mislabels.suggested != data.samples.labels).all()
    assert (result.suggested()[~result.flagged()] == data.samples.labels[~result.flagged()]).all()


def test_contributions_add_up_to_the_score() -> None:
    wrong = found().mislabels
    odds = wrong.base + sum(wrong.contributions.values())
    assert np.allclose(1 / (1 + np.exp(-odds)), wrong.score)
    assert set(wrong.contributions) == {"course", "neighbours", "margin", "equal"}


def test_witnesses_are_other_samples_with_the_suggested_label() -> None:
    result = found()
    for row in result.suspects()[:10].tolist():
        named = result.witnesses(row)
        assert all(other != row for other, _ in named)
        assert all(result.samples.labels[other] == result.mislabels.suggested[row] for other, _ in named)
        assert 0 <= sum(share for _, share in named) <= 1 + 1e-9


def test_a_suspect_is_not_typical() -> None:
    result = found()
    assert result.anomalies.typicality[result.mislabels.score > 0.9].max() < 0.5
    for label in range(10):
        mine = result.anomalies.typicality[result.samples.labels == label]
        assert sorted(mine.tolist()) == pytest.approx(np.linspace(0, 1, len(mine)))


def test_a_run_that_learned_its_labels_can_tell_how_many_are_wrong() -> None:
    assert found().mislabels.cannot_tell == ""
    assert found().expected == pytest.approx(found().mislabels.score.sum())


def test_a_run_that_learned_nothing_cannot_tell() -> None:
    data = small.training()
    result = debug(fit(data, config=train_config("fast", epochs=12, batch_size=16)), data)  # memorised
    assert result.expected is None
    assert "cannot tell how many are wrong" in repr(result)
    assert "the signals have a power of" in result.mislabels.cannot_tell
    assert set(result.mislabels.off) <= {"course", "neighbours", "margin"}


@pytest.mark.parametrize("strong", [True, False])
def test_equal_pictures_under_two_labels_come_first_and_are_not_all_kept(strong: bool) -> None:
    data, truth = digits()
    rows = np.append(np.arange(len(data)), [5, 5])  # once more under its label, and under another
    labels = np.append(data.samples.labels, [truth[5], (truth[5] + 1) % 10])
    labels[[5, 6]] = truth[[5, 6]]
    pair = np.array([6, len(rows)])  # and a pair of which nothing says which is right
    rows, labels = np.append(rows, 6), np.append(labels, (truth[6] + 1) % 10)
    more = provnet.open_data(data.images[torch.tensor(rows)].numpy(), labels)
    config = train_config("robust", epochs=8, batch_size=32) if strong else train_config("fast", epochs=1)
    result = debug(fit(more, network="class-independent", head="exemplar", config=config), more)
    wrong = len(data) + 1
    assert result.certainly_wrong == 2
    assert {wrong, *pair.tolist()} >= set(result.ranking()[:2].tolist())
    assert wrong in result.ranking()[:3] and wrong in result.suspects(0.999)
    assert result.mislabels.score[pair].sum() > 0.999 and result.mislabels.score[wrong] > 0.9
    advised = result.advised()
    assert (result.expected is not None) == strong
    for row in (5, len(data), wrong):
        copies = result.duplicates.members(int(result.duplicates.group[row]))
        assert not set(copies.tolist()) & {other for other, _ in result.witnesses(row)}
    if strong:
        assert advised[[5, len(data), wrong]].tolist() == [truth[5]] * 3
        assert (advised[pair] != labels[pair]).any()
    else:  # nothing but the equal pictures is certain, whatever is flagged
        assert set(np.flatnonzero(advised != labels).tolist()) == {5, len(data), wrong, *pair.tolist()}
        assert (advised[advised != labels] == DROP).all() and (result.advised(1e-6) == advised).all()
        assert (result.suggested(1e-6) == labels).all()


@pytest.mark.parametrize("network", small.NETWORKS)
def test_every_network_with_an_output_layer(network: str) -> None:
    run, data = small.trained(network), small.training()
    result = debug(run, data)
    check_whole(result.columns(), len(data))


@pytest.mark.parametrize("network", small.NETWORKS)
def test_every_network_with_keys(network: str) -> None:
    data = small.training()
    run = fit(data, network=network, head="exemplar", config=train_config("fast", epochs=2, batch_size=16))
    result = debug(run, data)
    check_whole(result.columns(), len(data))
    assert np.allclose(result.signals.entropy, entropy_the_long_way(run.network, data), atol=1e-4)


def check_whole(columns: object, n: int) -> None:
    assert isinstance(columns, dict)
    for name, values in columns.items():
        assert len(values) == n, name
        if isinstance(values, np.ndarray) and values.dtype.kind == "f":
            assert np.isfinite(values).all(), name
    for name in ("mislabel", "anomaly", "typicality", "agreement", "index_entropy"):
        assert ((columns[name] >= 0) & (columns[name] <= 1 + 1e-9)).all(), name


def entropy_the_long_way(net, data) -> np.ndarray:  # type: ignore[no-untyped-def]
    """From all scores at once, in float64."""
    assert isinstance(net.index_head, ExemplarHead)
    with torch.inference_mode():
        output = net.eval()(data.images, data.labels)
        scores = net.index_head(output.index_features, output.classes).double()
        share = torch.softmax(scores, 1)
        count = torch.isfinite(scores).sum(1).clamp(min=2)
        return (-(share * share.clamp_min(1e-300).log()).sum(1) / count.double().log()).numpy()


def test_entropy_of_a_plain_head_counts_only_its_class() -> None:
    run, data = small.trained("class-conditional"), small.training()
    with torch.inference_mode():
        output = run.network.eval()(data.images, data.labels)
        scores = output.index_scores.double()
        share = torch.softmax(scores, 1)
        expected = -(share * share.clamp_min(1e-300).log()).sum(1) / torch.isfinite(scores).sum(1).double().log()
        assert torch.allclose(run.network.scores(output).entropy().double(), expected, atol=1e-4)


def test_withheld_samples_are_neither_looked_at_nor_named() -> None:
    data, _ = digits()
    hidden = [int(row) for row in found().suspects()[:3]]
    run = withhold(planted_run(), [data.samples.sample_ids[row] for row in hidden])
    result = debug(run, data)
    assert result.withheld == 3
    assert len(result) == len(data) - 3
    assert not set(result.samples.sample_ids) & {data.samples.sample_ids[row] for row in hidden}
    assert not set(result.index.tolist()) & set(hidden)


def test_samples_added_later_have_no_course() -> None:
    data = small.training()
    first, later = data.select(np.arange(50)), data.select(np.arange(50, 56))
    run = fit(first, network="class-independent", head="exemplar", config=train_config("fast", epochs=3, batch_size=16))
    run = add(run, later)
    table = run.samples
    both = replace(data.select(np.arange(56)), samples=table)
    result = debug(run, both)
    assert (result.mislabels.contributions["course"][50:] == 0).all()
    assert (result.mislabels.contributions["course"][:50] != 0).any()
    check_whole(result.columns(), 56)


def test_a_run_without_history_is_judged_by_its_end() -> None:
    data = small.training()
    result = debug(replace(small.trained(), history=None), data)
    assert (result.mislabels.contributions["course"] == 0).all()


def test_some_samples_may_be_missing() -> None:
    data, rows = small.training(), np.arange(5, 40)
    result = debug(small.trained(), data.select(rows), index=rows)
    assert result.index.tolist() == rows.tolist()
    assert result.samples.sample_ids == tuple(data.samples.sample_ids[i] for i in rows)


def test_other_data_are_refused() -> None:
    with pytest.raises(UsageError, match="not the ones this run was trained on"):
        debug(small.trained(), small.unseen())
    with pytest.raises(UsageError, match="index must name"):
        debug(small.trained(), small.training(), index=np.arange(len(small.training())) + 5)

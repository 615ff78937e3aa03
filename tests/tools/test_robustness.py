"""Robustness: what is counted, one distorted test set for all, and the comparison with an isolated CNN."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

import provnet
from provnet.base.errors import UsageError
from provnet.runs.bank import withhold
from provnet.tools.robustness.compute import (
    CONDITIONS,
    FIGURES,
    _most_named,
    distort,
    from_isolated,
    is_isolated,
    measure,
    paired_difference,
    sample_keys_of,
)
from provnet.tools.robustness.page import (
    ConditionRow,
    Gain,
    NetworkColumn,
    RobustnessReport,
    Share,
    contact_sheet,
    curves,
    robustness_html,
)

from ..banked import banked_run, vectors
from ..digits import trained, training, unseen
from ..report.reading import Page
from .made import isolated, keyed

FEW = ["occlusion-6", "blur-2"]


def test_the_figures_are_those_of_explain_on_the_distorted_pictures() -> None:
    run, test = trained("single"), unseen()
    rows = {row.condition: row for row in measure(run, test, conditions=FEW, seed=5).rows}
    clean = provnet.explain(run, test.images, k=5)
    for name in ("clean", *FEW):
        copies = distort(test.images, sample_keys_of(test), name, seed=5)
        found = provnet.explain(run, copies, k=5)
        truth, figures = test.samples.labels, rows[name].figures
        assert figures["top_1"].value == (found.label[:, 0] == truth).mean()
        assert figures["top_5"].value == (found.label == truth[:, None]).any(1).mean()
        assert figures["class_top_1"].value == (found.predicted == truth).mean()
        assert figures["same_exemplar"].value == (found.index[:, 0] == clean.index[:, 0]).mean()
        assert figures["same_exemplar_in_5"].value == (found.index == clean.index[:, :1]).any(1).mean()
        assert figures["same_exemplar_class"].value == (found.label[:, 0] == clean.label[:, 0]).mean()
        often = sorted(Counter(found.index[:, 0].tolist()).values())[-10:]
        assert figures["most_named"].value == pytest.approx(sum(often) / len(test))
        assert figures["supported"].value == found.supported.mean()
        assert {rate.n for rate in figures.values()} == {len(test)}
        assert set(figures) == set(FIGURES) - {"unnamed"}  # nothing is withheld
        assert rows[name].right.tolist() == (found.label[:, 0] == truth).tolist()
    assert rows["clean"].figures["same_exemplar"].value == 1
    assert rows["blur-2"].figures["same_exemplar"].value < 1


def test_a_few_samples_named_for_everything_are_told_and_no_sample_is_none_of_them() -> None:
    rows = np.arange(40)
    assert _most_named(rows).sum() == 10
    assert _most_named(np.where(rows < 30, rows % 3, rows)).sum() == 30 + 7
    assert _most_named(np.full(40, -1)).sum() == 0
    mostly_none = np.where(rows < 25, -1, rows % 12)
    assert _most_named(mostly_none).sum() == sum(sorted(Counter(mostly_none[25:].tolist()).values())[-10:])


def test_a_class_branch_is_asked_for_classes_and_a_cnn_names_nothing() -> None:
    both = [measure(run, unseen(), conditions=[]) for run in (trained("class-independent"), isolated())]
    for found, run in zip(both, (trained("class-independent"), isolated()), strict=True):
        (row,) = found.rows
        logits = run.network(unseen().images).logits
        best = logits.topk(5, dim=1).indices.numpy() == unseen().samples.labels[:, None]
        assert row.figures["top_1"].value == best[:, 0].mean()
        assert row.figures["top_5"].value == best.any(1).mean()
    assert "index_top_1" in both[0].rows[0].figures
    assert set(both[1].rows[0].figures) == {"top_1", "top_5", "class_top_1", "class_top_5"}
    assert [found.isolated for found in both] == [False, True]


def test_only_an_index_branch_that_was_not_trained_makes_a_cnn_isolated() -> None:
    assert is_isolated(isolated())
    assert not any(is_isolated(trained(network)) for network in ("single", "class-conditional"))


def test_the_index_loss_of_weight_zero_does_not_reach_the_backbone() -> None:
    conditional = isolated().network
    independent = isolated(network="class-independent").network
    for (name, one), other in zip(
        conditional.backbone.named_parameters(), independent.backbone.parameters(), strict=True
    ):
        assert one.shape == other.shape, name
    head = independent.index_head.linear.weight  # type: ignore[union-attr]
    assert float(head.detach().std()) < 0.0101  # as it began, or less: weight decay


def test_order_and_choice_of_test_samples_do_not_change_an_answer() -> None:
    run, test = trained("single"), unseen()
    order = np.random.default_rng(1).permutation(len(test))[:30]
    whole = measure(run, test, conditions=["noise-0.2"])
    part = measure(run, test.select(order), conditions=["noise-0.2"])
    assert [row.right.tolist() for row in part.rows] == [row.right[order].tolist() for row in whole.rows]


def test_attacks_are_extra_rows_on_some_samples_against_each_network() -> None:
    run = trained("class-independent")
    found = measure(run, unseen(), conditions=[], attacks=["fgsm", "pgd"], epsilon=0.3, attacked=20)
    clean, *attacked = found.rows
    assert [(row.condition, row.fixed, row.figures["top_1"].n) for row in attacked] == [
        ("fgsm", False, 20),
        ("pgd", False, 20),
    ]
    assert attacked[1].figures["top_1"].value < clean.figures["top_1"].value
    assert "ε 0.3" in attacked[0].words
    assert all(parameter.grad is None for parameter in run.network.parameters())


def test_withheld_samples_are_never_named() -> None:
    run = keyed()
    first = provnet.explain(run, unseen().images, k=1).index[:, 0]
    gone = withhold(run, [run.samples.sample_ids[i] for i in np.unique(first)[:8]])
    found = measure(gone, unseen(), conditions=["blur-1"], attacks=["fgsm"], attacked=10)
    assert found.rows[0].figures["same_exemplar"].value == 1
    assert found.rows[0].figures["top_1"].n == len(unseen())


def test_against_compares_the_same_samples_and_widens_for_many() -> None:
    measured = [
        measure(run, unseen(), name=name, conditions=FEW)
        for name, run in (("a", trained("single")), ("cnn", isolated()), ("b", trained("single", 0.5)))
    ]
    together, alone = from_isolated(measured), from_isolated(measured, together=False)
    assert set(together) == {(name, condition) for name in "ab" for condition in ("clean", *FEW)}
    for key, gain in together.items():
        one = next(found for found in measured if found.name == key[0])
        ours, theirs = (
            next(row.right for row in found.rows if row.condition == key[1]) for found in (one, measured[1])
        )
        assert gain.value == pytest.approx(ours.mean() - theirs.mean())
        assert gain.high - gain.low > alone[key].high - alone[key].low
    assert from_isolated([measured[0]]) == {}
    assert json.loads(json.dumps([one.to_json() for one in measured]))[1]["isolated"] is True


def test_the_paired_interval_covers_the_truth_as_often_as_it_says() -> None:
    draw = np.random.default_rng(0)
    covered = 0
    for _ in range(1000):
        kind = draw.choice(4, 200, p=[0.7, 0.12, 0.06, 0.12])  # both right, only first, only second, none
        found = paired_difference(kind <= 1, (kind == 0) | (kind == 2))
        covered += found.low <= 0.06 <= found.high
    assert 930 <= covered <= 970


def test_equal_answers_are_not_better_and_wrong_shapes_are_refused() -> None:
    same = paired_difference(np.ones(50, bool), np.ones(50, bool))
    assert (same.value, same.better, same.worse) == (0, False, False)
    assert same.low < 0 < same.high
    better = paired_difference(np.ones(50, bool), np.zeros(50, bool))
    assert better.better
    assert better.high == 1
    for first, second in ((np.ones(2, bool), np.ones(3, bool)), (np.ones(0, bool), np.ones(0, bool))):
        with pytest.raises(UsageError, match="two arrays"):
            paired_difference(first, second)
    with pytest.raises(UsageError, match="comparisons"):
        paired_difference(np.ones(2, bool), np.ones(2, bool), comparisons=0)


def test_what_cannot_be_measured_is_refused() -> None:
    with pytest.raises(UsageError, match="takes vectors of 6 values"):
        measure(banked_run(vectors(12, 0)), vectors(4, 1))
    with pytest.raises(UsageError, match="no test samples"):
        measure(trained(), unseen().select(np.arange(0)))
    with pytest.raises(UsageError, match="unknown condition"):
        measure(trained(), unseen(), conditions=["fog"])
    with pytest.raises(UsageError, match="attacked must be 1"):
        measure(trained(), unseen(), conditions=[], attacks=["fgsm"], attacked=0)
    small = provnet.open_data(torch.zeros(4, 9, 9, dtype=torch.uint8).numpy(), np.array([0, 1, 0, 1]))
    with pytest.raises(UsageError, match=r"shape \(1, 28, 28\)"):
        measure(trained(), small)


def test_floats_use_the_range_of_the_test_data() -> None:
    data = training()
    floats = provnet.open_data(data.images.float().numpy() / 25 - 3, data.samples.labels)
    run = replace(trained("single"), samples=replace(trained("single").samples, class_names=floats.class_names))
    found = measure(run, floats, conditions=["salt-pepper-0.2"])
    assert [row.figures["top_1"].n for row in found.rows] == [len(data)] * 2


def report(alphas: int = 3) -> RobustnessReport:
    networks = [NetworkColumn("cnn", "isolated", None, isolated=True)]
    networks += [NetworkColumn(f"<a{i}>", "single", i / 2) for i in range(alphas)]
    shares = [Share(0.5 + 0.1 * i, 100, 0.4, 0.9) for i in range(len(networks))]
    gains = [None, *(Gain(0.1 * i - 0.05, 0.1 * i - 0.1, 0.1 * i) for i in range(alphas))]
    rows = [
        ConditionRow(
            name,
            CONDITIONS[name].words,
            True,
            {"top_1": shares, "top_5": shares, "same_exemplar": [None, *shares[1:]]},
            gains,
            [np.full((28, 28), 90, np.uint8)] * 4,
        )
        for name in ("clean", "blur-1")
    ]
    rows.append(ConditionRow("fgsm", "FGSM", False, {"top_1": shares, "top_5": shares}, gains))
    return RobustnessReport("digits", 100, networks, rows, [("Seed", "0")], classes=10)


def test_the_page_is_one_file_without_script_and_says_who_is_better() -> None:
    source = robustness_html(report())
    page = Page(source)
    assert page.unbalanced == page.open == []
    assert "script" not in {tag for tag, _ in page.elements}
    assert "://" not in source
    assert "<a1>" not in source
    assert "Gaussian blur, σ 1 : yes, best <a2>" in page.words.replace(" :", " :").replace("σ 1:", "σ 1 :")
    assert "FGSM : yes" not in page.words.replace("FGSM:", "FGSM :")
    assert len(page.all("svg", "chart")) == 3
    assert len(page.all("td", "none")) > 0


def test_the_bar_of_top_5_is_the_number_of_classes() -> None:
    assert "five of 10 classes" in robustness_html(report())
    assert "five of 1,000 classes" in robustness_html(replace(report(), classes=1000))
    few = robustness_html(replace(report(), classes=4))
    assert "of 4 classes the right one is always among five" in few
    one = report()
    alone = replace(one, networks=[replace(net, alpha=0.5, isolated=False) for net in one.networks], classes=4)
    assert "classes" not in robustness_html(alone)  # single branches: five exemplars, whatever the classes


def test_curves_need_three_mixings() -> None:
    assert curves(report(2)) == []
    assert [curve.words for curve in curves(report())] == ["no distortion", "Gaussian blur, σ 1", "FGSM"]
    assert "no network" not in robustness_html(report(1))


def test_the_contact_sheet_has_a_row_a_condition() -> None:
    sheet = contact_sheet(report().rows)
    assert sheet.size[1] > sheet.size[0] / 6
    assert sheet.getpixel((400, 60)) == (90, 90, 90)

"""The small parts that pages and figures rest on: distances of pictures, maps, losses, recipes, rows of tables."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from provnet_paper.embeddings import at_borders, densest, purity
from provnet_paper.instance import knn_hits, probe_hits
from provnet_paper.measures import Known, beyond, half_width, of_paper, widen_interval
from provnet_paper.networks import changes_at_scale, flat, missing, recipe, recipe_of
from provnet_paper.page import slug, table
from provnet_paper.records import SCALES, Scale
from provnet_paper.samples import by_chance, named_rows, nearer, same_group, spread_rows
from provnet_paper.sharing import epochs_to, rising, upward


def test_likeness_by_pixels_is_the_same_one_by_one() -> None:
    chance = np.random.default_rng(0)
    images = torch.from_numpy(chance.integers(0, 256, (1_100, 1, 3, 3), np.uint8))  # more than are held at a time
    groups = chance.integers(0, 4, len(images))
    flat_ = images.flatten(1).numpy().astype(int)
    for row in chance.integers(0, len(images), 20).tolist():
        away = ((flat_ - flat_[row]) ** 2).sum(1)
        away[row] = away.max() + 1
        assert same_group(images, groups)[row] in set(groups[away == away.min()] == groups[row])
    others = torch.from_numpy(chance.integers(0, 256, (2, 1_100, 1, 3, 3), np.uint8))
    away = ((images - 0.0 - others) ** 2).flatten(2).sum(2)
    assert nearer(images, *others).tolist() == (away[0] < away[1]).tolist()
    drawn = [groups[one] == groups[other] for one, other in itertools.permutations(range(60), 2)]
    assert by_chance(groups[:60]) == pytest.approx(np.mean(drawn))
    assert named_rows(np.array([3, 5, -1])).tolist() == [3, 5, 5]
    assert spread_rows(3).tolist() == [0, 1, 2] and len(spread_rows(60_000)) == 10_000


def test_what_a_map_tells_is_the_same_one_by_one() -> None:
    chance = np.random.default_rng(0)
    places, labels = chance.normal(size=(1_200, 2)), chance.integers(0, 10, 1_200)
    assert purity(places + 100 * labels[:, None], labels) == 1
    away = np.linalg.norm(places[:, None] - places[None], axis=2)
    near = away.argsort(axis=1)[:, 1:11]
    assert purity(places, labels) == pytest.approx(float((labels[near] == labels[:, None]).mean()))
    apart = np.repeat([[0.0, 0.0], [100.0, 0.0]], 20, axis=0) + chance.normal(0, 1, (40, 2))
    two = np.repeat([0, 1], 20)
    assert at_borders(apart, two, np.array([[0.0, 0.0], [50.0, 0.0]]))[1] == 2
    assert at_borders(apart, two, np.array([[0.0, 0.0]]))[0] == 0
    assert at_borders(chance.normal(size=(40, 2)), two, np.zeros((1, 2)))[0] == 1
    assert densest(np.array([[0.0, 0.0], [0.0, 0.1], [9.0, 9.0], [5.0, 0.0]]), among=1).tolist() == [0.0, 0.0]


def test_a_loss_that_has_settled_is_no_more_restless_than_one_that_falls() -> None:
    falling = [9 - 0.06 * epoch for epoch in range(150)]
    settled = [9 - 0.06 * epoch + (0.0601 if epoch > 75 and epoch % 2 else 0.0) for epoch in range(150)]
    swinging = [9 - 0.06 * epoch + epoch % 2 for epoch in range(150)]
    assert upward(falling) == 0 and upward(settled) < 0.01 and upward(swinging) > 0.4
    assert upward([]) == upward([1.0]) == upward([1.0, 1.0]) == 0
    assert upward([4.0, 3.0, 2.0, 2.5, 1.0]) == 0.125 and rising([4.0, 3.0, 2.0, 2.5, 1.0]) == 0.25
    assert (
        epochs_to([{"epoch": 1, "index": 0.2}, {"epoch": 5, "index": 0.95}, {"epoch": 9, "index": 1.0}], "index") == 5
    )


def test_probes_find_classes_that_lie_apart() -> None:
    points, labels = torch.tensor([[0.0], [0.1], [5.0], [5.1]]), torch.tensor([0, 0, 1, 1])
    assert probe_hits(points, labels, points, labels, 2).all()
    hits = knn_hits(torch.eye(2), torch.tensor([3, 4]), torch.tensor([[0.9, 0.1], [0.9, 0.1]]), torch.tensor([3, 4]))
    assert hits.tolist() == [True, False]


def test_intervals_are_those_that_are_printed() -> None:
    cases = ((0.9918, 10_000), 0.99), ((0.95, 10_000), 0.9), ((0.0, 10_000), 0.5), ((3.0, 0), 5)
    assert [beyond(Known(one), bar) for one, bar in cases] == [0, 1, -1, -1] and beyond(None, 0.5) is None
    assert half_width(0.9908, 10_000) == pytest.approx(0.00188, abs=1e-5)
    wide = [widen_interval(Known((0.66, 0), area=(0.517, 0.778)), count).area or (0, 0) for count in (1, 2, 10, 100)]
    assert wide[0] == pytest.approx((0.517, 0.778))
    assert all(a[0] > b[0] and a[1] < b[1] for a, b in itertools.pairwise(wide))
    paper = of_paper("sharing", "mnist/small-4", "index_accuracy")
    assert paper is not None and paper.figure == (0.919, 60_000)
    several = Known((0.755, 100), each=(0.75, 0.76))
    assert several.spread.startswith("75.50 ± 0.71 (") and Known((23_050_000.0, 0)).spread == "23.05 M"


def test_recipes_and_data_are_those_of_the_scale() -> None:
    assert recipe_of("fashion-mnist", "single-0").changes == {"augment": "photos", "epochs": 40}
    assert recipe("mnist", "paper", {}, SCALES["full"])["epochs"] == 80
    assert changes_at_scale({"epochs": 40}, Scale("tiny", epochs=1)) == {"epochs": 1}
    assert missing("embedded", None) is None and (missing("cifar100", "/nowhere") or "").startswith(
        "cifar100 is not in"
    )
    found = flat({"a": {"value": 0.5, "n": 2}, "b": {"noise": {"value": None, "n": 0}}, "index_ceiling": 1.0})
    assert found == {"a": (0.5, 2), "index_ceiling": (1.0, 0)}
    assert table(("a", "b", "c"), [("x", "", "1")]) == ["| a | c |", "|---|---:|", "| x | 1 |"]
    assert slug("Table 2: class, at 10 to 100 %") == "table-2-class-at-10-to-100-"

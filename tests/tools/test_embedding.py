"""The map: features, places, groups inside classes, what is named for a sample."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch

import provnet
from provnet.base.errors import DataError, NonFiniteError, UsageError
from provnet.base.progress import listening
from provnet.runs.bank import withhold
from provnet.tools.map import compute as embedding
from provnet.tools.map.compute import (
    clusters_within,
    embed,
    engine_for,
    index_features,
    others_named,
    principal,
    sample_map,
)

from ..digits import trained, training, unseen
from .made import keyed


def blobs(n: int = 60, groups: int = 3, width: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Points around far-apart centres, and which one each belongs to."""
    draw = np.random.default_rng(0)
    group = np.arange(n) % groups
    points = draw.normal(size=(groups, width))[group] * 20 + draw.normal(size=(n, width))
    return points.astype(np.float32), group


@pytest.mark.parametrize("network", ["single", "class-conditional"])
def test_features_are_the_last_hidden_layer_whatever_the_batch(network: str) -> None:
    run, images = trained(network), training().images
    found = index_features(run, images, batch_size=7)
    with torch.inference_mode():
        expected = run.network(images).index_features.numpy()
    assert found.dtype == np.float32
    assert np.allclose(found, expected, atol=1e-4)


def test_features_of_keys_have_length_one() -> None:
    found = index_features(keyed(), training().images)
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)


def test_features_that_are_not_finite_are_refused() -> None:
    run = trained("single")
    images = training().images.float()
    images[3, 0, 0, 0] = torch.nan
    with pytest.raises(NonFiniteError):
        index_features(run, images)


def test_near_in_space_is_near_on_the_map_and_a_seed_repeats_it() -> None:
    points, group = blobs()
    one, again = (embed(points, perplexity=8, seed=1, engine="scikit-learn", threads=1) for _ in range(2))
    assert np.array_equal(one.xy, again.xy)
    assert one.xy.dtype == np.float32
    assert one.engine.startswith("scikit-learn ")
    away = np.linalg.norm(one.xy[:, None] - one.xy[None], axis=2)
    np.fill_diagonal(away, np.inf)
    assert (group[away.argmin(1)] == group).all()


def test_open_tsne_is_used_where_it_is_and_tells_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []

    class TSNE:
        def __init__(self, **settings: object) -> None:
            self.settings = settings

        def fit(self, inputs: np.ndarray) -> np.ndarray:
            callback = self.settings["callbacks"]
            assert callable(callback)
            for iteration in (25, 250, 25, 500):  # two phases
                callback(iteration, 1.0, None)
            return inputs[:, :2]

    module = ModuleType("openTSNE")
    module.__spec__ = SimpleNamespace(name="openTSNE")  # type: ignore[assignment]
    module.TSNE, module.__version__ = TSNE, "0"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "openTSNE", module)
    assert engine_for("auto") == "openTSNE"
    found = embed(blobs()[0], report=lambda done, words: told.append(done))
    assert found.engine == "openTSNE 0"
    assert told == [25, 250, 275, 750]
    assert told[-1] == embedding.STEPS


def test_an_engine_that_is_missing_or_unknown_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedding, "_opentsne", lambda: None)
    assert engine_for("auto") == "scikit-learn"
    with pytest.raises(UsageError, match=r"pip install .\.\[maps\]"):
        engine_for("openTSNE")
    with pytest.raises(UsageError, match="unknown engine"):
        engine_for("umap")


@pytest.mark.parametrize(
    ("n", "perplexity", "words"), [(4, 30.0, "5 samples"), (9, 0.0, "perplexity"), (9, float("nan"), "perplexity")]
)
def test_maps_that_cannot_be_made_are_refused(n: int, perplexity: float, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        embed(blobs(n)[0], perplexity=perplexity, engine="scikit-learn")


def test_samples_that_are_all_alike_have_no_map() -> None:
    alike = np.full((10, 4), 0.3, np.float32)
    alike[3] = np.nextafter(alike[3], 1)  # rounding is no difference
    with pytest.raises(DataError, match="the features of all 10 are equal"):
        embed(alike, engine="scikit-learn")


@pytest.mark.parametrize(("n", "used"), [(31, 10.0), (200, 30.0)])
def test_the_perplexity_that_few_samples_allow_is_told(n: int, used: float) -> None:
    assert embed(blobs(n)[0], perplexity=30.0, engine="scikit-learn").perplexity == used


def test_principal_components_keep_distances_and_order_by_spread() -> None:
    points, _ = blobs(40, 4, 6)
    out = principal(points, 6)
    factor = np.linalg.norm(points[0] - points[1]) / np.linalg.norm(out[0] - out[1])
    assert np.linalg.norm(points[3] - points[9]) == pytest.approx(factor * np.linalg.norm(out[3] - out[9]), rel=1e-4)
    assert (np.diff(out.std(0)) <= 1e-6).all()
    assert out[:, 0].std() == pytest.approx(1, rel=1e-4)
    assert np.array_equal(principal(points, 2), out[:, :2])


def test_groups_lie_inside_classes_and_come_with_their_nearest() -> None:
    points, group = blobs(90, 6)
    labels = (group % 2).astype(np.int64)  # each class holds three blobs
    found = clusters_within(points, labels, 3)
    assert [(one.label, one.number) for one in found] == [(label, number) for label in (0, 1) for number in range(3)]
    assert sorted(np.concatenate([one.members for one in found]).tolist()) == list(range(90))
    for one in found:
        assert set(labels[one.members]) == {one.label}
        assert len(set(group[one.members])) == 1
        centre = points[one.members].mean(0)
        away = np.linalg.norm(points[one.members] - centre, axis=1)
        assert one.nearest.tolist() == one.members[np.argsort(away)[:4]].tolist()


def test_small_classes_have_fewer_groups() -> None:
    points = np.array([[0.0], [0.0], [0.0], [7.0], [1.0]], dtype=np.float32)
    found = clusters_within(points, np.array([0, 0, 0, 0, 1]), 5)
    assert [(one.label, len(one.members), len(one.nearest)) for one in found] == [(0, 3, 3), (0, 1, 1), (1, 1, 1)]
    with pytest.raises(UsageError, match="groups of a class must be 1 or more, got 0"):
        clusters_within(points, np.zeros(5, np.int64), 0)


@pytest.mark.parametrize("network", ["single", "class-conditional"])
def test_what_is_named_for_a_sample_leaves_itself_out(network: str) -> None:
    run, data = trained(network), training()
    own = np.arange(len(data))
    found = others_named(run, data, own)
    named = provnet.explain(run, data.images, k=6).index
    assert found.shape == (len(data), 5)
    for row in range(len(data)):
        expected = [i for i in named[row] if i not in (row, -1)][:5]
        assert [i for i in found[row] if i >= 0] == expected
        assert found[row].tolist() == [*expected, *[-1] * (5 - len(expected))]


def test_a_map_holds_training_samples_and_misattributed_test_samples() -> None:
    run, data, test = trained("single"), training(), unseen()
    found = sample_map(run, data, test, groups=2, engine="scikit-learn", perplexity=5)
    wrong = np.flatnonzero(provnet.explain(run, test.images, k=1).label[:, 0] != test.samples.labels)
    assert found.test_rows.tolist() == wrong.tolist() != []
    assert found.misattributed is not None
    assert len(found.misattributed) == len(found.test_xy) == len(wrong)
    assert found.misattributed.index.shape == (len(wrong), 5)
    assert (found.index == np.arange(len(data))).all()
    assert {(int(run.samples.labels[i]), int(c)) for i, c in zip(found.index, found.cluster, strict=True)} == {
        (one.label, one.number) for one in found.clusters
    }
    assert (found.tested, found.withheld, found.left_out) == (len(test), 0, 0)


def test_withheld_samples_are_not_on_the_map_and_a_limit_is_even() -> None:
    run, data = keyed(), training()
    hidden = withhold(run, [run.samples.sample_ids[i] for i in (0, 5)])
    found = sample_map(hidden, data, groups=1, limit=20, engine="scikit-learn", perplexity=5)
    everything = np.concatenate([found.index, found.exemplars.reshape(-1), *[one.nearest for one in found.clusters]])
    assert not {0, 5} & set(everything.tolist())
    assert (len(found.index), found.withheld, found.left_out) == (20, 2, len(data) - 22)
    assert np.bincount(run.samples.labels[found.index]).tolist() == [2] * 10
    assert found.misattributed is None
    with pytest.raises(UsageError, match="give one each"):
        sample_map(run, data, index=np.arange(3))


def test_other_data_are_refused_and_another_order_is_seen() -> None:
    run, rows = trained("single"), np.arange(len(training()))[::-1].copy()
    turned = training().select(rows)
    for given, index in ((training(), rows), (unseen(), None)):
        with pytest.raises(UsageError, match=r"not the ones this run was trained on|give one each"):
            sample_map(run, given, index=index, engine="scikit-learn")
    for index in (rows, None):
        found = sample_map(run, turned, index=index, groups=1, engine="scikit-learn", perplexity=5)
        assert found.index.tolist() == rows.tolist()


def test_scikit_learn_shows_no_bar_that_stands_still(capsys: pytest.CaptureFixture[str]) -> None:
    heard: list[tuple[str, int, int]] = []
    with listening(lambda title, total, done, _: heard.append((title, total, done))):
        sample_map(trained("single"), training(), groups=1, engine="scikit-learn", perplexity=5)
    assert [each for each in heard if each[0].startswith("t-SNE")] == [
        ("t-SNE (scikit-learn)", 1, 0),
        ("t-SNE (scikit-learn)", 1, 1),
    ]
    sample_map(trained("single"), training(), groups=1, engine="scikit-learn", perplexity=5, progress=True)
    told = " ".join(capsys.readouterr().err.split())
    assert f"t-SNE (scikit-learn): laying out {len(training())} samples; how far it is cannot be told" in told
    assert f"/{embedding.STEPS}" not in told

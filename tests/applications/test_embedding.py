"""The map: features, places, groups inside classes, what is named for a sample; and its page."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch

import provnet
from provnet.applications import embedding
from provnet.applications.embedding import clusters_within, embed, engine_for, index_features, principal
from provnet.applications.mapping import others_named, sample_map
from provnet.bank import withhold
from provnet.errors import NonFiniteError, UsageError
from provnet.report.map_page import ClusterCard, MapReport, map_html
from provnet.report.records import ExplanationCard
from provnet.report.scripted import json_block, packed, with_script
from provnet.report.sprites import PER_SHEET, sprite_sheets, strip, z_order

from ..digits import trained, training, unseen
from ..report.reading import Page
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
    with pytest.raises(UsageError, match=r"provnet\[maps\]"):
        engine_for("openTSNE")
    with pytest.raises(UsageError, match="unknown engine"):
        engine_for("umap")


@pytest.mark.parametrize(
    ("n", "perplexity", "words"), [(4, 30.0, "5 samples"), (9, 0.0, "perplexity"), (9, float("nan"), "perplexity")]
)
def test_maps_that_cannot_be_made_are_refused(n: int, perplexity: float, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        embed(blobs(n)[0], perplexity=perplexity, engine="scikit-learn")


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
    with pytest.raises(UsageError, match="1 group or more"):
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


def test_sheets_hold_every_thumbnail_in_its_place() -> None:
    pytest.importorskip("PIL.WebPImagePlugin", reason="this Pillow cannot write WebP")
    pictures = (
        np.zeros((PER_SHEET + 3, 8, 8), np.uint8) + (np.arange(PER_SHEET + 3) % 251).astype(np.uint8)[:, None, None]
    )
    made = sprite_sheets(pictures, 10**6)
    assert made is not None
    assert (made.side, len(made.uris), made.quality) == (8, 2, 85)
    for number, uri in enumerate(made.uris):
        sheet = np.asarray(opened(uri).convert("L")).astype(int)
        for slot in (0, 1, 2, 25, 575)[: 5 if number == 0 else 3]:
            y, x = divmod(slot, 24)
            here = sheet[y * 8 + 2 : y * 8 + 6, x * 8 + 2 : x * 8 + 6]
            assert abs(here - pictures[number * PER_SHEET + slot, 0, 0]).max() < 12
    assert made.bytes == sum(len(uri) for uri in made.uris)


def opened(uri: str):  # type: ignore[no-untyped-def]
    import io

    from PIL import Image

    return Image.open(io.BytesIO(base64.b64decode(uri.split(",")[1])))


def test_thumbnails_shrink_to_the_budget_and_vanish_below_it() -> None:
    draw = np.random.default_rng(0)
    pictures = draw.integers(0, 256, (120, 40, 28, 3), dtype=np.uint8)
    sizes = [sprite_sheets(pictures, budget) for budget in (1_200_000, 24_000, 500)]
    assert sizes[0] is not None
    assert sizes[0].side == 40
    assert sizes[1] is not None
    assert sizes[1].bytes <= 24_000
    assert (sizes[1].side, sizes[1].quality) < (40, 85)
    assert sizes[2] is None
    with pytest.raises(UsageError, match="thumbnails are made of"):
        sprite_sheets(np.zeros((0, 8, 8), np.uint8), 100)


def test_the_order_along_the_map_keeps_neighbours_together() -> None:
    xy = np.random.default_rng(0).uniform(size=(2000, 2))
    order = z_order(xy)
    assert sorted(order.tolist()) == list(range(2000))
    steps = np.linalg.norm(np.diff(xy[order], axis=0), axis=1)
    assert np.median(steps) < np.median(np.linalg.norm(np.diff(xy, axis=0), axis=1)) / 5
    assert z_order(np.zeros((3, 2))).tolist() == [0, 1, 2]


def test_a_script_runs_only_by_its_hash_and_data_cannot_end_it() -> None:
    page = with_script("<meta content=\"default-src 'none'; img-src data:\"><body></body>", "map.js")
    (script,) = re.findall(r"<script>(.*)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page
    with pytest.raises(UsageError, match="one policy"):
        with_script("<body></body>", "map.js")
    nasty = {"a": "</script><script>alert(1)</script>", "b": "<!-- & \u2028"}
    assert "<" not in json_block(nasty)
    assert json.loads(json_block(nasty)) == nasty
    assert np.frombuffer(base64.b64decode(packed(np.array([-1, 70000]), "<i4")), "<i4").tolist() == [-1, 70000]


def report(n: int = 30, pictures: bool = True) -> MapReport:
    draw = np.random.default_rng(0)
    near = draw.integers(-1, n + 3, (n + 2, 5))
    return MapReport(
        title="Map",
        data="digits",
        class_names=["<b>0</b>", "1"],
        xy=draw.normal(size=(n + 2, 2)).astype(np.float32),
        train=n,
        labels=np.arange(n + 3) % 2,
        cluster=np.arange(n) % 3,
        ids=[f"</script>{i}\x1b" for i in range(n + 3)],
        near=near,
        pictures=draw.integers(0, 256, (n + 3, 8, 8), dtype=np.uint8) if pictures else None,
        groups=[
            ("<i>0</i>", [ClusterCard(1, 7, ["a"], strip([np.zeros((8, 8), np.uint8)])), ClusterCard(2, 1, ["b"])])
        ],
        cards=[ExplanationCard(None, "test/1", "1", 0.9, True, truth="<b>0</b>")],
        missed=2,
        tested=50,
        facts=[("Seed", "0")],
    )


def payload(page: str) -> dict:  # type: ignore[type-arg]
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    found: dict = json.loads(text)  # type: ignore[type-arg]
    return found


def test_the_page_is_one_file_and_holds_every_place_with_its_own_data() -> None:
    given = report()
    made = map_html(given)
    page = Page(made.html)
    assert page.unbalanced == page.open == []
    assert "://" not in made.html
    assert "<b>0</b>" not in made.html
    assert "<i>0</i>" not in made.html
    assert made.html.count("<script") == 2
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)
    data = payload(made.html)
    assert (data["places"], data["train"], data["k"], data["side"]) == (32, 30, 5, 8)
    back = {name: i for i, name in enumerate(data["ids"])}
    assert "\x1b" not in "".join(data["ids"])
    xy = np.frombuffer(base64.b64decode(data["xy"]), "<u2").reshape(-1, 2).astype(float)
    near = np.frombuffer(base64.b64decode(data["near"]), "<i4").reshape(-1, 5)
    label = np.frombuffer(base64.b64decode(data["label"]), "<u2")
    scale = np.ptp(given.xy, axis=0).max() / 65534
    for old in range(32):
        new = back[f"</script>{old}\\x1b"]
        assert label[new] == given.labels[old]
        for a, b in zip(near[new], given.near[old], strict=True):
            assert (a == -1) if b < 0 else data["ids"][a] == f"</script>{b}\\x1b"
        first = back["</script>0\\x1b"]
        assert np.allclose((xy[new] - xy[first]) * scale, given.xy[old] - given.xy[0], atol=3 * scale)


def test_without_room_or_pictures_ids_stand_for_them() -> None:
    made = map_html(report(), budget=1000)
    assert made.sheets is None
    assert "too many samples for thumbnails" in made.html
    bare = map_html(report(pictures=False))
    assert "The pictures are not at hand" in bare.html
    assert payload(bare.html)["sheets"] == []


def test_a_budget_holds_for_the_whole_page() -> None:
    free = len(map_html(report(400), budget=10**7).html.encode())
    small = map_html(report(400), budget=free - 4000)
    assert small.sheets is not None
    assert len(small.html.encode()) <= free - 4000

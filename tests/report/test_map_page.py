"""The page of a map: thumbnails within their budget, the script and its data, what is shown without pictures."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace

import numpy as np
import pytest

from provnet.base.errors import UsageError
from provnet.report.page import base64_numbers, json_block, with_script
from provnet.report.pictures import PER_SHEET, sprite_sheets, strip, z_order
from provnet.report.records import ExplanationCard
from provnet.tools.map.page import ClusterCard, MapReport, map_html, map_png
from tests.report.reading import Page


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
    assert np.frombuffer(base64.b64decode(base64_numbers(np.array([-1, 70000]), "<i4")), "<i4").tolist() == [-1, 70000]


def test_numbers_that_a_type_cannot_hold_are_refused() -> None:
    for values, kind in (([65_536], "<u2"), ([-1], "<u2"), ([2**31], "<i4"), ([0.5], "<u2")):
        with pytest.raises(UsageError, match="do not fit"):
            base64_numbers(np.array(values), kind)


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


def test_a_class_beyond_65536_keeps_its_number() -> None:
    given = report(pictures=False)
    many = replace(given, class_names=[str(i) for i in range(70_002)], labels=given.labels + 70_000)
    data = payload(map_html(many).html)
    label = np.frombuffer(base64.b64decode(data["label"]), "<i4")
    named = {name: data["names"][number] for name, number in zip(data["ids"], label, strict=True)}
    assert named == {f"</script>{i}\\x1b": str(70_000 + i % 2) for i in range(33)}


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
    label = np.frombuffer(base64.b64decode(data["label"]), "<i4")
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


def test_the_picture_writes_letters_as_they_are_and_long_names_do_not_shrink_the_map(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("matplotlib", reason="figures need the extra plots")
    from matplotlib.figure import Figure

    saved: list[Figure] = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *a, **k: (saved.append(self), save(self, *a, **k)))

    def drawn(names: list[str]) -> tuple[float, list[str]]:
        map_png(replace(report(), class_names=names))
        (axes,) = saved[-1].axes
        return axes.get_window_extent().width, [words.get_text() for words in axes.texts]

    width, words = drawn(["0", "elektrizitäten"])
    assert words == ["0", "elektrizitäten"]
    wider, words = drawn(["0", "n" * 300 + "\x1b"])
    assert words == ["0", "n" * 11 + "…" + "n" * 5 + "\\x1b"]
    assert wider == width
    with pytest.MonkeyPatch.context() as quiet:
        quiet.setattr("warnings.warn", lambda *a, **k: pytest.fail(str(a)))
        assert map_png(replace(report(), class_names=["犬", "a\x1b$_$"])).startswith(b"\x89PNG")

"""Generate over HTTP: sliders move the latents, the samples behind follow; only where the run makes pictures."""

from __future__ import annotations

import pytest

from provnet.tools.generate.compute import generate, sources
from tests.cases import cases

from ..generation.made import pictures
from .made import Live, png


def test_a_run_that_classifies_makes_nothing(live: Live) -> None:
    assert live.get("/generate").status_code == 404
    assert "generate" not in live.get("/run").json()["views"]


def test_the_run_says_that_it_makes_pictures(maker: Live) -> None:
    found = maker.get("/run").json()
    assert found["task"] == "generate" and found["views"][-1] == "generate"
    sliders = maker.get("/generate").json()
    assert sliders["latent"] == len(sliders["range"]) == len(sliders["start"]) <= 12
    assert sliders["conditional"] is True


def test_a_seed_gives_what_the_library_gives(maker: Live) -> None:
    run = maker.state.served.run
    made = generate(run, 1, 2, 5)
    expected = sources(run, made, k=3).one(0)
    found = maker.post("/generate", json={"seed": 5, "class": 2, "k": 3}).json()
    assert [one["sha256"] for one in found["exemplars"]] == [one.sha256 for one in expected.exemplars]
    assert found["supported"] == expected.supported
    assert {one["class"] for one in found["exemplars"]} == {2}


def test_sliders_move_the_picture_and_come_back_where_they_were_set(maker: Live) -> None:
    start = maker.post("/generate", json={"class": 0}).json()
    assert start["latent"] == pytest.approx([0] * len(start["latent"]), abs=1e-3)
    wanted = [2.0, *start["latent"][1:]]
    moved = maker.post("/generate", json={"class": 0, "latent": wanted}).json()
    assert moved["latent"] == pytest.approx(wanted, abs=1e-2) and moved["picture"] != start["picture"]
    assert maker.post("/generate", json={"class": 0, "latent": wanted}).json() == moved


def test_a_known_picture_is_where_the_sliders_start(maker: Live) -> None:
    data = pictures()
    key = maker.send("/queries", png(data.images[4].numpy())).json()["sha256"]
    found = maker.post("/generate", json={"sha256": key}).json()
    again = maker.post("/generate", json={"sha256": key, "latent": found["latent"]}).json()
    assert again["exemplars"] == found["exemplars"]
    assert maker.post("/explain/known", json={"sha256": key}).status_code == 200


@cases(
    ("given", "status"),
    [
        ({"class": 99}, 404),
        ({"latent": [99]}, 422),
        ({"latent": [0] * 99}, 422),
        ({"sha256": "0" * 64}, 404),
        ({"k": 0}, 422),
    ],
    ids=str,
)
def test_what_cannot_be_made_is_refused(maker: Live, given: dict[str, object], status: int) -> None:
    assert maker.post("/generate", json=given).status_code == status

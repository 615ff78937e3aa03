"""Explain over HTTP: the same answers as the library gives, also in company; distorted, left out, refused."""

from __future__ import annotations

import base64
import io
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

import provnet
from provnet.answers.attributor import explain
from provnet.training.config import train_config
from provnet_app.served import Served
from tests.cases import cases
from tests.fitting import fit

from .made import NAMES, Live, digit, digits, png, serving, trained


def test_an_upload_is_explained_as_the_library_does(live: Live) -> None:
    found = live.send("/explain?k=4", digit(5)).json()
    expected = explain(trained(), digits("test", 60).images[5:6], k=4)
    one = expected.one(0)
    assert found["predicted"] == {"class": int(expected.predicted[0]), "label": one.predicted}
    assert found["confidence"] == pytest.approx(one.confidence, abs=1e-3)
    assert [e["sha256"] for e in found["exemplars"]] == [e.sha256 for e in one.exemplars]
    assert [e["weight"] for e in found["exemplars"]] == pytest.approx([e.weight for e in one.exemplars], abs=1e-3)
    assert found["supported"] == one.supported
    assert found["query"]["origin"] == "upload" and found["query"]["resized_from"] is None
    assert found["rest"] == pytest.approx(1 - sum(e.weight for e in one.exemplars), abs=1e-3)


def test_requests_in_company_get_their_own_answers(live: Live) -> None:
    alone = [live.send("/explain?k=3", digit(i)).json() for i in range(20)]
    with ThreadPoolExecutor(20) as pool:
        together = list(pool.map(lambda i: live.send("/explain?k=3", digit(i)).json(), range(20)))
    for one, other in zip(alone, together, strict=True):
        assert one["predicted"] == other["predicted"]
        assert [e["sha256"] for e in one["exemplars"]] == [e["sha256"] for e in other["exemplars"]]


@pytest.mark.parametrize("by", ["upload", "training", "test", "pixels"])
def test_what_is_known_is_explained_without_sending_it_again(live: Live, by: str) -> None:
    image = digits("test", 60).images[7] if by != "training" else digits("train", 80).images[7]
    key = live.send("/queries", png(image.numpy())).json()["sha256"]
    asked = {
        "upload": {"sha256": key},
        "training": {"sha256": digits("train", 80).samples.hex(7)},
        "test": {"test": 7},
        "pixels": {"pixels": image.tolist()},
    }[by]
    found = live.post("/explain/known", json=asked).json()
    expected = live.send("/explain", png(image.numpy())).json()
    assert found["query"]["origin"] == by
    for name in ("predicted", "confidence", "exemplars", "picture"):
        assert found[name] == expected[name]


def test_equal_samples_share_their_weight_and_name_each_other() -> None:
    few = digits("train", 80)
    rows = [*range(80), 4, 4]
    data = provnet.open_data(few.images[rows].numpy(), few.samples.labels[rows])
    run = fit(data, network="single", config=train_config("fast", epochs=20))
    with serving(Served(run=run, name="copies", test=digits("test", 60))) as live:
        found = live.post("/explain/known", json={"pixels": few.images[4].tolist(), "k": 20}).json()["exemplars"]
        ids = data.samples.sample_ids
        of = {one["sample_id"]: one for one in found}
        same = [of[ids[i]] for i in (4, 80, 81)]
        assert len({one["weight"] for one in same}) == 1
        assert [one["duplicates"] for one in same] == [[ids[80], ids[81]], [ids[4], ids[81]], [ids[4], ids[80]]]
        assert [one["duplicate_count"] for one in found].count(0) == 17


def test_one_plane_may_be_left_out_of_grey_pixels(live: Live) -> None:
    image = digits("test", 60).images[2]
    both = [live.post("/explain/known", json={"pixels": p}).json() for p in (image.tolist(), image[0].tolist())]
    assert both[0]["exemplars"] == both[1]["exemplars"]


def test_a_left_out_exemplar_is_not_named_and_the_others_share_its_weight(live: Live) -> None:
    before = live.post("/explain/known", json={"test": 3, "k": 5}).json()
    gone = before["exemplars"][0]
    after = live.post("/explain/known", json={"test": 3, "k": 4, "without": [gone["sha256"]]}).json()
    assert [e["sha256"] for e in after["exemplars"]] == [e["sha256"] for e in before["exemplars"][1:]]
    assert after["without"] == {"asked": 1, "weight": gone["weight"]}
    ratio = before["exemplars"][1]["weight"] / (1 - gone["weight"])
    assert after["exemplars"][0]["weight"] == pytest.approx(ratio, abs=1e-3)


def seen(found: dict[str, str]) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(found["picture"].partition(",")[2]))))


@cases(
    "how",
    [{"noise": 0.3}, {"shift_x": 0.25}, {"shift_y": -0.25}, {"rotation": 90}, {"blur": 2}, {"occlusion": 0.5}],
    ids=lambda how: next(iter(how)),
)
def test_sliders_change_what_the_network_sees(live: Live, how: dict[str, float]) -> None:
    plain = live.post("/explain/known", json={"test": 4}).json()
    found = live.post("/explain/known", json={"test": 4, "distort": how}).json()
    again = live.send(f"/explain?{next(iter(how))}={next(iter(how.values()))}", digit(4)).json()
    assert found["distorted"] and not plain["distorted"]
    assert not np.array_equal(seen(found), seen(plain))
    assert found["picture"] == again["picture"], "the same distortion of the same picture is the same picture"


def test_a_quarter_turn_is_counter_clockwise(live: Live) -> None:
    plain = seen(live.post("/explain/known", json={"test": 4}).json())
    turned = seen(live.post("/explain/known", json={"test": 4, "distort": {"rotation": 90}}).json())
    assert np.abs(turned.astype(int) - np.rot90(plain)).max() <= 1


def test_larger_and_coloured_pictures_are_brought_to_the_size(live: Live) -> None:
    picture = Image.new("RGB", (40, 20), (255, 0, 0))
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG")
    found = live.send("/explain", buffer.getvalue(), "image/jpeg").json()
    assert found["query"]["resized_from"] == [20, 40]
    assert seen(found).shape == (8, 8)


def test_class_names_come_back_as_they_are(live: Live) -> None:
    labels = [one["label"] for one in live.get("/run").json()["classes"]]
    assert labels == list(NAMES)
    raw = live.get("/run")
    assert raw.headers["content-type"] == "application/json" and raw.headers["x-content-type-options"] == "nosniff"


def test_no_supporting_sample_is_said(live: Live) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (8, 8), dtype=np.uint8)
    answers = [live.send("/explain", png(noise)).json(), live.post("/explain/known", json={"test": 1}).json()]
    assert [one["supported"] for one in answers] == [one["support"] >= one["threshold"] for one in answers]
    assert answers[0]["support"] < answers[1]["support"]


def test_a_run_without_pictures_explains_pixels_alone() -> None:
    served = trained()
    from provnet_app.served import Served

    with serving(Served(run=served, name="bare")) as bare:
        assert bare.send("/explain", digit()).status_code == 200
        found = bare.post("/explain/known", json={"sha256": served.samples.hex(0)})
        assert found.status_code == 404 and "not available" in found.json()["error"]["message"]
        jobs = bare.get("/jobs").json()["jobs"]
        assert not any(job["can"] for job in jobs)
        assert bare.post("/jobs/scores").json()["state"] == "none"


@pytest.mark.parametrize(("level", "status", "longest"), [("ids", 403, 0), ("thumb", 200, 8), ("full", 200, 8)])
def test_pictures_are_shown_as_far_as_the_exposure_goes(live: Live, level: str, status: int, longest: int) -> None:
    key = digits("train", 80).samples.hex(0)
    with serving(replace(live.state.served, exposure=level)) as found:
        assert found.get(f"/pictures/{key}").status_code == status
        assert found.post("/sheet", json={"sha256": [key]}).status_code == status
        explained = found.post("/explain/known", json={"sha256": key}).json()
        assert (explained["picture"] is None) == (level == "ids")
        assert explained["exemplars"][0]["shown"] == (level != "ids")
        own = found.send("/explain", digit()).json()
        assert own["picture"] is not None, "what a person sends may be seen by them"
        decimals = max(len(str(e["weight"]).partition(".")[2]) for e in own["exemplars"])
        assert decimals <= (4 if level == "full" else 2)

"""Plain and joint weights over HTTP: the library's own, offered where they differ, refused in words where unknown."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest

from provnet.answers.attributor import SHARES, explain
from provnet_app.routes import Weights
from provnet_app.served import Served
from tests.cases import cases

from .made import Live, digit, digits, serving, trained


def pairs(found: dict[str, Any]) -> list[tuple[str, float]]:
    return [(one["sha256"], one["weight"]) for one in found["exemplars"]]


@pytest.mark.parametrize("weights", ["plain", "joint"])
def test_weights_are_those_of_the_library(independent: Live, weights: str) -> None:
    expected = explain(trained("class-independent"), digits("test", 60).images[1:2], k=5, weights=weights).one(0)
    known = independent.post("/explain/known", json={"test": 1, "weights": weights}).json()
    sent = independent.send(f"/explain?weights={weights}", digit(1)).json()
    assert pairs(known) == pairs(sent)
    assert [one[0] for one in pairs(known)] == [one.sha256 for one in expected.exemplars]
    assert [one[1] for one in pairs(known)] == pytest.approx([one.weight for one in expected.exemplars], abs=1e-3)


def test_joint_weights_differ_where_the_run_says_so(independent: Live, live: Live, maker: Live) -> None:
    offered = {}
    for name, one in (("independent", independent), ("conditional", live), ("maker", maker)):
        offered[name] = one.get("/run").json()["weights"]
        plain, joint = (one.post("/explain/known", json={"test": 1, "weights": w}).json() for w in ("plain", "joint"))
        assert (pairs(plain) != pairs(joint)) == ("joint" in offered[name])
        assert plain["predicted"] == joint["predicted"] and plain["confidence"] == joint["confidence"]
    assert offered == {"independent": ["plain", "joint"], "conditional": ["plain"], "maker": ["plain"]}


def test_the_interface_takes_what_the_library_takes() -> None:
    assert get_args(Weights) == SHARES


def test_a_single_branch_has_one_kind_of_weights() -> None:
    with serving(Served(run=trained("single"), name="single", test=digits("test", 60))) as single:
        assert single.get("/run").json()["weights"] == ["plain"]
        asked = [{"test": 1, "weights": weights} for weights in ("plain", "joint")]
        plain, joint = (single.post("/explain/known", json=one).json() for one in asked)
        assert [one[0] for one in pairs(plain)] == [one[0] for one in pairs(joint)]
        assert [one[1] for one in pairs(plain)] == pytest.approx([one[1] for one in pairs(joint)], abs=2e-4)


@pytest.mark.parametrize("weights", ["plain", "joint"])
def test_what_is_left_out_has_its_weight_also_where_it_is_not_among_the_best(independent: Live, weights: str) -> None:
    asked = {"test": 1, "weights": weights}
    every = independent.post("/explain/known", json={**asked, "k": 30}).json()["exemplars"]
    twice = [digits("train", 80).samples.hex(i) for i in (0, 1)]  # a hash leaves out both
    first, gone = every[0], [one for one in every if one["sha256"] not in twice][9:12]
    found = independent.post(
        "/explain/known", json={**asked, "k": 1, "without": [one["sha256"] for one in gone]}
    ).json()
    removed = sum(one["weight"] for one in gone)
    assert removed > 0.02
    assert found["without"] == {"asked": 3, "weight": pytest.approx(removed, abs=3e-4)}
    assert [one["sha256"] for one in found["exemplars"]] == [first["sha256"]]
    assert found["exemplars"][0]["weight"] == pytest.approx(first["weight"] / (1 - removed), abs=3e-4)


@pytest.mark.parametrize("weights", ["plain", "joint"])
def test_samples_are_left_out_of_a_run_with_keys_that_withholds_others(weights: str) -> None:
    data, run = digits("train", 80), trained("class-independent", "exemplar")
    hidden = replace(run.samples, withheld=np.isin(np.arange(len(data)), (2, 3, 40)))
    served = Served(
        replace(run, samples=hidden), "few", training=data, index=np.arange(len(data)), test=digits("test", 60)
    )
    with serving(served) as few:
        asked = {"test": 1, "weights": weights}
        every = few.post("/explain/known", json={**asked, "k": 50}).json()["exemplars"]
        assert not {2, 3, 40} & {one["index"] for one in every}
        gone = next(one for one in every[4:] if one["index"] in range(41, 80))
        found = few.post("/explain/known", json={**asked, "k": 2, "without": [gone["sha256"]]}).json()
        assert found["without"]["weight"] == pytest.approx(gone["weight"], abs=2e-4)
        assert gone["weight"] > 0.0005


def test_weights_of_what_is_left_out_by_many_at_once(independent: Live) -> None:
    every = independent.post("/explain/known", json={"test": 1, "k": 8}).json()["exemplars"]
    bodies = [{"test": 1, "without": [one["sha256"] for one in every[:n]]} for n in (0, 1, 3, 8)] * 5
    alone = [independent.post("/explain/known", json=body).json() for body in bodies[:4]]
    with ThreadPoolExecutor(20) as pool:
        together = list(pool.map(lambda body: independent.post("/explain/known", json=body).json(), bodies))
    for place, found in enumerate(together):
        assert found["without"]["weight"] == pytest.approx(alone[place % 4]["without"]["weight"], abs=3e-4)
        assert [one["sha256"] for one in found["exemplars"]] == [one["sha256"] for one in alone[place % 4]["exemplars"]]


def test_other_weights_are_refused_with_what_was_given_and_what_is_allowed(independent: Live) -> None:
    replies = [
        independent.send("/explain?weights=heavy", digit(1)),
        independent.post("/explain/known", json={"test": 1, "weights": "heavy"}),
        independent.post("/explain/known", json={"pixels": [[0]], "weights": "heavy"}),
        independent.post("/credit", json={"test": {"count": 3}, "weights": "heavy"}),
    ]
    for found in replies:
        assert found.status_code == 422
        error = found.json()["error"]
        assert error["field"] == "weights"
        assert error["message"] == "weights: Input should be 'plain' or 'joint', got 'heavy'"


@cases(
    ("body", "field", "words"),
    [
        ({"test": 1, "k": 51}, "k", "less than or equal to 50, got 51"),
        ({"test": 1, "path": "x"}, "path", "Extra inputs"),
        ({"sha256": "zz"}, "sha256", "should match"),
        ({"pixels": [[0]], "distort": {"noise": 2}}, "distort.noise", "less than or equal to 1, got 2"),
        ([], "body", "one JSON object"),
    ],
)
def test_an_error_speaks_of_the_form_that_was_meant(independent: Live, body: Any, field: str, words: str) -> None:
    error = independent.post("/explain/known", json=body).json()["error"]
    assert error["field"] == field and words in error["message"]


def test_long_and_odd_choices_are_not_repeated_whole(independent: Live) -> None:
    for given in ("x" * 5000, ["x" * 5000], "\x1b[2J\n"):
        message = independent.post("/explain/known", json={"test": 1, "weights": given}).json()["error"]["message"]
        assert len(message) < 120 and message.isprintable()
    wrong = {"Authorization": "Bearer a-secret" + "x" * 5000}
    assert "a-secret" not in independent.post("/session", headers=wrong).text

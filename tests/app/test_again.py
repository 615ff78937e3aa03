"""Training again from the app: a new run beside the old one, what changed, and back again."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page, expect

import provnet
from provnet.base.options import RunOptions
from provnet.data.select import holdout
from provnet.runs.run import read_run
from provnet.tools.debug.fix import fix
from provnet.training.config import train_config
from provnet.training.fit import fit
from provnet_app.again import decisions
from provnet_app.served import Served

from .browser import open_view
from .made import Live, serving

CHANGED = 6


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on 120 digits in a file, a fifth held out."""
    place = tmp_path_factory.mktemp("again")
    data = provnet.open_data("embedded", limit=120)
    np.savez(place / "digits.npz", images=data.images.numpy(), labels=data.samples.labels)
    train, test = holdout(provnet.open_data(str(place / "digits.npz")), 0.2)
    fit(train, train_config("fast", epochs=1, batch_size=32), RunOptions(out=place / "run"), test=test.spec)
    return place


@pytest.fixture
def own(folder: Path, servers: ExitStack, tmp_path: Path) -> Live:
    """A server of the run, with decisions of its own."""
    run = read_run(folder / "run")
    data = run.data()
    served = Served(run, "run", folder / "run", training=data, index=np.arange(len(data)), test=run.test())
    return servers.enter_context(serving(Served(**{**vars(served), "keep": tmp_path / "app"})))


def decide(live: Live, label: str = "3") -> None:
    items = live.get(f"/samples?limit={CHANGED}").json()["items"]
    named = [{"sample_id": one["sample_id"], "sha256": one["sha256"]} for one in items]
    other = [one for one, item in zip(named, items, strict=True) if item["label"] != label]
    live.post("/decisions", json={"items": other[1:], "decision": "relabel", "new_label": label})
    live.post("/decisions", json={"items": other[:1], "decision": "drop"})


def test_a_run_is_trained_beside_the_old_one_found_again_and_undone(own: Live, page: Page, folder: Path) -> None:
    decide(own)
    kept = files(folder / "run"), (folder / "digits.npz").read_bytes(), own.get("/decisions").json()["counts"]
    open_view(page, own, "#/data?sort=index")
    page.evaluate("window.scrollTo(0, 0)")
    assert own.get("/again").json()["choices"][0]["drop"] == 1
    own.wait("scores")
    page.reload()
    page.get_by_role("button", name="Train again …").click()
    page.get_by_role("dialog", name="Train again").get_by_role("button", name="Train again").click()
    card = page.get_by_label("The run that was trained again")
    expect(card.get_by_text("Trained again:")).to_be_visible(timeout=60_000)
    expect(card).to_contain_text("95 %:")
    made = own.get("/again").json()["made"]
    due = fix(own.state.served.run, decisions=decisions(own.state))
    assert made["name"] == "run-fixed" and made["difference"] == {**due.difference.to_json(), "why": None}
    assert [one["sample_id"] for one in made["answers"]] == [one.sample_id for one in due.answers]
    assert own.get("/run").json()["beside"] == "run-fixed"  # its answers stand beside those of this one
    assert own.post("/again", json={}).json()["job"]["state"] == "ready"  # one at a time
    with serving(own.state.served) as later:
        assert later.get("/again").json()["made"]["name"] == "run-fixed"
    card.get_by_role("button", name="Undo: remove it").click()
    expect(card).to_be_empty()
    assert not (folder / "run-fixed").exists() and own.get("/again").json()["made"] is None
    assert kept == (files(folder / "run"), (folder / "digits.npz").read_bytes(), own.get("/decisions").json()["counts"])
    assert own.get("/run").json()["beside"] is None


def test_suggestions_are_applied_where_nobody_decided(own: Live) -> None:
    assert own.post("/again", json={}).json()["error"]["message"].startswith("nothing would change")
    own.wait("scores")
    scores = own.state.jobs.results["scores"]
    labels = own.state.served.run.samples.labels
    scores.kind[:], scores.mislabel[:], scores.sure[:] = 0, 0.0, 0.0
    scores.sure[:4], scores.suggested[:4] = (0.8, 0.9, 0.95, 0.99), (labels[:4] + 1) % 10
    scores.mislabel[:6] = 0.9
    found = own.get("/again").json()
    assert [(one["certainty"], one["relabel"]) for one in found["choices"]] == [
        (None, 0),
        (0.8, 4),
        (0.9, 3),
        (0.95, 2),
        (0.99, 1),
    ]
    assert found["doubtful"] == 6
    item = own.get("/samples?limit=4").json()["items"][3]
    named = {"sample_id": item["sample_id"], "sha256": item["sha256"]}
    own.post("/decisions", json={"items": [named], "decision": "keep"})
    assert [one["relabel"] for one in own.get("/again").json()["choices"]] == [0, 3, 2, 1, 0]
    kinds = [one.kind for one in decisions(own.state, 0.9, leave_out=True)]
    assert sorted(kinds) == ["drop"] * 3 + ["keep"] + ["relabel"] * 2

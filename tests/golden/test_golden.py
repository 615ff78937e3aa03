"""Runs written once and kept for ever are read, and say what they said."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from provnet.api.hub import ProvenanceModel
from provnet.runs.run import read_run, verify_files
from tests.golden.make import HERE, LABELS, NETWORKS, exemplars, samples, scores_of


@pytest.mark.parametrize("name", NETWORKS)
def test_a_golden_run_says_what_it_said(name: str) -> None:
    run = read_run(HERE / name)
    told = json.loads((HERE / f"{name}.json").read_text("utf-8"))
    images = torch.tensor(told["inputs"])
    with torch.inference_mode():
        out = run.network(images)
    torch.testing.assert_close(out.logits, torch.tensor(told["logits"]), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(
        scores_of(run.network, out).amax(1), torch.tensor(told["best_score"]), rtol=1e-6, atol=1e-6
    )
    assert out.classes.tolist() == told["classes"]
    assert exemplars(run.network, run.samples, images) == told["exemplars"]
    assert run.samples.fingerprint == told["fingerprint"]
    assert run.samples.content_root == told["content_root"]
    assert len({tuple(row) for row in told["exemplars"]}) > 1  # a network that says one thing of all proves nothing


@pytest.mark.parametrize("name", NETWORKS)
def test_a_golden_run_keeps_its_samples_and_settings(name: str) -> None:
    run, table = read_run(HERE / name), samples()
    for field in dataclasses.fields(table):
        assert np.array_equal(getattr(run.samples, field.name), getattr(table, field.name)), field.name
    assert run.config.network.network == NETWORKS[name]["network"]
    assert run.config.support["threshold"] == 0.5
    assert run.history is not None
    assert run.history.shape == (2, len(LABELS))
    assert run.history[1, 0] == len(LABELS) / 16


@pytest.mark.parametrize("name", NETWORKS)
def test_a_golden_run_is_whole_and_loads_the_hubs_way(name: str) -> None:
    assert [check.why for check in verify_files(HERE / name)] == ["ok"] * 6
    assert ProvenanceModel.from_pretrained(HERE / name).samples.sample_ids == samples().sample_ids


def test_nothing_but_golden_runs_is_kept_here() -> None:
    folders = {p.name for p in Path(HERE).iterdir() if p.is_dir() and not p.name.startswith("__")}
    assert folders == set(NETWORKS)

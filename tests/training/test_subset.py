"""An index over some samples: its table holds those alone, the others teach classes only, and nothing else changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from provnet.answers.attributor import explain
from provnet.answers.evaluation import evaluate
from provnet.base.errors import IntegrityError, UsageError
from provnet.heads.heads import ExemplarHead
from provnet.heads.index_map import IndexMap, TargetSampler
from provnet.runs.bank import erase
from provnet.runs.run import read_run, write_run
from provnet.runs.verify import verify
from provnet.training.session import refuse_differences
from provnet.training.subset import IndexSubset, indexed_among, narrowed
from tests.cases import cases
from tests.fitting import fit

from .made import NETWORKS, SAMPLES, pictures, recipe, same_bits

ROWS = np.array([1, 2, 3, 7, 8, 12, 18, 20], dtype=np.int64)  # of 23 samples in 3 classes
TWO_BRANCH = {name: wishes for name, wishes in NETWORKS.items() if wishes["network"] != "single"}


@cases("name", TWO_BRANCH)
def test_the_run_names_indexed_samples_alone(name: str) -> None:
    data = pictures()
    run = fit(data, config=recipe(), index_subset=IndexSubset(ROWS), **NETWORKS[name])
    assert run.samples.sample_ids == tuple(data.samples.sample_ids[i] for i in ROWS)
    assert run.history is not None
    assert run.history.shape == (3, len(ROWS))
    assert run.network.index_map.n == len(ROWS)
    found = explain(run, data.images, k=3)
    assert set(np.unique(found.index)) <= {-1, *range(len(ROWS))}
    # the index behind a position is the sample that the data hold there
    assert (run.samples.sha256 == data.samples.sha256[ROWS]).all()
    assert evaluate(run, train=data.select(ROWS)).index_accuracy.n == len(ROWS)


@pytest.mark.parametrize("name", ["class-conditional, mixed", "keys", "single, mixed"])
def test_all_samples_as_a_subset_are_no_subset(name: str) -> None:
    data, every = pictures(), IndexSubset(np.arange(SAMPLES))
    whole = fit(data, config=recipe(), **NETWORKS[name])
    same_bits(whole, fit(data, config=recipe(), index_subset=every, **NETWORKS[name]))


def test_classes_on_the_subset_is_training_on_the_subset() -> None:
    data = pictures()
    some = fit(data, config=recipe(), index_subset=IndexSubset(ROWS, "subset"))
    plain = fit(data.select(ROWS), config=recipe())
    same_bits(some, plain)
    assert some.config.training["subset"]["of"] == SAMPLES
    assert "rest_content" not in some.config.training["subset"]


def test_the_others_teach_classes_and_nothing_of_indices() -> None:
    """With other labels on the others the class branch learns something else; with the index alone nothing changes."""
    data = pictures()
    rest = np.setdiff1d(np.arange(SAMPLES), ROWS)
    labels = data.samples.labels.copy()
    labels[rest] = (labels[rest] + 1) % 3
    other = replace(data, samples=replace(data.samples, labels=labels))
    subset = IndexSubset(ROWS)

    def weights(given: Any, **changes: Any) -> list[torch.Tensor]:
        wishes = {"network": "class-independent", "backbone": "sharing-small", "level": 1}
        net = fit(given, config=recipe(weight_decay=0.0, **changes), index_subset=subset, **wishes).network
        parts = [net.backbone, net.index_trunk, net.index_head]
        return [p.detach() for part in parts for p in part.parameters()]

    for one, two in zip(weights(data, task_weight=0.0), weights(other, task_weight=0.0), strict=True):
        assert torch.equal(one, two)
    assert any(not torch.equal(a, b) for a, b in zip(weights(data), weights(other), strict=True))


def test_figures_while_training_are_over_the_indexed_samples() -> None:
    rows: list[Any] = []
    data = pictures()
    wishes = {"network": "class-independent", "head": "exemplar"}
    run = fit(data, config=recipe(epochs=30), index_subset=IndexSubset(ROWS), on_epoch=rows.append, **wishes)
    assert rows[-1]["index_accuracy"] == pytest.approx(1.0)
    assert rows[0]["index_loss"] == pytest.approx(np.log(len(ROWS)), rel=0.6)
    head = run.network.index_head
    assert isinstance(head, ExemplarHead)
    assert head.learned[1] == len(ROWS)
    assert torch.allclose(head.keys.norm(dim=1), torch.ones(len(ROWS)), atol=1e-5)


def test_keys_of_indexed_samples_move_and_no_other() -> None:
    """What a recorded step does without leaving anything out equals what leaving out would do."""
    torch.manual_seed(0)
    labels = np.array([0, 1, 0, 1, 1, 0, 1, 0])
    rows = torch.tensor([0, 3, 4, 7])
    made = []
    for _ in range(2):
        head = ExemplarHead(5, IndexMap(labels[rows]), conditional=False)
        head.set_keys(torch.arange(4), torch.arange(20.0).view(4, 5).sin())
        made.append(head)
    index_map = IndexMap(labels[rows])
    indexed = indexed_among(rows, torch.from_numpy(labels), index_map, torch.device("cpu"))
    assert (indexed.weight.tolist(), indexed.scale) == ([1, 0, 0, 1, 1, 0, 0, 1], 2.0)
    index, features = torch.tensor([7, 1, 2, 3, 5]), torch.randn(5, 5)
    made[0].observe(indexed.own[index], features, indexed.weight[index])
    made[1].observe(torch.tensor([3, 1]), features[[0, 3]])
    assert torch.allclose(made[0].keys, made[1].keys, atol=1e-6)
    others = torch.tensor([1, 2, 5, 6])
    made[0].observe(indexed.own[others], torch.randn(4, 5), indexed.weight[others])
    assert torch.allclose(made[0].keys, made[1].keys, atol=1e-6)


def test_targets_of_the_others_are_valid_and_mixing_stays_among_the_indexed() -> None:
    labels = torch.arange(SAMPLES) % 3
    index_map = IndexMap(labels[ROWS])
    indexed = indexed_among(torch.from_numpy(ROWS), labels, index_map, torch.device("cpu"))
    sampler = TargetSampler(index_map, 0.7)
    for epoch in range(5):
        targets = sampler.draw(0, epoch)[indexed.own]
        assert len(targets) == SAMPLES
        assert torch.equal(targets[ROWS], sampler.draw(0, epoch))
        assert torch.equal(index_map.labels[targets], labels)


def test_stops_and_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    data, subset = pictures(), IndexSubset(ROWS)
    wishes: dict[str, Any] = {"config": recipe(), "network": "class-independent", "head": "exemplar"}
    whole = fit(data, index_subset=subset, **wishes)

    def stop(row: Any) -> None:
        if row["epoch"] == 2:
            raise KeyboardInterrupt

    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        fit(data, index_subset=subset, out=out, checkpoint_seconds=0, on_epoch=stop, **wishes)
    other = IndexSubset(np.array([0, *ROWS]))
    with pytest.raises(UsageError, match=r"subset\.indexed: 8 -> 9"):
        fit(data, index_subset=other, out=out, resume=True, **wishes)
    with pytest.raises(IntegrityError, match=r"1 setting differs: subset\.rest_content: "):  # a sample without an index
        refuse_differences({"subset": {"rest_content": "a"}}, {"subset": {"rest_content": "b"}})
    same_bits(whole, fit(data, index_subset=subset, out=out, resume=True, **wishes))
    same_bits(whole, read_run(out))
    assert "| indexed training samples | 8 |" in (out / "README.md").read_text()
    assert verify(out, data).verdict == "same"  # which hold 15 samples more
    assert verify(out, data.select(torch.arange(SAMPLES).flip(0))).verdict == "re-ordered"
    assert verify(out, data.select(np.arange(12))).verdict == "edited"


def test_verify_looks_at_samples_without_an_index(tmp_path: Path) -> None:
    data, out = pictures(), tmp_path / "run"
    fit(data, index_subset=IndexSubset(ROWS), config=recipe(), head="exemplar", out=out)
    for order in (np.arange(SAMPLES), np.arange(SAMPLES)[::-1]):
        found = verify(out, data.select(order.copy()))
        assert (found.ok, found.rest, found.unsure) == (True, "", "")
    found = verify(out, data.select(np.setdiff1d(np.arange(SAMPLES), [0])))  # a sample that is in no table of the run
    assert (found.verdict, found.ok, found.exit_code) == ("same", False, 6)
    assert found.rest == "the other samples, which have no index, are not those of training time: 14 now"
    assert found.lines()[-1] == f"data: {found.rest}"


def test_verify_after_erasing(tmp_path: Path) -> None:
    data, out = pictures(), tmp_path / "run"
    run = fit(data, index_subset=IndexSubset(ROWS), config=recipe(), head="exemplar")
    write_run(erase(run, [run.samples.sample_ids[0]]), out)
    found = verify(out, data)  # which still hold what was erased
    assert (found.verdict, found.ok, found.rest) == ("same", True, "")
    assert "cannot be compared: 1 of 16 were erased or added" in found.unsure
    assert found.lines()[-1] == f"data: {found.unsure}"
    found = verify(out, data.select(np.setdiff1d(np.arange(SAMPLES), ROWS[:1])))
    assert (found.ok, found.rest, found.unsure) == (True, "", "")
    assert not verify(out, data.select(np.setdiff1d(np.arange(SAMPLES), [0, 4]))).ok
    whole = fit(data, config=recipe(), head="exemplar")
    write_run(erase(whole, [whole.samples.sample_ids[0]]), tmp_path / "whole")
    assert verify(tmp_path / "whole", data).verdict == "same"


@cases(
    ("rows", "classes_on", "network", "words"),
    [
        ([0, 1, 3], "all", "class-conditional", 'no indexed sample, the first "2"'),
        ([], "all", "class-conditional", "at least one"),
        ([0.5, 1.5], "all", "class-conditional", "whole numbers"),
        ([2, 1, 0], "all", "class-conditional", "rising order"),
        ([0, 1, 1, 2], "all", "class-conditional", "each once"),
        ([0, 1, 2, 23], "all", "class-conditional", "0..22"),
        ([-1, 1, 2], "all", "class-conditional", "0..22"),
        ([0, 1, 2], "none", "class-conditional", "allowed: all, subset"),
        ([0, 1, 2], "all", "single", "a two-branch network"),
    ],
)
def test_subsets_that_cannot_be(rows: list[Any], classes_on: str, network: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        narrowed(pictures(), IndexSubset(np.array(rows), classes_on), network)

"""The faiss engine: the exact scan's scores, a recall that was measured, the same index each time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from provnet.base.errors import NonFiniteError, UsageError
from provnet.heads.keys import pack
from provnet.heads.retrieval import Ann, TopK, ann_top_k, build_ann, recall, top_k
from tests.cases import cases


def clustered(n: int, d: int, seed: int = 0) -> Tensor:
    """Unit keys around n / 20 centres."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(n // 20, d, generator=generator)
    return normalize(centres[torch.arange(n) % len(centres)] + 0.5 * torch.randn(n, d, generator=generator))


def noisy(keys: Tensor, b: int, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    some = keys[torch.randint(0, len(keys), (b,), generator=generator)]
    return some + 0.05 * torch.randn(some.shape, generator=generator)


KEYS = clustered(4000, 24)


@pytest.fixture(scope="module")
def ann() -> Ann:
    return build_ann(KEYS)


def test_the_recall_in_the_record_is_the_one_measured(ann: Ann) -> None:
    sample = noisy(KEYS, 200)
    built = build_ann(KEYS, queries=sample, k=5)
    assert (built.k, built.sample) == (5, 200)
    assert built.recall == recall(ann_top_k(sample, built, 5), top_k(sample, KEYS, 5)) >= 0.99
    assert ann.recall >= 0.99
    assert (ann.k, ann.sample) == (10, 512)
    assert 1 <= ann.probes < ann.lists


def test_fewer_lists_are_probed_where_less_is_asked_for() -> None:
    spread = normalize(torch.randn(4000, 24, generator=torch.Generator().manual_seed(2)))
    low, high, all_of_them = (build_ann(spread, target=target) for target in (0.3, 0.9, 1.0))
    assert low.probes < high.probes < all_of_them.probes
    assert low.recall < high.recall < all_of_them.recall
    assert min(high.recall - 0.9, low.recall - 0.3) >= 0
    assert all_of_them.recall == 1


@pytest.mark.parametrize("b", [1, 60])
def test_scores_are_those_of_the_exact_scan_bit_for_bit(ann: Ann, b: int) -> None:
    queries = noisy(KEYS, b)
    found, everything = ann_top_k(queries, ann, 10), top_k(queries, KEYS, len(KEYS))
    assert found.row.dtype == torch.int64
    by_row = torch.empty(b, len(KEYS)).scatter_(1, everything.row, everything.score)
    assert torch.equal(found.score, by_row.gather(1, found.row))
    assert recall(found, top_k(queries, KEYS, 10)) >= 0.95  # of so few queries
    assert (found.score.diff(dim=1) <= 0).all()


def test_all_lists_probed_give_the_exact_answer(ann: Ann) -> None:
    everything = Ann(ann.keys, ann.lists, ann.lists, 1.0, 10, 0, ann.index)
    queries = noisy(KEYS, 50)
    same(ann_top_k(queries, everything, 10), top_k(queries, KEYS, 10))


def same(found: TopK, wanted: TopK) -> None:
    assert torch.equal(found.row, wanted.row)
    assert torch.equal(found.score, wanted.score)


def test_the_same_index_each_time(ann: Ann) -> None:
    again = build_ann(KEYS)
    assert (again.lists, again.probes, again.recall) == (ann.lists, ann.probes, ann.recall)
    queries = noisy(KEYS, 100)
    narrow = [Ann(each.keys, each.lists, 1, 0.0, 10, 0, each.index) for each in (ann, again)]
    same(*(ann_top_k(queries, each, 30) for each in narrow))
    other = build_ann(KEYS, seed=5)
    moved = ann_top_k(queries, Ann(other.keys, other.lists, 1, 0.0, 10, 0, other.index), 30)
    assert not torch.equal(moved.row, ann_top_k(queries, narrow[0], 30).row)  # it would be seen


def test_k_is_cut_and_never_too_few_are_found() -> None:
    keys = clustered(400, 8)
    built = build_ann(keys, lists=50, target=0.1)
    narrow = Ann(built.keys, 50, 1, 0.0, 10, 0, built.index)
    queries = noisy(keys, 30)
    sizes = {built.index.get_list_size(i) for i in range(50)}
    assert min(sizes) < 4  # one list may hold too few, or enough, or enough and the margin
    assert max(sizes) > 12
    assert sizes & set(range(4, 12))
    found = ann_top_k(queries, narrow, 4)
    assert (found.row >= 0).all()
    assert torch.isfinite(found.score).all()
    assert all(len(set(row)) == 4 for row in found.row.tolist())
    same(ann_top_k(queries, narrow, 1000), top_k(queries, keys, 1000))
    assert ann_top_k(queries, built, 1000).row.shape == (30, 400)


def test_no_queries_and_few_keys() -> None:
    few = build_ann(torch.eye(3))
    assert few.lists == 1
    assert ann_top_k(torch.zeros(0, 3), few, 2).row.shape == (0, 2)
    assert ann_top_k(torch.eye(3), few, 9).row[:, 0].tolist() == [0, 1, 2]


def test_equal_keys_do_not_stop_it() -> None:
    built = build_ann(KEYS[:1].expand(500, -1))
    found = ann_top_k(KEYS[:1], built, 3)
    assert len(set(found.row[0].tolist())) == 3
    assert torch.equal(found.score, top_k(KEYS[:1], KEYS[:1], 1).score.expand(1, 3))


def test_a_recall_that_cannot_be_reached_is_reported() -> None:
    noise = torch.randn(1000, 24, generator=torch.Generator().manual_seed(3))
    close = normalize(KEYS[:1] + 1e-4 * noise)  # one byte a feature cannot tell these apart
    built = build_ann(torch.cat((KEYS[:1000], close)), queries=close[:50])
    assert built.probes == built.lists
    assert built.recall < 0.5


def test_packed_keys_are_indexed_as_their_numbers() -> None:
    packed = pack(KEYS[:1000], "int8")
    built = build_ann(packed, target=1.0)
    queries = noisy(KEYS[:1000], 20)
    found, exact = ann_top_k(queries, built, 5), top_k(queries, packed, 5)
    assert recall(found, exact) >= 0.95
    assert torch.equal(found.score[found.row == exact.row], exact.score[found.row == exact.row])


def test_autocast_and_other_precisions(ann: Ann) -> None:
    queries = noisy(KEYS, 20)
    wanted = ann_top_k(queries, ann, 5)
    with torch.autocast("cpu", torch.bfloat16):
        same(ann_top_k(queries, ann, 5), wanted)
    same(ann_top_k(queries.double(), ann, 5), wanted)
    same(ann_top_k(queries.t().contiguous().t(), ann, 5), wanted)


def test_without_faiss_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch, ann: Ann) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(UsageError, match=r"pip install .\.\[faiss\]"):
        build_ann(KEYS)
    with pytest.raises(UsageError, match=r"pip install .\.\[faiss\]"):
        ann_top_k(KEYS[:2], ann, 3)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_what_is_not_finite_is_named(ann: Ann, value: float) -> None:
    spoiled = KEYS.index_put((torch.tensor(7), torch.tensor(2)), torch.tensor(value))
    with pytest.raises(NonFiniteError, match=r"^key 7 is not finite"):
        build_ann(spoiled)
    with pytest.raises(NonFiniteError, match=r"^query 7 is not finite"):
        ann_top_k(spoiled[:20], ann, 3)
    with pytest.raises(NonFiniteError, match=r"^query 7 is not finite"):
        build_ann(KEYS, queries=spoiled[:20])


UNIT = torch.eye(4)
WRONG = {
    "length": lambda ann: build_ann(2 * UNIT),
    "zero": lambda ann: build_ann(torch.zeros(3, 2)),
    "no keys": lambda ann: build_ann(torch.zeros(0, 4)),
    "device": lambda ann: build_ann(UNIT.to("meta")),
    "k": lambda ann: build_ann(UNIT, k=0),
    "target": lambda ann: build_ann(UNIT, target=1.5),
    "lists": lambda ann: build_ann(UNIT, lists=5),
    "no lists": lambda ann: build_ann(UNIT, lists=0),
    "whole numbers": lambda ann: build_ann(UNIT.long()),
    "no sample": lambda ann: build_ann(UNIT, queries=UNIT[:0]),
    "width": lambda ann: ann_top_k(torch.zeros(2, 5), ann, 1),
    "asked k": lambda ann: ann_top_k(KEYS[:2], ann, 0),
    "whole queries": lambda ann: ann_top_k(KEYS[:2].long(), ann, 1),
    "queries elsewhere": lambda ann: ann_top_k(KEYS[:2].to("meta"), ann, 1),
}


@cases("name", WRONG)
def test_what_cannot_be_is_refused(ann: Ann, name: str) -> None:
    with pytest.raises(UsageError, match=r"must|needs"):
        WRONG[name](ann)


def test_the_benchmark_runs(tmp_path: Path) -> None:
    script = Path(__file__).parents[1] / "benchmarks/retrieval.py"
    command = [sys.executable, "-W", "error", str(script), "--quick", "--out", str(tmp_path / "results.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    written = json.loads((tmp_path / "results.json").read_text("utf-8"))
    assert [row["what"].split(",")[-1] for row in written["rows"]] == [
        " batch 256",
        *[" batch 1"] * 2,
        *[" batch 256"] * 2,
    ]
    assert all(row["recall"] >= 0.95 for row in written["rows"][3:])
    assert {"commit", "torch", "faiss", "threads", "device"} <= set(written)
    assert len(done.stdout.splitlines()) == 1 + len(written["rows"])

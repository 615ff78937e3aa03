"""Credit: equal to the weights of explanations, nobody for unsupported queries, nothing for withheld samples."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from provnet.answers.attributor import explain
from provnet.base.errors import DataError, NonFiniteError, UsageError
from provnet.runs import bank
from provnet.runs.run import Run
from provnet.tools.credit.compute import (
    UNLISTED,
    Credit,
    contributors_of,
    credit,
    gini,
    lorenz,
    rank_contributors,
    read_contributors,
)
from tests.cases import cases

from ..counts import count, grows
from ..digits import NETWORKS, trained, training, unseen
from .made import keyed

WHO = [("ann", "bob", "cid")[i % 3] if i % 7 else None for i in range(62)]


def supporting(run: Run, threshold: float = -1e9) -> Run:
    return replace(run, config=replace(run.config, support={**run.config.support, "threshold": threshold}))


@cache
def found(head: str, network: str, weights: str = "plain", k: int = 0) -> tuple[Run, Credit]:
    run = supporting(keyed(network) if head == "keys" else trained(network))
    return run, credit(run, unseen().images[:20], WHO, weights=weights, k=k, draws=50)


def by_explanation(run: Run, weights: str, k: int) -> dict[str, float]:
    """The same shares, out of explanations that name every sample."""
    shown = explain(run, unseen().images[:20], k=k, weights=weights)
    weight = np.where(shown.index >= 0, shown.weight, 0.0).astype(np.float64)
    weight /= weight.sum(1, keepdims=True)
    shares: dict[str, float] = {}
    for index, part in zip(shown.index.ravel(), weight.ravel(), strict=True):
        if index >= 0:
            name = WHO[index] or UNLISTED
            shares[name] = shares.get(name, 0.0) + float(part) / len(weight)
    return shares


@cases("head", ["outputs", "keys"])
@cases("network", NETWORKS)
@cases("k", [0, 4])
def test_shares_are_those_of_explanations(head: str, network: str, k: int) -> None:
    run, one = found(head, network, k=k)
    expected = by_explanation(run, "plain", k or 62)
    assert {row.name: row.share.value for row in one.ranking} == pytest.approx(expected, abs=2e-6)
    assert sum(row.share.value or 0 for row in one.ranking) == pytest.approx(1)
    assert one.by_sample.sum() == pytest.approx(1, abs=1e-5)
    assert one.supported == one.queries == 20


@pytest.mark.parametrize("head", ["outputs", "keys"])
def test_joint_weights_are_those_of_explanations(head: str) -> None:
    run, one = found(head, "class-independent", "joint")
    expected = by_explanation(run, "joint", 62)
    assert {row.name: row.share.value for row in one.ranking} == pytest.approx(expected, abs=2e-6)
    plain = {row.name: row.share.value for row in found(head, "class-independent")[1].ranking}
    assert plain != pytest.approx(expected, abs=1e-4)


def test_ranking_and_samples_belong_together() -> None:
    _, one = found("keys", "single")
    shares = [row.share.value or 0 for row in one.ranking]
    assert shares == sorted(shares, reverse=True)
    assert [row.rank for row in one.ranking] == [1, 2, 3, 4]
    for place, row in enumerate(one.ranking):
        own = one.group == place
        assert {WHO[i] or UNLISTED for i in np.flatnonzero(own)} == {row.name}
        assert one.by_sample[own].sum() == pytest.approx(row.share.value, abs=1e-5)
        assert one.by_query[:, place].mean() == pytest.approx(row.share.value)
        assert (row.share.low or 0) <= (row.share.value or 0) <= (row.share.high or 0)
        assert row.rank_low <= row.rank <= row.rank_high
        best = one.top(place, 3)
        assert one.by_sample[best[0]] == one.by_sample[own].max()
    assert one.ranking[[row.name for row in one.ranking].index(UNLISTED)].listed is False


def test_a_training_sample_credits_whoever_gave_it() -> None:
    run = supporting(keyed("single"))
    bobs = [i for i, name in enumerate(WHO) if name == "bob"]
    one = credit(run, training().images[bobs], WHO, k=1, draws=50)
    assert one.ranking[0].name == "bob"
    assert one.ranking[0].share.value == pytest.approx(1)
    assert one.ranking[0].first == 1
    assert one.ranking[0].lift == pytest.approx(62 / len(bobs))


def test_unsupported_queries_credit_nobody_and_are_counted() -> None:
    support = explain(keyed("single"), unseen().images[:20], k=1).support
    run = supporting(keyed("single"), float(np.sort(support)[8]))
    one = credit(run, unseen().images[:20], WHO, draws=50)
    assert (one.queries, one.supported, one.unsupported, one.unnamed) == (20, 12, 8, 0)
    assert one.ranking[0].share.n == 12
    credited = one.by_query.sum(1)
    assert (credited[support < np.sort(support)[8]] == 0).all()
    assert credited.sum() == pytest.approx(12)
    none = credit(supporting(keyed("single"), 1e9), unseen().images[:5], WHO, draws=50)
    assert (none.supported, none.unsupported) == (0, 5)
    assert all(row.share.value is None and "nobody" in row.share.why for row in none.ranking)
    assert none.gini.value is None
    assert none.lorenz == ()
    assert none.by_sample.sum() == 0


@pytest.mark.parametrize("network", ["single", "class-independent", "class-conditional"])
def test_withheld_samples_are_never_credited(network: str) -> None:
    bobs = [i for i, name in enumerate(WHO) if name == "bob"]
    run = bank.withhold(supporting(keyed(network)), [training().samples.sample_ids[i] for i in [*bobs, 2]])
    for k in (0, 3):
        one = credit(run, training().images, WHO, k=k, draws=50)
        assert one.withheld == len(bobs) + 1
        assert "bob" not in {row.name for row in one.ranking}
        assert (one.by_sample[[*bobs, 2]] == 0).all()
        assert (one.group[[*bobs, 2]] == -1).all()
        assert sum(row.share.value or 0 for row in one.ranking) == pytest.approx(1)


def test_a_query_whose_samples_are_all_withheld_is_counted_apart() -> None:
    run = supporting(keyed("class-conditional"))
    answers = explain(run, unseen().images[:20], k=1).predicted
    label = int(answers[0])
    ids = [name for name, c in zip(run.samples.sample_ids, run.samples.labels, strict=True) if c == label]
    one = credit(bank.withhold(run, ids), unseen().images[:20], WHO, draws=50)
    assert one.unnamed == int((answers == label).sum()) > 0
    assert one.supported == 20 - one.unnamed
    assert one.unsupported == 0


def test_one_query_has_no_interval_to_speak_of() -> None:
    one = credit(supporting(keyed("single")), unseen().images[:1], WHO, draws=50)
    assert (one.ranking[0].share.low, one.ranking[0].share.high) == (0, 1)
    assert (one.ranking[0].rank_low, one.ranking[0].rank_high) == (1, 4)


@cases(
    ("images", "who", "more", "words"),
    [
        (torch.zeros(2, 1, 28, 28), WHO[:5], {}, "5 contributors for 62 samples"),
        (torch.zeros(0, 1, 28, 28), WHO, {}, "no samples were given"),
        (torch.zeros(2, 1, 28, 28), WHO, {"k": -1}, "k must be 0"),
        (torch.zeros(2, 1, 28, 28), WHO, {"draws": 3}, "draws must be 20"),
        (torch.zeros(2, 1, 28, 28), WHO, {"weights": "none"}, 'unknown weights "none"'),
        (torch.zeros(2, 1, 28, 28), ["", *WHO[1:]], {}, "must not be called"),
        (torch.zeros(2, 1, 28, 28), [UNLISTED, *WHO[1:]], {}, "must not be called"),
    ],
)
def test_what_cannot_be_credited(images: torch.Tensor, who: list[str], more: dict[str, int], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        credit(keyed("single"), images, who, **more)  # type: ignore[arg-type]


def test_what_is_not_finite_credits_nobody() -> None:
    with pytest.raises(NonFiniteError):
        credit(keyed("single"), torch.full((1, 1, 28, 28), torch.nan), WHO)


@grows
def test_intervals_hold_the_true_share() -> None:
    chance, rounds, hits = np.random.default_rng(0), count(60, 2000), 0
    for seed in range(rounds):
        shares = chance.dirichlet([0.6, 0.3, 0.3], size=60)
        rows, _, _ = rank_contributors(["a", "b", "c"], np.ones(3, dtype=np.bool_), np.ones(3), shares, 200, seed)
        one = next(row for row in rows if row.name == "a")
        assert one.share.low is not None
        assert one.share.high is not None
        hits += one.share.low <= 0.5 <= one.share.high
    assert 0.88 <= hits / rounds <= 0.985


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30), st.floats(0.1, 100))
def test_gini_is_twice_the_area_over_the_lorenz_curve(values: list[float], factor: float) -> None:
    shares = np.array(values)
    found = gini(shares)
    assert 0 <= found <= (len(values) - 1) / len(values) + 1e-9
    assert gini(shares * factor) == pytest.approx(found, abs=1e-9)
    points = np.array(lorenz(shares))
    if shares.sum() > 0:
        assert points[0].tolist() == [0, 0]
        assert points[-1].tolist() == [1, 1]
        assert 1 - 2 * np.trapezoid(points[:, 1], points[:, 0]) == pytest.approx(found, abs=1e-6)
        assert (np.diff(points[:, 1]) >= -1e-12).all()


@pytest.mark.parametrize("bad", [[-1.0, 2.0], [np.nan, 1.0], [np.inf]])
def test_shares_that_are_none(bad: list[float]) -> None:
    with pytest.raises(UsageError):
        gini(np.array(bad))


def write(folder: Path, text: str) -> Path:
    path = folder / "sources.csv"
    path.write_text(text, encoding="utf-8")
    return path


@cases(
    ("text", "words"),
    [
        ("", "row 1: the header must name sample_id, contributor"),
        ("id,who\na,b\n", "row 1"),
        ("sample_id,contributor,contributor\na,b,c\n", "row 1"),
        ("sample_id,contributor\na\n", "row 2: 1 cells"),
        ("sample_id,contributor\na,Ann\n,Bob\n", "row 3: sample_id and contributor must not be empty"),
        ("sample_id,contributor\na,Ann\n\na,Bob\n", 'row 4: a stands in row 2 already, with "Ann"'),
        ('sample_id,contributor\n"a,b\n', "cannot be parsed"),
        ("sample_id,contributor\n", "names no samples"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        read_contributors(write(tmp_path, text))


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "sources.csv").write_bytes(b"sample_id,contributor\na,\xff\n")
    with pytest.raises(DataError, match="UTF-8"):
        read_contributors(tmp_path / "sources.csv")


def test_missing_samples_and_unknown_ids_are_counted(tmp_path: Path) -> None:
    samples = training().samples
    ids = samples.sample_ids
    path = write(tmp_path, f"contributor,sample_id,more\r\n Ann ,{ids[3]},x\r\nBob,{ids[5]},y\r\nCid,nowhere,z\r\n")
    found = contributors_of(samples, path)
    assert (found.names[3], found.names[5], found.names[4]) == ("Ann", "Bob", None)
    assert (found.unlisted, found.strangers) == (60, 1)
    strange = write(tmp_path, "sample_id,contributor\ntrain/x,Ann\n")
    with pytest.raises(DataError, match="none of its 1 ids is a sample of the run"):
        contributors_of(samples, strange)


def test_the_runs_own_sources_serve_without_a_file() -> None:
    samples = training().samples
    with pytest.raises(UsageError, match=r"--by FILE.*a column source, an \.npz with an array sources"):
        contributors_of(samples, None)
    given = replace(samples, sources=("Ann", "", *[None] * 60))
    found = contributors_of(given, None)
    assert found.names[:3] == ("Ann", None, None)
    assert (found.unlisted, found.about) == (61, "the sources of the training data")

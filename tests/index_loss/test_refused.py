"""What is not a number stays in its row and is no hit; what cannot be is refused in words."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from provnet.base.errors import UsageError
from provnet.heads import losses as index_loss
from provnet.heads import losses as sampled_loss
from tests.cases import cases
from tests.index_loss.made import make, ours, sampled


@pytest.mark.parametrize("span", [False, True])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_feature_that_is_not_finite_gives_nan_in_its_row_alone(bad: float, span: bool) -> None:
    case = make(span=span, smoothing=0.1)
    wanted = ours(case)
    features = case.features.clone()
    features[2, 1] = bad
    for chunk in (1, 4, 100):
        found = ours(replace(case, features=features), chunk)
        assert found.loss.isnan().tolist() == [False, False, True, False, False]
        assert not found.hit[2]
        others = torch.tensor([0, 1, 3, 4])
        torch.testing.assert_close(found.loss[others], wanted.loss[others])


@pytest.mark.parametrize("row", [0, 7, 10])
def test_a_key_that_is_not_a_number_gives_nan_wherever_it_stands(row: int) -> None:
    case = make()
    keys = case.keys.clone()
    keys[row, 0] = torch.nan
    found = ours(replace(case, keys=keys))
    assert found.loss.isnan().all()
    assert not found.hit.any()


def test_a_target_that_names_no_key_gives_nan_in_its_row_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (index_loss, sampled_loss):  # as on a GPU, where targets are not read back
        monkeypatch.setattr(module, "check_given", lambda *given: None)
    case = make()
    features = case.features.clone().requires_grad_()
    target = case.target.clone()
    target[1] = -1
    loss, hit = ours(replace(case, features=features, target=target))
    (gradient,) = torch.autograd.grad(loss.sum(), features)
    assert loss.isnan().tolist() == gradient.isnan().all(1).tolist() == [False, True, False, False, False]
    assert gradient.isnan().sum() == 3
    assert not hit[1]
    assert sampled(replace(case, target=target), 0.6).loss.isnan().tolist() == [False, True, False, False, False]


def test_an_infinite_score_is_no_hit() -> None:
    case = make()
    features, keys = case.features.clone(), case.keys.clone()
    features[0] = 1.0
    keys[case.target[0]] = torch.inf
    found = ours(replace(case, features=features, keys=keys))
    assert found.loss.isnan()[0]
    assert not found.hit[0]


REFUSED: list[tuple[str, Callable[[Any], Any], str]] = [  # what, how it is changed, words of the message
    ("features", lambda x: x[0], r"features and keys must be .*\(3,\) and \(11, 3\)"),
    ("features", lambda x: x[:, :2], r"the same D .* \(5, 2\) and \(11, 3\)"),
    ("keys", lambda x: x[:0], "N of 1 or more"),
    ("keys", lambda x: x.long(), "keys must be one of float32, .*int64; convert it"),
    ("keys", lambda x: x.to("meta"), "one device, .*keys on meta"),
    ("target", lambda x: x[:4], r"one int64 key number per row, shape \(5,\), got \(4,\)"),
    ("target", lambda x: x.int(), "got .* torch.int32"),
    ("target", lambda x: x - 11, r"targets must lie in \[0, 11\), got -"),
    ("target", lambda x: x * 0 + 11, r"targets must lie in \[0, 11\), got 11"),
    ("smoothing", lambda x: 1.5, r"smoothing must lie in \[0, 1\], got 1.5"),
    ("smoothing", lambda x: math.nan, "got nan"),
    ("span", lambda x: (x[0][:4], x[1]), r"got first of \(4,\)"),
    ("span", lambda x: (x[0], x[1].int()), r"got end of \(5,\) torch.int32"),
    ("span", lambda x: (x[0].to("meta"), x[1]), "got first of .* on meta"),
    ("span", lambda x: (x[1], x[1]), r"must lie in its span.* row 0 has target \d+ and span \["),
    ("span", lambda x: (x[0], x[0]), "row 0 has target"),
    ("span", lambda x: (x[0], x[1] * 0 + 12), r"the span in \[0, 11\); row 0 .*, 12\)"),
    ("span", lambda x: (x[0] * 0 - 1, x[1]), r"the span in \[0, 11\); row 0 .*\[-1, "),
]


@cases(("name", "change", "words"), REFUSED)
def test_what_cannot_be_is_refused_in_words(name: str, change: Callable[[Any], Any], words: str) -> None:
    case = make(span=True)
    with pytest.raises(UsageError, match=words):
        ours(replace(case, **{name: change(getattr(case, name))}))


def test_a_chunk_of_no_keys_is_refused() -> None:
    with pytest.raises(UsageError, match="chunk must be 1 key or more, got 0"):
        ours(make(), chunk=0)


def test_one_bad_row_among_good_spans_is_named() -> None:
    case = make(span=True)
    assert case.span is not None
    end = case.span[1].clone()
    end[3] = case.target[3]
    with pytest.raises(UsageError, match="row 3 has target"):
        ours(replace(case, span=(case.span[0], end)))

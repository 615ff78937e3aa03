"""The chunked index loss: equal to plain cross-entropy in losses, gradients and hits, without its (B, N) tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from provnet import index_loss, sampled_loss
from provnet.errors import UsageError
from provnet.index_loss import IndexLoss, index_cross_entropy
from provnet.sampled_loss import sampled_cross_entropy
from tests.counts import count, grows

WEIGHT = 2.0  # of the last row's loss, when gradients are compared
RTOL = {torch.float32: 1e-6, torch.float64: 1e-10}
NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible")


Found = tuple[IndexLoss, list[Tensor]]  # with the gradients of what has one


@dataclass(frozen=True)
class Case:
    """Inputs of the loss."""

    features: Tensor
    keys: Tensor
    target: Tensor
    bias: Tensor | None
    scale: Tensor
    span: tuple[Tensor, Tensor] | None = None
    smoothing: float = 0.0

    @property
    def tensors(self) -> list[Tensor]:
        """What can have a gradient."""
        return [x for x in (self.features, self.keys, self.bias, self.scale) if x is not None]

    @property
    def options(self) -> dict[str, Any]:
        return {"bias": self.bias, "scale": self.scale, "smoothing": self.smoothing}

    def to(self, device: str) -> Case:
        moved = {name: x.to(device) for name, x in vars(self).items() if isinstance(x, Tensor)}
        span = None if self.span is None else (self.span[0].to(device), self.span[1].to(device))
        return replace(self, **moved, span=span)


def make(
    b: int = 5,
    n: int = 11,
    d: int = 3,
    *,
    span: bool = False,
    bias: bool = True,
    smoothing: float = 0.0,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
) -> Case:
    """Random unit features and keys, so that scores are of the size that the head makes."""
    torch.manual_seed(seed)
    target = torch.randint(n, (b,))
    first = (torch.rand(b) * (target + 1)).long()  # 0..target
    end = target + 1 + (torch.rand(b) * (n - target)).long()  # target + 1..n
    return Case(
        F.normalize(torch.randn(b, d, dtype=dtype), dim=1),
        F.normalize(torch.randn(n, d, dtype=dtype), dim=1),
        target,
        torch.randn(n, dtype=dtype) if bias else None,
        torch.tensor(6.0, dtype=dtype),
        (first, end) if span else None,
        smoothing,
    )


def ours(case: Case, chunk: int = 4) -> IndexLoss:
    return index_cross_entropy(case.features, case.keys, case.target, **case.options, span=case.span, chunk=chunk)


def plain(case: Case) -> IndexLoss:
    """The same from the whole (B, N) scores, each row cut to its span."""
    scores = case.scale * case.features @ case.keys.T
    scores = scores if case.bias is None else scores + case.bias
    first, end = case.span or (torch.zeros_like(case.target), torch.full_like(case.target, len(case.keys)))
    losses, hits = [], []
    for row, target, low, high in zip(scores, case.target, first.tolist(), end.tolist(), strict=True):
        losses.append(F.cross_entropy(row[low:high], target - low, label_smoothing=case.smoothing))
        hits.append(row[target] == row[low:high].max())
    return IndexLoss(torch.stack(losses), torch.stack(hits))


def with_gradients(loss: Callable[[Case], IndexLoss], case: Case) -> Found:
    """The losses, the hits and the gradients of everything, each row weighted differently."""
    leaves = [x.clone().requires_grad_() for x in case.tensors]
    rest = iter(leaves)
    names = ("features", "keys", "bias", "scale")
    found = loss(replace(case, **{name: next(rest) for name in names if getattr(case, name) is not None}))
    weights = torch.linspace(0.5, WEIGHT, len(case.features), dtype=found.loss.dtype, device=found.loss.device)
    return found, list(torch.autograd.grad((found.loss * weights).sum(), leaves))


def assert_near(got: Found, wanted: Found, tolerance: float) -> None:
    """Losses and each gradient differ from the wanted ones by `tolerance` of the length of these."""
    for x, y in zip([got[0].loss, *got[1]], [wanted[0].loss, *wanted[1]], strict=True):
        assert x.dtype == y.dtype
        assert float((x.cpu() - y).detach().norm()) <= tolerance * float(y.detach().norm())


def assert_equal(case: Case, chunk: int) -> None:
    """Losses to RTOL of the scores, gradients to RTOL of the terms that they sum up chunk by chunk; the same hits."""
    rtol, scale = RTOL[case.features.dtype], float(case.scale)
    (loss, hit), gradients = with_gradients(lambda c: ours(c, chunk), case)
    (wanted, wanted_hit), wanted_gradients = with_gradients(plain, case)
    torch.testing.assert_close(loss, wanted, rtol=rtol, atol=rtol * scale)
    terms = WEIGHT * scale * math.sqrt(math.ceil(len(case.keys) / chunk))
    torch.testing.assert_close(gradients, wanted_gradients, rtol=rtol, atol=rtol * terms)
    assert hit.dtype == torch.bool
    assert not hit.requires_grad
    assert torch.equal(hit, wanted_hit)


@grows
@settings(max_examples=count(100, 5000), deadline=None)
@given(
    b=st.integers(1, 9),
    n=st.integers(1, 40),
    d=st.integers(1, 8),
    chunk=st.integers(1, 50),
    span=st.booleans(),
    bias=st.booleans(),
    smoothing=st.sampled_from([0.0, 0.1, 1.0]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    seed=st.integers(0, 2**16),
)
def test_equals_plain_cross_entropy(chunk: int, **drawn: Any) -> None:
    assert_equal(make(**drawn), chunk)


@pytest.mark.parametrize("dtype", RTOL)
@pytest.mark.parametrize("span", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_equals_plain_cross_entropy_in_a_real_size(dtype: torch.dtype, span: bool, smoothing: float) -> None:
    case = make(64, 3000, 32, dtype=dtype, span=span, smoothing=smoothing)
    got, wanted = with_gradients(lambda c: ours(c, 700), case), with_gradients(plain, case)
    assert_near(got, wanted, RTOL[dtype])
    assert torch.equal(got[0].hit, wanted[0].hit)


@pytest.mark.parametrize("chunk", [1, 4, 11, 100])
@pytest.mark.parametrize("span", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_gradients_are_those_of_the_loss(smoothing: float, span: bool, chunk: int) -> None:
    case = make(span=span, smoothing=smoothing)

    def loss(features: Tensor, keys: Tensor, bias: Tensor, scale: Tensor) -> Tensor:
        return ours(replace(case, features=features, keys=keys, bias=bias, scale=scale), chunk).loss

    assert torch.autograd.gradcheck(loss, [x.clone().requires_grad_() for x in case.tensors])


@pytest.mark.parametrize("chunk", [1, 3, 50])
def test_keys_outside_the_span_are_as_if_they_scored_minus_infinity(chunk: int) -> None:
    case = make(6, 40, 3)
    target = torch.tensor([3, 4, 9, 3, 20, 24])
    span = torch.tensor([0, 0, 5, 0, 20, 20]), torch.tensor([5, 5, 10, 5, 25, 25])
    case = replace(case, target=target, span=span)
    (loss, hit), gradients = with_gradients(lambda c: ours(c, chunk), case)
    numbers = torch.arange(40)
    inside = (numbers >= span[0].unsqueeze(1)) & (numbers < span[1].unsqueeze(1))

    def masked(c: Case) -> IndexLoss:
        scores = (c.scale * c.features @ c.keys.T + c.bias).masked_fill(~inside, -torch.inf)
        return IndexLoss(F.cross_entropy(scores, target, reduction="none"), scores.argmax(1) == target)

    (wanted, wanted_hit), wanted_gradients = with_gradients(masked, case)
    torch.testing.assert_close([loss, *gradients], [wanted, *wanted_gradients], rtol=1e-10, atol=1e-10)
    assert torch.equal(hit, wanted_hit)
    seen = inside.any(0)
    assert torch.equal(gradients[1].abs().sum(1) > 0, seen)  # exactly zero outside
    assert torch.equal(gradients[2] != 0, seen)


def test_a_span_of_all_keys_is_no_span() -> None:
    case = make(smoothing=0.1)
    whole = replace(case, span=(torch.zeros(5, dtype=torch.int64), torch.full((5,), 11)))
    for got, want in zip(ours(whole), ours(case), strict=True):
        torch.testing.assert_close(got, want)


def test_what_lies_outside_the_span_does_not_matter_however_bad() -> None:
    case = make(1, 4, 2, span=True, smoothing=0.1, bias=False)
    case = replace(case, target=torch.tensor([1]), span=(torch.tensor([1]), torch.tensor([3])))
    wanted = ours(case).loss
    for bad in (torch.nan, torch.inf, 1e308):
        keys = case.keys.clone()
        keys[3] = keys[0] = bad
        for chunk in (1, 2, 4):
            torch.testing.assert_close(ours(replace(case, keys=keys), chunk).loss, wanted)


def test_a_tie_is_a_hit_whichever_of_the_equal_keys_is_meant() -> None:
    keys = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [-1.0, 0.0]])
    features = torch.tensor([[1.0, 0.0]]).expand(4, 2)
    for chunk in (1, 2, 4):
        found = index_cross_entropy(features, keys, torch.arange(4), chunk=chunk)
        assert found.hit.tolist() == [True, False, True, False]


def test_a_plain_number_is_a_scale_too() -> None:
    case = make(smoothing=0.1)
    found = index_cross_entropy(case.features, case.keys, case.target, bias=case.bias, scale=6.0, smoothing=0.1)
    torch.testing.assert_close(found.loss, ours(case).loss)


def test_a_small_loss_under_large_scores_keeps_its_digits() -> None:
    features, keys, target = torch.tensor([[1.0]]), torch.tensor([[100.0], [90.0], [0.0]]), torch.tensor([0])
    exact = F.cross_entropy((features @ keys.T).double(), target, reduction="none")
    loss = index_cross_entropy(features, keys, target, chunk=1).loss.double()
    torch.testing.assert_close(
        loss, exact, rtol=0, atol=torch.finfo(torch.float32).eps
    )  # scores of 100 round to 64 eps


def test_a_bias_of_minus_infinity_takes_a_key_out() -> None:
    case = make(3, 5, 2)
    bias = torch.tensor([-torch.inf, -torch.inf, 0.0, 0.0, 0.0], dtype=torch.float64)
    case = replace(case, target=torch.tensor([2, 3, 4]), bias=bias)
    without = replace(case, target=case.target - 2, bias=bias[2:], keys=case.keys[2:])
    for chunk in (1, 2, 5):
        torch.testing.assert_close(ours(case, chunk), ours(without))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_summed_in_full_on_a_cpu(dtype: torch.dtype) -> None:
    case = make(8, 200, 16, bias=False, dtype=torch.float32)
    half = replace(case, features=case.features.to(dtype), keys=case.keys.to(dtype))
    full = replace(case, features=half.features.float(), keys=half.keys.float())
    (loss, hit), gradients = with_gradients(lambda c: ours(c, 30), half)
    (wanted, wanted_hit), wanted_gradients = with_gradients(plain, full)
    torch.testing.assert_close(loss, wanted)
    assert torch.equal(hit, wanted_hit)
    assert [x.dtype for x in gradients] == [dtype, dtype, torch.float32]
    torch.testing.assert_close(gradients, [x.to(g.dtype) for x, g in zip(wanted_gradients, gradients, strict=True)])


@pytest.mark.parametrize("span", [False, True])
def test_a_batch_of_none_has_no_losses(span: bool) -> None:
    (loss, hit), gradients = with_gradients(ours, make(0, span=span))
    assert loss.shape == hit.shape == (0,)
    assert all(not x.any() for x in gradients)


# what is not a number


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
    case = make(bias=False)
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
    case = make(bias=False)
    bias = torch.zeros(11, dtype=torch.float64)
    bias[case.target[0]] = torch.inf
    found = ours(replace(case, bias=bias))
    assert found.loss.isnan()[0]
    assert not found.hit[0]


# what is refused


REFUSED: list[tuple[str, Callable[[Any], Any], str]] = [  # what, how it is changed, words of the message
    ("features", lambda x: x[0], r"features and keys must be .*\(3,\) and \(11, 3\)"),
    ("features", lambda x: x[:, :2], r"the same D .* \(5, 2\) and \(11, 3\)"),
    ("keys", lambda x: x[:0], "N of 1 or more"),
    ("keys", lambda x: x.long(), "keys must be one of float32, .*int64; convert it"),
    ("keys", lambda x: x.to("meta"), "one device, .*keys on meta"),
    ("target", lambda x: x[:4], r"one int64 key number a row, shape \(5,\), got \(4,\)"),
    ("target", lambda x: x.int(), "got .* torch.int32"),
    ("target", lambda x: x - 11, r"targets must lie in \[0, 11\), got -"),
    ("target", lambda x: x * 0 + 11, r"targets must lie in \[0, 11\), got 11"),
    ("bias", lambda x: x[:4], r"bias must be one value a key, shape \(11,\), got \(4,\)"),
    ("scale", lambda x: torch.ones(2), r"scale must be one number, got .* \(2,\)"),
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


@pytest.mark.parametrize(("name", "change", "words"), REFUSED)
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


# nothing waits, nothing is large


@pytest.mark.parametrize("span", [False, True])
def test_no_value_is_read_back_from_a_device(span: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "autocast", lambda *given, **options: nullcontext())  # meta knows no autocast
    case = make(span=span, smoothing=0.1).to("meta")  # has no values: reading one is an error
    for loss in (ours, lambda c: sampled(c, 0.7)):
        found, gradients = with_gradients(loss, case)
        assert [x.device.type for x in (*found, *gradients)] == ["meta"] * 6
        assert [x.shape for x in gradients] == [x.shape for x in case.tensors]


class Largest(TorchDispatchMode):
    """The most numbers in any tensor that is made, views of what was given aside."""

    def __init__(self, given: list[Tensor]) -> None:
        super().__init__()
        self.given = {x.untyped_storage().data_ptr() for x in given}
        self.numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for x in tree_leaves(made):
            if isinstance(x, Tensor) and x.untyped_storage().data_ptr() not in self.given:
                self.numel = max(self.numel, x.numel())
        return made


def largest_of(loss: Callable[[Case], IndexLoss], case: Case, *, train_keys: bool) -> int:
    case = replace(case, features=case.features.requires_grad_(), keys=case.keys.requires_grad_(train_keys))
    with Largest(case.tensors) as largest:
        loss(case).loss.sum().backward()
    assert case.features.grad is not None
    assert (case.keys.grad is not None) == train_keys
    return largest.numel


@pytest.mark.parametrize("span", [False, True])
def test_no_tensor_is_larger_than_a_chunk_of_scores_or_the_keys(span: bool) -> None:
    b, n, d, chunk = 64, 2000, 16, 100

    def largest(loss: Callable[[Case], IndexLoss], train_keys: bool) -> int:
        return largest_of(loss, make(b, n, d, span=span, smoothing=0.1), train_keys=train_keys)

    assert largest(lambda c: ours(c, chunk), train_keys=True) == n * d > b * chunk
    assert largest(lambda c: ours(c, chunk), train_keys=False) <= b * chunk  # and no gradient of the keys
    assert largest(lambda c: ours(c, 1000), train_keys=True) <= b * 1000
    assert largest(plain, train_keys=True) >= b * n  # the same count sees the scores of the plain loss


# sampled


def sampled(case: Case, rate: float, seed: int = 0) -> IndexLoss:
    drawing = {"rate": rate, "generator": torch.Generator().manual_seed(seed)}
    return sampled_cross_entropy(case.features, case.keys, case.target, **case.options, **drawing)


def drawn_keys(case: Case, rate: float, seed: int) -> Tensor:
    """Which keys the loss looks at, (N,) bool: those that make it NaN when they are."""
    found = []
    for row in range(len(case.keys)):
        keys = case.keys.clone()
        keys[row] = torch.nan
        found.append(bool(sampled(replace(case, keys=keys), rate, seed).loss.isnan().all()))
    return torch.tensor(found)


@settings(max_examples=40, deadline=None)
@given(b=st.integers(1, 9), n=st.integers(1, 30), rate=st.floats(0.01, 1), seed=st.integers(0, 2**16))
def test_the_targets_are_always_in_the_sample(b: int, n: int, rate: float, seed: int) -> None:
    case = make(b, n, seed=seed)
    drawn = drawn_keys(case, rate, seed)
    assert drawn[case.target].all()
    assert drawn.sum() == max(math.ceil(rate * n), min(b, n))


def test_the_other_keys_are_drawn_evenly() -> None:
    case = replace(make(2, 12), target=torch.tensor([3, 7]))
    times = torch.stack([drawn_keys(case, 0.5, seed) for seed in range(150)]).double().mean(0)
    others = torch.ones(12, dtype=torch.bool)
    others[case.target] = False
    assert times[case.target].tolist() == [1, 1]
    assert (times[others] - 0.4).abs().max() < 0.16  # 4 of 10, within four standard deviations


@settings(max_examples=40, deadline=None)
@given(b=st.integers(1, 9), n=st.integers(1, 30), rate=st.floats(0.01, 1), seed=st.integers(0, 2**16))
def test_a_sampled_loss_is_never_above_the_exact_one(b: int, n: int, rate: float, seed: int) -> None:
    case = make(b, n, seed=seed)
    some, exact = sampled(case, rate, seed), ours(case)
    assert (some.loss <= exact.loss + 1e-12).all()
    assert (some.hit >= exact.hit).all()


def test_a_sample_of_all_keys_is_exact() -> None:
    case = make(smoothing=0.1)
    found, gradients = with_gradients(lambda c: sampled(c, 1.0), case)
    wanted, wanted_gradients = with_gradients(ours, case)
    torch.testing.assert_close([*found, *gradients], [*wanted, *wanted_gradients])


def test_the_loss_of_a_sample_is_that_of_its_keys_alone() -> None:
    case = make(3, 20, smoothing=0.1)
    rows = drawn_keys(case, 0.3, seed=5).nonzero().squeeze(1)
    assert case.bias is not None
    alone = replace(case, keys=case.keys[rows], bias=case.bias[rows], target=torch.searchsorted(rows, case.target))
    torch.testing.assert_close(sampled(case, 0.3, seed=5), plain(alone))


def test_the_generator_decides_the_sample() -> None:
    case = make(2, 100)
    torch.testing.assert_close(sampled(case, 0.2, seed=1), sampled(case, 0.2, seed=1), rtol=0, atol=0)
    assert not torch.equal(sampled(case, 0.2, seed=1).loss, sampled(case, 0.2, seed=2).loss)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.5, float("nan")])
def test_a_rate_that_is_no_share_is_refused(rate: float) -> None:
    with pytest.raises(UsageError, match=r"rate must lie in \(0, 1\]"):
        sampled(make(), rate)


def test_a_sampled_target_that_names_no_key_is_refused_before_the_draw() -> None:
    with pytest.raises(UsageError, match=r"targets must lie in \[0, 11\), got 11"):
        sampled(replace(make(), target=torch.full((5,), 11)), 0.5)


# on a GPU; run by hand there: `python -m pytest -m gpu tests/test_index_loss.py`


@pytest.mark.gpu
@NO_GPU
@pytest.mark.parametrize("dtype", RTOL)
@pytest.mark.parametrize("span", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_gpu_finds_what_a_cpu_finds(dtype: torch.dtype, span: bool, smoothing: float) -> None:
    case = make(64, 3000, 32, dtype=dtype, span=span, smoothing=smoothing)
    got, wanted = with_gradients(lambda c: ours(c, 700), case.to("cuda")), with_gradients(plain, case)
    assert_near(got, wanted, 2 * RTOL[dtype])
    assert torch.equal(got[0].hit.cpu(), wanted[0].hit)


@pytest.mark.gpu
@NO_GPU
@pytest.mark.parametrize("span", [False, True])
def test_bfloat16_on_a_gpu_is_near(span: bool) -> None:
    case = make(64, 3000, 32, dtype=torch.float32, span=span)
    with torch.autocast("cuda", torch.bfloat16):
        got = with_gradients(lambda c: ours(c, 700), case.to("cuda"))
    wanted = with_gradients(plain, case)
    assert_near(got, wanted, 0.02)
    assert (got[0].hit.cpu() == wanted[0].hit).double().mean() > 0.95


@pytest.mark.gpu
@NO_GPU
def test_a_target_outside_on_a_gpu_gives_nan_in_its_row_alone() -> None:
    case = make(span=True)
    assert case.span is not None
    first, end = (x.clone() for x in case.span)
    end[1] = case.target[1]
    first[2] = case.target[2] + 1
    end[3] = 12
    target = case.target.clone()
    target[4] = 11
    bad = replace(case, target=target, span=(first, end)).to("cuda")
    without = replace(case, target=target).to("cuda")
    for found, rows in ((ours(bad), [1, 2, 3, 4]), (ours(replace(without, span=None)), [4])):
        assert found.loss.isnan().nonzero().squeeze(1).tolist() == rows
        assert not found.hit[rows].any()
    assert sampled(without, 0.7).loss.isnan().nonzero().squeeze(1).tolist() == [4]

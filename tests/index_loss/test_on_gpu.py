"""The index loss on a GPU; run by hand there: `python -m pytest -m gpu tests/index_loss`."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.index_loss.made import NO_GPU, RTOL, assert_near, make, ours, plain, sampled, with_gradients


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

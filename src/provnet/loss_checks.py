"""What the index losses refuse, in one line each.

Letters: B batch, D features, N samples (one key each).
"""

from __future__ import annotations

import torch
from torch import Tensor

from provnet.errors import UsageError

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def check_given(
    features: Tensor,
    keys: Tensor,
    target: Tensor,
    bias: Tensor | None,
    scale: float | Tensor,
    smoothing: float,
    chunk: int,
    total: int | None = None,
) -> None:
    """Refuse what cannot be, in one line each."""
    if features.ndim != 2 or keys.ndim != 2 or features.shape[1] != keys.shape[1] or len(keys) == 0:
        given = f"{tuple(features.shape)} and {tuple(keys.shape)}"
        raise UsageError(f"features and keys must be (B, D) and (N, D) with the same D and N of 1 or more, got {given}")
    if target.shape != features.shape[:1] or target.dtype != torch.int64:
        given = f"{tuple(target.shape)} {target.dtype}"
        raise UsageError(f"target must be one int64 key number a row, shape ({len(features)},), got {given}")
    if bias is not None and bias.shape != keys.shape[:1]:
        raise UsageError(f"bias must be one value a key, shape ({len(keys)},), got {tuple(bias.shape)}")
    if isinstance(scale, Tensor) and scale.numel() != 1:
        raise UsageError(f"scale must be one number, got a tensor of shape {tuple(scale.shape)}")
    if not 0 <= smoothing <= 1:
        raise UsageError(f"label smoothing must lie in [0, 1], got {smoothing}")
    if chunk < 1:
        raise UsageError(f"chunk must be 1 key or more, got {chunk}")
    named = {"features": features, "keys": keys, "bias": bias, "scale": scale, "target": target}
    tensors = {name: x for name, x in named.items() if isinstance(x, Tensor)}
    for name, x in tensors.items():
        if name != "target" and x.dtype not in FLOATS:
            allowed = ", ".join(str(dtype).removeprefix("torch.") for dtype in FLOATS)
            raise UsageError(f"{name} must be one of {allowed}, got {x.dtype}; convert it first")
    if len({x.device for x in tensors.values()}) > 1:
        devices = ", ".join(f"{name} on {x.device}" for name, x in tensors.items())
        raise UsageError(f"all tensors must be on one device, got {devices}; move them with .to(device)")
    if target.device.type == "cpu" and len(target) > 0:
        low, high = (int(x) for x in target.aminmax())
        n = len(keys) if total is None else total
        if low < 0 or high >= n:
            raise UsageError(f"targets must lie in [0, {n}), got {low if low < 0 else high}")


def check_span(span: tuple[Tensor, Tensor], target: Tensor, n: int) -> tuple[Tensor, Tensor | None]:
    """Targets, -1 where one lies outside its span on a GPU, and on a CPU the order of the rows by first key."""
    for name, x in zip(("first", "end"), span, strict=True):
        if x.shape != target.shape or x.dtype != torch.int64 or x.device != target.device:
            given = f"{tuple(x.shape)} {x.dtype} on {x.device}"
            wanted = f"one int64 key number a row, shape ({len(target)},), on {target.device}"
            raise UsageError(f"span is (first, end), each {wanted}; got {name} of {given}")
    first, end = span
    good = (first >= 0) & (first <= target) & (target < end) & (end <= n)
    if target.device.type != "cpu":
        return torch.where(good, target, -1), None
    if not bool(good.all()):
        row = int((~good).nonzero()[0])
        given = f"row {row} has target {int(target[row])} and span [{int(first[row])}, {int(end[row])})"
        raise UsageError(f"a target must lie in its span, and the span in [0, {n}); {given}")
    return target, first.argsort()

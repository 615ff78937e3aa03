"""Cross-entropy over one key per training sample that never holds the (B, N) scores.

The keys are read in chunks. Forward keeps a running maximum and a running sum of exponentials per row; backward makes
the scores of each chunk again. Memory is B·chunk and the gradients asked for, instead of several times B·N.

Letters: B batch, D features, N samples (one key each), n keys of a chunk, b rows of the batch that need the chunk.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from provnet.loss_checks import check_given, check_span
from provnet.sharding import Shard, max_over, sum_over


class IndexLoss(NamedTuple):
    """One loss a row, (B,), and whether its target scored at least as high as every other key, (B,) bool."""

    loss: Tensor
    hit: Tensor


def index_cross_entropy(
    features: Tensor,
    keys: Tensor,
    target: Tensor,
    *,
    bias: Tensor | None = None,
    scale: float | Tensor = 1.0,
    smoothing: float = 0.0,
    span: tuple[Tensor, Tensor] | None = None,
    shard: Shard | None = None,
    chunk: int = 8192,
) -> IndexLoss:
    """Exact cross-entropy of `scale * features @ keys.T + bias`: (B, D), (N, D), (B,) -> loss and hit, both (B,).

    Equal to F.cross_entropy, smoothing included, up to rounding. Scores, sums and losses are float32 (float64 for
    float64); bfloat16 and autocast to it only round the factors of the products, and that only on a GPU. Gradients are
    made for what asks for one, so keys that are a plain buffer cost no (N, D) gradient; change such keys after the
    backward pass, not before. A bias of -inf takes a key out (with smoothing the loss is then infinite). `chunk` is how
    many keys are scored at a time: a GPU with millions of keys is faster with more than the default.

    `span` is (first, end), both (B,) int64: row b looks only at the keys first[b] <= row < end[b], as if the others
    scored -inf; smoothing spreads over the span. For keys sorted by class and queries that look within one class. On a
    CPU a chunk is scored only for rows whose span reaches into it; a GPU scores all and masks, so as not to wait.

    With a `shard` the keys are the rows of this process, targets and spans count over all rows, and every process gives
    the same features; each gets the loss over all keys, and gradients of its own keys' part.

    `hit` carries no gradient. A tie counts as a hit, and a loss of NaN never does. On a GPU nothing is read back to be
    checked: a target that names no key, or none of its span, gives NaN as loss and as gradient; on a CPU it is refused.

    >>> features, keys = torch.eye(2), torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> found = index_cross_entropy(features, keys, torch.tensor([0, 2]), scale=2.0, chunk=2)
    >>> [round(loss, 4) for loss in found.loss.tolist()], found.hit.tolist()
    ([0.7586, 0.7586], [True, True])
    >>> span = torch.tensor([0, 1]), torch.tensor([2, 3])
    >>> found = index_cross_entropy(features, keys, torch.tensor([1, 2]), scale=2.0, span=span)
    >>> [round(loss, 4) for loss in found.loss.tolist()], found.hit.tolist()
    ([2.1269, 0.6931], [False, True])
    """
    total = len(keys) if shard is None else shard.total
    check_given(features, keys, target, bias, scale, smoothing, chunk, total)
    order = None
    if span is not None:
        target, order = check_span(span, target, total)
    if shard is not None and shard.processes > 1:
        target = target - shard.first
        span = None if span is None else (span[0] - shard.first, span[1] - shard.first)
    factors = torch.promote_types(features.dtype, keys.dtype)
    sums = torch.promote_types(factors, torch.float32)
    if features.is_cuda and torch.is_autocast_enabled("cuda") and sums == torch.float32:
        factors = torch.get_autocast_dtype("cuda")
    if factors != torch.bfloat16 or not features.is_cuda:  # float16 would lose the small gradients
        factors = sums
    if not isinstance(scale, Tensor):
        scale = features.new_full((), scale, dtype=sums)
    first, end = span or (None, None)
    if order is not None and first is not None and end is not None:
        features, target, first, end = features[order], target[order], first[order], end[order]
    given = features, keys, bias, scale, target, first, end, smoothing, chunk, factors, shard
    loss, hit = _IndexCrossEntropy.apply(*given)  # type: ignore[no-untyped-call]
    if order is None:
        return IndexLoss(loss, hit)
    back = order.argsort()
    return IndexLoss(loss[back], hit[back])


class _IndexCrossEntropy(torch.autograd.Function):
    """The loss and its gradients. With E = exp(score - top), a chunk's part of the softmax is E / total."""

    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        keys: Tensor,
        bias: Tensor | None,
        scale: Tensor,
        target: Tensor,
        first: Tensor | None,
        end: Tensor | None,
        smoothing: float,
        chunk: int,
        factors: torch.dtype,
        shard: Shard | None,
    ) -> tuple[Tensor, Tensor]:
        sums = torch.promote_types(factors, torch.float32)
        scaled = scale.reshape(()).to(sums) * features.to(sums)
        # finite, so that a chunk of keys that are all taken out (-inf) does not give inf - inf
        top = scaled.new_full((len(features),), torch.finfo(sums).min)
        total, mean = torch.zeros_like(top), torch.zeros_like(top)
        own = torch.full_like(top, torch.nan)  # stays so where the target names no key
        sizes = _sizes(top, keys, first, end, shard)
        for rows, start, scores, _, outside in _chunks(scaled, keys, bias, first, end, chunk, factors):
            local, inside = _locate(target[rows], start, scores.shape[1])
            torch.where(inside, scores.gather(1, local).squeeze(1), own[rows], out=own[rows])
            if smoothing:
                kept = scores if outside is None else scores.masked_fill_(outside, 0)
                mean[rows].add_(kept.sum(1) / sizes[rows])
            if outside is not None:
                scores.masked_fill_(outside, -torch.inf)
            higher = torch.maximum(top[rows], scores.amax(1))
            more = scores.sub_(higher.unsqueeze(1)).exp_().sum(1)
            total[rows].mul_((top[rows] - higher).exp_()).add_(more)
            top[rows] = higher
        if shard is not None and shard.processes > 1:
            top, total, own, mean = _together(top, total, own, mean, shard)
        total = torch.where(own.isnan(), own, total)  # a NaN that reaches the gradients too
        # log(total) + (top - own), not (log(total) + top) - own: a small loss under large scores keeps its digits
        losses = total.log() + (top - own)
        if smoothing:
            losses = (1 - smoothing) * losses + smoothing * (total.log() + (top - mean))
        hit = (own >= top) & ~losses.isnan()
        ctx.save_for_backward(features, keys, bias, scale, target, first, end, top, total)
        ctx.settings = smoothing, chunk, factors, shard
        ctx.mark_non_differentiable(hit)
        return losses, hit

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        features, keys, bias, scale, target, first, end, top, total = ctx.saved_tensors
        smoothing, chunk, factors, shard = ctx.settings
        sums = torch.promote_types(factors, torch.float32)
        needs_features, needs_keys, needs_bias, needs_scale = ctx.needs_input_grad[:4]
        factor = scale.reshape(()).to(sums)
        scaled = factor * features.to(sums)
        # the gradient of the scores is weight * (E - total * wanted); the weight goes to the smaller factor
        # each process was asked for the gradients of its own rows: all need all
        asked = grads[0] if shard is None else sum_over(grads[0], shard)
        weight = asked.to(sums) / total
        weighted = (weight.unsqueeze(1) * scaled).to(factors)
        spread = smoothing * total / _sizes(top, keys, first, end, shard)
        mixed = torch.zeros_like(scaled)
        # zeros: a chunk outside every span is not visited
        keys_grad = torch.zeros_like(keys, memory_format=torch.contiguous_format) if needs_keys else None
        bias_grad = torch.zeros_like(bias, memory_format=torch.contiguous_format) if needs_bias else None
        for rows, start, scores, part, outside in _chunks(scaled, keys, bias, first, end, chunk, factors):
            stop = start + scores.shape[1]
            local, inside = _locate(target[rows], start, scores.shape[1])
            scores.sub_(top[rows].unsqueeze(1)).exp_()
            if smoothing:
                scores.sub_(spread[rows].unsqueeze(1))
            if outside is not None:
                scores.masked_fill_(outside, 0)
            scores.scatter_add_(1, local, torch.where(inside, (smoothing - 1) * total[rows], 0).unsqueeze(1))
            if bias_grad is not None:
                bias_grad[start:stop] = _product(weight[rows].unsqueeze(0), scores).squeeze(0)
            scores = scores.to(factors)
            if needs_features or needs_scale:
                mixed[rows].add_(_product(scores, part))
            if keys_grad is not None:
                keys_grad[start:stop] = _product(scores.T, weighted[rows])
        mixed *= weight.unsqueeze(1)
        features_grad = (factor * mixed).to(features.dtype) if needs_features else None
        scale_grad = (features * mixed).sum().to(scale.dtype).reshape(scale.shape) if needs_scale else None
        return features_grad, keys_grad, bias_grad, scale_grad, None, None, None, None, None, None, None


class _Chunk(NamedTuple):
    """Some keys, scored for the rows of the batch that need them."""

    rows: slice
    start: int  # the first key
    scores: Tensor  # (b, n), in one buffer that the next chunk uses again
    keys: Tensor  # (n, D)
    outside: Tensor | None  # (b, n), True where the key is not in the row's span


def _chunks(
    scaled: Tensor,
    keys: Tensor,
    bias: Tensor | None,
    first: Tensor | None,
    end: Tensor | None,
    chunk: int,
    factors: torch.dtype,
) -> Iterator[_Chunk]:
    """Score the keys, `chunk` at a time; on a CPU the rows are sorted by the first key of their span."""
    left = scaled.to(factors)
    buffer = scaled.new_empty(len(scaled) * min(chunk, len(keys)))
    rows, outside = slice(0, len(scaled)), None
    starts = reach = None
    if first is not None and end is not None and first.device.type == "cpu":
        starts, reach = first.tolist(), end.cummax(0).values.tolist()
    for start in range(0, len(keys), chunk):
        stop = min(start + chunk, len(keys))
        if starts is not None and reach is not None:
            rows = slice(bisect_right(reach, start), bisect_left(starts, stop))  # all others miss this chunk
            if rows.start >= rows.stop:
                continue
        part = keys[start:stop].to(factors)
        scores = buffer[: (rows.stop - rows.start) * len(part)].view(-1, len(part))
        _product(left[rows], part.T, out=scores)
        if bias is not None:
            scores += bias[start:stop]
        if first is not None and end is not None:
            numbers = torch.arange(start, stop, device=keys.device)
            outside = numbers < first[rows].unsqueeze(1)
            outside |= numbers >= end[rows].unsqueeze(1)
        yield _Chunk(rows, start, scores, part, outside)


def _together(top: Tensor, total: Tensor, own: Tensor, mean: Tensor, shard: Shard) -> tuple[Tensor, ...]:
    """Put the running values of all processes together; the target is among the keys of one of them."""
    highest = max_over(top, shard)
    found = sum_over((~own.isnan()).to(own.dtype), shard)
    own = sum_over(own.where(~own.isnan(), 0.0), shard)
    whole = sum_over(total * (top - highest).exp(), shard)
    return highest, whole, own.where(found > 0, torch.nan), sum_over(mean, shard)


def _sizes(like: Tensor, keys: Tensor, first: Tensor | None, end: Tensor | None, shard: Shard | None) -> Tensor:
    """How many keys each row looks at, (B,)."""
    if first is None or end is None:
        return torch.full_like(like, len(keys) if shard is None else shard.total)
    return (end - first).to(like.dtype)


def _product(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """The matrix product with float32 or wider sums, whatever autocast says."""
    with torch.autocast(a.device.type, enabled=False):
        if b.dtype == torch.bfloat16:
            return torch.mm(a, b, out_dtype=torch.float32, out=out)
        return torch.mm(a, b, out=out)


def _locate(target: Tensor, start: int, n: int) -> tuple[Tensor, Tensor]:
    """Where each target lies in a chunk, (B, 1), and whether it does, (B,)."""
    local = target - start
    return local.clamp(0, n - 1).unsqueeze(1), (local >= 0) & (local < n)

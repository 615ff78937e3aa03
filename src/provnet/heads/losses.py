"""Index losses: cross-entropy over the samples of a class or of all, exact or over a share of them.

Letters: B batch, D features, N samples (one key each).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from provnet.base.batches import is_matrix, pieces
from provnet.base.errors import UsageError
from provnet.heads.keys import Shard, max_over, sum_over

Span = tuple[Tensor, Tensor]  # first key and end of each row, both (B,) int64
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def check_given(
    features: Tensor, keys: Tensor, target: Tensor, smoothing: float, chunk: int, total: int | None = None
) -> None:
    """Refuse what cannot be, in one line each."""
    if not is_matrix(features) or not is_matrix(keys) or features.shape[1] != keys.shape[1] or len(keys) == 0:
        given = f"{tuple(features.shape)} and {tuple(keys.shape)}"
        raise UsageError(f"features and keys must be (B, D) and (N, D) with the same D and N of 1 or more, got {given}")
    if target.shape != features.shape[:1] or target.dtype != torch.int64:
        given = f"{tuple(target.shape)} {target.dtype}"
        raise UsageError(f"target must be one int64 key number per row, shape ({len(features)},), got {given}")
    if not 0 <= smoothing <= 1:
        raise UsageError(f"label smoothing must lie in [0, 1], got {smoothing}")
    if chunk < 1:
        raise UsageError(f"chunk must be 1 key or more, got {chunk}")
    for name, x in (("features", features), ("keys", keys)):
        if x.dtype not in FLOATS:
            allowed = ", ".join(str(dtype).removeprefix("torch.") for dtype in FLOATS)
            raise UsageError(f"{name} must be one of {allowed}, got {x.dtype}; convert it first")
    if len({x.device for x in (features, keys, target)}) > 1:
        devices = f"features on {features.device}, keys on {keys.device}, target on {target.device}"
        raise UsageError(f"all tensors must be on one device, got {devices}; move them with .to(device)")
    if target.device.type == "cpu" and len(target) > 0:
        low, high = (int(x) for x in target.aminmax())
        n = len(keys) if total is None else total
        if low < 0 or high >= n:
            raise UsageError(f"targets must lie in [0, {n}), got {low if low < 0 else high}")


def check_span(span: Span, target: Tensor, n: int) -> tuple[Tensor, Tensor | None]:
    """Targets, -1 where one lies outside its span on a GPU, and on a CPU the order of the rows by first key."""
    for name, x in zip(("first", "end"), span, strict=True):
        if x.shape != target.shape or x.dtype != torch.int64 or x.device != target.device:
            given = f"{tuple(x.shape)} {x.dtype} on {x.device}"
            wanted = f"one int64 key number per row, shape ({len(target)},), on {target.device}"
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


class IndexLoss(NamedTuple):
    """One loss a row, (B,), and whether its target scored at least as high as every other key, (B,) bool."""

    loss: Tensor
    hit: Tensor


def index_loss(scores: Tensor, valid: Tensor | None, slots: Tensor, smoothing: float) -> Tensor:
    """Cross-entropy with label smoothing over the valid slots only: (B, slots), bool, (B,) -> (B,).

    Smoothing over masked slots would be infinite. `valid` None means that every slot names a sample.

    >>> import torch
    >>> scores = torch.tensor([[0.0, 0.0, -torch.inf]])
    >>> round(float(index_loss(scores, scores.isfinite(), torch.tensor([0]), 0.1)), 4)
    0.6931
    """
    if valid is None:
        return F.cross_entropy(scores.float(), slots, label_smoothing=smoothing, reduction="none")
    logp = F.log_softmax(scores.float(), dim=1)
    own = -logp.gather(1, slots.unsqueeze(1)).squeeze(1)
    if smoothing == 0:
        return own
    spread = -logp.masked_fill(~valid, 0.0).sum(1) / valid.sum(1)
    return (1 - smoothing) * own + smoothing * spread


def index_cross_entropy(
    features: Tensor,
    keys: Tensor,
    target: Tensor,
    *,
    smoothing: float = 0.0,
    span: Span | None = None,
    shard: Shard | None = None,
    chunk: int = 8192,
) -> IndexLoss:
    """Exact cross-entropy of `features @ keys.T`: (B, D), (N, D), (B,) -> loss and hit, both (B,).

    Equal to F.cross_entropy, smoothing included, up to rounding. Scores, sums and losses are float32 (float64 for
    float64); bfloat16 and autocast to it only round the factors of the products, and that only on a GPU. Gradients are
    made for what asks for one, so keys that are a plain buffer cost no (N, D) gradient; change such keys after the
    backward pass, not before. `chunk` is how many keys are scored at a time: a GPU with millions of keys is faster with
    more than the default.

    `span` is (first, end), both (B,) int64: row b looks only at the keys first[b] <= row < end[b], as if the others
    scored -inf; smoothing spreads over the span. For keys sorted by class and queries that look within one class. On a
    CPU a chunk is scored only for rows whose span reaches into it; a GPU scores all and masks, so as not to wait.

    With a `shard` the keys are the rows of this process, targets and spans count over all rows, and every process gives
    the same features; each gets the loss over all keys, and gradients of its own keys' part.

    `hit` carries no gradient. A tie counts as a hit, and a loss of NaN never does. On a GPU nothing is read back to be
    checked: a target that names no key, or none of its span, gives NaN as loss and as gradient; on a CPU it is refused.

    >>> features, keys = 2 * torch.eye(2), torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> found = index_cross_entropy(features, keys, torch.tensor([0, 2]), chunk=2)
    >>> [round(loss, 4) for loss in found.loss.tolist()], found.hit.tolist()
    ([0.7586, 0.7586], [True, True])
    >>> span = torch.tensor([0, 1]), torch.tensor([2, 3])
    >>> found = index_cross_entropy(features, keys, torch.tensor([1, 2]), span=span)
    >>> [round(loss, 4) for loss in found.loss.tolist()], found.hit.tolist()
    ([2.1269, 0.6931], [False, True])
    """
    total = len(keys) if shard is None else shard.total
    check_given(features, keys, target, smoothing, chunk, total)
    order = None
    if span is not None:
        target, order = check_span(span, target, total)
    if shard is not None and shard.processes > 1:
        target = target - shard.first
        span = None if span is None else (span[0] - shard.first, span[1] - shard.first)
    if span is not None and order is not None:
        features, target, span = features[order], target[order], (span[0][order], span[1][order])
    way = _Way(smoothing, chunk, _factors(features, keys), shard)
    loss, hit = _IndexCrossEntropy.apply(features, keys, target, span, way)  # type: ignore[no-untyped-call]
    if order is None:
        return IndexLoss(loss, hit)
    back = order.argsort()
    return IndexLoss(loss[back], hit[back])


def _factors(features: Tensor, keys: Tensor) -> torch.dtype:
    """What the factors of the products are rounded to."""
    factors = torch.promote_types(features.dtype, keys.dtype)
    sums = torch.promote_types(factors, torch.float32)
    if features.is_cuda and torch.is_autocast_enabled("cuda") and sums == torch.float32:
        factors = torch.get_autocast_dtype("cuda")
    # float16 would lose the small gradients
    return factors if factors == torch.bfloat16 and features.is_cuda else sums


class _Way(NamedTuple):
    """How a loss is computed."""

    smoothing: float
    chunk: int
    factors: torch.dtype
    shard: Shard | None


class _IndexCrossEntropy(torch.autograd.Function):
    """The loss and its gradients. With E = exp(score - top), a chunk's part of the softmax is E / total."""

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, keys: Tensor, target: Tensor, span: Span | None, way: _Way
    ) -> tuple[Tensor, Tensor]:
        smoothing, shard = way.smoothing, way.shard
        sums = torch.promote_types(way.factors, torch.float32)
        queries = features.to(sums)
        # finite, so that a chunk of scores that are all masked (-inf) does not give inf - inf
        top = queries.new_full((len(features),), torch.finfo(sums).min)
        total, mean = torch.zeros_like(top), torch.zeros_like(top)
        own = torch.full_like(top, torch.nan)  # stays so where the target names no key
        sizes = _sizes(top, keys, span, shard)
        for rows, start, scores, _, outside in _chunks(queries, keys, span, way):
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
        ctx.save_for_backward(features, keys, target, *(span or (None, None)), top, total)
        ctx.way = way
        ctx.mark_non_differentiable(hit)
        return losses, hit

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        features, keys, target, first, end, top, total = ctx.saved_tensors
        span = None if first is None else (first, end)
        way: _Way = ctx.way
        smoothing, shard = way.smoothing, way.shard
        queries = features.to(torch.promote_types(way.factors, torch.float32))
        needs_features, needs_keys = ctx.needs_input_grad[:2]
        # the gradient of the scores is weight * (E - total * wanted); the weight goes to the smaller factor
        # each process was asked for the gradients of its own rows: all need all
        asked = grads[0] if shard is None else sum_over(grads[0], shard)
        weight = asked.to(queries.dtype) / total
        weighted = (weight.unsqueeze(1) * queries).to(way.factors)
        spread = smoothing * total / _sizes(top, keys, span, shard)
        mixed = torch.zeros_like(queries)
        # zeros: a chunk outside every span is not visited
        keys_grad = torch.zeros_like(keys, memory_format=torch.contiguous_format) if needs_keys else None
        for rows, start, scores, part, outside in _chunks(queries, keys, span, way):
            local, inside = _locate(target[rows], start, scores.shape[1])
            scores.sub_(top[rows].unsqueeze(1)).exp_()
            if smoothing:
                scores.sub_(spread[rows].unsqueeze(1))
            if outside is not None:
                scores.masked_fill_(outside, 0)
            scores.scatter_add_(1, local, torch.where(inside, (smoothing - 1) * total[rows], 0).unsqueeze(1))
            scores = scores.to(way.factors)
            if needs_features:
                mixed[rows].add_(_product(scores, part))
            if keys_grad is not None:
                keys_grad[start : start + scores.shape[1]] = _product(scores.T, weighted[rows])
        mixed *= weight.unsqueeze(1)
        return mixed.to(features.dtype) if needs_features else None, keys_grad, None, None, None


class _Chunk(NamedTuple):
    """Some keys, scored for the rows of the batch that need them."""

    rows: slice
    start: int  # the first key
    scores: Tensor  # (b, n), in one buffer that the next chunk uses again
    keys: Tensor  # (n, D)
    outside: Tensor | None  # (b, n), True where the key is not in the row's span


def _chunks(queries: Tensor, keys: Tensor, span: Span | None, way: _Way) -> Iterator[_Chunk]:
    """Score the keys, a chunk at a time; on a CPU the rows are sorted by the first key of their span."""
    left = queries.to(way.factors)
    buffer = queries.new_empty(len(queries) * min(way.chunk, len(keys)))
    rows, outside = slice(0, len(queries)), None
    starts = reach = None
    if span is not None and span[0].device.type == "cpu":
        starts, reach = span[0].tolist(), span[1].cummax(0).values.tolist()
    for some in pieces(len(keys), way.chunk):
        start, stop = some.start, some.stop
        if starts is not None and reach is not None:
            rows = slice(bisect_right(reach, start), bisect_left(starts, stop))  # all others miss this chunk
            if rows.start >= rows.stop:
                continue
        part = keys[start:stop].to(way.factors)
        scores = buffer[: (rows.stop - rows.start) * len(part)].view(-1, len(part))
        _product(left[rows], part.T, out=scores)
        if span is not None:
            numbers = torch.arange(start, stop, device=keys.device)
            outside = numbers < span[0][rows].unsqueeze(1)
            outside |= numbers >= span[1][rows].unsqueeze(1)
        yield _Chunk(rows, start, scores, part, outside)


def _together(top: Tensor, total: Tensor, own: Tensor, mean: Tensor, shard: Shard) -> tuple[Tensor, ...]:
    """Put the running values of all processes together; the target is among the keys of one of them."""
    highest = max_over(top, shard)
    found = sum_over((~own.isnan()).to(own.dtype), shard)
    own = sum_over(own.where(~own.isnan(), 0.0), shard)
    whole = sum_over(total * (top - highest).exp(), shard)
    return highest, whole, own.where(found > 0, torch.nan), sum_over(mean, shard)


def _sizes(like: Tensor, keys: Tensor, span: Span | None, shard: Shard | None) -> Tensor:
    """How many keys each row looks at, (B,)."""
    if span is None:
        return torch.full_like(like, len(keys) if shard is None else shard.total)
    return (span[1] - span[0]).to(like.dtype)


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


def sampled_cross_entropy(
    features: Tensor,
    keys: Tensor,
    target: Tensor,
    *,
    rate: float,
    generator: torch.Generator,
    smoothing: float = 0.0,
    chunk: int = 8192,
) -> IndexLoss:
    """Cross-entropy over a random share of the keys: as `index_cross_entropy`, in `rate` of its time.

    One sample of max(ceil(rate * N), min(B, N)) different keys serves the whole batch: the targets of the batch, then
    keys drawn evenly from the rest. It estimates the loss of telling the target from that sample, not from all keys,
    so without smoothing it is never above the exact loss: where the target has probability p among all keys, it is
    too low by about -log(p + r * (1 - p)), r the share of the sample: -log(r) before training, nothing once p is 1.
    `hit` likewise says that the target was the best of the sample: it is True more often than over all keys. Smoothing
    spreads over the sample. At rate 1 both are exact. The generator draws on its own device. There is no `span`: one
    sample serves every row, so a row's class could have no key in it but the target.

    >>> features, keys, target = torch.zeros(1, 2), torch.ones(8, 2), torch.tensor([3])
    >>> sampled = sampled_cross_entropy(features, keys, target, rate=0.25, generator=torch.Generator())
    >>> exact = index_cross_entropy(features, keys, target)
    >>> [round(float(x), 4) for x in (sampled.loss, exact.loss)]  # log(2) and log(8)
    [0.6931, 2.0794]
    """
    if not 0 < rate <= 1:
        raise UsageError(f"rate must lie in (0, 1], got {rate}; 1 uses every key")
    check_given(features, keys, target, smoothing, chunk)
    count = max(math.ceil(rate * len(keys)), min(len(target), len(keys)))
    if count < len(keys):
        known = (target >= 0) & (target < len(keys))  # on a GPU not checked: an unknown one stays so and gives NaN
        rows = _sample_rows(len(keys), count, target.clamp(0, len(keys) - 1), generator)
        target = torch.where(known, torch.searchsorted(rows, target), -1)
        keys = keys.index_select(0, rows)
    return index_cross_entropy(features, keys, target, smoothing=smoothing, chunk=chunk)


def _sample_rows(n: int, count: int, target: Tensor, generator: torch.Generator) -> Tensor:
    """`count` different rows of n in rising order: all targets, the others drawn evenly; nothing waits for a GPU."""
    rank = torch.randperm(n, generator=generator, device=generator.device).to(target.device)
    rank.index_fill_(0, target, -1)
    return rank.topk(count, largest=False).indices.sort().values


def block_cross_entropy(
    features: Tensor, keys: Tensor, target: Tensor, block: tuple[int, int], *, chunk: int = 8192
) -> Tensor:
    """Cross-entropy of `features @ keys.T` as if a block of the keys stood for all others: (B,) losses.

    The block is rows `first` to `end - 1`; the sum over it, without the target, is scaled up to all other keys.
    Keys in an order of chance are needed. Loss and gradient for the features are made in one pass over the block, which
    no other pass follows; keys get no gradient.

    >>> features, keys = torch.randn(3, 4), torch.randn(50, 4)
    >>> target = torch.tensor([0, 7, 49])
    >>> exact = index_cross_entropy(features, keys, target).loss
    >>> torch.allclose(block_cross_entropy(features, keys, target, (0, 50)), exact, atol=1e-4)
    True
    """
    first, end = block
    if not 0 <= first < end <= len(keys) or end - first < 2:
        raise UsageError(f"a block of 2 keys or more must lie in 0..{len(keys)}, got {block}")
    given = features, keys.detach(), target, first, end, chunk
    loss: Tensor = _BlockCrossEntropy.apply(*given)  # type: ignore[no-untyped-call]
    return loss


class _BlockCrossEntropy(torch.autograd.Function):
    """With p the softmax, the gradient for a query is the mean key under p minus its own key."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, keys: Tensor, target: Tensor, first: int, end: int, chunk: int) -> Tensor:
        own = keys[target]
        at = (features * own).sum(1)
        top = torch.full_like(at, torch.finfo(at.dtype).min)
        total, mixed = torch.zeros_like(at), torch.zeros_like(features)
        for start in range(first, end, chunk):
            part = keys[start : min(start + chunk, end)]
            scores = features @ part.t()
            local, inside = _locate(target, start, len(part))
            scores.scatter_(1, local, scores.gather(1, local).masked_fill(inside.unsqueeze(1), -torch.inf))
            higher = torch.maximum(top, scores.amax(1))
            weight, before = scores.sub_(higher.unsqueeze(1)).exp_(), (top - higher).exp()
            total = total * before + weight.sum(1)
            mixed = mixed * before.unsqueeze(1) + weight @ part
            top = higher
        inside = (target >= first) & (target < end)
        looked = (end - first) - inside.to(at.dtype)
        rest = total.log() + top + ((len(keys) - 1) / looked).log()
        whole = torch.logaddexp(rest, at)
        share = (rest - whole).exp().unsqueeze(1)
        ctx.save_for_backward(share * (mixed / total.unsqueeze(1) - own))
        return whole - at

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (found,) = ctx.saved_tensors
        return grads[0].unsqueeze(1) * found, None, None, None, None, None

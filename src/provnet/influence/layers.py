"""Gradients of one number per sample at every layer, from one forward and one backward pass of a whole batch.

For a layer with inputs a and gradients d at its outputs, a sample's weight gradient is G = sum over positions of a dᵀ.
Hooks catch both and multiply each by a narrow matrix at once, so that G is never made: K = Pₐᵀ G P_d. Where both
matrices are the identity K is G itself, as autograd would give it sample by sample.

Known are Linear, Conv1d to Conv3d, Embedding, nn.MultiheadAttention and the Conv1D of Hugging Face; the layers of LoRA
are Linears. Left out are normalisation, recurrent layers and parameters that no such layer owns; layers that are not
trained, where others are; and layers whose output has no row of its own for each sample (an embedding of positions).

Letters: B batch, T positions, P inputs (with a one for the bias, where there is one), Q outputs of a layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from provnet.base.batches import Inputs, keyed_generator
from provnet.base.errors import NonFiniteError, UsageError
from provnet.models.backbones import only_asked

Asked = Callable[[Any, Tensor], Tensor]  # inputs and targets of a batch -> (B,) one number for each sample
Maps = Mapping[str, tuple[Tensor, Tensor]]  # (P, k) and (Q, l) of each layer; of grouped convolutions (g·P, k)
CONVS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
See = Callable[[str, Tensor, Tensor], None]
WIDE = 8192  # a wider side has no second moment that would fit
SMALL, MOST, TURNS = 512, 512, 4  # a moment that is solved at once; directions of a side; turns of the search for them
ALIKE = 0.02  # of the largest value; batches of other sizes are rounded otherwise


@dataclass
class Layer:
    """One weight whose gradients are caught.

    Attributes:
        module: the layer that is called.
        inputs, outputs: P and Q, over all groups.
        trained: whether its owner trains it.
        groups: of a convolution.
        axis: where samples are in its output: 0, 1 (where positions come first), or -1 (all positions of a sample
            in turn).
        positions: T, as the probe found it.
    """

    module: nn.Module
    inputs: int
    outputs: int
    trained: bool = True
    groups: int = 1
    axis: int = 0
    positions: int = 1

    @property
    def bias(self) -> bool:
        """Whether there is one, so that its gradient stands in the last row of G."""
        return getattr(self.module, "bias", None) is not None

    def left(self, given: Tensor, matrix: Tensor, count: int) -> Tensor:
        """(B, T, k) inputs times matrix (P, k); those of a grouped convolution unfolded, (B, T, P)."""
        module = self.module
        if isinstance(module, nn.Embedding):
            if module.padding_idx is not None:  # is not trained
                matrix = matrix.index_fill(0, torch.tensor([module.padding_idx], device=matrix.device), 0.0)
            return self._rows(F.embedding(given, matrix), count)
        given = given.to(matrix.dtype)
        if self.groups > 1:
            whole = torch.eye(self.inputs // self.groups - self.bias, dtype=given.dtype, device=given.device)
            return self._convolved(given, whole.repeat(self.groups, 1), None)
        weight, one = (matrix[:-1], matrix[-1]) if self.bias else (matrix, None)
        if isinstance(module, CONVS):
            return self._convolved(given, weight.t(), one)
        return self._rows(F.linear(given, weight.t(), one), count)

    def _convolved(self, given: Tensor, filters: Tensor, one: Tensor | None) -> Tensor:
        """Unfolded inputs times a matrix are one convolution with the columns of that matrix for filters."""
        module: Any = self.module
        shaped = filters.reshape(len(filters), *module.weight.shape[1:])
        found: Tensor = module._conv_forward(given, shaped, one)
        return found.flatten(2).transpose(1, 2)

    def right(self, graded: Tensor, matrix: Tensor, count: int) -> Tensor:
        """(B, T, l) gradients at the outputs times matrix (Q, l); those of a grouped convolution as they are."""
        graded = graded.to(matrix.dtype)
        if isinstance(self.module, CONVS):
            graded = graded.flatten(2).transpose(1, 2)
            return graded if self.groups > 1 else graded @ matrix
        return self._rows(graded @ matrix, count)

    def _rows(self, values: Tensor, count: int) -> Tensor:
        """(B, T, ...) of a layer that keeps the order of its inputs."""
        if self.axis == 1:
            values = values.transpose(0, 1)
        return values.reshape(count, -1, values.shape[-1])

    def joined(self, left: Tensor, right: Tensor, maps: tuple[Tensor, Tensor]) -> Tensor:
        """(B, k·l) the sketch of one call. A grouped convolution has one block of G for each group."""
        if self.groups == 1:
            return (left.transpose(1, 2) @ right).flatten(1)
        left, right = (part.reshape(*part.shape[:2], self.groups, -1).permute(0, 2, 3, 1) for part in (left, right))
        if self.bias:
            left = torch.cat([left, torch.ones_like(left[:, :, :1])], 2)
        blocks = left @ right.transpose(2, 3)  # (B, g, P / g, Q / g): as many numbers as the weight has
        one, other = (part.view(self.groups, -1, part.shape[1]) for part in maps)
        half = torch.einsum("bgpq,gpi->bigq", blocks, one).flatten(2)
        found: Tensor = (half @ other.flatten(0, 1)).flatten(1)
        return found


class Attention:
    """What an nn.MultiheadAttention does, through three Linears that hooks can look at; its own are never called."""

    def __init__(self, module: nn.MultiheadAttention) -> None:
        self.module = module
        width, bias = module.embed_dim, module.in_proj_bias
        parts = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
        weights = parts if module.in_proj_weight is None else torch.split(module.in_proj_weight.detach(), width)
        own = module.q_proj_weight if module.in_proj_weight is None else module.in_proj_weight
        self.trained = own.requires_grad
        self.linears = []
        for number, weight in enumerate(weights):
            linear = nn.Linear(weight.shape[1], width, bias=bias is not None, device="meta")
            linear.weight = nn.Parameter(weight.detach(), requires_grad=False)  # the same memory
            if bias is not None:
                linear.bias = nn.Parameter(bias.detach()[number * width :][:width], requires_grad=False)
            self.linears.append(linear)

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """In place of `forward`: projected before, then torch's own with projections that change nothing."""
        own = self.module
        given = [linear(part) for linear, part in zip(self.linears, (query, key, value), strict=True)]
        if own.batch_first and query.dim() == 3:
            given = [part.transpose(0, 1) for part in given]
        same = torch.eye(own.embed_dim, dtype=given[0].dtype, device=given[0].device)
        made, weights = F.multi_head_attention_forward(
            given[0],
            given[1],
            given[2],
            own.embed_dim,
            own.num_heads,
            None,
            None,
            own.bias_k,
            own.bias_v,
            own.add_zero_attn,
            0.0,
            same,
            None,
            training=False,
            key_padding_mask=key_padding_mask,
            need_weights=need_weights,
            attn_mask=attn_mask,
            use_separate_proj_weight=True,
            q_proj_weight=same,
            k_proj_weight=same,
            v_proj_weight=same,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
        )
        made = made.transpose(0, 1) if own.batch_first and made.dim() == 3 else made
        return own.out_proj(made), weights


class Gradients:
    """Catches the gradients of a model's layers. The model is left as it was: mode, weights, hooks and what it trains.

    >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    >>> caught = Gradients(model, lambda inputs, targets: model(inputs)[:, 0])
    >>> caught.probe(torch.randn(4, 2), torch.zeros(4))
    >>> values, sketches = caught(torch.randn(4, 2), torch.zeros(4), caught.maps(side=64, seed=0))
    >>> {name: tuple(sketches[name].shape) for name in caught.layers}
    {'0': (4, 9), '2': (4, 4)}
    """

    def __init__(self, model: nn.Module, ask: Asked, *, half: bool = False) -> None:
        self.model, self.ask, self.half = model, ask, half
        self.left_out: dict[str, str] = {}
        self.attentions = [
            Attention(one) for one in model.modules() if isinstance(one, nn.MultiheadAttention) and _plain(one)
        ]
        names = {id(module): name for name, module in model.named_modules()}
        found = {name: layer for name, module in model.named_modules() if (layer := _known(module))}
        for one in self.attentions:
            for letter, linear in zip("qkv", one.linears, strict=True):
                size = linear.in_features + (linear.bias is not None), linear.out_features
                found[f"{names[id(one.module)]}.{letter}"] = Layer(linear, *size, one.trained)
        if not found:
            kinds = sorted({type(one).__name__ for one in model.modules() if not list(one.children())})
            raise UsageError(
                "influence needs layers of a known kind (Linear, Conv1d to Conv3d, Embedding, MultiheadAttention, "
                f"Conv1D); this model has {', '.join(kinds[:8]) or 'none'}"
            )
        some = any(layer.trained for layer in found.values())
        self.layers = {name: layer for name, layer in found.items() if layer.trained or not some}

    def maps(self, side: int, seed: int) -> dict[str, tuple[Tensor, Tensor]]:
        """Fixed Gaussian matrices with `side` columns; a side that is narrower stays whole."""
        device = next(self.model.parameters()).device
        found = {}
        for number, (name, layer) in enumerate(self.layers.items()):
            pair = [_gaussian(size, side, (seed, number, place)) for place, size in enumerate(_sizes(layer))]
            found[name] = pair[0].to(device), pair[1].to(device)
        return found

    def principal_maps(self, parts: Iterable[tuple[Any, Tensor]], numbers: int, seed: int) -> dict[str, Any]:
        """Matrices of the directions that inputs, and gradients, of each layer have most of, `numbers` = k·l in all.

        How many go to either side is chosen so that as much as can be of both is left. `parts` are inputs and targets
        to look at. Sides too wide for that, and grouped convolutions, get Gaussian matrices.
        """
        side = math.isqrt(numbers)
        maps = self.maps(side, seed)
        looked = {name for name, one in self.layers.items() if one.groups == 1 and max(_sizes(one)) <= WIDE}
        moments: dict[str, list[Tensor]] = {}

        def add(name: str, left: Tensor, right: Tensor) -> None:
            found = [each.flatten(0, 1).float() for each in (left, right)]
            new = [each.t() @ each for each in found]
            moments[name] = [a + b for a, b in zip(moments[name], new, strict=True)] if name in moments else new

        device = next(self.model.parameters()).device
        sizes = {name: _sizes(self.layers[name]) for name in looked}
        whole = {k: (torch.eye(p, device=device), torch.eye(q, device=device)) for k, (p, q) in sizes.items()}
        for inputs, targets in parts:
            self(inputs, targets, whole, see=add)
        return {name: _principal(moments[name], numbers) if name in moments else one for name, one in maps.items()}

    def probe(self, inputs: Inputs, targets: Tensor) -> None:
        """Two small passes: which layers are called, where their samples are, and whether samples stay apart."""
        few, fewer = min(3, len(inputs)), min(2, len(inputs))
        shapes = [self._shapes(inputs[:count], targets[:count]) for count in (few, fewer)]
        for name, layer in list(self.layers.items()):
            if why := _placed(layer, [seen.get(name, []) for seen in shapes], (few, fewer)):
                self._leave(name, why)
        maps = self.maps(8, 0)
        first, second = (self(inputs[:n], targets[:n], maps, finite=False)[1] for n in (few, fewer))
        for name in list(self.layers):
            if name not in first or name not in second:
                self._leave(name, "gets no gradient")
            elif not torch.isfinite(first[name]).all():
                raise NonFiniteError(f"the gradients of the layer {name} hold NaN or infinity; no key is made of them")
            else:
                apart = (first[name][:fewer] - second[name]).abs().amax()
                if apart > ALIKE * second[name].abs().amax() + 1e-12:
                    self._leave(name, "samples of one batch change each other's gradients")
        if not self.layers:
            some = "; ".join(f"{name}: {why}" for name, why in list(self.left_out.items())[:4])
            raise UsageError(f"no layer of this model has a gradient for each sample ({some}); is it under no_grad?")

    def _shapes(self, inputs: Any, targets: Tensor) -> dict[str, list[tuple[int, ...]]]:
        """Those of the outputs of each layer, call by call."""
        seen: dict[str, list[tuple[int, ...]]] = {}
        with self._watched(lambda name, layer, given, out: seen.setdefault(name, []).append(tuple(out.shape))):
            self.ask(inputs, targets)
        return seen

    def _leave(self, name: str, why: str) -> None:
        self.left_out[name] = why
        del self.layers[name]

    def __call__(
        self, inputs: Any, targets: Tensor, maps: Maps, *, see: See | None = None, finite: bool = True
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """(B,) the numbers asked for, and the (B, k·l) sketch of each layer; `see` is shown both factors instead."""
        count, leaves = len(inputs), []
        found: dict[str, Tensor] = {}
        if self.half:
            maps = {name: (left.bfloat16(), right.bfloat16()) for name, (left, right) in maps.items()}

        def keep(name: str, layer: Layer, left: Tensor, graded: Tensor) -> None:
            with torch.no_grad(), torch.autocast(graded.device.type, enabled=False):
                right = layer.right(graded, maps[name][1], count)
                if see is not None:
                    see(name, left, right)
                    return
                sketch = layer.joined(left, right, maps[name])
                found[name] = found[name] + sketch if name in found else sketch

        def look(name: str, layer: Layer, given: Tensor, out: Tensor) -> Tensor | None:
            if name not in maps or not torch.is_grad_enabled():
                return None
            with torch.no_grad(), torch.autocast(out.device.type, enabled=False):
                left = layer.left(given, maps[name][0], count)
            new = None if out.requires_grad else out.detach().requires_grad_(True)
            if new is not None:  # the first of its branch: parameters have no gradients in this pass
                leaves.append(new)
                out = new.clone()  # what follows may change it in place
            out.register_hook(partial(keep, name, layer, left))  # type: ignore[no-untyped-call]
            return None if new is None else out

        with self._watched(look, graded=True):
            values = self.ask(inputs, targets)
            if not leaves or not values.requires_grad:
                raise UsageError(
                    "the answer of this model has no gradient: it is computed under no_grad or cut off (detach); "
                    "influence needs one"
                )
            torch.autograd.grad(values.sum(), leaves, allow_unused=True)
        if finite and not all(bool(torch.isfinite(part).all()) for part in found.values()):
            raise NonFiniteError("the gradients of some layer hold NaN or infinity; no key is made of them")
        return values.detach(), found

    @contextmanager
    def _watched(self, look: Callable[..., Tensor | None], *, graded: bool = False) -> Iterator[None]:
        """Every call of a layer is shown to `look`: name, layer, input and output; it may give another output."""

        def hook(name: str, layer: Layer, module: nn.Module, args: Any, kwargs: Any, out: Any) -> Any:
            given = args[0] if args else next(iter(kwargs.values()))
            return look(name, layer, given, out) if graded else look(name, layer, given, out) and None

        device = next(self.model.parameters()).device.type
        before = torch.backends.mha.get_fastpath_enabled()
        asking = [one for one in self.model.parameters() if one.requires_grad]
        with ExitStack() as stack:
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(only_asked(self.model))
            stack.enter_context(torch.set_grad_enabled(graded))
            stack.enter_context(torch.autocast(device, torch.bfloat16, enabled=self.half))
            stack.callback(torch.backends.mha.set_fastpath_enabled, before)
            torch.backends.mha.set_fastpath_enabled(False)  # it goes past the layers
            for parameter in asking:
                parameter.requires_grad_(False)
                stack.callback(parameter.requires_grad_, True)
            for attention in self.attentions:
                attention.module.forward = attention  # type: ignore[method-assign]
                stack.callback(vars(attention.module).pop, "forward")
            for name, layer in self.layers.items():
                made = layer.module.register_forward_hook(partial(hook, name, layer), with_kwargs=True)
                stack.callback(made.remove)
            yield


def _plain(module: nn.MultiheadAttention) -> bool:
    return type(module).forward is nn.MultiheadAttention.forward  # one of somebody else is no torch attention


def _known(module: nn.Module) -> Layer | None:
    """A module as a layer, where its kind is known."""
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor):
        return None
    trained, bias = weight.requires_grad, getattr(module, "bias", None) is not None
    if isinstance(module, CONVS):
        groups = module.groups
        size = int(weight[0].numel()) + bias
        return Layer(module, size * groups, len(weight), trained, groups)
    if isinstance(module, nn.Linear):
        return Layer(module, module.in_features + bias, module.out_features, trained)
    if isinstance(module, nn.Embedding):
        return Layer(module, module.num_embeddings, module.embedding_dim, trained)
    if type(module).__name__ == "Conv1D" and weight.ndim == 2:  # of Hugging Face: a Linear turned round
        return Layer(module, weight.shape[0] + bias, weight.shape[1], trained)
    return None


def _sizes(layer: Layer) -> tuple[int, int]:
    return layer.inputs, layer.outputs


def _gaussian(size: int, side: int, key: tuple[int, ...]) -> Tensor:
    return torch.eye(size) if size <= side else torch.randn(size, side, generator=keyed_generator(*key)) / side**0.5


def _principal(moments: Sequence[Tensor], numbers: int) -> tuple[Tensor, Tensor]:
    """From both second moments to two matrices with k·l <= numbers columns; whole where there are no more."""
    sizes = [len(one) for one in moments]
    if sizes[0] * sizes[1] <= numbers:
        return torch.eye(sizes[0]).to(moments[0]), torch.eye(sizes[1]).to(moments[1])
    found = [_directions(one, min(len(one), numbers // 4, MOST)) for one in moments]
    kept = [
        (length.cumsum(0) / one.diagonal().sum().clamp_min(1e-30)).tolist()
        for (length, _), one in zip(found, moments, strict=True)
    ]
    best = max(
        ((k, min(numbers // k, len(kept[1]))) for k in range(1, len(kept[0]) + 1) if k <= numbers),
        key=lambda pair: kept[0][pair[0] - 1] * kept[1][pair[1] - 1],
    )
    return found[0][1][:, : best[0]].contiguous(), found[1][1][:, : best[1]].contiguous()


def _directions(moment: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The largest eigenvalues of a second moment, and their directions (P, count), by turns of a random subspace."""
    size = len(moment)
    if size <= SMALL:
        values, vectors = torch.linalg.eigh(moment)
        return values.flip(0)[:count].clamp_min(0), vectors.flip(1)[:, :count]
    base = torch.randn(size, min(size, count + 16), generator=keyed_generator(size, count)).to(moment)
    for _ in range(TURNS):
        base = torch.linalg.qr(moment @ base).Q
    values, vectors = torch.linalg.eigh(base.t() @ moment @ base)
    return values.flip(0)[:count].clamp_min(0), (base @ vectors.flip(1))[:, :count]


def _placed(layer: Layer, calls: list[list[tuple[int, ...]]], counts: tuple[int, int]) -> str:
    """Set where the samples of a layer are, from its outputs in two passes; "" or why it is left out."""
    if not calls[0] or len(calls[0]) != len(calls[1]):
        return "is not called"
    pairs = [
        list(zip(part, counts, strict=True)) for part in zip(*calls, strict=True)
    ]  # of each call the shape in both passes, with the samples in it
    if all(shape and shape[0] == count for pair in pairs for shape, count in pair):
        layer.axis = 0
    elif isinstance(layer.module, CONVS):
        return "has no row of its own for each sample"
    elif all(len(shape) > 2 and shape[1] == count for pair in pairs for shape, count in pair):
        layer.axis = 1
    elif counts[0] != counts[1] and all(
        len(pair[0][0]) == 2 and pair[0][0][0] * counts[1] == pair[1][0][0] * counts[0] for pair in pairs
    ):
        layer.axis = -1
    else:
        return "has no row of its own for each sample"
    width = 1 if isinstance(layer.module, CONVS) else -1
    layer.positions = sum(_count(pair[0][0], width) for pair in pairs) // counts[0]
    return ""


def _count(shape: tuple[int, ...], width: int) -> int:
    total = 1
    for place, size in enumerate(shape):
        total *= 1 if place == width % len(shape) else size
    return total

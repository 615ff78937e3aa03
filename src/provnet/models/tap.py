"""Tap: reads the features and the class scores that somebody's model makes in a forward pass, by hooks.

The hooks only look: what the model gives stays as it is, bit for bit. A pass that gradient checkpointing runs again in
the backward pass does not begin at the model itself, and is not read.

Letters: B batch, C classes, D features, T positions of a sequence, H height and W width of a map.
"""

from __future__ import annotations

import copy
import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from provnet.base.errors import UsageError, did_you_mean, one_of
from provnet.models.backbones import only_asked

POOLS = ("mean", "cls", "last")
SIDES = ("output", "input", "function")
MASK = "attention_mask"
LISTED = 8  # modules in an error
Reader = Callable[[Any], Tensor]  # of the model's output, or of the features before they are pooled


@dataclass(frozen=True)
class Place:
    """Where features are read.

    Attributes:
        module: dotted name of a module; "" where a function reads the model's own output.
        side: `output` or `input` of the module, or `function`.
        pool: a name in POOLS, `function`, or "" where the features are (B, D) already.
        scores: whether the model gives class scores; of samples without labels none are read.
    """

    module: str
    side: str = "output"
    pool: str = ""
    scores: bool = True

    def __str__(self) -> str:
        """In words.

        >>> str(Place("classifier", "input")), str(Place("encoder.layer.3", pool="mean"))
        ('the input of classifier', 'the output of encoder.layer.3, pooled by mean')
        """
        where = f"the {self.side} of {self.module}" if self.module else "a function of the model's output"
        return where + (f", pooled by {self.pool}" if self.pool else "")


class Taken(NamedTuple):
    """What was read in one forward pass."""

    features: Tensor  # (B, D), with its gradient
    logits: Tensor  # (B, C), without; (B, 1) zeros where the model gives no class scores
    given: Any  # what the model was given: one tensor, or tensors by name


class Tap:
    """Reads features at a place of a model; `read` in a pass of its own, or hooked in for passes that others make.

    >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> tap = Tap(model, Place("2", "input"))
    >>> [tuple(part.shape) for part in tap.read(torch.zeros(5, 4))[:2]]
    [(5, 3), (5, 2)]
    """

    def __init__(
        self, model: nn.Module, place: Place, *, function: Reader | None = None, pool: Reader | None = None
    ) -> None:
        self.model, self.place, self.function, self.pool = model, place, function, pool
        self._handles: list[RemovableHandle] = []
        self._clear()

    def _clear(self) -> None:
        self.inside, self.calls = False, 0
        self.caught: Any = None
        self.output: Any = None
        self.given: Any = None
        self.mask: Tensor | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """A file of a hooked model takes no tap along: its hooks read nothing."""
        return _Idle, ()

    def __deepcopy__(self, memo: dict[int, Any]) -> Tap | _Idle:
        """A copy of a hooked model reads nothing; a tap that belongs to a network follows the copy of its model."""
        if self._handles:
            return _Idle()
        return Tap(copy.deepcopy(self.model, memo), self.place, function=self.function, pool=self.pool)

    def hook(self) -> None:
        """From now on read every pass of the model."""
        module = module_at(self.model, self.place.module)
        handles = [self.model.register_forward_pre_hook(self._begin, with_kwargs=True, prepend=True)]
        if self.place.side == "input":
            handles.append(module.register_forward_pre_hook(self._catch_input, with_kwargs=True))
        elif self.place.side == "output":
            handles.append(module.register_forward_hook(self._catch_output))
        handles.append(self.model.register_forward_hook(self._end))
        self._handles = handles

    def unhook(self) -> None:
        """Leave the model as it was."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._clear()

    def read(self, inputs: Any) -> Taken:
        """Ask the model, in the mode that it is in, and read what it makes of the inputs."""
        other = Tap(self.model, self.place, function=self.function, pool=self.pool)
        other.hook()
        try:
            ask(self.model, inputs)
            return other.take()
        finally:
            other.unhook()

    def take(self) -> Taken:
        """What the last pass made; it can be taken once."""
        if self.output is None:
            raise UsageError(
                "the model that was attached made no forward pass since; call model(x), then prov.loss(index) once for "
                "each call. A model that is compiled or wrapped (torch.compile, peft) is attached before it is "
                "compiled, and after it is wrapped"
            )
        output, caught, given, mask, calls = self.output, self.caught, self.given, self.mask, self.calls
        self._clear()
        logits = class_scores(output) if self.place.scores else None
        if self.place.side == "function":
            assert self.function is not None
            found = self.function(output)
        else:
            if calls != 1:
                why = "did not run" if calls == 0 else f"ran {calls} times"
                raise UsageError(
                    f"{self.place.module} {why} in the model's last forward pass, so it gives no one row of features "
                    "for each sample; name a layer that every pass goes through once (at=). A model is "
                    "attached before it is compiled, and after it is wrapped (peft)"
                )
            found = tensor_of(caught, str(self.place))
        features = pooled(found, self.pool or self.place.pool, mask, str(self.place))
        if logits is None:
            logits = features.new_zeros(len(features), 1)
        if len(features) != len(logits):
            raise UsageError(
                f"{self.place} has {len(features)} rows, the class scores have {len(logits)}: one row for each sample "
                "is needed; name another layer (at=), or a pooling (pool=)"
            )
        return Taken(features, logits.detach(), given)

    # the hooks; torch.compile traces them, so they only keep what they are given

    def _begin(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.inside, self.calls, self.caught, self.output = True, 0, None, None
        self.given = first_of(args, kwargs)
        self.mask = mask_of(module, args, kwargs)

    def _catch_input(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self.inside:
            self.caught, self.calls = args[0] if args else next(iter(kwargs.values())), self.calls + 1

    def _catch_output(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if self.inside:
            self.caught, self.calls = output, self.calls + 1

    def _end(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        self.inside = False
        self.output = output


class _Idle:
    """What stands in a copied model for a tap: its hooks keep nothing."""

    inside, calls = False, 0

    def __setattr__(self, name: str, value: Any) -> None:
        """Nothing is kept."""

    def _nothing(self, *args: Any, **kwargs: Any) -> None:
        """A hook that does nothing."""

    _begin = _catch_input = _catch_output = _end = _nothing


def ask(model: nn.Module, inputs: Any) -> Any:
    """One forward pass: of a tensor, or of tensors by name.

    >>> ask(nn.Identity(), torch.ones(1)).tolist()
    [1.0]
    """
    return model(**inputs) if isinstance(inputs, Mapping) else model(inputs)


def first_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """What the model was given: its first tensor, or all by name where there is no other."""
    if args:
        return args[0]
    return next(iter(kwargs.values())) if len(kwargs) == 1 else dict(kwargs)


def mask_of(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Tensor | None:
    """(B, T) which positions are not padding, where the model is told."""
    if MASK in kwargs:
        found = kwargs[MASK]
    elif args and isinstance(args[0], Mapping):
        found = args[0].get(MASK)
    elif len(args) > 1:
        names = list(inspect.signature(model.forward).parameters)
        found = args[names.index(MASK)] if MASK in names and names.index(MASK) < len(args) else None
    else:
        return None
    return found if isinstance(found, Tensor) else None


def class_scores(output: Any) -> Tensor:
    """(B, C) of what a model gives: a tensor, something with `logits`, or a tuple with a (B, C) tensor in it.

    One score for each sample, (B,) or (B, 1), is that of the second of two classes.

    >>> class_scores((torch.tensor(0.5), torch.zeros(3, 2))).shape, class_scores({"logits": torch.ones(3, 1)}).tolist()
    (torch.Size([3, 2]), [[0.0, 1.0], [0.0, 1.0], [0.0, 1.0]])
    """
    found = output["logits"] if isinstance(output, Mapping) and "logits" in output else output
    found = getattr(found, "logits", found)
    if isinstance(found, tuple | list):
        found = next((part for part in found if isinstance(part, Tensor) and part.ndim == 2), found)
    if not isinstance(found, Tensor):
        raise UsageError(
            f"the model gives {_shown(output)}; provnet looks for class scores (B, C): a tensor, .logits, "
            '["logits"] or a tuple that holds one. Wrap the model so that it gives them'
        )
    if found.ndim == 1 or (found.ndim == 2 and found.shape[1] == 1):
        second = found.reshape(-1, 1)
        return torch.cat([torch.zeros_like(second), second], 1)
    if found.ndim != 2 or not found.is_floating_point():
        raise UsageError(
            f"the model gives {_shown(found)}; class scores are one row for each sample, (B, C) of floating point"
        )
    return found


def tensor_of(value: Any, where: str) -> Tensor:
    """The features among what a layer gives: a tensor, the last hidden state, or the first tensor of a tuple."""
    found = getattr(value, "last_hidden_state", value)
    if isinstance(found, tuple | list):
        found = next((part for part in found if isinstance(part, Tensor)), found)
    if not isinstance(found, Tensor) or not found.is_floating_point():
        raise UsageError(f"{where} is {_shown(value)}, not features; name another layer (at=), or give a function")
    return found


def pooled(features: Tensor, pool: str | Reader, mask: Tensor | None, where: str = "at") -> Tensor:
    """(B, D) features as they are; maps (B, C, H, W) and sequences (B, T, D) pooled.

    >>> pooled(torch.arange(12.0).view(1, 3, 4), "mean", torch.tensor([[1, 1, 0]])).tolist()
    [[2.0, 3.0, 4.0, 5.0]]
    """
    if callable(pool):
        features = pool(features)
        if not isinstance(features, Tensor) or features.ndim != 2:
            raise UsageError(
                f"pool= must give one row of features for each sample, (B, D); it gives {_shown(features)}"
            )
        return features
    if features.ndim == 2:
        return features
    if features.ndim == 4 and pool in ("", "mean"):
        return features.mean((2, 3))
    if features.ndim == 3 and pool in POOLS:
        return _along(features, pool, mask if mask is not None and mask.shape == features.shape[:2] else None)
    if features.ndim == 3:
        raise UsageError(
            f"{where} is a sequence {tuple(features.shape)}; say how it becomes one row for each sample: "
            f"pool={', '.join(POOLS)} or a function"
        )
    raise UsageError(
        f"{where} has the shape {tuple(features.shape)}; features are (B, D), maps (B, C, H, W) or sequences (B, T, D) "
        f"with a pooling. Name another layer (at=), or give a function"
    )


def _along(features: Tensor, pool: str, mask: Tensor | None) -> Tensor:
    if pool == "cls":
        return features[:, 0]
    if mask is None:
        return features.mean(1) if pool == "mean" else features[:, -1]
    there = mask.to(features.device) != 0
    if pool == "mean":
        weight = there.to(features.dtype).unsqueeze(2)
        return (features * weight).sum(1) / weight.sum(1).clamp(min=1)
    place = torch.arange(features.shape[1], device=features.device)
    last = torch.where(there, place, -1).amax(1).clamp(min=0)
    return features[torch.arange(len(features), device=features.device), last]


def module_at(model: nn.Module, name: str) -> nn.Module:
    """The module of a dotted name; "" is the model itself, and an unknown one is refused.

    >>> module_at(nn.Sequential(nn.Flatten()), "0")
    Flatten(start_dim=1, end_dim=-1)
    """
    named = dict(model.named_modules())
    if name not in named:
        last = ", ".join(part for part in list(named)[-LISTED:] if part)
        raise UsageError(f'the model has no module "{name}".{did_you_mean(name, named)} Its last ones are: {last}')
    found: nn.Module = named[name]
    return found


def unwrapped(model: Any) -> nn.Module:
    """The model itself, out of what torch.compile and DistributedDataParallel put around it.

    >>> unwrapped(nn.Flatten())
    Flatten(start_dim=1, end_dim=-1)
    """
    if not isinstance(model, nn.Module):
        raise UsageError(f"a model is an nn.Module that was made, got {model!r:.80}")
    if isinstance(model, nn.DataParallel):
        raise UsageError(
            "DataParallel copies the model for every batch; use DistributedDataParallel, or the model alone"
        )
    if isinstance(model, nn.parallel.DistributedDataParallel):
        return unwrapped(model.module)
    return unwrapped(model._orig_mod) if hasattr(model, "_orig_mod") else model


def locate(
    model: nn.Module, inputs: Any, at: Any = "auto", pool: str | Reader | None = None, *, scores: bool = True
) -> Tap:
    """A tap of a model where `at` says: "auto", a module's dotted name, a module, or a function of the output.

    `inputs` are two samples or more; the model is asked about them in evaluation mode, and left in its own. Without
    `scores` the model may give anything.

    >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> str(locate(model, torch.rand(2, 4)).place), str(locate(model, torch.rand(2, 4), at="1").place)
    ('the input of 2', 'the output of 1')
    """
    if isinstance(pool, str):
        one_of("pool", pool, POOLS)
    elif pool is not None and not callable(pool):
        raise UsageError(f"pool must be {', '.join(POOLS)} or a function of the features, got {pool!r:.80}")
    function = pool if pool is not None and not isinstance(pool, str) else None
    named = "function" if function is not None else str(pool or "")
    if isinstance(at, nn.Module):
        place = Place(_name_of(model, at), pool=named)
    elif callable(at):
        place = Place("", "function", named)
    elif not isinstance(at, str):
        raise UsageError(f'at must be "auto", the name of a module, a module or a function, got {at!r:.80}')
    elif at == "auto":
        place = _last_layer(model, inputs, named, scores=scores)
    else:
        module_at(model, at)
        place = Place(at, pool=named)
    if place.side != "function" and not place.module:
        raise UsageError("at names the whole model, whose output are the class scores; name the layer before them")
    place = replace(place, scores=scores)
    tap = Tap(model, place, function=at if place.side == "function" else None, pool=function)
    _check(tap, inputs)
    return tap


def _name_of(model: nn.Module, module: nn.Module) -> str:
    for name, part in model.named_modules():
        if part is module:
            return str(name)
    raise UsageError(f"at is a {type(module).__name__} that is no part of the model; name one of its own layers")


def _last_layer(model: nn.Module, inputs: Any, pool: str, *, scores: bool) -> Place:
    """Where a model that says nothing of it is read best.

    Where it is told which positions are padding, as with texts: its last hidden states, averaged. A text of which a
    word is lost finds itself by these far more often than by the one position that a classifier reads. Else the input
    of the last linear layer that gives the class scores, or what else the model gives.
    """
    calls: list[tuple[str, Any, Any]] = []
    masks: list[Tensor | None] = []

    def keep(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            calls.append((name, args[0] if args else None, output))

        return hook

    def look(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        masks.append(mask_of(module, args, kwargs))

    handles = [part.register_forward_hook(keep(name)) for name, part in model.named_modules() if name]
    handles.append(model.register_forward_pre_hook(look, with_kwargs=True))
    try:
        with _taken(model, inputs):
            output = ask(model, inputs)
    finally:
        for handle in handles:
            handle.remove()
    logits = class_scores(output) if scores else None
    hidden = None if masks[0] is None else _last_hidden(calls, masks[0].shape, logits)
    if hidden is not None:
        return Place(hidden, pool=pool or "mean")
    if not scores and not (isinstance(output, Tensor) and output.ndim == 2):
        raise UsageError(
            f"the samples have no labels and the model gives {_shown(output)}, which names no layer by itself; name "
            "the layer whose output are the features: at="
        )
    logits = class_scores(output)
    linear = [call for call in calls if _linear(module_at(model, call[0])) and _are_tensors(call)]
    places = [place for call in reversed(linear) for place in _giving(call, logits, masks[0], pool)]
    if not places:
        tried = ", ".join(dict.fromkeys(name for name, _, _ in linear)) or "none"
        raise UsageError(
            f"no linear layer gives this model's {logits.shape[1]} {'class scores' if scores else 'numbers'} (linear "
            f"layers: {tried}); name the layer whose output are the features: at="
        )
    return places[0]


def _last_hidden(calls: list[tuple[str, Any, Any]], shape: tuple[int, ...], logits: Tensor | None) -> str | None:
    """The last module that ran once and gave (B, T, D) for inputs (B, T), unless D is that of the class scores."""
    often = Counter(name for name, _, _ in calls)
    for name, _, output in reversed(calls):
        found = getattr(output, "last_hidden_state", output)
        found = found[0] if isinstance(found, tuple | list) and found else found
        if often[name] > 1 or not isinstance(found, Tensor) or not found.is_floating_point():
            continue
        if found.ndim == 3 and found.shape[:2] == shape and (logits is None or found.shape[2] != logits.shape[1]):
            return str(name)
    return None


def _are_tensors(call: tuple[str, Any, Any]) -> bool:
    return isinstance(call[1], Tensor) and isinstance(call[2], Tensor)


def _giving(call: tuple[str, Tensor, Tensor], logits: Tensor, mask: Tensor | None, pool: str) -> Iterator[Place]:
    """Where a linear layer gives the class scores, its input; of a sequence, pooled as the model itself pools it."""
    name, _, made = call
    if made.ndim == 2 and len(made) == len(logits) and made.shape[1] in (logits.shape[1], logits.shape[1] - 1):
        yield Place(name, "input")
    elif made.ndim == 3 and made.shape[::2] == logits.shape:
        for one in (pool,) if pool in POOLS else POOLS:
            if pool in POOLS or torch.allclose(pooled(made, one, mask), logits):
                yield Place(name, "input", one)
        if pool == "function":
            yield Place(name, "input", pool)


def _linear(part: nn.Module) -> bool:
    return (
        isinstance(part, nn.Linear) or type(part).__name__ == "Conv1D" or isinstance(vars(part).get("in_features"), int)
    )


@contextmanager
def _taken(model: nn.Module, inputs: Any) -> Iterator[None]:
    """In evaluation mode; a model that does not take these inputs is refused."""
    try:
        with only_asked(model):
            yield
    except UsageError:
        raise
    except (RuntimeError, ValueError, TypeError, IndexError, AssertionError, AttributeError) as error:
        first = " ".join(str(error).split())[:200]
        way = "say with transform= how a stored sample becomes its input"
        if isinstance(inputs, Mapping):
            way = (
                f"its forward must have parameters of these names, {', '.join(inputs)}, even where it does not use them"
            )
        raise UsageError(f"the model does not take {_shown(inputs)} ({first}); {way}") from error


def _check(tap: Tap, inputs: Any) -> None:
    """Refuse features that are the class scores, or that tell more of a sample than the sample itself does."""
    with _taken(tap.model, inputs):
        together = tap.read(inputs)
    with _taken(tap.model, rows_of(inputs, slice(0, 1))):
        alone = tap.read(rows_of(inputs, slice(0, 1)))
    features = together.features
    if features.ndim != 2 or not features.is_floating_point() or features.shape[1] == 0:
        raise UsageError(f"{tap.place} gives {_shown(features)}; one row of features for each sample is needed, (B, D)")
    if tap.place.scores and features.shape == together.logits.shape and torch.equal(features, together.logits):
        raise UsageError(
            f"{tap.place} are the class scores themselves, not features: all samples of a class would look alike; name "
            'the layer before them, or at="auto"'
        )
    for name, one, both in (("features", alone.features, features), ("class scores", alone.logits, together.logits)):
        if one.shape != both[:1].shape:
            raise UsageError(f"the {name} of one sample have another shape alone than in a batch; {tap.place}")
        if not bool(torch.isfinite(both).all()):
            raise UsageError(f"the {name} of the first samples hold NaN or infinity ({tap.place}); check the weights")
        if float((both[:1] - one).abs().max()) > 0.01 * float(one.abs().max()):  # much more than rounding makes of it
            raise UsageError(
                f"in evaluation mode this model gives other {name} for the same sample alone and in a batch of "
                f"{len(both)}; leave out what takes statistics of the batch (BatchNorm with track_running_stats=False) "
                "or draws at random (F.dropout without training=self.training)"
            )


def rows_of(inputs: Any, rows: slice | Tensor) -> Any:
    """Some rows of a tensor, or of each tensor by name."""
    return {name: one[rows] for name, one in inputs.items()} if isinstance(inputs, Mapping) else inputs[rows]


@contextmanager
def watched(tap: Tap) -> Iterator[Tap]:
    """Hooked in for as long as this lasts."""
    tap.hook()
    try:
        yield tap
    finally:
        tap.unhook()


def _shown(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{value.dtype} of shape {tuple(value.shape)}"
    return f"a {type(value).__name__}" + (f" with {', '.join(map(str, value))}" if isinstance(value, Mapping) else "")

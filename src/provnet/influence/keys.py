"""Influence: how much an answer would change if a training sample had not been there, for all samples at once.

Gradients at every layer are sketched (`layers`), solved a layer at a time, weighted by how far from certain each sample
was while training went on, and summed over snapshots of the same training:

    score(x, i) = sum over snapshots and layers of  K_x (KᵀK + ridge)⁻¹ K_i,  times the course w_i

The whole keys hold the solved sketches of all samples. Compact keys hold `width` numbers per sample, the directions in
which weighted keys vary most, so that a score is one dot product. The student foretells the compact query from
features and class scores, without a backward pass.

Letters: N training samples, Q queries, S snapshots, k numbers of a layer's sketch, R numbers of a key per snapshot.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from provnet.base.batches import Inputs, at_once, keyed_generator, pieces
from provnet.base.errors import NonFiniteError, UsageError
from provnet.base.options import InfluenceOptions
from provnet.base.progress import progress_bar
from provnet.influence.layers import Gradients, Maps

State = Mapping[str, Tensor]
Loss = Callable[[Any, Tensor], Tensor]  # output and targets -> (B,) loss of each sample
ROWS = 256  # training samples whose scores give the spread of a kernel and the agreement of shorter keys
TURNS = 2  # of the search for principal directions
SPARE = 32  # directions beyond those that are kept
HELD = 2**31  # bytes of sketches that are held in memory; more lie in a file


@dataclass(frozen=True, eq=False)
class Subject:
    """A model, and what is asked of it.

    Attributes:
        model: in which gradients are taken; its weights are replaced by those of snapshots while they are asked.
        answer: inputs -> output with a gradient; the model itself where this is None.
        loss: of each sample; None for classes, where the margin is asked: a logit minus the log-sum-exp of the others.
    """

    model: nn.Module
    answer: Callable[[Any], Any] | None = None
    loss: Loss | None = None

    def output(self, inputs: Any) -> Any:
        """What the model says."""
        return (self.answer or self.model)(inputs)

    def numbers(self, inputs: Any, targets: Tensor) -> Tensor:
        """(B,) margins, or minus losses: larger is better."""
        output = self.output(inputs)
        return margins(output.float(), targets) if self.loss is None else -self.loss(output, targets)

    @contextmanager
    def at(self, state: State | None) -> Iterator[None]:
        """With the weights of a snapshot; the model's own are put back."""
        if state is None:
            yield
            return
        now = self.model.state_dict()
        unknown = sorted(set(state) - set(now))
        if unknown:
            raise UsageError(f"a snapshot holds {unknown[0]}, which the model has not; it is of another network")
        before = {name: now[name].clone() for name in state}
        try:
            _put(now, state)
            yield
        finally:
            _put(now, before)


@torch.no_grad()
def _put(now: State, state: State) -> None:
    for name, value in state.items():
        now[name].copy_(value)


def margins(scores: Tensor, classes: Tensor) -> Tensor:
    """(B,) logits of classes (B,) minus the log-sum-exp of the others: the log-odds of a class.

    >>> round(margins(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0])).item(), 4)
    1.3069
    """
    own = scores.gather(1, classes[:, None])
    return (own - scores.scatter(1, classes[:, None], -torch.inf).logsumexp(1, keepdim=True))[:, 0]


def course_of(history: Tensor) -> Tensor:
    """(E, N) class losses at each sample's own steps -> (N,) mean of 1 - p after the first epoch.

    >>> course_of(torch.tensor([[9.0, 9.0], [0.0, 0.6931472]])).tolist()
    [0.0, 0.5]
    """
    later = history[1:] if len(history) > 1 else history
    return (1 - torch.exp(-later.float())).mean(0)


@dataclass(eq=False)
class Part:
    """The keys of one snapshot.

    Attributes:
        state: its weights; None for those that the model has.
        number: what the fixed matrices of its sketches are drawn from.
        turn: (k, R) of each layer: from a sketch to the query.
        keys: (N, R) with the course in them, in units of the spread of this snapshot's scores.
        whole: (N, k) solved sketches of each layer, without the course; empty where they are not kept.
        spread: of the scores of the whole keys.
    """

    state: State | None
    number: int
    turn: dict[str, Tensor]
    keys: Tensor
    whole: dict[str, Tensor] = field(default_factory=dict)
    spread: float = 1.0


@final
class Influence:
    """Keys of all training samples. `scores` are summed over snapshots, `parts` are not.

    >>> model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> inputs, labels = torch.randn(40, 2), torch.arange(40) % 2
    >>> found = influence_of(Subject(model), inputs, labels)
    >>> tuple(found.scores(torch.randn(3, 2)).shape)
    (3, 40)
    """

    def __init__(
        self, subject: Subject, parts: Sequence[Part], course: Tensor, options: InfluenceOptions, agreement: float
    ) -> None:
        self.subject, self.parts, self.course, self.options = subject, list(parts), course, options
        self.agreement = agreement

    @property
    def device(self) -> torch.device:
        """Where the model lies."""
        return next(self.subject.model.parameters()).device

    def classes(self, inputs: Inputs) -> Tensor:
        """(Q,) the answers of the model."""
        found = []
        with torch.no_grad():
            for rows in pieces(len(inputs), _at_once(inputs, self.device)):
                found.append(self.subject.output(inputs[rows].to(self.device)).argmax(1))
        return torch.cat(found)

    def scores(self, inputs: Inputs, targets: Tensor | None = None, *, whole: bool = False) -> Tensor:
        """(Q, N) what each training sample adds to the answer of each input, or to the targets given."""
        return self.by_part(inputs, targets, whole=whole).sum(0) / len(self.parts)

    def by_part(self, inputs: Inputs, targets: Tensor | None = None, *, whole: bool = False) -> Tensor:
        """(S, Q, N) the same, of each snapshot alone."""
        targets = self.classes(inputs) if targets is None else targets
        if whole and not all(part.whole for part in self.parts):
            raise UsageError("the whole keys were not kept; make them with whole=True")
        found = []
        for part, sketches in self._sketched(inputs, targets):
            if whole:
                made = sum(_product(sketches[name], keys) for name, keys in part.whole.items())
                found.append(made * self.course.to(self.device) / part.spread)
            else:
                found.append(_product(_turned(sketches, part.turn), part.keys))
        return torch.stack(found)

    def queries(self, inputs: Inputs, targets: Tensor | None = None) -> Tensor:
        """(Q, S·R) what is multiplied with the compact keys."""
        targets = self.classes(inputs) if targets is None else targets
        return torch.cat([_turned(made, part.turn) for part, made in self._sketched(inputs, targets)], 1)

    @property
    def keys(self) -> Tensor:
        """(N, S·R) the compact keys of all snapshots."""
        return torch.cat([part.keys for part in self.parts], 1)

    def _sketched(self, inputs: Inputs, targets: Tensor) -> Iterator[tuple[Part, dict[str, Tensor]]]:
        """The sketches of queries at each snapshot."""
        caught = gradients(self.subject, inputs, targets, self.device)
        side = side_of(self.options, len(self.course))
        for part in self.parts:
            maps = caught.maps(side, part.number)
            with self.subject.at(part.state):
                found: dict[str, list[Tensor]] = {}
                for _, one in _passes(caught, inputs, targets, maps, self.device):
                    for name, sketch in one.items():
                        found.setdefault(name, []).append(sketch)
            yield part, {name: torch.cat(each) for name, each in found.items()}


def side_of(options: InfluenceOptions, n: int) -> int:
    """Columns of the fixed matrices: as asked for, else so that a sketch has less numbers than there are samples.

    >>> [side_of(InfluenceOptions(), n) for n in (100, 4000, 60_000)]
    [8, 31, 64]
    """
    return options.side or min(64, max(8, math.isqrt(n) // 2))


def gradients(subject: Subject, inputs: Inputs, targets: Tensor, device: torch.device) -> Gradients:
    """What catches the gradients of this model; it has been tried on the first inputs."""
    made = Gradients(subject.model, subject.numbers, half=device.type == "cuda")
    made.probe(inputs[:3].to(device), targets[:3].to(device))
    return made


def influence_of(
    subject: Subject,
    inputs: Inputs,
    targets: Tensor,
    *,
    snapshots: Sequence[State] = (),
    course: Tensor | None = None,
    options: InfluenceOptions | None = None,
    folder: Path | None = None,
    progress: bool = False,
) -> Influence:
    """Make the keys of all training samples, at the weights of now and at those of snapshots of the same training.

    Without the `course` (N,) of a classifier's samples 1 - p of now stands for it. Sketches that take more than two
    gigabytes lie in `folder` while they are needed; whole keys stay there.
    """
    options = options or InfluenceOptions()
    device = next(subject.model.parameters()).device
    targets = targets.to(device)
    caught = gradients(subject, inputs, targets, device)
    side = side_of(options, len(inputs))
    states: list[State | None] = [*snapshots, None]
    width = max(1, options.width // len(states))
    batches = -(-len(inputs) // _at_once(inputs, device))
    parts, kept, agreed = [], course, []
    with progress_bar("influence", batches * len(states), progress) as update:
        for number, state in reversed(list(enumerate(states))):  # the weights of now first: 1 - p is theirs
            maps = caught.maps(side, number)
            with subject.at(state):
                room = _Room(folder if options.whole or folder else None, f"snapshot-{number}", len(inputs))
                values = []
                for value, sketches in _passes(caught, inputs, targets, maps, device):
                    values.append(value)
                    room.add(sketches)
                    update((len(parts) * batches) + len(values), "")
            if kept is None:
                kept = torch.sigmoid(-torch.cat(values)) if subject.loss is None else torch.ones(len(inputs))
            weights = kept.to(device).float()
            part, agreement = _solved(room, weights, state, number, width, options)
            parts.append(part)
            agreed.append(agreement)
    assert kept is not None
    return Influence(subject, parts[::-1], kept, options, sum(agreed) / len(agreed))


class _Room:
    """Where the sketches of all samples are put: (N, k) of each layer, in memory or in files."""

    def __init__(self, folder: Path | None, name: str, n: int) -> None:
        self.folder, self.name, self.n, self.done = folder, name, n, 0
        self.held: dict[str, Tensor] = {}

    def add(self, sketches: Mapping[str, Tensor]) -> None:
        """The next few samples."""
        for name, one in sketches.items():
            if name not in self.held:
                self.held[name] = self._made(name, one)
            self.held[name][self.done : self.done + len(one)] = one
        self.done += len(one)

    def _made(self, name: str, one: Tensor) -> Tensor:
        size = self.n, one.shape[1]
        if self.folder is None:
            return one.new_empty(size)
        self.folder.mkdir(parents=True, exist_ok=True)
        path = str(self.folder / f"{self.name}-{len(self.held)}.raw")
        return torch.from_file(path, shared=True, size=size[0] * size[1], dtype=one.dtype).view(size)


def _passes(
    caught: Gradients, inputs: Inputs, targets: Tensor, maps: Maps, device: torch.device
) -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
    """Values and sketches, a few samples at a time."""
    for rows in pieces(len(inputs), _at_once(inputs, device)):
        yield caught(inputs[rows].to(device), targets[rows].to(device), maps)


def _at_once(inputs: Inputs, device: torch.device) -> int:
    return at_once(tuple(inputs.shape[1:]), device.type, 64 if device.type == "cpu" else 512)


def _product(one: Tensor, other: Tensor) -> Tensor:
    """(Q, k) and (N, k) -> (Q, N) in float32, some samples at a time where they lie elsewhere."""
    return torch.cat([one.float() @ part.to(one.device).float().t() for part in torch.split(other, 8192)], 1)


def _turned(sketches: Mapping[str, Tensor], turn: Mapping[str, Tensor]) -> Tensor:
    """(B, R) what is compared, of the sketches (B, k) of each layer."""
    found = [sketches[name].float() @ matrix.to(sketches[name].device).float() for name, matrix in turn.items()]
    return torch.stack(found).sum(0)


def _solved(
    room: _Room, course: Tensor, state: State | None, number: int, width: int, options: InfluenceOptions
) -> tuple[Part, float]:
    """From sketches to keys, whole and compact, and how well the two agree."""
    device = course.device
    whiten = {name: _whitener(held, options.ridge, device) for name, held in room.held.items()}
    n = len(course)
    rows = torch.randperm(n, generator=keyed_generator(number, n, 5))[:ROWS]
    scores = torch.zeros(len(rows), n, device=device)
    for name, held in room.held.items():
        solved = held[rows].to(device).float() @ whiten[name] @ whiten[name].t()
        scores += _product(solved, held)
    scores *= course
    others = torch.ones_like(scores, dtype=torch.bool)
    others[torch.arange(len(rows)), rows.to(device)] = False  # what a sample adds to itself is no measure
    spread = float(scores[others].std())
    if not math.isfinite(spread) or spread <= 0:
        raise NonFiniteError(
            "the gradients of this network say nothing: the scores of all samples are "
            f"{'alike' if spread == 0 else 'not finite'}"
        )
    directions = _principal(room.held, whiten, course.sqrt(), width, (number, n))
    turn = {name: whiten[name] @ directions[name] for name in whiten}
    keys = torch.cat([_turned({name: held[part].to(device) for name, held in room.held.items()}, turn)
                      for part in pieces(n, 4096)])
    compact = (keys[rows.to(device)] @ keys.t()) * course
    agreement = float(torch.corrcoef(torch.stack([compact[others], scores[others]]))[0, 1])
    keys = (keys * (course / spread)[:, None]).bfloat16()
    made = Part(state, number, {name: one.bfloat16() for name, one in turn.items()}, keys, spread=spread)
    if options.whole:
        for name, held in room.held.items():
            solve = whiten[name] @ whiten[name].t()
            for part in pieces(n, 4096):
                held[part] = (held[part].to(device).float() @ solve).to(held.dtype).to(held.device)
        made.whole = room.held
    return made, agreement


def _whitener(held: Tensor, ridge: float, device: torch.device) -> Tensor:
    """(k, k) W with W Wᵀ = (KᵀK + ridge · mean diagonal)⁻¹."""
    size = held.shape[1]
    gram = torch.zeros(size, size, device=device)
    for part in torch.split(held, 8192):
        given = part.to(device).float()
        gram.addmm_(given.t(), given)
    gram.diagonal().add_(ridge * gram.diagonal().mean() + 1e-30)
    factor, failed = torch.linalg.cholesky_ex(gram)
    if failed:
        factor = torch.linalg.cholesky(gram.double()).float()
    one = torch.eye(size, device=device)
    return torch.linalg.solve_triangular(factor, one, upper=False).t().contiguous()


def _principal(
    held: Mapping[str, Tensor], whiten: Mapping[str, Tensor], weights: Tensor, width: int, key: tuple[int, int]
) -> dict[str, Tensor]:
    """(k, R) of each layer: the directions in which whitened keys, weighted, vary most over all layers together."""
    device, n = weights.device, len(weights)
    total = sum(one.shape[1] for one in held.values())
    width = min(width, total, n)
    count = min(width + SPARE, total, n)
    drawn = {
        name: torch.randn(one.shape[1], count, generator=keyed_generator(*key, place)).to(device)
        for place, (name, one) in enumerate(held.items())
    }

    def forwards(given: Mapping[str, Tensor]) -> Tensor:
        """(N, count) whitened keys times these directions."""
        inner = {name: whiten[name] @ one for name, one in given.items()}
        parts = []
        for rows in pieces(n, 8192):
            made = [held[name][rows].to(device).float() @ one for name, one in inner.items()]
            parts.append(torch.stack(made).sum(0) * weights[rows, None])
        return torch.cat(parts)

    def backwards(given: Tensor) -> dict[str, Tensor]:
        """(k, count) of each layer: whitened keys, turned round, times (N, count)."""
        found = {}
        for name, one in held.items():
            made = torch.zeros(one.shape[1], given.shape[1], device=device)
            for rows in pieces(n, 8192):
                made += one[rows].to(device).float().t() @ (given[rows] * weights[rows, None])
            found[name] = whiten[name].t() @ made
        return found

    for _ in range(TURNS):
        base = torch.linalg.qr(forwards(drawn)).Q
        drawn = backwards(base)
    stacked = torch.cat(list(drawn.values()))  # (total, count)
    left, _, _ = torch.linalg.svd(stacked, full_matrices=False)
    cut = torch.split(left[:, :width], [one.shape[0] for one in drawn.values()])
    return dict(zip(drawn, cut, strict=True))

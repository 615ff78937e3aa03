"""Influence: how much an answer would change if a training sample had not been there, for all samples at once.

Gradients at every layer are sketched (`layers`), solved a layer at a time, weighted by how far from certain each sample
was while training went on, and summed over snapshots of the same training:

    score(x, i) = sum over snapshots and layers of  K_x (KᵀK + ridge)⁻¹ K_i,  times the course w_i

The whole keys hold the solved sketches of all samples. Compact keys hold `width` numbers per sample, the directions in
which weighted keys vary most, so that a score is one dot product. The student foretells the compact query from
features and class scores, without a backward pass.

Letters: N training samples, Q queries, S snapshots, k numbers of a layer's sketch, R directions of a snapshot,
W numbers of a key.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn

from provnet.base.atomic import explain_disk
from provnet.base.batches import Fields, Inputs, at_once, keyed_generator, pieces
from provnet.base.errors import NonFiniteError, UsageError
from provnet.base.options import InfluenceOptions
from provnet.base.progress import forecast, progress_bar
from provnet.base.stats import t_quantile
from provnet.influence.layers import Gradients, Maps

State = Mapping[str, Tensor]
Loss = Callable[[Any, Tensor], Tensor]  # output and targets -> (B,) loss of each sample
LOOKED = 2048  # training samples whose gradients say in which directions a layer is sketched
ROWS = 256  # training samples whose scores give the spread of a kernel and the agreement of compact keys
RANK = 1024  # directions of each snapshot
TURNS, SPARE = 2, 32  # of the search for the directions of compact keys, and directions beyond those that are kept
HELD = 4_000_000_000  # bytes of sketches of a snapshot in main memory; more lie in files
PIECE = 8192  # samples, or columns, that are solved at a time
SHARE = 0.5  # a layer counts by its number of weights to this power
SHUFFLED, TAIL, CHANCE = 4096, 0.01, 0.05  # keys of no sample, the part of their scores that is followed, and how far
LEAST = 1e-3  # of a course: what was certain at once still counts a little


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
    """One snapshot.

    Attributes:
        state: its weights; None for those that the model has.
        number: of the snapshot, from 0.
        maps: the two matrices by which each layer is sketched.
        turn: (k, R) of each layer: from a sketch to the directions in which the scores of this snapshot vary most.
        onto: (R, W) from these to the directions of the keys, which all snapshots share.
        spread: of the scores of the whole keys.
        base, held: (N, R) those directions and (ROWS, R) queries of some training samples, while keys are made.
        whole: (N, k) solved sketches of each layer, without the course; empty where they are not kept.
    """

    state: State | None
    number: int
    maps: Maps
    turn: dict[str, Tensor] = field(default_factory=dict)
    onto: Tensor = field(default_factory=lambda: torch.zeros(0, 0))
    spread: float = 1.0
    base: Tensor = field(default_factory=lambda: torch.zeros(0, 0))
    held: Tensor = field(default_factory=lambda: torch.zeros(0, 0))
    whole: dict[str, Tensor] = field(default_factory=dict)


@final
class Influence:
    """Keys of all training samples. `scores` are summed over snapshots, `parts` are not.

    >>> model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> inputs, labels = torch.randn(40, 2), torch.arange(40) % 2
    >>> found = influence_of(Subject(model), inputs, labels)
    >>> tuple(found.scores(torch.randn(3, 2)).shape)
    (3, 40)
    """

    def __init__(self, subject: Subject, parts: Sequence[Part], keys: Tensor, course: Tensor, agreement: float) -> None:
        self.subject, self.parts, self.keys, self.course = subject, list(parts), keys, course
        self.agreement = agreement
        self.unit: float | None = None  # log-odds in one unit of the scores, where trainings have said it
        self._shuffled: Tensor | None = None
        self._caught: Gradients | None = None

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
        return (
            self.by_part(inputs, targets, whole=True).mean(0) if whole else self.scored(self.queries(inputs, targets))
        )

    def by_part(self, inputs: Inputs, targets: Tensor | None = None, *, whole: bool = False) -> Tensor:
        """(S, Q, N) the same, of each snapshot alone."""
        if not whole:
            return torch.stack([_product(one, self.keys) for one in self.queries(inputs, targets)])
        if not all(part.whole for part in self.parts):
            raise UsageError("the whole keys were not kept; make them with whole=True")
        targets = self.classes(inputs) if targets is None else targets
        found = []
        for part, sketches in self._sketched(inputs, targets):
            made = torch.stack([_product(sketches[name], keys) for name, keys in part.whole.items()]).sum(0)
            found.append(made * self.course.to(self.device) / part.spread)
        return torch.stack(found)

    def queries(self, inputs: Inputs, targets: Tensor | None = None) -> Tensor:
        """(S, Q, W) what is multiplied with the compact keys; a score is the mean over snapshots."""
        targets = self.classes(inputs) if targets is None else targets
        found = torch.stack(
            [
                _turned(made, part.turn) @ part.onto.to(self.device).float()
                for part, made in self._sketched(inputs, targets)
            ]
        )
        return found * (self.unit or 1.0)

    def scored(self, queries: Tensor) -> Tensor:
        """(S, Q, W) queries -> (Q, N) scores."""
        return _product(queries.mean(0), self.keys)

    def chance(self, queries: Tensor) -> Tensor:
        """(Q,) what no sample would reach by chance, in 95 of 100 queries.

        Keys whose columns are shuffled each by itself belong to no sample. Their scores beyond the highest hundredth
        fall off exponentially; that tail is followed to one in twenty for the largest of N.
        """
        if self._shuffled is None:
            n, width = self.keys.shape
            rows = torch.randint(n, (SHUFFLED, width), generator=keyed_generator(n, 11)).to(self.keys.device)
            self._shuffled = self.keys.gather(0, rows)
        null = _product(queries.mean(0), self._shuffled).sort(1).values
        top = null[:, -max(1, round(TAIL * null.shape[1])) :]
        beyond = (top - top[:, :1]).mean(1)
        return top[:, 0] + beyond * math.log(max(TAIL * len(self.keys) / CHANCE, 1.0))

    def interval(self, queries: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        """(Q, K) samples -> the ends (Q, K) of the 95 % intervals of their scores, by how far the snapshots agree."""
        each = torch.einsum("sqw,qkw->sqk", queries, self.keys[index.clamp(min=0)].float())
        count = len(each)
        if count == 1:  # nothing is known of the spread
            return torch.full_like(each[0], -torch.inf), torch.full_like(each[0], torch.inf)
        half = t_quantile(count - 1) * each.std(0) / count**0.5
        return each.mean(0) - half, each.mean(0) + half

    def _sketched(self, inputs: Inputs, targets: Tensor) -> Iterator[tuple[Part, dict[str, Tensor]]]:
        """The sketches of queries at each snapshot."""
        if self._caught is None:
            self._caught = gradients(self.subject, inputs, targets, self.device)
        for part in self.parts:
            with self.subject.at(part.state):
                found: dict[str, list[Tensor]] = {}
                for _, one in _passes(self._caught, inputs, targets, part.maps, self.device):
                    for name, sketch in one.items():
                        found.setdefault(name, []).append(sketch)
            yield part, {name: torch.cat(each) for name, each in found.items()}


def gradients(subject: Subject, inputs: Inputs, targets: Tensor, device: torch.device) -> Gradients:
    """What catches the gradients of this model; it has been tried on the first inputs."""
    made = Gradients(subject.model, subject.numbers, half=device.type == "cuda")
    made.probe(_usual(inputs[:3].to(device)), _usual(targets[:3].to(device)))
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

    Without the `course` (N,) of a classifier's samples 1 - p of now stands for it. Sketches lie in files of `folder`
    where it is given, and whole keys stay there; of more than four gigabytes, in a folder that is removed afterwards.
    """
    options = options or InfluenceOptions()
    device = next(subject.model.parameters()).device
    targets = targets.to(device)
    caught = gradients(subject, inputs, targets, device)
    shares = {
        name: float(layer.inputs * layer.outputs / layer.groups) ** SHARE for name, layer in caught.layers.items()
    }
    states: list[State | None] = [*snapshots, None]
    looked = torch.randperm(len(inputs), generator=keyed_generator(len(inputs), 3))[:LOOKED]
    some = list(torch.split(looked, _at_once(inputs, device)))
    batches = -(-len(inputs) // _at_once(inputs, device))
    forecast("influence", _seconds(caught, inputs, targets, len(states), options), enabled=progress)
    parts: list[Part] = []
    kept, agreed = course, []
    with progress_bar("influence", batches * len(states), progress) as update, _tf32():
        for number, state in reversed(list(enumerate(states))):  # the weights of now first: 1 - p is theirs
            with subject.at(state):
                shown = ((inputs[rows].to(device), targets[rows.to(device)]) for rows in some)
                found = caught.principal_maps(shown, options.sketch, number)
                maps = {name: (one.bfloat16().float(), two.bfloat16().float()) for name, (one, two) in found.items()}
                room, values = _Room(folder, f"snapshot-{number}", len(inputs)), []
                for value, sketches in _passes(caught, inputs, targets, maps, device):
                    values.append(value)
                    room.add(sketches)
                    update((len(parts) * batches) + len(values), "")
            if kept is None:
                kept = torch.sigmoid(-torch.cat(values)) if subject.loss is None else torch.ones(len(inputs))
            part = Part(state, number, maps)
            agreed.append(_solve(room.held, shares, kept.to(device).float(), part, options))
            parts.insert(0, part)
    assert kept is not None
    keys, agreement = _shared(parts, kept.to(device).float(), options.width, agreed)
    return Influence(subject, parts, keys, kept, agreement)


class _Room:
    """Where the sketches of all samples are put: (N, k) of each layer in bf16, in memory or in files."""

    def __init__(self, folder: Path | None, name: str, n: int) -> None:
        self.folder, self.name, self.n, self.done = folder, name, n, 0
        self.held: dict[str, Tensor] = {}

    def add(self, sketches: Mapping[str, Tensor]) -> None:
        """The next few samples."""
        if not self.held:
            width = sum(one.shape[1] for one in sketches.values())
            where = next(iter(sketches.values())).device
            if self.folder is None and where.type == "cpu" and 2 * self.n * width > HELD:
                self.folder = Path(tempfile.mkdtemp(prefix="provnet-influence-"))
                weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
            self.held = {name: self._made(name, one.shape[1], where) for name, one in sketches.items()}
        for name, one in sketches.items():
            self.held[name][self.done : self.done + len(one)] = one
        self.done += len(one)

    def _made(self, name: str, width: int, where: torch.device) -> Tensor:
        if self.folder is None:
            return torch.empty(self.n, width, dtype=torch.bfloat16, device=where)
        size = 2 * self.n * width
        path = self.folder / f"{self.name}-{name}.raw"
        with explain_disk(self.folder, size):  # room is taken at once: a mapped file cannot say that the disk is full
            self.folder.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, size)
        return torch.from_file(str(path), shared=True, size=self.n * width, dtype=torch.bfloat16).view(self.n, width)


def _passes(
    caught: Gradients, inputs: Inputs, targets: Tensor, maps: Maps, device: torch.device
) -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
    """Values and sketches, a few samples at a time."""
    for rows in pieces(len(inputs), _at_once(inputs, device)):
        yield caught(_usual(inputs[rows].to(device)), _usual(targets[rows].to(device)), maps)


def _seconds(caught: Gradients, inputs: Inputs, targets: Tensor, states: int, options: InfluenceOptions) -> float:
    """How long the keys will take: by one batch, and by one product of matrices for the solves."""
    device, n, side = targets.device, len(inputs), math.isqrt(options.sketch)
    rows = slice(0, _at_once(inputs, device))
    began = time.perf_counter()
    float(caught(_usual(inputs[rows].to(device)), _usual(targets[rows]), caught.maps(side, 0))[0].sum())
    batch = time.perf_counter() - began
    one = torch.ones(512, 512, device=device)
    began = time.perf_counter()
    float((one @ one).sum())
    product = (time.perf_counter() - began) / 512**3
    sizes = [min(layer.inputs * layer.outputs, options.sketch) for layer in caught.layers.values()]
    solves = sum(n * k * (min(n, k) + 8 * min(options.width, RANK, n)) for k in sizes)
    return states * (batch * (n + LOOKED) / (rows.stop - rows.start) + product * solves)


def _usual(given: Any) -> Any:
    """A tensor that was made in inference mode is copied: gradients cannot pass it."""
    if isinstance(given, Fields):
        return Fields({name: _usual(one) for name, one in given.named()})
    with torch.inference_mode(False):
        return given.clone() if given.is_inference() else given


def _at_once(inputs: Inputs, device: torch.device) -> int:
    return at_once(tuple(inputs.shape[1:]), device.type, 64 if device.type == "cpu" else 512)


def _product(one: Tensor, other: Tensor) -> Tensor:
    """(Q, k) and (N, k) -> (Q, N) in float32, some samples at a time where they lie elsewhere."""
    return torch.cat([one.float() @ part.to(one.device).float().t() for part in torch.split(other, 8192)], 1)


def _turned(sketches: Mapping[str, Tensor], turn: Mapping[str, Tensor]) -> Tensor:
    """(B, R) what is compared, of the sketches (B, k) of each layer."""
    found = [sketches[name].float() @ matrix.to(sketches[name].device).float() for name, matrix in turn.items()]
    return torch.stack(found).sum(0)


class _Solved:
    """K (KᵀDK + ridge)⁻¹ Kᵀ of one layer, D the course, by whichever of both sides is smaller.

    The ridge is in units of the mean squared length of a sample's gradient, each weighted as in the middle.
    """

    def __init__(self, held: Tensor, course: Tensor, ridge: float, share: float) -> None:
        self.held, self.root, self.share = held, course.clamp_min(LEAST).sqrt(), share
        n, size = held.shape
        self.primal = size <= n
        device = course.device
        if self.primal:
            gram = torch.zeros(size, size, device=device)
            for rows in pieces(n, PIECE):
                part = self._weighted(rows)
                gram.addmm_(part.t(), part)
        else:
            whole = self._weighted(slice(0, n))
            gram = whole @ whole.t()
        gram.diagonal().add_(ridge * gram.diagonal().sum() / n + 1e-30)
        factor, failed = torch.linalg.cholesky_ex(gram)
        self.factor = torch.linalg.cholesky(gram.double()).float() if failed else factor

    def _weighted(self, rows: slice) -> Tensor:
        return self.held[rows].to(self.root.device).float() * self.root[rows, None]

    def turned(self, given: Tensor) -> Tensor:
        """(k, R) of (N, R): (KᵀDK + ridge)⁻¹ Kᵀ times it."""
        n = len(self.held)
        if self.primal:
            made = torch.zeros(self.held.shape[1], given.shape[1], device=given.device)
            for rows in pieces(n, PIECE):
                made += self.held[rows].to(given.device).float().t() @ given[rows]
            return torch.cholesky_solve(made, self.factor) * self.share
        inner = torch.cholesky_solve(given / self.root[:, None], self.factor)
        return self._weighted(slice(0, n)).t() @ inner * self.share

    def times(self, given: Tensor) -> Tensor:
        """(N, R) of (k, R): K times it."""
        return torch.cat([self.held[rows].to(given.device).float() @ given for rows in pieces(len(self.held), PIECE)])

    def keep(self) -> Tensor:
        """(N, k) the solved sketches, in the place of the others."""
        if self.primal:
            for rows in pieces(len(self.held), PIECE):
                part = self.held[rows].to(self.root.device).float()
                self.held[rows] = (torch.cholesky_solve(part.t(), self.factor).t() * self.share).to(self.held)
            return self.held
        for columns in pieces(self.held.shape[1], PIECE):
            part = self.held[:, columns].to(self.root.device).float() * self.root[:, None]
            made = torch.cholesky_solve(part, self.factor) / self.root[:, None] * self.share
            self.held[:, columns] = made.to(self.held)
        return self.held


@dataclass
class _Checked:
    """Whole scores (ROWS, N) of some training samples with others, and where a sample meets itself."""

    rows: Tensor
    scores: Tensor
    others: Tensor


@contextmanager
def _tf32() -> Iterator[None]:
    """Products of sketches, which are bf16, are not made worse by rounding their factors; it is put back."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _solve(
    sketches: Mapping[str, Tensor], shares: Mapping[str, float], course: Tensor, part: Part, options: InfluenceOptions
) -> _Checked:
    """Solve the layers of a snapshot and find its main directions; what the keys will be held against."""
    n, device = len(course), course.device
    solved = {name: _Solved(held, course, options.ridge, shares[name]) for name, held in sketches.items()}
    rows = torch.randperm(n, generator=keyed_generator(n, 5))[:ROWS].to(device)
    chosen = torch.zeros(n, len(rows), device=device)
    chosen[rows, torch.arange(len(rows), device=device)] = 1
    scores = torch.stack([one.times(one.turned(chosen)) for one in solved.values()]).sum(0).t() * course
    others = chosen.t() == 0  # what a sample adds to itself is no measure
    part.spread = float(scores[others].std())
    if not math.isfinite(part.spread) or part.spread <= 0:
        what = "alike" if part.spread == 0 else "not finite"
        raise NonFiniteError(f"the gradients of this network tell no samples apart: all scores are {what}")
    root = course.clamp_min(LEAST).sqrt()[:, None]
    base, sizes = _subspace(solved, root, min(options.width, RANK), (part.number, n))
    part.turn = {name: one.turned(base * root).bfloat16() for name, one in solved.items()}
    part.base = base * (sizes.clamp_min(0) / part.spread).sqrt()
    part.onto = base
    part.held = torch.stack([one.times(part.turn[name].float())[rows] for name, one in solved.items()]).sum(0)
    if options.whole:
        part.whole = {name: one.keep() for name, one in solved.items()}
    return _Checked(rows, scores / part.spread, others)


def _shared(parts: Sequence[Part], course: Tensor, width: int, checked: Sequence[_Checked]) -> tuple[Tensor, float]:
    """(N, W) the keys that all snapshots share, and how well scores by them agree with the whole ones."""
    n, root = len(course), course.clamp_min(LEAST).sqrt()[:, None]
    if len(parts) == 1:
        common = parts[0].onto
    else:
        base = torch.randn(n, min(width + SPARE, n), generator=keyed_generator(n, 7)).to(root)
        for _ in range(2 * TURNS):
            base = torch.linalg.qr(torch.stack([part.base @ (part.base.t() @ base) for part in parts]).sum(0)).Q
        inner = torch.stack([(base.t() @ part.base) @ (part.base.t() @ base) for part in parts]).sum(0)
        common = base @ torch.linalg.eigh(inner)[1].flip(1)[:, : min(width, n)]
    keys = common * root
    short = torch.zeros_like(checked[0].scores)
    for part in parts:
        part.onto = part.onto.t() @ common / part.spread
        short += part.held @ part.onto @ keys.t()
        part.base = part.held = torch.zeros(0, 0)
        part.onto = part.onto.bfloat16()
    whole, others = torch.stack([one.scores for one in checked]).sum(0), checked[0].others
    return keys.bfloat16(), float(torch.corrcoef(torch.stack([short[others], whole[others]]))[0, 1])


def _subspace(solved: Mapping[str, _Solved], root: Tensor, width: int, key: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """(N, R) the directions in which the weighted scores of all samples, summed over layers, vary most; how much."""
    n = len(root)
    count = min(width + SPARE, n)
    base = torch.randn(n, count, generator=keyed_generator(*key)).to(root)

    def passed(given: Tensor) -> Tensor:
        return torch.stack([one.times(one.turned(given * root)) for one in solved.values()]).sum(0) * root

    for _ in range(TURNS):
        base = torch.linalg.qr(passed(base)).Q
    inner = base.t() @ passed(base)
    sizes, vectors = torch.linalg.eigh((inner + inner.t()) / 2)
    return base @ vectors.flip(1)[:, : min(width, n)], sizes.flip(0)[: min(width, n)]

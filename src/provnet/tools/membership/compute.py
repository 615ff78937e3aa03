"""Membership audit: how well members of a training set are told from pictures that were never trained on (§5.4).

Six scores say how much a picture looks like one that the network was trained on. Four are the paper's: largest
confidence and entropy, each of the index branch and of the class branch, always with the predicted class. Two are ours:
the similarity of the best match before it becomes a share, and how far that match stands out from the next nine; those
hold under distortion, where a share does not.

Beside every figure stand what it must be compared with: looking the hash up, which needs no network; a network that saw
neither set, which must not tell them apart; the same one with keys of its own, which stores the members but has learned
nothing; and copies, members and others distorted alike. Weights are drawn anew from the index head down.

Letters: n pictures or samples compared, Q queries, D features.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from provnet.answers.attributor import Answered, Attributor
from provnet.answers.metrics import Operating, Roc, auc, roc, tpr_at
from provnet.base.batches import Inputs, all_finite, at_once, fold, split
from provnet.base.errors import NonFiniteError, UsageError
from provnet.base.options import AuditOptions, with_changes
from provnet.base.progress import Update, progress_bar
from provnet.base.stats import Interval, wilson
from provnet.data.dataset import Dataset, ImageData, image_data
from provnet.data.modalities.augment import Copy, fix_copy
from provnet.heads.index_map import IndexMap
from provnet.heads.keys import pack, unit
from provnet.heads.scores import spread_of
from provnet.models.keys import draw_keys, exemplar_head, features_of, key_head, restrict_network, with_keys
from provnet.models.network import NetworkConfig, ProvenanceNet, build
from provnet.runs.inputs import Fitted, as_trained, checked_inputs, inputs_of, raw_tensor, run_of
from provnet.runs.run import Run
from provnet.samples.identity import SampleTable

BATCH = {"cpu": 128, "cuda": 1024}  # pictures whose copies are drawn together; a network may take fewer at a time


@dataclass(frozen=True, eq=False)
class MemberScores:
    """Scores of n pictures.

    Attributes:
        values: name in SCORES -> (n,) float64, higher where a picture looks more like a member; entropies are negated.
            Those of the index branch are NaN where no sample may be named.
        predicted: (n,) int64 class.
        match: (n,) int64, the training sample named first; -1 where all of the class are withheld.
    """

    values: dict[str, np.ndarray]
    predicted: np.ndarray
    match: np.ndarray

    @property
    def named(self) -> np.ndarray:
        """(n,) bool, whether a sample may be named."""
        return np.asarray(self.match >= 0)

    def select(self, rows: np.ndarray) -> MemberScores:
        """The scores of some of the pictures."""
        values = {name: value[rows] for name, value in self.values.items()}
        return MemberScores(values, self.predicted[rows], self.match[rows])


def member_scores(
    run: Run | Fitted,
    images: Tensor | np.ndarray,
    *,
    copy: Copy | None = None,
    seed: int = 0,
    first: int = 0,
    batch_size: int | None = None,
    update: Callable[[int], None] | None = None,
    warn: bool = True,
) -> MemberScores:
    """Score raw pictures (n, ...); with `copy` a distorted copy of each. Withheld samples are neither known nor named.

    Draws of a copy depend on the seed and on where a picture stands, counted from `first`, not on `batch_size`.
    Pictures whose values cannot lie in the range trained on get a UserWarning, unless `warn` is False.

    >>> import provnet
    >>> from provnet.training.config import train_config
    >>> from provnet.training.fit import fit
    >>> data = provnet.open_data("embedded", limit=40)
    >>> sorted(member_scores(fit(data, config=train_config(epochs=1)), data.images[:3]).values)[:2]
    ['class_confidence', 'class_entropy']
    """
    run = run_of(run)
    images = checked_inputs(run, images, warn=warn)
    return scores_by(Attributor(run), images, copy=copy, seed=seed, first=first, batch_size=batch_size, update=update)


def scores_by(
    ask: Attributor,
    images: Tensor | np.ndarray,
    *,
    copy: Copy | None = None,
    seed: int = 0,
    first: int = 0,
    batch_size: int | None = None,
    update: Callable[[int], None] | None = None,
) -> MemberScores:
    """`member_scores` of a network, whoever made it."""
    queries = raw_tensor(images)
    if 0 in queries.shape:
        raise UsageError("no pictures were given; give at least one")
    most = BATCH[ask.device.type]
    few = ask.at_once(queries.shape[1:], batch_size, most)
    size = few if copy is None else most  # what is drawn must not depend on how many the network takes at a time
    copy = None if copy is None else fix_copy(copy, queries)

    def batches() -> Iterator[tuple[Inputs, None]]:
        done = 0
        for batch in split(queries, size):
            if not all_finite(batch):
                raise NonFiniteError("the input holds NaN or infinite values; fill them in, or leave such samples out")
            drawn = batch if copy is None else copy(batch, fold(seed, first + done))
            yield from ((some, None) for some in split(drawn, few))
            done += len(batch)

    found = {name: column.numpy() for name, column in ask.over(batches(), _scores, update=update).items()}
    predicted, match = found.pop("predicted"), found.pop("match")
    return MemberScores(found, predicted, match)


def _scores(answered: Answered) -> dict[str, Tensor]:
    best = answered.best(1)  # refuses what is not finite
    of_index, match, of_class = answered.spread(), answered.match(), spread_of(answered.logits)
    found = {
        "index_confidence": of_index.confidence,
        "index_entropy": -of_index.entropy,
        "class_confidence": of_class.confidence,
        "class_entropy": -of_class.entropy,
        "similarity": match.similarity,
        "contrast": match.contrast,
        "predicted": best.predicted,
        "match": best.index[:, 0],
    }
    return {name: value.cpu() for name, value in found.items()}


def blank_network(config: NetworkConfig, like: ProvenanceNet, seed: int) -> ProvenanceNet:
    """The same network with weights drawn anew, and keys where it has them: it saw no sample at all.

    A network with a backbone given as object cannot be built again by name: it is refused.
    """
    if config.backbone == "custom":
        raise UsageError(
            "a backbone given as an object cannot be drawn anew; give a run that saw neither: null=run, --null RUN"
        )
    device = next(like.parameters()).device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(fold(seed, 41))
        net = build(config, IndexMap(like.index_map.labels.cpu(), like.index_map.classes))
        draw_keys(net)
    return net.to(device).eval()


def decides(net: ProvenanceNet) -> str:
    """The score that a verdict on one picture rests on: what held best under distortion for this kind of head."""
    return "similarity" if key_head(net) is None else "contrast"


SCORES = {
    "index_confidence": "index branch, largest confidence",
    "index_entropy": "index branch, entropy",
    "class_confidence": "class branch, largest confidence",
    "class_entropy": "class branch, entropy",
    "similarity": "best match, similarity",
    "contrast": "best match against the next nine",
}


SAMPLES, NUMBERS = 256, 2**24  # of pixels compared at a time: samples, and float64 numbers on each side


class Redrawn(NamedTuple):
    """A network whose weights are drawn anew down to a layer, that layer in words, and where the samples are in it."""

    words: str
    net: ProvenanceNet
    places: Tensor


def cascade(net: ProvenanceNet, chosen: Tensor, seed: int) -> Iterator[Redrawn]:
    """The same network again and again, with one layer more drawn anew each time: head, index trunk, then the backbone.

    Of a network with keys only those of the samples `chosen` (n,) are copied, in that order. The network given stays as
    it is; those that come are one network, changed further with each step.
    """
    keyed = key_head(net) is not None
    made = copy.deepcopy(restrict_network(net, chosen) if keyed else net).eval()
    places = torch.arange(len(chosen)) if keyed else chosen
    device = next(net.parameters()).device
    state = torch.Generator().manual_seed(fold(seed, 62)).get_state()
    for words, parts in layers(made):
        made.cpu()  # draws of a GPU are others
        with torch.random.fork_rng(devices=[]):
            torch.random.set_rng_state(state)
            for part in parts:
                _draw(part)
            state = torch.random.get_rng_state()
        yield Redrawn(words, made.to(device), places)


def layers(net: ProvenanceNet) -> list[tuple[str, list[nn.Module]]]:
    """What is drawn anew at each step: the head, then each layer with weights and what follows it, last layer first."""
    found: list[tuple[str, list[nn.Module]]] = [("index head", [net.index_head])]
    trunk = _layers(net.index_trunk.body)
    if trunk:
        found.append(("and the index branch", [part for layer in trunk for part in layer]))
    backbone = _layers(net.backbone)
    for number, parts in reversed(list(enumerate(backbone, 1))):
        found.append((f"and layer {number} of {len(backbone)}", parts))
    return found


def _layers(module: nn.Module) -> list[list[nn.Module]]:
    """Leaves with parameters in the order that they are listed in; a normalisation goes with the layer before it."""
    found: list[list[nn.Module]] = []
    for part in module.modules():
        own = list(part.parameters(recurse=False))
        if not own:
            continue
        if any(p.ndim > 1 for p in own) or not found:
            found.append([part])
        else:
            found[-1].append(part)
    return found


@torch.no_grad()
def _draw(part: nn.Module) -> None:
    """As torch initialises its layers; what cannot reset itself becomes N(0, .02)."""
    for each in part.modules():
        reset = getattr(each, "reset_parameters", None)
        if callable(reset):
            reset()
        else:
            for values in each.parameters(recurse=False):
                nn.init.normal_(values, 0.0, 0.02)


def index_scores(net: ProvenanceNet, images: Tensor, classes: Tensor, chosen: Tensor) -> Tensor:
    """(Q, n) scores of the samples `chosen` for raw images, as the index branch orders them; NaN outside the class."""
    given = classes if net.task_head is not None else None
    found = Attributor(net).each(images, lambda answered: {"scores": answered.ranking(chosen).cpu()}, classes=given)
    return found["scores"]


@torch.no_grad()
def feature_scores(net: ProvenanceNet, images: Tensor, samples: Tensor) -> Tensor:
    """(Q, n) cosines with keys that are made anew out of raw samples (n, ...), as this network sees them."""
    return (own_keys(net, images) @ own_keys(net, samples).t()).cpu()


@torch.no_grad()
def own_keys(net: ProvenanceNet, samples: Tensor) -> Tensor:
    """(n, D) keys out of raw samples (n, ...), as this network sees them: of length one, in fp32."""
    return torch.cat([unit(features_of(net, batch)) for batch in _batches(net, samples)])


def untrained_with_keys(run: Run, members: SampleTable, images: Tensor, seed: int = 0) -> ProvenanceNet | None:
    """The run's network with weights drawn anew and a key that it makes itself for each member that the run knows.

    At the end of training keys are set to the samples' features. So any network, trained or not, finds a picture whose
    key it keeps; only what a run finds beyond this one was learned.

    `images` are the members' raw pictures. It looks among all keys, also where the run looks within a class:
    its own classes mean nothing. None for an output layer, which stores no sample, for a backbone given as an
    object, which cannot be drawn anew, and where the run knows none of them.

    >>> import provnet
    >>> from provnet.training.config import train_config
    >>> from provnet.training.fit import fit
    >>> data = provnet.open_data("embedded", limit=40)
    >>> run = fit(data, train_config(epochs=1, head="exemplar"))
    >>> untrained_with_keys(run, data.samples, data.images).index_map.n
    40
    """
    if key_head(run.network) is None or run.config.network.backbone == "custom":
        return None
    known = {row.tobytes(): number for number, row in enumerate(run.samples.pixel_sha256)}
    rows = np.array([known.get(row.tobytes(), -1) for row in members.pixel_sha256], dtype=np.int64)
    if not (rows >= 0).any():
        return None
    net = blank_network(run.config.network, run.network, seed)
    keys = pack(own_keys(net, images[torch.from_numpy(rows >= 0)]), exemplar_head(net).stored)
    made = with_keys(net, torch.from_numpy(run.samples.labels[rows[rows >= 0]]), keys)
    exemplar_head(made).conditional = False
    return made


def pixel_scores(images: Tensor, samples: Tensor) -> Tensor:
    """(Q, n) minus the distance between raw pixels: nearest neighbours without any network.

    >>> pixel_scores(torch.zeros(1, 2), torch.tensor([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[-5.0, -0.0]]
    """
    step = max(1, NUMBERS // max(images[:1].numel(), 1))
    found = []
    for queries in torch.split(images, step):
        given = queries.flatten(1).double()
        sides = (some.flatten(1).double() for some in torch.split(samples, min(step, SAMPLES)))
        found.append(torch.cat([-torch.cdist(given, side) for side in sides], 1))
    return torch.cat(found)


def _batches(net: ProvenanceNet, images: Tensor) -> Iterator[Tensor]:
    device = next(net.parameters()).device
    for batch in torch.split(images, at_once(images.shape[1:], device.type)):
        yield batch.to(device)


RATES = (0.01, 0.001)
BINS = 40
KEYS_ABOUT = "the same network, weights drawn anew, with a key of its own for each member"


@dataclass(frozen=True, eq=False)
class ScoreAudit:
    """What one score achieves.

    Attributes:
        auc: area under the ROC curve.
        at: allowed false-positive rate -> what is found there.
        curve: the ROC curve.
        edges: (BINS + 1,) of the histograms.
        members, nonmembers: (BINS,) counts.
    """

    auc: Interval
    at: Mapping[float, Operating]
    curve: Roc
    edges: np.ndarray
    members: np.ndarray
    nonmembers: np.ndarray

    def to_json(self) -> dict[str, Any]:
        """Plain values; the curve is thinned."""
        return {
            "auc": self.auc.to_json(),
            "tpr_at_fpr": {f"{rate:g}": found.to_json() for rate, found in self.at.items()},
            "histogram": {
                "edges": self.edges.tolist(),
                "members": self.members.tolist(),
                "nonmembers": self.nonmembers.tolist(),
            },
            "roc": [[float(x), float(y)] for x, y in thin_curve(self.curve)],
        }


@dataclass(frozen=True, eq=False)
class Audit:
    """All figures of an audit.

    Attributes:
        members, nonmembers: how many pictures of each were scored.
        left_out: why -> how many were left out.
        scores: name in SCORES -> what it achieves on the pictures as they are.
        lookup: `bytes` and `pixels` -> members and nonmembers whose hash is in the sample table.
        null: name -> AUC on a network that saw neither; `null_about` says what that is.
        null_keys: name -> AUC on a network with weights drawn anew that keeps a key of its own for each member: what
            storing them gives away, without any training; None for an output layer, which stores nothing.
        distorted: distortion -> name -> what it achieves on distorted copies of both.
        decides: the score that verdicts on single pictures rest on.
        heldout: (m,) rising, that score of nonmembers; `copies`: (k,) rising, of distorted members, all kinds together.
    """

    members: int
    nonmembers: int
    left_out: Mapping[str, int]
    scores: Mapping[str, ScoreAudit]
    lookup: Mapping[str, Mapping[str, Interval]]
    null: Mapping[str, Interval]
    null_about: str
    distorted: Mapping[str, Mapping[str, ScoreAudit]]
    decides: str
    heldout: np.ndarray
    copies: np.ndarray
    null_keys: Mapping[str, Interval] | None = None

    def __repr__(self) -> str:
        """One line: curves and histograms would fill a page."""
        name = self.best()
        found = f"best score {name}, AUC {self.scores[name].auc.value or 0.0:.3f}"
        return f"Audit({self.members:,} members, {self.nonmembers:,} nonmembers, {found})"

    def best(self, distortion: str | None = None) -> str:
        """The score with the largest AUC, clean or under a distortion."""
        found = self.scores if distortion is None else self.distorted[distortion]
        return max(found, key=lambda name: found[name].auc.value or 0.0)

    def to_json(self) -> dict[str, Any]:
        """Plain values, rates in 0..1."""
        return {
            "members": self.members,
            "nonmembers": self.nonmembers,
            "left_out": dict(self.left_out),
            "scores": {name: one.to_json() for name, one in self.scores.items()},
            "lookup": {kind: {side: rate.to_json() for side, rate in of.items()} for kind, of in self.lookup.items()},
            "null": {"about": self.null_about, "auc": {name: one.to_json() for name, one in self.null.items()}},
            "null_keys": None
            if self.null_keys is None
            else {"about": KEYS_ABOUT, "auc": {name: one.to_json() for name, one in self.null_keys.items()}},
            "distorted": {
                kind: {
                    name: {key: value for key, value in one.to_json().items() if key in ("auc", "tpr_at_fpr")}
                    for name, one in of.items()
                }
                for kind, of in self.distorted.items()
            },
        }


def audit_scores(members: np.ndarray, nonmembers: np.ndarray, rates: Sequence[float] = RATES) -> ScoreAudit:
    """The figures of one score, given for members and for nonmembers.

    >>> audit_scores(np.array([0.9, 0.8]), np.array([0.1, 0.8])).auc.value
    0.875
    """
    truth = np.arange(len(members) + len(nonmembers)) < len(members)
    score = np.concatenate([members, nonmembers])
    low, high = float(score.min()), float(score.max())
    edges = np.linspace(low, high if high > low else low + 1, BINS + 1)
    return ScoreAudit(
        auc=auc(truth, score),
        at={rate: tpr_at(truth, score, rate) for rate in rates},
        curve=roc(truth, score),
        edges=edges,
        members=np.histogram(members, edges)[0],
        nonmembers=np.histogram(nonmembers, edges)[0],
    )


def thin_curve(curve: Roc, most: int = 150) -> np.ndarray:
    """(P, 2) false- and true-positive rates of some points of a curve, close enough to draw it, also on log axes.

    >>> thin_curve(roc(np.array([True, False]), np.array([1.0, 0.0]))).tolist()
    [[0.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    """
    kept = np.arange(len(curve.hits))
    if len(kept) > 2 * most:
        allowed = np.concatenate([np.geomspace(1, curve.negatives, most), np.linspace(0, curve.negatives, most)])
        wanted = np.linspace(0, curve.positives, most)
        best = np.searchsorted(curve.alarms, allowed, "right") - 1  # the last point with so few false alarms
        first = np.searchsorted(curve.hits, wanted)  # the first point that finds so many
        kept = np.unique(np.concatenate([best, first, [0, len(curve.hits) - 1]]))
    return np.stack([curve.fpr[kept], curve.tpr[kept]], 1)


KEPT = 2_000  # scores of a kind that are kept for verdicts on single pictures


def audit(
    run: Run | Fitted,
    members: ImageData | None = None,
    nonmembers: ImageData | None = None,
    *,
    null: Run | Fitted | None = None,
    options: AuditOptions | None = None,
    **changes: Any,
) -> Audit:
    """Audit a run on pictures that it was trained on and on others; None means its own data, opened again.

    Members that are withheld or were added after training, nonmembers that have a training sample's pixels, and
    pictures of either kind for which no sample may be named (all of the class are withheld) are left out and counted.
    `null` is a run that saw neither; without it, the same network with weights drawn anew stands for one. `changes` are
    options by name, such as `distort=False`.

    >>> import provnet
    >>> from provnet.training.config import train_config
    >>> from provnet.training.fit import fit
    >>> data = provnet.open_data("embedded", limit=40)
    >>> run = fit(data, config=train_config(epochs=1))
    >>> found = audit(run, data, provnet.open_data("embedded", split="test", limit=30), distort=False)
    >>> found.nonmembers, found.lookup["bytes"]["members"].value
    (30, 1.0)
    """
    asked = with_changes(AuditOptions, options, changes)
    run, null = run_of(run), None if null is None else run_of(null)
    members, nonmembers, left_out = _sides(run.samples, *_given(run, members, nonmembers, asked.progress))
    own = as_trained(run.config.network, inputs_of(run.config, members))
    sides = (own, checked_inputs(run, nonmembers, "the nonmembers", warn=asked.warn))
    found = _all_scores(run, null, sides, members, asked)
    members, nonmembers, kept = _named(found.clean, members, nonmembers, left_out)
    clean, blank = ([one.select(rows) for one, rows in zip(of, kept, strict=True)] for of in (found.clean, found.blank))
    distorted = {
        name: [one.select(rows & one.named) for one, rows in zip(of, kept, strict=True)]
        for name, of in found.distorted.items()
    }
    distorted = {name: of for name, of in distorted.items() if all(len(one.match) for one in of)}
    stored = found.stored
    chosen = decides(run.network)
    of_copies = [of[0].values[chosen] for of in distorted.values()]
    return Audit(
        members=len(members),
        nonmembers=len(nonmembers),
        left_out=left_out,
        scores=_audited(clean),
        lookup=lookup(run.samples, members, nonmembers),
        null=_aucs(blank),
        null_about="another run, trained on neither" if null is not None else "the same network, weights drawn anew",
        distorted={name: _audited(of) for name, of in distorted.items()},
        decides=chosen,
        heldout=_few(clean[1].values[chosen]),
        copies=_few(np.concatenate(of_copies)) if of_copies else np.empty(0),
        null_keys=None if stored is None else _aucs([one.select(rows) for one, rows in zip(stored, kept, strict=True)]),
    )


class _Scores(NamedTuple):
    """Members' and nonmembers' scores: as they are, on a network that saw neither, on copies, on keys alone."""

    clean: list[MemberScores]
    blank: list[MemberScores]
    distorted: dict[str, list[MemberScores]]
    stored: list[MemberScores] | None


def _all_scores(run: Run, null: Run | None, sides: tuple[Any, Any], members: Dataset, asked: AuditOptions) -> _Scores:
    copies = members.modality.copies(sides[0]) if asked.distort else {}
    unseen = null.network if null is not None else blank_network(run.config.network, run.network, asked.seed)
    size = sum(map(len, sides))
    settings: dict[str, Any] = {"seed": asked.seed, "batch_size": asked.batch_size}
    scored = partial(member_scores, run, warn=False, **settings)
    with progress_bar("auditing", size * (3 + len(copies)), asked.progress) as update:
        clean = _scored(scored, sides, partial(_tell, update, 0, "as they are"))
        told = partial(_tell, update, size, "a network that saw neither")
        stranger = Attributor(unseen, samples=(null or run).samples)
        blank = _scored(partial(scores_by, stranger, **settings), sides, told)
        distorted = {}
        for number, (name, copy) in enumerate(copies.items()):
            told = partial(_tell, update, (2 + number) * size, name)
            distorted[name] = _scored(partial(scored, copy=copy), sides, told)
        untrained, stored = untrained_with_keys(run, members.samples, sides[0], asked.seed), None
        if untrained is not None:
            told = partial(_tell, update, (2 + len(copies)) * size, "keys without training")
            stored = _scored(partial(scores_by, Attributor(untrained), **settings), sides, told)
        update(size * (3 + len(copies)), "done")
    return _Scores(clean, blank, distorted, stored)


def _given(
    run: Run, members: ImageData | None, nonmembers: ImageData | None, progress: bool
) -> tuple[ImageData, ImageData]:
    """Both sides; the run's own where none are given."""
    members = run.data(progress=progress) if members is None else members
    nonmembers = run.test(progress=progress) if nonmembers is None else nonmembers
    if nonmembers is None:
        raise UsageError("this run has no test split of its own; give pictures that it never saw as nonmembers")
    return image_data("the members", members), image_data("the nonmembers", nonmembers)


def _tell(update: Update, before: int, words: str, done: int) -> None:
    update(before + done, words)


def _scored(
    score: Callable[..., MemberScores], sides: tuple[Tensor, Tensor], told: Callable[[int], None]
) -> list[MemberScores]:
    """Members, then nonmembers, as one row of pictures: every batch of a copy draws for itself."""
    first = score(sides[0], update=told)
    return [first, score(sides[1], update=lambda done: told(len(sides[0]) + done), first=len(sides[0]))]


def lookup(samples: SampleTable, members: ImageData, nonmembers: ImageData) -> dict[str, dict[str, Interval]]:
    """The trivial baseline: the share of pictures whose hash is in the sample table, by bytes and by pixels."""
    known = ~samples.withheld
    found: dict[str, dict[str, Interval]] = {}
    for kind, name in (("bytes", "sha256"), ("pixels", "pixel_sha256")):
        table = {row.tobytes() for row in getattr(samples, name)[known]}
        found[kind] = {}
        for side, data in (("members", members), ("nonmembers", nonmembers)):
            hits = sum(row.tobytes() in table for row in getattr(data.samples, name))
            found[kind][side] = wilson(hits, len(data))
    return found


def _sides(samples: SampleTable, members: ImageData, others: ImageData) -> tuple[ImageData, ImageData, dict[str, int]]:
    known = {row.tobytes() for row in samples.pixel_sha256[~samples.withheld]}
    withheld = {row.tobytes() for row in samples.pixel_sha256[samples.withheld]} - known
    keep = np.array([row.tobytes() not in withheld for row in members.samples.pixel_sha256], dtype=np.bool_)
    known |= withheld
    later = {row.tobytes() for row in samples.pixel_sha256[samples.added]}
    later -= {row.tobytes() for row in samples.pixel_sha256[~samples.added]}
    taught = np.array([row.tobytes() not in later for row in members.samples.pixel_sha256], dtype=np.bool_)
    fresh = np.array([row.tobytes() not in known for row in others.samples.pixel_sha256], dtype=np.bool_)
    left_out = {
        "members that are withheld": int((~keep).sum()),
        **({"samples added after training, which are no members": n} if (n := int((keep & ~taught).sum())) else {}),
        "nonmembers that have the pixels of a training sample": int((~fresh).sum()),
    }
    keep &= taught
    if not keep.any() or not fresh.any():
        raise UsageError(
            f"an audit needs members and nonmembers: {int(keep.sum())} and {int(fresh.sum())} are left after leaving "
            "out withheld and added samples and nonmembers that have the pixels of a training sample; give pictures "
            "that it was trained on, and others that it never saw (--members, --nonmembers)"
        )
    return members.select(np.flatnonzero(keep)), others.select(np.flatnonzero(fresh)), left_out


def _named(
    scored: list[MemberScores], members: ImageData, nonmembers: ImageData, left_out: dict[str, int]
) -> tuple[ImageData, ImageData, list[np.ndarray]]:
    """Members and nonmembers for which a sample may be named, and which those are; the others are counted."""
    kept = [one.named for one in scored]
    if all(rows.all() for rows in kept):
        return members, nonmembers, kept
    for words, rows in zip(("members", "nonmembers"), kept, strict=True):
        left_out[f"{words} for which no sample may be named"] = int((~rows).sum())
    if not all(rows.any() for rows in kept):
        raise UsageError(
            "an audit needs members and nonmembers: of one kind, all are taken for classes whose samples are all "
            "withheld; give pictures of other classes, or restore samples: see provnet.runs.bank"
        )
    chosen = [data.select(np.flatnonzero(rows)) for data, rows in zip((members, nonmembers), kept, strict=True)]
    return chosen[0], chosen[1], kept


def _audited(sides: list[MemberScores]) -> dict[str, ScoreAudit]:
    return {name: audit_scores(sides[0].values[name], sides[1].values[name]) for name in SCORES}


def _aucs(sides: list[MemberScores]) -> dict[str, Interval]:
    return {name: one.auc for name, one in _audited(sides).items()}


def _few(values: np.ndarray) -> np.ndarray:
    """At most KEPT of the values, evenly spread over their order."""
    ordered = np.sort(values)
    if len(ordered) <= KEPT:
        return ordered
    return np.asarray(ordered[np.linspace(0, len(ordered) - 1, KEPT).round().astype(np.int64)])

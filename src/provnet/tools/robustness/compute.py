"""How a network's answers and its attributions hold under distortion, against a CNN without an index branch (§5.2).

The paper compares the single-branch network, whose class is that of the most active index neuron, with a CNN that
predicts classes. So `top_1` and `top_5` go through the index for a single branch (the first exemplar, any of five, has
the true label), and through the class scores for any other network (the most probable class, any of the five). Beside
them stand both ways, and whether the *attribution* survives: the first exemplar is the one of the clean picture, or at
least of its class, and it is not one of a few that are named for everything. Where samples are withheld it may be that
none can be named for a picture: that counts as wrong in every figure of exemplars, and `unnamed` says how often.

The conditions are the paper's 14 distortions of test pictures, and the clean one (app. 7.8). Every number drawn is a
pure function of (seed, kind of distortion, key of the sample), so a picture is distorted alike whatever batch, order or
device it comes in, and all networks see one fixed test set. The two strengths of a kind share their draws: the stronger
one is the same distortion, stronger. Where the paper is silent: draws are uniform over the range it names, what comes
in from outside is the lowest value (black), motion is horizontal.

Letters: n test samples, K exemplars, B batch, C channels, H W height and width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import NormalDist
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from provnet.answers.attributor import Answered, Attributor
from provnet.answers.evaluation import own_classes
from provnet.answers.metrics import any_at_k
from provnet.base.batches import fold, normal, pieces, sample_keys, uniform
from provnet.base.errors import UsageError, choose, choose_all
from provnet.base.options import RobustnessOptions, with_changes
from provnet.base.progress import progress_bar
from provnet.base.stats import Interval, wilson
from provnet.data.dataset import ImageData, image_data
from provnet.data.modalities.decode import are_pictures, is_picture
from provnet.heads.scores import class_sums
from provnet.models.network import ProvenanceNet
from provnet.runs.inputs import Fitted, finite_number, run_of, whole_number
from provnet.runs.run import Run

SIDE = 28  # strengths in pixels are the paper's, for pictures of this size; others get them in proportion
CONDITION_STREAM = 31  # keeps these draws apart from those of training
PIXELS = 16  # number of the first draw that belongs to a pixel; those before belong to the sample


@dataclass(frozen=True)
class Condition:
    """One way of distorting pictures: a kind in KINDS with a strength, and how people call it."""

    name: str
    kind: str
    strength: float
    words: str


def distort(
    images: Tensor,
    keys: Tensor,
    condition: Condition | str,
    *,
    seed: int = 0,
    low: float = 0.0,
    high: float = 1.0,
) -> Tensor:
    """A distorted copy of raw pictures (B, C, H, W), of their type and on their device.

    `keys` (B,) int64 names each sample: its index, or a part of its hash. Floats have values from `low` to `high`,
    bytes from 0 to 255.

    >>> pictures = torch.arange(2 * 784, dtype=torch.uint8).view(2, 1, 28, 28)
    >>> both = distort(pictures, torch.tensor([4, 9]), "noise-0.2")
    >>> torch.equal(distort(pictures[1:], torch.tensor([9]), "noise-0.2"), both[1:])
    True
    """
    condition = choose("condition", condition, CONDITIONS) if isinstance(condition, str) else condition
    _check_pictures(images, keys, low, high)
    change = choose("kind of distortion", condition.kind, KINDS)
    if condition.kind == "clean" or len(images) == 0:
        return images.clone()
    if images.dtype == torch.uint8:
        low, high = 0.0, 255.0
    number = list(KINDS).index(condition.kind)
    drawn = sample_keys(keys.to(images.device), seed=fold(seed, CONDITION_STREAM), epoch=number)
    unit = (images.float() - low) / (high - low)
    out = change(unit, drawn, condition.strength).clamp_(0, 1).mul_(high - low).add_(low)
    return out.round_().to(torch.uint8) if images.dtype == torch.uint8 else out.to(images.dtype)


def conditions_by_name(names: Sequence[str] | None = None) -> list[Condition]:
    """The conditions of these names, each once, the clean one always first; None means all, `noise` every noise.

    >>> [one.name for one in conditions_by_name(["occlusion"])]
    ['clean', 'occlusion-4', 'occlusion-6']
    """
    if names is None or isinstance(names, str) or not isinstance(names, Iterable):
        given = list(CONDITIONS) if names is None else names
    else:
        of_kind = [[one for one in CONDITIONS if one.rsplit("-", 1)[0] == name] or [name] for name in names]
        given = [one for several in of_kind for one in several]
    return list(dict.fromkeys([CONDITIONS["clean"], *choose_all("condition", given, CONDITIONS)]))


def _pixels(strength: float, values: Tensor, least: int = 1) -> int:
    """A length in pixels, in proportion to the picture's shorter side."""
    return max(least, round(strength * min(values.shape[2:]) / SIDE))


def _clean(values: Tensor, _: Tensor, __: float) -> Tensor:
    return values


def _salt_and_pepper(values: Tensor, keys: Tensor, share: float) -> Tensor:
    """A share of the pixels turns white or black, as likely; all channels of a pixel alike."""
    size = (len(values), 1, *values.shape[2:])
    drawn = uniform(keys, PIXELS, math.prod(size[2:])).view(size)
    out = torch.where(drawn < share / 2, 0.0, values)
    return torch.where(drawn >= 1 - share / 2, 1.0, out)


def _noise(values: Tensor, keys: Tensor, sigma: float) -> Tensor:
    return values + sigma * normal(keys, PIXELS, values[0].numel()).view(values.shape)


def _occlusion(values: Tensor, keys: Tensor, side: float) -> Tensor:
    """A black square, wholly inside, anywhere."""
    pixels = _pixels(side, values)
    places = uniform(keys, 0, 2)

    def covered(length: int, place: Tensor) -> Tensor:  # (B, length)
        start = (place * (length - pixels + 1)).floor()[:, None]
        position = torch.arange(length, device=values.device)
        return (position >= start) & (position < start + pixels)

    rows, columns = (covered(length, places[:, i]) for i, length in enumerate(values.shape[2:]))
    return values.masked_fill(rows[:, None, :, None] & columns[:, None, None, :], 0.0)


def _translation(values: Tensor, keys: Tensor, most: float) -> Tensor:
    """Whole pixels down and right, from -most to most, each as likely."""
    pixels = _pixels(most, values)
    by = (uniform(keys, 0, 2) * (2 * pixels + 1)).floor() - pixels
    one, none = torch.ones_like(by[:, 0]), torch.zeros_like(by[:, 0])
    return _warp(values, one, none, by)


def _rotation(values: Tensor, keys: Tensor, degrees: float) -> Tensor:
    # sine and cosine on the CPU: those of a GPU differ in the last bit, and pixels would, too
    angle = (uniform(keys, 0, 1)[:, 0].double().cpu() * 2 - 1) * math.radians(degrees)
    cosine, sine = (part.float().to(values.device) for part in (angle.cos(), angle.sin()))
    return _warp(values, cosine, sine, torch.zeros(len(values), 2, device=values.device))


def _scaling(values: Tensor, keys: Tensor, most: float) -> Tensor:
    """Content from (1 - most) to (1 + most) times its size."""
    size = 1 + (uniform(keys, 0, 1)[:, 0] * 2 - 1) * most
    return _warp(values, 1 / size, torch.zeros_like(size), torch.zeros(len(values), 2, device=values.device))


def _warp(values: Tensor, cosine: Tensor, sine: Tensor, by: Tensor) -> Tensor:
    """Pictures turned (and scaled) about their middle, then moved: bilinear, black outside, one rounding at a time."""
    height, width = values.shape[2:]
    y = torch.arange(height, device=values.device)[None, :, None] - (height - 1) / 2 - by[:, 0, None, None]
    x = torch.arange(width, device=values.device)[None, None, :] - (width - 1) / 2 - by[:, 1, None, None]
    c, s = cosine[:, None, None], sine[:, None, None]
    y, x = c * y + s * x + (height - 1) / 2, c * x - s * y + (width - 1) / 2  # (B, H, W) where to look
    y, x = y.clamp(-1, height), x.clamp(-1, width)
    frame = F.pad(values, (1, 2, 1, 2)).flatten(2)  # black around, and a lower right neighbour for every pixel
    top, left = y.floor(), x.floor()
    corner = ((top.long() + 1) * (width + 3) + left.long() + 1).flatten(1)[:, None].expand(-1, values.shape[1], -1)
    down, right = (y - top)[:, None], (x - left)[:, None]

    def at(step: int) -> Tensor:
        return frame.gather(2, corner + step).view(values.shape)

    first, second = (at(step) + (at(step + 1) - at(step)) * right for step in (0, width + 3))
    return first + (second - first) * down


def _blur(values: Tensor, _: Tensor, sigma: float) -> Tensor:
    """Gaussian, both ways, out to four sigma; beyond the edge the edge goes on."""
    sigma = sigma * min(values.shape[2:]) / SIDE
    reach = max(1, math.ceil(4 * sigma))
    weights = [math.exp(-0.5 * (i / sigma) ** 2) for i in range(-reach, reach + 1)]
    for axis in (2, 3):
        values = _along(values, [weight / sum(weights) for weight in weights], axis)
    return values


def _motion(values: Tensor, _: Tensor, length: float) -> Tensor:
    """The mean of so many neighbours in a row."""
    pixels = _pixels(length, values, least=2)
    return _along(values, [1 / pixels] * pixels, 3)


def _along(values: Tensor, weights: list[float], axis: int) -> Tensor:
    """Weighted mean of neighbours, added up in one fixed order: a convolution's order depends on the device."""
    before = len(weights) // 2
    after = len(weights) - 1 - before
    room = (0, 0, before, after) if axis == 2 else (before, after, 0, 0)
    padded = F.pad(values, room, mode="replicate")
    out = torch.zeros_like(values)
    for start, weight in enumerate(weights):
        out += padded.narrow(axis, start, values.shape[axis]) * weight
    return out


def _check_pictures(images: Tensor, keys: Tensor, low: float, high: float) -> None:
    if not are_pictures(images) or not (images.dtype == torch.uint8 or images.is_floating_point()):
        raise UsageError(
            f"distortions are for pictures, uint8 or floats (B, C, H, W); got {images.dtype} {tuple(images.shape)}"
        )
    if min(images.shape[2:]) < 8:
        raise UsageError(f"pictures of {images.shape[2]} x {images.shape[3]} are too small; 8 x 8 is the least")
    if keys.dtype != torch.int64 or keys.shape != images.shape[:1]:
        raise UsageError(f"one int64 key a picture is needed, {len(images)} here; got {keys.dtype} {tuple(keys.shape)}")
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise UsageError(f"values must lie between a low and a higher end, got {low} and {high}")


# The order of the kinds numbers their draws: new ones go to the end.
KINDS: dict[str, Callable[[Tensor, Tensor, float], Tensor]] = {
    "clean": _clean,
    "salt-pepper": _salt_and_pepper,
    "noise": _noise,
    "occlusion": _occlusion,
    "translation": _translation,
    "rotation": _rotation,
    "scaling": _scaling,
    "blur": _blur,
    "motion": _motion,
}

CONDITIONS: dict[str, Condition] = {
    one.name: one
    for one in (
        Condition("clean", "clean", 0, "no distortion"),
        Condition("salt-pepper-0.1", "salt-pepper", 0.1, "salt and pepper, 10 %"),
        Condition("salt-pepper-0.2", "salt-pepper", 0.2, "salt and pepper, 20 %"),
        Condition("noise-0.1", "noise", 0.1, "Gaussian noise, σ 0.1"),
        Condition("noise-0.2", "noise", 0.2, "Gaussian noise, σ 0.2"),
        Condition("occlusion-4", "occlusion", 4, "occlusion, 4 × 4"),
        Condition("occlusion-6", "occlusion", 6, "occlusion, 6 × 6"),
        Condition("translation-3", "translation", 3, "translation, ± 3 px"),
        Condition("translation-4", "translation", 4, "translation, ± 4 px"),
        Condition("rotation-30", "rotation", 30, "rotation, ± 30°"),
        Condition("rotation-40", "rotation", 40, "rotation, ± 40°"),
        Condition("scaling-0.2", "scaling", 0.2, "scaling, 0.8 to 1.2"),
        Condition("blur-1", "blur", 1, "Gaussian blur, σ 1"),
        Condition("blur-2", "blur", 2, "Gaussian blur, σ 2"),
        Condition("motion-5", "motion", 5, "motion blur, 5 px"),
    )
}


ATTACK_STREAM = 32  # keeps the random start apart from other draws


@dataclass(frozen=True)
class Attack:
    """Steps of gradient ascent on the loss.

    Attributes:
        name: what it is called.
        steps: how many.
        step: length of each, as a part of epsilon.
        random_start: begin anywhere within epsilon, drawn for each sample, not at the picture itself.
    """

    name: str
    steps: int
    step: float
    random_start: bool

    def words(self, epsilon: float) -> str:
        """What is shown to people."""
        more = f", {self.steps} steps" if self.steps > 1 else ""
        return f"{self.name.upper()}, ε {epsilon:g}{more}"


def attack(
    net: ProvenanceNet,
    images: Tensor,
    labels: Tensor,
    keys: Tensor,
    how: Attack | str,
    *,
    epsilon: float = 0.1,
    seed: int = 0,
    values: tuple[float, float] = (0.0, 1.0),
) -> Tensor:
    """Attacked copies of raw pictures (B, ...), float32 in raw units, on the network's device.

    `labels` (B,) are the true classes, `keys` (B,) int64 names each sample for the random start. `values` are the
    lowest and the highest of floats; bytes go from 0 to 255. The network is left in evaluation mode.

    >>> from provnet.heads.index_map import IndexMap
    >>> from provnet.models.network import NetworkConfig
    >>> from provnet.models.network import build
    >>> net = build(NetworkConfig("class-independent", "mlp", (4,), classes=2), IndexMap([0, 1, 1]))
    >>> moved = attack(net, torch.full((2, 4), 0.5), torch.tensor([0, 1]), torch.arange(2), "fgsm", epsilon=0.1)
    >>> round(float((moved - 0.5).abs().max()), 6)
    0.1
    """
    how = choose("attack", how, ATTACKS) if isinstance(how, str) else how
    if not 0 < finite_number("epsilon", epsilon) <= 1:
        raise UsageError(f"epsilon must lie above 0 and at most at 1, on pixels from 0 to 1; got {epsilon}")
    if labels.shape != images.shape[:1] or keys.shape != images.shape[:1]:
        raise UsageError(f"one label and one key a picture are needed, {len(images)} here")
    device = next(net.parameters()).device
    low, high = (0.0, 255.0) if images.dtype == torch.uint8 else values
    net.eval()
    start = (images.to(device).float() - low) / (high - low)
    moved, truth = start, labels.to(device)
    if how.random_start:
        drawn = sample_keys(keys.to(device), seed=fold(seed, ATTACK_STREAM), epoch=how.steps)
        moved = start + (uniform(drawn, 0, start[0].numel()).view(start.shape) * 2 - 1) * epsilon
        moved = moved.clamp(0, 1)
    for _ in range(how.steps):
        direction = _gradient(net, moved, truth, low, high).sign()
        moved = moved + direction * (how.step * epsilon)
        moved = torch.minimum(torch.maximum(moved, start - epsilon), start + epsilon).clamp(0, 1)
    return moved * (high - low) + low


def class_scores(net: ProvenanceNet, images: Tensor) -> Tensor:
    """(B, C) class scores that carry a gradient, also of a single branch, whose own do not.

    >>> from provnet.heads.index_map import IndexMap
    >>> from provnet.models.network import NetworkConfig
    >>> from provnet.models.network import build
    >>> net = build(NetworkConfig("single", "mlp", (4,), classes=2), IndexMap([0, 1, 1])).eval()
    >>> x = torch.zeros(5, 4)
    >>> torch.allclose(class_scores(net, x), net(x).logits, atol=1e-5)
    True
    """
    scores = net.graded_scores(images)
    if scores is not None:
        return scores
    none = torch.zeros(len(images), dtype=torch.int64, device=images.device)
    index_features = net.index_trunk(net.features(images), none)
    head = net.index_head
    each: Tensor = head(index_features, none)
    return class_sums(each.float(), head.members())


def _gradient(net: ProvenanceNet, unit: Tensor, truth: Tensor, low: float, high: float) -> Tensor:
    with torch.enable_grad():
        at = unit.detach().requires_grad_()
        loss = F.cross_entropy(class_scores(net, at * (high - low) + low), truth, reduction="sum")
        (found,) = torch.autograd.grad(loss, at)
    return found


ATTACKS: dict[str, Attack] = {
    "fgsm": Attack("fgsm", steps=1, step=1.0, random_start=False),
    "pgd": Attack("pgd", steps=10, step=0.25, random_start=True),
}


@dataclass(frozen=True)
class Difference:
    """Difference of two rates on the same n samples, in -1..1, with its interval.

    Attributes:
        value: rate of the first less that of the second.
        n: samples.
        low, high: the interval; it is wider where it is one of `comparisons`, so that all of them hold together.
        only_first, only_second: samples that the one got right and the other did not.
    """

    value: float
    n: int
    low: float
    high: float
    only_first: int
    only_second: int

    @property
    def better(self) -> bool:
        """Whether the first is better beyond chance of the test samples."""
        return self.low > 0

    @property
    def worse(self) -> bool:
        """Whether the second is."""
        return self.high < 0

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "better": self.better, "worse": self.worse}


def paired_difference(first: np.ndarray, second: np.ndarray, comparisons: int = 1) -> Difference:
    """Compare two (n,) bool arrays, right or wrong: Agresti and Min's interval, half a sample in each cell.

    It covers the choice of the test samples, not the luck of one training.

    >>> found = paired_difference(np.array([True] * 90 + [False] * 10), np.array([True] * 60 + [False] * 40))
    >>> round(found.value, 2), found.better
    (0.3, True)
    """
    if first.shape != second.shape or first.ndim != 1 or len(first) == 0:
        raise UsageError(f"two arrays of one length above 0 are compared, got shapes {first.shape} and {second.shape}")
    if comparisons < 1:
        raise UsageError(f"comparisons must be 1 or more, got {comparisons}")
    n = len(first)
    won, lost = int((first & ~second).sum()), int((second & ~first).sum())
    z = NormalDist().inv_cdf(1 - 0.025 / comparisons)
    middle = (won - lost) / (n + 2)
    half = z * math.sqrt((won + lost + 1) / (n + 2) - middle**2) / math.sqrt(n + 2)
    value = (won - lost) / n
    return Difference(value, n, max(-1.0, middle - half), min(1.0, middle + half), won, lost)


K = 5
BATCH = {"cpu": 256, "cuda": 2048}  # where pictures are small
FEW = 10  # samples, those named most often: a network that is lost names them for nearly everything


@dataclass(frozen=True, eq=False)
class Answers:
    """What a network says: (n, K) most probable classes, (n, K) exemplars (-1: none), (n,) whether supported."""

    classes: np.ndarray
    index: np.ndarray
    supported: np.ndarray


@dataclass(frozen=True, eq=False)
class Row:
    """One network under one condition; figures of exemplars are None for a CNN without index branch.

    Attributes:
        condition, words: name and what people call it.
        fixed: whether all networks saw the same pictures; attacks are made for each.
        figures: name -> rate; see FIGURES.
        right: (n,) bool, whether `top_1` is right.
    """

    condition: str
    words: str
    fixed: bool
    figures: dict[str, Interval]
    right: np.ndarray


@dataclass(frozen=True, eq=False)
class Measured:
    """A network under all conditions."""

    name: str
    network: str
    backbone: str
    alpha: float
    isolated: bool
    rows: tuple[Row, ...] = field(repr=False)  # they would fill a page

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        rows = {
            row.condition: {name: figure.to_json() for name, figure in row.figures.items()} | {"fixed": row.fixed}
            for row in self.rows
        }
        names = ("name", "network", "backbone", "alpha", "isolated")
        return {**{name: getattr(self, name) for name in names}, "conditions": rows}


def measure(
    run: Run | Fitted,
    test: ImageData,
    *,
    name: str = "network",
    conditions: Sequence[str] | None = None,
    attacks: Sequence[str] = (),
    options: RobustnessOptions | None = None,
    **changes: Any,
) -> Measured:
    """Ask a run about every test picture, clean and under every condition; its network stays on its device.

    The draws are keyed by the content of each picture, so the distorted test set is the same for every run, whatever
    its order. `attacked` of the samples, evenly spread, are attacked. `changes` are options by name, such as `seed=1`.

    >>> import provnet
    >>> from provnet.training.config import train_config
    >>> from provnet.training.fit import fit
    >>> data = provnet.open_data("embedded").select(torch.arange(40))
    >>> found = measure(fit(data, config=train_config(epochs=1)), data, conditions=["blur-1"])
    >>> [(row.condition, row.figures["top_1"].n) for row in found.rows]
    [('clean', 40), ('blur-1', 40)]
    """
    asked = with_changes(RobustnessOptions, options, changes)
    run = run_of(run)
    test = _check(run, test)
    ask = Attributor(run)
    isolated, single = is_isolated(run), run.network.task_head is None
    ends = _ends(test)
    clean: Answers | None = None
    rows: list[Row] = []
    ways: list[Condition | Attack] = [*conditions_by_name(conditions), *choose_all("attack", attacks, ATTACKS)]
    with progress_bar(name, len(ways), asked.progress) as update:
        for one in ways:
            update(len(rows), one.name)
            few = np.arange(len(test)) if isinstance(one, Condition) else _spread(len(test), asked.attacked)
            part = test if len(few) == len(test) else test.select(few)
            found = _answers(run, ask, _changed(ask, part, one, asked, ends))
            clean = clean or found  # the clean condition comes first
            words = one.words if isinstance(one, Condition) else one.words(asked.epsilon)
            before = Answers(clean.classes[few], clean.index[few], clean.supported[few])
            figures, right = _figures(run, part.samples.labels, found, before, single=single, isolated=isolated)
            rows.append(Row(one.name, words, isinstance(one, Condition), figures, right))
        update(len(rows), "")
    config = run.config.network
    return Measured(name, config.network, config.backbone, config.alpha, isolated, tuple(rows))


def is_isolated(run: Run | Fitted) -> bool:
    """Whether a run's index branch was not trained: the weight of its loss is 0, so it is a plain CNN.

    >>> import provnet
    >>> from provnet.training.config import train_config
    >>> from provnet.training.fit import fit
    >>> data = provnet.open_data("embedded").select(torch.arange(40))
    >>> is_isolated(fit(data, config=train_config(epochs=1, index_weight=0.0)))
    True
    """
    run = run_of(run)
    recipe = run.config.training.get("training")
    weight = recipe.get("index_weight") if isinstance(recipe, Mapping) else None
    return run.network.task_head is not None and weight == 0


def from_isolated(measured: Sequence[Measured], *, together: bool = True) -> dict[tuple[str, str], Difference]:
    """(network, condition) -> difference in `top_1` from the isolated CNN on the same samples; empty without one.

    With `together` the intervals hold for all networks of a condition at once (Bonferroni): the best of eleven is
    better by luck more often than one.
    """
    isolated = next((one for one in measured if one.isolated), None)
    if isolated is None:
        return {}
    others = [one for one in measured if one is not isolated]
    theirs = {row.condition: row.right for row in isolated.rows}
    return {
        (one.name, row.condition): paired_difference(
            row.right, theirs[row.condition], comparisons=len(others) if together else 1
        )
        for one in others
        for row in one.rows
        if row.condition in theirs
    }


def sample_keys_of(test: ImageData) -> Tensor:
    """(n,) int64, from the hash of each picture: the same wherever it stands."""
    first = np.ascontiguousarray(test.samples.pixel_sha256[:, :8])
    return torch.from_numpy(first.view("<i8").reshape(-1).astype(np.int64))


def _changed(
    ask: Attributor, test: ImageData, one: Condition | Attack, asked: RobustnessOptions, ends: tuple[float, float]
) -> Iterator[Tensor]:
    """The pictures of a condition, a batch at a time, on the device."""
    net, most = ask.network, BATCH[ask.device.type]
    size, keys = ask.at_once(test.shape, most=most), sample_keys_of(test)
    if isinstance(one, Attack) and size < most:
        size = max(1, size // 3)  # pictures are large, and gradients hold three times as much of each
    if isinstance(one, Attack) and net.task_head is None:
        size = min(size, 512)  # gradients of all index scores are held
    for rows in pieces(len(test), size):
        images = test.images[rows].to(ask.device)
        if isinstance(one, Condition):
            yield distort(images, keys[rows], one, seed=asked.seed, low=ends[0], high=ends[1])
        else:
            labels = test.labels[rows]
            yield attack(net, images, labels, keys[rows], one, epsilon=asked.epsilon, seed=asked.seed, values=ends)


def _answers(run: Run, ask: Attributor, batches: Iterator[Tensor]) -> Answers:
    def read(answered: Answered) -> dict[str, Tensor]:
        best, logits = answered.best(K), answered.logits
        classes = logits.topk(min(K, logits.shape[1]), dim=1).indices
        return {"classes": classes.cpu(), "index": best.index.cpu(), "support": best.support.cpu()}

    found = ask.over(((images, None) for images in batches), read)
    classes, index, support = (found[name].numpy() for name in ("classes", "index", "support"))
    return Answers(classes, index, support >= run.config.threshold)


def _figures(
    run: Run, truth: np.ndarray, found: Answers, clean: Answers, *, single: bool, isolated: bool
) -> tuple[dict[str, Interval], np.ndarray]:
    labels = _labels(run, found.index)
    by_class = {k: any_at_k(found.classes, truth, k) for k in (1, K)}
    by_index = {k: any_at_k(labels, truth, k) for k in (1, K)}
    chief = by_index if single else by_class
    figures = {"top_1": chief[1], "top_5": chief[K], "class_top_1": by_class[1], "class_top_5": by_class[K]}
    if not isolated:
        first = clean.index[:, 0]
        figures |= {
            "index_top_1": by_index[1],
            "index_top_5": by_index[K],
            "same_exemplar": (found.index[:, 0] == first) & (first >= 0),
            "same_exemplar_in_5": (found.index == first[:, None]).any(1) & (first >= 0),
            "same_exemplar_class": (labels[:, 0] == _labels(run, clean.index)[:, 0]) & (first >= 0),
            "most_named": _most_named(found.index[:, 0]),
            "supported": found.supported,
        }
        if run.samples.withheld.any():  # else there is a sample for everything
            figures["unnamed"] = found.index[:, 0] < 0
    return {name: wilson(int(hits.sum()), len(hits)) for name, hits in figures.items()}, chief[1]


def _most_named(first: np.ndarray) -> np.ndarray:
    """(n,) bool: whether the first exemplar is one of the FEW that are named first most often; none is not."""
    names, place, counts = np.unique(first, return_inverse=True, return_counts=True)
    often = np.argsort(-np.where(names >= 0, counts, 0), kind="stable")[:FEW]
    return np.isin(place, often) & (first >= 0)


def _labels(run: Run, index: np.ndarray) -> np.ndarray:
    return np.where(index >= 0, run.samples.labels[np.maximum(index, 0)], -1)


def _spread(n: int, most: int) -> np.ndarray:
    most = whole_number("attacked", most)
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(np.int64))


def _ends(test: ImageData) -> tuple[float, float]:
    """Lowest and highest value of floats; bytes need none."""
    if test.images.dtype == torch.uint8:
        return 0.0, 255.0
    low, high = float(test.images.min()), float(test.images.max())
    return low, high if high > low else low + 1.0


def _check(run: Run, test: ImageData) -> ImageData:
    if len(image_data("the test data", test)) == 0:
        raise UsageError("there are no test samples to distort")
    shape = run.config.network.input_shape
    if not is_picture(shape):
        raise UsageError(f"distortions are for pictures; this run takes vectors of {shape[0]} values")
    if test.shape != shape:
        raise UsageError(f"the run takes samples of shape {shape}, the test data have {test.shape}; resize them first")
    return own_classes(run, test)


FIGURES = {
    "top_1": "right answer, as the paper compares it",
    "top_5": "right answer among five",
    "class_top_1": "most probable class is right",
    "class_top_5": "right class among the five most probable",
    "index_top_1": "first exemplar is of the right class",
    "index_top_5": "any of five exemplars is of the right class",
    "same_exemplar": "first exemplar is that of the clean picture",
    "same_exemplar_in_5": "that one is among the first five",
    "same_exemplar_class": "first exemplar is of the class of that one",
    "most_named": "first exemplar is one of the ten named most often under this condition",
    "supported": "a training sample supports the answer",
    "unnamed": "no exemplar may be named, all of the class are withheld: wrong in every figure of exemplars",
}

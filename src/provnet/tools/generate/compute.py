"""Pictures from a run, the same ones for the same seed: how generators are trained, what they make, how good it is.

Recipes are the paper's two and ours, by the name that `--generator` takes. Measured are rebuilt pictures, class and
index of training samples, and a distance to real pictures.

Letters: n pictures, C channels, H W height and width, L latents.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from provnet.answers.attributor import Attributor, explain
from provnet.answers.evaluation import own_classes, trained_rows
from provnet.answers.explanation import Explanation
from provnet.answers.metrics import frechet, group_hit
from provnet.answers.queries import Query
from provnet.base.batches import at_once, keyed_generator
from provnet.base.errors import NonFiniteError, UsageError, choose, did_you_mean, one_of
from provnet.base.files import brief, check_memory
from provnet.base.options import NetworkOptions, Train
from provnet.base.stats import Interval, t_quantile, wilson
from provnet.data.dataset import ImageData, image_data
from provnet.data.modalities.image import picture_of
from provnet.models.network import ProvenanceNet, answer_at, picture, posterior_of, vae_of
from provnet.models.vae import sample
from provnet.runs.inputs import Fitted, range_problem, raw_tensor, run_of, whole_number
from provnet.runs.run import Run
from provnet.tasks.generate import Normal
from provnet.training.config import TrainConfig, check_batch_size, train_config
from provnet.training.fit import fit


def recipe(generator: str = "modern", **changes: Any) -> TrainConfig:
    """A recipe with some settings of its training changed; None leaves a setting as it is.

    >>> recipe("paper").epochs, recipe("faces", epochs=3).epochs
    (70, 3)
    """
    found = choose("generator", generator, RECIPES)
    known = {field.name for field in fields(TrainConfig)}
    for name in changes:
        if name not in known:
            raise UsageError(f'unknown setting "{name}" of a training.{did_you_mean(name, known)}')
    return replace(found, **{k: v for k, v in changes.items() if v is not None})


def fit_generator(data: ImageData, generator: str = "modern", *, changes: Any = None, **how: Any) -> Run:
    """Train a generator; `changes` are settings of its training, `how` goes to `fit` (where, test, on_epoch).

    >>> import provnet
    >>> run = fit_generator(provnet.open_data("embedded", limit=40), "faces", changes={"epochs": 1})
    >>> run.config.network.backbone
    'vae-faces'
    """
    if changes is not None and not (isinstance(changes, Mapping) and all(isinstance(name, str) for name in changes)):
        raise UsageError(f'changes must be settings by name, as {{"epochs": 40}}; got {changes!r:.80}')
    return fit(data, recipe(generator, **(changes or {})), **how)


# Adam at 1e-3 throughout, batches of 128, .6 (reconstruction + divergence) + .4 (class + index)
_PAPER = TrainConfig(
    preset="paper-vae",
    epochs=70,
    batch_size=128,
    lr=1e-3,
    weight_decay=0.0,
    betas=(0.9, 0.999),
    schedule="step",
    warmup=0.0,
    step_factor=1.0,
    smoothing=0.0,
    task_weight=0.4,
    index_weight=0.4,
)
_MODERN = TrainConfig(
    preset="modern-vae",
    epochs=40,
    lr=2e-3,
    weight_decay=1e-4,
    betas=(0.9, 0.99),
    warmup=2.0,
    smoothing=0.0,
    task_weight=5.0,
    index_weight=1.0,
)
_LAYERS, _KEYS = ("class-conditional-heads", "plain"), ("class-conditional", "exemplar")


def _with(config: TrainConfig, backbone: str, network: str, head: str) -> TrainConfig:
    return config.using(network=network, backbone=backbone, head=head)


RECIPES: dict[str, TrainConfig] = {
    "paper": _with(_PAPER, "vae-paper", *_LAYERS),
    "paper-mean": _with(replace(_PAPER, preset="paper-mean-vae"), "vae-paper-mean", *_LAYERS),
    "faces": _with(replace(_PAPER, preset="faces-vae", epochs=150), "vae-faces", *_LAYERS),
    "modern": _with(_MODERN, "vae-modern", *_KEYS),
}
GENERATOR_NAMES = tuple(RECIPES)


TASKS = ("classify", "generate")


def chosen_recipe(asked: Train) -> TrainConfig:
    """How to train, and which network: by preset, or by the name of a generator, which brings its own."""
    how, network = asked.recipe, asked.network
    one_of("task", how.task, TASKS)
    changes = {name: getattr(how, name) for name in ("epochs", "batch_size", "lr", "augment", "seed")}
    if how.task == "classify":
        if how.generator is not None:
            raise UsageError("--generator goes with --task generate; give that too, or leave it out")
        changes["finetune"] = how.finetune or None
        return replace(train_config(how.preset or "default", **changes), wanted=network)

    own = [name for name in BROUGHT if getattr(network, name) != getattr(NetworkOptions(), name)]
    own += [] if asked.subset.index_subset is None else ["index_subset"]
    own += [] if how.preset is None else ["preset"]
    if own:
        words = ", ".join(f"--{name.replace('_', '-')}" for name in own)
        raise UsageError(f"a generator brings its own network and recipe: leave {words} out, choose with --generator")
    if how.batch_size is not None:
        check_batch_size(how.batch_size)
    found = recipe(how.generator or "modern", **changes)
    return found.using(key_type=network.key_type, key_width=network.key_width)


BROUGHT = ("network", "backbone", "head", "alpha", "conditional", "level")


BATCH = 256  # latents that are drawn together; where pictures are large fewer go through the network at a time
DRAWS, LEAST_DRAWS = 500, 5_000  # for each picture of a class that is asked for, and in all
LATENT, CLASS = 12, 13  # kinds of randomness


@dataclass(frozen=True, eq=False)
class Generated:
    """Pictures that a run made.

    Attributes:
        images: (n, C, H, W) uint8, of the run's input shape.
        labels: (n,) int64, the class that was asked for, or the one that the run sees in what it made.
        latents: (n, L) float32, what they were made of.
        drawn: how many were made in all; more than n where those of other classes were left out.
    """

    images: np.ndarray
    labels: np.ndarray
    latents: np.ndarray
    drawn: int

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        """One line: pixels would fill a page."""
        return f"Generated({len(self):,} pictures of {'x'.join(map(str, self.images.shape[1:]))}, {self.drawn:,} drawn)"


def is_generator(run: Run | Fitted) -> bool:
    """Whether a run makes pictures."""
    run = run_of(run)
    return run.config.network.task == "generate"


def generate(run: Run | Fitted, n: int, label: str | int | None = None, seed: int = 0) -> Generated:
    """Make n pictures, of a class where `label` (its name, or its position) says so; computed where the network lies.

    The paper's generators cannot be asked for a class: pictures are made until n of them are seen as that class by the
    run's own class head, and not more than 500 for each. The modern one makes what is asked for; without `label` its
    classes are as frequent as in the training data.

    >>> import provnet
    >>> from provnet.tools.generate.compute import fit_generator
    >>> run = fit_generator(provnet.open_data("embedded", limit=40), "modern", changes={"epochs": 1})
    >>> made = generate(run, 3, label="7", seed=1)
    >>> made.images.shape, made.images.dtype, made.labels.tolist()
    ((3, 1, 28, 28), dtype('uint8'), [7, 7, 7])
    """
    run = run_of(run)
    n = whole_number("how many pictures", n)
    net, wanted = run.network.eval(), None if label is None else class_of(run, label)
    vae, draws = vae_of(net), keyed_generator(seed, LATENT)
    check_memory(n * (math.prod(run.config.network.input_shape) + 8 * vae.latents), f"{n:,} pictures")
    if vae.conditional:
        classes = _classes(run, n, wanted, seed)
        noise = torch.randn(n, vae.latents, generator=draws)
        with torch.inference_mode():
            z = _in_parts(net, vae.draw, noise, classes)
        return Generated(paint(net, z, classes), classes.numpy(), z.numpy(), n)
    kept_z, kept_labels, count, drawn = [], [], 0, 0
    most = n if wanted is None else max(DRAWS * n, LEAST_DRAWS)
    while count < n and drawn < most:
        noise = torch.randn(min(BATCH if wanted is not None else n, most - drawn), vae.latents, generator=draws)
        none = torch.zeros(len(noise), dtype=torch.int64)
        with torch.inference_mode():
            seen = _in_parts(net, lambda x, _: answer_at(net, x).logits.argmax(1), noise, none)
        fits = torch.ones_like(seen, dtype=torch.bool) if wanted is None else seen == wanted
        kept_z.append(noise[fits])
        kept_labels.append(seen[fits])
        count, drawn = count + int(fits.sum()), drawn + len(noise)
    if count < n:
        assert wanted is not None
        name = brief(run.samples.class_names[wanted])
        raise UsageError(
            f'{count} of {drawn:,} pictures are seen as "{name}", {n} were asked for; '
            "ask for fewer, leave --label out, train longer, or train with --generator modern, which is told the class"
        )
    z, labels = torch.cat(kept_z)[:n], torch.cat(kept_labels)[:n]
    return Generated(paint(net, z, labels), labels.numpy(), z.numpy(), drawn)


def class_of(run: Run, label: str | int) -> int:
    """The position of a class that has samples, by its name or position; else an error that lists those there are."""
    names = run.samples.class_names
    there: dict[str, int] = {names[i]: i for i in np.unique(run.samples.labels).tolist()}
    if isinstance(label, int | np.integer):  # never a name: of classes "1", "2", "3" both 2 and 3 would be "3"
        if label in there.values():
            return int(label)
        raise UsageError(
            f"label {label}: no class with samples has that position, of 0..{len(names) - 1}; a name is given as text, "
            f'such as "{brief(next(iter(there)))}"'
        )
    if str(label) in there:
        return there[str(label)]
    listed = ", ".join(map(brief, list(there)[:30])) + (f" and {len(there) - 30:,} more" if len(there) > 30 else "")
    hint = did_you_mean(str(label), list(there))
    raise UsageError(f'unknown label "{brief(str(label))}"; this run has {listed}.{hint}')


def paint(net: ProvenanceNet, z: Tensor, classes: Tensor) -> np.ndarray:
    """Latents (n, L) on the CPU -> bytes (n, C, H, W)."""
    with torch.inference_mode():
        pixels = _in_parts(net, lambda x, y: to_bytes(picture(net, x, y)), z, classes)
    return np.asarray(pixels.numpy())


def rebuild_pictures(run: Run | Fitted, images: Tensor | np.ndarray, *, warn: bool = True) -> np.ndarray:
    """Raw images (n, C, H, W) as the run makes them of their own latents: bytes, at the mean.

    Images whose values cannot lie in the range trained on get a UserWarning, unless `warn` is False.
    """
    run = run_of(run)
    net, given = run.network.eval(), raw_pictures(images)
    problem = range_problem(run.config.network, given) if warn else None
    if problem is not None:
        warnings.warn(problem, UserWarning, stacklevel=2)
    none = torch.zeros(len(given), dtype=torch.int64)

    def rebuilt(x: Tensor, _: Tensor) -> Tensor:
        z = posterior_of(net, x).mean
        return to_bytes(picture(net, z, answer_at(net, z).logits.argmax(1)))

    with torch.inference_mode():
        return np.asarray(_in_parts(net, rebuilt, given, none).numpy())


def raw_pictures(images: Tensor | np.ndarray) -> Tensor:
    """Numbers as people give them, as a tensor; none at all, NaN and infinity are refused.

    >>> raw_pictures(np.zeros((2, 1, 4, 4), ">f4")).dtype
    torch.float32
    """
    given: Tensor = raw_tensor(images)
    if given.numel() == 0:
        raise UsageError("no pictures were given; give at least one")
    if given.is_floating_point() and not bool(torch.isfinite(given).all()):
        raise NonFiniteError("the pictures hold NaN or infinite values, so they have no latents")
    return given


def to_bytes(pixels: Tensor) -> Tensor:
    """Pixels in [0, 1] -> uint8.

    >>> to_bytes(torch.tensor([0.0, 0.5, 1.0])).tolist()
    [0, 128, 255]
    """
    return (pixels * 255).round().clamp(0, 255).to(torch.uint8)


def _classes(run: Run, n: int, wanted: int | None, seed: int) -> Tensor:
    if wanted is not None:
        return torch.full((n,), wanted)
    rows = torch.randint(len(run.samples), (n,), generator=keyed_generator(seed, CLASS))
    return torch.tensor(run.samples.labels)[rows]


def _in_parts(net: ProvenanceNet, work: object, values: Tensor, classes: Tensor) -> Tensor:
    """Work through rows that lie on the CPU, where the network lies, a few at a time."""
    device = next(net.parameters()).device
    few = at_once(net.normalise.input_shape, device.type, BATCH)
    parts = zip(torch.split(values, few), torch.split(classes, few), strict=True)
    return torch.cat([work(x.to(device), y.to(device)).cpu() for x, y in parts])  # type: ignore[operator]


def sources(run: Run | Fitted, made: Generated, k: int = 5) -> Explanation:
    """Class, confidence and the k training samples behind each generated picture.

    Samples are told from the latents that it was made of, within its class (`labels`). Withheld ones are never named.
    Where a class could be asked for, `predicted` is what the run sees when it looks at the picture again.

    >>> import provnet
    >>> from provnet.tools.generate.compute import fit_generator, generate
    >>> run = fit_generator(provnet.open_data("embedded", limit=40), "modern", changes={"epochs": 1})
    >>> sources(run, generate(run, 2, label="7"), k=3).label.tolist()
    [[7, 7, 7], [7, 7, 7]]
    """
    run = run_of(run)
    if not isinstance(made, Generated):
        raise UsageError(f"sources are told of what generate(...) made, a Generated; got {type(made).__name__}")
    found = explain_latents(run, made.latents, made.labels, k)
    # latents are drawn wider than means lie: support, and the class where it was asked for, are told from the picture
    seen = explain(run, made.images, k=1)
    found = replace(found, support=seen.support, supported=seen.supported)
    told = vae_of(run.network).conditional
    return replace(found, predicted=seen.predicted, confidence=seen.confidence) if told else found


def explain_latents(run: Run | Fitted, latents: np.ndarray, classes: np.ndarray | None, k: int = 5) -> Explanation:
    """The same for latents (n, L) and classes (n,), or without classes for those that the run predicts."""
    run = run_of(run)
    vae_of(run.network)
    z = torch.from_numpy(np.asarray(latents, dtype=np.float32))
    given = None if classes is None else torch.from_numpy(np.asarray(classes))
    return Attributor(run)(z, k, classes=given, shape=run.config.network.input_shape, how=answer_at)


FEWEST, MOST = 2, 200


@dataclass(frozen=True, eq=False)
class Path:
    """What lies between two pictures.

    Attributes:
        images: (S, C, H, W) uint8; the first and the last are the two pictures, rebuilt.
        shares: (S,) how far each is from the first to the last, 0..1.
        explanation: class and training samples of each.
    """

    images: np.ndarray
    shares: np.ndarray
    explanation: Explanation

    def __len__(self) -> int:
        return len(self.shares)

    def __repr__(self) -> str:
        """One line: pixels would fill a page."""
        return f"Path({len(self)} steps, {self.explanation!r})"


def interpolate(
    run: Run | Fitted, first: Tensor | np.ndarray, last: Tensor | np.ndarray, steps: int = 9, k: int = 5
) -> Path:
    """Go from one raw image (C, H, W) to another in equal steps of their latents.

    Training samples are looked for within the class that the run sees at each step, so the class of the sources changes
    on the way where the two pictures are of different classes.

    >>> import provnet
    >>> from provnet.tools.generate.compute import fit_generator
    >>> data = provnet.open_data("embedded", limit=40)
    >>> run = fit_generator(data, "modern", changes={"epochs": 1})
    >>> len(interpolate(run, data.images[0], data.images[1], steps=4))
    4
    """
    run = run_of(run)
    if not FEWEST <= whole_number("steps", steps) <= MOST:
        raise UsageError(f"steps must lie in {FEWEST}..{MOST}, got {steps}")
    net = run.network.eval()
    vae, device = vae_of(net), next(net.parameters()).device
    ends_given = [raw_pictures(each) for each in (first, last)]
    for each in ends_given:
        if tuple(each.shape) != tuple(run.config.network.input_shape):
            shape = run.config.network.input_shape
            raise UsageError(f"both ends must be pictures of shape {shape}, got {tuple(each.shape)}")
    both = torch.stack([each.float() for each in ends_given]).to(device)
    shares = torch.linspace(0, 1, steps)
    with torch.inference_mode():
        ends = posterior_of(net, both).mean
        seen = answer_at(net, ends).logits.argmax(1)
        z = torch.lerp(ends[:1], ends[1:], shares.to(device).unsqueeze(1))
        parts = []
        few = at_once(net.normalise.input_shape, device.type)
        for some, share in zip(torch.split(z, few), torch.split(shares.to(device), few), strict=True):
            one, other = seen[:1].expand(len(some)), seen[1:].expand(len(some))
            logits = vae.paint_between(vae.hidden(some), one, other, share)
            parts.append(to_bytes(logits.float().sigmoid()).cpu())
    images = torch.cat(parts).numpy()
    return Path(images, shares.numpy(), explain_latents(run, z.cpu().numpy(), None, k))


class Rebuilt(NamedTuple):
    """An input as a generator makes it of its own latents, and the mean square error of a pixel in [0, 1]."""

    picture: np.ndarray | None
    error: float


def rebuilt_queries(run: Run, queries: Sequence[Query]) -> list[Rebuilt]:
    """The inputs of `explain` rebuilt; nothing for a run that makes no pictures."""
    if not is_generator(run):
        return []
    images = np.stack([query.image for query in queries])
    made = rebuild_pictures(run, images, warn=False)  # they were looked at
    away = ((made.astype(np.float64) - images) / 255) ** 2
    return [Rebuilt(picture_of(made[row]), float(away[row].mean())) for row in range(len(made))]


SPACE = "means of this run's own latents; comparable within this run only"
MADE = 2_000  # pictures that are made and compared with as many real ones
DRAWN = 14  # kind of randomness


def measure_generator(
    run: Run | Fitted,
    train: ImageData | None = None,
    test: ImageData | None = None,
    *,
    index: np.ndarray | None = None,
    seed: int = 0,
    made: int = MADE,
) -> dict[str, Any]:
    """All figures of a run that makes pictures, as plain values with n and interval.

    `train` are its training samples (`index` says which, where some are missing), `test` others. Withheld samples are
    left out; data that are not those of the run are refused. Reconstruction is
    measured at the mean of the latents: binary cross-entropy summed over the pixels of a picture, and the mean square
    error of a pixel in [0, 1]. The index is looked for within the given class.

    >>> import provnet
    >>> from provnet.tools.generate.compute import fit_generator
    >>> data = provnet.open_data("embedded", limit=40)
    >>> run = fit_generator(data, "faces", changes={"epochs": 1})
    >>> sorted(measure_generator(run, data, made=20))
    ['frechet', 'train']
    """
    run = run_of(run)
    found: dict[str, Any] = {}
    made = whole_number("made", made)
    if train is not None:
        image_data("the training data", train)
    if test is not None:
        test = own_classes(run, test)
    if test is not None and len(test):
        found["test"] = rebuilding_error(run, test)
    if train is not None and len(train):
        own = trained_rows(run, train, index)
        if run.samples.withheld.any():
            active = np.flatnonzero(~run.samples.withheld[own])
            own, train = own[active], train.select(active)
    if train is not None and len(train):
        found["train"] = rebuilding_error(run, train) | latent_index_accuracy(run, train, own, seed)
    real = test if test is not None and len(test) else train
    count = min(made, 0 if real is None else len(real))
    if real is not None and count >= 2:
        rows = torch.randperm(len(real), generator=keyed_generator(seed, DRAWN))[:count]
        pictures = generate(run, count, seed=seed).images
        sides = latent_means(run, pictures), latent_means(run, real.images[rows].numpy())
        found["frechet"] = frechet(*sides, space=SPACE).to_json()
    return found


@torch.inference_mode()
def rebuilding_error(run: Run | Fitted, data: ImageData) -> dict[str, Any]:
    """Reconstruction of pictures at the mean of their latents, and the class that is seen there."""
    run = run_of(run)
    net = run.network.eval()
    vae, device = vae_of(net), next(net.parameters()).device
    entropy, error, right = [], [], 0
    few = at_once(data.shape, device.type, BATCH)
    for images, labels in zip(torch.split(data.images, few), torch.split(data.labels, few), strict=True):
        target = net.normalise(images.to(device))
        z = vae.encode(target).mean
        seen = answer_at(net, z).logits.argmax(1)
        logits = vae.paint(vae.hidden(z), seen).float()
        each = F.binary_cross_entropy_with_logits(logits, target, reduction="none").flatten(1).sum(1)
        entropy.append(each.cpu().numpy())
        error.append((logits.sigmoid() - target).square().flatten(1).mean(1).cpu().numpy())
        right += int((seen.cpu() == labels).sum())
    return {
        "reconstruction_bce": mean_of(np.concatenate(entropy)).to_json(),
        "reconstruction_mse": mean_of(np.concatenate(error)).to_json(),
        "class_accuracy": wilson(right, len(data)).to_json(),
    }


def latent_index_accuracy(run: Run | Fitted, data: ImageData, own: np.ndarray, seed: int = 0) -> dict[str, Any]:
    """Whether training samples are found by their own latents: at the mean, and drawn from their distribution.

    Where there are equal pictures, which no network can tell apart, figures stand beside in which each of them counts.
    """
    run = run_of(run)
    right, found = _answers(run, data, seed)
    figures = {
        "class_accuracy_drawn": _rate(right["sample"]),
        "index_accuracy": _rate(found["mean"] == own),
        "index_accuracy_drawn": _rate(found["sample"] == own),
    }
    if run.samples.index_ceiling < 1:
        groups = run.samples.groups
        figures["index_accuracy_group"] = _rate(group_hit(found["mean"][:, None], own, groups))
        figures["index_accuracy_drawn_group"] = _rate(group_hit(found["sample"][:, None], own, groups))
    return figures


def index_hits(run: Run | Fitted, data: ImageData, own: np.ndarray, seed: int = 0) -> dict[str, np.ndarray]:
    """(n,) bool each: class and index right at the mean and at drawn latents; withheld samples are never found.

    Of equal pictures the first is named, as `explain` does: only that one is right, see `samples.index_ceiling`.

    >>> import provnet
    >>> from provnet.tools.generate.compute import fit_generator
    >>> data = provnet.open_data("embedded", limit=20)
    >>> run = fit_generator(data, "faces", changes={"epochs": 1})
    >>> sorted(index_hits(run, data, np.arange(20)))
    ['class_at_mean', 'class_at_sample', 'index_at_mean', 'index_at_sample']
    """
    right, found = _answers(run_of(run), data, seed)
    hits: dict[str, np.ndarray] = {}
    for where in right:
        hits |= {f"class_at_{where}": right[where], f"index_at_{where}": found[where] == own}
    return hits


@torch.inference_mode()
def _answers(run: Run, data: ImageData, seed: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """By `mean` and `sample`: (n,) bool whether the class is right, and (n,) int64 the sample named within it."""
    ask, generator = Attributor(run), keyed_generator(seed, DRAWN, 1)
    net, few = ask.network.eval(), ask.at_once(data.shape, most=BATCH)
    z: dict[str, list[Tensor]] = {"mean": [], "sample": []}
    for batch in torch.split(data.images, BATCH):  # so many latents are drawn together
        seen = [posterior_of(net, images.to(ask.device)) for images in torch.split(batch, few)]
        posterior = Normal(*(torch.cat(values) for values in zip(*seen, strict=True)))
        z["mean"] += torch.split(posterior.mean, few)
        z["sample"] += torch.split(sample(posterior, generator), few)
    right: dict[str, np.ndarray] = {}
    index: dict[str, np.ndarray] = {}
    labels = torch.split(data.labels, [len(some) for some in z["mean"]])
    for where, parts in z.items():
        pairs = zip(parts, labels, strict=True)
        found = ask.over(pairs, lambda answered: vars(answered.best(1)), how=answer_at)
        right[where] = (found["predicted"].cpu() == data.labels).numpy()
        index[where] = found["index"][:, 0].cpu().numpy()
    return right, index


@torch.inference_mode()
def latent_means(run: Run | Fitted, images: np.ndarray) -> np.ndarray:
    """(n, L) what the run's own encoder sees in raw pictures."""
    run = run_of(run)
    net = run.network.eval()
    device = next(net.parameters()).device
    given = raw_pictures(images)
    batches = torch.split(given, at_once(given.shape[1:], device.type, BATCH))
    return np.asarray(torch.cat([posterior_of(net, batch.to(device)).mean.cpu() for batch in batches]).numpy())


def mean_of(values: np.ndarray) -> Interval:
    """A mean with its 95 % interval; a single value has none.

    >>> mean_of(np.array([1.0, 2.0, 3.0])).value
    2.0
    """
    n, middle = len(values), float(values.mean())
    if n < 2:
        return Interval(middle, n, None, None, "a single value has no interval")
    half = t_quantile(n - 1) * float(values.std(ddof=1)) / math.sqrt(n)
    return Interval(middle, n, middle - half, middle + half)


def _rate(hits: np.ndarray) -> dict[str, Any]:
    return wilson(int(hits.sum()), len(hits)).to_json()

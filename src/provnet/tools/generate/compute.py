"""generate: pictures from a run, the same ones for the same seed.

Letters: n pictures, C channels, H W height and width, L latents.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from provnet.answers.attributor import Attributor, explain
from provnet.answers.explanation import Explanation
from provnet.answers.queries import Query
from provnet.base.batches import at_once, keyed_generator
from provnet.base.errors import NonFiniteError, UsageError, did_you_mean
from provnet.base.files import brief, check_memory
from provnet.data.modalities.image import picture_of
from provnet.models.network import ProvenanceNet, answer_at, picture, posterior_of, vae_of
from provnet.runs.inputs import Fitted, range_problem, raw_tensor, run_of, whole_number
from provnet.runs.run import Run

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
    >>> from provnet.tools.generate import fit_generator
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
        raise NonFiniteError("the pictures hold NaN or infinite values, of which no latents can be made")
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
    >>> from provnet.tools.generate import fit_generator, generate
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
    >>> from provnet.tools.generate import fit_generator
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
            raise UsageError(f"a path goes from one picture of shape {shape} to another, got {tuple(each.shape)}")
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

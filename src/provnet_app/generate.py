"""Generate: the routes of a run that makes pictures. Sliders move its latents, and the samples behind follow."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from provnet.answers.attributor import explain
from provnet.base.batches import keyed_generator
from provnet.models.network import vae_of
from provnet.report.pictures import to_image
from provnet.tools.generate.compute import explain_latents, generate, is_generator, latent_means, paint
from provnet_app.explain_api import ExemplarRecord, exemplar_record, label_of
from provnet_app.library import encoded
from provnet_app.limits import K
from provnet_app.routes import BODY, NUMBER, WHOLE, Hash, Label, Strict, gives, rounded, router
from provnet_app.security import ApiError
from provnet_app.served import Served
from provnet_app.state import State

SLIDERS = 12
LOOKED_AT = 2_000  # training samples that the directions come from
FARTHEST = 3.0  # standard deviations to each side


@dataclass(frozen=True, eq=False)
class Axes:
    """What sliders move.

    Attributes:
        middle: (L,) the mean of the latents.
        direction: (S, L) unit vectors, the one with the most variance first.
        spread: (S,) standard deviation along each.
    """

    middle: np.ndarray
    direction: np.ndarray
    spread: np.ndarray

    def positions(self, z: np.ndarray) -> np.ndarray:
        """Where the sliders stand for latents (L,), in standard deviations."""
        return np.asarray(self.direction @ (z - self.middle) / self.spread)

    def moved(self, z: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """The latents with the sliders set; what they do not move stays as it is."""
        change = (positions - self.positions(z)) * self.spread
        return np.asarray(z + change @ self.direction, dtype=np.float32)


def find_axes(served: Served) -> Axes:
    """The sliders of a run, from its training pictures where they are there, else from pictures that it makes."""
    if served.training is None:
        values = generate(served.run, 256, seed=0).latents
    else:
        rows = torch.randperm(len(served.training), generator=keyed_generator(0, 42))[:LOOKED_AT]
        values = latent_means(served.run, served.training.images[rows].numpy())
    return axes_of(values.astype(np.float64))


def axes_of(values: np.ndarray) -> Axes:
    """The principal directions of latents (n, L); each points to where its largest part is positive.

    >>> found = axes_of(np.array([[0.0, 0.0], [2.0, 0.0], [4.0, 0.1], [6.0, 0.0]]))
    >>> [f"{value:.2f}" for value in found.moved(found.middle, np.array([1.0, 0.0]))]
    ['5.24', '0.04']
    """
    middle = values.mean(0)
    _, strength, direction = np.linalg.svd(values - middle, full_matrices=False)
    direction = direction * np.sign(direction[np.arange(len(direction)), np.abs(direction).argmax(1)])[:, None]
    spread = np.maximum(strength / np.sqrt(len(values)), 1e-6)
    return Axes(middle, direction[:SLIDERS], spread[:SLIDERS])


Position = Annotated[float, Field(ge=-2 * FARTHEST, le=2 * FARTHEST), NUMBER]


class Sliders(BaseModel):
    """What can be moved; `conditional` where a class can be asked for."""

    latent: int
    range: list[list[float]]
    start: list[float]
    conditional: bool


class Make(Strict):
    """What to make: from a known picture, else from a seed, else from the middle; then the sliders are set."""

    latent: Annotated[list[Position] | None, Field(max_length=SLIDERS)] = None
    sha256: Hash | None = None
    seed: Annotated[int | None, Field(ge=0, le=2**31 - 1), WHOLE] = None
    class_: Annotated[int | None, Field(alias="class", ge=0, lt=2**31), WHOLE] = None
    k: Annotated[int, Field(ge=1, le=K), WHOLE] = 5

    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class MadeRecord(BaseModel):
    """A picture that was made, where the sliders stand, and the training samples behind it."""

    picture: str
    latent: list[float]
    predicted: Label
    confidence: float
    supported: bool
    exemplars: list[ExemplarRecord]
    rest: float
    withheld: int


def generate_routes(state: State) -> APIRouter | None:
    """GET and POST /generate, or None where the run does not make pictures."""
    if not is_generator(state.served.run):
        return None
    routes, kept = router("generate"), list[Axes]()

    def axes() -> Axes:
        if not kept:
            kept.append(find_axes(state.served))
        return kept[0]

    @routes.get("/generate", responses=gives())
    async def sliders() -> Sliders:
        """The sliders of this run."""
        found = await asyncio.get_running_loop().run_in_executor(state.desk, axes)
        count = len(found.spread)
        conditional = vae_of(state.served.run.network).conditional
        span = [[-FARTHEST, FARTHEST] for _ in range(count)]
        return Sliders(latent=count, range=span, start=[0.0] * count, conditional=conditional)

    @routes.post("/generate", responses=gives(404, *BODY))
    async def make(wanted: Make) -> MadeRecord:
        """Make a picture, and name the training samples behind it."""
        return await asyncio.get_running_loop().run_in_executor(state.desk, lambda: _made(state, axes(), wanted))

    return routes


def _made(state: State, axes: Axes, wanted: Make) -> MadeRecord:
    run, names = state.served.run, state.served.run.samples.class_names
    if wanted.class_ is not None and not (wanted.class_ < len(names) and (run.samples.labels == wanted.class_).any()):
        raise ApiError(404, "unknown_hash", "this run has no samples of such a class", "class")
    z, label = _start(state, axes, wanted)
    if wanted.latent is not None:
        given = np.zeros(len(axes.spread))
        given[: len(wanted.latent)] = wanted.latent[: len(given)]
        z = axes.moved(z, given)
    classes = None if label is None else np.array([label])
    found = explain_latents(run, z[None], classes, wanted.k)
    shown = int(found.predicted[0]) if label is None else label
    image = paint(run.network, torch.from_numpy(z[None]), torch.tensor([shown]))[0]
    seen = explain(run, image[None], k=1)  # support is told from the picture, as for any other
    pixels = state.library.pixels(image)
    assert pixels is not None
    real = found.index[0] >= 0
    pairs = zip(found.index[0][real].tolist(), found.weight[0][real].tolist(), strict=True)
    return MadeRecord(
        picture="data:image/png;base64," + base64.b64encode(encoded(to_image(pixels))).decode("ascii"),
        latent=[rounded(value, 4) for value in axes.positions(z).tolist()],
        predicted=label_of(state, int(found.predicted[0])),
        confidence=rounded(float(found.confidence[0]), state.digits),
        supported=bool(seen.supported[0]),
        exemplars=[exemplar_record(state, rank, index, weight) for rank, (index, weight) in enumerate(pairs, 1)],
        rest=rounded(max(0.0, 1 - float(found.weight[0][real].sum())), state.digits),
        withheld=int(run.samples.withheld.sum()),
    )


def _start(state: State, axes: Axes, wanted: Make) -> tuple[np.ndarray, int | None]:
    """The latents before the sliders, and the class that is asked for."""
    run = state.served.run
    if wanted.sha256 is not None:
        known = state.library.find(wanted.sha256)
        z = latent_means(run, known.image[None])[0]
        return z, known.label if wanted.class_ is None else wanted.class_
    if wanted.seed is not None:
        made = generate(run, 1, wanted.class_, wanted.seed)
        return made.latents[0], int(made.labels[0])
    return axes.middle.astype(np.float32), wanted.class_

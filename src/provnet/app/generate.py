"""Generate: the routes of a run that makes pictures. Sliders move its latents, and the samples behind follow."""

from __future__ import annotations

import asyncio
import base64
from typing import Annotated

import numpy as np
import torch
from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from provnet.app.errors import ApiError
from provnet.app.explain_api import ExemplarRecord, exemplar_record, label_of
from provnet.app.fields import NUMBER, WHOLE, Hash, Label, Strict, rounded
from provnet.app.latents import FARTHEST, SLIDERS, Axes, find_axes
from provnet.app.library import encoded
from provnet.app.limits import K
from provnet.app.routes import BODY, gives, router
from provnet.app.state import State
from provnet.explanation import explain
from provnet.generation.measures import latent_means
from provnet.generation.sampling import generate, is_generator, paint
from provnet.generation.sources import explain_latents
from provnet.models.vae import vae_of
from provnet.report.pictures import to_image

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

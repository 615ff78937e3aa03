"""Generated pictures and their sources: a variational autoencoder with class and index heads.

Claim: one VAE generates, classifies and names training samples with high accuracy; generated samples "closely resemble"
    the five training samples that are named; also for 10,000 faces of thousands of people (sec. 5.5, app. 7.10-7.15).
Command: provnet reproduce vae --data-dir DIR --device cuda --seeds 1
Expected: class accuracy near 100 % at the mean of the latents; the index of the paper's VAE much lower, and lower still
    at drawn latents; our generator with keys above it. Faces: most people have one picture, which is right by
    construction, so the others are counted apart.
Device: one H200; `--scale tiny` runs on two CPU cores.
Time: eight minutes for one seed, five generators at a time beside other work.

Recipes of app. 7.10 to 7.15 (presets of `provnet train --generator`): `paper` with losses as sums over pixels and
latents, `paper-mean` as means, since the paper does not say which; `faces`; and `modern`, which is ours. The index is
looked for within the given class. A judge trained apart says which class a generated picture has. Faces are not kept in
the results: pictures of people do not belong into a repository.
"""

from __future__ import annotations

import time
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch

from provnet.data.imagedata import ImageData
from provnet.data.sources import open_data
from provnet.experiments import networks, runs
from provnet.experiments.origin import resolved
from provnet.experiments.pictures import packed
from provnet.experiments.records import Cell, Experiment, Figure, Job, Scale, Told
from provnet.experiments.vae_words import CELLS, section, vae_figures
from provnet.explanation import explain
from provnet.generation import fit_generator, generate, generator_wishes, sources
from provnet.generation.measures import index_hits, rebuilt
from provnet.modelfile import Run
from provnet.models.exemplar import ExemplarHead
from provnet.models.provenance import parameter_count
from provnet.training.config import train_config
from provnet.training.fit import fit

MADE, SHOWN, AT_MOST, JUDGED = 2_000, 8, 25, 8
SECONDS = {"paper": 65.0, "paper-mean": 65.0, "modern": 90.0, "faces": 25.0}


def cells(scale: Scale) -> list[Cell]:
    """A generator and data set each; `tiny` has one.

    >>> [cell.name for cell in cells(Scale("tiny"))], len(cells(Scale("full")))
    (['mnist/paper'], 7)
    """
    names = [name.split("/") for name in (["mnist/paper"] if scale.name == "tiny" else CELLS)]
    return [_cell(data, generator, scale) for data, generator in names]


def _cell(data: str, generator: str, scale: Scale) -> Cell:
    told = generator_wishes(generator, **_changes(scale))
    training = {name: value for name, value in told.pop("config").to_json().items() if name != "seed"}
    config = {**told, "training": training, "made": MADE, "judge_epochs": JUDGED, "at_most": AT_MOST}
    return runs.cell(f"{data}/{generator}", data, scale, partial(run, data, generator), SECONDS[generator], config)


def _changes(scale: Scale) -> dict[str, Any]:
    return {} if scale.epochs is None else {"epochs": scale.epochs}


def run(data: str, generator: str, job: Job) -> Told:
    """Train, find training samples by their latents, make pictures and ask where they come from."""
    train, test = (_people(job.data_dir, job.scale.train), None) if data == "lfw" else networks.opened(data, job)
    course: list[dict[str, float]] = []
    epochs = generator_wishes(generator, **_changes(job.scale))["config"].epochs

    def ended(row: Any) -> None:
        course.append({key: float(f"{value:.5g}") for key, value in row.items()})
        job.tell(0.85 * len(course) / epochs)

    began = time.monotonic()
    changes = {**_changes(job.scale), "seed": job.seed}
    found = fit_generator(train, generator, changes=changes, device=job.device, on_epoch=ended)
    took = round(time.monotonic() - began, 2)
    found.network.to(resolved(job.device))
    hits = index_hits(found, train, np.arange(len(train)), seed=job.seed)
    figures: dict[str, Figure] = {name: _rate(value) for name, value in hits.items()}
    head = found.network.index_head
    if isinstance(head, ExemplarHead):  # keys set anew find their samples by construction: what was learned before
        right, of = head.learned.tolist()
        figures["index_learned"] = (right / max(of, 1), of)
    told: Told = {
        "seconds": {"train": took},
        "parameters": parameter_count(found.network),
        "samples": {"train": len(train), "test": 0 if test is None else len(test)},
        "course": course,
    }
    if test is None:
        several = np.bincount(train.samples.labels)[train.samples.labels] > 1
        if several.any():  # a few faces may be of as many people
            figures |= {f"{name}_2_to_25": _rate(value[several]) for name, value in hits.items()}
        people = np.bincount(train.samples.labels)
        told["people"] = {"all": int((people > 0).sum()), "with_2_to_25": int((people > 1).sum())}
        return {"figures": figures | _made(found, train, None, job)[0], **told}
    unseen = rebuilt(found, test)["class_accuracy"]
    figures["class_accuracy"] = (float(unseen["value"]), int(unseen["n"]))
    more, pictures = _made(found, train, test, job)
    return {"figures": figures | more, **told, **(pictures if job.seed == 0 else {})}


def _rate(hits: np.ndarray) -> Figure:
    return float(hits.mean()), len(hits)


@lru_cache(maxsize=1)
def _people(data_dir: str | None, limit: int | None) -> ImageData:
    """Faces of people with at most 25 pictures; the others stay without samples."""
    data = open_data("lfw", data_dir=data_dir, limit=limit)
    sizes = np.bincount(data.samples.labels, minlength=len(data.class_names))
    return data.select(np.flatnonzero(sizes[data.samples.labels] <= AT_MOST))


def _made(found: Run, train: ImageData, test: ImageData | None, job: Job) -> tuple[dict[str, Figure], Told]:
    """Generated pictures: are the named samples nearer than others, and does a judge see the first one's class.

    Faces have no judge, and other pictures of most people are not there: they are compared with anybody's.
    """
    count = min(MADE, len(train))
    made = generate(found, count, seed=job.seed)
    named = sources(found, made, 5)
    first, chance = named.index[:, 0], np.random.default_rng(job.seed)
    anybody = chance.integers(len(train), size=named.index.shape)
    away = partial(_away, made.images.astype(np.float32), train)
    nearest, five, strangers = away(first[:, None]), away(named.index), away(anybody)
    figures = {
        "nearer_than_any": _rate(nearest[:, 0] < strangers[:, 0]),
        "five_nearer_than_any": _rate(np.nanmean(five, 1) < strangers.mean(1)),
        "different_first_sources": (len(np.unique(first)) / count, count),
    }
    if test is None:
        return figures, {}
    by_class = {label: np.flatnonzero(train.samples.labels == label) for label in np.unique(named.label[:, 0]).tolist()}
    other = np.array([chance.choice(by_class[label]) for label in named.label[:, 0].tolist()])
    judge = _judge(train, job)
    figures |= {
        "nearer_than_another": _rate(nearest[:, 0] < away(other[:, None])[:, 0]),
        "agreement": _rate(explain(judge, made.images, k=1).predicted == named.label[:, 0]),
        "judge_accuracy": _rate(explain(judge, test.images, k=1).predicted == test.samples.labels),
    }
    rows = np.linspace(0, count - 1, min(SHOWN, count)).round().astype(np.int64)
    parts = [
        np.concatenate([made.images[row : row + 1], train.images[torch.from_numpy(_real(named.index[row]))]])
        for row in rows
    ]
    return figures, {"pictures": packed(np.concatenate(parts))}


def _away(pictures: np.ndarray, train: ImageData, rows: np.ndarray) -> np.ndarray:
    """(n, k) mean distance of pixels to the samples of these rows; NaN where none is named."""
    found = np.full(rows.shape, np.nan)
    for place in range(rows.shape[1]):  # one after the other: all at once would be five times the pictures
        there = rows[:, place] >= 0
        known = train.images[torch.from_numpy(rows[there, place])].numpy()
        found[there, place] = np.abs(pictures[there] - known).mean((1, 2, 3))
    return found


def _real(index: np.ndarray) -> np.ndarray:
    """Samples that are named; where there are fewer than five, the last one again."""
    return np.where(index >= 0, index, index[index >= 0][-1])


def _judge(train: ImageData, job: Job) -> Run:
    """A classifier trained apart: other layers, another seed, no index."""
    config = train_config(
        "fast", epochs=min(JUDGED, job.scale.epochs or JUDGED), seed=1001 + job.seed, index_weight=0.0
    )
    found = fit(train, network="class-independent", backbone="small", config=config, device=job.device)
    found.network.to(resolved(job.device))
    return found


EXPERIMENT = Experiment("vae", str(__doc__), cells, section, vae_figures)

"""Generated pictures and their sources: a variational autoencoder with class and index heads."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch

from provnet.answers.attributor import explain
from provnet.base.options import RunOptions
from provnet.data.dataset import ImageData
from provnet.data.open import open_data
from provnet.models.network import parameter_count
from provnet.runs.run import Run
from provnet.tools.generate.compute import generate, index_hits, rebuilding_error, recipe, sources
from provnet.training.config import train_config
from provnet.training.fit import fit
from provnet_paper import networks
from provnet_paper.plots import BLUE, GREY, ORANGE, draw, panels, png, tidy
from provnet_paper.records import Cell, Experiment, Figure, Job, Result, Results, Scale, Table, Told
from provnet_paper.samples import named_rows, pack_array, unpack_array
from provnet_paper.store import resolve_device

CELLS = {
    "mnist/paper": "MNIST, the paper's VAE",
    "mnist/paper-mean": "MNIST, the paper's VAE, losses as means",
    "mnist/modern": "MNIST, ours with keys",
    "fashion-mnist/paper": "FashionMNIST, the paper's VAE",
    "fashion-mnist/paper-mean": "FashionMNIST, the paper's VAE, losses as means",
    "fashion-mnist/modern": "FashionMNIST, ours with keys",
    "lfw/faces": "LFW, the paper's VAE for faces",
}
FIGURES = {
    "class_at_mean": "class at the mean",
    "index_at_mean": "index at the mean",
    "class_at_sample": "class, drawn latents",
    "index_at_sample": "index, drawn latents",
    "index_learned": "index, with keys as training left them",
    "class_at_mean_2_to_25": "class at the mean, people with 2 to 25",
    "index_at_mean_2_to_25": "index at the mean, people with 2 to 25",
    "index_at_sample_2_to_25": "index, drawn latents, people with 2 to 25",
    "class_accuracy": "class, unseen",
    "judge_accuracy": "class that the judge sees, unseen",
    "agreement": "generated: judge sees the class of the first source",
    "nearer_than_another": "generated: first source nearer than one of its class drawn at random",
    "nearer_than_any": "generated: first source nearer than one sample drawn at random",
    "five_nearer_than_any": "generated: five sources nearer, on average, than five drawn at random",
    "different_first_sources": "generated: different first sources, of all pictures",
    "people_all": "people",
    "people_with_2_to_25": "people with 2 to 25 pictures",
}


def read(kept: Result) -> Result:
    """With the number of people as figures."""
    people = {f"people_{name}": (float(n), 0) for name, n in kept.told.get("people", {}).items()}
    return replace(kept, figures={**kept.figures, **people})


def vae_figures(results: Results) -> dict[str, bytes]:
    """Curves of all generators; pictures with their sources where they may be kept."""
    there = {cell: next(iter(seeds.values())) for cell, seeds in results.cells.items() if cell in CELLS}
    courses = {cell: one.told["course"] for cell, one in there.items() if one.told["course"]}
    found = {"": png(_curves(courses))} if courses else {}
    pictures = {cell: one.told["pictures"] for cell, one in there.items() if "pictures" in one.told}
    return {**found, **({"pictures": png(_sheets(pictures))} if pictures else {})}


LOSSES = {
    "reconstruction": (BLUE, "-", "reconstruction"),
    "divergence": (ORANGE, "--", "divergence"),
    "task_loss": ("#3b9e8f", "-.", "class"),
    "index_loss": (GREY, ":", "index"),
}
SHARES = {
    "class_at_mean": (BLUE, "-", "class, mean"),
    "class_at_sample": (BLUE, "--", "class, drawn"),
    "index_at_mean": (ORANGE, "-", "index, mean"),
    "index_at_sample": (ORANGE, "--", "index, drawn"),
}


def _curves(courses: dict[str, Any]) -> Any:
    drawing, every = panels(2, len(courses), (max(5.0, 1.2 + 2.0 * len(courses)), 6.2))
    for column, (cell, course) in enumerate(courses.items()):
        epochs = [row["epoch"] for row in course]
        alone = "o" if len(epochs) == 1 else None  # one point has no line
        for axes, lines, factor in ((every[0][column], LOSSES, 1.0), (every[1][column], SHARES, 100.0)):
            for name, (colour, style, words) in lines.items():
                if all(name in row for row in course):
                    values = [factor * row[name] for row in course]
                    axes.plot(epochs, values, color=colour, ls=style, lw=1.5, marker=alone, ms=4, label=words)
            tidy(axes, grid=True)
        every[0][column].set_yscale("log")
        every[0][column].set_title(CELLS[cell].replace(", ", ",\n"), fontsize=8.5)
        every[1][column].set_ylim(-3, 103)
        every[1][column].tick_params(labelleft=column == 0)
        every[1][column].set_xlabel("epoch")
    every[0][0].set_ylabel("loss of a picture")
    every[1][0].set_ylabel("training samples, %")
    for axes, place in ((every[0][0], "upper"), (every[1][0], "lower")):
        drawing.legend(*axes.get_legend_handles_labels(), loc=f"outside {place} center", ncols=4, frameon=False)
    return drawing


def _sheets(found: dict[str, Any]) -> Any:
    drawing, every = panels(1, len(found), (max(5.0, 0.6 + 2.4 * len(found)), 3.9))
    for axes, (cell, value) in zip(every[0], found.items(), strict=True):
        pictures = unpack_array(value)
        draw(axes, pictures, 6, CELLS[cell].replace(", ", ",\n"))
        axes.axvline(pictures.shape[3], color=ORANGE, lw=1.5)
    drawing.suptitle("left of the line: generated; right: five training samples", fontsize=10)
    return drawing


MADE, SHOWN, AT_MOST, JUDGED = 2_000, 8, 25, 8
SECONDS = {"paper": 65.0, "paper-mean": 65.0, "modern": 90.0, "faces": 25.0}


def cells(scale: Scale) -> list[Cell]:
    """A generator and data set each; `tiny` has one."""
    names = [name.split("/") for name in (["mnist/paper"] if scale.name == "tiny" else CELLS)]
    return [_cell(data, generator, scale) for data, generator in names]


def _cell(data: str, generator: str, scale: Scale) -> Cell:
    chosen = recipe(generator, **_changes(scale))
    training = {name: value for name, value in chosen.to_json().items() if name != "seed"}
    told = {name: getattr(chosen.wanted, name) for name in ("network", "backbone", "head")}
    config = {**told, "training": training, "made": MADE, "judge_epochs": JUDGED, "at_most": AT_MOST}
    return networks.cell(f"{data}/{generator}", data, scale, partial(run, data, generator), SECONDS[generator], config)


def _changes(scale: Scale) -> dict[str, Any]:
    return {} if scale.epochs is None else {"epochs": scale.epochs}


def run(data: str, generator: str, job: Job) -> Told:
    """Train, find training samples by their latents, make pictures and ask where they come from."""
    train, test = (
        (_vae_people(job.data_dir, job.scale.train), None) if data == "lfw" else networks.open_samples(data, job)
    )
    course: list[dict[str, float]] = []
    epochs = recipe(generator, **_changes(job.scale)).epochs

    def ended(row: Any) -> None:
        course.append({key: float(f"{value:.5g}") for key, value in row.items()})
        job.tell(0.85 * len(course) / epochs)

    began = time.monotonic()
    changes = {**_changes(job.scale), "seed": job.seed}
    found = fit(train, recipe(generator, **changes), RunOptions(device=job.device), on_epoch=ended)
    took = round(time.monotonic() - began, 2)
    found.network.to(resolve_device(job.device))
    hits = index_hits(found, train, np.arange(len(train)), seed=job.seed)
    figures: dict[str, Figure] = {name: _rate(value) for name, value in hits.items()}
    learned = found.network.index_head.learned_hits()
    if learned is not None:  # keys set anew find their samples by construction: what was learned before
        right, of = learned
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
    unseen = rebuilding_error(found, test)["class_accuracy"]
    figures["class_accuracy"] = (float(unseen["value"]), int(unseen["n"]))
    more, pictures = _made(found, train, test, job)
    return {"figures": figures | more, **told, **(pictures if job.seed == 0 else {})}


def _rate(hits: np.ndarray) -> Figure:
    return float(hits.mean()), len(hits)


@lru_cache(maxsize=1)
def _vae_people(data_dir: str | None, limit: int | None) -> ImageData:
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
    parts = [np.concatenate([made.images[row : row + 1], train.images[named_rows(named.index[row])]]) for row in rows]
    return figures, {"pictures": pack_array(np.concatenate(parts))}


def _away(pictures: np.ndarray, train: ImageData, rows: np.ndarray) -> np.ndarray:
    """(n, k) mean distance of pixels to the samples of these rows; NaN where none is named."""
    found = np.full(rows.shape, np.nan)
    for place in range(rows.shape[1]):  # one after the other: all at once would be five times the pictures
        there = rows[:, place] >= 0
        known = train.images[torch.from_numpy(rows[there, place])].numpy()
        found[there, place] = np.abs(pictures[there] - known).mean((1, 2, 3))
    return found


def _judge(train: ImageData, job: Job) -> Run:
    """A classifier trained apart: other layers, another seed, no index."""
    config = train_config(
        "fast", epochs=min(JUDGED, job.scale.epochs or JUDGED), seed=1001 + job.seed, index_weight=0.0
    )
    found = fit(train, config.using(network="class-independent", backbone="small"), RunOptions(device=job.device))
    found.network.to(resolve_device(job.device))
    return found


TABLES = tuple(
    Table(
        {data: words},
        FIGURES,
        {name.split("/")[1]: text.split(", ", 1)[1] for name, text in CELLS.items() if name.startswith(f"{data}/")},
        head="figure",
        cell="{data}/{column}",
        figure="{row}",
    )
    for data, words in {"mnist": "MNIST", "fashion-mnist": "FashionMNIST", "lfw": "LFW"}.items()
)
EXPERIMENT = Experiment("vae", cells, vae_figures, TABLES, read)

"""Photographs: the whole picture names a sample, and what is said of copies of it is true of the whole."""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from provnet import open_data
from provnet.answers.queries import read_queries
from provnet.base.errors import UsageError
from provnet.base.options import RunOptions
from provnet.data.compare import VIEWS
from provnet.data.open import reopen
from provnet.runs.data import find_data
from provnet.runs.verify import verify
from provnet.tools.debug.duplicates import mirrored_pairs
from provnet.tools.membership.member import COPY, MEMBER, SEEN, UNKNOWN, Heldout, compared, likeness, memberships
from provnet.training.config import train_config
from provnet.training.fit import fit

COUNT = 24


def photograph(seed: int) -> np.ndarray:
    """A picture with structure of all sizes, as photographs have it; none is like another."""
    rng = np.random.default_rng(seed)
    height, width = 90 + 3 * (seed % 5), 120 + 5 * (seed % 7)
    whole = np.zeros((height, width, 3))
    for side in (4, 9, 18, 36):
        noise = Image.fromarray(rng.integers(0, 256, (side, side, 3), dtype=np.uint8))
        whole += np.asarray(noise.resize((width, height), Image.Resampling.BICUBIC), dtype=np.float64)
    return (whole / 4).astype(np.uint8)


def saved(picture: np.ndarray, kind: str = "PNG", **more: Any) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(picture)).save(buffer, kind, **more)
    return buffer.getvalue()


def painted(picture: np.ndarray) -> np.ndarray:
    """Red on both sides of the largest square in the middle."""
    made, side = picture.copy(), (picture.shape[1] - picture.shape[0]) // 2
    made[:, :side] = made[:, picture.shape[1] - side :] = (255, 0, 0)
    return made


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("photographs")
    for i in range(COUNT):
        path = folder / "data" / "abc"[i % 3] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(saved(photograph(i)))
    yield folder


@pytest.fixture(scope="module")
def runs(place: Path) -> dict[str, Any]:
    """A run for each fit, and one as runs were written before there was a choice."""
    found = {}
    for name in ("stretch", "pad", "crop", "before"):
        data = open_data(place / "data", size=32, fit="crop" if name == "before" else name)
        if name == "before":
            options = {key: value for key, value in data.spec.options.items() if key != "fit"}
            data = reopen(type(data.spec)(data.spec.source, data.spec.kind, options=options))
        found[name] = fit(data, train_config(epochs=1, backbone="small"), RunOptions(out=str(place / name)))
    return found


def ask(run: Any, path: Path, heldout: Heldout | None = None) -> Any:
    queries = read_queries(run, [str(path)], None, strict=False)
    images = np.stack([query.image for query in queries])
    found = memberships(
        run,
        images,
        [query.sha256 for query in queries],
        pixel_sha256=[query.pixel_sha256 for query in queries],
        heldout=heldout,
        warn=False,
    )
    data = find_data(run.config, run.samples)
    return compared(run, data.parts, images, [query.picture for query in queries], found)[0]


@pytest.mark.parametrize("name", ["stretch", "pad", "crop"])
def test_copies_are_named_truly(place: Path, runs: dict[str, Any], name: str) -> None:
    picture, run = photograph(5), runs[name]
    copies = {
        "mirrored": saved(picture[:, ::-1], "JPEG", quality=90),
        "saved again": saved(picture, "JPEG", quality=70),
        "in another size": saved(np.asarray(Image.fromarray(picture).resize((200, 150)))),
        "a part of": saved(picture[6:-2, 4:-9]),
        "of it changed": saved(painted(picture)),
    }
    for words, blob in copies.items():
        path = place / "copy"
        path.write_bytes(blob)
        found = ask(run, path)
        assert (found.verdict, found.agrees, found.match.sample_id) == (COPY, "picture", "c/5.png"), words
        assert words in found.why
    path.write_bytes(saved(picture, "BMP"))
    found = ask(run, path)
    assert (found.verdict, found.agrees, found.match.sample_id) == (MEMBER, "pixels", "c/5.png")


def test_strangers_are_no_copies_whatever_their_score(place: Path, runs: dict[str, Any]) -> None:
    path = place / "stranger"
    path.write_bytes(saved(photograph(777)))
    score = ask(runs["crop"], path).score
    low = Heldout(score, np.full(200, -1e9))  # scores that each picture is above of
    found = ask(runs["crop"], path, low)
    assert (found.verdict, found.agrees) == (UNKNOWN, "nothing")
    assert "looked at whole, is its original" in found.why


def test_runs_from_before_say_that_they_know_the_view_alone(place: Path, runs: dict[str, Any]) -> None:
    path = place / "painted"
    path.write_bytes(saved(painted(photograph(5))))
    queries = read_queries(runs["before"], [str(path)], None, strict=False)
    pixels = [queries[0].pixel_sha256]
    found = memberships(runs["before"], queries[0].image[None], pixel_sha256=pixels, warn=False)[0]
    assert (found.verdict, found.agrees) == (COPY, "view")
    assert found.why.startswith(SEEN)
    original = place / "data" / "c" / "5.png"
    kept = original.read_bytes()
    try:
        original.write_bytes(path.read_bytes())
        said = verify(place / "before", reopen(runs["before"].config.data))
        assert any(VIEWS in line for line in said.lines())
        for name in ("stretch", "pad", "crop"):
            now = verify(place / name, reopen(runs[name].config.data))
            assert now.comparison is not None
            assert now.comparison.status[runs[name].samples.id_places["c/5.png"]] == "edited"
            assert now.exit_code == 6
    finally:
        original.write_bytes(kept)


def test_data_of_another_fit_are_refused(place: Path, runs: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match='takes pictures with fit "crop", these data were opened with fit "pad"'):
        runs["crop"].data(open_data(place / "data", size=32, fit="pad"))


def test_different_pictures_are_not_alike() -> None:
    assert all(likeness(photograph(i), photograph(i + 100)) is None for i in range(12))
    plain = np.full((90, 120, 3), 255, np.uint8)
    assert likeness(plain, plain) is None  # without structure nothing tells
    digits = [part.images[:40, 0].numpy() for part in (open_data("embedded"), open_data("embedded", split="test"))]
    assert [pair for pair in product(*digits) if likeness(*pair[::-1]) is not None] == []  # small ones agree by chance


def test_mirror_images_are_found_and_symmetric_ones_are_not() -> None:
    pictures = torch.stack([torch.from_numpy(photograph(7 * i)[:90, :120].copy()).permute(2, 0, 1) for i in range(5)])
    symmetric = torch.cat([pictures[:1, :, :, :60], pictures[:1, :, :, :60].flip(3)], 3)
    every = torch.cat([pictures, symmetric, symmetric, pictures[3:4].flip(3)])
    assert mirrored_pairs(every).tolist() == [[3, 7]]

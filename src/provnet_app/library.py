"""Pictures by hash: training samples, test samples and uploads, how much of each may be seen, and over HTTP."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import io
import secrets
import threading
import warnings
from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Path, Query
from PIL import Image
from pydantic import Field
from starlette.responses import Response
from torch import Tensor

from provnet.base.batches import Inputs
from provnet.base.errors import DataError, ProvnetError
from provnet.base.files import DataWarning
from provnet.data.dataset import Dataset, hash_items
from provnet.data.evidence import NO_PICTURE, evidence
from provnet.data.modalities.decode import BYTES, decode_whole, fit, sniff
from provnet.data.modalities.image import picture_of, planes
from provnet.data.modalities.modality import Modality
from provnet.data.modalities.table import Row, Table
from provnet.data.modalities.text import Text
from provnet.data.rules import DecodeRule, make_options
from provnet.report.pictures import SMALL, scale_to_box, to_image
from provnet.runs.data import modality_for
from provnet.runs.inputs import picture_rules
from provnet.runs.run import Run
from provnet.samples.identity import SampleTable, hash_pixels
from provnet_app.limits import (
    FEW_WORDS,
    FORMATS,
    KEPT_THUMBS,
    LARGE,
    PIXELS,
    SHEET,
    THUMB,
    TILE,
    UPLOAD,
    UPLOADS,
    WORDS,
)
from provnet_app.routes import BODY, DIGITS, WHOLE, Hash, Strict, gives, router
from provnet_app.security import ApiError, unknown
from provnet_app.served import Served, ShownLog

LITTLE = 16_384  # bytes, and pixels
VALUES = 12  # numbers of a vector that are listed


@dataclass(frozen=True, eq=False)
class Upload:
    """A picture as the network receives it.

    Attributes:
        key: its address here.
        image: (C, H, W) uint8, or what the network receives of a text or of a row.
        content: SHA-256 of the file that was sent.
        resized_from: its height and width before it was brought to the run's size; None where they are the same.
        pixels: SHA-256 of its pixels, as the run's table has those of samples.
        whole: the whole picture as a file, no larger than a screen; None where the network receives all of it.
        item: a text or a row of a table as it was typed; None for pictures.
    """

    key: str
    image: np.ndarray
    content: str
    resized_from: tuple[int, int] | None
    pixels: str
    whole: bytes | None
    item: Any = None


class Uploads:
    """The newest uploads by key."""

    def __init__(self, run: Run, most: int = UPLOADS) -> None:
        self.run = run
        self.most = most
        self.rule = _rule(run)
        self._salt = secrets.token_bytes(32)
        self._kept: OrderedDict[str, Upload] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, blob: bytes) -> Upload:
        """Decode and keep a picture; whatever is wrong with it is refused."""
        if self.rule is None:
            shape = self.run.config.network.input_shape
            raise ApiError(
                422, "bad_picture", f"this run takes samples of shape {shape}, no picture files; send pixels"
            )
        if not blob:
            raise ApiError(422, "bad_picture", "the file is empty: it has no bytes")
        if sniff(blob) not in FORMATS:
            raise ApiError(415, "wrong_type", f"not a picture of a kind that is taken: {', '.join(FORMATS)}")
        try:
            whole = decode_whole(blob, "the picture", self.rule).pixels
            image, size = self._fitted(whole)
        except DataError as error:
            raise ApiError(422, "bad_picture", str(error)) from None
        content = hashlib.sha256(blob).hexdigest()
        key = hmac.new(self._salt, blob, "sha256").hexdigest()
        pixels = bytes(hash_pixels((image if self.rule.fit is None else planes(whole))[None])[0]).hex()
        is_whole = size == image.shape[1:]
        resized, file = (None, None) if is_whole else (size, _for_screen(whole))
        return self._keep(Upload(key, image, content, resized, pixels, file))

    def _keep(self, made: Upload) -> Upload:
        with self._lock:
            self._kept[made.key] = made
            self._kept.move_to_end(made.key)
            while len(self._kept) > self.most:
                self._kept.popitem(last=False)
        return made

    def read_item(self, item: str | dict[str, str | float | None], own: Modality) -> Upload:
        """Keep a text or a row of a table that was typed; what the run does not take is refused."""
        if isinstance(own, Table) and own.columns and isinstance(item, dict):
            item = _row(own, item)
        elif not isinstance(own, Text) or not isinstance(item, str):
            taken = "texts" if isinstance(own, Text) else "rows of a table" if isinstance(own, Table) else "pictures"
            raise ApiError(409, "not_ready", f"this run takes {taken}", "item")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DataWarning)  # of categories that training did not have
                inputs = own.batch([item])
        except ProvnetError as error:
            raise ApiError(422, "invalid", str(error), "item") from None
        raw = own.content(item)
        pixels = hash_items(own, [item])[0].tobytes().hex()
        key = hmac.new(self._salt, raw, "sha256").hexdigest()
        return self._keep(Upload(key, row_of(inputs, 0), hashlib.sha256(raw).hexdigest(), None, pixels, None, item))

    def _fitted(self, pixels: np.ndarray) -> tuple[np.ndarray, tuple[int, int]]:
        """The picture at the run's size, brought there as the training data were."""
        assert self.rule is not None
        height, width = self.run.config.network.input_shape[1:]
        found = fit(pixels, replace(self.rule, size=(height, width)))
        return planes(found).copy(), (pixels.shape[0], pixels.shape[1])  # Pillow's own memory cannot be written

    def find(self, key: str) -> Upload | None:
        """An upload that is still kept."""
        with self._lock:
            return self._kept.get(key)


def row_of(inputs: Inputs, row: int) -> Any:
    """One sample as a network receives it: an array, or `Fields` of one row."""
    return inputs[row].numpy() if isinstance(inputs, Tensor) else inputs[row : row + 1]


def _row(own: Table, given: dict[str, str | float | None]) -> Row:
    """A row with every column of the table; numbers may be given as text, and what is not given is missing."""
    names = {column.name: column.kind for column in own.columns}
    strange = [name for name in given if name not in names]
    if strange:
        raise ApiError(422, "invalid", f"there is no column {strange[0][:60]!r}", "item")
    found: Row = {}
    for name, kind in names.items():
        value = given.get(name)
        try:
            found[name] = None if value in (None, "") else str(value) if kind == "category" else float(value)
        except ValueError:
            raise ApiError(422, "invalid", f"the column {name[:60]!r} takes numbers", "item") from None
    return found


def is_small(blob: bytes) -> bool:
    """Whether a picture is decoded sooner than another thread could be asked to: a PNG file of few pixels.

    >>> is_small(b"no picture")
    False
    """
    if len(blob) > LITTLE or not blob.startswith(b"\x89PNG\r\n\x1a\n") or len(blob) < 24:
        return False
    width, height = (int.from_bytes(blob[at : at + 4], "big") for at in (16, 20))
    return width * height <= LITTLE


def _pixels(samples: SampleTable, place: int) -> str:
    return bytes(samples.pixel_sha256[place].tobytes()).hex()


def _rule(run: Run) -> DecodeRule | None:
    network = run.config.network
    shape = network.input_shape
    if len(shape) != 3 or shape[0] not in (1, 3) or network.scale != BYTES:
        return None
    rule = make_options(picture_rules(run.config)).rule
    return replace(rule, size=None, max_pixels=PIXELS, max_bytes=UPLOAD)


@dataclass(frozen=True, eq=False)
class Known:
    """Something that can be asked about.

    Attributes:
        key: its address: the SHA-256 of its raw content, of an upload a key of this server.
        origin: `training`, `test`, `upload` or `pixels`.
        image: raw, of the run's input shape.
        content: SHA-256 of its raw content; empty where it has none.
        sample_id, label: of a training or test sample.
        resized_from: height and width of an upload before it was brought to the run's size.
        pixels: SHA-256 of its pixels as the run's table has those of samples; empty where it is not known.
        place: which training or test sample it is.
        item: a text or a row of a table as it was typed.
    """

    key: str
    origin: str
    image: Any
    content: str = ""
    sample_id: str | None = None
    label: int | None = None
    resized_from: tuple[int, int] | None = None
    pixels: str = ""
    place: int = -1
    item: Any = None


class Library:
    """All pictures of a served run. Withheld samples are not in it, nor test samples with their content."""

    def __init__(self, served: Served, uploads: Uploads) -> None:
        self.served = served
        self.uploads = uploads
        samples = served.run.samples
        self.samples = samples
        self.active = np.flatnonzero(~samples.withheld)
        self.row = np.full(len(samples), -1, dtype=np.int64)  # where a sample's picture stands
        if served.training is not None and served.index is not None:
            self.row[served.index] = np.arange(len(served.index))
        self.row[samples.withheld] = -1
        self._thumbs: OrderedDict[str, bytes] = OrderedDict()  # of large pictures: reading one again takes a while
        self._lock = threading.Lock()

    @cached_property
    def places(self) -> dict[str, list[int]]:
        """Samples that may be named, by hash."""
        found: dict[str, list[int]] = {}
        for i in self.active.tolist():
            found.setdefault(self.samples.hex(i), []).append(i)
        return found

    @cached_property
    def tests(self) -> dict[str, int]:
        """Positions of test samples by hash; of equal ones the first."""
        test = self.served.test
        found: dict[str, int] = {}
        for position in range(0 if test is None else len(test)):
            if position in self.hidden_tests:
                continue
            found.setdefault(test.samples.hex(position), position)  # type: ignore[union-attr]
        return found

    @cached_property
    def hidden_tests(self) -> frozenset[int]:
        """Test samples whose content or pixels a withheld sample has."""
        test, samples = self.served.test, self.samples
        if test is None or not samples.withheld.any():
            return frozenset()
        bytes_, pixels = (
            {row.tobytes() for row in getattr(samples, name)[samples.withheld]} for name in ("sha256", "pixel_sha256")
        )
        rows = zip(test.samples.sha256, test.samples.pixel_sha256, strict=True)
        return frozenset(i for i, (a, b) in enumerate(rows) if a.tobytes() in bytes_ or b.tobytes() in pixels)

    def find(self, key: str, sample_id: str | None = None) -> Known:
        """What has this hash: an upload, a training sample whose picture is there, a test sample.

        Equal pictures may have several ids and labels: `sample_id` says which of the training samples is meant.
        """
        upload = self.uploads.find(key)
        if upload is not None:
            content, size = upload.content, upload.resized_from
            more = {"pixels": upload.pixels, "item": upload.item}
            return Known(key, "upload", upload.image, content, resized_from=size, **more)
        places = self.places.get(key, [])
        there = [place for place in places if self.row[place] >= 0]
        if sample_id is not None:
            places = [place for place in places if self.samples.sample_ids[place] == sample_id]
            if not places:
                raise unknown("sample", "sample_id")
        if there:
            training = self.served.training
            assert training is not None
            image = row_of(training.inputs, int(self.row[there[0]]))
            place = there[0] if sample_id is None else places[0]
            names = self.samples.sample_ids[place], int(self.samples.labels[place])
            return Known(key, "training", image, key, *names, pixels=_pixels(self.samples, place), place=place)
        if sample_id is None and key in self.tests:
            return self.test(self.tests[key])
        if key in self.places:
            raise ApiError(404, "unknown_hash", "the picture of this sample is not available any more", "sha256")
        raise unknown("picture", "sha256")

    def test(self, position: int) -> Known:
        """A sample of the test split."""
        test = self.served.test
        if test is None or position >= len(test) or position in self.hidden_tests:
            raise ApiError(404, "unknown_hash", "the run has no test sample at this position", "test")
        table = test.samples
        image = row_of(test.inputs, position)
        key = table.hex(position)
        names = table.sample_ids[position], int(table.labels[position])
        return Known(key, "test", image, key, *names, pixels=_pixels(table, position), place=position)

    def is_shown(self, index: int) -> bool:
        """Whether a training sample may be seen and is there, as a picture or in words."""
        return self.served.exposure != "ids" and self.row[index] >= 0

    @cached_property
    def modality(self) -> Modality:
        """What the samples are; that of data that are there can read more of them."""
        data = self.served.training or self.served.test
        return modality_for(self.served.run.config) if data is None else data.modality

    def words(self, known: Known) -> dict[str, Any]:
        """A sample that is no picture in words, as far as it may be seen; nothing for pictures."""
        if known.item is not None:
            return self._words(self.modality.show(known.item).text, known.item)
        if known.origin == "training":
            return self.words_of(known.place)
        return self._words_at(self.served.test, known.place) if known.origin == "test" else {}

    def words_of(self, place: int) -> dict[str, Any]:
        """The same of a training sample."""
        return self._words_at(self.served.training, int(self.row[place])) if self.row[place] >= 0 else {}

    def _words_at(self, data: Dataset | None, row: int) -> dict[str, Any]:
        """The same of a row of some data, hashed again."""
        if data is None or self._drawable or self.served.exposure == "ids":
            return {}
        (found,) = evidence(data.samples, data, [row])
        values = row_of(data.inputs, row)
        if found.note == NO_PICTURE and isinstance(values, np.ndarray) and values.ndim == 1:
            numbers = ", ".join(f"{value:.3g}" for value in values[:VALUES].tolist())
            return self._words(numbers + (", …" if len(values) > VALUES else ""), None)
        return self._words(found.text, None if data.items is None else data.items[row])

    def _words(self, text: str, item: Any) -> dict[str, Any]:
        few = self.served.exposure != "full"
        most = FEW_WORDS if few else WORDS
        cells = None if few or not isinstance(item, dict) else [[name, _cell(value)] for name, value in item.items()]
        return {"text": text[:most] + "…" if len(text) > most else text, "cells": cells} if text else {}

    @property
    def _drawable(self) -> bool:
        shape = self.served.run.config.network.input_shape
        return len(shape) == 3 and shape[0] in (1, 3)

    def pixels(self, image: Any) -> np.ndarray | None:
        """A raw sample (C, H, W) as a picture (H, W) or (H, W, 3); None where it is none."""
        if not self._drawable:
            return None
        if image.dtype != np.uint8 and self.served.run.config.network.scale == BYTES:
            image = image.round().clip(0, 255).astype(np.uint8)  # not guessed from the values of one picture
        return picture_of(image)

    def limit(self, known: Known) -> int | None:
        """The longest side that may be seen of it, None for any; what may not be seen at all is refused."""
        if known.origin in ("upload", "pixels") or self.served.exposure == "full":
            return None
        if self.served.exposure == "thumb":
            return THUMB
        raise ApiError(403, "not_shown", "this run shows no pictures, only ids (exposure ids)")

    def whole(self, known: Known) -> Image.Image:
        """The whole picture, read and checked anew; what the network receives where there is no other."""
        found, data = None, self.served.training if known.origin == "training" else self.served.test
        if known.origin == "upload":
            upload = self.uploads.find(known.key)
            if upload is not None and upload.whole is not None:
                return Image.open(io.BytesIO(upload.whole))
        elif known.origin in ("training", "test") and data is not None:
            samples = self.samples if known.origin == "training" else data.samples
            found = evidence(samples, data, [known.place])[0].picture
        pixels = self.pixels(known.image) if found is None else found
        if pixels is None:
            raise ApiError(404, "unknown_hash", "the samples of this run are no pictures", "sha256")
        return to_image(pixels)

    @cached_property
    def is_large(self) -> bool:
        """Whether pictures have more points than those that are shown as squares."""
        there = np.flatnonzero(self.row >= 0)
        if not self._drawable or not len(there):
            return False
        return max(self.whole(self.find(self.samples.hex(int(there[0])))).size) > SMALL

    def picture(self, known: Known, size: int | None, view: str = "picture") -> tuple[bytes, str]:
        """The picture as a file and its kind, its longest side `size`, as far as it may be seen.

        `view` "network" is what the network receives of it.
        """
        limit = self.limit(known)
        pixels = self.pixels(known.image) if view == "network" else None
        image = self.whole(known) if pixels is None else to_image(pixels)
        small, longest = max(image.size) <= SMALL, max(image.size)
        wanted = size or longest
        if limit is not None and longest > limit:
            image = scale_to_box(image, limit)  # what is enlarged again afterwards is the small one
        elif not small:
            wanted = min(wanted, longest)  # a photograph is not enlarged
        if max(image.size) != wanted:
            image = scale_to_box(image, wanted)
        kind = "PNG" if small or pixels is not None else "JPEG"
        return encoded(image, kind), f"image/{kind.lower()}"

    def thumb(self, known: Known, side: int) -> Image.Image:
        """The picture no larger than `side`; a small one is enlarged."""
        if known.origin == "upload" or not self.is_large:
            return scale_to_box(self.whole(known), side)
        with self._lock:
            kept = self._thumbs.get(known.key)
            if kept is not None:
                self._thumbs.move_to_end(known.key)
        if kept is None:
            image = self.whole(known)
            kept = encoded(scale_to_box(image, min(TILE, max(image.size))), "JPEG")
            with self._lock:
                self._thumbs[known.key] = kept
                while len(self._thumbs) > KEPT_THUMBS:
                    self._thumbs.popitem(last=False)
        return scale_to_box(Image.open(io.BytesIO(kept)), side)


def _for_screen(pixels: np.ndarray) -> bytes:
    image = to_image(pixels)
    small = max(image.size) <= SMALL
    return encoded(image if max(image.size) <= LARGE else scale_to_box(image, LARGE), "PNG" if small else "JPEG")


def _cell(value: Any) -> str:
    return "–" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


SETTINGS = {"PNG": {"compress_level": 1}, "JPEG": {"quality": 90}, "WEBP": {"quality": 80, "method": 0}}


def encoded(image: Image.Image, kind: str = "PNG") -> bytes:
    """A picture as a file, without any of the data that came with it.

    >>> encoded(Image.new("L", (2, 2)))[1:4]
    b'PNG'
    """
    buffer = io.BytesIO()
    image.save(buffer, kind, **SETTINGS[kind])
    return buffer.getvalue()


ACROSS = 20  # thumbnails in a row of a sheet


class Size(Strict):
    """How large, and whether the whole picture or what the network receives of it."""

    size: Annotated[int | None, Field(ge=8, le=LARGE), DIGITS] = None
    view: Literal["picture", "network"] = "picture"


class Sheet(Strict):
    """Which thumbnails, and how large."""

    sha256: Annotated[list[Hash], Field(min_length=1, max_length=SHEET)]
    side: Annotated[int, Field(ge=16, le=TILE), WHOLE] = 32


def picture_routes(library: Library, log: ShownLog) -> APIRouter:
    """GET /pictures/{sha256}, POST /sheet."""
    routes = router("pictures")

    kinds = gives(404, kind="image/png image/jpeg", words="the picture")

    @routes.get("/pictures/{sha256}", response_class=Response, responses=kinds)
    async def picture(sha256: Annotated[Hash, Path()], wanted: Annotated[Size, Query()]) -> Response:
        """The picture of a training sample, a test sample or an upload: PNG where it is small, else JPEG."""
        content, kind = await asyncio.to_thread(_picture, library, log, sha256, wanted)
        return Response(content, media_type=kind)

    @routes.post(
        "/sheet",
        response_class=Response,
        responses=gives(404, *BODY, kind="image/webp", words="thumbnails, row by row"),
    )
    async def sheet(wanted: Sheet) -> Response:
        """Many thumbnails in one picture; what is not available is left blank."""
        side = wanted.side if library.served.exposure == "full" else min(wanted.side, THUMB)
        content = await asyncio.to_thread(_sheet, library, log, wanted.sha256, side)
        headers = {"X-Sheet-Across": str(ACROSS), "X-Sheet-Side": str(side)}
        return Response(content, headers=headers, media_type="image/webp")

    return routes


def _picture(library: Library, log: ShownLog, key: str, wanted: Size) -> tuple[bytes, str]:
    known = library.find(key)
    found = library.picture(known, wanted.size, wanted.view)
    if known.origin != "upload":
        log.add([key])
    return found


def _sheet(library: Library, log: ShownLog, hashes: list[str], side: int) -> bytes:
    if library.served.exposure == "ids":
        raise ApiError(403, "not_shown", "this run shows no pictures, only ids (exposure ids)")
    rows = -(-len(hashes) // ACROSS)
    across = min(ACROSS, len(hashes))
    paper = Image.new("RGBA", (across * side, rows * side))
    shown = []
    for number, key in enumerate(hashes):
        try:
            known = library.find(key)
        except ApiError:
            continue
        if library.pixels(known.image) is None:
            continue
        small = library.thumb(known, side)
        left, top = (side - small.width) // 2, (side - small.height) // 2
        paper.paste(small, (number % ACROSS * side + left, number // ACROSS * side + top))
        shown += [key] if known.origin != "upload" else []
    log.add(shown)
    return encoded(paper, "WEBP")

"""Pictures by hash: training samples, test samples and uploads, and how much of each may be seen."""

from __future__ import annotations

import hashlib
import hmac
import io
import secrets
import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from PIL import Image

from provnet.base.errors import DataError
from provnet.data.evidence import evidence
from provnet.data.modalities.decode import BYTES, decode_whole, fit, sniff
from provnet.data.modalities.image import picture_of, planes
from provnet.data.rules import DecodeRule, make_options
from provnet.report.pictures import SMALL, scale_to_box, to_image
from provnet.runs.inputs import picture_rules
from provnet.runs.run import Run
from provnet.samples.identity import SampleTable, hash_pixels
from provnet_app.limits import FORMATS, KEPT_THUMBS, LARGE, PIXELS, THUMB, TILE, UPLOAD, UPLOADS
from provnet_app.security import ApiError, unknown
from provnet_app.served import Served

LITTLE = 16_384  # bytes, and pixels


@dataclass(frozen=True, eq=False)
class Upload:
    """A picture as the network receives it.

    Attributes:
        key: its address here.
        image: (C, H, W) uint8.
        content: SHA-256 of the file that was sent.
        resized_from: its height and width before it was brought to the run's size; None where they are the same.
        pixels: SHA-256 of its pixels, as the run's table has those of samples.
        whole: the whole picture as a file, no larger than a screen; None where the network receives all of it.
    """

    key: str
    image: np.ndarray
    content: str
    resized_from: tuple[int, int] | None
    pixels: str
    whole: bytes | None


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
        made = Upload(key, image, content, resized, pixels, file)
        with self._lock:
            self._kept[key] = made
            self._kept.move_to_end(key)
            while len(self._kept) > self.most:
                self._kept.popitem(last=False)
        return made

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
    """

    key: str
    origin: str
    image: np.ndarray
    content: str = ""
    sample_id: str | None = None
    label: int | None = None
    resized_from: tuple[int, int] | None = None
    pixels: str = ""
    place: int = -1


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
            return Known(key, "upload", upload.image, content, resized_from=size, pixels=upload.pixels)
        places = self.places.get(key, [])
        there = [place for place in places if self.row[place] >= 0]
        if sample_id is not None:
            places = [place for place in places if self.samples.sample_ids[place] == sample_id]
            if not places:
                raise unknown("sample", "sample_id")
        if there:
            training = self.served.training
            assert training is not None
            image = training.images[int(self.row[there[0]])].numpy()
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
        image = test.images[position].numpy()
        key = table.hex(position)
        names = table.sample_ids[position], int(table.labels[position])
        return Known(key, "test", image, key, *names, pixels=_pixels(table, position), place=position)

    def is_shown(self, index: int) -> bool:
        """Whether the picture of a training sample may be seen and is there."""
        return self.served.exposure != "ids" and self.row[index] >= 0 and self._drawable

    @property
    def _drawable(self) -> bool:
        shape = self.served.run.config.network.input_shape
        return len(shape) == 3 and shape[0] in (1, 3)

    def pixels(self, image: np.ndarray) -> np.ndarray | None:
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


SETTINGS = {"PNG": {"compress_level": 1}, "JPEG": {"quality": 90}, "WEBP": {"quality": 80, "method": 0}}


def encoded(image: Image.Image, kind: str = "PNG") -> bytes:
    """A picture as a file, without any of the data that came with it.

    >>> encoded(Image.new("L", (2, 2)))[1:4]
    b'PNG'
    """
    buffer = io.BytesIO()
    image.save(buffer, kind, **SETTINGS[kind])
    return buffer.getvalue()

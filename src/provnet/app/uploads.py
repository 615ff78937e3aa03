"""Uploaded pictures: decoded strictly by the run's own rules, kept in memory alone, the newest ones.

An upload is addressed by a key that only this server can make: the hash of a picture that the run withholds must not
come back, not even to somebody who has that picture.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np

from provnet.app.errors import ApiError
from provnet.app.limits import FORMATS, PIXELS, UPLOAD, UPLOADS
from provnet.data.containers import sniff
from provnet.data.images import decode
from provnet.data.pictures import planes
from provnet.data.rules import DecodeRule, make_options
from provnet.errors import DataError
from provnet.inputs import BYTES, picture_rules
from provnet.modelfile import Run

LITTLE = 16_384  # bytes, and pixels


@dataclass(frozen=True, eq=False)
class Upload:
    """A picture as the network receives it.

    Attributes:
        key: its address here.
        image: (C, H, W) uint8.
        content: SHA-256 of the file that was sent.
        resized_from: its height and width before it was brought to the run's size; None where they are the same.
    """

    key: str
    image: np.ndarray
    content: str
    resized_from: tuple[int, int] | None


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
            pixels = decode(blob, "the picture", rule=self.rule)
            image, size = self._fitted(pixels)
        except DataError as error:
            raise ApiError(422, "bad_picture", str(error)) from None
        content = hashlib.sha256(blob).hexdigest()
        key = hmac.new(self._salt, blob, "sha256").hexdigest()
        made = Upload(key, image, content, None if size == image.shape[1:] else size)
        with self._lock:
            self._kept[key] = made
            self._kept.move_to_end(key)
            while len(self._kept) > self.most:
                self._kept.popitem(last=False)
        return made

    def _fitted(self, pixels: np.ndarray) -> tuple[np.ndarray, tuple[int, int]]:
        """The picture at the run's size: cut to the centre and resized, as training data with a size are."""
        from dataclasses import replace

        from provnet.data.images import fit

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


def _rule(run: Run) -> DecodeRule | None:
    network = run.config.network
    shape = network.input_shape
    if len(shape) != 3 or shape[0] not in (1, 3) or network.scale != BYTES:
        return None
    rule = make_options(picture_rules(run.config)).rule
    return DecodeRule(rule.mode, None, rule.background, rule.frame, rule.value_range, PIXELS, UPLOAD)

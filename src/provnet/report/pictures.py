"""Pictures for reports: pixels in, a PNG data URI or a picture of a wanted size out."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image

from provnet.errors import UsageError
from provnet.report.records import Picture


def to_image(picture: Picture) -> Image.Image:
    """Turn pixels into a Pillow image, grey or RGB.

    >>> to_image(np.zeros((2, 3), np.uint8)).size
    (3, 2)
    """
    pixels = np.asarray(picture)
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    good = pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] == 3)
    if pixels.dtype != np.uint8 or not good or pixels.size == 0:
        raise UsageError(
            f"a picture of shape {pixels.shape} and type {pixels.dtype}; allowed: uint8 (H, W) or (H, W, 3), not empty"
        )
    return Image.fromarray(np.ascontiguousarray(pixels))


def data_uri(picture: Picture, longest: int = 320) -> str:
    """Encode pixels as a PNG data URI; larger pictures are scaled down to keep the page small.

    >>> data_uri(np.zeros((2, 2), np.uint8))[:22]
    'data:image/png;base64,'
    """
    image = to_image(picture)
    if max(image.size) > longest:
        image = fitted(image, longest)
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def is_small(picture: Picture) -> bool:
    """Whether a picture has so few pixels that they should stay visible as squares when it is enlarged.

    >>> is_small(np.zeros((28, 28), np.uint8)), is_small(np.zeros((250, 250, 3), np.uint8))
    (True, False)
    """
    return max(int(side) for side in picture.shape[:2]) <= SMALL


def fitted(image: Image.Image, box: int) -> Image.Image:
    """Scale an image so that its longer side is `box`: few pixels stay crisp squares, many are averaged.

    >>> fitted(Image.new("L", (14, 28)), 56).size
    (28, 56)
    """
    width, height = image.size
    scale = box / max(width, height)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    crisp = scale > 1 and max(width, height) <= SMALL
    return image.resize(size, Image.Resampling.NEAREST if crisp else Image.Resampling.LANCZOS)


SMALL = 96  # longest side, in pixels, of a picture that is shown pixel by pixel

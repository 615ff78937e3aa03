"""How many samples go through a network at a time when it is asked, not trained: fewer where one of them is large.

What a network needs meanwhile grows with the pixels that it looks at, whatever batch it was trained with: backbone
`residual` takes about 1.3 KB for each, 63 MB for a picture of 224 x 224. Small pictures go 256 at a time, as ever, so
that what they gave before they give again, bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

MOST = 256
PIXELS = 2**19  # at a time, over all pictures: 0.6 GB in backbone residual
VALUES = 2**22  # at a time, over all samples: for vectors, and for pictures of many channels


GPU = 8  # times as much, not measured: 5 GB in backbone residual, by what a picture takes on a CPU


def at_once(shape: Sequence[int], device: str = "cpu", most: int = MOST) -> int:
    """Samples at a time, for samples of this shape, (F,) or (C, H, W), on this type of device; `most` where small.

    >>> at_once((1, 28, 28)), at_once((3, 224, 224)), at_once((3, 224, 224), "cuda"), at_once((64,))
    (256, 10, 83, 256)
    """
    pixels = math.prod(shape[1:])  # 1 for a vector
    values = math.prod(shape)
    times = 1 if device == "cpu" else GPU
    return max(1, min(most, times * PIXELS // max(pixels, 1), times * VALUES // max(values, 1)))

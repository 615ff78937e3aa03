"""Figures of the experiments as PNG, with matplotlib (the extra `plots`)."""

from __future__ import annotations

import io
from typing import Any

BLUE, ORANGE, GREY = "#2f5bb7", "#b0560f", "#7a7f87"  # told apart without colour vision; markers differ too


def pyplot() -> Any:
    """Matplotlib without a screen."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as found

    return found


def png(drawing: Any) -> bytes:
    """A drawing as PNG, closed."""
    buffer = io.BytesIO()
    drawing.savefig(buffer, format="png", dpi=130)
    pyplot().close(drawing)
    return buffer.getvalue()

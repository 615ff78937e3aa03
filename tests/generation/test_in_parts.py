"""Generators take large pictures in parts; what is drawn, and what is said of it, is that of the whole."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from provnet.runs.run import Run
from provnet.tools.generate.compute import (
    explain_latents,
    generate,
    index_hits,
    interpolate,
    latent_means,
    rebuild_pictures,
    rebuilding_error,
)

from .made import NAMES, pictures


def asked(run: Run) -> dict[str, Any]:
    """All that goes through a generator, of 23 pictures."""
    data = pictures()
    made = generate(run, 23, seed=3)
    between = interpolate(run, data.images[0], data.images[1], steps=11)
    return {
        "made": made.images,
        "labels": made.labels,
        "latents": made.latents,
        "hits": np.stack(list(index_hits(run, data, np.arange(23)).values())),
        "means": latent_means(run, data.images.numpy()),
        "rebuilt": rebuild_pictures(run, data.images),
        "bce": rebuilding_error(run, data)["reconstruction_bce"]["value"],
        "sources": explain_latents(run, made.latents, made.labels, k=3).index,
        "between": between.images,
        "sources between": between.explanation.index,
    }


@pytest.mark.parametrize("name", NAMES)
def test_parts_give_what_the_whole_gives(name: str, runs: dict[str, Run], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = asked(runs[name])
    sizes: list[int] = []
    runs[name].network.backbone.mean.register_forward_hook(lambda module, given, out: sizes.append(len(out)))
    for room, module in list(sys.modules.items()):
        if room.startswith("provnet.tools.generate") and hasattr(module, "at_once"):
            monkeypatch.setattr(module, "at_once", lambda *_: 5)
    monkeypatch.setattr("provnet.answers.attributor.at_once", lambda *_: 5)
    parts = asked(runs[name])
    assert max(sizes) == 5
    for kind, one in whole.items():
        if np.asarray(one).dtype == np.uint8:  # a value next to half a step may be rounded to the other side
            assert np.abs(parts[kind].astype(int) - one.astype(int)).max() <= 1, kind
        else:
            assert np.asarray(parts[kind]) == pytest.approx(np.asarray(one), rel=1e-5, abs=1e-6), kind

"""A tiny run with awkward names, served by a real server in a thread; looked at by all tests, changed by none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from provnet_app.served import Served

from ..generation.made import pictures, trained
from .browser import allowed, browser, page, servers
from .made import Live, digits, made_run, serving
from .made import trained as classifier

__all__ = ["allowed", "browser", "fresh", "independent", "live", "maker", "page", "served", "servers"]


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    """The run with its pictures, every job done once and kept in its folder."""
    return made_run(tmp_path_factory.mktemp("app"))


@pytest.fixture(scope="session")
def live(served: Served) -> Iterator[Live]:
    """A server with everything computed."""
    with serving(served) as found:
        for name in ("scores", "membership", "map", "answers", "features"):
            found.wait(name)
        yield found


@pytest.fixture(scope="session")
def independent() -> Iterator[Live]:
    """A server of a class-independent run, whose joint weights differ from its plain ones."""
    data, run = digits("train", 80), classifier("class-independent")
    with serving(Served(run, "both", training=data, index=np.arange(len(data)), test=digits("test", 60))) as found:
        yield found


@pytest.fixture(scope="session")
def maker() -> Iterator[Live]:
    """A server of a run that makes pictures."""
    data = pictures()
    served = Served(run=trained("modern", data), name="maker", training=data, index=np.arange(len(data)), test=data)
    with serving(served) as found:
        yield found


@pytest.fixture
def fresh(served: Served, tmp_path: Path, servers: ExitStack) -> Live:
    """A server of its own that has computed nothing, and may be changed."""
    return servers.enter_context(serving(replace(served, keep=tmp_path / "app")))

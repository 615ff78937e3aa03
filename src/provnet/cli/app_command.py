"""`provnet app`: the local page of a run."""

from __future__ import annotations

import os
import webbrowser
from pathlib import Path

import torch

from provnet.base.errors import ProvnetError, UsageError, one_of
from provnet.base.options import App
from provnet.cli.output import note, say
from provnet.cli.rundata import open_run, training_data
from provnet.data.dataset import ImageData
from provnet.runs.data import Kept
from provnet.runs.run import Run
from provnet.tools.membership.member import read_heldout
from provnet.training.setup import pick_device
from provnet_app.security import Keys
from provnet_app.served import Served, hashes
from provnet_app.server import open_socket, serve
from provnet_app.state import make_state

EXPOSURES = ("ids", "thumb", "full")
KEPT = "app"  # the folder beside the run


def app(asked: App) -> None:
    """Look at a run in the browser: explain, clean the data, see the map, check membership."""
    if asked.exposure is not None:
        one_of("exposure", asked.exposure, EXPOSURES)
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as error:
        raise UsageError(
            f"the web app needs {error.name}; install it: pip install '.[app]' in provnet's folder"
        ) from None

    where = pick_device(asked.device)
    served = gather(asked.run, asked.exposure, asked.data, asked.data_dir, where, asked.beside)
    listening = open_socket(asked.port)
    keys = Keys(listening.getsockname()[1])
    if where == "cpu":
        _threads()
    state = make_state(served, keys)

    def started() -> None:
        address = f"http://127.0.0.1:{keys.port}/#t={keys.token}"
        say(f"{served.name}: {address}")
        if not asked.no_browser:
            webbrowser.open(address)

    serve(state, listening, started)


def gather(
    run: Path,
    exposure: str | None,
    data: str | None,
    data_dir: str | None,
    device: str,
    beside: Path | None = None,
) -> Served:
    """The run with its pictures, as far as they are there; what is missing is noted, not fatal."""
    opened = hashes(run)  # before it is read: what is written meanwhile is told as a change
    loaded = open_run(run)
    loaded.network.to(device)
    training, facts = _training(loaded, data, data_dir)
    test, why = _test(loaded, data_dir)
    level = exposure or ("full" if (run / "log.jsonl").is_file() else "ids")
    if exposure is None and level == "ids":
        note("the run was not trained in this folder: pictures are not shown; --exposure full shows them")
    return Served(
        run=loaded,
        name=run.resolve().name,
        folder=run,
        exposure=level,
        training=training.data,
        index=None if training.data is None else training.index,
        facts=tuple(facts),
        test=test,
        test_why=why,
        heldout=read_heldout(run, opened),
        keep=_keep(run),
        opened=opened,
        beside=None if beside is None else _beside(beside, data_dir, device),
    )


def _beside(run: Path, data_dir: str | None, device: str) -> Served:
    """A run that answers are compared with: with its test split, without its training samples."""
    opened = hashes(run)
    loaded = open_run(run)
    loaded.network.to(device)
    test, why = _test(loaded, data_dir)
    return Served(run=loaded, name=run.resolve().name, folder=run, test=test, test_why=why, opened=opened)


def _training(run: Run, data: str | None, data_dir: str | None) -> tuple[Kept, list[str]]:
    """The training samples, and what the page says about them."""
    found = training_data(run, data, data_dir, without="training pictures are not shown")
    for line in filter(None, (found.rest, found.unsure)):
        note(f"training data: {line}", "warning")
    return found.kept, [words for words in (found.why, *found.kept.facts, found.rest, found.unsure) if words]


def _test(run: Run, data_dir: str | None) -> tuple[ImageData | None, str]:

    try:
        found = run.test(data_dir=data_dir, progress=True)
    except ProvnetError as error:
        note(f"the test split cannot be opened: {error}", "warning")
        return None, str(error)
    return found, "" if found is not None else "the run has no test split"


def _keep(run: Path) -> Path | None:
    """A folder beside the run, else one in the user's cache."""
    if os.access(run, os.W_OK):
        return run / KEPT
    cache = os.environ.get("XDG_CACHE_HOME")
    base = Path(cache) if cache else Path.home() / ".cache"
    return base / "provnet" / KEPT / run.resolve().name


def _threads() -> None:
    """One thread computes while another answers: on a small machine both need a core."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    torch.set_num_threads(max(1, cores - 1))

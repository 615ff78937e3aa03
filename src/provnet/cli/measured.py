"""What a command measured of a run, kept in its folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from provnet.base.atomic import write_bytes
from provnet.base.errors import IntegrityError
from provnet.cli.output import note
from provnet.cli.rundata import open_run, run_state
from provnet.runs.run import write_run
from provnet.training.session import run_lock, tidy


def keep_measured(
    folder: Path, state: Mapping[str, str], files: Mapping[str, bytes] | None = None, **outcome: Any
) -> bool:
    """Keep what was measured of a run in its folder, under its lock; False where the folder is read-only.

    Its config and card get the outcome (`evaluation`, `checks`, `audit`), `files` come beside them. Weights and samples
    stay byte by byte; they must still be those that were measured (`state`, of `with_state`), else nothing is kept.
    """
    if not os.access(folder, os.W_OK):
        note(f"what was measured is not written into the run: {folder} is read-only")
        return False
    with run_lock(folder) as held:
        if run_state(folder) != state:
            raise IntegrityError(
                f"{folder} was changed by another process while it was measured, so nothing is kept; measure it again"
            )
        now = open_run(folder)
        tidy(now, folder)  # what a killed change left would take figures with it
        for name, content in (files or {}).items():
            write_bytes(held.check() / name, content)
        if outcome:
            write_run(replace(now, config=replace(now.config, **outcome)), held.check())
    return True

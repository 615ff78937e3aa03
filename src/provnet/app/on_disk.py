"""The run's folder as it is now, against the run that was opened: another one may have come there, or none be left."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from provnet.errors import ProvnetError
from provnet.fileset import read_set
from provnet.modelfile import FILES, read_config
from provnet.runconfig import RunConfig

WEIGHTS, SAMPLES = "model.safetensors", "samples.safetensors"
AGAIN = "This page shows it as it was: end provnet app and start it again to see it as it is."


def hashes(folder: Path | None) -> dict[str, str]:
    """SHA-256 of the weights and of the sample table, as the manifest has them; nothing where there is no run.

    >>> hashes(None)
    {}
    """
    if folder is None:
        return {}
    try:
        entries = read_set(folder, FILES).entries
        return {name: entries[name].sha256 for name in (WEIGHTS, SAMPLES)}
    except (ProvnetError, KeyError, OSError):
        return {}


class OnDisk:
    """The folder of a run that was opened; `opened` is what `hashes` gave before, else what it gives now."""

    def __init__(self, folder: Path | None, opened: Mapping[str, str]) -> None:
        self.folder = folder
        self.opened = dict(opened or hashes(folder))

    def is_other(self) -> bool:
        """Whether the folder has other weights, or none: its card and its log are not those of what is shown."""
        return hashes(self.folder).get(WEIGHTS) != self.opened.get(WEIGHTS)

    def changed(self) -> str:
        """What became of the run since it was opened, in words; empty where it is the same."""
        now = hashes(self.folder)
        if now == self.opened:
            return ""
        if not now:
            return (
                "The run is not in its folder any more. This page shows it as it was opened; "
                "new decisions are kept only until provnet app ends: export them."
            )
        if now[WEIGHTS] != self.opened.get(WEIGHTS):
            return f"The run in this folder is another one now: it was trained anew or replaced. {AGAIN}"
        return f"Samples of the run were added, withheld or erased since it was opened. {AGAIN}"

    def config(self, opened: RunConfig) -> RunConfig:
        """The settings with what was measured since; those that were opened where the folder has another run."""
        if self.folder is None or self.changed():
            return opened
        try:
            return read_config(self.folder)
        except (ProvnetError, OSError):
            return opened

"""Whether a run is what it was, and whether the data are still those it was trained on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from provnet.data.compare import Comparison, compare, held
from provnet.data.imagedata import ImageData
from provnet.errors import IntegrityError, ProvnetError
from provnet.modelfile import FileCheck, read_run, read_samples, verify_files
from provnet.runconfig import CUSTOM


@dataclass(frozen=True, eq=False)
class Verification:
    """What `provnet verify` found.

    Attributes:
        folder: the run.
        files: one check a file, `why` is "ok" or what is wrong; "contents" stands for all of them together.
        comparison: of the data with those of training time, or None where no data were given.
    """

    folder: Path
    files: tuple[FileCheck, ...]
    comparison: Comparison | None = None

    @property
    def verdict(self) -> str | None:
        """`same`, `re-ordered`, `moved`, `edited` or `other`; None where no data were compared."""
        return self.comparison.verdict if self.comparison else None

    @property
    def ok(self) -> bool:
        """Every file is whole, and every training sample is among the data unchanged (whatever its name or place)."""
        return self.exit_code == 0

    @property
    def exit_code(self) -> int:
        """0 if all is well, 7 if a file is unsafe to open, else 6."""
        worst = max((check.exit_code for check in self.files), default=0)
        changed = IntegrityError.exit_code if self.verdict in ("edited", "other") else 0
        return max(worst, changed)

    def lines(self) -> list[str]:
        """For people: one line a file, then what became of the data."""
        found = [f"{check.name}: {check.why}" for check in self.files]
        if self.comparison is not None:
            found += [f"data: {line}" for line in self.comparison.lines()]
        return found


def verify(folder: str | Path, data: ImageData | None = None) -> Verification:
    """Check every hash of a run, that it can be read, and (with `data`) that the data are those of training time."""
    where = Path(folder)
    checks = verify_files(where)
    if any(check.exit_code for check in checks):
        return Verification(where, tuple(checks))
    try:
        config, samples = read_samples(where)
        custom = config.network.backbone == CUSTOM
        if not custom:
            read_run(where)
    except ProvnetError as error:
        return Verification(where, (*checks, FileCheck("contents", str(error), error.exit_code or 6)))
    note = "ok (weights not loaded: they need the backbone object)" if custom else "ok"
    comparison = None
    if data is not None:
        now, some = data.samples, "subset" in config.training  # a run that indexes some samples knows those alone
        comparison = compare(samples, now.select(held(samples, now)) if some else now)
    return Verification(where, (*checks, FileCheck("contents", note)), comparison)

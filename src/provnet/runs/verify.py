"""Whether a run is what it was, and whether the data are still those it was trained on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from provnet.base.errors import IntegrityError, ProvnetError, UsageError
from provnet.base.files import as_path
from provnet.base.options import SUBSET
from provnet.data.compare import Comparison, compare, decoding_advice, find_held, other_options
from provnet.data.dataset import Dataset, image_data, views_only
from provnet.models.attached import Given
from provnet.runs.data import REST, has_changed, rest_content, rest_state
from provnet.runs.files import CUSTOM
from provnet.runs.run import FileCheck, read_run, read_samples, verify_files


@dataclass(frozen=True, eq=False)
class Verification:
    """What `provnet verify` found.

    Attributes:
        folder: the run.
        files: one check a file, `why` is "ok" or what is wrong; "contents" stands for all of them together.
        comparison: of the data with those of training time, or None where no data were given.
        rest: what changed among samples that were trained on without an index; else empty.
        unsure: why those cannot be compared; else empty.
    """

    folder: Path
    files: tuple[FileCheck, ...]
    comparison: Comparison | None = None
    rest: str = ""
    unsure: str = ""

    @property
    def verdict(self) -> str | None:
        """`same`, `re-ordered`, `moved`, `decoded differently`, `edited` or `other`; None where no data were compared.

        It is about the samples that the run holds; `rest` is about those that it was trained on without an index.
        """
        return self.comparison.verdict if self.comparison else None

    @property
    def ok(self) -> bool:
        """Every file is whole, and no training sample that could be compared changed (whatever its name or place)."""
        return self.exit_code == 0

    @property
    def exit_code(self) -> int:
        """0 if all is well, 7 if a file is unsafe to open, else 6."""
        worst = max((check.exit_code for check in self.files), default=0)
        changed = self.rest or (self.comparison is not None and not self.comparison.holds)
        return max(worst, IntegrityError.exit_code if changed else 0)

    def lines(self) -> list[str]:
        """For people: one line a file, then what became of the data."""
        found = [f"{check.name}: {check.why}" for check in self.files]
        if self.comparison is not None:
            found += [f"data: {line}" for line in self.comparison.lines()]
        return found + [f"data: {words}" for words in (self.rest, self.unsure) if words]


def verify(
    folder: str | Path, data: Dataset | None = None, *, backbone: nn.Module | Given | None = None
) -> Verification:
    """Check every hash of a run, that it can be read, and (with `data`) that the data are those of training.

    If the backbone was given as an object, the weights are checked only if it is given again.

    >>> import tempfile, provnet
    >>> from provnet.base.options import RunOptions
    >>> from provnet.training.config import train_config
    >>> from provnet.training.fit import fit
    >>> data = provnet.open_data("embedded", limit=20)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = fit(data, train_config(epochs=1), RunOptions(out=folder))
    ...     found = verify(folder, data.select([1, 0, *range(2, 20)]))
    >>> found.verdict, found.ok
    ('re-ordered', True)
    """
    where = as_path("the run's folder", folder)
    data = None if data is None else image_data("the data", data)
    checks = verify_files(where)
    if any(check.exit_code for check in checks):
        return Verification(where, tuple(checks))
    try:
        config, samples = read_samples(where)
        custom = config.network.backbone == CUSTOM
        if not custom or backbone is not None:
            read_run(where, backbone)
    except UsageError:  # the backbone is not the run's: nothing is wrong with the files
        raise
    except ProvnetError as error:
        return Verification(where, (*checks, FileCheck("contents", str(error), error.exit_code or 6)))
    unread = custom and backbone is None
    note = "ok (weights not loaded: they need the backbone object)" if unread else "ok"
    comparison, words = None, ("", "")
    if data is not None:
        now = data.samples
        some = SUBSET in config.training or has_changed(config, samples)  # such a run knows the samples that it holds
        comparison = compare(samples, now.select(find_held(samples, now)) if some else now)
        advice = decoding_advice(config.data, data.spec)
        comparison = replace(comparison, erased=config.erased, advice=advice, views=views_only(config.data))
        words = rest_state(config, samples, now)
        if rest_content(config) and not any(words) and config.data and other_options(config.data, data.spec):
            words = "", f"{REST} cannot be compared: {comparison.advice}"  # the run knows a hash of their bytes alone
    return Verification(where, (*checks, FileCheck("contents", note)), comparison, *words)

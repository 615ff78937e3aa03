"""Whether a run is what it was, and whether the data are still those it was trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from provnet.base.errors import IntegrityError, ProvnetError, UsageError
from provnet.base.files import as_path
from provnet.base.options import SUBSET
from provnet.data.compare import Comparison, compare, decoding_advice, held, other_options
from provnet.data.dataset import ImageData, image_data
from provnet.runs.files import CUSTOM, RunConfig
from provnet.runs.run import FileCheck, read_run, read_samples, verify_files
from provnet.samples.identity import SampleTable

_REST = "the other samples, which have no index,"


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


def verify(folder: str | Path, data: ImageData | None = None, *, backbone: nn.Module | None = None) -> Verification:
    """Check every hash of a run, that it can be read, and (with `data`) that the data are those of training time.

    The weights of a run whose backbone was given as an object are looked at only where that is given again.

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
        comparison = compare(samples, now.select(held(samples, now)) if some else now)
        comparison = replace(comparison, erased=config.erased, advice=decoding_advice(config.data, data.spec))
        words = rest_state(config, samples, now)
        if _rest_content(config) and not any(words) and config.data and other_options(config.data, data.spec):
            words = "", f"{_REST} cannot be compared: {comparison.advice}"  # the run knows a hash of their bytes alone
    return Verification(where, (*checks, FileCheck("contents", note)), comparison, *words)


def has_changed(config: RunConfig, samples: SampleTable) -> bool:
    """Whether the run no longer holds exactly the data that it was trained on."""
    return bool(config.added or config.erased or samples.added.any())


def rest_state(
    config: RunConfig, samples: SampleTable, table: SampleTable | None, rows: np.ndarray | None = None
) -> tuple[str, str]:
    """What became of samples that taught the class branch alone: what changed, and what cannot be compared; in words.

    `table` are the training data of now, `rows` the positions in it of the indexed samples, if they are known already.

    The run knows one hash of all their contents. Erased samples may still be among the data, and nothing says which
    they are: then nothing can be compared until they are removed from the data, too.
    """
    then, about = _rest_content(config), _about(config)
    if then is None:
        return "", ""
    if table is None:
        return "", f"{_REST} cannot be compared: the training data cannot be opened"
    if rows is None:
        rows = held(samples.select(~samples.added), table)
    rest = np.setdiff1d(np.arange(len(table)), rows)
    later = held(samples.select(samples.added), table) if samples.added.any() else rest[:0]
    # added ones had been trained on, or came from elsewhere
    if any(table.select(some).content_root == then for some in (rest, np.setdiff1d(rest, later))):
        return "", ""
    changed = f"{_REST} are not those of training time: {len(rest):,} now"
    if not config.erased and not len(later):
        return changed, ""
    of, indexed = about.get("of"), about.get("indexed")
    if not isinstance(of, int) or not isinstance(indexed, int):
        return "", f"{_REST} cannot be compared: the run does not say how many there were"
    extra = len(rest) - (of - indexed)
    if not 0 < extra <= config.erased + len(later):
        return changed, ""
    gone = "; remove what was erased from the data, too, and verify again" if config.erased else ""
    return "", f"{_REST} cannot be compared: {extra:,} of {len(rest):,} were erased or added, unknown which{gone}"


def _about(config: RunConfig) -> Mapping[str, Any]:
    """What the run keeps of the choice of samples that are indexed."""
    kept = config.training.get(SUBSET)
    return kept if isinstance(kept, Mapping) else {}


def _rest_content(config: RunConfig) -> Any:
    """The hash of the contents of samples that taught the class branch alone, or None where there were none."""
    return _about(config).get("rest_content")

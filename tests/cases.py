"""Many rows, one test: what `pytest.mark.parametrize` does, for rows that take one line and little time."""

from __future__ import annotations

import functools
import inspect
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

# A row may not be skipped: nobody would see it.
FAILURES = (Exception, pytest.fail.Exception, pytest.skip.Exception)


def cases(
    names: str | Sequence[str], rows: Iterable[Any], ids: Iterable[Any] | Callable[[Any], Any] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call a test with each row in turn, and report all the rows that fail; written like `parametrize`.

    Every row has a folder of its own as `tmp_path`, a copy there of each folder or file that a fixture made below it,
    and a `monkeypatch` that is undone after the row.
    """
    wanted = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    table = [dict(zip(wanted, values_of(row, len(wanted)), strict=True)) for row in rows]
    assert table, "there are no rows"
    labels = list(ids) if ids is not None and not callable(ids) else [None] * len(table)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def every(tmp_path: Path, **given: Any) -> None:
            failures = Failures()
            for place, (row, label) in enumerate(zip(table, labels, strict=True)):
                with pytest.MonkeyPatch.context() as patch, failures.of(f"case {place}: {label or row!r:.400}"):
                    fixtures = own({**given, "tmp_path": tmp_path, "monkeypatch": patch}, tmp_path / f"case-{place}")
                    test(**{name: fixtures[name] for name in parameters if name not in wanted}, **row)
            failures.report()

        parameters = inspect.signature(test).parameters
        kept = dict.fromkeys(["tmp_path", *(name for name in parameters if name not in (*wanted, "monkeypatch"))])
        kinds = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in kept]
        every.__signature__ = inspect.Signature(kinds)  # type: ignore[attr-defined]
        return every

    return decorate


class Failures:
    """The failures of many cases, which are reported together."""

    def __init__(self) -> None:
        self.found: list[Exception] = []
        self.cases = 0

    @contextmanager
    def of(self, label: str) -> Iterator[None]:
        """Keep what a case raises, with its label."""
        self.cases += 1
        try:
            yield
        except FAILURES as error:
            failure = error if isinstance(error, Exception) else AssertionError(str(error))
            failure.add_note(label)
            self.found.append(failure)

    def report(self) -> None:
        """Raise what was kept."""
        if self.found:
            raise ExceptionGroup(f"{len(self.found)} of {self.cases} cases fail", self.found)


def values_of(row: Any, n: int) -> Sequence[Any]:
    """The values of a row: one that stands alone, several in a sequence, or those of `pytest.param`."""
    if hasattr(row, "marks"):
        assert not row.marks, "a row with marks needs parametrize"
        return tuple(row.values)
    return (row,) if n == 1 else tuple(row)


def own(given: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The fixtures of one row: a new folder, with copies of the paths that fixtures made below the old one."""
    folder.mkdir()
    outer = given["tmp_path"]
    changed = {"tmp_path": folder}
    for name, value in given.items():
        if isinstance(value, Path) and outer in value.parents:
            changed[name] = folder / value.relative_to(outer)
            changed[name].parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if value.is_dir() else shutil.copy)(value, changed[name])
    return {**given, **changed}

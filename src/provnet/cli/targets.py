"""Files that commands write: never over an input, a file of the run, or a file that provnet did not write.

What a file holds says whether it is ours: pages carry provnet's mark, figures as JSON tell of a model, tables have the
same first line. Pictures have no mark: one may be replaced by a picture of the same kind, unless it is an input.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from provnet.errors import UsageError

PAGE, SHEET = b"<!doctype html>", b"\x89PNG"  # how files begin that are refused before they are made
_MARK = b'<meta name="generator" content="provnet">'


def write_outputs(
    files: Mapping[Path, bytes], runs: Iterable[Path], inputs: Iterable[str | Path | None] = (), option: str = "--out"
) -> None:
    """Write files that were made in memory; where one of them must not be written, none is.

    `option` is what gives them another place.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_outputs({Path(folder, "a.csv"): b"id,x"}, [])
    ...     write_outputs({Path(folder, "a.csv"): b"id,x"}, [])
    ...     write_outputs({Path(folder, "a.csv"): PAGE}, [])
    Traceback (most recent call last):
    provnet.errors.UsageError: ...a.csv is there already and was not written by this command; choose another --out...
    """
    from provnet.atomic import write_bytes

    check_outputs(files, runs, inputs, option)
    for path, content in files.items():
        write_bytes(path, content)


def check_outputs(
    files: Mapping[Path, bytes], runs: Iterable[Path], inputs: Iterable[str | Path | None] = (), option: str = "--out"
) -> None:
    """Refuse what must not be written over. Of a content only its beginning counts, a table's up to its first line."""
    given, folders = [Path(each) for each in inputs if each is not None], list(runs)
    for path, content in files.items():
        if any(_same(path, each) for each in given):
            raise UsageError(f"{path} is an input of this command and would be overwritten; choose another {option}")
        if any(_of_run(path, folder) for folder in folders):
            raise UsageError(f"{path} is a file of the run and would be overwritten; choose another {option}")
        if path.is_file() and not _ours(path, content, given):
            raise UsageError(
                f"{path} is there already and was not written by this command; choose another {option}, or move it away"
            )


def _same(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except (OSError, ValueError):  # one of the two is not there, or is the name of a data set
        return False


def _of_run(path: Path, folder: Path) -> bool:
    from provnet.fileset import NAME
    from provnet.modelfile import FILES

    names = (*FILES, NAME)
    if path.name.lower() in {name.lower() for name in names} and _same(path.parent, folder):
        return True
    return any(_same(path, folder / name) for name in names)


def _ours(path: Path, content: bytes, inputs: list[Path]) -> bool:
    """Whether a file that is there may be replaced by this content; an empty one may."""
    try:
        with path.open("rb") as file:
            start = file.read(4096)
            if not start:
                return True
            if content.startswith(PAGE):
                return start.startswith(PAGE) and _MARK in start
            if content.startswith(b"{"):
                return _tells_of_model(start + file.read())
    except OSError:
        return False
    if content.startswith(_PICTURES):
        inside = any(Path(os.path.realpath(path)).is_relative_to(os.path.realpath(each)) for each in inputs)
        return start[:4] == content[:4] and not inside
    heads = {text[:4096].split(b"\n")[0] for text in (start, content)}
    return len(heads) == 1 or heads == _CORRECTED


def _tells_of_model(text: bytes) -> bool:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and isinstance(found.get("about"), dict) and "model_sha256" in found["about"]


_CORRECTED = {b"path,label,id,source", b"sample_id,sha256,decision,new_label"}  # both forms of debug's corrected.csv
_PICTURES = (SHEET, b"GIF8", b"%PDF", b"<?xml", b"<svg")

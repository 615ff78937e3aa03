"""Files that commands write: never over an input, a file of the run, or a file that provnet did not write.

And never among the pictures of a data folder, where they would be samples the next time it is opened.

What a file holds says whether it is ours: pages carry provnet's mark, figures as JSON tell of a model, tables have the
same first line. Pictures have no mark: one may be replaced by a picture of the same kind, unless it is an input.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from provnet.base.atomic import refuse_unwritable, sweep, write_bytes
from provnet.base.errors import ProvnetError, UsageError
from provnet.data.dataset import DataSpec
from provnet.data.open import data_root, detect, relocate
from provnet.data.sources.folder import refuse_inside
from provnet.data.sources.known import NAMES
from provnet.runs.fileset import NAME
from provnet.runs.run import FILES, read_config

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
    provnet.base.errors.UsageError: ...a.csv is there already and was not written by this command; choose another...
    """
    check_outputs(files, runs, inputs, option)
    for folder in {path.parent for path in files if path.parent.is_dir()}:
        sweep(folder)  # what a killed command left
    for path, content in files.items():
        write_bytes(path, content)


def write_into(
    out: Path, files: Mapping[str, bytes | str], runs: Iterable[Path], inputs: Iterable[str | Path | None] = ()
) -> list[str]:
    """Write files by their names into a folder, as `write_outputs` does; the names."""
    ready = {n: c.encode("utf-8", "backslashreplace") if isinstance(c, str) else c for n, c in files.items()}
    write_outputs({out / name: content for name, content in ready.items()}, runs, inputs)
    return list(files)


def check_outputs(
    files: Mapping[Path, bytes],
    runs: Iterable[Path],
    inputs: Iterable[str | Path | None] = (),
    option: str = "--out",
    data_dir: str | None = None,
) -> None:
    """Refuse what must not be written over, among pictures, or where nothing may be written.

    Of a content only its beginning counts, a table's up to its first line. Inputs may be data sets known by name, which
    lie under `data_dir`.
    """
    given, folders = [Path(each) for each in inputs if each is not None], list(runs)
    for path, content in files.items():
        if any(_same(path, each) for each in given):
            raise UsageError(f"{path} is an input of this command and would be overwritten; choose another {option}")
        if any(_of_run(path, folder) for folder in folders):
            raise UsageError(f"{path} is a file of the run and would be overwritten; choose another {option}")
        if path.is_file() and not _may_replace(path, content, given):
            raise UsageError(
                f"{path} is there already and was not written by this command; choose another {option}, or move it away"
            )
    refuse_among_pictures(files, folders, given, data_dir)
    for path in files:
        refuse_unwritable(path)


def refuse_among_pictures(
    paths: Iterable[Path], runs: Iterable[Path], inputs: Iterable[Path] = (), data_dir: str | None = None
) -> None:
    """Refuse outputs in the picture folders that a run was trained or tested on, or that are inputs of the command."""
    specs = [spec for run in runs for spec in _data_of(run)]
    now = [relocate(spec, None, data_dir) for spec in specs]  # those known by name may lie elsewhere by now
    places = [data_dir] if data_dir else [*(spec.data_dir for spec in specs), None]
    found = [picture_folder(spec) for spec in (*specs, *now)]
    found += [_input_folder(given, place) for given in inputs for place in places]
    roots = [root for root in dict.fromkeys(found) if root is not None]
    for path in paths:
        for root in roots:
            refuse_inside(root, path, "output")


def picture_folder(spec: DataSpec | None) -> Path | None:
    """The folder whose pictures are all samples of some data, so that one more would be another; or None.

    >>> from provnet.data.dataset import DataSpec
    >>> picture_folder(DataSpec("embedded", "embedded")), picture_folder(DataSpec("list.csv", "csv"))
    (None, None)
    """
    try:
        return None if spec is None or spec.kind != "folder" else data_root(spec) or Path(spec.source)
    except UsageError:  # a data set known by name whose folder is gone
        return None


def _data_of(run: Path) -> list[DataSpec]:
    """A run's training, test and added data; what is wrong with the run is said when it is opened."""
    try:
        config = read_config(run)
    except (ProvnetError, OSError):
        return []
    return [spec for spec in (config.data, config.test, *config.added) if spec is not None]


def _input_folder(given: Path, data_dir: str | None) -> Path | None:
    """The picture folder that an input is, by its path or by its name under `data_dir`; or None."""
    if str(given) in NAMES:
        return picture_folder(DataSpec(str(given), NAMES[str(given)].kind, data_dir=data_dir))
    if not os.path.isdir(given):  # noqa: PTH112 - a name too long to be one is no error yet
        return None
    return given if detect(given)[0] == "folder" else None


def _same(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except (OSError, ValueError):  # one of the two is not there, or is the name of a data set
        return False


def _of_run(path: Path, folder: Path) -> bool:

    names = (*FILES, NAME)
    if path.name.lower() in {name.lower() for name in names} and _same(path.parent, folder):
        return True
    return any(_same(path, folder / name) for name in names)


def _may_replace(path: Path, content: bytes, inputs: list[Path]) -> bool:
    """Whether a file that is there may be replaced by this content; an empty one may."""
    try:
        with path.open("rb") as file:
            start = file.read(4096)
            if not start:
                return True
            if content.startswith(PAGE):
                return start.startswith(PAGE) and _MARK in start
            if content.startswith(b"{"):
                return _names_model(start + file.read())
    except OSError:
        return False
    if content.startswith(_PICTURES):
        inside = any(Path(os.path.realpath(path)).is_relative_to(os.path.realpath(each)) for each in inputs)
        return start[:4] == content[:4] and not inside
    heads = {text[:4096].split(b"\n")[0] for text in (start, content)}
    return len(heads) == 1 or heads == _CORRECTED


def _names_model(text: bytes) -> bool:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and isinstance(found.get("about"), dict) and "model_sha256" in found["about"]


_CORRECTED = {b"path,label,id,source", b"sample_id,sha256,decision,new_label"}  # both forms of debug's corrected.csv
_PICTURES = (SHEET, b"GIF8", b"%PDF", b"<?xml", b"<svg")

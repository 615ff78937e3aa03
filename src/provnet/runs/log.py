"""The decision log: one JSON line a decision, each chained to the one before, so that a later change shows.

A line is canonical JSON (sorted keys, no spaces, ASCII). `hash` is the SHA-256 of the line without it; `previous` is
the `hash` of the line before. A changed, moved or missing line in the middle breaks the chain. Lines cut off cleanly at
the end leave a shorter chain that still holds: keep the last hash elsewhere to notice that.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from provnet.base.errors import DataError, DiskError, IntegrityError, NonFiniteError, UsageError


def append_decision(path: str | Path, record: Mapping[str, Any]) -> str:
    """Append one decision, flushed to disk, and return its hash.

    >>> import tempfile
    >>> log = Path(tempfile.mkdtemp()) / "decisions.jsonl"
    >>> first = append_decision(log, {"input": "a.png", "predicted": "7"})
    >>> json.loads(log.read_text())["hash"] == first
    True
    """
    return append_decisions(path, [record])[0]


def append_decisions(path: str | Path, records: Iterable[Mapping[str, Any]]) -> list[str]:
    """Append many decisions with one check of the chain and one flush; all of them or none.

    >>> import tempfile
    >>> log = Path(tempfile.mkdtemp()) / "decisions.jsonl"
    >>> len(append_decisions(log, [{"input": "a.png"}, {"input": "b.png"}])), verify_chain(log)
    (2, 2)
    """
    bodies = [_checked(record) for record in records]
    is_new = not os.path.lexists(path)
    with _locked(Path(path), write=True) as file:
        if not _is_gone(file, Path(path)):
            try:
                return _appended(file, bodies, Path(path))
            except DiskError:
                if is_new and os.fstat(file.fileno()).st_size == 0:
                    Path(path).unlink()
                raise
    return append_decisions(path, bodies)


def _appended(file: BinaryIO, bodies: Iterable[Mapping[str, Any]], path: Path) -> list[str]:
    _, previous = _walk(file, path)
    hashes: list[str] = []
    lines: list[bytes] = []
    for body in bodies:
        previous, line = _sealed(body, previous)
        hashes.append(previous)
        lines.append(line)
    _append(file, b"".join(lines), path)
    return hashes


def verify_chain(path: str | Path) -> int:
    """Count the decisions of a log whose chain holds; a broken one is refused with its line.

    >>> import tempfile
    >>> log = Path(tempfile.mkdtemp()) / "decisions.jsonl"
    >>> _ = append_decision(log, {"input": "a.png"})
    >>> verify_chain(log)
    1
    """
    with _locked(Path(path), write=False) as file:
        return _walk(file, Path(path))[0]


def _canonical(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode("ascii")


def _sealed(body: Mapping[str, Any], previous: str) -> tuple[str, bytes]:
    chained = {**body, "previous": previous}
    digest = hashlib.sha256(_canonical(chained)).hexdigest()
    return digest, _canonical({**chained, "hash": digest}) + b"\n"


def _checked(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record as JSON gives it back; what JSON cannot keep is refused before anything is written."""
    if not isinstance(record, Mapping):
        raise UsageError(f"a decision is a mapping of names to values; got {type(record).__name__}")
    taken = sorted({"hash", "previous"} & set(record))
    if taken:
        raise UsageError(f'a decision cannot have a field "{taken[0]}": the log writes it itself; rename the field')
    try:
        text = _canonical(record)
        body: dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise NonFiniteError(f"a decision needs finite numbers that JSON can keep: {error}") from error
    except (TypeError, RecursionError) as error:
        raise UsageError(
            f"a decision holds text, numbers, true/false, null, lists and mappings only: {error}"
        ) from error
    if not _has_text_keys(record):
        raise UsageError("a decision needs text as field names, at every level; turn other keys into text first")
    if len(text) > _LONGEST // 2:
        raise UsageError(f"a decision of {len(text)} bytes; allowed: {_LONGEST // 2}. Leave pictures and scores out")
    return body


def _has_text_keys(value: Any) -> bool:
    """Whether JSON kept every field name: it turns numbers into text, which may also change their order."""
    if isinstance(value, Mapping):
        return all(isinstance(name, str) and _has_text_keys(part) for name, part in value.items())
    return not isinstance(value, list | tuple) or all(_has_text_keys(part) for part in value)


@contextmanager
def _locked(path: Path, *, write: bool) -> Iterator[BinaryIO]:
    import fcntl  # not on every system, and only needed here

    try:
        number = os.open(path, (os.O_RDWR | os.O_CREAT if write else os.O_RDONLY) | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
    except FileNotFoundError as error:
        if write:
            raise UsageError(f'no folder "{path.parent}" for the decision log; create it first') from error
        raise DataError(f'no decision log at "{path}"; check the path') from error
    except IsADirectoryError as error:
        raise UsageError(f'"{path}" is a folder; give the path of a decision log, such as decisions.jsonl') from error
    except OSError as error:
        may = "write to" if write else "read"
        words = f'cannot open the decision log "{path}": {error.strerror}; choose one that you may {may}'
        raise DiskError(words) from error
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise UsageError(f'"{path}" is not a regular file; give the path of a decision log, such as decisions.jsonl')
    with os.fdopen(number, "r+b" if write else "rb") as file:
        fcntl.flock(number, fcntl.LOCK_EX if write else fcntl.LOCK_SH)  # released when the file is closed
        yield file


def _is_gone(file: BinaryIO, path: Path) -> bool:
    """Whether the name of an open file was taken away, as by a process that could not write the first line."""
    try:
        return not os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return True


def _append(file: BinaryIO, data: bytes, path: Path) -> None:
    size = os.fstat(file.fileno()).st_size
    try:
        written = 0
        while written < len(data):  # past the buffer, which would write again on close what was cut off
            written += os.pwrite(file.fileno(), data[written:], size + written)
        os.fsync(file.fileno())
        if size == 0:  # the name of a new file must survive a crash, too
            folder = os.open(path.resolve().parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    except OSError as error:
        os.ftruncate(file.fileno(), size)
        raise DiskError(f'cannot write the decision log "{path}": {error.strerror}; nothing was added') from error


def _walk(file: BinaryIO, path: Path) -> tuple[int, str]:
    """Check every line; return how many there are and the last hash."""
    count, offset, previous = 0, 0, _START
    while line := file.readline(_LONGEST + 1):
        number = count + 1
        found = _parse(line)
        if found is None and number == 1 and not _may_be_ours(line):
            raise DataError(f'"{path}" is not a decision log: line 1 is no chained record; give another file')
        if not line.endswith(b"\n"):
            raise IntegrityError(
                f'decision log "{path}", line {number}: torn, no line end (a crash while writing?); the {count} '
                f"records before it are intact; keep a copy, then cut the file to {offset} bytes to go on"
            )
        if found is None:
            raise IntegrityError(f'decision log "{path}", line {number}: not a record; the log was changed')
        _check_line(line, found, previous, where=f'decision log "{path}", line {number}')
        previous = found["hash"]
        count, offset = number, offset + len(line)
    return count, previous


def _check_line(line: bytes, found: Mapping[str, Any], previous: str, *, where: str) -> None:
    if found["previous"] != previous:
        raise IntegrityError(f"{where}: does not follow the line before it; a line was changed, moved or removed")
    body = {name: value for name, value in found.items() if name not in ("hash", "previous")}
    try:
        digest, expected = _sealed(body, previous)
    except (ValueError, RecursionError):  # an infinity from a number changed to 1e999
        digest, expected = "", b""
    if digest != found["hash"]:
        raise IntegrityError(f"{where}: its content does not have the hash it states; the line was changed")
    if expected != line:  # same content, other bytes: spaces, doubled keys, other escapes
        raise IntegrityError(f"{where}: not written as the log writes it; the line was changed")


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not all(isinstance(found.get(name), str) for name in ("hash", "previous")):
        return None
    return found


def _may_be_ours(line: bytes) -> bool:
    """Whether an unreadable first line is a damaged or torn record of ours rather than some other file."""
    if line.endswith(b"\n"):
        return b'"hash":"' in line and b'"previous":"' in line
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return line.startswith(b'{"')
    return False  # complete JSON without our fields


_START = "0" * 64  # what the first line follows
_LONGEST = 16 * 2**20  # bytes of a line; anything longer is some other file

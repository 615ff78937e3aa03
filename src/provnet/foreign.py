"""Knowing foreign files by their content: what could run code, or is no model at all, is refused whatever its name."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path

from provnet.errors import UnsafeFileError

HEADER = 1_000_000  # bytes; the longest safetensors header that is read


def refuse_foreign(file: io.BufferedReader, path: Path) -> None:
    """Refuse pickles, archives, programs and pages by their content, whatever the file is called."""
    size = os.fstat(file.fileno()).st_size
    file.seek(0)
    start = file.read(64)
    if start[8:9] == b"{" and int.from_bytes(start[:8], "little") <= min(HEADER, size - 8):
        return  # safetensors; its first bytes are a number and may look like anything
    file.seek(max(0, size - 1))
    kind = _foreign(start, file.read(1))
    if kind:
        raise UnsafeFileError(
            f"{path} is {kind}, which provnet never opens; "
            "export the weights as safetensors where you trust the file, or ask for a provnet run folder"
        )


def _foreign(start: bytes, last: bytes) -> str | None:
    for magic, kind in _MAGIC:
        if start.startswith(magic):
            return kind
    if start[:1] == b"\x80" and start[1:2] <= b"\x05" and start[1:2]:
        return "a Python pickle (it could run code)"
    if start.lstrip()[:5].lower() in (b"<!doc", b"<html", b"<?xml"):
        return "a web page, not a model"
    if last == b"." and _OLD_PICKLE.match(start):
        return "an old Python pickle (it could run code)"
    return None


_MAGIC = (
    (b"PK\x03\x04", "a zip archive (.pt and .pth files are; they can run code)"),
    (b"PK\x05\x06", "a zip archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"\x7fELF", "a program"),
    (b"MZ", "a program"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"\x89HDF", "an HDF5 file"),
    (b"#!", "a script"),
)
# How a pickle of protocol 0 or 1 begins: a global, a mark and what may follow it, or one plain value.
_OLD_PICKLE = re.compile(
    rb"c[\w.]+\n[\w.]+\n|\((?:[ldt][pq.]|[](){}]|[ci][\w.]+\n|[IL]-?\d|[SV]|[KMJX])|[])}][q.(]"
    rb"|[IL]-?\d+L?\n|F[-+.\deinfa]+\n|S['\"]|V[^\n]*\n[p.]|N\.|K.\.|M..\.|J.{4}\.|G.{8}\.|[XT].{2}\0{2}|U[\0-\x1f]",
    re.DOTALL,
)

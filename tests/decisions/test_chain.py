"""The decision log is a chain: every change, cut or move of a line is found and named."""

from __future__ import annotations

import hashlib
import json
import os

import pytest

from provnet.base.errors import DataError, IntegrityError
from provnet.runs import log as decisions
from provnet.runs.log import append_decision, verify_chain
from tests.counts import count, grows


def test_lines_are_chained_and_hashed(log):
    previous = "0" * 64
    for line in log.read_text("ascii").splitlines():
        record = json.loads(line)
        stated = record.pop("hash")
        rest = json.dumps(record, sort_keys=True, separators=(",", ":")).encode()
        assert stated == hashlib.sha256(rest).hexdigest()
        assert record["previous"] == previous
        previous = stated
    assert verify_chain(log) == 5


def test_append_returns_the_hash_and_keeps_what_was_there(log):
    before = log.read_bytes()
    stated = append_decision(log, {"input": "new"})
    after = log.read_bytes()
    assert after.startswith(before)
    assert json.loads(after.splitlines()[-1])["hash"] == stated
    assert verify_chain(log) == 6


@grows
def test_every_change_of_one_byte_is_refused(log):
    """Each byte of the log takes three other values (all 255 of them in the long run)."""
    whole = log.read_bytes()
    for position in range(len(whole)):
        for flip in range(1, 256, count(85, 1)):
            changed = bytearray(whole)
            changed[position] ^= flip
            log.write_bytes(changed)
            with pytest.raises((IntegrityError, DataError)):
                verify_chain(log)
        if position % 50 == 0:
            with pytest.raises((IntegrityError, DataError)):
                append_decision(log, {"input": "more"})
            assert log.read_bytes() == changed


def test_every_byte_removed_or_doubled_is_refused(log):
    whole = log.read_bytes()
    for position in range(len(whole)):
        for changed in (
            whole[:position] + whole[position + 1 :],
            whole[:position] + whole[position : position + 1] + whole[position:],
        ):
            log.write_bytes(changed)
            with pytest.raises((IntegrityError, DataError)):
                verify_chain(log)


def test_every_cut_but_at_a_line_end_is_reported_as_torn(log):
    whole = log.read_bytes()
    ends = {0} | {n + 1 for n, byte in enumerate(whole) if byte == 10}
    for size in range(len(whole)):
        log.write_bytes(whole[:size])
        if size in ends:
            assert verify_chain(log) == whole[:size].count(b"\n")
        elif size > 1:
            start = max(end for end in ends if end <= size)
            with pytest.raises(
                IntegrityError, match=rf"line {whole[:size].count(10) + 1}: torn.*cut the file to {start} bytes"
            ):
                verify_chain(log)


def test_torn_line_is_not_overwritten_and_the_advice_works(log):
    whole = log.read_bytes()
    log.write_bytes(whole[:-7])
    with pytest.raises(IntegrityError, match="line 5: torn"):
        append_decision(log, {"input": "x"})
    assert log.read_bytes() == whole[:-7]
    os.truncate(log, whole.rindex(b"\n", 0, -1) + 1)
    append_decision(log, {"input": "x"})
    assert verify_chain(log) == 5


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda lines: [lines[0], lines[2], lines[3], lines[4]], 2),
        (lambda lines: [lines[0], lines[2], lines[1], lines[3], lines[4]], 2),
        (lambda lines: lines[1:], 1),
        (lambda lines: [*lines, lines[-1]], 6),
        (lambda lines: [*lines[:3], lines[3].replace(b'"input":"3.png"', b'"input":"4.png"'), lines[4]], 4),
        (lambda lines: [*lines[:3], lines[3].replace(b",", b", ", 1), lines[4]], 4),
        (lambda lines: [*lines[:3], lines[3].replace(b"0.6875", b"0.68750"), lines[4]], 4),
        (lambda lines: [*lines[:3], lines[3].replace(b"0.6875", b"1e999"), lines[4]], 4),
        (lambda lines: [*lines[:3], lines[3].replace(b"{", b'{"confidence":1,', 1), lines[4]], 4),
        (lambda lines: [*lines[:3], b"", lines[3], lines[4]], 4),
        (lambda lines: [*lines, b"[" * 100_000], 6),
    ],
    ids=[
        "removed",
        "swapped",
        "beheaded",
        "repeated",
        "edited",
        "spaced",
        "zeroed",
        "infinite",
        "doubled-key",
        "blank",
        "nested",
    ],
)
def test_tampering_names_the_line(log, change, line):
    log.write_bytes(b"".join(part + b"\n" for part in change(log.read_bytes().splitlines())))
    with pytest.raises(IntegrityError, match=f"line {line}: ") as caught:
        verify_chain(log)
    assert "\n" not in str(caught.value)


def test_an_edited_line_is_told_from_a_moved_one(log):
    log.write_bytes(log.read_bytes().replace(b'"input":"3.png"', b'"input":"4.png"'))
    with pytest.raises(IntegrityError, match="line 4: its content does not have the hash it states"):
        verify_chain(log)


def test_a_re_hashed_line_breaks_the_next_one(log):
    lines = log.read_bytes().splitlines()
    record = json.loads(lines[1])
    body = {name: value for name, value in record.items() if name not in ("hash", "previous")} | {"predicted": "forged"}
    lines[1] = decisions._sealed(body, record["previous"])[1].rstrip()
    log.write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(IntegrityError, match="line 3: does not follow"):
        verify_chain(log)

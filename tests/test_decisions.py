"""The decision log: what is written stays, whatever changes is refused with its line."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import multiprocessing
import os

import pytest

from provnet import decisions
from provnet.decisions import append_decision, append_decisions, verify_chain
from provnet.errors import DataError, DiskError, IntegrityError, NonFiniteError, ProvnetError, UsageError
from tests.counts import count, grows


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "decisions.jsonl"
    for number in range(5):
        append_decision(
            path,
            {"input": f"{number}.png", "predicted": "Größe", "confidence": 0.5 + number / 16, "top": [1, None, True]},
        )
    return path


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


@pytest.mark.parametrize(
    "content",
    [
        b"hello\n",
        b'{"a":1}',
        b'{"a":1}\n',
        b"[]\n",
        b"\n",
        b"\x00\x01\x02",
        b"\x89PNG\r\n",
        b"a,b\n1,2\n",
        b'{\n "a": 1\n}\n',
    ],
)
def test_another_file_is_refused_and_left_alone(tmp_path, content):
    path = tmp_path / "other"
    path.write_bytes(content)
    for attempt in (lambda: append_decision(path, {"input": "x"}), lambda: verify_chain(path)):
        with pytest.raises(DataError, match="not a decision log"):
            attempt()
    assert path.read_bytes() == content


def test_empty_file_is_a_log_of_nothing(tmp_path):
    path = tmp_path / "log"
    path.touch()
    assert verify_chain(path) == 0
    append_decision(path, {})
    assert verify_chain(path) == 1


@pytest.mark.parametrize(
    ("record", "error"),
    [
        ({"hash": "x"}, UsageError),
        ({"previous": 1}, UsageError),
        ({"x": float("nan")}, NonFiniteError),
        ({"x": [float("inf")]}, NonFiniteError),
        ({"x": object()}, UsageError),
        ({"x": b"bytes"}, UsageError),
        ({"x": {10: 1, 9: 2}}, UsageError),
        ({1: "x"}, UsageError),
        ({1: "x", "a": "y"}, UsageError),
        (["x"], UsageError),
        ({"x": "y" * 9_000_000}, UsageError),
    ],
)
def test_what_json_cannot_keep_is_refused_before_writing(tmp_path, record, error):
    path = tmp_path / "log"
    with pytest.raises(error):
        append_decision(path, record)
    assert not path.exists()


def test_hostile_text_round_trips(tmp_path):
    path = tmp_path / "log"
    text = "\x1b[31m \n\r\u2028 \ud800 \udce9 <script> 🐶 \x00"
    append_decision(path, {text: text})
    assert verify_chain(path) == 1
    assert path.read_bytes().count(b"\n") == 1
    assert json.loads(path.read_bytes())[text] == text


def test_batch_is_all_or_nothing(log):
    before = log.read_bytes()
    with pytest.raises(NonFiniteError):
        append_decisions(log, [{"input": "good"}, {"x": float("nan")}])
    assert log.read_bytes() == before
    assert len(set(append_decisions(log, ({"n": n} for n in range(10))))) == 10
    assert verify_chain(log) == 15
    assert append_decisions(log, []) == []


@pytest.mark.parametrize("call", ["fsync", "pwrite"])
def test_full_disk_leaves_the_log_as_it_was(log, monkeypatch, call):
    before = log.read_bytes()
    real = os.pwrite

    def full(number, data=b"", offset=0):
        if data[10:]:
            return real(number, data[:10], offset)  # some of it still fits
        raise OSError(errno.ENOSPC, "No space left on device")

    if call == "pwrite":
        monkeypatch.setattr(
            decisions.os, "pwrite", lambda *args: full(*args) if args[2] == len(before) else full(args[0])
        )
    else:
        monkeypatch.setattr(decisions.os, "fsync", full)
    with pytest.raises(DiskError, match=r"No space left.*nothing was added"):
        append_decision(log, {"input": "x"})
    monkeypatch.undo()
    assert log.read_bytes() == before


def test_wrong_paths(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "none" / "log", tmp_path / "pipe"):
        with pytest.raises(UsageError):
            append_decision(path, {"input": "x"})
    with pytest.raises(DataError, match="no decision log at"):
        verify_chain(tmp_path / "none.jsonl")
    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(ProvnetError):
            verify_chain(path)


def test_writing_and_reading_hold_the_lock(log, monkeypatch):
    refused = []

    def probe(real, mode):
        def run(*args):
            with log.open("rb") as other:
                try:
                    fcntl.flock(other, mode | fcntl.LOCK_NB)
                except BlockingIOError:
                    refused.append(mode)
            return real(*args)

        return run

    monkeypatch.setattr(decisions, "_append", probe(decisions._append, fcntl.LOCK_SH))  # a writer shuts readers out
    append_decision(log, {"input": "x"})
    monkeypatch.setattr(decisions, "_walk", probe(decisions._walk, fcntl.LOCK_EX))  # a reader shuts writers out
    verify_chain(log)
    assert refused == [fcntl.LOCK_SH, fcntl.LOCK_EX]


def _write_many(path, name, times):
    for number in range(times):
        append_decision(path, {"writer": name, "number": number})


@grows
def test_concurrent_writers_keep_one_chain(tmp_path):
    path = tmp_path / "log"
    context = multiprocessing.get_context("spawn")
    times = count(25, 500)
    writers = [context.Process(target=_write_many, args=(path, name, times)) for name in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    assert verify_chain(path) == 3 * times
    records = [json.loads(line) for line in path.read_text().splitlines()]
    for name in range(3):
        assert [r["number"] for r in records if r["writer"] == name] == list(range(times))

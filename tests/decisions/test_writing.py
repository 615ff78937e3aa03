"""Writing the decision log: all or nothing, one writer at a time, and never into another file."""

from __future__ import annotations

import errno
import fcntl
import json
import multiprocessing
import os

import pytest

from provnet.base.errors import DataError, DiskError, NonFiniteError, ProvnetError, UsageError
from provnet.runs import log as decisions
from provnet.runs.log import append_decision, append_decisions, verify_chain
from tests.cases import cases
from tests.counts import count, grows


@cases(
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


@cases(
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


def test_a_log_taken_away_while_its_writer_waits_is_begun_again(log, monkeypatch):
    """As by another process that made the file and could not write its first line."""
    real, waited = fcntl.flock, []

    def lock(number, mode):
        if not waited:
            waited.append(mode)
            log.unlink()
        real(number, mode)

    monkeypatch.setattr(fcntl, "flock", lock)
    append_decision(log, {"input": "x"})
    assert verify_chain(log) == 1

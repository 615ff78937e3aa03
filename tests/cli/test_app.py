"""The command line as a whole: starting light, exit codes, one-line errors."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import provnet
from provnet.base.errors import DataError, DiskError, IntegrityError, MemoryLimitError, UnsafeFileError, UsageError
from provnet.cli import app as app_module
from tests.cases import cases

from .conftest import Call

COMMANDS = tuple(app_module.COMMANDS)


def test_help_loads_neither_torch_nor_numpy() -> None:
    code = (
        "import sys, io, contextlib\n"
        "from provnet.cli import main\n"
        "for arguments in [['--help'], ['--version'], []] + [[c, '--help'] for c in sys.argv[1:]] + [['nonsense']]:\n"
        "    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):\n"
        "        code = main(arguments)\n"
        "    print(code, [m for m in ('torch', 'numpy', 'PIL', 'sklearn') if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, *COMMANDS], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["0 []"] * (3 + len(COMMANDS)) + ["2 []"]


@cases("command", COMMANDS)
def test_help_has_an_example(command: str, call: Call) -> None:
    found = call(command, "--help")
    assert found.code == 0
    assert f"Example: provnet {command}" in found.out


def test_names_in_the_help_are_those_of_the_tables(call: Call) -> None:
    from provnet.data.sources.known import NAMES
    from provnet.models.backbones import BACKBONES
    from provnet.models.network import NETWORKS
    from provnet.training.config import PRESETS

    words = " ".join(call("train", "--help-all").out.replace("│", " ").split())
    for name in (*NAMES, *NETWORKS, *BACKBONES, *PRESETS):
        assert name in words


def test_version(call: Call) -> None:
    assert call("--version").out == f"provnet {provnet.__version__}\n"


@cases(
    ("arguments", "words"),
    [
        (["nonsense"], "No such command"),
        (["train"], "Missing argument"),
        (["train", "embedded"], "Missing option '--out'"),
        (["info", "x", "--nonsense"], "No such option: --nonsense. See: provnet info --help"),
        (["train", "embedded", "--out", "x", "--epochs", "many"], "'--epochs'"),
        (["train", "embedded", "--out", "x", "--size", "big"], "--size takes a number"),
        (["train", "embedded", "--out", "x", "--checkpoint-seconds", "-1"], "0 or more"),
        (["train", "embedded", "--out", "x", "--resume", "--overwrite"], "give one of them"),
        (["train", "embedded", "--out", "x", "--network", "singel"], 'Did you mean "single"?'),
        (["train", "embedded", "--out", "x", "--preset", "slow"], "allowed: default, fast, paper, robust"),
        (["train", "embedded", "--out", "x", "--epochs", "0"], "epochs must be a whole number"),
        (["train", "embedded", "--out", "x", "--batch-size", "-4"], "batch_size (--batch-size) must be a whole number"),
        (["train", "embedded", "--out", "x", "--lr", "nan"], "lr must be a finite number above 0"),
        (["train", "embedded", "--out", "x", "--alpha", "2"], "alpha must lie in [0, 1]"),
        (["train", "embedded", "--out", "x", "--limit", "0"], "limit must be a whole number"),
        (["train", "embedded", "--out", "x", "--holdout", "1.5"], "between 0 and 1"),
        (["train", "embeded", "--out", "x"], 'Did you mean "embedded"?'),
        (["info", "nowhere"], "no run at nowhere"),
        (["verify", "nowhere"], "no run at nowhere"),
        (["evaluate", "nowhere"], "no run at nowhere"),
        (["explain", "nowhere", "a.png"], "no run at nowhere"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(
    arguments: list[str], words: str, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = call(*arguments)
    assert found.code == 2
    assert words in found.last_line
    assert found.last_line.startswith("error: ")
    assert "Traceback" not in found.err
    assert list(tmp_path.iterdir()) == []


@cases(
    ("error", "code"),
    [
        (UsageError("x"), 2),
        (DataError("x"), 3),
        (DiskError("x"), 4),
        (MemoryLimitError("x"), 5),
        (IntegrityError("x"), 6),
        (UnsafeFileError("x"), 7),
        (MemoryError(), 5),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"), 5),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes"), 5),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), 5),
        (OSError(28, "No space left on device"), 4),
        (KeyboardInterrupt(), 130),
        (ZeroDivisionError("oh"), 1),
    ],
)
def test_exit_codes(error: BaseException, code: int, call: Call, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("provnet.cli.verify.find_data", fail)
    found = call("verify", run)
    assert found.code == code
    assert len(found.err.strip().splitlines()) == 1
    if "memory" in str(error):
        assert "error: out of memory; end other programs" in found.err
    if code == 1:
        assert "internal error: ZeroDivisionError: oh; run with --debug" in found.err


@cases("command", ["train", "generate", "audit", "map", "add", "explain", "evaluate", "info"])
def test_advice_on_memory_names_options_that_the_command_has(
    command: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    commands: dict[str, Any] = app_module.commands().commands
    monkeypatch.setattr(app_module, "commands", lambda: fail)
    found = call(command)
    assert found.code == 5
    has = {name: parameter for parameter in commands[command].params for name in parameter.opts}
    advised = re.findall(r"(?<!\S)\(?(--?[a-z-]+)", found.last_line)
    assert bool(advised) == (command not in ("explain", "evaluate", "info"))
    assert set(advised) <= set(has)
    assert command != "map" or "--size" not in advised  # there it is the size of the page


@pytest.mark.parametrize("arguments", [["--debug", "info", "nowhere"], ["info", "nowhere", "--debug"]])
def test_debug_shows_the_traceback(arguments: list[str], call: Call) -> None:
    found = call(*arguments)
    assert found.code == 2
    assert "Traceback" in found.err
    assert found.last_line.startswith("error: no run at nowhere")


def test_debug_after_two_dashes_is_a_name() -> None:
    assert app_module._without_debug(["explain", "--", "--debug"]) == (False, ["explain", "--", "--debug"])


def test_control_characters_are_escaped(call: Call) -> None:
    found = call("info", "a\x1b[2J\nb")
    assert found.code == 2
    assert "\x1b" not in found.err
    assert len(found.err.splitlines()) == 1


def test_a_reader_that_went_away_is_no_error(run: Path) -> None:
    command = f"{sys.executable} -m provnet info {run} --json | head -c 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stdout == "{"
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("closed", "arguments", "code"),
    [(">&-", "verify {run}", 0), ("2>&-", "verify {run}", 0), ("2>&-", "explain {run} test:99", 2)],
)
def test_closed_streams_change_no_exit_code(closed: str, arguments: str, code: int, run: Path) -> None:
    command = f"{sys.executable} -m provnet {arguments.format(run=run)} {closed}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_that_goes_away_is_no_bug_of_ours(run: Path) -> None:
    pipe, end = os.pipe()
    os.close(pipe)  # nobody reads
    try:
        command = [sys.executable, "-m", "provnet", "explain", str(run), "test:0..7"]
        done = subprocess.run(command, stdout=end, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(end)
    assert done.returncode == app_module.PIPE_CLOSED
    assert "Traceback" not in done.stderr

"""`provnet`: the commands, and how whatever goes wrong becomes one line and an exit code."""

from __future__ import annotations

import errno
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from provnet.base import __version__, options
from provnet.base.errors import DiskError, MemoryLimitError, ProvnetError, UsageError
from provnet.base.files import DataWarning, shown
from provnet.base.processes import rank
from provnet.cli.flags import callback
from provnet.cli.output import BACKBONE, error_line, note

if TYPE_CHECKING:
    from torch import nn

app = typer.Typer(
    name="provnet",
    help="Models that name the training samples behind every answer.",
    epilog="Example: [bold]provnet demo[/bold] trains, evaluates and explains in about a minute, without any download.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"provnet {__version__}\n")
        raise typer.Exit()


@app.callback()
def _provnet(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=_print_version, is_eager=True)
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error; can be given anywhere.")
    ] = False,
) -> None:
    pass


def main(
    argv: Sequence[str] | None = None,
    *,
    backbone: nn.Module | None = None,
    at: Callable[[Any], Any] | None = None,
    pool: Callable[[Any], Any] | None = None,
    transform: Callable[[Any], Any] | None = None,
) -> int:
    """Run the command line and return its exit code.

    `backbone` is the module of runs that were trained with one given as an object, or the model of runs that are
    attached to one: commands cannot build it. The latter may also need the functions that they were attached with.

    >>> main(["--version"])  # doctest: +ELLIPSIS
    provnet ...
    0
    """
    given = list(sys.argv[1:] if argv is None else argv)
    debug, arguments = _without_debug(given)
    _open_streams()
    _make_encodable()
    _drop_width()
    if backbone is not None and arguments[:1] and arguments[0] in MAKING:
        words = "in Python fit(data, train_config(backbone=module)) of provnet.training takes one"
        error_line(f"{arguments[0]} builds networks by name and takes no backbone object; {words}")
        return UsageError.exit_code
    before = BACKBONE.set(None if backbone is None else (backbone, at, pool, transform))
    try:
        with _plain_warnings():
            code = _run(arguments or ["--help"], debug)
    finally:
        BACKBONE.reset(before)
    return _flush(code)


def _run(arguments: list[str], debug: bool) -> int:
    try:
        rank()  # garbage is refused before anything asks whether this process speaks
        result = commands()(arguments, prog_name="provnet", standalone_mode=False)
        if result == INTERRUPTED:
            error_line("interrupted")
        return result if isinstance(result, int) else 0
    except KeyboardInterrupt:
        error_line("interrupted")
        return INTERRUPTED
    except SystemExit:  # a reader of our output (head, less) that went away
        return PIPE_CLOSED
    except Exception as error:
        if debug:
            traceback.print_exc()
        code, message = _exit_and_words(error, arguments[0])
        error_line(message)
        return code


@cache
def commands() -> Any:
    """All commands with their options: typer reads them off the functions, which takes longer than many a command."""
    return typer.main.get_command(app)


def _exit_and_words(error: Exception, command: str) -> tuple[int, str]:
    """Exit code and one line for whatever a command raised."""
    if isinstance(error, ProvnetError):
        return error.exit_code, str(error)
    usage: Any = error
    if hasattr(usage, "format_message") and hasattr(usage, "exit_code"):  # typer's own, wherever it keeps its classes
        context = getattr(usage, "ctx", None)
        command = context.command_path if context is not None else "provnet"
        words = usage.format_message().rstrip(".")
        return 2, f"{words}{'' if words.endswith('?') else '.'} See: {command} --help"
    if _out_of_memory(error):
        return MemoryLimitError.exit_code, f"out of memory; {LESS_MEMORY.get(command, MORE_MEMORY)}"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskError.exit_code, f"the disk is full ({error.filename or 'no file named'}); make room and try again"
    if isinstance(error, OSError) and error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
        return UsageError.exit_code, f"{shown(str(error.filename))}: {error.strerror}; give another name"
    return 1, f"internal error: {type(error).__name__}: {error}; run with --debug to see where"


def _out_of_memory(error: Exception) -> bool:
    """Python, numpy, and torch, which says it in words; torch's own class is not asked for: it takes long to import."""
    words = ("out of memory", "can't allocate memory", "not enough memory")
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(part in str(error).lower() for part in words)
    )


def _without_debug(arguments: list[str]) -> tuple[bool, list[str]]:
    """Take --debug out, wherever it stands before a `--`."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    kept = [argument for argument in arguments[:end] if argument != "--debug"]
    return len(kept) < end, kept + arguments[end:]


def _open_streams() -> None:
    """Whoever closed stdout or stderr (`>&-`) does not want to see it; nothing else depends on it."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115


def _make_encodable() -> None:
    """A terminal that cannot show a character gets its escape, not a crash."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError, OSError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def _drop_width() -> None:
    """COLUMNS says how wide a terminal is; below NARROWEST, and what is no number, leaves no room for any text."""
    given = os.environ.get("COLUMNS")
    if given is None:
        return
    digits = given.lstrip("0") if given.isascii() and given.isdigit() else ""
    if not (0 < len(digits) < 6 and int(digits) >= NARROWEST):
        del os.environ["COLUMNS"]


@contextmanager
def _plain_warnings() -> Any:
    """Warnings as one line each on stderr, without file names and code; what was said is not said again."""
    with warnings.catch_warnings():
        said: set[str] = set()

        def show(message: Warning | str, *_: Any, **__: Any) -> None:
            if str(message) not in said:  # a command may open both splits of a file, or data that have the same fault
                said.add(str(message))
                note(str(message), "warning")

        warnings.filterwarnings("always", category=DataWarning)
        warnings.showwarning = show
        yield


def _flush(code: int) -> int:
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # the reader (head, less) has seen enough; keep Python from complaining at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


NARROWEST = 20  # characters that COLUMNS may say
INTERRUPTED = 130
MAKING = ("demo", "train", "reproduce")  # commands that make networks of their own
PIPE_CLOSED = 141  # as of a program that the closed pipe ends
LESS_MEMORY = {
    "train": "use smaller pictures (--size), fewer samples (--limit) or a smaller batch (--batch-size)",
    "generate": "make fewer pictures at a time (-n)",
    **dict.fromkeys(("audit", "robustness", "map", "check", "add"), "use fewer samples (--limit)"),
    **dict.fromkeys(("explain", "member", "credit", "attribute"), "give fewer inputs at a time"),
}
MORE_MEMORY = "end other programs, or use a machine with more memory"  # of commands that cannot do with less

COMMANDS: dict[str, tuple[type[options.Options], str]] = {  # options, and the module, whose function has its name
    "demo": (options.Demo, "provnet.cli.demo"),
    "train": (options.Train, "provnet.cli.train"),
    "evaluate": (options.Evaluate, "provnet.cli.evaluate"),
    "explain": (options.Explain, "provnet.cli.explain"),
    "generate": (options.Generate, "provnet.cli.generate"),
    "interpolate": (options.Interpolate, "provnet.cli.generate"),
    "debug": (options.Debug, "provnet.cli.debug"),
    "fix": (options.Fix, "provnet.cli.fix"),
    "audit": (options.Audit, "provnet.cli.audit"),
    "member": (options.Member, "provnet.cli.member"),
    "robustness": (options.Robustness, "provnet.cli.robustness"),
    "map": (options.Map, "provnet.cli.map"),
    "credit": (options.Credit, "provnet.cli.credit"),
    "influence": (options.Influence, "provnet.cli.influence"),
    "without": (options.Without, "provnet.cli.influence"),
    "attribute": (options.Attribute, "provnet.cli.attribute"),
    "check": (options.Check, "provnet.cli.check"),
    "add": (options.Add, "provnet.cli.bank"),
    "withhold": (options.Withhold, "provnet.cli.bank"),
    "verify": (options.Verify, "provnet.cli.verify"),
    "info": (options.Info, "provnet.cli.info"),
    "reproduce": (options.Reproduce, "provnet.cli.reproduce"),
    "app": (options.App, "provnet.cli.app_command"),
}


def _command(module: str, name: str) -> Callable[[options.Options], None]:
    """What a command does; its module, and torch with it, is imported only then."""

    def run(asked: options.Options) -> None:
        getattr(import_module(module), name)(asked)

    return run


def paragraphs(text: str) -> str:
    """A docstring whose paragraphs are one line each, which a terminal wraps at its own width."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


for _name, (_kind, _module) in COMMANDS.items():
    _example = f"Example: [bold]{_kind.example}[/bold]"
    app.command(_name, help=paragraphs(_kind.__doc__ or ""), epilog=_example)(callback(_kind, _command(_module, _name)))

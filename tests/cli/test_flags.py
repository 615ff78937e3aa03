"""Flags are made from the classes of options, and the words of a command from their objects: both ways agree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from provnet.base.errors import UsageError
from provnet.base.options import Leaf, Options, RunOptions, Train, leaves
from provnet.base.words import to_argv
from provnet.cli.app import COMMANDS
from provnet.cli.flags import callback, options_from
from tests.cases import cases

from .conftest import Call

KINDS = {name: kind for name, (kind, _) in COMMANDS.items()}
CHOSEN = {"head": "plain", "key_type": "int8", "backbone": "mlp", "size": "64x48"}
VALUES: dict[Any, Any] = {
    str: "a b",
    bool: False,
    int: 30,
    float: 0.25,
    Path: Path("-a b"),
    list[str]: ["-a", "it's"],
    list[Path]: [Path("a"), Path("b")],
    tuple[float, float]: (0.5, 255.0),
}


def value_of(one: Leaf) -> Any:
    """A value that is not the default."""
    if isinstance(one.default, bool):
        return not one.default
    found = next(value for kind, value in VALUES.items() if one.hint in (kind, kind | None, Any))
    return CHOSEN.get(one.name, found) if one.name != "size" or one.hint is Any else found


@cache
def command_of(kind: type[Options]) -> tuple[Callable[..., Any], list[Any]]:
    """The command of a class, and the list of what it was asked."""
    seen: list[Any] = []
    app = typer.Typer()
    app.command()(callback(kind, seen.append))
    return typer.main.get_command(app), seen


def parsed(kind: type[Options], argv: list[str]) -> Any:
    command, seen = command_of(kind)
    command(argv, standalone_mode=False)
    return seen.pop()


def needed(kind: type[Options]) -> dict[str, Any]:
    return {one.name: value_of(one) for one in leaves(kind) if one.default is MISSING}


NEEDS = {"keep": {"retrain": 2}}  # an option -> others that it is nothing without


@cases("name", KINDS)
def test_the_words_of_a_command_ask_for_the_same(name: str) -> None:
    kind = KINDS[name]
    assert parsed(kind, to_argv(options_from(kind, needed(kind)))) == options_from(kind, needed(kind))
    for one in leaves(kind):
        asked = options_from(kind, {**needed(kind), **NEEDS.get(one.name, {}), one.name: value_of(one)})
        assert parsed(kind, to_argv(asked)) == asked
        assert len(to_argv(asked)) > len(to_argv(options_from(kind, needed(kind)))) or one.default is MISSING


def test_names_of_options_are_unique_within_a_command() -> None:
    for kind in KINDS.values():
        names = [one.name for one in leaves(kind)]
        assert len(set(names)) == len(names)


def test_help_shows_what_most_runs_need_and_help_all_the_rest(call: Call) -> None:
    flags = {one.flag for one in leaves(Train) if not one.option.word and one.flag != "--conditional"}
    rare = {one.flag for one in leaves(Train) if one.option.rare}
    pages = [call("train", way).out for way in ("--help", "--help-all", "--help")]
    few, every, again = ("\n".join(line for line in page.splitlines() if line[:1] == "│") for page in pages)
    assert {flag for flag in flags if f"{flag} " in few} == flags - rare
    assert {flag for flag in flags if f"{flag} " in every} == flags
    assert "--no-conditional" in every
    assert 10 <= len(flags - rare) <= 14
    assert again == few  # what one call has shown another hides again


@cases(
    ("argv", "words"),
    [
        (["debug", "run", "--out", "d", "--threshold", "0"], "--threshold must lie above 0"),
        (["audit", "run", "--out", "d", "--limit", "1"], "--limit must be 2 or more, got 1"),
        (["map", "run", "--out", "d", "--seed", str(2**32)], "--seed must lie in 0..2^32-1 for a map"),
        (["evaluate", "run", "--seed", "-1"], "--seed must lie in 0..2^63-1, got -1"),
        (["app", "run", "--port", "65536"], "--port must lie in 0..65535"),
        (["verify", "run", "--no-data", "--strict"], "--no-data checks only the files"),
    ],
)
def test_values_are_checked_before_anything_is_read(argv: list[str], words: str, call: Call) -> None:
    found = call(*argv)
    assert (found.code, words in found.last_line) == (2, True)


def test_python_has_the_same_checks() -> None:
    with pytest.raises(UsageError, match="give one of them"):
        RunOptions(resume=True, overwrite=True)
    with pytest.raises(UsageError, match="--checkpoint-seconds must be 0 or more"):
        RunOptions(checkpoint_seconds=-1)

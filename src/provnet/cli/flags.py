"""The classes of `provnet.base.options` as flags of the command line, and objects of them from what was given."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from provnet.base.options import Leaf, Options, leaves, parts

Kind = TypeVar("Kind", bound=Options)


def callback(kind: type[Options], run: Callable[[Any], None]) -> Callable[..., None]:
    """A function for typer: its parameters are the options of a class, and it calls `run` with an object of it."""

    def call(**values: Any) -> None:
        values.pop(_ALL.name, None)
        run(options_from(kind, values))

    found = [_parameter(one) for one in leaves(kind)]
    found += [_ALL] if any(one.option.rare for one in leaves(kind)) else []
    call.__signature__ = inspect.Signature(found)  # type: ignore[attr-defined]
    call.__annotations__ = {one.name: one.annotation for one in found}
    return call


def options_from(kind: type[Kind], values: dict[str, Any]) -> Kind:
    """An object of a class, with its parts, from values by the names of their fields.

    >>> from provnet.base.options import Train
    >>> asked = options_from(Train, {"data": "mnist", "out": Path("runs/a"), "epochs": 3})
    >>> asked.recipe.epochs, asked.network.head
    (3, 'auto')
    """
    own = {one.name: values[one.name] for one in fields(kind) if one.name in values}  # type: ignore[arg-type]
    own |= {name: options_from(part, values) for name, part in parts(kind).items()}
    return kind(**own)


def _parameter(one: Leaf) -> inspect.Parameter:
    option, needed = one.option, one.default is MISSING
    more: dict[str, Any] = {"help": option.help, "metavar": option.metavar}
    more |= {"parser": folder_name} if option.folder else {}
    if option.word:
        info = typer.Argument(show_default=False, **more)
    else:
        more |= {"show_default": False} if needed else {}
        info = typer.Option(*_names(one), rich_help_panel=one.panel, hidden=option.rare, **more)
    hint = str | None if one.hint is Any else one.hint
    default = inspect.Parameter.empty if needed else one.default
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(one.name, kind, default=default, annotation=Annotated[hint, info])


def _names(one: Leaf) -> list[str]:
    """A flag that is off unless given has no other form; one that is on, or left to the rest, can be turned off."""
    if one.default is True or one.hint == bool | None:
        return [f"{one.flag}/{one.flag.replace('--', '--no-', 1)}"]
    return [one.flag, one.option.short] if one.option.short else [one.flag]


def folder_name(text: str | Path) -> Path:
    """The folder that --out names; an empty name, which would mean the folder that one is in, is refused.

    >>> folder_name("runs/1").parts
    ('runs', '1')
    """
    if text == "":
        raise typer.BadParameter("the name of the folder is empty; give one, or . for the folder that you are in")
    return Path(text)


def _show_all(context: typer.Context, wanted: bool) -> None:
    """Help with the options that are rarely needed, too."""
    if not wanted:
        return
    hidden: list[Any] = [one for one in context.command.params if getattr(one, "hidden", False)]
    for one in hidden:
        one.hidden = False
    try:
        typer.echo(context.get_help())
    finally:
        for one in hidden:
            one.hidden = True
    raise typer.Exit()


_ALL = inspect.Parameter(
    "help_all",
    inspect.Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[
        bool, typer.Option("--help-all", help="Show all options and exit.", callback=_show_all, is_eager=True)
    ],
)

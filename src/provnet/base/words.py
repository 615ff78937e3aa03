"""The words of a command: options as its arguments, paths and texts as a shell takes them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from provnet.base.options import Leaf, Options, leaves


def to_argv(asked: Options) -> list[str]:
    """The words of a command that ask for the same, without defaults; `provnet.cli.flags.options_from` is the way back.

    >>> from provnet.base.options import DataOptions, Train
    >>> to_argv(Train(data="my data", out=Path("-a"), opening=DataOptions(size=(64, 48), skip_bad=True)))
    ['my data', '--out', './-a', '--size', '64x48', '--skip-bad']
    """
    words: list[str] = []
    flags: list[str] = []
    for one in leaves(type(asked)):
        value: Any = asked
        for name in one.path:
            value = getattr(value, name)
        if one.option.word:
            words += [] if value is None else map(_word, value if isinstance(value, list) else [value])
        elif value != one.default:
            flags += _flag(one, value)
    return [*flags, "--", *words] if any(word.startswith("-") for word in words) else [*words, *flags]


def _flag(one: Leaf, value: Any) -> Iterable[str]:
    if isinstance(value, bool):
        return [one.flag if value else one.flag.replace("--", "--no-", 1)]
    if isinstance(value, list):
        return [word for each in value for word in (one.flag, _word(each))]
    if isinstance(value, tuple) and one.name == "size":
        return [one.flag, "x".join(map(str, value))]
    return [one.flag, *map(_word, value if isinstance(value, tuple) else [value])]


def _word(value: Any) -> str:
    """One word; a path that looks like a flag is told from one.

    >>> _word(0.5), _word(255.0), _word(Path("-a"))
    ('0.5', '255', './-a')
    """
    text = f"{value:.15g}" if isinstance(value, float) else str(value)
    return f"./{text}" if isinstance(value, Path) and text.startswith("-") else text


def path_word(path: os.PathLike[str] | str) -> str:
    """A path as a word of a command that can be pasted into a shell.

    >>> path_word("my runs/a"), path_word("-dash"), path_word("runs/a")
    ("'my runs/a'", './-dash', 'runs/a')
    """
    text = os.fspath(path)
    return shell_word(f"./{text}" if text.startswith("-") else text)


def shell_word(text: str) -> str:
    """One word for a shell. What a terminal does not show is written as bash and zsh take it, in $'...'.

    >>> shell_word("a b"), shell_word("it's\\n")
    ("'a b'", "$'it\\\\'s\\\\x0a'")
    """
    return shlex.quote(text) if text.isprintable() else f"$'{''.join(map(_escaped, text))}'"


def _escaped(sign: str) -> str:
    if sign.isprintable():
        return f"\\{sign}" if sign in "\\'" else sign
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(sign))


def shell_words(words: Sequence[str]) -> str:
    """Several of them, each with a blank in front.

    >>> shell_words(["--out", "my runs"])
    " --out 'my runs'"
    """
    return "".join(f" {shell_word(word)}" for word in words)

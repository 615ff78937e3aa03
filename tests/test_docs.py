"""The documents are true: their code and notebooks run, links lead somewhere, options and names exist."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from PIL import Image

import provnet
from provnet.cli import main
from provnet.cli.app import commands
from provnet.training.config import PRESETS
from tests.cases import cases
from tests.test_layers import ROOMS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(ROOT.glob("docs/**/*.md"))
EXAMPLES = sorted(ROOT.glob("examples/*.py"))
COMMANDS: dict[str, Any] = commands().commands


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


class Block(NamedTuple):
    """A fenced block: its language, its content, and the line that it begins in."""

    language: str
    text: str
    line: int


def blocks(page: Path, *languages: str) -> list[Block]:
    """The fenced blocks of a page in some languages."""
    text = page.read_text("utf-8")
    text = text.replace("```{code-cell} python", "```python")  # the cells of a notebook
    found = re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    every = [Block(m[1], m[2], text[: m.start()].count("\n") + 2) for m in found]
    return [block for block in every if block.language in languages]


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """An empty folder to work in, one epoch, and 200 samples of every data set that is opened through `provnet`."""
    real = provnet.open_data
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(PRESETS, "fast", replace(PRESETS["fast"], epochs=1))
    monkeypatch.setattr(provnet, "open_data", lambda *given, **options: real(*given, **{"limit": 200, **options}))
    return provnet.open_data


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=name_of)
def test_python_blocks_run(page: Path, small: Callable[..., Any]) -> None:
    if "runs/demo" in "".join(block.text for block in blocks(page, "python")):
        provnet.ProvenanceClassifier().fit(small("embedded")).save("runs/demo")
    names: dict[str, Any] = {}
    for block in blocks(page, "python"):
        code = "\n" * (block.line - 1) + block.text  # so that a traceback names the line of the page
        exec(compile(code, str(page), "exec"), names)


def test_readme_shows_eight_lines_and_what_they_print(
    small: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = blocks(ROOT / "README.md", "python")
    (shown,) = blocks(ROOT / "README.md", "text")
    assert len([line for line in example.text.splitlines() if line]) == 8
    exec(example.text, {})
    assert form(capsys.readouterr().out) == form(shown.text)


def form(text: str) -> list[str]:
    """Lines without the values that depend on training."""
    plain = re.sub(r"[0-9a-f]{12}$", "HASH", text.replace("no supporting sample", "supported"), flags=re.MULTILINE)
    return re.sub(r"\d+", "0", plain).splitlines()


def test_commands_of_the_quick_start_run(small: Callable[..., Any]) -> None:
    lines = [line for block in blocks(ROOT / "docs/quickstart.md", "bash") for line in block.text.splitlines()]
    assert len(lines) == 5
    for line in lines:
        assert main(shlex.split(line)[1:]) == 0, line
    assert {path.name for path in Path.cwd().iterdir()} >= {"because.html", "because.png", "runs"}


def written_commands() -> list[tuple[str, str]]:
    """(page, command line) of every `provnet ...` in a block or in running text."""
    found = []
    for page in PAGES:
        lines = [line for block in blocks(page, "bash") for line in block.text.splitlines()]
        lines += [" ".join(span.split()) for span in re.findall(r"`(provnet [^`]+)`", prose(page))]
        found += [(name_of(page), line) for line in lines if line.startswith("provnet ")]
    return found


def options(command: str) -> set[str]:
    """Every option of a command but help."""
    found = {name for parameter in COMMANDS[command].params for name in (*parameter.opts, *parameter.secondary_opts)}
    return {name for name in found if name.startswith("-")}


@cases(("page", "line"), written_commands())
def test_written_commands_and_options_exist(page: str, line: str) -> None:
    words = line.split()
    given = {word for word in words[1:] if re.fullmatch(r"--?[a-z][a-z-]*", word)}
    if words[1] == "COMMAND" or words[1].startswith("-"):
        assert given <= {"--help", "--version", "--debug"}
        return
    assert words[1] in COMMANDS, f"{page}: {line}"
    assert given <= options(words[1]) | {"--help", "--debug"}, f"{page}: {line}"


def test_command_line_page_lists_every_command_and_option_and_no_other() -> None:
    text = (ROOT / "docs/command-line.md").read_text("utf-8")
    sections = dict(re.findall(r"^## provnet (\w+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    assert set(sections) == set(COMMANDS)
    for command, section in sections.items():
        cells = "".join(re.findall(r"^\| (`-.*?) \|", section, re.MULTILINE))
        assert set(re.findall(r"`(--?[a-z][a-z-]*)`", cells)) == options(command), command


def anchors(page: Path) -> set[str]:
    """What a link may put after `#`: headings as GitHub names them."""
    titles = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@cases("page", PAGES)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?://)([^)#\s]*)(?:#([^)\s]*))?\)", prose(page))
    for target, anchor in links:
        goal = (page.parent / target).resolve() if target else page
        assert goal.exists(), f"{target} does not exist"
        assert goal.is_relative_to(ROOT), f"{target} leads out of the repository"
        assert not anchor or anchor in anchors(goal), f"{target}#{anchor}: no such heading"


def test_every_page_can_be_reached() -> None:
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        reached.add(page)
        found = re.findall(r"\]\(([^)#\s:]+\.md)(?:#[^)]*)?\)", prose(page))
        waiting += [goal for link in found if (goal := (page.parent / link).resolve()) not in reached]
    assert set(PAGES) <= reached


@cases("page", PAGES)
def test_names_of_the_library_exist(page: Path) -> None:
    for name in re.findall(r"`(provnet(?:\.\w+)+)", page.read_text("utf-8")):
        found: Any = provnet
        for part in name.split(".")[1:]:
            where = f"{found.__name__}.{part}" if isinstance(found, ModuleType) else ""
            is_module = where and importlib.util.find_spec(where) is not None if hasattr(found, "__path__") else False
            found = (
                importlib.import_module(where) if is_module and part not in provnet.__all__ else getattr(found, part)
            )


def test_the_page_of_rooms_lists_every_room_and_no_other() -> None:
    listed = re.findall(r"^\| `([\w/]+)` \|", (ROOT / "docs/rooms.md").read_text("utf-8"), re.MULTILINE)
    assert [name.removeprefix("provnet/") for name in listed] == list(ROOMS)


@pytest.mark.parametrize("path", EXAMPLES, ids=name_of)
def test_examples_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert f"python examples/{path.name}" in str(module.__doc__)
    wanted = inspect.signature(module.main).parameters
    assert all(parameter.default is not parameter.empty for parameter in wanted.values()), "runs as it is"
    module.main(epochs=1, limit=100)


def test_pictures_are_small_and_shown() -> None:
    pictures = sorted((ROOT / "docs/images").iterdir())
    text = "".join(page.read_text("utf-8") for page in PAGES)
    assert pictures
    for path in pictures:
        assert path.stat().st_size < 300_000
        assert path.name in text
        with Image.open(path) as picture:
            picture.verify()

"""The project's own files: ranges and pins agree, CI runs what the README says, nothing names one machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import provnet
from tests.cases import cases

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
INSTALLED = ("dev", "plots", "app")  # the extras that `make setup` installs


def pins() -> dict[str, str]:
    """Name -> version of constraints.txt."""
    lines = [line for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines() if not line.startswith("#")]
    found = [line.split("==") for line in lines if line.strip()]
    assert all(len(parts) == 2 for parts in found), "constraints.txt holds name==version and nothing else"
    return {canonicalize_name(name): version for name, version in found}


def requirements(*extras: str) -> list[Requirement]:
    """What provnet needs, with some extras."""
    project = PROJECT["project"]
    texts = [*project["dependencies"], *(text for extra in extras for text in project["optional-dependencies"][extra])]
    return [Requirement(text) for text in texts]


@cases("needed", requirements(*INSTALLED, "docs"), ids=str)
def test_pins_lie_in_the_ranges(needed: Requirement) -> None:
    version = pins().get(canonicalize_name(needed.name))
    assert version is not None, f"{needed.name} has no pin in constraints.txt"
    assert needed.specifier.contains(version), f"{needed} and {needed.name}=={version} contradict each other"


def test_every_dependency_has_a_range() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    assert [str(needed) for needed in requirements(*extras) if not needed.specifier] == []
    assert set(INSTALLED) <= set(extras)
    assert "-e '.[{}]'".format(",".join(INSTALLED)) in MAKEFILE


def test_extras_hold_only_what_is_imported() -> None:
    places = ("src", "tests/integrations", "examples/integrations")
    text = "\n".join(path.read_text("utf-8") for place in places for path in (ROOT / place).rglob("*.py"))
    extras = {name: texts for name, texts in PROJECT["project"]["optional-dependencies"].items() if name != "dev"}
    del extras["docs"]  # what builds the site
    names = {Requirement(one).name.removesuffix("-cpu") for texts in extras.values() for one in texts}
    modules = {name.replace("-", "_") for name in names}
    assert {name for name in modules if not re.search(rf"^\s*(?:from|import) {name}\b", text, re.MULTILINE)} == set()


def test_pins_are_unique() -> None:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    assert len(pins()) == len([line for line in lines if line.strip() and not line.startswith("#")])


def test_the_version_is_written_once_and_is_the_newest_of_the_changelog() -> None:
    released = re.findall(r"^## \[(\d[^\]]*)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "src/provnet/base/__init__.py"
    assert provnet.__version__ == released[0]


def test_licence_is_apache_in_full() -> None:
    text = (ROOT / "LICENSE").read_text("utf-8")
    assert PROJECT["project"]["license"] == "Apache-2.0"
    assert all(words in text for words in ("Version 2.0, January 2004", "9. Accepting", "END OF TERMS AND CONDITIONS"))


def test_ci_runs_make_test_and_nothing_else() -> None:
    script = ROOT / ".ci/run"
    assert os.access(script, os.X_OK)
    commands = [line for line in script.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    assert commands == ["set -euo pipefail", 'cd "$(dirname "$0")/.."', "make test"]


def test_make_test_is_lint_types_tests_and_wheel_with_warnings_as_errors() -> None:
    (parts,) = re.findall(r"^test: ([a-z ]+) ##", MAKEFILE, re.MULTILINE)
    assert parts.split() == ["lint", "types", "unit", "wheel"]
    assert PROJECT["tool"]["pytest"]["ini_options"]["filterwarnings"] == ["error"]
    assert PROJECT["tool"]["mypy"]["strict"] is True


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}  # may run under make
    command = ["make", "--no-print-directory", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env)


def test_make_help_lists_every_target() -> None:
    targets = re.findall(r"^([a-z]+):", MAKEFILE, re.MULTILINE)
    (phony,) = re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert sorted(phony.split()) == sorted(targets)
    lines = make("help").stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [["make", target] for target in targets]
    assert all(len(line.split()) > 2 and len(line) < 100 for line in lines)


@pytest.mark.parametrize(
    ("without", "named"),
    [
        ("*ensurepip*", f"apt-get install python{sys.version_info[0]}.{sys.version_info[1]}-venv"),
        ("*version_info*", "needs Python 3.11 or newer"),
    ],
)
def test_a_machine_that_lacks_something_is_told_what(tmp_path: Path, without: str, named: str) -> None:
    python = tmp_path / "python"
    second = without == "*ensurepip*"
    python.write_text(f'#!/bin/sh\ncase "$*" in {without}) exit 1;; *) exec "{sys.executable}" "$@";; esac\n')
    python.chmod(0o755)
    done = make("setup", f"PYTHON={python}", f"VENV={tmp_path / 'venv'}")
    assert done.returncode == 2
    assert named in done.stderr.splitlines()[0]
    assert second or str(python) in done.stderr
    assert not (tmp_path / "venv").exists()


def tracked() -> list[Path]:
    """Every tracked file, or a skip where this is no git checkout."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("not a git checkout")
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    return [ROOT / os.fsdecode(name) for name in done.stdout.split(b"\0") if name]


def findings(text: str) -> list[str]:
    """Folders of one machine and hosts of package indexes that a text names."""
    return re.findall(
        r"(?<![\w.])/(?:root|work|home|Users)/\w+|pypi\.org|pythonhosted\.org|download\.pytorch\.org|anaconda\.org|index-url",
        text,
    )


@pytest.mark.parametrize("text", ["see /home/me", "open('/root/x')", "https://pypi.org/simple", "--extra-index-url x"])
def test_the_search_finds_what_it_looks_for(text: str) -> None:
    assert len(findings(text)) == 1


def test_no_tracked_file_names_a_machine_or_a_package_index() -> None:
    files = [path for path in tracked() if path.is_file() and path != Path(__file__)]
    texts = {path: path.read_text("utf-8", "replace") for path in files if path.suffix not in (".safetensors", ".xz")}
    assert {path.name: found for path, text in texts.items() if (found := findings(text))} == {}

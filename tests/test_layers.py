"""Imports point one way: a room imports only itself and rooms that stand before it in this list."""

from __future__ import annotations

import ast
from pathlib import Path

import provnet
from tests.cases import cases

SOURCE = Path(provnet.__file__).parent
SIBLINGS = ("provnet_paper", "provnet_app")
ROOMS = (
    *("base", "samples", "data", "heads", "tasks", "models", "runs"),
    *("influence", "report", "answers", "training", "attached", "tools", "api"),
    *(*SIBLINGS, "cli"),
)


def imports(source: str) -> list[str]:
    """The rooms that a piece of source imports, wherever in the file it does."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: write the import in full"
            parts = (node.module or "").split(".")
            found += [[*parts, alias.name] for alias in node.names]
        elif isinstance(node, ast.Import):
            found += [alias.name.split(".") for alias in node.names]
    inside = [parts[1] for parts in found if parts[0] == "provnet" and len(parts) > 1]
    rooms = [name for name in inside if name in ROOMS or name not in provnet.__all__]
    return rooms + [parts[0] for parts in found if parts[0] in SIBLINGS]


def violations(own: str, source: str) -> list[str]:
    """What a module of the room `own` may not import."""
    below = ROOMS[: ROOMS.index(own)]
    return [name for name in imports(source) if name != own and name not in below]


def test_imports_point_one_way() -> None:
    modules = {path: path.relative_to(SOURCE).parts[0] for path in SOURCE.rglob("*.py") if path.parent != SOURCE}
    modules |= {path: room for room in SIBLINGS for path in (SOURCE.parent / room).rglob("*.py")}
    assert set(modules.values()) == set(ROOMS)
    found = {str(path): violations(room, path.read_text("utf-8")) for path, room in modules.items()}
    assert {path: rooms for path, rooms in found.items() if rooms} == {}


def test_two_files_stand_at_the_root() -> None:
    assert sorted(path.name for path in SOURCE.glob("*.py")) == ["__init__.py", "__main__.py"]


def test_no_room_has_the_name_of_a_public_function() -> None:
    """`import provnet.explain.x` would put the package in the place of the function `provnet.explain`."""
    assert set(ROOMS) & set(provnet.__all__) == set()


MOST = 8
AUTOGRAD = {"index_cross_entropy", "sampled_cross_entropy"}  # of heads/losses.py: what the gradient needs, by name
AS_SCIKIT_LEARN = {"ProvenanceClassifier.__init__"}
RECORDS = {"Dataset.__init__", "SampleTable.__init__"}  # one parameter for each field


def wide(source: str) -> set[str]:
    """The public functions and methods with more than MOST parameters, those of classes by class and name."""
    found = set()

    def look(body: list[ast.stmt], before: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                look(node.body, f"{node.name}.")
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                given = node.args
                names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
                public = not node.name.startswith("_") or node.name == "__init__"
                if public and len([name for name in names if name not in ("self", "cls")]) > MOST:
                    found.add(f"{before}{node.name}")

    look(ast.parse(source).body, "")
    return found


def test_no_public_function_takes_more_than_eight_parameters() -> None:
    """Options are a frozen dataclass of `provnet.base.options` instead."""
    found: set[str] = set()
    for root in (SOURCE, *(SOURCE.parent / name for name in SIBLINGS)):
        for path in root.rglob("*.py"):
            most = wide(path.read_text("utf-8"))
            found |= most - AUTOGRAD if path.parts[-2:] == ("heads", "losses.py") else most
    assert found == AS_SCIKIT_LEARN | RECORDS


def test_wide_functions_are_found() -> None:
    names = ", ".join("abcdefghi")
    assert wide(f"def f({names}): ...\ndef _g({names}): ...\nclass C:\n    def m(self, {names[3:]}): ...") == {"f"}
    assert wide(f"class C:\n    def __init__(self, *, {names}): ...") == {"C.__init__"}


@cases(
    ("own", "source", "found"),
    [
        ("data", "from provnet.models.network import x", ["models"]),
        ("data", "def f():\n    import provnet.cli", ["cli"]),
        ("base", "from provnet import data", ["data"]),
        ("api", "import provnet_app.server", ["provnet_app"]),
        ("models", "from provnet.brand_new import x", ["brand_new"]),
        ("tools", "from provnet.base.errors import x\nfrom provnet.heads.heads import y\nimport torch", []),
    ],
)
def test_the_walk_finds_what_it_looks_for(own: str, source: str, found: list[str]) -> None:
    assert violations(own, source) == found

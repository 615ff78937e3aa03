"""Imports point one way: a module imports only what stands before it in this list (or lies in its own package)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import provnet

SOURCE = Path(provnet.__file__).parent
LAYERS = (
    "errors",
    "processes",
    "indexing",
    "chunks",
    "atomic",
    "data",
    # keys of samples: kept, compared, found
    "keybank",
    "ranks",
    "retrieval",
    "ann",
    "sharding",
    "loss_checks",
    "index_loss",
    "sampled_loss",
    "models",
    "objective",
    # scores to samples, and when to say "none"
    "equal",
    "attribution",
    "support",
    # files
    "foreign",
    "safejson",
    "safefile",
    "fileset",
    "card",
    "samplefile",
    "runconfig",
    "rebuild",
    "modelfile",
    # arrays as people give them
    "inputs",
    # training and what is measured
    "training",
    "labelled",
    "stats",
    "curves",
    "bootstrap",
    "metrics",
    "metrics_generation",
    "report",
    "notebook",
    "named",
    "explanation",
    "evaluation",
    "generation",
    "newcomers",
    "bank",
    "applications",
    # faces
    "estimator",
    "hub",
    "verify",
    "decisions",
    "experiments",
    "app",
    "cli",
    "__main__",
)
MODULES = sorted(SOURCE.rglob("*.py"))


def layer(path: Path) -> str:
    """`data/images.py` -> `data`, `errors.py` -> `errors`; the package's own `__init__` has none."""
    first = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    return "" if first == "__init__" else first


def imports(source: str) -> list[str]:
    """The layers of provnet that a piece of source imports, wherever in the file it does."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: write the import in full"
            parts = (node.module or "").split(".")
            if parts == ["provnet"]:
                found += [alias.name for alias in node.names]
            elif parts[0] == "provnet":
                found.append(parts[1])
        elif isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
            found += [name[1] for name in names if name[0] == "provnet" and len(name) > 1]
    return [name for name in found if name not in ("__version__",)]


def violations(own: str, source: str) -> list[str]:
    """What a module of layer `own` may not import."""
    below = LAYERS[: LAYERS.index(own)]
    return [name for name in imports(source) if name != own and name not in below]


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_downwards(path: Path) -> None:
    own = layer(path)
    if own == "":  # the public names, loaded when first used
        return
    assert own in LAYERS, f"{path.name} has no place in LAYERS yet: put it where it belongs"
    assert violations(own, path.read_text("utf-8")) == []


def test_the_list_names_each_module_once() -> None:
    assert len(set(LAYERS)) == len(LAYERS)


@pytest.mark.parametrize(
    ("own", "source", "found"),
    [
        ("data", "from provnet.models.config import x", ["models"]),
        ("data", "def f():\n    import provnet.cli", ["cli"]),
        ("errors", "from provnet import indexing", ["indexing"]),
        ("modelfile", "from provnet.training import fit", ["training"]),
        ("modelfile", "from provnet.brand_new import x", ["brand_new"]),
        ("models", "from provnet.errors import x\nfrom provnet.models.heads import y\nimport torch", []),
    ],
)
def test_the_walk_finds_what_it_looks_for(own: str, source: str, found: list[str]) -> None:
    assert violations(own, source) == found

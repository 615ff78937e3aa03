"""One way from what a head says to a sample of a run: `answers.attributor`. No other module that asks has the means."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import provnet

SOURCE = Path(provnet.__file__).parent
ASKING = ("provnet/report", "provnet/answers", "provnet/training", "provnet/tools", "provnet/api", "provnet/cli")
ASKING += ("provnet_app", "provnet_paper")
WAY = {"provnet/answers/attributor.py"}
IMPORTS = {"attribute", "weights_of", "restrict_network"}  # what gives positions that a network counts
GIVEN = {"index_scores", "to_index", "order", "_kept", "_named", "_places", "_output", "_scores", "_by"}
NOT_OF_A_HEAD = {"self", "wanted"}  # have an `order` and private names of their own
ALLOWED = {
    ("provnet/tools/membership/compute.py", "restrict_network"): "draws new weights for a network of few samples",
}


def second_paths(source: str) -> set[str]:
    """What in a piece of source could name a sample without the attributor."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("provnet.answers", "provnet.models")):
            found |= {alias.name for alias in node.names} & IMPORTS
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[-1] for alias in node.names} & IMPORTS
        elif isinstance(node, ast.Attribute) and node.attr in GIVEN:
            own = isinstance(node.value, ast.Name) and node.value.id in NOT_OF_A_HEAD
            found |= set() if own else {node.attr}
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            asked = isinstance(node.func.value, ast.Name) and node.func.value.id in ("answered", "self")
            found |= {node.func.attr} if node.func.attr in ("best", "scores") and not asked else set()
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= {node.value} & GIVEN
    return found


def test_only_the_attributor_makes_a_sample_of_what_a_head_says() -> None:
    found = set()
    for path in [*SOURCE.rglob("*.py"), *(p for room in ASKING[-2:] for p in (SOURCE.parent / room).rglob("*.py"))]:
        name = path.relative_to(SOURCE.parent).as_posix()
        if name.startswith(ASKING) and name not in WAY:
            found |= {(name, path_) for path_ in second_paths(path.read_text("utf-8"))}
    assert found == set(ALLOWED)


@pytest.mark.parametrize(
    ("planted", "noticed"),
    [
        ("from provnet.answers.attributor import attribute", "attribute"),
        ("from provnet.answers.attributor import weights_of", "weights_of"),
        ("from provnet.models.keys import restrict_network", "restrict_network"),
        ("index = net.scores(net(images)).best(5).index", "best"),
        ("scores = run.network.index_head.scores(*given)", "scores"),
        ("index = exemplar_head(net).best(features, classes, 1).index", "best"),
        ("index = net(images).index_scores.argmax(1)", "index_scores"),
        ("index = getattr(net(images), 'index_scores').argmax(1)", "index_scores"),
        ("sample = head.order[top_k(queries, head.bank, 1).row]", "order"),
        ("sample = head.to_index(slots, classes)", "to_index"),
        ("index = ask._kept[found]", "_kept"),
        ("scores = answered._scores", "_scores"),
    ],
)
def test_a_second_path_is_noticed_where_somebody_plants_it(planted: str, noticed: str) -> None:
    credit = (SOURCE / "tools" / "credit" / "compute.py").read_text("utf-8")
    assert second_paths(credit) == set()
    assert noticed in second_paths(f"{credit}\n\n{planted}\n")

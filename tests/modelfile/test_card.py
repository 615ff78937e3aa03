"""The model card: true, in the Hub's form, and nothing in a name becomes markup."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
import yaml

from provnet.card import escape, model_card
from provnet.modelfile import read_run, write_run

from .made import make_run

HOSTILE = (
    "<script>alert(1)</script>", "---\nlicense: evil", "| a | b |", "[x](javascript:alert(1))", "![x](http://a/b.png)",
    "`code`", "# title", "\x1b[2J", "a\u202eb", "&lt;", "p\udcff", "http://tracker.example/x", "@everyone", "$$x$$",
)  # fmt: skip


def front_of(card: str) -> dict[str, object]:
    _, front, _ = card.split("---\n", 2)
    value = yaml.safe_load(front)
    assert isinstance(value, dict)
    return value


def test_the_front_matter_is_what_the_hub_expects(tmp_path: Path) -> None:
    write_run(make_run(), tmp_path)
    front = front_of((tmp_path / "README.md").read_text("utf-8"))
    assert front["library_name"] == "provnet"
    assert front["license"] == "other"
    assert isinstance(front["tags"], list)
    assert front["pipeline_tag"] == "tabular-classification"


def test_the_card_warns_says_what_it_is_and_how_sure(tmp_path: Path) -> None:
    run = make_run()
    write_run(run, tmp_path)
    card = (tmp_path / "README.md").read_text("utf-8")
    assert "An index head reveals membership" in card
    assert run.samples.fingerprint in card
    assert read_run(tmp_path).samples.content_root in card
    assert r"| class\_accuracy | 0.5000 | 0.2000 to 0.8000 | 10 |" in card
    assert "provnet.load(" in card


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_becomes_markup(name: str) -> None:
    run = make_run()
    names = (name, *run.samples.class_names[1:])
    samples = dataclasses.replace(run.samples, class_names=names)
    data = dataclasses.replace(run.config.data, source=name) if run.config.data else None
    clean = model_card(run.config.network, 1, run.samples, data=run.config.data)
    card = model_card(run.config.network, 1, samples, data=data, training={name: name}, evaluation={name: name})
    assert front_of(card) == front_of(clean)
    card.encode("utf-8", "strict")
    for mark in ("<script", r"(?<!\\)\]\(", r"(?<!\\)!\[", "\x1b", "\u202e", "http://"):
        assert not re.search(mark, card), mark
    lines = card.splitlines()
    assert [line for line in lines if line.startswith("#")] == [
        "# Provenance network: class-conditional", "## Network", "## Data", "## Evaluation", "## Trust checks",
        "## Training", "## Use",
    ]  # fmt: skip
    assert lines.count("---") == 2
    for line in lines:
        if line.startswith("| ") and "95 %" not in line:
            assert len(re.findall(r"(?<!\\)\|", line)) in (3, 5), line


def test_escaped_text_is_short_and_one_line() -> None:
    assert len(escape("x" * 10_000)) < 100
    assert "\n" not in escape("a\nb\r\u2028c")


def test_nested_measures_keep_the_name_of_their_group() -> None:
    run = make_run()
    interval = {"value": 0.25, "n": 4, "low": 0.0, "high": 1.0}
    card = model_card(run.config.network, 1, run.samples, evaluation={"perturbed": {"noise": interval}})
    assert "| perturbed / noise | 0.2500 | 0.0000 to 1.0000 | 4 |" in card

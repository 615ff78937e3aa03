"""The model card: true, in the Hub's form, and nothing in a name becomes markup."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import yaml

from provnet.runs.card import audit_figures, bank_state, escape, model_card
from provnet.runs.run import Run, read_run, write_run
from provnet.samples.identity import SampleTable
from provnet.tools.membership.compute import audit
from tests.cases import cases
from tests.digits import trained, training, unseen

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


def card_of(run: Run, samples: SampleTable, **changes: Any) -> str:
    return model_card(dataclasses.replace(run.config, **changes), 1, samples)


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


@cases("name", HOSTILE)
def test_no_name_becomes_markup(name: str) -> None:
    run = make_run()
    names = (name, *run.samples.class_names[1:])
    samples = dataclasses.replace(run.samples, class_names=names)
    data = dataclasses.replace(run.config.data, source=name) if run.config.data else None
    clean = card_of(run, run.samples)
    card = card_of(
        run,
        samples,
        data=data,
        training={name: name},
        evaluation={name: name},
        audit={"samples": bank_state(samples), "members": name, "nonmembers": name, "figures": {name: {name: name}}},
    )
    assert front_of(card) == front_of(clean)
    card.encode("utf-8", "strict")
    for mark in ("<script", r"(?<!\\)\]\(", r"(?<!\\)!\[", "\x1b", "\u202e", "http://"):
        assert not re.search(mark, card), mark
    lines = card.splitlines()
    assert [line for line in lines if line.startswith("#")] == [
        "# Provenance network: class-conditional", "## Network", "## Data", "## Evaluation", "## Trust checks",
        "## Membership audit", "## Training", "## Versions", "## Use",
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
    card = card_of(run, run.samples, evaluation={"perturbed": {"noise": interval}})
    assert "| perturbed / noise | 0.2500 | 0.0000 to 1.0000 | 4 |" in card


def test_a_figure_without_ends_has_no_interval() -> None:
    run = make_run()
    alone = {"value": 0.25, "n": 1, "low": None, "high": None}
    card = card_of(run, run.samples, evaluation={"error": alone, "rate": {"value": 0.5, "n": 2}})
    assert "| error | 0.2500 |  | 1 |" in card
    assert "| rate | 0.5000 |  | 2 |" in card


def interval(value: float | None, n: int = 8) -> dict[str, float | int | None]:
    return {"value": value, "n": n, "low": 0.25, "high": 0.75}


AUDIT = {
    "members": 5,
    "nonmembers": 3,
    "scores": {
        "contrast": {
            "auc": interval(0.9),
            "tpr_at_fpr": {"0.01": {"tpr": interval(0.5, 5)}, "0.001": {"tpr": interval(None)}},
        }
    },
    "null": {"about": "drawn anew", "auc": {"contrast": interval(0.5)}},
}


def test_the_card_holds_what_an_audit_measured(tmp_path: Path) -> None:
    run = make_run()
    assert "Not audited when this card was written" in card_of(run, run.samples)
    audited = dataclasses.replace(run.config, audit=audit_figures(AUDIT, run.samples))
    write_run(dataclasses.replace(run, config=audited), tmp_path)
    again = read_run(tmp_path)
    assert again.config.audit == audited.audit
    card = (tmp_path / "README.md").read_text("utf-8")
    assert "How well 5 members of the training data are told from 3 nonmembers" in card
    assert "| contrast / AUC | 0.9000 | 0.2500 to 0.7500 | 8 |" in card
    assert "| contrast / found at FPR 0.01 | 0.5000 | 0.2500 to 0.7500 | 5 |" in card
    assert "| contrast / AUC of a network that saw neither | 0.5000 | 0.2500 to 0.7500 | 8 |" in card
    assert "0.001" not in card.split("## Membership audit")[1].split("##")[0]  # too few samples decide it


def test_figures_of_other_samples_are_not_shown() -> None:
    run = make_run()
    figures = audit_figures(AUDIT, run.samples)
    withheld = run.samples.withheld.copy()
    withheld[0] = True
    changed = dataclasses.replace(run.samples, withheld=withheld)
    card = card_of(run, changed, audit=figures)
    assert "Audited before samples were added, withheld or erased" in card
    assert "0.9000" not in card
    for broken in ({**figures, "figures": None}, {"figures": {}}, {"samples": 3}):
        assert "0.9000" not in card_of(run, run.samples, audit=broken)


def test_a_real_audit_fits_the_card() -> None:
    run, data, others = trained(), training(), unseen()
    found = audit(run, data, others, distort=False)
    figures = audit_figures(found.to_json(), run.samples)
    card = card_of(run, run.samples, audit=figures)
    best = found.scores[found.best()].auc
    assert f"| {escape(found.best())} / AUC | {best.value:.4f} | {best.low:.4f} to {best.high:.4f} | {best.n} |" in card
    assert set(figures["figures"]) == set(found.scores)
    assert f"How well {len(data)} members of the training data are told from {len(others)} nonmembers" in card


def test_test_samples_that_were_trained_on_are_not_called_unseen() -> None:
    run = make_run()
    rate = {"value": 1.0, "n": 9, "low": 0.9, "high": 1.0}
    card = card_of(run, run.samples, evaluation={"class_accuracy": rate, "test_in_training": 7})
    assert "**Of the test samples 7 are also samples of the run: not unseen.**" in card
    assert "not unseen" not in card_of(run, run.samples, evaluation={"class_accuracy": rate})

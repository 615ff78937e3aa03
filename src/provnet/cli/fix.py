"""`provnet fix`: correct labels of a run's data description, train again beside it, say what changed; or go back."""

from __future__ import annotations

from pathlib import Path

from provnet.base.errors import UsageError
from provnet.base.options import Fix
from provnet.base.stats import Interval
from provnet.base.words import path_word
from provnet.cli.output import emit_json, facts, note, say, show
from provnet.cli.rundata import begin
from provnet.cli.train import check_folder
from provnet.samples.decisions import read_decisions
from provnet.tools.debug.fix import FIXED, Fixed, is_unfinished, undo
from provnet.tools.debug.fix import fix as correct

SHOWN = 5


def fix(asked: Fix) -> None:
    """Apply decisions or certain suggestions, train again, compare."""
    if asked.undo:
        old, about = undo(asked.run)
        if asked.json:
            emit_json({"run": str(asked.run), "before": str(old), "changes": about.get("changes", [])})
            return
        say(f"{asked.run} was made from {old}, which is as it was; your data were never changed", "bold")
        say(f"go on with {path_word(old)}, and remove {path_word(asked.run)} if you do not need it")
        return
    if asked.out is None:
        raise UsageError("say where the new run is to be written: --out NEW; the old one stays as it is")
    if (asked.out / FIXED).exists():
        raise UsageError(f"{asked.out} already holds a run that fix made; choose another folder, new or empty")
    check_folder(asked.out, resume=is_unfinished(asked.out), overwrite=False)
    loaded, _, where = begin(asked)
    decisions = None if asked.decisions is None else read_decisions(asked.decisions)
    found = correct(
        loaded,
        asked.out,
        decisions=decisions,
        certainty=asked.certainty,
        leave_out=asked.leave_out,
        device=where,
        progress=True,
    )
    if asked.json:
        emit_json({"run": str(asked.out), "before_run": str(asked.run), **found.to_json()})
    else:
        _show(found, asked, asked.out)


def _show(found: Fixed, asked: Fix, out: Path) -> None:
    about = found.to_json()
    rows = [("changed in the new run", f"{about['relabelled']:,} relabelled, {about['dropped']:,} dropped")]
    if found.before.n:
        rows += [
            ("test accuracy before", str(found.before)),
            ("test accuracy after", str(found.after)),
            ("difference, same samples", _points(found.difference)),
            ("answers that changed", f"{len(found.answers):,} of {found.before.n:,}"),
        ]
    show(facts(rows))
    for one, label in zip(found.changes[:SHOWN], found.labels, strict=False):
        say(f"{one.sample_id}  {label} -> {one.new_label or 'dropped'}")
    if not found.before.n:
        note("the run has no test split, so nothing says whether it became better; give one with --test or --holdout")
    say(f"run written to {out}, its {FIXED} says what was changed; {asked.run} and the data are as they were", "bold")
    say(f"next: provnet evaluate {path_word(out)}; to go back: provnet fix {path_word(out)} --undo")


def _points(difference: Interval) -> str:
    assert difference.value is not None and difference.low is not None and difference.high is not None
    value, low, high = (100 * each for each in (difference.value, difference.low, difference.high))
    return f"{value:+.2f} points (95 %: {low:+.2f} to {high:+.2f}, paired, n = {difference.n:,})"

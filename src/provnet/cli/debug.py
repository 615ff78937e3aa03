"""`provnet debug`: probable label errors, odd and typical samples, duplicates; a report, CSVs, decisions to edit."""

from __future__ import annotations

from typing import Any

import numpy as np

from provnet.base.errors import UsageError
from provnet.base.files import brief
from provnet.base.options import Debug
from provnet.cli.output import (
    emit_json,
    facts,
    interval_cells,
    note,
    say,
    show,
)
from provnet.cli.rundata import begin, training_data
from provnet.cli.targets import write_into
from provnet.runs.data import Kept
from provnet.tools.debug.compute import DROP, KINDS, Debugging, share_flagged
from provnet.tools.debug.compute import debug as look
from provnet.tools.debug.files import CORRECTED, DECISIONS, DebugFiles, debug_files
from provnet.tools.debug.page import probability

CANNOT_TELL = (
    "few flags do not mean few wrong labels, and no label is suggested; samples.csv sorted by mislabel may still help"
)
FEW = 20  # samples of a class, below which its neighbours know little (docs/debugging.md, Limits)


def debug(asked: Debug) -> None:
    """Look for wrong labels, anomalies and duplicates among the training samples of a run."""
    if asked.review and (asked.out / DECISIONS).exists():
        raise UsageError(
            f"{asked.out / DECISIONS} is there already and may hold your edits; move it or give another --out"
        )
    loaded, _, _ = begin(asked, asked.out, [asked.data])
    found = training_data(loaded, asked.data, asked.data_dir)
    if loaded.history is None:
        note("the run kept no losses: labels are judged by the end of training alone, which hides memorised ones")
    result = look(loaded, found.kept.there, index=found.kept.index, progress=True)
    files = debug_files(loaded, result, found, asked)
    inputs = [asked.data, None if loaded.config.data is None else loaded.config.data.source]
    write_into(asked.out, files.contents, [asked.run], inputs)
    summary = _summary(result, asked.threshold, asked.certainty, found.kept)
    summary["corrected_left_out"] = sum(count for count, _ in files.corrected.left_out)
    _note_next(files, review=asked.review)
    _note_doubts(result, asked.threshold, files.memorised)
    if asked.json:
        emit_json({"run": str(asked.run), "out": str(asked.out), **summary, "files": sorted(files.contents)})
    else:
        _show(result, summary, asked, files)


def _note_next(files: DebugFiles, *, review: bool) -> None:
    """What corrected.csv and the suggested command do without."""
    corrected, bar, step = files.corrected, files.bar, files.next
    what, rest = ("leaves out", "on it") if corrected.is_manifest else ("drops", "with it")
    for count, words in corrected.left_out:
        note(f"{CORRECTED} {what} {_samples(count)}: {words}; training {rest} would do without", "warning")
    if step.command and bar.lacking and not corrected.is_manifest:
        note(f"the suggested command does without {_samples(bar.lacking)} added after training: not among its data")
    if step.why:
        note(f"no command to train again is suggested: {step.why}")
    if review and step.command and not step.applies:
        note(f"the suggested command takes {CORRECTED} alone, without what you change in {DECISIONS}", "warning")
    if review and bar.why:
        note(f"{DECISIONS} cannot keep all of them out: {bar.why}", "warning")


def _note_doubts(result: Debugging, threshold: float, memorised: str) -> None:
    """What the figures do not say: signals that are too weak, memorised labels, and classes with too few samples."""
    if result.mislabels.cannot_tell:
        note(f"cannot tell how many labels are wrong: {result.mislabels.cannot_tell}; {CANNOT_TELL}", "warning")
    if memorised:
        note(memorised)
    labels = result.samples.labels
    few = int((result.flagged(threshold) & (np.bincount(labels)[labels] < FEW)).sum())
    if few:
        what = "1 flagged label is of a class" if few == 1 else f"{few:,} flagged labels are of classes"
        note(f"{what} with fewer than {FEW} samples, whose neighbours know little: look before you correct", "warning")


def _samples(count: int) -> str:
    return "1 sample" if count == 1 else f"{count:,} samples"


def _summary(result: Debugging, threshold: float, certainty: float, kept: Kept) -> dict[str, Any]:

    flagged, wrong = result.flagged(threshold), result.mislabels
    interval, kinds = result.expected_interval, result.kinds(threshold)
    changed = result.advised(threshold, certainty) != result.samples.labels
    groups = result.duplicates.group
    return {
        "samples": len(result),
        "left_out": kept.left_out,
        "withheld": result.withheld,
        "threshold": threshold,
        "flagged": share_flagged(int(flagged.sum()), len(result), wrong.cannot_tell).to_json(),
        "expected_wrong": None if result.expected is None else round(result.expected, 3),
        "expected_interval": None if interval is None else [round(end, 3) for end in interval],
        "kinds": {kind: int((kinds == kind).sum()) for kind in KINDS},
        "certain_corrections": int((result.advised(threshold, certainty) >= 0)[changed].sum()),
        "certainly_wrong": result.certainly_wrong,
        "most_wrong": result.most_wrong,
        "cannot_tell": wrong.cannot_tell or None,
        "power": round(wrong.power, 4),
        "signals_off": dict(wrong.off),
        "memorised": None if wrong.cannot_tell else round(wrong.fitted, 4),
        "odd": int((result.anomalies.score >= 0.5).sum()),
        "duplicate_groups": int(groups.max()) + 1 if len(groups) else 0,
        "exact_duplicates": int(result.duplicates.exact.sum()),
        "conflicts": len(set(groups[result.duplicates.conflict].tolist())),
    }


def _show(result: Debugging, summary: dict[str, Any], asked: Debug, files: DebugFiles) -> None:
    threshold, out, how = asked.threshold, asked.out, files.next.command
    flagged = f"{int(result.flagged(threshold).sum()):,}"
    if result.expected is None:
        flagged += f" of {len(result):,}, which does not say how many are wrong"
        expected = f"cannot tell; at least {result.certainly_wrong:,}, at most about {result.most_wrong:,}"
    else:
        value, ends, n = interval_cells(summary["flagged"])
        flagged += f" ({value}, 95 %: {ends}, n = {n})"
        low, high = result.expected_interval or (result.expected, result.expected)
        ends = f"95 %: {low:,.0f} to {high:,.0f}"
        expected = f"about {result.expected:,.0f} ({ends}), at most about {result.most_wrong:,}"
    rows = [
        ("labels flagged", flagged),
        ("wrong labels expected", expected),
        ("something else, or bad", f"{summary['odd']:,}"),
        ("duplicate groups", f"{summary['duplicate_groups']:,}, {summary['conflicts']:,} with different labels"),
    ]
    told = [f"{count:,} {kind}" for kind, count in summary["kinds"].items() if count]
    rows.append(("kinds", ", ".join(told) or "nothing suspicious"))
    rows.append(("certain corrections", f"{summary['certain_corrections']:,}, at --certainty {asked.certainty:g}"))
    if summary["withheld"]:
        rows.append(("withheld, left out", f"{summary['withheld']:,}"))
    show(facts(rows))
    names = result.samples.class_names
    suspects = result.suspects(threshold)
    if not len(suspects):
        say(f"no label reaches {100 * threshold:g} %; these come nearest to it")
    whole = not len(suspects) or result.expected is None  # the order says more than the flags
    rows_shown = (result.ranking() if whole else suspects)[:5].tolist()
    scores = [probability(float(result.mislabels.score[row])) for row in rows_shown]
    advised, suggested = result.advised(threshold), result.suggested(threshold)
    for row, score in zip(rows_shown, scores, strict=True):
        label, other = (names[int(of[row])] for of in (result.samples.labels, result.mislabels.suggested))
        words = f"{result.samples.sample_ids[row]}  {brief(label)}"
        if advised[row] == DROP:
            words += f"; the same picture has the label {brief(other)}, and at least one of the two is wrong"
        elif other != label:  # of one class there is no other
            words += f", {'probably' if suggested[row] != result.samples.labels[row] else 'or else'} {brief(other)}"
        say(f"{score:>{max(7, *map(len, scores))}}  {words}")
    say(f"written to {out}: {', '.join(sorted(files.contents))}", "bold")
    if DECISIONS in how:
        as_it_is = "as it is it holds the suggestions"
        if result.mislabels.cannot_tell:
            as_it_is = "as it is it relabels nothing and drops only equal pictures under several labels"
        say(f"edit {out / DECISIONS} first: keep, drop, or relabel with a new_label; {as_it_is}")
    if how:
        say(f"next: {how}")

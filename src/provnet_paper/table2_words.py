"""Table 2 as Markdown, number by number beside the paper's, and one sentence wherever we differ from it."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from provnet_paper.beside import DASH, ends, mean_of, percent_of, spread, table, tally, verdict
from provnet_paper.judge import Known, Seen, Sign, known, with_luck
from provnet_paper.recipes import DATA, FIGURES, MAIN, SETTINGS
from provnet_paper.records import MISSED, Figure, Printed, Results, Standing, printed, standing

Remarks = Mapping[tuple[str, str, str], str]  # (data, setting, figure), "*" for all of a kind
BESIDE = {
    "class_accuracy": "class",
    "index_accuracy": "own index",
    "index_accuracy_learned": "learned",
    "index_at_5": "index@5",
    "end_to_end": "end to end",
    "index_accuracy_perturbed_noise": "noise",
    "index_accuracy_perturbed_shift": "shift",
    "index_accuracy_perturbed_jpeg": "JPEG",
    "any_at_1": "any@1",
    "any_at_5": "any@5",
    "majority_at_5": "majority@5",
    "joint_any_at_1": "joint@1",
}


@cache
def remarks(experiment: str) -> Remarks:
    """The sentences of remarks.csv on the numbers of an experiment.

    >>> remarks("table2")["mnist", "single-0", "any_at_1"]
    'As listed the layers have 166.38 M parameters; the paper says 129 M.'
    """
    with Path(__file__).with_name("remarks.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["experiment"] == experiment]
    return {(row["data"], row["setting"], row["figure"]): row["remark"] for row in rows}


def standings(results: Results) -> dict[Printed, Standing]:
    """Every number of the table with what we have of it."""
    found = {}
    for one in printed("2"):
        seeds = results.cells.get(f"{one.data}/{one.setting}", {}).values()
        ours = [result.figures[one.figure] for result in seeds if one.figure in result.figures]
        found[one] = standing(one.value, ours, compared=results.scale == "full")
    return found


def section_of(
    results: Results, known: Remarks, more: Mapping[str, str] | None = None, claims: Sequence[str] = ()
) -> list[str]:
    """The count of what was met, `claims`, then the data sets; `more`: cells that the paper's table has not."""
    found = standings(results)
    main = [one for number, one in found.items() if number.data in MAIN]
    if not results.cells and not results.absent:
        return [
            "Not run yet. The paper's numbers, class / index or top 1 / any of 5 / index:",
            "",
            *_paper_table(found),
        ]
    full = results.scale == "full"  # smaller scales have fewer rows, and no verdicts to count
    lines = [f"MNIST, FashionMNIST and CIFAR-10: {tally(main)} numbers."] if full else []
    for data, words in DATA.items() if full else ():
        others = [one for number, one in found.items() if number.data == data and data not in MAIN]
        if any(one.seeds for one in others):
            lines += ["", f"{words}: {tally(others)} numbers."]
    lines += claims
    for data, words in DATA.items():
        rows = {number: one for number, one in found.items() if number.data == data}
        if full or any(one.seeds for one in rows.values()):
            lines += ["", f"### {words}", "", *_data_set(results, data, rows, known, more or {})]
    return lines


def _data_set(
    results: Results, data: str, rows: Mapping[Printed, Standing], known: Remarks, more: Mapping[str, str]
) -> list[str]:
    if not any(cell.startswith(f"{data}/") for cell in results.cells):
        why = next((why for cell, why in results.absent.items() if cell.startswith(f"{data}/")), "")
        return [f"Not run{': ' + why if why else ' yet'}. The paper's numbers: {_paper_line(rows)}."]
    body = []
    for number, one in rows.items():
        setting, figure = SETTINGS[number.setting].words, FIGURES[number.figure]
        count = f"{one.n:,}" if one.n else DASH
        body.append((setting, figure, number.text, spread(one), str(one.seeds or DASH), count, ends(one), verdict(one)))
    head = ("network", "number", "paper", "ours", "seeds", "n", "95 % interval", "verdict")
    lines = table(head, body, left=2)
    unknown = known.get((data, "*", "*"), "**a miss without an explanation yet.**")
    said = [(number, _remark(known, number)) for number, one in rows.items() if one.seeds]
    said = [(number, text or unknown) for number, text in said if text or _bad(rows, number)]
    if said:
        lines += ["", "Where we differ:", ""]
        lines += [f"- {SETTINGS[n.setting].words}, {FIGURES[n.figure]}: {text}" for n, text in said]
    beside = (
        f"Beside it ({_counts(results, data)}means over seeds, per cent; seconds of one seed, one to three at a time):"
    )
    return [*lines, "", beside, "", *_beside(results, data, more)]


def _paper_table(found: Mapping[Printed, Standing]) -> list[str]:
    rows = []
    for data, words in DATA.items():
        texts = [[one.text for one in found if (one.data, one.setting) == (data, setting)] for setting in SETTINGS]
        rows.append((words, *(" / ".join(cell) for cell in texts)))
    return table(("data", *(setting.words for setting in SETTINGS.values())), rows)


def _counts(results: Results, data: str) -> str:
    """How many samples the rates below are counted on."""
    for cell, seeds in results.cells.items():
        for one in seeds.values() if cell.startswith(f"{data}/") else ():
            if "samples" in one.told:
                few = one.figures.get("index_accuracy_learned")
                learned = "" if few is None else f", learned n = {few[1]:,}"
                sizes = one.told["samples"]
                return f"unseen n = {sizes['test']:,}, training n = {sizes['train']:,}{learned}; "
    return ""


def _bad(rows: Mapping[Printed, Standing], number: Printed) -> bool:
    return rows[number].verdict == MISSED


def _paper_line(rows: Mapping[Printed, Standing]) -> str:
    parts: dict[str, list[str]] = {}
    for number in rows:
        parts.setdefault(SETTINGS[number.setting].words, []).append(number.text)
    return "; ".join(f"{setting} {' / '.join(texts)}" for setting, texts in parts.items())


def _remark(known: Remarks, number: Printed) -> str:
    """All sentences that hold for a number, the particular ones first."""
    keys = [
        (number.data, number.setting, number.figure),
        (number.data, number.setting, "*"),
        (number.data, "*", number.figure),
        ("*", number.setting, number.figure),
    ]
    return " ".join(known[key] for key in keys if key in known)


def _beside(results: Results, data: str, more: Mapping[str, str]) -> list[str]:
    """What belongs beside the compared numbers: copies, classes through the index, size and time."""
    names = {f"{data}/{setting}": chosen.words for setting, chosen in SETTINGS.items()}
    names |= {cell: words for cell, words in more.items() if cell.startswith(f"{data}/")}
    rows = []
    for cell, words in names.items():
        seeds = list(results.cells.get(cell, {}).values())
        if not seeds:
            rows.append((words, *[""] * len(BESIDE), "", "not run"))
            continue
        cells = [_cell([one.figures[name] for one in seeds if name in one.figures]) for name in BESIDE]
        size = f"{seeds[0].told['parameters'] / 1e6:.2f} M"
        took = statistics.fmean(float(one.told["seconds"]["all"]) for one in seeds)
        rows.append((words, *cells, size, f"{took:.0f}"))
    return table(("network", *BESIDE.values(), "parameters", "seconds"), rows)


def _cell(figures: Sequence[Figure]) -> str:
    return mean_of(figures) if figures else ""


def _poorly(results: Results) -> Seen:
    """Contradicted where ours is surely above the number that the paper calls poor."""
    (paper,) = (
        one
        for one in printed("2")
        if (one.data, one.figure) == ("cifar10", "index_accuracy") and "class" in one.setting
    )
    ours, given = (
        known(results, "cifar10/class-independent", "index_accuracy"),
        known(results, "cifar10/class-conditional", "stage_2"),
    )
    if ours is None or given is None:
        return [], "not run"
    gap = with_luck(ours, Known((paper.value, ours.figure[1]), each=(paper.value,)))
    sign = -1 if gap is not None and gap.sign > 0 else 1
    text = f"{percent_of(ours.figure)}, and {percent_of(given.figure)} with the class given, {with_luck(ours, given)}"
    return [sign], text


def _larger(results: Results) -> Seen:
    """Parameters of the two-branch networks against those of the single branch."""
    signs: list[Sign] = []
    parts, left = [], []
    for data, name in DATA.items():
        networks = ("class-conditional", "class-independent", "single-0")
        sizes = [_size(results, f"{data}/{setting}") for setting in networks]
        if not all(sizes):
            left.append(name)
            continue
        two, single = sizes[:2], sizes[2]
        signs += [1 if size > single else -1 for size in two]
        parts.append(f"{name} {' and '.join(f'{size:.2f}' for size in two)} M against {single:.2f} M")
    return signs, "; ".join(
        [*parts, f"{len(left)} not run: {', '.join(left)}"] if parts and left else parts
    ) or "not run"


def _size(results: Results, cell: str) -> float:
    """Millions of parameters; 0 where it was not run."""
    return next((float(one.told["parameters"]) / 1e6 for one in results.cells.get(cell, {}).values()), 0.0)


OWN = {"poorly": _poorly, "larger": _larger}

"""Our numbers beside the paper's for the tables other than table 2, and sentences of the paper put to the test."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence

from provnet.report.text import percent
from provnet_paper.records import (
    MET,
    MISSED,
    NOT_RUN,
    WITHIN,
    Figure,
    Printed,
    Result,
    Results,
    Standing,
    printed,
    standing,
)

DASH = "–"
FAR = 0.05  # so far above the paper's number a result says that the set-up differs


def table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """Lines of a table, the first `left` columns to the left and the others to the right; empty columns are left out.

    >>> table(("a", "b", "c"), [("x", "", "1")])
    ['| a | c |', '|---|---:|', '| x | 1 |']
    """
    kept = [place for place in range(len(head)) if any(row[place] for row in rows)]
    lines = ["| " + " | ".join(head[place] for place in kept) + " |"]
    lines.append("|" + "|".join("---" if place < left else "---:" for place in kept) + "|")
    return lines + ["| " + " | ".join(row[place].replace("|", "\\|") for place in kept) + " |" for row in rows]


def number(share: float) -> str:
    """A share in per cent, two places, all and none only where they are exact.

    >>> number(0.9941), number(1.0), number(0.99999)
    ('99.41', '100', '99.999')
    """
    return percent(share, 2).removesuffix(" %")


def spread(one: Standing) -> str:
    """Mean and standard deviation over seeds.

    >>> from provnet_paper.records import standing
    >>> spread(standing(0.5, [(0.75, 100), (0.76, 100)]))
    '75.50 ± 0.71'
    """
    if one.mean is None:
        return DASH
    return number(one.mean) + ("" if one.std is None else f" ± {100 * one.std:.2f}")


def ends(one: Standing) -> str:
    """The ends of the interval.

    >>> from provnet_paper.records import standing
    >>> ends(standing(0.5, [(0.75, 100)]))
    '65.70 to 82.45'
    """
    low, high = one.interval.low, one.interval.high
    return DASH if low is None or high is None else f"{number(low)} to {number(high)}"


def verdict(one: Standing) -> str:
    """The verdict; a miss stands out, a strict win is said."""
    words = {MET: "met" if not one.won else "met, above", WITHIN: WITHIN, MISSED: f"**{MISSED}**"}
    return words.get(one.verdict, one.verdict)


def mean_of(figures: Sequence[Figure]) -> str:
    """The mean of some seeds, or a dash.

    >>> mean_of([(0.5, 10), (0.6, 10)]), mean_of([])
    ('55.00', '–')
    """
    return number(sum(value for value, _ in figures) / len(figures)) if figures else DASH


def tally(all_of: Sequence[Standing]) -> str:
    """How many numbers were met, and how many of them strictly.

    >>> from provnet_paper.records import standing
    >>> tally([standing(0.5, [(0.75, 100)]), standing(0.5, [])])
    '1 met (1 strictly above), 0 within the interval, 0 missed, 1 not run, of 2'
    """
    of = {name: sum(one.verdict == name for one in all_of) for name in (MET, WITHIN, MISSED, NOT_RUN)}
    won = sum(one.won for one in all_of)
    return (
        f"{of[MET]} met ({won} strictly above), {of[WITHIN]} within the interval, {of[MISSED]} missed, "
        f"{of[NOT_RUN]} not run, of {len(all_of)}"
    )


def mean(results: Results, cell: str, figure: str) -> Figure | None:
    """The mean of a figure over seeds, and n; None where it was not measured.

    >>> mean(Results("x", "full", {}, {}), "mnist/0", "any_at_1") is None
    True
    """
    seeds: Mapping[int, Result] = results.cells.get(cell, {})
    found = [one.figures[figure] for one in seeds.values() if figure in one.figures]
    return (statistics.fmean(rate for rate, _ in found), min(n for _, n in found)) if found else None


def standings(results: Results, name: str) -> dict[Printed, Standing]:
    """Every number of a table of the paper with what we have of it."""
    found = {}
    for one in printed(name):
        seeds = results.cells.get(f"{one.data}/{one.setting}", {}).values()
        ours = [result.figures[one.figure] for result in seeds if one.figure in result.figures]
        found[one] = standing(one.value, ours, compared=results.scale == "full")
    return found


def summary(results: Results, name: str) -> str:
    """How many of the paper's numbers were met, and how many are so far above that something else was measured."""
    found = standings(results, name)
    far = sum(ours.mean is not None and ours.mean > paper.value + FAR for paper, ours in found.items())
    words = f"The paper's numbers: {tally(list(found.values()))}."
    if far:
        words += f" Above by more than {100 * FAR:.0f} points, more than chance among the samples explains, so the two "
        words += f"set-ups differ: {far}."
    return words


def chapter(
    results: Results,
    data: tuple[str, str],
    settings: Mapping[str, str],
    figures: Mapping[str, str],
    *,
    name: str,
    head: str,
    more: Mapping[str, Callable[[Result], str]] | None = None,
) -> list[str]:
    """The table of a data set (name, words) under its heading; smaller scales have the settings that were run.

    >>> chapter(Results("mixing", "tiny", {}, {}), ("mnist", "MNIST"), {"0": "0"}, {}, name="mixing", head="α")
    []
    """
    key, words = data
    if results.scale != "full":
        settings = {setting: text for setting, text in settings.items() if f"{key}/{setting}" in results.cells}
        if not settings:
            return []
    rows = against(results, key, settings, figures, name=name, head=head, more=more)
    return ["", f"### {words}", "", counts(results, key), "", *rows]


def against(
    results: Results,
    data: str,
    settings: Mapping[str, str],
    figures: Mapping[str, str],
    *,
    name: str,
    head: str = "setting",
    more: Mapping[str, Callable[[Result], str]] | None = None,
) -> list[str]:
    """A row a setting: ours with its interval / the paper's number and the verdict, then columns of `more`."""
    found = {
        (one.setting, one.figure): (one, ours) for one, ours in standings(results, name).items() if one.data == data
    }
    rows = []
    begun = any(cell.split("/")[0] == data for cell in results.cells)
    for setting, words in settings.items():
        seeds = list(results.cells.get(f"{data}/{setting}", {}).values())
        if not begun and not any((setting, figure) in found for figure in figures):
            continue  # nothing to say: neither run nor printed
        cells = []
        for figure in figures:
            ours = standing(None, [one.figures[figure] for one in seeds if figure in one.figures])
            cells.append(_cell(*found.get((setting, figure), (None, ours))))
        extra = [say(seeds[0]) if seeds else "" for say in (more or {}).values()]
        rows.append((words, *cells, *extra, str(len(seeds) or DASH)))
    return table((head, *figures.values(), *(more or {}), "seeds"), rows) if rows else []


def _cell(paper: Printed | None, ours: Standing) -> str:
    if ours.mean is None:
        return f"{NOT_RUN}; paper {paper.text}" if paper is not None else NOT_RUN
    text = f"{spread(ours)} ({ends(ours)})"
    return text if paper is None else f"{text}; paper {paper.text}: {verdict(ours)}"


def counts(results: Results, data: str) -> str:
    """How many samples the rates of a data set are counted on, or why there are none."""
    for cell, seeds in results.cells.items():
        for one in seeds.values() if cell.split("/")[0] == data else ():
            if "samples" in one.told:
                given = one.told["samples"]
                return f"n = {given['test']:,} unseen samples, {given['train']:,} training samples."
    why = next((why for cell, why in results.absent.items() if cell.split("/")[0] == data), "")
    return f"Not run{': ' + why if why else ' yet'}."


def percent_of(figure: Figure | None) -> str:
    """A mean in per cent, or a dash.

    >>> percent_of((0.5, 10)), percent_of(None)
    ('50.00', '–')
    """
    return DASH if figure is None else number(figure[0])


def rate(one: Figure | None) -> str:
    """A rate in per cent with its interval.

    >>> rate((0.99, 10_000)), rate(None)
    ('99.00 (98.79 to 99.18)', '–')
    """
    found = standing(None, [] if one is None else [one])
    return DASH if one is None else f"{spread(found)} ({ends(found)})"

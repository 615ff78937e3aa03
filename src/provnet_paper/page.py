"""Write docs/results.md and results/NAME.md from results/*.json, and from nothing else.

    python -m provnet_paper.page [--results results] [--out docs/results.md] [--check]

docs/results.md has a paragraph an experiment, NAME.md all there is about one, whether it was run or not. `--check`
writes nothing and ends with 1 where a page is not the one that the results make. Figures are drawn beside the results,
where matplotlib is installed. The table of all experiments is counted in the lines that the sections are made of, so
that it cannot say anything else than they do.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import re
import statistics
import sys
import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from provnet.base.atomic import write_bytes
from provnet_paper.beside import table
from provnet_paper.frame import EXPERIMENTS
from provnet_paper.judge import CONFIRMED, CONTRADICTED, MIXED, NOT_CONFIRMED, NOT_TESTED, OURS, UNDECIDED, headline
from provnet_paper.records import SCALES, Cell, Experiment, Results, Scale
from provnet_paper.store import read_results, results_file

GLANCE = ("experiment", "cells run", "seeds", "the paper's numbers", "the paper's sentences", "our questions")
_TALLY = re.compile(r"(\d+) met .*?, (\d+) within the interval, (\d+) missed, (\d+) not run")
# good news first, what was not tested last
ORDER = (CONFIRMED, "reached", MIXED, UNDECIDED, NOT_CONFIRMED, CONTRADICTED, "missed", NOT_TESTED)
_LEFT = re.compile(r"\b[1-9]\d* not run")  # of the cases of a sentence
_PLACE = re.compile(r" \((?:sec|app)\. [\d.]+\)")  # where in the paper; the list below says it
_FINDING = re.compile(r"^- (.*?):? \*\*([a-z ]+)\*\*: ")


def at_a_glance(sections: Sequence[tuple[Experiment, Results, Sequence[str]]]) -> list[str]:
    """A table with a row an experiment, each linked to its section."""
    rows = table(GLANCE, [_glance(*one) for one in sections], left=len(GLANCE))
    return [
        *rows,
        "",
        "Verdicts without all of their cases count, too; below they are said to be *so far*.",
    ]


def _glance(experiment: Experiment, results: Results, lines: Sequence[str]) -> tuple[str, ...]:
    every = {cell.name for cell in experiment.cells(Scale("full"))}
    seeds = sorted({len(one) for one in results.cells.values()})
    link = f"[{experiment.name}](#{slug(experiment.title)})"
    if not seeds:
        return (link, f"0 of {len(every)}", *[""] * 4)
    span = "–".join(str(n) for n in dict.fromkeys((seeds[0], seeds[-1])))
    ran = f"{len(every & set(results.cells))} of {len(every)}"
    ours = [line for line in lines if line.startswith(f"- {OURS}")]
    return (link, ran, span, numbers(lines), sentences([line for line in lines if line not in ours]), sentences(ours))


def numbers(lines: Sequence[str]) -> str:
    """How many of the paper's numbers were met, from the lines that say it.

    >>> numbers(["So: 22 met (21 strictly above), 3 within the interval, 5 missed, 0 not run, of 30 numbers."])
    '22 met, 3 within the interval, 5 missed'
    """
    found = [(line.split(":")[0], match) for line in lines if (match := _TALLY.search(line))]
    names = ("met", "within the interval", "missed", "not run")
    parts = []
    for what, match in found:
        counts = zip(match.groups(), names, strict=True)
        text = ", ".join(f"{n} {name}" for n, name in counts if int(n) or name == "met")
        parts.append(f"{what}: {text}" if len(found) > 1 else text)
    return "; ".join(parts)


def sentences(lines: Sequence[str]) -> str:
    """What became of the sentences that were tested.

    >>> sentences(["- It works: **confirmed**: 3 of 3.", "- Always: **undecided**: 1 of 2.", "other **bold**: text"])
    '1 confirmed, 1 undecided'
    """
    found = Counter(match.group(2) for line in lines if (match := _FINDING.match(line)))
    return ", ".join(f"{found[verdict]} {verdict}" for verdict in sorted(found, key=ORDER.index))


def in_short(lines: Sequence[str], key: str = "") -> list[str]:
    """What was found: first numbers met and `key` figures, then the sentences by verdict, one entry each.

    >>> in_short(["- It works (sec. 1): **confirmed**: 3 of 3.", "- *Our question.* Always: **undecided**: 1 of 2."])
    ['', '**Confirmed**: It works.', '**Undecided**: Always (our question).']
    >>> in_short(["- It works: **confirmed**: so in 3, of 3 compared, 1 not run."], "Right: 99 %.")
    ['Right: 99 %.', '**Confirmed so far**: It works.']
    """
    tested: dict[tuple[str, bool], list[str]] = {}
    for line in lines:
        if match := _FINDING.match(line):
            sentence, verdict = match.groups()
            own = " (our question)" if sentence.startswith(OURS) else ""
            part = verdict != NOT_TESTED and bool(_LEFT.search(line))
            tested.setdefault((verdict, part), []).append(_PLACE.sub("", sentence.removeprefix(OURS)) + own)
    met = f"The paper's numbers: {text}." if (text := numbers(lines)) else ""
    told = [" ".join(part for part in (met, key) if part)]
    for verdict, part in sorted(tested, key=lambda one: (ORDER.index(one[0]), one[1])):
        words = verdict.capitalize() + (" so far" if part else "")
        told.append(f"**{words}**: {'; '.join(tested[verdict, part])}.")
    return told


def slug(title: str) -> str:
    """The anchor that a heading gets on the usual hosts of Markdown.

    >>> slug("Table 2: class, at 10 to 100 %")
    'table-2-class-at-10-to-100-'
    """
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def origins(results: Results) -> list[str]:
    """What the results were made on; a row a machine and state of the source."""
    made: dict[tuple[str, ...], list[str]] = {}
    for cell, seeds in results.cells.items():
        for seed, one in seeds.items():
            about = one.origin
            commit = str(about.get("commit") or "not kept")[:12] + (" with changes" if about.get("dirty") else "")
            names = ("device", "cores", "jobs", "torch")
            key = (*(str(about.get(name, "")) for name in names), commit, str(about.get("source_sha256", ""))[:12])
            made.setdefault(key, []).append(f"{cell} {seed}")
    rows = [(*key, str(len(cells))) for key, cells in made.items()]
    return table(("device", "cores", "at a time", "torch", "commit", "source", "cells × seeds"), rows, left=6)


def time_taken(results: Results) -> list[str]:
    """How long a seed took, from the cells that were run with it."""
    took = {
        cell: statistics.fmean(float(one.told["seconds"]["all"]) for one in seeds.values())
        for cell, seeds in results.cells.items()
    }
    slowest = max(took, key=lambda cell: took[cell])
    words = f"A seed of the {len(took)} cells that were run took {sum(took.values()):,.0f} s, added up"
    lines = ["", f"{words}; the longest, `{slowest}`, {took[slowest]:,.0f} s."]
    taken = sum("take" in one.told["seconds"] for seeds in results.cells.values() for one in seeds.values())
    if taken:
        lines.append(
            f"{taken} took networks that another experiment had trained (--networks), which is not in these times."
        )
    timed = [
        (seed, one.told["at"]) for seeds in results.cells.values() for seed, one in seeds.items() if "at" in one.told
    ]
    share: dict[int, list[float]] = {}
    for (seed, _), seconds in zip(timed, shares([at for _, at in timed]), strict=True):
        share.setdefault(seed, []).append(seconds)
    if share:
        each = (f"seed {seed} {sum(share[seed]):,.0f} s ({len(share[seed])} cells)" for seed in sorted(share))
        lines.append(f"Each second of the device shared alike by the cells under way: {', '.join(each)}.")
    return lines


def shares(spans: Sequence[Sequence[float]]) -> list[float]:
    """Seconds of each (begin, end), where those under way at a time share it alike.

    >>> shares([(0, 10), (5, 12), (20, 21)])
    [7.5, 4.5, 1.0]
    """
    moments = sorted({float(time) for span in spans for time in span})
    found = [0.0] * len(spans)
    for since, until in itertools.pairwise(moments):
        under_way = [place for place, (begin, end) in enumerate(spans) if begin <= since and end >= until]
        for place in under_way:
            found[place] += (until - since) / len(under_way)
    return found


COMMAND = "python -m provnet_paper.page"
HEAD = f"""# Results: the paper's tables, reproduced

Made by `{COMMAND}` from the results in `results`; no figure here is typed. An
experiment is one command. This page has its claim and what came of it; the page that its section links to has the rest:
every number beside the paper's, the evidence for each sentence, the recipe, the machine and the time.
"""
WORDS = """## What the words mean

*Ours* is the mean over seeds with its standard deviation, *n* the samples that each rate was counted on, *95 %
interval* the Wilson interval of that mean on n samples. A number is **met** where ours is at or above the paper's,
**within the interval** where it is below by no more than the half-width of the Wilson interval of the paper's number on
n samples, else **missed**. *any@k*: one of the k named training samples has the right class; *majority@k*: most of
them; *joint@1*: the class of the first by joint weights. *Own index*, noise, shift and JPEG: a training sample finds
itself, as it is and as a changed copy; *learned*: with its key as training left it, before keys are refreshed.
Exact index accuracy says little by itself: features of an untrained network reach it too.

*Expected* is what was forecast before the full run, and stays as it was; *found* is what came of it: numbers met, key
figures with 95 % intervals (rates in per cent), then verdicts. Each sentence is tested in one or more cases, which are
surely so, surely not, or too near to say:

- **confirmed**: more than half are surely so and none surely not; if it speaks of most cases, more than half; if of
  some, any, and fewer surely not;
- **holds in part**: some are surely so, but not enough;
- **undecided**: all too near to say;
- **not confirmed**: some surely not, none surely so;
- **contradicted**: more than half surely not, none surely so.

Only cases that were run count (*so far*); *our question* marks what the paper does not say.
"""


def page(results: Path, out: Path) -> str:
    """The page of all experiments; `out` is where it will lie, for its links."""
    told = [(one, _there(results, name, "full")) for name, one in EXPERIMENTS.items()]
    bodies = [_body(one, found, results) for one, found in told]
    rows = [(one, found, body) for (one, found), body in zip(told, bodies, strict=True)]
    parts = [HEAD, "\n".join(at_a_glance(rows)) + "\n", WORDS, *_luck(_there(results, "table2", "full"))]
    for one, found, body in rows:
        path = results_file(results, one.name, "full")
        links = [Path(os.path.relpath(file, out.parent)).as_posix() for file in (path, *figures_of(path))]
        parts.append("\n".join(_summary(one, found, body, links[0].removesuffix(".json") + ".md", links[1:])) + "\n")
    return "\n".join(parts)


def _summary(
    experiment: Experiment, results: Results, body: Sequence[str], rest: str, figures: Sequence[str]
) -> list[str]:
    """Claim, what was found and figures; `rest` is where everything else stands."""
    told = experiment.headings
    lines = [f"## {experiment.title}", "", *_paragraph("Claim", told["Claim"])]
    lines += [*_found(experiment, results, body), *_left(experiment, results), *_pictures(experiment, results, figures)]
    return [*lines, f"Every number and its evidence: [{Path(rest).stem}]({rest}) · `{told['Command']}`"]


def alone(experiment: Experiment, results: Results, folder: Path) -> str:
    """All about one experiment, as a page beside its results and figures."""
    path = results_file(folder, experiment.name, results.scale)
    lines = section(experiment, results, folder, [figure.name for figure in figures_of(path)])
    return "\n".join([*lines, "", "What the words mean: docs/results.md of provnet."]) + "\n"


def _pages(results: Path, out: Path) -> dict[Path, str]:
    """Every page by its file."""
    each = {
        results_file(results, name, "full").with_suffix(".md"): alone(one, _there(results, name, "full"), results)
        for name, one in EXPERIMENTS.items()
    }
    return {out: page(results, out), **each}


def _there(folder: Path, name: str, scale: str) -> Results:
    """What a folder holds of an experiment, which may be nothing."""
    path = results_file(folder, name, scale)
    return read_results(path) if path.is_file() else Results(name, scale, {}, {})


def _luck(table2: Results) -> list[str]:
    """How far trainings of one network lie apart, by the experiment that has several seeds."""
    kinds = {"class": ("class_accuracy", "any_at_1", "any_at_5"), "index": ("index_accuracy",)}
    several = {cell: list(seeds.values()) for cell, seeds in table2.cells.items() if len(seeds) > 1}
    if not several:
        return []
    told = []
    for kind, names in kinds.items():
        spreads = {
            (cell, name): statistics.stdev(one.figures[name][0] for one in seeds)
            for cell, seeds in several.items()
            for name in names
            if all(name in one.figures for one in seeds)
        }
        worst = max(spreads, key=lambda key: spreads[key])
        middle, most = (100 * value for value in (statistics.median(spreads.values()), spreads[worst]))
        told.append(f"of {kind} numbers {middle:.2f} points in the middle and {most:.2f} at most (`{worst[0]}`)")
    words = (
        "*Luck of training.* Intervals and the word *surely* hold the chance of the samples alone, but for differences "
        "of networks with several seeds. The standard deviation between the seeds of a network of `table2` is, "
        f"{', '.join(told)}."
    )
    return [textwrap.fill(words, 120, break_on_hyphens=False) + "\n"]


def figures_of(path: Path) -> list[Path]:
    """The figures that lie beside a file of results: NAME.png and NAME-x.png, but not those of another NAME."""
    others = [name for name in EXPERIMENTS if name != path.stem and name.startswith(f"{path.stem}-")]
    found = [path.with_suffix(".png"), *sorted(path.parent.glob(f"{path.stem}-*.png"))]
    return [file for file in found if file.is_file() and not file.stem.startswith(tuple(others))]


def draw(experiment: Experiment, results: Results, path: Path) -> list[Path]:
    """Draw the figures of an experiment beside its JSON; returns where they are.

    >>> draw(EXPERIMENTS["cost"], Results("cost", "full", {}, {}), Path("cost.json"))
    []
    """
    drawn = {
        path.with_name(f"{path.stem}-{key}.png" if key else f"{path.stem}.png"): content
        for key, content in experiment.figures(results).items()
    }
    for file, content in drawn.items():
        write_bytes(file, content)
    return list(drawn)


def _draw_all(results: Path) -> None:
    for name, experiment in EXPERIMENTS.items():
        path = results_file(results, name, "full")
        if path.is_file():
            draw(experiment, read_results(path), path)


def section(experiment: Experiment, results: Results, folder: Path, figures: Sequence[str] = ()) -> list[str]:
    """All about one experiment; `folder` holds the results of the others."""
    body, told = _body(experiment, results, folder), experiment.headings
    lines = [
        f"# {experiment.title}",
        "",
        *_paragraph("Claim", told["Claim"]),
        *_paragraph("Expected", told["Expected"]),
    ]
    lines += [*_found(experiment, results, body), *_paragraph("Time", told["Time"]), f"`{told['Command']}`", ""]
    made = [*origins(results), *time_taken(results), ""] if results.cells else []
    lines += [*experiment.settings, *made, *_left(experiment, results), *_pictures(experiment, results, figures)]
    return [*lines, *(line[1:] if line.startswith("###") else line for line in body)]


def _body(experiment: Experiment, results: Results, folder: Path) -> list[str]:
    """Tables and sentences, those that lay its results beside another experiment's, too."""
    body = experiment.section(results)
    if experiment.other is None:
        return body
    return [*body, *experiment.compared(results, _there(folder, experiment.other, results.scale))]


def _paragraph(name: str, words: str) -> list[str]:
    return [textwrap.fill(f"*{name}.* {words[0].upper()}{words[1:]}", 120, break_on_hyphens=False), ""]


def _found(experiment: Experiment, results: Results, body: Sequence[str]) -> list[str]:
    """Numbers and key figures in a paragraph, then a line a verdict."""
    if not results.cells:
        return []
    key, *verdicts = in_short(body, headline(results, experiment.headline))
    listed = [textwrap.fill(f"- {one}", 120, subsequent_indent="  ", break_on_hyphens=False) for one in verdicts]
    return [*_paragraph("Found", key or "By sentence:"), *listed, ""]


def _left(experiment: Experiment, results: Results) -> list[str]:
    """What was not run: all of it, or cells by name, with what they would take or what they lack."""
    if not results.cells:
        return ["**Not run** at full scale yet.", ""]
    left = [cell for cell in experiment.cells(SCALES["full"]) if cell.name not in results.cells]
    if not left or results.scale != "full":
        return []
    parts = []
    if to_run := [cell for cell in left if cell.name not in results.absent]:
        minutes = math.ceil(sum(cell.seconds for cell in to_run) / 60)
        more = f"about {minutes} min more of an H200, by estimate; the command runs only what is not kept"
        parts.append(f"{_names(to_run)}: {more}.")
    reasons = {cell.name: results.absent[cell.name].split(". ")[0] for cell in left if cell.name in results.absent}
    for reason in dict.fromkeys(reasons.values()):
        parts.append(f"{_names([cell for cell in left if reasons.get(cell.name) == reason])}: {reason}.")
    return [textwrap.fill(f"**Not run**: {' '.join(parts)}", 120, break_on_hyphens=False), ""]


def _names(cells: Sequence[Cell]) -> str:
    return ", ".join(f"`{cell.name}`" for cell in cells)


def _pictures(experiment: Experiment, results: Results, figures: Sequence[str]) -> list[str]:
    lines = []
    for figure in figures if results.cells else ():
        which = Path(figure).stem.removeprefix(experiment.name).replace("-", " ")  # of several, for who cannot see them
        lines += [f"![{experiment.title}{':' if which else ''}{which}]({figure})", ""]
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page, or say whether it is current."""
    parser = argparse.ArgumentParser(
        prog=COMMAND, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--out", type=Path, default=Path("docs/results.md"))
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args(arguments)
    if not given.check:
        try:
            _draw_all(given.results)
        except ModuleNotFoundError:
            sys.stdout.write("figures are left as they are: they need matplotlib\n")
    pages = _pages(given.results, given.out)
    if given.check:
        other = [str(file) for file, text in pages.items() if not file.is_file() or file.read_text("utf-8") != text]
        sys.stdout.write(f"not what the results make: {', '.join(other)}; run {COMMAND}\n" if other else "current\n")
        return 1 if other else 0
    for file, text in pages.items():
        write_bytes(file, text.encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())

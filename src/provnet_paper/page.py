"""Write docs/results.md and results/NAME.md from results/*.json, and from nothing else.

    python -m provnet_paper.page [--results results] [--out docs/results.md] [--check]

docs/results.md is the story, verdict first; NAME.md has all there is about one experiment, whether it was run or not.
`--check` writes nothing and ends with 1 where a page is not the one that the results make. Figures are drawn beside the
results, where matplotlib is installed.
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
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from provnet.base.atomic import write_bytes
from provnet_paper.frame import EXPERIMENTS
from provnet_paper.judge import ORDER, WORDS, Finding, Look, findings, headline, looking
from provnet_paper.measures import DASH, MET, MISSED, NOT_RUN, WITHIN, Known, figure_of, of_paper, verdict
from provnet_paper.records import SCALES, Cell, Experiment, Printed, Results, Scale, Table, printed_numbers, remarks
from provnet_paper.store import read_results, results_file

FAR = 0.05  # so far above the paper's number a result says that the set-up differs
COMMAND = "python -m provnet_paper.page"
CHANCE = """Intervals hold the chance of the samples alone, and that of several seeds where a network has them. Two
networks that kept their answers to the same samples are compared sample by sample; others as if each had samples of its
own, which makes intervals of differences wider than need be."""
ONE_SEED = """Every network was trained once: the luck of one training is not in the intervals, nor in the word
*surely*."""
HEAD = f"""# Results: the paper's tables, reproduced

Made by `{COMMAND}` from the files in `results`; no figure here is typed. An experiment is one command,
`provnet reproduce NAME`. Each section begins with the verdict and names everything that did not hold; the evidence that
it links to has every number beside the paper's, the recipe, the machine and the time.
"""
TERMS = """## How to read the verdicts

A *number* is the mean over seeds. It is **met** at or above the paper's number, **within the interval** below it by no
more than the half-width of the 95 % Wilson interval of the paper's number, else **missed**. The cases of a *sentence*
are surely so, surely not, or too near to say. It is **confirmed** where more than half are surely so and none surely
not (about most cases: more than half; about some: any, and fewer surely not), **holds in part** where too few are
surely so, **undecided** where all are too near to say, **not confirmed** where some are surely not, **contradicted**
where more than half are surely not and none surely so. Only cases that were run count (*so far*). Rates are in per
cent, with 95 % intervals. *Own index*: a training sample finds itself, also by features of an untrained network.
"""


@dataclass(frozen=True)
class Told:
    """An experiment, its results with all figures, and where those of the others lie."""

    experiment: Experiment
    results: Results
    folder: Path

    @cached_property
    def look(self) -> Look:
        """Looks into the results, those of other experiments and the paper's tables."""
        return looking(self.results, self.experiment.printed, lambda name: there(name, self.folder, self.results.scale))

    @cached_property
    def found(self) -> list[Finding]:
        """The sentences, judged; at smaller scales nothing is."""
        if self.results.scale != "full" or not self.results.cells:
            return []
        return findings(
            self.experiment.name, self.look, lambda text: of_paper(self.experiment.printed, *text.split(":"))
        )

    @cached_property
    def numbers(self) -> dict[Printed, Known | None]:
        """Every number of the paper with what we have of it."""
        if self.results.scale != "full" or not self.results.cells:
            return {}
        return {one: ours_of(self.results, one) for one in printed_numbers(self.experiment.printed)}


def ours_of(results: Results, one: Printed) -> Known | None:
    """Our result for a number of the paper."""
    return figure_of(results, f"{one.data}/{one.setting}", one.figure)


def there(name: str, folder: Path, scale: str) -> Results:
    """What a folder holds of an experiment, which may be nothing, with all figures."""
    path = results_file(folder, name, scale)
    return EXPERIMENTS[name].measured(read_results(path) if path.is_file() else Results(name, scale, {}, {}))


def table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """Lines of a table, the first `left` columns to the left; empty columns are left out."""
    kept = [place for place in range(len(head)) if any(row[place] not in ("", DASH) for row in rows)]
    lines = ["| " + " | ".join(head[place] for place in kept) + " |"]
    lines.append("|" + "|".join("---" if place < left else "---:" for place in kept) + "|")
    return lines + ["| " + " | ".join(row[place].replace("|", "\\|") for place in kept) + " |" for row in rows]


def wrap_lines(words: str, indent: str = "") -> str:
    """A paragraph of lines of 120 characters."""
    return textwrap.fill(words, 120, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)


def tally(numbers: dict[Printed, Known | None]) -> str:
    """How many of the paper's numbers were met."""
    count = Counter(verdict(one, ours) for one, ours in numbers.items())
    text = [f"{count[name]} {name}" for name in (WITHIN, MISSED, NOT_RUN) if count[name]]
    return ", ".join([f"{count[MET]} of {len(numbers)} met", *text])


def verdicts(found: Sequence[Finding]) -> str:
    """What became of sentences, in numbers."""
    count, part = Counter(one.verdict for one in found), Counter(one.verdict for one in found if one.so_far)
    words = {name: f" ({part[name]} so far)" if part[name] else "" for name in ORDER}
    return ", ".join(f"{count[name]} {name}{words[name]}" for name in ORDER if count[name])


def verdict_of(told: Told, link: str = "") -> str:
    """The verdict on an experiment in a sentence or two."""
    numbers, papers, ours = _columns(told)
    parts = {"the paper's numbers": numbers, "the paper's sentences": papers, "our questions": ours}
    return f"**Verdict{link}.** {_upper('; '.join(f'{name}: {text}' for name, text in parts.items() if text))}."


def _columns(told: Told) -> tuple[str, str, str]:
    """What became of the paper's numbers, of its sentences and of our questions; nothing where there are none."""
    papers, ours = (verdicts([one for one in told.found if one.ours == own]) for own in (False, True))
    return tally(told.numbers) if told.numbers else "", papers, ours


def found_of(told: Told) -> str:
    """Key figures with their intervals, and every number that was missed."""
    low = [f"{name_of(told.experiment, one)}: {ours} (paper {one.text})"
           for one, ours in told.numbers.items() if verdict(one, ours) == MISSED]  # fmt: skip
    far = sum(ours is not None and ours.figure[0] > one.value + FAR for one, ours in told.numbers.items())
    missed = f" Missed: {'; '.join(low)}." if low else ""
    missed += f" Above by more than {100 * FAR:.0f} points, so the set-ups differ: {far}." if far else ""
    key = headline(told.experiment.name, told.look) if told.results.scale == "full" else ""
    return f"{key}{missed}".strip()


def name_of(experiment: Experiment, one: Printed) -> str:
    """A number of the paper in words, those of the table that it stands in."""
    for shown in experiment.tables:
        for row, column in itertools.product(shown.rows, shown.columns):
            cell, figure = (text.format(data=one.data, row=row, column=column) for text in (shown.cell, shown.figure))
            if (cell, figure) == (f"{one.data}/{one.setting}", one.figure):
                names = [shown.rows[row], shown.columns[column]]
                return ", ".join([WORDS[one.data], *(names[::-1] if "{column}" in shown.cell else names)])
    return f"{WORDS[one.data]}, {one.setting}, {one.figure}"


def story(results: Path, out: Path) -> str:
    """The page of all experiments; `out` is where it will lie, for its links."""
    every = [Told(one, there(name, results, "full"), results) for name, one in EXPERIMENTS.items()]
    head = ("experiment", "cells run", "seeds", "the paper's numbers", "the paper's sentences", "our questions")
    parts = [HEAD, *table(head, [_glance(told) for told in every], left=len(head)), ""]
    for told in every:
        parts += _section(told, results_file(results, told.experiment.name, "full"), out.parent)
    return "\n".join([*parts, TERMS, *_luck(next(one.results for one in every if one.experiment.name == "table2"))])


def _glance(told: Told) -> tuple[str, ...]:
    cells = {cell.name for cell in told.experiment.cells(Scale("full"))}
    seeds = sorted({len(one) for one in told.results.cells.values()})
    ran = f"{len(cells & set(told.results.cells))} of {len(cells)}"
    span = "–".join(str(n) for n in dict.fromkeys((*seeds[:1], *seeds[-1:])))
    return f"[{told.experiment.name}](#{slug(told.experiment.title)})", ran, span, *_columns(told)


def _section(told: Told, path: Path, beside: Path) -> list[str]:
    """Verdict, picture and a paragraph, which ends with what did not hold."""
    title, claim = told.experiment.title, told.experiment.prose["claim"]
    page, *links = (
        Path(os.path.relpath(file, beside)).as_posix() for file in (path.with_suffix(".md"), *pictures_of(path))
    )
    ran = told.results.cells
    lines = [
        f"## {title}",
        "",
        wrap_lines(verdict_of(told, f" ([evidence]({page}))")) if ran else f"[Evidence]({page})",
        "",
    ]
    lines += [f"![{title}]({link})\n" for link in links[:1] if ran]
    other = [_names(told.found, name) for name in ORDER[1:]]
    parts = [f"*Claim.* {_upper(claim)}", f"*Found.* {found_of(told)}" if ran else "", *other, _left(told)]
    return [*lines, wrap_lines(" ".join(part for part in parts if part)), ""]


def _names(found: Sequence[Finding], name: str) -> str:
    """The sentences of a verdict, without what stands in brackets."""
    names = [re.sub(r" \([^()]*\)", "", one.claim).rstrip(":") + (" (so far)" if one.so_far else "")
             for one in found if one.verdict == name]  # fmt: skip
    return f"*{name.capitalize()}*: {'; '.join(names)}." if names else ""


def _upper(words: str) -> str:
    return words[0].upper() + words[1:]


def slug(title: str) -> str:
    """The anchor that a heading gets on the usual hosts of Markdown."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _luck(table2: Results) -> list[str]:
    """How far trainings of one network lie apart, by the experiment that has several seeds."""
    kinds = {"class": ("class_accuracy", "any_at_1", "any_at_5"), "index": ("index_accuracy",)}
    told = []
    for kind, names in kinds.items():
        every = {
            (cell, name): statistics.stdev(one.each)
            for cell in table2.cells
            for name in names
            if (one := figure_of(table2, cell, name)) is not None and len(one.each) > 1
        }
        if every:
            worst = max(every, key=lambda key: every[key])
            middle, most = (100 * value for value in (statistics.median(every.values()), every[worst]))
            told.append(f"of {kind} numbers {middle:.2f} points in the middle and {most:.2f} at most (`{worst[0]}`)")
    text = "*Luck of training.* The standard deviation between the seeds of a network of `table2` is, "
    return [wrap_lines(f"{text}{', '.join(told)}.") + "\n"] if told else []


def alone(experiment: Experiment, results: Results, folder: Path) -> str:
    """All about one experiment, as a page beside its results and figures."""
    told = Told(experiment, experiment.measured(results), folder)
    path, prose = results_file(folder, experiment.name, results.scale), experiment.prose
    lines = [f"# {experiment.title}", ""]
    if told.found:
        lines += [wrap_lines(verdict_of(told)), ""]
    lines += [wrap_lines(f"*{name}.* {_upper(prose[name.lower()])}") + "\n" for name in ("Claim", "Expected")]
    lines += [wrap_lines(f"*Found.* {text}") + "\n"] if (text := found_of(told)) else []
    lines += [f"{_left(told)}\n"] if _left(told) else []
    for file in pictures_of(path) if results.cells else ():
        lines += [f"![{experiment.title}: {file.stem.replace('-', ' ')}]({file.name})", ""]
    lines += [*body(experiment, results, folder), *_remarks(told), *_recipes(results)]
    lines += ["## How it was run", "", f"`{prose['command']}`", "", prose["settings"], ""]
    lines += [wrap_lines(prose["notes"]) + "\n"] if "notes" in prose else []
    lines += [wrap_lines(f"*Time.* {_upper(prose['time'])}"), "", *(origins(results) if results.cells else [])]
    return "\n".join(lines).rstrip() + "\n"


def body(experiment: Experiment, results: Results, folder: Path) -> list[str]:
    """The sentences with their evidence, and the tables."""
    told = Told(experiment, experiment.measured(results), folder)
    return [*_evidence(told), *_tables(told)]


def _evidence(told: Told) -> list[str]:
    """The sentences with their evidence."""
    if not told.found:
        return []
    lines = ["## Sentences", ""]
    for one in told.found:
        late = f"; {one.late} when the results were known" if one.late else ""
        sentence = one.claim.rstrip(":")
        lines.append(f"- {'*Our question.* ' if one.ours else ''}{sentence}: **{one.verdict}**: {one.evidence}{late}.")
    seeds = ONE_SEED if all(len(one) == 1 for one in told.results.cells.values()) else ""
    return [*lines, "", wrap_lines(f"{CHANCE} {seeds}".strip().replace("\n", " ")), ""]


def _tables(told: Told) -> list[str]:
    """The tables, data set by data set; one that was not run stays visible at full scale."""
    lines: list[str] = []
    for data in dict.fromkeys(data for shown in told.experiment.tables for data in shown.data):
        those = [shown for shown in told.experiment.tables if data in shown.data]
        body = [part for shown in those for part in _table(told, shown, data)]
        if body or told.results.scale == "full":
            title = next(shown.data[data] for shown in those)
            lines += [f"## {title}", "", _counts(told.results, data), "", *body]
    return lines


def _table(told: Told, shown: Table, data: str) -> list[str]:
    full, paper = (
        told.results.scale == "full",
        {(f"{one.data}/{one.setting}", one.figure): one for one in printed_numbers(told.experiment.printed)},
    )
    rows, any_there = [], False
    for row, words in shown.rows.items():
        texts, seeds, run = [], "", False
        for column in shown.columns:
            cell, figure = (text.format(data=data, row=row, column=column) for text in (shown.cell, shown.figure))
            ours, theirs = figure_of(told.results, cell, figure), paper.get((cell, figure))
            run, any_there = run or ours is not None, any_there or ours is not None or (full and theirs is not None)
            seeds = str(len(told.results.cells[cell])) if cell in told.results.cells else seeds
            texts.append(_text(ours, theirs, brief=shown.brief, full=full))
        if run or full:
            rows.append(
                (words, *(texts if run or any(text != DASH for text in texts) else [NOT_RUN, *texts[1:]]), seeds)
            )
    if not any_there:
        return []
    if "{column}" in shown.cell:  # a column is a cell: so are its seeds
        cells = [shown.cell.format(data=data, row="", column=column) for column in shown.columns]
        rows = [(*row[:-1], "") for row in rows] + [
            ("seeds", *(str(len(told.results.cells.get(cell, ())) or DASH) for cell in cells), "")
        ]
    return [*table((shown.head, *shown.columns.values(), "seeds"), rows), ""]


def _text(ours: Known | None, paper: Printed | None, *, brief: bool, full: bool) -> str:
    """Ours with its interval, the paper's number and the verdict."""
    text = DASH if ours is None else str(ours) if brief else ours.spread
    if paper is None or not full:
        return text
    if ours is None:
        return f"{NOT_RUN}; paper {paper.text}"
    how = verdict(paper, ours)
    return f"{text}; paper {paper.text}: {f'**{how}**' if how == MISSED else how}"


def _counts(results: Results, data: str) -> str:
    """How many samples the rates of a data set are counted on, or why there are none."""
    for cell, seeds in results.cells.items():
        for one in seeds.values() if cell.split("/")[0] == data else ():
            if "samples" in one.told:
                sizes = one.told["samples"]
                return f"n = {sizes['test']:,} unseen samples, {sizes['train']:,} training samples."
    why = next((why for cell, why in results.absent.items() if cell.split("/")[0] == data), "")
    return f"Not run{': ' + why if why else ' yet'}."


def _remarks(told: Told) -> list[str]:
    """What is known of single numbers: always where a remark says so, and wherever one was missed."""
    said = []
    for one, ours in told.numbers.items():
        missed = verdict(one, ours) == MISSED
        text = remarks(told.experiment.name, one, missed=missed)
        if ours is not None and (text or missed):
            said.append(f"- {name_of(told.experiment, one)}: {text or '**a miss without an explanation yet.**'}")
    return ["## Where we differ", "", *said, ""] if said else []


def _recipes(results: Results) -> list[str]:
    used: dict[str, list[str]] = {}
    for cell, seeds in results.cells.items():
        if "recipe" in (one := next(iter(seeds.values())).told):
            used.setdefault(one["recipe"], []).append(f"`{cell}`")
    lines = [f"- {', '.join(those)}: {words}." for words, those in used.items()]
    return ["## Recipes", "", *lines, ""] if lines else []


def _left(told: Told) -> str:
    """What was not run: all of it, or cells by name, with what they would take or what they lack."""
    results = told.results
    if results.scale != "full":
        return ""
    if not results.cells:
        return "**Not run** at full scale yet."
    left = [cell for cell in told.experiment.cells(SCALES["full"]) if cell.name not in results.cells]
    reasons = {cell.name: results.absent.get(cell.name, "").split(". ")[0] for cell in left}
    parts = []
    for reason in dict.fromkeys(reasons.values()):
        those = [cell for cell in left if reasons[cell.name] == reason]
        minutes = f"about {math.ceil(sum(cell.seconds for cell in those) / 60)} min more of an H200, by estimate"
        parts.append(f"{_cells(those)}: {reason or minutes}.")
    return f"**Not run**: {' '.join(parts)}" if parts else ""


def _cells(cells: Sequence[Cell]) -> str:
    return ", ".join(f"`{cell.name}`" for cell in cells)


def origins(results: Results) -> list[str]:
    """What the results were made on, a row for each machine and state of the source; and how long they took."""
    made: Counter[tuple[str, ...]] = Counter()
    for one in (one for seeds in results.cells.values() for one in seeds.values()):
        about = one.origin
        commit = str(about.get("commit") or "not kept")[:12] + (" with changes" if about.get("dirty") else "")
        names = ("device", "cores", "jobs", "torch")
        made[*(str(about.get(name, "")) for name in names), commit, str(about.get("source_sha256", ""))[:12]] += 1
    rows = [(*key, str(count)) for key, count in made.items()]
    lines = table(("device", "cores", "at a time", "torch", "commit", "source", "cells × seeds"), rows, left=6)
    seconds = [one.told["seconds"] for seeds in results.cells.values() for one in seeds.values()]
    took = f"All cells and seeds took {sum(each['all'] for each in seconds):,.0f} s, added up."
    taken = sum("take" in each for each in seconds)
    more = f" {taken} took networks that another experiment had trained (--networks)." if taken else ""
    return [*lines, "", took + more]


def pictures_of(path: Path) -> list[Path]:
    """The figures that lie beside a file of results: NAME.png and NAME-x.png, but not those of another NAME."""
    others = tuple(name for name in EXPERIMENTS if name != path.stem and name.startswith(f"{path.stem}-"))
    found = [path.with_suffix(".png"), *sorted(path.parent.glob(f"{path.stem}-*.png"))]
    return [file for file in found if file.is_file() and not (others and file.stem.startswith(others))]


def draw(experiment: Experiment, results: Results, path: Path) -> list[Path]:
    """Draw the figures of an experiment beside its JSON; returns where they are."""
    drawn = {
        path.with_name(f"{path.stem}-{key}.png" if key else f"{path.stem}.png"): content
        for key, content in experiment.figures(experiment.measured(results)).items()
    }
    for file, content in drawn.items():
        write_bytes(file, content)
    return list(drawn)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pages, or say whether they are current."""
    parser = argparse.ArgumentParser(
        prog=COMMAND, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--out", type=Path, default=Path("docs/results.md"))
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args(arguments)
    files = {name: results_file(given.results, name, "full") for name in EXPERIMENTS}
    kept = {
        name: read_results(path) if path.is_file() else Results(name, "full", {}, {}) for name, path in files.items()
    }
    if not given.check:
        try:
            for name, path in files.items():
                draw(EXPERIMENTS[name], kept[name], path)
        except ModuleNotFoundError:
            sys.stdout.write("figures are left as they are: they need matplotlib\n")
    pages = {files[name].with_suffix(".md"): alone(one, kept[name], given.results) for name, one in EXPERIMENTS.items()}
    pages[given.out] = story(given.results, given.out)
    if given.check:
        other = [str(file) for file, text in pages.items() if not file.is_file() or file.read_text("utf-8") != text]
        sys.stdout.write(f"not what the results make: {', '.join(other)}; run {COMMAND}\n" if other else "current\n")
        return 1 if other else 0
    for file, text in pages.items():
        write_bytes(file, text.encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())

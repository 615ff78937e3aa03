"""All experiments at a glance: what was run of each, the paper's numbers met, its sentences confirmed or contradicted.

Counted in the lines that the sections are made of, so that the table cannot say anything else than they do.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from provnet.tools.robustness.conditions import CONDITIONS
from provnet_paper import debugging as debugging_words
from provnet_paper import membership as membership_words
from provnet_paper import robustness as robustness_words
from provnet_paper import subsets as subsets_words
from provnet_paper.beside import (
    CONFIRMED,
    CONTRADICTED,
    DASH,
    MIXED,
    NOT_CONFIRMED,
    NOT_TESTED,
    OURS,
    UNDECIDED,
    mean,
    rate,
    table,
)
from provnet_paper.embeddings import NETWORK, border_share
from provnet_paper.recipes import DATA
from provnet_paper.records import Experiment, Results, Scale
from provnet_paper.sharing import missed, name_of
from provnet_paper.sharing_claims import LEVELS, SIZES

HEAD = ("experiment", "cells run", "seeds", "the paper's numbers", "the paper's sentences", "our questions")
_TALLY = re.compile(r"(\d+) met .*?, (\d+) within the interval, (\d+) missed, (\d+) not run")
# good news first, what was not tested last
ORDER = (CONFIRMED, "reached", MIXED, UNDECIDED, NOT_CONFIRMED, CONTRADICTED, "missed", NOT_TESTED)
_LEFT = re.compile(r"\b[1-9]\d* not run")  # of the cases of a sentence
_PLACE = re.compile(r" \((?:sec|app)\. [\d.]+\)")  # where in the paper; the list below says it
_FINDING = re.compile(r"^- (.*?):? \*\*([a-z ]+)\*\*: ")


def at_a_glance(sections: Sequence[tuple[Experiment, Results, Sequence[str]]]) -> list[str]:
    """A table with a row an experiment, each linked to its section."""
    rows = table(HEAD, [_row(*one) for one in sections], left=len(HEAD))
    return [
        *rows,
        "",
        "Verdicts without all of their cases count, too; below they are said to be *so far*.",
    ]


def _row(experiment: Experiment, results: Results, lines: Sequence[str]) -> tuple[str, ...]:
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


PAIRS = {"mnist": "MNIST", "fashion-mnist": "FashionMNIST"}


def headline(results: Results) -> str:
    """Key figures in one sentence or two; nothing at smaller scales, or where they were not measured.

    >>> headline(Results("mixing", "full", {}, {}))
    ''
    """
    say = HEADLINES.get(results.name)
    return say(results) if say is not None and results.scale == "full" else ""


def _sentence(head: str, parts: Iterable[str]) -> str:
    told = "; ".join(part for part in parts if part)
    return f"{head}{told}." if told else ""


def _figures(results: Results, data: str, asked: Mapping[str, tuple[str, str]]) -> str:
    """Some rates of a data set: words -> (setting, figure); where a cell is a whole data set the setting is empty."""
    found = {
        words: mean(results, f"{data}/{setting}" if setting else data, figure)
        for words, (setting, figure) in asked.items()
    }
    each = ", ".join(f"{words} {rate(one)}" for words, one in found.items() if one is not None)
    return f"{DATA[data]} {each}" if each else ""


def _table2(results: Results) -> str:
    asked = {"class": ("class-conditional", "class_accuracy"), "own index": ("class-conditional", "index_accuracy")}
    return _sentence("Class-conditional network: ", (_figures(results, data, asked) for data in DATA))


def _cost(results: Results) -> str:
    asked = {"with an index": ("", "class-conditional"), "without": ("", "without")}
    return _sentence(
        "Class accuracy of the class-conditional network: ", (_figures(results, data, asked) for data in DATA)
    )


def _mixing(results: Results) -> str:
    return _sentence(
        "At α = 0, .5 and 1: ",
        (
            f"{PAIRS[data]}, {words} " + ", ".join(rate(one) for one in found)
            for data in PAIRS
            for figure, words in (("index_accuracy", "own index"), ("any_at_1", "class of unseen samples"))
            if None not in (found := [mean(results, f"{data}/{alpha}", figure) for alpha in ("0", "0.5", "1")])
        ),
    )


def _subsets(results: Results) -> str:
    return _sentence(
        "Class accuracy by the share of the samples: ",
        (
            _figures(
                results,
                data,
                {
                    f"{'all' if share == 100 else f'{share} %'}:": (f"stratified-{share}", "class_accuracy")
                    for share in (10, subsets_words.ENOUGH[data], 100)
                },
            )
            for data in PAIRS
        ),
    )


def _sharing(results: Results) -> str:
    parts = []
    for data, words in PAIRS.items():
        cells = [f"{data}/{size}-{level}" for size in SIZES for level in LEVELS]
        each = []
        for figure, name in (("class_accuracy", "class"), ("index_accuracy", "own index"), ("any_at_1", "consistency")):
            found = sorted(one for cell in cells if (one := mean(results, cell, figure)) is not None)
            each += [f"{name} {rate(found[0])} to {rate(found[-1])}"] if found else []
        parts += [f"{words} {', '.join(each)}"] if each else []
    lowest = _sentence("Lowest to highest of all pairs: ", parts)
    low = _sentence("Missed: ", (name_of(paper) for paper in missed(results)))
    return " ".join(part for part in (low, lowest) if part)


def _robustness(results: Results) -> str:
    parts = []
    for data, words in PAIRS.items():
        gains = robustness_words.gains(results, data)
        best = {}
        for condition in CONDITIONS:
            here = [alpha for alpha in robustness_words.BETWEEN if (condition, alpha) in gains]
            if here:
                alpha = max(here, key=lambda one, of=condition: gains[of, one].value)  # type: ignore[misc]
                best[condition] = (gains[condition, alpha], alpha)
        if best:
            order = sorted(best, key=lambda condition: best[condition][0].value)
            each = (
                f"{best[one][0]} under {CONDITIONS[one].words} (α = {best[one][1]:g})" for one in (order[0], order[-1])
            )
            parts.append(f"{words} from {' to '.join(each)}")
    return _sentence("The best intermediate α less the CNN: ", parts)


def _membership(results: Results) -> str:
    parts = []
    for data, words in membership_words.PAPERS.items():
        for one in list(results.cells.get(membership_words.cell_of(data), {}).values())[:1]:
            areas = (one.told["auc"][f"{branch}_confidence"] for branch in ("index", "class"))
            each = (f"{area['value']:.4f} ({area['low']:.4f} to {area['high']:.4f})" for area in areas)
            parts.append(f"{words} {' and '.join(each)}")
    return _sentence("AUC of the largest confidence, index branch and class branch: ", parts)


def _debugging(results: Results) -> str:
    parts = []
    for data, words in PAIRS.items():
        for case, planted in (("odd", "odd pictures"), ("wrong", "wrong labels")):
            found = debugging_words.areas(results, f"{data}/{case}", "")
            parts += [f"{words}, {planted} {' and '.join(found)}"] if DASH not in found else []
    return _sentence("AUC of a low entropy, and of `provnet debug`: ", parts)


def _embeddings(results: Results) -> str:
    missed_of = {words: mean(results, f"{data}/{NETWORK}", "any_at_1") for data, words in PAIRS.items()}
    shares = (f"{words} {rate((1 - one[0], one[1]))} %" for words, one in missed_of.items() if one is not None)
    near = []
    for data, words in PAIRS.items():
        found = border_share(results, data)
        if found is not None and results.cells[f"{data}/{NETWORK}"][0].told["map"].get("right"):
            near.append(f"{words} {' against '.join(f'{rate(one)} %' for one in found)}")
    both = (
        _sentence("Misattributed test samples: ", shares),
        _sentence("Of these near borders, against those rightly attributed: ", near),
    )
    return " ".join(part for part in both if part)


def _vae(results: Results) -> str:
    asked = {
        "class": "class_at_mean",
        "index": "index_at_mean",
        "index with drawn latents": "index_at_sample",
        "class of the first source as a judge sees it": "agreement",
    }
    return _sentence(
        "The paper's VAE with losses as sums: ",
        (_figures(results, data, {words: ("paper", figure) for words, figure in asked.items()}) for data in PAIRS),
    )


def _instance(results: Results) -> str:
    kinds = {"indices alone": "index", "classes alone": "class", "untrained": "untrained"}
    return _sentence(
        "Linear probe: ",
        (
            _figures(results, data, {words: (kind, "probe_plain_from_plain") for words, kind in kinds.items()})
            for data in PAIRS
        ),
    )


HEADLINES: dict[str, Callable[[Results], str]] = {
    "table2": _table2,
    "table2-ours": _table2,
    "cost": _cost,
    "mixing": _mixing,
    "subsets": _subsets,
    "sharing": _sharing,
    "robustness": _robustness,
    "membership": _membership,
    "debugging": _debugging,
    "embeddings": _embeddings,
    "vae": _vae,
    "instance": _instance,
}

"""The figures that the paragraph of an experiment begins with, each with its interval."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from provnet.applications.conditions import CONDITIONS
from provnet.experiments import debugging_words, membership_words, robustness_words, subsets_words
from provnet.experiments.beside import mean, rate
from provnet.experiments.embeddings_words import NETWORK, border_share
from provnet.experiments.markdown import DASH
from provnet.experiments.records import Results
from provnet.experiments.settings import DATA
from provnet.experiments.sharing_claims import LEVELS, SIZES
from provnet.experiments.sharing_words import missed, name_of

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


def _row(results: Results, data: str, asked: Mapping[str, tuple[str, str]]) -> str:
    """Some rates of a data set: words -> (setting, figure); where a cell is a whole data set the setting is empty."""
    found = {
        words: mean(results, f"{data}/{setting}" if setting else data, figure)
        for words, (setting, figure) in asked.items()
    }
    each = ", ".join(f"{words} {rate(one)}" for words, one in found.items() if one is not None)
    return f"{DATA[data]} {each}" if each else ""


def _table2(results: Results) -> str:
    asked = {"class": ("class-conditional", "class_accuracy"), "own index": ("class-conditional", "index_accuracy")}
    return _sentence("Class-conditional network: ", (_row(results, data, asked) for data in DATA))


def _cost(results: Results) -> str:
    asked = {"with an index": ("", "class-conditional"), "without": ("", "without")}
    return _sentence("Class accuracy of the class-conditional network: ", (_row(results, data, asked) for data in DATA))


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
            _row(
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
        (_row(results, data, {words: ("paper", figure) for words, figure in asked.items()}) for data in PAIRS),
    )


def _instance(results: Results) -> str:
    kinds = {"indices alone": "index", "classes alone": "class", "untrained": "untrained"}
    return _sentence(
        "Linear probe: ",
        (
            _row(results, data, {words: (kind, "probe_plain_from_plain") for words, kind in kinds.items()})
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

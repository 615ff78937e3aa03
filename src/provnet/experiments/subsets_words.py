"""Subsets as Markdown: ours beside the paper's, and chosen samples beside random ones."""

from __future__ import annotations

import itertools

from provnet.experiments.batches import Both, larger_batches
from provnet.experiments.beside import (
    BAR,
    SOME,
    Finding,
    apart,
    beyond,
    chapter,
    counted,
    judged,
    mean,
    percent_of,
    rate,
    summary,
    told,
)
from provnet.experiments.markdown import table
from provnet.experiments.pairs import known
from provnet.experiments.paper import half_width
from provnet.experiments.records import Figure, Results
from provnet.stats import Z95

PAIRS = {"mnist": "MNIST", "fashion-mnist": "FashionMNIST"}
SHARES = tuple(range(10, 101, 10))
CHOSEN = (10, 30)
WAYS = ("stratified", "prototypes", "boundary", "diverse")
PRINTED = "mnist/stratified-30-as-printed"
FIGURES = {
    "class_accuracy": "main branch",
    "any_at_1": "any@1",
    "any_at_5": "any@5",
    "any_at_10": "any@10",
    "index_accuracy": "own index",
}
ENOUGH = {"mnist": 30, "fashion-mnist": 50}  # per cent that the paper uses to show that few suffice
LITTLE = 0.02  # what "minimal improvement" is taken to mean; the paper's own is 1.33 points
WHOLE = 0.995  # an index accuracy that rounds to the paper's "100%"
NAMED = (30, 50)  # shares of MNIST between which the paper sees the first match get worse
MORE = {
    "samples": lambda one: f"{one.told['samples']['indexed']:,}",
    "index head": lambda one: f"{one.told['index_head'] / 1e6:.2f} M",
    "parameters": lambda one: f"{one.told['parameters'] / 1e6:.2f} M",
}
LIMITS = """Sec. 4.3 calls the network class-conditional; then all retrieved samples would have the predicted class by
construction, so the flat head of app. 7.5 is meant. Its layers, sizes and rates are not stated: Medium of app. 7.6.
To fit the time batches are 4 times the printed 64 and 32, rates twice. Accuracies hold for the unseen samples, *own
index* for the indexed training samples."""


def section(results: Results) -> list[str]:
    """The count, the claims, the shares, then the ways of choosing."""
    lines = [summary(results, "subsets")] if results.scale == "full" else []
    lines += told(findings(results), results)
    settings = {f"stratified-{share}": f"{share} %" for share in SHARES}
    for data in PAIRS.items():
        lines += chapter(results, data, settings, FIGURES, name="subsets", head="subset", more=MORE)
        lines += _choices(results, data[0])
    return [*lines, *larger_batches(_both(results), results.scale), "", LIMITS]


def _choices(results: Results, data: str) -> list[str]:
    """Chosen samples less random ones of the same number."""
    rows = []
    for share in CHOSEN:
        for way in WAYS[1:]:
            cell, random = f"{data}/{way}-{share}", f"{data}/stratified-{share}"
            found = []
            for figure in ("class_accuracy", "any_at_1", "any_at_5"):
                ours, theirs = mean(results, cell, figure), mean(results, random, figure)
                text = "not run" if ours is None or theirs is None else f"{percent_of(ours)}, {apart(ours, theirs)}"
                found.append(text)
            if cell in results.cells or (results.scale == "full" and random in results.cells):
                rows.append((f"{share} %", way, *found))
    head = ("subset", "chosen as", "main branch, less random", "any@1, less random", "any@5, less random")
    return ["", "Chosen samples, and how they differ from random ones:", "", *table(head, rows, left=2)] if rows else []


def _both(results: Results) -> list[Both]:
    """The cell that was also trained with batches as printed."""
    other = "mnist/stratified-30"
    return [
        Both("MNIST, 30 %", words, known(results, PRINTED, figure), known(results, other, figure))
        for figure, words in FIGURES.items()
    ]


def findings(results: Results) -> list[Finding]:
    """The paper's sentences on subsets."""
    found = [*(_enough(results, data) for data in PAIRS), _saturates(results)]
    signs: list[int | None] = []
    for data in PAIRS:
        first, last = (mean(results, f"{data}/stratified-{share}", "class_accuracy") for share in (10, 90))
        signs.append(None if first is None or last is None else apart(last, first).sign)
    found.append(Finding("Class accuracy grows with the share (90 % against 10 %):", judged(signs), _course(results)))
    found += [_little_lost(results), _smaller_head(results)]
    found += [_diminishing(results), _not_monotonic(results), _steadier(results)]
    return [*found, _half_found(results), _index_drops(results), _chosen_better(results)]


def _little_lost(results: Results) -> Finding:
    """What app. 7.5 advises where means are few; its table has no row with all data."""
    signs: list[int | None] = []
    parts = []
    for data, words in PAIRS.items():
        whole = mean(results, f"{data}/stratified-100", "class_accuracy")
        for share in sorted(set(ENOUGH.values())):
            few = mean(results, f"{data}/stratified-{share}", "class_accuracy")
            if few is None or whole is None:
                signs.append(None)
                continue
            gap = apart(few, whole)
            signs.append(1 if gap.low > -LITTLE else -1 if gap.high < -LITTLE else 0)
            parts.append(f"{words} {share} % {gap}")
    claim = '"30-50% subsets with minimal accuracy loss" '
    claim += f"(class accuracy less than {100 * LITTLE:.0f} points below that of all data; app. 7.5):"
    return Finding(claim, judged(signs), f"{'; '.join(parts)}; {counted(signs)}" if parts else "not run", late=BAR)


def _smaller_head(results: Results) -> Finding:
    """By counting parameters, not by training."""
    signs: list[int | None] = []
    parts = []
    for data, words in PAIRS.items():
        share = ENOUGH[data]
        heads = [list(results.cells.get(f"{data}/stratified-{one}", {}).values())[:1] for one in (share, 100)]
        if not all(heads):
            signs.append(None)
            continue
        few, whole = (one.told["index_head"] for (one,) in heads)
        signs.append(1 if round(100 * (1 - few / whole)) == 100 - share else -1)
        parts.append(f"{words} {share} % of the samples, {few / 1e6:.2f} of {whole / 1e6:.2f} M")
    claim = '"70% parameter reduction in the index head" with 30 % of MNIST, 50 % with half of FashionMNIST (app. 7.5):'
    return Finding(claim, judged(signs), "; ".join(parts) or "not run")


def _half_found(results: Results) -> Finding:
    half, whole = (mean(results, f"mnist/stratified-{one}", "index_accuracy") for one in (50, 100))
    claim = 'Index accuracy "reaches 100% using only 50% of the data on MNIST" (sec. 4.3; '
    claim += f"{100 * WHOLE} % or more):"
    if half is None:
        return Finding(claim, judged([None]), "not run")
    words = rate(half) + ("" if whole is None else f", of all data {rate(whole)}")
    return Finding(claim, judged([beyond(half, WHOLE)]), words, late=BAR)


def _chosen_better(results: Results) -> Finding:
    """Said of "more complex datasets", after FashionMNIST; MNIST stands beside it."""
    every: dict[str, list[int | None]] = {data: [] for data in PAIRS}
    compared = len(CHOSEN) * len(WAYS[1:])
    for data, signs in every.items():
        for share in CHOSEN:
            for way in WAYS[1:]:
                ours, random = (mean(results, f"{data}/{one}-{share}", "class_accuracy") for one in (way, "stratified"))
                signs.append(None if ours is None or random is None else apart(ours, random, compared).sign)
    digits, clothes = every.values()
    words = f"class accuracy, intervals for all {compared} together, {counted(clothes)}; on MNIST {counted(digits)}"
    return Finding(
        "On more complex data chosen samples may be more effective than random ones (FashionMNIST; app. 7.5):",
        judged(clothes, SOME),
        words,
    )


def _index_drops(results: Results) -> Finding:
    """The limit that sec. 6 names."""
    signs: list[int | None] = []
    parts = []
    for data, words in PAIRS.items():
        few, whole = (mean(results, f"{data}/stratified-{share}", "index_accuracy") for share in (10, 100))
        if few is None or whole is None:
            signs.append(None)
            continue
        gap = apart(few, whole)
        signs.append(gap.sign)
        parts.append(f"{words} {percent_of(few)} of 10 %, {percent_of(whole)} of all, {gap}")
    claim = "As training data grow, index accuracy drops (10 % of the samples against all; sec. 6):"
    return Finding(claim, judged(signs), "; ".join(parts) or "not run")


def _enough(results: Results, data: str) -> Finding:
    """Said of MNIST; of FashionMNIST the paper says that more than half improve little, so this is our question."""
    share = ENOUGH[data]
    few, whole = (mean(results, f"{data}/stratified-{one}", "class_accuracy") for one in (share, 100))
    claim, ours = f"{share} % of {PAIRS[data]} match the class accuracy of all data:", data != "mnist"
    if few is None or whole is None:
        return Finding(claim, judged([None]), "not run", ours)
    gap = apart(few, whole)
    sign = 1 if few[0] >= whole[0] - half_width(whole[0], whole[1]) else gap.sign
    return Finding(claim, judged([sign]), f"{percent_of(few)} against {percent_of(whole)}, {gap}", ours)


def _saturates(results: Results) -> Finding:
    half, most = (mean(results, f"fashion-mnist/stratified-{one}", "class_accuracy") for one in (50, 90))
    claim = (
        f'FashionMNIST saturates beyond 50 %: 90 % bring "minimal improvement" (less than {100 * LITTLE:.0f} points; '
        "app. 7.5):"
    )
    if half is None or most is None:
        return Finding(claim, judged([None]), "not run")
    gap = apart(most, half)
    sign = 1 if gap.high < LITTLE else -1 if gap.low > LITTLE else 0
    return Finding(claim, judged([sign]), f"{percent_of(half)} to {percent_of(most)}, {gap}")


def _diminishing(results: Results) -> Finding:
    signs: list[int | None] = []
    parts = []
    for data, words in PAIRS.items():
        few, half, most = (mean(results, f"{data}/stratified-{one}", "class_accuracy") for one in (10, 50, 90))
        if few is None or half is None or most is None:
            signs.append(None)
            continue
        first, second = apart(half, few), apart(most, half)
        # the rate in the middle counts in both gains, so twice in their difference
        spread = sum(weight * one[0] * (1 - one[0]) / one[1] for weight, one in ((1, few), (4, half), (1, most)))
        less, chance = first.value - second.value, Z95 * spread**0.5
        signs.append(1 if less > chance else -1 if less < -chance else 0)
        parts.append(f"{words} {first} to 50 %, {second} from there to 90 %")
    claim = "Improvements plateau: class accuracy gains more from 10 to 50 % than from 50 to 90 %:"
    return Finding(claim, judged(signs), "; ".join(parts) or "not run")


def _course_of(results: Results, data: str, figure: str) -> list[tuple[int, Figure]]:
    found = [(share, mean(results, f"{data}/stratified-{share}", figure)) for share in SHARES]
    return [(share, one) for share, one in found if one is not None]


def _not_monotonic(results: Results) -> Finding:
    """Where more samples surely lower the first match; sure for all steps together, as one of many falls by chance."""
    pairs = [
        (f"{name} {share} to {more} %", one, other)
        for data, name in PAIRS.items()
        for (share, one), (more, other) in itertools.pairwise(_course_of(results, data, "any_at_1"))
    ]
    drops = [name for name, one, other in pairs if apart(other, one, len(pairs)).sign < 0]
    there = dict(_course_of(results, "mnist", "any_at_1"))
    named = apart(there[NAMED[1]], there[NAMED[0]]) if set(NAMED) <= set(there) else None
    sign = None if not pairs else 1 if drops else 0
    words = f"any@1 surely falls at {', '.join(drops) or 'none'} of {len(pairs)} steps, all looked at together"
    if named is not None:
        words += f"; where the paper falls, MNIST {NAMED[0]} to {NAMED[1]} %, {named}"
    return Finding("The class of the first match does not grow monotonically with the share:", judged([sign]), words)


def _steadier(results: Results) -> Finding:
    """Whether any@5 and any@10 vary less over the shares than any@1."""
    signs, parts = [], []
    for data, words in PAIRS.items():
        ranges = []
        for figure in ("any_at_1", "any_at_5", "any_at_10"):
            rates = [one[0] for _, one in _course_of(results, data, figure)]
            ranges.append(max(rates) - min(rates) if len(rates) > 1 else None)
        first, *others = ranges
        if first is not None:
            signs += [1 if one < first else -1 for one in others if one is not None]
            parts.append(f"{words} {', '.join(f'{100 * one:.1f}' for one in ranges if one is not None)}")
    text = f"points from lowest to highest of any@1, @5, @10: {'; '.join(parts)}" if parts else "not run"
    return Finding("Top 5 and top 10 are steadier than top 1 over the shares:", judged(signs), text)


def _course(results: Results) -> str:
    parts = []
    for data, words in PAIRS.items():
        found = [mean(results, f"{data}/stratified-{share}", "class_accuracy") for share in (10, 50, 90)]
        parts.append(f"{words} {', '.join(percent_of(one) for one in found)} at 10, 50, 90 %")
    return "; ".join(parts)

"""What the paper's sentences on size and sharing say of pairs, on its own tables and on our results alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from provnet_paper.beside import ALL, BAR, CASES, MOST, SOME, Apart, beyond
from provnet_paper.pairs import Known, known, less
from provnet_paper.records import Figure, Results, printed

PAIRS = {"mnist": "MNIST", "fashion-mnist": "FashionMNIST"}
SIZES = ("small", "medium", "large", "xlarge")
LEVELS = (1, 2, 3, 4)
NAMES = {"small": "Small", "medium": "Medium", "large": "Large", "xlarge": "XLarge"}
CLASS, INDEX, TOP_1, TOP_5 = "class_accuracy", "index_accuracy", "any_at_1", "any_at_5"
Look = Callable[[str, str, int, str], Known | None]  # data, size, level, figure -> rate and n
Sign = int | None
CONSISTENCY = (TOP_1, TOP_5)  # class consistency is "Top-1 and Top-5" in app. 7.6
DIGITS, CLOTHES = ("mnist",), ("fashion-mnist",)  # sec. 4.4 speaks of MNIST alone
SLIGHT = 0.01  # "minimal degradation" is taken to be less, "substantially exceeded" to be more
STRONG, NEAR_PERFECT = 0.9, 0.99  # what "strong" and "near-perfect" performance are taken to be, at least


def ours(results: Results) -> Look:
    """Looks into our results."""
    return lambda data, size, level, figure: known(results, f"{data}/{size}-{level}", figure)


@cache
def _theirs() -> dict[tuple[str, str, str], float]:
    return {(one.data, one.setting, one.figure): one.value for one in printed("sharing")}


def papers(data: str, size: str, level: int, figure: str) -> Known:
    """Looks into the paper's own tables.

    >>> papers("mnist", "small", 4, "index_accuracy").figure
    (0.919, 60000)
    """
    return Known((_theirs()[data, f"{size}-{level}", figure], 60_000 if figure == INDEX else 10_000))


def sign(found: Apart | None) -> Sign:
    """1, 0, -1, or None where nothing was compared."""
    return None if found is None else found.sign


def larger_is_better(look: Look, pairs: Iterable[str]) -> Iterator[Sign]:
    """XLarge above Small at the same level, in one figure each."""
    for data in pairs:
        for level in LEVELS:
            for figure in (CLASS, INDEX):
                yield sign(less(look(data, "xlarge", level, figure), look(data, "small", level, figure)))


def sharing_improves(look: Look, pairs: Iterable[str]) -> Iterator[Sign]:
    """XLarge: levels 2, 3 and 4 each above level 1, in the accuracy of either branch, of which sec. 4.4 speaks."""
    for data in pairs:
        for figure in (CLASS, INDEX):
            for level in LEVELS[1:]:
                yield sign(less(look(data, "xlarge", level, figure), look(data, "xlarge", 1, figure)))


def sharing_hurts_small(look: Look, pairs: Iterable[str]) -> Iterator[Sign]:
    """Small: level 4, which shares most, below level 1, in the accuracy of either branch."""
    for data in pairs:
        for figure in (CLASS, INDEX):
            yield sign(less(look(data, "small", 1, figure), look(data, "small", 4, figure)))


def level_3_beats_level_1(look: Look, pairs: Iterable[str]) -> Iterator[Sign]:
    """All convolutions shared above the first one alone, in one figure of one size each."""
    for data in pairs:
        for size in SIZES:
            for figure in (CLASS, INDEX, *CONSISTENCY):
                yield sign(less(look(data, size, 3, figure), look(data, size, 1, figure)))


def small_is_strong(look: Look, pairs: Iterable[str]) -> Iterator[Sign]:
    """Small at every level: class and memorisation of STRONG or more."""
    for data in pairs:
        for level in LEVELS:
            for figure in (CLASS, INDEX):
                yield beyond(_rate(look(data, "small", level, figure)), STRONG)


def medium_and_large_are_near_perfect(look: Look, pairs: Iterable[str]) -> Iterator[Sign]:
    """Medium and Large at level 4: class and memorisation of NEAR_PERFECT or more."""
    for data in pairs:
        for size in ("medium", "large"):
            for figure in (CLASS, INDEX):
                yield beyond(_rate(look(data, size, 4, figure)), NEAR_PERFECT)


def level_3_is_best(look: Look, pairs: Iterable[str], figure: str = INDEX) -> Iterator[Sign]:
    """Level 3 above all other levels of its size."""
    for data in pairs:
        for size in SIZES:
            yield _above_all(look, data, size, figure, 3, (1, 2, 4))


def level_3_is_most_consistent(look: Look, pairs: Iterable[str]) -> Iterator[Sign]:
    """The same in class consistency."""
    return _in_each(level_3_is_best, look, pairs)


def level_3_classifies_best(look: Look, pairs: Iterable[str]) -> Iterator[Sign]:
    """The same in class accuracy."""
    return level_3_is_best(look, pairs, CLASS)


def level_4_degrades_small(look: Look, pairs: Iterable[str]) -> Iterator[Sign]:
    """Small: level 4 below level 3 in memorisation, and by more on FashionMNIST than on MNIST."""
    falls = {data: less(look(data, "small", 3, INDEX), look(data, "small", 4, INDEX)) for data in pairs}
    yield from map(sign, falls.values())
    yield _more(falls.get("fashion-mnist"), falls.get("mnist"))


def level_1_underperforms(look: Look, pairs: Iterable[str], figure: str = INDEX) -> Iterator[Sign]:
    """Medium and XLarge: level 1 below levels 2 and 3."""
    for data in pairs:
        for size in ("medium", "xlarge"):
            for level in (2, 3):
                yield sign(less(look(data, size, level, figure), look(data, size, 1, figure)))


def level_1_is_less_consistent(look: Look, pairs: Iterable[str]) -> Iterator[Sign]:
    """The same in class consistency."""
    return _in_each(level_1_underperforms, look, pairs)


def top_5_exceeds(look: Look, pairs: Iterable[str]) -> Iterator[Sign]:
    """Any of five more than SLIGHT above the first, everywhere."""
    for data in pairs:
        for size in SIZES:
            for level in LEVELS:
                yield _past(less(look(data, size, level, TOP_5), look(data, size, level, TOP_1)), SLIGHT)


def sharing_improves_consistency(look: Look, pairs: Iterable[str]) -> Iterator[Sign]:
    """Level 4 above level 1 in class consistency, whatever the size."""
    for data in pairs:
        for size in SIZES:
            for figure in CONSISTENCY:
                yield sign(less(look(data, size, 4, figure), look(data, size, 1, figure)))


def xlarge_shares_without_loss(look: Look, pairs: Iterable[str]) -> Iterator[Sign]:
    """XLarge: level 4 less than SLIGHT below level 1, in class and in memorisation."""
    for data in pairs:
        for figure in (CLASS, INDEX):
            yield _past(less(look(data, "xlarge", 4, figure), look(data, "xlarge", 1, figure)), -SLIGHT)


def high_levels_consistent(look: Look, pairs: Iterable[str]) -> Iterator[Sign]:
    """Large and XLarge: levels 3 and 4 each above levels 1 and 2 in class consistency."""
    for data in pairs:
        for size in ("large", "xlarge"):
            for level in (3, 4):
                for figure in CONSISTENCY:
                    yield _above_all(look, data, size, figure, level, (1, 2))


def sharing_helps_larger_more(look: Look, pairs: Iterable[str]) -> Iterator[Sign]:
    """Class consistency of Large and of XLarge gains from level 1 to level 4, and more than that of Small."""
    for data in pairs:
        for figure in CONSISTENCY:
            gains = {size: less(look(data, size, 4, figure), look(data, size, 1, figure)) for size in SIZES}
            for size in ("large", "xlarge"):
                gain, more = sign(gains[size]), _more(gains[size], gains["small"])
                yield None if gain is None or more is None else min(gain, more)


def capacity_reduces_interference(look: Look, pairs: Iterable[str], figure: str = INDEX) -> Iterator[Sign]:
    """What memorisation loses from level 3 to level 4 is more for Small than for each larger size."""
    for data in pairs:
        drops = {size: less(look(data, size, 3, figure), look(data, size, 4, figure)) for size in SIZES}
        for size in SIZES[1:]:
            yield _more(drops["small"], drops[size])


def capacity_saves_classes(look: Look, pairs: Iterable[str]) -> Iterator[Sign]:
    """The same in class accuracy."""
    return capacity_reduces_interference(look, pairs, CLASS)


def _in_each(
    cases: Callable[[Look, Iterable[str], str], Iterator[Sign]], look: Look, pairs: Iterable[str]
) -> Iterator[Sign]:
    """The same in each figure of class consistency."""
    there = tuple(pairs)
    for figure in CONSISTENCY:
        yield from cases(look, there, figure)


def _more(one: Apart | None, other: Apart | None) -> Sign:
    """1 where the first difference is surely larger than the second, as if of samples of their own."""
    if one is None or other is None:
        return None
    half = ((one.high - one.value) ** 2 + (other.high - other.value) ** 2) ** 0.5
    value = one.value - other.value
    return 1 if value > half else -1 if value < -half else 0


def _rate(found: Known | None) -> Figure | None:
    return None if found is None else found.figure


def _past(found: Apart | None, margin: float) -> Sign:
    """1 where a difference is surely above the margin, -1 where surely below."""
    return None if found is None else 1 if found.low > margin else -1 if found.high < margin else 0


def _above_all(look: Look, data: str, size: str, figure: str, level: int, others: Sequence[int]) -> Sign:
    """1 surely above each of the others, -1 surely below one of them, else 0."""
    found = [sign(less(look(data, size, level, figure), look(data, size, other, figure))) for other in others]
    if any(one is None for one in found):
        return None
    return -1 if -1 in found else 1 if set(found) == {1} else 0


CONSISTENT = "class consistency, top 1 and any of 5"


@dataclass(frozen=True)
class Claim:
    """A sentence, and what it says of the cases that it speaks of: 1 surely so, -1 surely not, 0 too near, None.

    `said`: of all cases, of most or of some; `data`: what the sentence was said of; `late` as of a Finding.
    """

    sentence: str
    where: str
    cases: Callable[[Look, Iterable[str]], Iterator[Sign]]
    said: str = ALL
    data: tuple[str, ...] = tuple(PAIRS)
    late: str = ""


CLAIMS = (
    Claim('"the larger model … achieves higher accuracy in both branches"', "sec. 4.4", larger_is_better, data=DIGITS),
    Claim(
        '"Increased layer sharing further improves the larger model" (class and memorisation)',
        "sec. 4.4",
        sharing_improves,
        data=DIGITS,
        late=CASES,
    ),
    Claim(
        '"… but can hurt the smaller one" (class and memorisation)',
        "sec. 4.4",
        sharing_hurts_small,
        SOME,
        DIGITS,
        CASES,
    ),
    Claim(
        "\"MNIST's simpler visual patterns allowed even Small models to achieve strong performance across sharing "
        f'levels" (class and memorisation, {100 * STRONG:.0f} % or more)',
        "app. 7.6",
        small_is_strong,
        data=DIGITS,
        late=BAR,
    ),
    Claim(
        '"Level 3 sharing … emerged as optimal for most configurations" (memorisation)',
        "app. 7.6",
        level_3_is_best,
        MOST,
    ),
    Claim(
        f'"Level 3 … optimal for most configurations" ({CONSISTENT})',
        "app. 7.6",
        level_3_is_most_consistent,
        MOST,
        late=CASES,
    ),
    Claim('"Level 3 … optimal for most configurations" (class accuracy)', "app. 7.6", level_3_classifies_best, MOST),
    Claim(
        '"Level 3 sharing (all conv layers) often outperforms minimal sharing" (level 1; class, memorisation and '
        f"{CONSISTENT})",
        "app. 7.6",
        level_3_beats_level_1,
        MOST,
        late=CASES,
    ),
    Claim(
        '"Level 4 sharing … showed performance degradation in capacity-constrained settings, especially for Small '
        'models on Fashion-MNIST" (memorisation of Small)',
        "app. 7.6",
        level_4_degrades_small,
    ),
    Claim(
        '"Level 1 sharing … sometimes underperformed on Fashion-MNIST, particularly for Medium and XLarge models" '
        "(memorisation)",
        "app. 7.6",
        level_1_underperforms,
        SOME,
        CLOTHES,
    ),
    Claim(
        f'"Level 1 … sometimes underperformed on Fashion-MNIST …" ({CONSISTENT})',
        "app. 7.6",
        level_1_is_less_consistent,
        SOME,
        CLOTHES,
        CASES,
    ),
    Claim(
        '"Top-5 class consistency substantially exceeded Top-1 across all configurations" (more than a point)',
        "app. 7.6",
        top_5_exceeds,
    ),
    Claim(
        f'"Higher sharing levels generally improved class consistency" (level 4 against 1, {CONSISTENT})',
        "app. 7.6",
        sharing_improves_consistency,
        MOST,
        late=CASES,
    ),
    Claim(
        f'"This pattern was most pronounced in larger models" (gained from level 1 to 4, {CONSISTENT})',
        "app. 7.6",
        sharing_helps_larger_more,
        late=CASES,
    ),
    Claim(
        f'"… in larger models, where Level 3-4 sharing achieved the highest class consistency" ({CONSISTENT})',
        "app. 7.6",
        high_levels_consistent,
        late=CASES,
    ),
    Claim(
        '"interference effects diminish with capacity …" (memorisation lost from level 3 to 4)',
        "app. 7.6",
        capacity_reduces_interference,
        MOST,
    ),
    Claim(
        '"Medium and Large models … near-perfect performance on both tasks even with substantial sharing" (level 4, '
        f"{100 * NEAR_PERFECT:.0f} % or more)",
        "app. 7.6",
        medium_and_large_are_near_perfect,
        late=BAR,
    ),
    Claim(
        '"increased capacity reduces interference" (class accuracy lost from level 3 to 4)',
        "app. 7.6",
        capacity_saves_classes,
        MOST,
    ),
    Claim(
        '"massive capacity … can accommodate up to 48% parameter sharing with minimal degradation" (less than a point)',
        "app. 7.6",
        xlarge_shares_without_loss,
    ),
)

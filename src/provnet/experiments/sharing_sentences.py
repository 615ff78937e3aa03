"""The paper's sentences on size and sharing, by name; what each says of pairs is in `sharing_claims`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from provnet.experiments.beside import ALL, BAR, CASES, MOST, SOME
from provnet.experiments.sharing_claims import (
    CLOTHES,
    DIGITS,
    NEAR_PERFECT,
    PAIRS,
    STRONG,
    Look,
    Sign,
    capacity_reduces_interference,
    capacity_saves_classes,
    high_levels_consistent,
    larger_is_better,
    level_1_is_less_consistent,
    level_1_underperforms,
    level_3_beats_level_1,
    level_3_classifies_best,
    level_3_is_best,
    level_3_is_most_consistent,
    level_4_degrades_small,
    medium_and_large_are_near_perfect,
    sharing_helps_larger_more,
    sharing_hurts_small,
    sharing_improves,
    sharing_improves_consistency,
    small_is_strong,
    top_5_exceeds,
    xlarge_shares_without_loss,
)

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

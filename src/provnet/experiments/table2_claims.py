"""What the paper says of table 2 (sec. 5.1), put to the test on our numbers."""

from __future__ import annotations

from provnet.experiments.beside import Finding, judged, percent_of
from provnet.experiments.pairs import Known, known, with_luck
from provnet.experiments.paper import printed
from provnet.experiments.records import Results
from provnet.experiments.settings import DATA

TWO, ONE = ("class-conditional", "class-independent"), ("single-0", "single-0.5")


def findings(results: Results) -> list[Finding]:
    """Memory against classes in the single branch, the index of CIFAR-10, the size of two branches."""
    return [
        _memory(results, "index_accuracy", "explain better (own index found)", 1),
        _memory(results, "any_at_1", "classify worse (class of the first sample)", -1),
        _poorly(results),
        _larger(results),
    ]


def _memory(results: Results, figure: str, words: str, wanted: int) -> Finding:
    """Single branches with α = 0 against α = .5."""
    signs, parts, left = [], [], []
    for data, name in DATA.items():
        full, half = (known(results, f"{data}/{setting}", figure) for setting in ONE)
        gap = with_luck(full, half)
        if full is None or half is None or gap is None:
            left.append(name)
            continue
        signs.append(wanted * gap.sign)
        parts.append(f"{name} {percent_of(full.figure)} against {percent_of(half.figure)}, {gap}")
    claim = f"Single branches with stronger memorisation (α = 0 against .5) {words}:"
    return Finding(claim, judged(signs), _evidence(parts, left))


def _poorly(results: Results) -> Finding:
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
    claim = f'The class-independent network "performs poorly" on the index of CIFAR-10 ({paper.text} in the paper):'
    if ours is None or given is None:
        return Finding(claim, judged([]), "not run")
    gap = with_luck(ours, Known((paper.value, ours.figure[1]), each=(paper.value,)))
    sign = -1 if gap is not None and gap.sign > 0 else 1
    text = f"{percent_of(ours.figure)}, and {percent_of(given.figure)} with the class given, {with_luck(ours, given)}"
    return Finding(claim, judged([sign]), text)


def _larger(results: Results) -> Finding:
    """Parameters of the two-branch networks against those of the single branch."""
    signs, parts, left = [], [], []
    for data, name in DATA.items():
        sizes = [_size(results, f"{data}/{setting}") for setting in (*TWO, ONE[0])]
        if not all(sizes):
            left.append(name)
            continue
        two, single = sizes[:2], sizes[2]
        signs += [1 if size > single else -1 for size in two]
        parts.append(f"{name} {' and '.join(f'{size:.2f}' for size in two)} M against {single:.2f} M")
    claim = 'Two branches do both "at the cost of larger models" than a single branch (parameters, layers as listed):'
    return Finding(claim, judged(signs), _evidence(parts, left))


def _evidence(parts: list[str], left: list[str]) -> str:
    """Data set by data set; those that were not run are counted, as the sentences speak of all."""
    return "; ".join([*parts, f"{len(left)} not run: {', '.join(left)}"] if parts and left else parts) or "not run"


def _size(results: Results, cell: str) -> float:
    """Millions of parameters; 0 where it was not run."""
    return next((float(one.told["parameters"]) / 1e6 for one in results.cells.get(cell, {}).values()), 0.0)

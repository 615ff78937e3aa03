"""The bars of the trust checks, and whether figures meet them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from provnet.applications.abstention import Abstention, StrangerRate
from provnet.applications.confidence import Calibrated
from provnet.applications.dependence import Dependence
from provnet.report.text import percent
from provnet.stats import Interval

# |Spearman| with other weights, at most; rho squared below one half: most of the ranking was learned
BARS = {"head": 0.1, "backbone": 0.2, "untrained": 0.7, "ece": 0.05, "own": 0.05, "abstain": 0.95, "auroc": 0.9}
NEAR = ("letters", "shapes")  # drawn like what was trained on, so judged by the AUROC alone
WORDS = {
    "noise": "uniform noise",
    "constant": "pictures of one colour",
    "letters": "drawn letters",
    "shapes": "drawn shapes",
}
NO_DATA = "not measured: the training data cannot be opened"
NO_TEST = "not measured: there is no unseen data; give --test DATA"


@dataclass(frozen=True)
class Outcome:
    """One check.

    Attributes:
        group: `weights`, `confidence` or `abstention`.
        key: its name.
        words: what is measured.
        figure: with its interval; None where nothing was measured.
        bar: what it must be, in words.
        passed: None where nothing was measured.
        percent: whether the figure is a rate.
        note: what else there is to say.
    """

    group: str
    key: str
    words: str
    figure: Interval | None
    bar: str
    passed: bool | None
    percent: bool = True
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**vars(self), "figure": None if self.figure is None else self.figure.to_json()}


def verdicts(
    depends: Dependence | None,
    classes: Calibrated | None,
    named: Calibrated | None,
    abstains: Abstention,
    left_out: Abstention | None,
) -> tuple[Outcome, ...]:
    """All outcomes, in the order that they are shown in."""
    found = [*_weights(depends), *_confidence(classes, named), *_abstention(abstains)]
    for name, one in {} if left_out is None else left_out.kinds.items():
        found.append(_auroc(name, f"told from {name}: AUROC", one.auroc, _abstained(one)))
    return tuple(found)


def _weights(depends: Dependence | None) -> list[Outcome]:
    if depends is None:
        return [Outcome("weights", "index head", "ranking with other weights", None, "", None, False, NO_DATA)]
    rows = [
        _small("index head", "ranking, index head drawn anew: Spearman", depends.head.spearman, "head"),
        _small("network", "ranking, whole network drawn anew: Spearman", depends.steps[-1].spearman, "backbone"),
    ]
    if depends.fresh is not None:
        words = "ranking by an untrained network with keys of its own: Spearman"
        rows.append(_small("untrained network", words, depends.fresh.spearman, "untrained"))
    control = depends.control.spearman
    fails = control.high is not None and control.high > BARS["untrained"]
    words = "control, nearest neighbours of the pixels: Spearman"
    bar = f"above {BARS['untrained']}: the control must fail"
    return [*rows, Outcome("weights", "pixel control", words, control, bar, fails, False)]


def _small(key: str, words: str, figure: Interval, bar: str) -> Outcome:
    """Met where the whole interval lies within the bar on both sides."""
    if figure.low is None or figure.high is None:
        return Outcome("weights", key, words, None, "", None, False, f"not measured: {figure.why}")
    met = max(-figure.low, figure.high) <= BARS[bar]
    note = "" if met else "the attribution is not shown to depend on the learned weights"
    return Outcome("weights", key, words, figure, f"within ± {BARS[bar]}", met, False, note)


def _confidence(classes: Calibrated | None, named: Calibrated | None) -> list[Outcome]:
    rows = []
    for key, words, one, why in (
        ("class confidence", "distorted unseen pictures, class: calibration error", classes, NO_TEST),
        ("sample confidence", "distorted training samples, sample named first: calibration error", named, NO_DATA),
    ):
        if one is None:
            rows.append(Outcome("confidence", key, words, None, "", None, True, why))
            continue
        met = (one.ece.value or 0.0) <= BARS["ece"]
        right = percent(one.right.value or 0.0)
        note = "" if met else f"{one.leans}: {percent(one.confidence)} sure, {right} right"
        rows.append(Outcome("confidence", key, words, one.ece, f"at most {BARS['ece'] * 100:g} %", met, True, note))
    return rows


def _abstention(abstains: Abstention) -> list[Outcome]:
    words = "unseen pictures of its own kind called unsupported"
    if abstains.own.value is None:
        rows = [Outcome("abstention", "own pictures", words, None, "", None, True, NO_TEST)]
    else:
        met = abstains.own.value <= BARS["own"]
        rows = [Outcome("abstention", "own pictures", words, abstains.own, f"at most {BARS['own'] * 100:g} %", met)]
    for name, one in abstains.kinds.items():
        shown = WORDS.get(name, name)
        if name in NEAR:
            rows.append(_auroc(name, f"told from {shown}: AUROC", one.auroc, _abstained(one)))
            continue
        met = (one.abstained.value or 0.0) >= BARS["abstain"]
        note = f"false support {percent(one.false_support.value or 0.0)}{_area(one.auroc)}"
        bar = f"at least {BARS['abstain'] * 100:g} %"
        rows.append(Outcome("abstention", name, f"{shown} called unsupported", one.abstained, bar, met, True, note))
    return rows


def _abstained(one: StrangerRate) -> str:
    rates = one.abstained, one.false_support
    abstained, supported = (percent(rate.value or 0.0) for rate in rates)
    return f"{abstained} called unsupported, false support {supported}, n = {one.abstained.n:,}"


def _area(auroc: Interval | None) -> str:
    """An AUROC to four digits, never rounded up to 1."""
    if auroc is None or auroc.value is None:
        return ""
    text = f"{auroc.value:.4f}"
    return f", AUROC {'>0.9999' if text == '1.0000' and auroc.value < 1 else text}"


def _auroc(key: str, words: str, figure: Interval | None, note: str) -> Outcome:
    if figure is None:
        return Outcome("abstention", key, words, None, "", None, False, NO_TEST)
    met = (figure.value or 0.0) >= BARS["auroc"]
    return Outcome("abstention", key, words, figure, f"at least {BARS['auroc']}", met, False, note)

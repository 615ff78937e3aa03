"""What reports are made of: plain records (text, numbers, tuples, small pictures), and numbers and names as text."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:  # help and wrong usage are answered without numpy
    import numpy as np
    import numpy.typing as npt

    from provnet.base.stats import Interval

Picture: TypeAlias = "npt.NDArray[np.uint8]"
"""uint8 pixels, (H, W) grey or (H, W, 3) colour."""

Passage: TypeAlias = tuple[tuple[str, bool], ...]
"""A text in pieces, each with whether it is marked: what is looked at where samples are texts."""


def passage(text: str, others: Sequence[str] = ()) -> Passage:
    """A text, in which the words are marked that stand in one of the others as well, but for the commonest.

    >>> passage("A fine film", ["the finest of films", "no film"])
    (('A fine ', False), ('film', True))
    """
    known = {word for other in others for word in _WORD.findall(other.casefold())} - _COMMON
    pieces: list[tuple[str, bool]] = []
    for piece in _PIECE.findall(text):
        marked = piece.casefold() in known
        if pieces and not marked and not pieces[-1][1]:
            pieces[-1] = (pieces[-1][0] + piece, False)
        else:
            pieces.append((piece, marked))
    return tuple(pieces)


_WORD, _PIECE = re.compile(r"\w{2,}"), re.compile(r"\w+|\W+")
_COMMON = frozenset(
    "a an and are as at be but by do does for from had has have he her his how i if in is it its me my of on or our "  # noqa: SIM905
    "she so that the their them they this to was we were what when which who will with would you your can".split()
)


@dataclass(frozen=True, eq=False)
class ExemplarCard:
    """One training sample offered as explanation.

    Attributes:
        picture: its pixels, its text, or None where neither can be shown (then an id card stands for it).
        sample_id: the id that names the sample to people.
        sha256: 64 hex digits of its content.
        label: the name of its class.
        weight: its share of the explanation, 0..1, or of the largest where there is an amount.
        note: why there is no picture, or any other remark; usually empty.
        amount: how much the answer depends on it, in words, which then stands in place of a share.
    """

    picture: Picture | Passage | None
    sample_id: str
    sha256: str
    label: str
    weight: float
    note: str = ""
    amount: str = ""

    @property
    def words(self) -> str:
        """Its weight."""
        return self.amount or percent(self.weight)


@dataclass(frozen=True, eq=False)
class ExplanationCard:
    """One explained input.

    Attributes:
        query: the pixels of the input, its text, or None.
        name: what the input is called: a file name or a sample id.
        predicted: the name of the predicted class.
        confidence: how sure the network is, 0..1.
        supported: whether training samples support the answer; if not, exemplars are near but no evidence.
        exemplars: training samples, largest weight first.
        truth: the name of the right class where it is known.
        rebuilt: the input as a generator makes it of its own latents, or None.
        over: what stands above the class.
        depends_on: samples without which the answer would be less likely, if that was asked; None if not.
        in_log_odds: whether their amounts have a unit, which only trainings without samples can say.
    """

    query: Picture | Passage | None
    name: str
    predicted: str
    confidence: float
    supported: bool
    exemplars: tuple[ExemplarCard, ...] = ()
    truth: str | None = None
    rebuilt: Picture | None = None
    over: str = "Predicted"
    depends_on: tuple[ExemplarCard, ...] | None = None
    in_log_odds: bool = False

    @property
    def depends_words(self) -> str:
        """What the amounts mean."""
        if self.in_log_odds:
            return "Without one of these, the log-odds of the answer would fall by about that much."
        return "Without them the answer would be less likely. The numbers order them; they have no unit yet."


@dataclass(frozen=True)
class EvaluationRow:
    """One measured share with its 95 % interval; `key` is its name in `evaluate --json`, parts joined by a dot."""

    key: str
    value: float
    n: int
    low: float
    high: float


@dataclass(frozen=True)
class EpochRow:
    """One epoch of training: mean loss, and the shares of right classes and right indices (0..1)."""

    epoch: int
    loss: float
    class_accuracy: float
    index_accuracy: float


@dataclass(frozen=True)
class FileRow:
    """One file of the run folder."""

    name: str
    sha256: str
    bytes: int


@dataclass(frozen=True)
class Finding:
    """A figure of another tool, one sentence on what it measures, and the page that shows more."""

    title: str
    figure: Interval
    meaning: str
    link: str


@dataclass(frozen=True)
class NextStep:
    """A command to try next, and what it does in a few words."""

    command: str
    does: str


@dataclass(frozen=True, eq=False)
class DemoReport:
    """Everything that the page of `provnet demo` shows.

    Attributes:
        data: what was learned, in words that fit "4,000 …": "handwritten digits".
        network: name of the network, such as `class-conditional`.
        backbone: name of the backbone.
        parameters: number of trained parameters.
        train_count: training samples.
        test_count: test samples.
        class_names: one name a class.
        device: where it ran, such as "CPU, 2 threads".
        seed: the seed of the run.
        train_seconds: time of training alone.
        total_seconds: time of the whole command so far.
        epochs: one row an epoch, in order.
        evaluation: rows in the order of `evaluate --json`; `evaluation_rows` makes them from it.
        confusion: counts, one row a true class, one column a predicted class; empty to leave it out.
        explanations: the explained test samples, right and wrong ones.
        fingerprint: the ordered fingerprint of the training data.
        run: the run folder.
        files: files of the run with their hashes.
        versions: name -> version of what it ran with.
        next_steps: commands to try next.
        facts: more `(name, value)` lines for the run's identity.
        findings: what other tools found, with links to their pages.
    """

    data: str
    network: str
    backbone: str
    parameters: int
    train_count: int
    test_count: int
    class_names: tuple[str, ...]
    device: str
    seed: int
    train_seconds: float
    total_seconds: float
    epochs: tuple[EpochRow, ...]
    evaluation: tuple[EvaluationRow, ...]
    confusion: tuple[tuple[int, ...], ...]
    explanations: tuple[ExplanationCard, ...]
    fingerprint: str
    run: str
    files: tuple[FileRow, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    next_steps: tuple[NextStep, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    findings: tuple[Finding, ...] = ()


def evaluation_rows(evaluation: Mapping[str, Any], prefix: str = "") -> tuple[EvaluationRow, ...]:
    """Flatten the dictionary of `evaluate --json` into rows; whatever is no share with an interval is left out.

    >>> figure = {"value": 0.5, "n": 4, "low": 0.15, "high": 0.85}
    >>> [row.key for row in evaluation_rows({"class_accuracy": figure, "index_accuracy_perturbed": {"noise": figure}})]
    ['class_accuracy', 'index_accuracy_perturbed.noise']
    """
    rows: list[EvaluationRow] = []
    for name, value in evaluation.items():
        if not isinstance(value, Mapping):
            continue
        if {"value", "n", "low", "high"} <= set(value):
            shares = (float(value[part]) for part in ("value", "low", "high"))
            share, low, high = shares
            rows.append(EvaluationRow(prefix + name, share, int(value["n"]), low, high))
        else:
            rows.extend(evaluation_rows(value, f"{prefix}{name}."))
    return tuple(rows)


def visible(text: str) -> str:
    r"""Replace what a page or a terminal would obey rather than show; everything printable stays as it is.

    Control characters, and bytes of a file name that were no UTF-8, are written as Python writes them.

    >>> print(visible("a\x1b[31m\nß"))
    a\x1b[31m\nß
    >>> print(visible("caf\udce9.png"))
    caf\xe9.png
    """
    if text.isprintable():  # nearly always
        return text
    return "".join(_shown(character) for character in text)


def percent(share: float, digits: int = 1) -> str:
    """Write a share as a percentage that never rounds up to all or down to none; the page of the app writes it alike.

    Two more digits are shown where they are needed; beyond them stands only that it is not quite all, or not none.

    >>> percent(0.974), percent(1.0), percent(0.99996), percent(0.00002), percent(float("nan"))
    ('97.4 %', '100 %', '99.996 %', '0.002 %', 'n/a')
    >>> percent(0.9999999), percent(1e-8), percent(0.0)
    ('> 99.999 %', '< 0.001 %', '0 %')
    """
    if not math.isfinite(share):
        return "n/a"
    if min(abs(share), abs(share - 1)) < FLOAT:
        return f"{abs(share) * 100:.0f} %"
    for places in range(digits, digits + 3):
        written = f"{share * 100:.{places}f}"
        if float(written) not in (0.0, 100.0):
            return f"{written} %"
    least = 10.0 ** -(digits + 2)
    return f"< {least:.{digits + 2}f} %" if share < 0.5 else f"> {100 - least:.{digits + 2}f} %"


def width(share: float) -> str:
    """Give a share as a CSS length between 0 and 100 %.

    >>> width(0.25), width(1.7), width(float("nan"))
    ('25.00%', '100.00%', '0.00%')
    """
    return f"{min(max(share, 0.0), 1.0) * 100 if math.isfinite(share) else 0.0:.2f}%"


def count(number: int) -> str:
    """Write a count with thousands separated.

    >>> count(60000)
    '60,000'
    """
    return f"{number:,}"


def seconds(value: float) -> str:
    """Write a duration.

    >>> seconds(0.42), seconds(21.43), seconds(75), seconds(7260)
    ('0.4 s', '21.4 s', '1 min 15 s', '2 h 1 min')
    """
    if value < 60:
        return f"{value:.1f} s"
    whole = round(value)
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole % 3600 // 60} min"


def _shown(character: str) -> str:
    code = ord(character)
    if code < 0x20 or code == 0x7F:
        return _SHORT.get(character, f"\\x{code:02x}")
    if 0xDC80 <= code <= 0xDCFF:  # what os.fsdecode makes of a byte that is no UTF-8
        return f"\\x{code - 0xDC00:02x}"
    # lone surrogates, C1 controls, non-characters, and characters that re-order or break up the text around them
    hidden = unicodedata.category(character) in ("Cs", "Cc") or code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF
    if hidden or character in _REORDERING:
        return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return character


FLOAT = 1e-9  # nearer to all or to none than this is an error of float arithmetic
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_REORDERING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029")

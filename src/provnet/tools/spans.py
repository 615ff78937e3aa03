"""Exact and nearly exact copies of passages: which training texts hold a span of a text, and where in them.

Every run of 8 bytes of the training texts is one number in a sorted list. A span of 20 characters or more that stands
in a training text is found wherever it begins. A passage with a few characters changed still shares such runs, or
shorter ones: where many of them lie on one diagonal (position in the training text less position in the passage) the
two are aligned. How similar passages are by chance is measured on fresh texts, for each length.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from provnet.base.errors import DataError, UsageError
from provnet.base.progress import progress_bar
from provnet.data.dataset import Dataset

RUN = 8  # bytes
LEAST = 20  # characters of a span that is told
TRIED = 50  # places that are looked at for each run
COMMON, FREQUENT = 2000, 1000  # places of a run beyond which it says too little: for exact spans, for near ones
WINDOW, PIECE = 240, 80  # bytes of a passage that is looked at as a whole; of a longer one's pieces
SHORT, SHORT_RUN = 60, 6  # bytes of a passage for which shorter runs are looked up
BIN = 16  # diagonals: a few characters may be put in or left out
ALIGNED = 8  # places that a passage is aligned with
SOURCES = 5  # documents that are named for one span
COPY = 50  # characters that no two texts have in common by chance
LENGTHS, MOST_ALARMS = (20, 30, 40, 60, 120, 240), 3  # of fresh passages, and so many of them that may reach the limit


@final
@dataclass(frozen=True)
class Span:
    """Characters `start` to `end` of a query, which stand in document `document` from character `at` on.

    `score` is the share of the passage that need not be changed; of exact spans their length in characters.
    """

    start: int
    end: int
    document: int
    at: int
    score: float


@final
class SpanIndex:
    """The runs of some texts, sorted.

    >>> index = SpanIndex(["To be, or not to be: that is the question.", "Nothing of the kind is written here."])
    >>> index.exact("He said: or not to be: that is the end")
    [Span(start=8, end=35, document=0, at=6, score=27)]
    """

    def __init__(self, texts: Sequence[str], *, progress: bool = False) -> None:
        if not texts:
            raise UsageError("an index of spans needs one text or more")
        with progress_bar("index of spans", 3, progress) as update:
            encoded = [_encoded(text) for text in texts]
            self.raw = np.frombuffer(b"\0".join(encoded) + b"\0" * RUN, dtype=np.uint8)
            if len(self.raw) >= 2**31:
                raise DataError(
                    f"the texts have {len(self.raw):,} bytes, an index of spans takes 2,147,483,647 at most"
                )
            self.starts = np.cumsum([0, *(len(text) + 1 for text in encoded[:-1])])
            update(1, "")
            runs = _runs(self.raw)
            self.order = np.argsort(runs).astype(np.int32)
            update(2, "")
            self.sorted = runs[self.order]
            update(3, "")

    def exact(self, text: str, least: int = LEAST) -> list[Span]:
        """The longest spans of the query that documents hold, longest first; of one span SOURCES documents at most."""
        query = np.frombuffer(_encoded(text), dtype=np.uint8)
        if len(query) < 2 * RUN:
            return []
        low, high = self._places(_runs(query))
        found: dict[tuple[int, int, int], None] = {}
        covered: dict[int, int] = {}  # diagonal -> the end of the span that is known there
        for at in range(0, len(low) - RUN, max(1, min(4, least - 2 * RUN + 1))):
            one, other = (at, at + RUN) if high[at] - low[at] <= high[at + RUN] - low[at + RUN] else (at + RUN, at)
            places = self.order[low[one] : min(high[one], low[one] + COMMON)].astype(np.int64)
            beside = np.clip(places[:, None] + (other - one) + np.arange(RUN), 0, len(self.raw) - 1)
            both = places[(self.raw[beside] == query[other : other + RUN]).all(1)]
            for shift in (both[:TRIED] - one).tolist():
                if covered.get(shift, -1) > at:
                    continue
                start, end = self._grown(query, one, shift)
                covered[shift] = end
                found[start, end, shift] = None
        spans = [self._span(query, *each) for each in found]
        return _longest([span for span in spans if span.end - span.start >= least])

    def near(self, text: str) -> list[Span]:
        """Where documents come nearest to a passage, best first; a long one is asked about in pieces of PIECE."""
        query = _encoded(text)
        if len(query) <= WINDOW:
            return self._near(query)
        found: dict[int, Span] = {}
        for start in range(0, len(query) - PIECE // 2, PIECE // 2):
            before = len(query[:start].decode("utf-8", "ignore"))
            for span in self._near(query[start : start + PIECE]):
                moved = replace(span, start=span.start + before, end=span.end + before)
                if span.document not in found or found[span.document].score < span.score:
                    found[span.document] = moved
        return sorted(found.values(), key=lambda span: -span.score)[:SOURCES]

    def _near(self, query: bytes) -> list[Span]:
        """The best alignments of one passage."""
        raw, size = np.frombuffer(query, dtype=np.uint8), SHORT_RUN if len(query) < SHORT else RUN
        runs = _runs(np.r_[raw, np.zeros(RUN - size, np.uint8)])
        low, high = self._places(runs, size)
        count = high - low
        used = np.flatnonzero((count > 0) & (count <= FREQUENT))
        if not len(used):
            return []
        each = count[used]
        at = np.repeat(used, each)
        inside = np.arange(each.sum()) - np.repeat(np.cumsum(each) - each, each)
        place = self.order[np.repeat(low[used], each) + inside].astype(np.int64)
        groups, which = np.unique((place - at + WINDOW) // BIN, return_inverse=True)
        rough = np.bincount(which, np.log2(len(self.raw) / np.repeat(each, each)))
        rough += np.r_[np.where(np.diff(groups) == 1, rough[1:], 0), 0]  # a copy may lie across two bins
        tops = np.argsort(-rough, kind="stable")[:ALIGNED]
        found: dict[int, Span] = {}
        for first in (int(groups[top]) * BIN - WINDOW for top in tops):
            span = self._aligned(query, max(0, first - BIN), first + 3 * BIN + len(query))
            if span.document not in found or found[span.document].score < span.score:
                found[span.document] = span
        return sorted(found.values(), key=lambda span: -span.score)[:SOURCES]

    def _aligned(self, query: bytes, start: int, end: int) -> Span:
        """The passage against the bytes there: one less the share of its characters that must be changed."""
        region = self.raw[start:end].tobytes()
        distance, last = edits(query, region)
        place = start + max(0, last - len(query))
        document = int(np.searchsorted(self.starts, place, side="right")) - 1
        where = _characters(self.raw, int(self.starts[document]), place)
        length = len(query.decode("utf-8", "ignore"))
        return Span(0, length, document, where, 1 - distance / max(len(query), 1))

    def by_chance(self, fresh: Sequence[str], rate: float = 0.001) -> list[tuple[int, float]]:
        """(length, score) that this share of fresh passages of each length in LENGTHS reaches by chance.

        Passages that hold an exact copy of COPY characters are no fresh ones. Empty where there are too few to tell;
        `limit` reads between the lengths.
        """
        found = []
        for length in LENGTHS:
            parts = [text[i : i + length] for text in fresh for i in range(0, len(text) - length + 1, length)]
            parts = parts[:: max(1, int(len(parts) * rate / MOST_ALARMS))]
            parts = [part for part in parts if length < COPY or not self.exact(part, COPY)]
            if len(parts) < 1 / rate:
                return []
            scores = [max((span.score for span in self.near(part)), default=0.0) for part in parts]
            found.append((length, float(np.sort(scores)[len(scores) - 1 - int(rate * len(scores))])))
        return found

    def _places(self, runs: np.ndarray, size: int = RUN) -> tuple[np.ndarray, np.ndarray]:
        """Where runs stand in the list that begin with the same `size` bytes."""
        rest = np.uint64(2 ** (8 * (RUN - size)) - 1)
        return np.searchsorted(self.sorted, runs & ~rest, "left"), np.searchsorted(self.sorted, runs | rest, "right")

    def _grown(self, query: np.ndarray, at: int, shift: int) -> tuple[int, int]:
        """The bytes of the query around a place that are those of the documents there."""
        after = min(len(query) - at, len(self.raw) - at - shift)
        differ = query[at : at + after] != self.raw[at + shift : at + shift + after]
        end = at + (int(differ.argmax()) if differ.any() else after)
        before = min(at, at + shift)
        differ = query[at - before : at][::-1] != self.raw[at + shift - before : at + shift][::-1]
        return at - (int(differ.argmax()) if differ.any() else before), end

    def _span(self, query: np.ndarray, start: int, end: int, shift: int) -> Span:
        """In characters; a letter of several bytes that is cut is left out."""
        while start < end and query[start] & 0xC0 == 0x80:
            start += 1
        while end > start and end < len(query) and query[end] & 0xC0 == 0x80:
            end -= 1
        document = int(np.searchsorted(self.starts, start + shift, side="right")) - 1
        begin, length = _characters(query, 0, start), _characters(query, start, end)
        return Span(
            begin, begin + length, document, _characters(self.raw, int(self.starts[document]), start + shift), length
        )


@dataclass(frozen=True)
class Copied:
    """A passage of a text that stands in a training text, or nearly so.

    Attributes:
        text, start, end: the passage, and its characters in the text that was asked about.
        sample_id, sha256, at: the training sample, and the character that it stands at there.
        similarity: the share of its characters that need not be changed; 1 for an exact copy.
        limit: the similarity that one fresh passage of that length in 1,000 reaches; None for an exact copy.
    """

    text: str
    start: int
    end: int
    sample_id: str
    sha256: str
    at: int
    similarity: float = 1.0
    limit: float | None = None


def copied_passages(
    data: Dataset, fresh: Sequence[str], asked: Sequence[str], *, progress: bool = False
) -> list[list[Copied]]:
    """For each text asked about the passages that training texts hold: exact ones, and near ones where none is exact.

    Near ones are told where there is enough fresh text to know how similar passages are by chance.

    >>> import provnet
    >>> data = provnet.open_data(["to be or not to be that is the question", "nothing of the kind"], ["a", "b"])
    >>> found = copied_passages(data, [], ["he said or not to be that is it"])[0][0]
    >>> found.text, found.sample_id, found.at
    (' or not to be that is ', 'train/0', 5)
    """
    index, found = SpanIndex([str(item) for item in data.items or ()], progress=progress), []
    known = index.by_chance(fresh) if fresh else []
    for text in (unicodedata.normalize("NFC", each) for each in asked):
        spans = [(span, 1.0, None) for span in index.exact(text)]
        near = [
            (span, limit(known, span.end - span.start)) for span in (() if spans or not known else index.near(text))
        ]
        spans += [(span, span.score, least) for span, least in near if span.score > least]  # type: ignore[misc]
        found.append(
            [
                Copied(
                    text[span.start : span.end],
                    span.start,
                    span.end,
                    data.samples.sample_ids[span.document],
                    data.samples.hex(span.document),
                    span.at,
                    similarity,
                    least,
                )
                for span, similarity, least in spans
            ]
        )
    return found


def edits(pattern: bytes, text: bytes) -> tuple[int, int]:
    """The least number of bytes to change, put in or leave out that turns a pattern into some part of a text, and where
    that part ends (Myers 1999: a column of the table is one number).

    >>> edits(b"question", b"that is the questoin.")
    (2, 18)
    """
    length, masks = len(pattern), dict.fromkeys(pattern, 0)
    for place, byte in enumerate(pattern):
        masks[byte] |= 1 << place
    full, top = (1 << length) - 1, 1 << (length - 1)
    plus, minus, distance, best = full, 0, length, (length, 0)
    for end, byte in enumerate(text, 1):
        equal = masks.get(byte, 0)
        across = (((equal & plus) + plus) ^ plus) | equal | minus
        up, down = minus | ~(across | plus) & full, plus & across
        distance += bool(up & top) - bool(down & top)
        up, down = (up << 1) & full, (down << 1) & full
        plus, minus = (down | ~(across | up)) & full, up & across
        if distance < best[0]:
            best = distance, end
    return best


def limit(known: Sequence[tuple[int, float]], length: int) -> float:
    """The score above which a passage of some length is a near copy; infinite where nothing is known.

    >>> limit([(20, 1.0), (40, 0.8)], 30)
    0.9
    """
    lengths, scores = [one for one, _ in known], [score for _, score in known]
    return float(np.interp(length, lengths, scores)) if known else float("inf")


def _encoded(text: str) -> bytes:
    if "\0" in text:
        raise DataError("a text holds a NUL character; remove it")
    return unicodedata.normalize("NFC", text).encode("utf-8", "replace")


def _runs(raw: np.ndarray) -> np.ndarray:
    """Each run of RUN bytes as one number."""
    count = max(0, len(raw) - RUN + 1)  # the first byte counts most: runs that begin alike lie together
    return np.ndarray((count,), ">u8", np.ascontiguousarray(raw).data, strides=(1,)).astype(np.uint64)


def _characters(raw: np.ndarray, start: int, end: int) -> int:
    """How many characters begin there."""
    return int((raw[start:end] & 0xC0 != 0x80).sum())


def _longest(spans: Sequence[Span]) -> list[Span]:
    """Without spans that lie within a longer one; of one span the first SOURCES."""
    kept: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.start - span.end, span.start, span.document, span.at)):
        around = [one for one in kept if one.start <= span.start and span.end <= one.end]
        same = [one for one in around if (one.start, one.end) == (span.start, span.end)]
        if len(around) == len(same) < SOURCES:
            kept.append(span)
    return kept

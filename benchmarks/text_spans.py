"""Exact and changed copies of passages: whether they are found, where, how fast, and at how many false alarms.

    python benchmarks/text_spans.py --data data        # AG News, CLINC150, SST-2, Shakespeare; fresh: WikiText-2

Copies of 20 to 200 characters are planted into fresh texts; then copies with 1 to 5 characters changed, put in or left
out are asked about. Writes benchmarks/results/text_spans.json.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from machine import machine

from provnet.base.stats import wilson
from provnet.tools.spans import Span, SpanIndex, limit

DOCUMENTS = (
    "ag_news/train.jsonl",
    "ag_news/test.jsonl",
    "shakespeare/plays.jsonl",
    "clinc150/train.jsonl",
    "clinc150/test.jsonl",
    "sst2/train.jsonl",
    "sst2/test.jsonl",
)
FRESH = ("wikitext-2/articles_valid.jsonl", "wikitext-2/articles_test.jsonl")
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def texts(folder: Path, names: tuple[str, ...]) -> list[str]:
    """All texts of some files."""
    return [json.loads(line)["text"] for name in names for line in (folder / name).read_text("utf-8").splitlines()]


def passage(documents: list[str], dice: random.Random) -> tuple[int, int, str]:
    """A document, a place in it, and 20 to 200 characters from there."""
    while True:
        number, length = dice.randrange(len(documents)), dice.randint(20, 200)
        if len(documents[number]) >= length:
            at = dice.randrange(len(documents[number]) - length + 1)
            return number, at, documents[number][at : at + length]


def changed(text: str, times: int, dice: random.Random) -> str:
    """With characters changed, put in or left out."""
    for _ in range(times):
        at, letter = dice.randrange(len(text)), dice.choice(LETTERS)
        text = dice.choice(
            (text[:at] + letter + text[at + 1 :], text[:at] + letter + text[at:], text[:at] + text[at + 1 :])
        )
    return text


def timed(asked: Callable[[str], list[Span]], text: str, seconds: list[float]) -> list[Span]:
    """What is found, and how long it took this process."""
    began = time.process_time()
    found = asked(text)
    seconds.append(time.process_time() - began)
    return found


def exact(index: SpanIndex, documents: list[str], fresh: list[str], dice: random.Random) -> dict[str, Any]:
    """200 copies planted into fresh texts: found at the right offsets or not."""
    hits, seconds = 0, []
    for _ in range(200):
        _, _, copied = passage(documents, dice)
        host = dice.choice(fresh)
        at = dice.randrange(len(host))
        spans = timed(index.exact, host[:at] + copied + host[at:], seconds)
        hits += any(
            span.start <= at
            and span.end >= at + len(copied)
            and documents[span.document][span.at + at - span.start :][: len(copied)] == copied
            for span in spans
        )
    return {"found": wilson(hits, 200).to_json(), "ms": 1e3 * float(np.mean(seconds)), "most_ms": 1e3 * max(seconds)}


def near(index: SpanIndex, documents: list[str], known: list[tuple[int, float]], dice: random.Random) -> dict[str, Any]:
    """200 copies with 1 to 5 characters changed: found above the limit of one false alarm in 1,000 or not."""
    rows, seconds = [], []
    for _ in range(200):
        number, _, copied = passage(documents, dice)
        asked = changed(copied, dice.randint(1, 5), dice)
        spans = timed(index.near, asked, seconds)
        right = [span for span in spans if span.document == number or copied[5:15] in documents[span.document]]
        best = max((span.score for span in right), default=0.0)
        rows.append((len(copied), best > limit(known, len(asked)), best))
    found = {"found": wilson(sum(hit for _, hit, _ in rows), 200).to_json()}
    for low, high in ((20, 39), (40, 79), (80, 200)):
        part = [hit for length, hit, _ in rows if low <= length <= high]
        found[f"of {low} to {high} characters"] = wilson(sum(part), len(part)).to_json()
    return found | {"ms": 1e3 * float(np.mean(seconds)), "most_ms": 1e3 * max(seconds)}


def main() -> None:
    """Run and write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "text_spans.json")
    asked = parser.parse_args()
    documents, dice = texts(asked.data, DOCUMENTS), random.Random(0)
    articles = texts(asked.data, FRESH)
    fresh = [article[at : at + 480] for article in articles for at in range(0, len(article) - 480, 480)]
    began = time.process_time()
    index = SpanIndex(documents)
    seconds = time.process_time() - began
    known = index.by_chance(fresh)
    result = {
        "machine": machine(rates=False),
        "documents": len(documents),
        "megabytes": len(index.raw) / 1e6,
        "index_seconds": seconds,
        "fresh_articles": len(articles),
        "limits": known,
        "exact": exact(index, documents, fresh, dice),
        "near": near(index, documents, known, dice),
    }
    asked.out.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()

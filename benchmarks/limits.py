"""The arithmetic of physical limits, in words: bytes at a rate of reading, operations at a rate of a matrix product."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

NOT_MEASURED = "the rate was not measured in that run"


@dataclass(frozen=True)
class Limit:
    """What a figure cannot go below (or above): the arithmetic in words, and the value where it can be given."""

    words: str
    value: float | None = None


NONE = Limit("")


def product_words(factors: tuple[float, ...]) -> str:
    """Factors as they are multiplied.

    >>> product_words((2, 60_000, 128))
    '2 x 60,000 x 128'
    """
    return " x ".join(f"{factor:,.10g}" for factor in factors)


def large(value: float, unit: str) -> str:
    """A large number with its prefix.

    >>> large(30_720_000, "B"), large(3.9e9, "flop"), large(12, "B")
    ('30.7 MB', '3.9 Gflop', '12 B')
    """
    for size, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def seconds(value: float) -> str:
    """A time as people read it.

    >>> seconds(0.00062), seconds(0.25), seconds(39.4)
    ('0.62 ms', '250 ms', '39.4 s')
    """
    return f"{value:.3g} s" if value >= 1 else f"{1e3 * value:.3g} ms"


def reading(rate: float | None, *factors: float) -> Limit:
    """The time to read so many bytes, the rate in gigabytes a second.

    >>> reading(50.0, 60_000, 128, 4).words
    '60,000 x 128 x 4 = 30.7 MB at 50 GB/s: 0.614 ms'
    """
    return _at(rate, "B", factors)


def multiplying(rate: float | None, *factors: float) -> Limit:
    """The time of so many operations of a matrix product, the rate in billions a second.

    >>> multiplying(100.0, 2, 60_000, 128, 256).words
    '2 x 60,000 x 128 x 256 = 3.93 Gflop at 100 Gflop/s: 39.3 ms'
    """
    return _at(rate, "flop", factors)


def _at(rate: float | None, unit: str, factors: tuple[float, ...]) -> Limit:
    whole = prod(factors)
    start = f"{product_words(factors)} = {large(whole, unit)}"
    if rate is None:
        return Limit(f"{start}; {NOT_MEASURED}")
    time = whole / (rate * 1e9)
    return Limit(f"{start} at {large(rate * 1e9, unit)}/s: {seconds(time)}", time)


def rate_of(about: dict[str, Any], part: str, name: str) -> float | None:
    """A rate from a result's machine, `None` where it was not measured.

    >>> rate_of({"rates": {"cuda": {"memory_gb_s": 4000.0}}}, "cuda", "memory_gb_s")
    4000.0
    """
    value = about.get("rates", {}).get(part, {}).get(name)
    return None if value is None else float(value)


def cpu_rate(about: dict[str, Any], threads: int, name: str) -> float | None:
    """The rate of so many threads: as measured, or so many times that of one where others disturbed the measurement.

    >>> cpu_rate({"rates": {"cpu, 1 thread": {"x": 50.0}, "cpu, 2 threads": {"x": 20.0}}}, 2, "x")
    100.0
    """
    one, many = rate_of(about, "cpu, 1 thread", name), rate_of(about, f"cpu, {threads} threads", name)
    known = [rate for rate in (many, None if one is None else threads * one) if rate is not None]
    return max(known, default=None)

"""Credit: whose samples stand behind a set of answers, with intervals over the queries.

The credit of a contributor is the mean, over the supported queries, of the weight that falls on their samples: each
such query gives 1 in all. A query without a supporting sample credits nobody and is counted apart; so is one whose
samples are all withheld. Withheld samples get nothing: those that may be named share their part.

Letters: Q queries, N samples, G contributors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from provnet.answers.attributor import Answered, Attributor
from provnet.base.errors import DataError, UsageError, did_you_mean
from provnet.base.files import check_memory, shown
from provnet.base.options import CreditOptions, with_changes
from provnet.base.progress import progress_bar
from provnet.base.stats import LEVEL, Interval
from provnet.data.dataset import ImageData
from provnet.runs.inputs import Fitted, checked_inputs, run_of, whole_number
from provnet.runs.run import Run
from provnet.samples.csvfile import read_rows
from provnet.samples.identity import SampleTable

POINTS = 200  # of a curve that is drawn


def gini(shares: np.ndarray) -> float:
    """0 where all have the same, (n - 1) / n where one of n has all; 0 where nobody has anything.

    >>> gini(np.array([1, 1, 1])), gini(np.array([0, 0, 1.0])), gini(np.array([1, 3]))
    (0.0, 0.6666666666666666, 0.25)
    """
    ordered = _ordered(shares)
    total, n = float(ordered.sum()), len(ordered)
    if n == 0 or total == 0:
        return 0.0
    return max(0.0, float(((2 * np.arange(1, n + 1) - n - 1) * ordered).sum()) / (n * total))


def lorenz(shares: np.ndarray) -> tuple[tuple[float, float], ...]:
    """(share of contributors, share of what they have together), smallest first, from (0, 0) to (1, 1).

    >>> lorenz(np.array([3, 1]))
    ((0.0, 0.0), (0.5, 0.25), (1.0, 1.0))
    """
    ordered = _ordered(shares)
    total, n = float(ordered.sum()), len(ordered)
    if n == 0 or total == 0:
        return ()
    kept = np.unique(np.linspace(0, n, min(n, POINTS) + 1).round().astype(np.int64))
    height = np.concatenate([[0.0], np.cumsum(ordered) / total])
    height[-1] = 1.0
    return tuple((float(i / n), float(height[i])) for i in kept)


def _ordered(shares: np.ndarray) -> np.ndarray:
    values = np.sort(np.asarray(shares, dtype=np.float64))
    if values.ndim != 1 or not np.isfinite(values).all() or (len(values) and values[0] < 0):
        raise UsageError("shares must be one list of finite numbers, none of them negative")
    return values


UNLISTED = "(not listed)"  # how samples without a contributor are called
NOBODY = "no query is supported: nobody is credited"


@dataclass(frozen=True)
class Contributor:
    """The credit of one contributor.

    Attributes:
        name: as given; UNLISTED for samples without one.
        listed: False for those.
        samples: how many of theirs may be named.
        share: of all credit, with its bootstrap interval; n is the number of queries that credit anybody.
        rank: 1 is the largest share; `rank_low` to `rank_high` hold 95 % of the draws.
        first: share of the draws in which it is the largest.
        lift: share of the credit over share of the samples: 1 is what size alone would give.
    """

    name: str
    listed: bool
    samples: int
    share: Interval
    rank: int
    rank_low: int
    rank_high: int
    first: float
    lift: float | None

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**vars(self), "share": self.share.to_json()}


def rank_contributors(
    names: list[str], listed: np.ndarray, sizes: np.ndarray, shares: np.ndarray, draws: int, seed: int
) -> tuple[tuple[Contributor, ...], np.ndarray, Interval]:
    """The ranking, its order among `names`, and the Gini coefficient; from the (q, G) shares of queries that count."""
    n, total = len(shares), int(sizes.sum())
    if n == 0:
        order = np.argsort(-sizes, kind="stable")
        none = Interval(None, 0, None, None, NOBODY)
        many = len(order)
        rows = [Contributor(names[g], bool(listed[g]), int(sizes[g]), none, 1, 1, many, 0.0, None) for g in order]
        return tuple(rows), order, none
    mean = shares.mean(0)
    order = np.argsort(-mean, kind="stable")
    drawn = _drawn(shares, draws, seed)
    ends = (1 - LEVEL) / 2, (1 + LEVEL) / 2
    low, high = np.quantile(drawn, ends, axis=0) if n > 1 else (np.zeros(len(mean)), np.ones(len(mean)))
    ranks = np.argsort(np.argsort(-drawn, axis=1, kind="stable"), axis=1) + 1
    rank_low, rank_high = np.quantile(ranks, ends, axis=0, method="nearest")
    first = (ranks == 1).mean(0)
    rows = [
        Contributor(
            name=names[g],
            listed=bool(listed[g]),
            samples=int(sizes[g]),
            share=Interval(float(mean[g]), n, float(low[g]), float(high[g])),
            rank=number,
            rank_low=int(rank_low[g]) if n > 1 else 1,
            rank_high=int(rank_high[g]) if n > 1 else len(mean),
            first=float(first[g]),
            lift=float(mean[g] * total / sizes[g]),
        )
        for number, g in enumerate(order.tolist(), 1)
    ]
    unequal = [gini(one[listed]) for one in drawn]
    ends_of = np.quantile(unequal, ends) if n > 1 else (0.0, 1.0)
    return tuple(rows), order, Interval(gini(mean[listed]), n, float(ends_of[0]), float(ends_of[1]))


def _drawn(shares: np.ndarray, draws: int, seed: int) -> np.ndarray:
    """(draws, G) mean shares of as many queries, drawn again."""
    chance = np.random.default_rng([seed, 61])
    n = len(shares)
    return np.stack([np.bincount(chance.integers(0, n, n), minlength=n) @ shares / n for _ in range(draws)])


OUTPUTS = 2**24  # scores of an output layer held at a time


@dataclass(frozen=True, eq=False)
class Credit:
    """Whose samples stand behind a set of answers.

    Attributes:
        ranking: all contributors with a sample that may be named, the largest share first.
        queries, supported: how many there were, and how many credit somebody.
        unsupported: queries without a supporting sample.
        unnamed: supported ones whose samples are all withheld.
        withheld: samples that are never credited.
        gini: inequality of the listed contributors' shares, 0 where all have the same.
        gini_samples: the same of the number of their samples.
        lorenz, lorenz_samples: (share of contributors, share of credit) points, the smallest first.
        k, weights: which weights were counted.
        by_query: (Q, G) share of each contributor, in the order of `ranking`; zeros where nobody is credited.
        by_sample: (N,) share of all credit that each sample has; 0 where it is withheld.
        group: (N,) int64, the place in `ranking` of each sample's contributor; -1 where it is withheld.
    """

    ranking: tuple[Contributor, ...]
    queries: int
    supported: int
    unsupported: int
    unnamed: int
    withheld: int
    gini: Interval
    gini_samples: float
    lorenz: tuple[tuple[float, float], ...]
    lorenz_samples: tuple[tuple[float, float], ...]
    k: int
    weights: str
    by_query: np.ndarray
    by_sample: np.ndarray
    group: np.ndarray

    def __repr__(self) -> str:
        """One line: shares of all queries would fill a page."""
        return f"Credit({len(self.ranking):,} contributors, {self.supported:,} of {self.queries:,} queries supported)"

    def top(self, place: int, most: int = 5) -> np.ndarray:
        """The samples of a contributor that have the most credit, best first; those without any are left out."""
        own = np.flatnonzero(self.group == place)
        best = own[np.argsort(-self.by_sample[own], kind="stable")][:most]
        return best[self.by_sample[best] > 0]

    def to_json(self) -> dict[str, Any]:
        """Plain values, without what belongs to single queries and samples."""
        counts = {name: getattr(self, name) for name in ("queries", "supported", "unsupported", "unnamed", "withheld")}
        return {
            **counts,
            "counted": "all weights" if self.k == 0 else f"the {self.k} largest weights of each query",
            "k": self.k,
            "weights": self.weights,
            "contributors": [one.to_json() for one in self.ranking],
            "gini": self.gini.to_json(),
            "gini_samples": self.gini_samples,
            "lorenz": [list(point) for point in self.lorenz],
            "lorenz_samples": [list(point) for point in self.lorenz_samples],
        }


def credit(
    run: Run | Fitted,
    images: Tensor | np.ndarray | ImageData,
    contributors: Sequence[str | None],
    *,
    options: CreditOptions | None = None,
    **changes: Any,
) -> Credit:
    """Share the credit for the answers to raw images (Q, ...) among contributors, one for each of the run's N samples.

    A sample whose contributor is None belongs to UNLISTED. `changes` are options by name, such as `k=5`.

    >>> import provnet
    >>> from provnet.training.config import train_config
    >>> from provnet.training.fit import fit
    >>> data = provnet.open_data("embedded", limit=40)
    >>> run = fit(data, config=train_config(epochs=1))
    >>> found = credit(run, data.images[:6], ["ann", "bob"] * 20)
    >>> sorted(one.name for one in found.ranking), round(sum(one.share.value for one in found.ranking), 6)
    (['ann', 'bob'], 1.0)
    """
    asked = with_changes(CreditOptions, options, changes)
    run = run_of(run)
    queries, k = checked_inputs(run, images, warn=asked.warn), whole_number("k", asked.k, 0)
    draws = whole_number("draws", asked.draws, 20)  # their ends are the intervals
    _check(run, contributors)
    active = np.flatnonzero(~run.samples.withheld)
    names, listed, group = _listed(contributors, active)
    check_memory(8 * len(listed) * (2 * len(queries) + 3 * draws), f"the shares of {len(listed):,} contributors")
    by_query, credited, supported, by_sample = _shares(run, queries, group, len(listed), asked)
    sizes = np.bincount(group, minlength=len(listed))
    ranking, order, unequal = rank_contributors(
        [*names, UNLISTED], listed, sizes, by_query[credited], draws, asked.seed
    )
    places = np.full(len(run.samples), -1, dtype=np.int64)
    places[active] = np.argsort(order)[group]
    return Credit(
        ranking=ranking,
        queries=len(queries),
        supported=int(credited.sum()),
        unsupported=int((~supported).sum()),
        unnamed=int((supported & ~credited).sum()),
        withheld=int(run.samples.withheld.sum()),
        gini=unequal,
        gini_samples=gini(sizes[listed]),
        lorenz=lorenz(by_query[credited].mean(0)[listed]) if credited.any() else (),
        lorenz_samples=lorenz(sizes[listed]),
        k=k,
        weights=asked.weights,
        by_query=by_query[:, order],
        by_sample=by_sample / max(int(credited.sum()), 1),
        group=places,
    )


def _listed(contributors: Sequence[str | None], active: np.ndarray) -> tuple[list[str], np.ndarray, np.ndarray]:
    """The contributors by name, which groups are listed, and the group of each active sample, the unlisted one last."""
    names = sorted({name for i in active.tolist() if (name := contributors[i]) is not None})
    place = {name: number for number, name in enumerate(names)}
    group = np.array([place.get(contributors[i] or "", len(names)) for i in active.tolist()], dtype=np.int64)
    unlisted = [False] if (group == len(names)).any() else []
    return names, np.array([True] * len(names) + unlisted, dtype=np.bool_), group


def _shares(
    run: Run, queries: Tensor, group: np.ndarray, count: int, asked: CreditOptions
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(Q, G) shares, (Q,) whether somebody is credited and whether a sample supports the answer, (N,) summed shares."""
    ask, active = Attributor(run, asked.weights), np.flatnonzero(~run.samples.withheld)
    everyone = np.zeros(len(run.samples), dtype=np.int64)
    everyone[active] = group
    groups = torch.from_numpy(everyone).to(ask.device)
    by_sample = np.zeros(len(run.samples))
    size = min(ask.at_once(queries.shape[1:], asked.batch_size), max(1, OUTPUTS // len(active)))

    def read(answered: Answered) -> dict[str, Tensor]:
        nonlocal by_sample
        mass, supported = answered.credit(groups, count, run.config.threshold, asked.k)
        by_sample += mass.by_sample.cpu().numpy()
        shares = (mass.by_group * mass.counts.unsqueeze(1)).cpu()
        return {"shares": shares, "counts": mass.counts.cpu(), "supported": supported.cpu()}

    with progress_bar("crediting", len(queries), asked.progress) as update:
        found = ask.each(queries, read, batch_size=size, update=lambda done: update(done, ""))
    by_query, credited, supported = (found[name].numpy() for name in ("shares", "counts", "supported"))
    return by_query, credited, supported, by_sample


def _check(run: Run, contributors: Sequence[str | None]) -> None:
    if isinstance(contributors, str) or not isinstance(contributors, Sequence | np.ndarray):
        given = repr(contributors) if isinstance(contributors, str) else type(contributors).__name__
        raise UsageError(f"contributors must be a list, one for each sample or None; got {given:.80}")
    if len(contributors) != len(run.samples):
        raise UsageError(f"{len(contributors)} contributors for {len(run.samples)} samples; give one each, or None")
    wrong = [name for name in contributors if not isinstance(name, str | None)]
    if wrong:
        raise UsageError(f"a contributor is named by text, or None where none is listed; got {wrong[0]!r:.80}")
    if any(name in ("", UNLISTED) for name in contributors):
        raise UsageError(f'a contributor must not be called "" or "{UNLISTED}"; None means that none is listed')


NEEDED = ("sample_id", "contributor")
HINTED = 20_000  # ids that an unknown one is compared with: that takes time


@dataclass(frozen=True)
class Contributors:
    """A contributor for each sample of a run.

    Attributes:
        names: one for each sample, None where none is listed.
        unlisted: samples without one.
        strangers: ids in the file that the run does not have (never trained on, or erased since).
        about: where it comes from.
    """

    names: tuple[str | None, ...]
    unlisted: int
    strangers: int
    about: str


def contributors_of(samples: SampleTable, path: Path | None) -> Contributors:
    """The contributors that a file names, or those that the run's own table has.

    >>> import provnet
    >>> samples = provnet.open_data("embedded", limit=20).samples
    >>> contributors_of(samples, None)
    Traceback (most recent call last):
    provnet.base.errors.UsageError: the run does not know who contributed its samples; give --by FILE ...
    """
    if path is None:
        if not any(samples.sources):
            raise UsageError(
                "the run does not know who contributed its samples; give --by FILE with the columns "
                f"{','.join(NEEDED)}, or train from data that say it: a manifest with a column source, an .npz with an "
                "array sources, or open_data(..., sources=...)"
            )
        names = tuple(name or None for name in samples.sources)
        return Contributors(names, sum(name is None for name in names), 0, "the sources of the training data")
    found = read_contributors(path)
    strangers = [name for name in found if name not in samples.id_places]
    if len(strangers) == len(found):
        near = list(samples.id_places)[:HINTED]
        hint = did_you_mean(shown(strangers[0]), map(shown, near)) or f' Its first one is "{shown(near[0])}".'
        raise DataError(
            f"{shown(path.name)}: none of its {len(found):,} ids is a sample of the run, such as "
            f'"{shown(strangers[0])}"; give the ids of the run.{hint}'
        )
    names = tuple(found.get(name) for name in samples.sample_ids)
    return Contributors(names, sum(name is None for name in names), len(strangers), path.name)


def read_contributors(path: Path) -> dict[str, str]:
    """Sample id -> contributor; header, empty cells and ids that stand twice are refused with their row.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     place = Path(folder, "sources.csv")
    ...     _ = place.write_text("sample_id,contributor\\ntrain/3,Ann\\n")
    ...     read_contributors(place)
    {'train/3': 'Ann'}
    """
    file = shown(path.name)
    found: dict[str, str] = {}
    rows: dict[str, int] = {}
    for number, cell in read_rows(path, NEEDED):
        sample_id, name = (cell[column] for column in NEEDED)
        name = name.strip()
        if not sample_id or not name:
            raise DataError(f"{file} row {number}: sample_id and contributor must not be empty")
        if sample_id in found:
            raise DataError(
                f"{file} row {number}: {shown(sample_id)} stands in row {rows[sample_id]} already, with "
                f'"{shown(found[sample_id])}"; a sample has one contributor'
            )
        found[sample_id], rows[sample_id] = name, number
    if not found:
        raise DataError(f"{file}: names no samples; give one row per sample, {','.join(NEEDED)}")
    return found

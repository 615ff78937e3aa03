"""Credit: whose samples stand behind a set of answers, with intervals over the queries.

The credit of a contributor is the mean, over the supported queries, of the weight that falls on their samples: each
such query gives 1 in all. A query without a supporting sample credits nobody and is counted apart; so is one whose
samples are all withheld. Withheld samples get nothing: those that may be named share their part.

Letters: Q queries, N samples, G contributors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from provnet.applications.credit_mass import credit_mass
from provnet.applications.credit_ranking import UNLISTED, Contributor, ranked
from provnet.applications.inequality import gini, lorenz
from provnet.applications.queries import checked
from provnet.attribution import WEIGHTS
from provnet.chunks import at_once
from provnet.data.files import check_memory
from provnet.data.imagedata import ImageData
from provnet.equal import equal_slots
from provnet.errors import UsageError, one_of
from provnet.explanation import active_network
from provnet.inputs import Fitted, run_of, whole
from provnet.modelfile import Run
from provnet.stats import Interval
from provnet.training.progress import progress_bar

DRAWS = 2000
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
    k: int = 0,
    weights: str = "plain",
    draws: int = DRAWS,
    seed: int = 0,
    batch_size: int | None = None,
    progress: bool = False,
    warn: bool = True,
) -> Credit:
    """Share the credit for the answers to raw images (Q, ...) among contributors, one for each of the run's N samples.

    A sample whose contributor is None belongs to UNLISTED. `k` counts only the k largest weights of each query, 0 all
    of them. `draws` of the queries give the intervals. Images whose values cannot lie in the range trained on get a
    UserWarning, unless `warn` is False because they were looked at before. `batch_size` of them go through the network
    at a time; None chooses by their size (`provnet.chunks`).

    >>> import provnet
    >>> from provnet.training.config import train_config
    >>> from provnet.training.fit import fit
    >>> data = provnet.open_data("embedded", limit=40)
    >>> run = fit(data, config=train_config(epochs=1))
    >>> found = credit(run, data.images[:6], ["ann", "bob"] * 20)
    >>> sorted(one.name for one in found.ranking), round(sum(one.share.value for one in found.ranking), 6)
    (['ann', 'bob'], 1.0)
    """
    run = run_of(run)
    queries, k = checked(run, images, warn=warn), whole("k", k, 0)
    draws, seed = whole("draws", draws, 20), whole("seed", seed, 0)  # their ends are the intervals
    _check(run, contributors)
    one_of("weights", weights, WEIGHTS)
    net, kept = active_network(run)
    active = np.arange(len(run.samples)) if kept is None else kept
    names = sorted({name for i in active.tolist() if (name := contributors[i]) is not None})
    listed = np.array([True] * len(names) + [False])
    place = {name: number for number, name in enumerate(names)}
    group = np.array([place.get(contributors[i] or "", len(names)) for i in active.tolist()], dtype=np.int64)
    if not (group == len(names)).any():
        listed = listed[:-1]
    device = next(net.parameters()).device
    groups = torch.from_numpy(group).to(device)
    check_memory(8 * len(listed) * (2 * len(queries) + 3 * draws), f"the shares of {len(listed):,} contributors")
    equal = equal_slots(net, run.samples, weights)
    by_sample = np.zeros(len(active))
    parts, counts = [], []
    threshold = run.config.threshold
    size = at_once(queries.shape[1:], device.type) if batch_size is None else whole("batch_size", batch_size)
    size = min(size, max(1, OUTPUTS // len(active)))
    net.eval()
    with torch.inference_mode(), progress_bar("crediting", len(queries), progress) as update:
        for start in range(0, len(queries), size):
            batch = queries[start : start + size].to(device)
            found = credit_mass(net, batch, groups, len(listed), threshold, k=k, weights=weights, equal=equal)
            parts.append((found.by_group * found.counts.unsqueeze(1)).cpu().numpy())
            counts.append(torch.stack([found.counts, found.supported]).cpu().numpy())
            by_sample += found.by_sample.cpu().numpy()
            update(min(start + size, len(queries)), "")
    by_query, (credited, supported) = np.concatenate(parts), np.concatenate(counts, axis=1)
    sizes = np.bincount(group, minlength=len(listed))
    ranking, order, unequal = ranked([*names, UNLISTED], listed, sizes, by_query[credited], draws, seed)
    everyone = np.full(len(run.samples), -1, dtype=np.int64)
    everyone[active] = np.argsort(order)[group]
    shared = np.zeros(len(run.samples))
    shared[active] = by_sample / max(int(credited.sum()), 1)
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
        weights=weights,
        by_query=by_query[:, order],
        by_sample=shared,
        group=everyone,
    )


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

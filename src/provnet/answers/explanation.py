"""Explanation: what was predicted, how sure, and because of which training samples.

Letters: B queries, K exemplars.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor

from provnet.base.batches import is_column
from provnet.base.errors import UsageError
from provnet.data.dataset import Dataset, image_data
from provnet.data.evidence import Evidence
from provnet.data.modalities.image import picture_of
from provnet.data.modalities.text import is_text, spoken
from provnet.report.pictures import pictures_of, sight
from provnet.report.records import ExemplarCard, ExplanationCard, Passage, Picture, passage
from provnet.report.sheet import Shown, cards_html, omission_notes
from provnet.samples.identity import Exemplar, SampleTable, duplicate_words, named

MOST_INPUTS, MOST_EXEMPLARS = 10, 12  # that a notebook is given to draw


@dataclass(frozen=True)
class Explained:
    """The explanation of one input.

    Attributes:
        exemplars: by the weights that were asked for.
        recognised: the samples by which the network knows the input: shares of the index branch.
        depends_on: the samples without which the answer would be less likely; empty unless influence was asked for, and
            where none is surely above chance.
    """

    predicted: str
    confidence: float
    supported: bool
    exemplars: tuple[Exemplar, ...]
    recognised: tuple[Exemplar, ...] = ()
    depends_on: tuple[Exemplar, ...] = ()


@dataclass(frozen=True, eq=False)
class Explanation:
    """Explanations of many inputs as arrays; iterate or index for single inputs.

    Attributes:
        predicted: (B,) int64 class.
        confidence: (B,) probability of that class.
        index: (B, K) int64 exemplars, best first, -1 where a class has fewer than K samples.
        weight: (B, K) share of the index branch.
        support: (B,) the value that is compared with the run's threshold.
        supported: (B,) bool; False means that no training sample supports the answer.
        samples: the table that names the exemplars.
        images: (B, ...) a copy of the inputs, for `show`; None if they are larger than 64 MB.
        low, high, recognised_index, recognised_weight: (B, K), where influence was asked for: ends of the intervals of
            its weights, and what is recognised beside it.
        in_log_odds: whether influence is in log-odds; if not, weights order samples and have no unit.
    """

    predicted: np.ndarray
    confidence: np.ndarray
    index: np.ndarray
    weight: np.ndarray
    support: np.ndarray
    supported: np.ndarray
    samples: SampleTable
    images: Tensor | None = None
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    recognised_index: np.ndarray | None = None
    recognised_weight: np.ndarray | None = None
    in_log_odds: bool = False

    def __len__(self) -> int:
        return len(self.predicted)

    @property
    def label(self) -> np.ndarray:
        """(B, K) labels of the exemplars, -1 where there is none."""
        if self.samples.grouping is None:
            return np.full_like(self.index, -1)
        return np.where(self.index >= 0, self.samples.labels[np.maximum(self.index, 0)], -1)

    def __iter__(self) -> Iterator[Explained]:
        return (self.one(row) for row in range(len(self)))

    @overload
    def __getitem__(self, rows: int | np.integer) -> Explained: ...
    @overload
    def __getitem__(self, rows: slice | np.ndarray) -> Explanation: ...
    def __getitem__(self, rows: int | np.integer | slice | np.ndarray) -> Explained | Explanation:
        """One of the inputs (-1 is the last), or some of them."""
        if isinstance(rows, int | np.integer):
            if not -len(self) <= rows < len(self):
                raise IndexError(f"there are {len(self)} explanations, numbered from 0; got {rows}")
            return self.one(int(rows))
        rows = rows if isinstance(rows, slice) else _rows(rows, len(self))
        names = ["predicted", "confidence", "index", "weight", "support", "supported"]
        names += [] if self.low is None else ["low", "high", "recognised_index", "recognised_weight"]
        places = torch.from_numpy(np.ascontiguousarray(np.arange(len(self))[rows]))  # torch steps forwards only
        images = None if self.images is None else self.images[places]
        return replace(self, images=images, **{name: getattr(self, name)[rows] for name in names})

    def one(self, row: int) -> Explained:
        """The explanation of one input."""
        names = self.samples.class_names
        exemplars = recognised = self._named(self.index[row], self.weight[row])
        if self.recognised_index is not None and self.recognised_weight is not None:
            assert self.low is not None and self.high is not None
            recognised = self._named(self.recognised_index[row], self.recognised_weight[row])
            ends = zip(self.low[row].tolist(), self.high[row].tolist(), strict=True)
            exemplars = tuple(
                replace(one, interval=pair if np.isfinite(pair).all() else None)
                for one, pair in zip(exemplars, ends, strict=False)  # those that are none come last
            )
        return Explained(
            predicted=names[int(self.predicted[row])] if names else "",
            confidence=float(self.confidence[row]),
            supported=bool(self.supported[row]),
            exemplars=exemplars,
            recognised=recognised,
            depends_on=() if self.recognised_index is None else exemplars,
        )

    def _named(self, index: np.ndarray, weight: np.ndarray) -> tuple[Exemplar, ...]:
        pairs = zip(index.tolist(), weight.tolist(), strict=True)
        return tuple(named(self.samples, i, w) for i, w in pairs if i >= 0)

    def to_records(self, inputs: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """Plain dictionaries for JSON: input, predicted, confidence, supported, exemplars."""
        if isinstance(inputs, str) or not isinstance(inputs, Iterable | None):
            raise UsageError(f"inputs must be names, one for each explanation; got {inputs!r:.80}")
        names = list(inputs) if inputs is not None else [str(row) for row in range(len(self))]
        if len(names) != len(self):
            raise UsageError(f"{len(names)} names for {len(self)} explanations; give one each")
        return [
            {
                "input": name,
                "predicted": one.predicted,
                "confidence": one.confidence,
                "supported": one.supported,
                "exemplars": [exemplar.to_json() for exemplar in one.exemplars],
                **({} if self.low is None else {"recognised": [exemplar.to_json() for exemplar in one.recognised]}),
            }
            for name, one in zip(names, self, strict=True)
        ]

    def __repr__(self) -> str:
        return f"Explanation({len(self)} inputs, {int(self.supported.sum())} supported, k={self.index.shape[1]})"

    def _repr_html_(self) -> str:
        return self.show().html

    def show(self, data: Dataset | Sequence[Dataset] | None = None) -> Shown:
        """What a notebook draws: the first inputs with answer, and label, weight, id and hash of each exemplar.

        With `data`, the training data, also the pictures of exemplars whose content still has the hash of training
        time. Withheld samples are never shown.

        >>> from provnet.training.fit import fit
        >>> from provnet.training.config import train_config
        >>> import provnet
        >>> data = provnet.open_data("embedded").select(torch.arange(40))
        >>> run = fit(data, config=train_config(epochs=1))
        >>> provnet.explain(run, data.images[:3], k=2).show(data).html.count("<img ")
        9
        """
        for part in () if data is None else data if isinstance(data, list | tuple) else (data,):
            image_data("the training data", part)
        shown = self[:MOST_INPUTS]
        named = shown.index[:, :MOST_EXEMPLARS]
        withheld = (shown.index >= 0) & self.samples.withheld[np.maximum(shown.index, 0)]
        wanted = np.unique(named[(named >= 0) & ~withheld[:, :MOST_EXEMPLARS]])
        found = [Evidence(None)] * len(wanted) if data is None else pictures_of(self.samples, data, wanted)
        pictures = dict(zip(wanted.tolist(), found, strict=True))
        more = int(((shown.index >= 0) & ~withheld)[:, MOST_EXEMPLARS:].sum())
        notes = omission_notes(len(self) - len(shown), more, len(np.unique(shown.index[withheld])))
        notes += [] if data is not None else ["show(data), the training data given, adds the pictures of the exemplars"]
        return Shown(cards_html([shown._card(row, pictures) for row in range(len(shown))], notes))

    def _card(self, row: int, pictures: dict[int, Evidence]) -> ExplanationCard:
        """One input for `show`, with those exemplars that have an entry in `pictures`."""
        one = self.one(row)
        named = [x for x in one.exemplars[:MOST_EXEMPLARS] if x.index in pictures]
        said = spoken(self.images[row : row + 1])[0] if self.images is not None and is_text(self.images) else ""
        largest = one.depends_on[0].weight if one.depends_on else 0.0
        exemplars = tuple(exemplar_card(x, pictures[x.index], said, largest) for x in named)
        query: Picture | Passage | None = None if self.images is None else picture_of(self.images[row].cpu().numpy())
        query = passage(said, [pictures[x.index].text for x in named]) if said else query
        return ExplanationCard(query, str(row), one.predicted, one.confidence, one.supported, exemplars)


def exemplar_card(sample: Exemplar, seen: Evidence, said: str = "", largest: float = 0.0) -> ExemplarCard:
    """A sample for a page, with its picture or why there is none, and the samples that are the same picture.

    `said` is the input where that is a text: the words in common are marked. With the `largest` weight of an answer
    weights are influence: an amount, drawn as a part of the largest.
    """
    between = "" if largest <= 0 or sample.interval is None else "95 %: {:+.2f} to {:+.2f}".format(*sample.interval)
    note = "; ".join(part for part in (between, seen.note, duplicate_words(sample)) if part)
    share, amount = (sample.weight / largest, f"{sample.weight:+.2f}") if largest > 0 else (sample.weight, "")
    picture = sight(seen, beside=[said])
    return ExemplarCard(picture, sample.sample_id, sample.sha256, sample.label, share, note, amount)


def _rows(rows: Any, n: int) -> np.ndarray:
    """Which of n inputs are meant: whole numbers (-1 is the last), or a bool mask."""
    given = np.asarray(rows)
    if not is_column(given) or (given.size and given.dtype.kind not in "iub"):
        raise UsageError(f"inputs are chosen by position, a slice or a bool mask; got {given.dtype} {given.shape}")
    if given.dtype.kind == "b" and len(given) != n:
        raise UsageError(f"a bool mask must have one value per input, {n}; got {len(given)}")
    if given.dtype.kind in "iu" and given.size and not -n <= given.min() <= given.max() < n:
        raise IndexError(f"there are {n} explanations, numbered from 0; got {given.min()}..{given.max()}")
    return given if given.size else given.astype(np.int64)

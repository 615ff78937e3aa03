"""What was found out about generated images: arrays, single findings, totals by source, plain values.

Letters: B images, N samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from provnet.applications.near_copy_threshold import Calibration
from provnet.errors import UsageError
from provnet.explanation import Explanation
from provnet.metrics_generation import copy_rate
from provnet.named import Exemplar, named
from provnet.stats import Interval, wilson


@dataclass(frozen=True, eq=False)
class Control:
    """Distances to the nearest training sample in one space.

    Attributes:
        index: (B,) int64, the nearest sample.
        distance, following: (B,) to it, and to the next one.
        reference: distances of pictures that are no copies to their nearest.
    """

    index: np.ndarray
    distance: np.ndarray
    following: np.ndarray
    reference: np.ndarray


@dataclass(frozen=True)
class Source:
    """A training sample behind generated images.

    Attributes:
        sample: the sample; its weight is its share of all supported images.
        first: of how many supported images it is the first exemplar.
        copies: how many near-copies of it there are.
    """

    sample: Exemplar
    first: int
    copies: int


@dataclass(frozen=True, eq=False)
class Traced:
    """Images traced to training samples.

    Attributes:
        explanation: exemplars with weights, and whether they support the image.
        ratio, p_value: (B,) the copy ratio, and how rarely pictures that are no copies have one as small.
        copy_index: (B,) int64, the sample that an image would be a copy of.
        cosine: (B,) how like it is to that sample.
        exact: (B,) bool, whether its pixels are exactly those of the sample.
        near_copy: (B,) bool, the verdict; equal pixels are always a copy.
        calibration: what the verdict rests on.
        controls: `pixels` and `features`: distances to the nearest.
        compared: training pictures that were compared with.
        missing: samples whose pictures are not among the data any more, or are decoded differently.
        withheld: samples that are neither named nor compared with.
        heldout_trained: held-out pictures that were left out because they are training samples.
    """

    explanation: Explanation
    ratio: np.ndarray
    p_value: np.ndarray
    copy_index: np.ndarray
    cosine: np.ndarray
    exact: np.ndarray
    near_copy: np.ndarray
    calibration: Calibration
    controls: Mapping[str, Control]
    compared: int
    missing: int
    withheld: int
    heldout_trained: int

    def __len__(self) -> int:
        return len(self.ratio)

    def __repr__(self) -> str:
        """One line: distances would fill a page."""
        supported, copies = (int(which.sum()) for which in (self.explanation.supported, self.near_copy))
        return f"Traced({len(self):,} images, {supported:,} supported, {copies:,} near-copies)"

    @property
    def copies(self) -> list[Exemplar]:
        """(B,) the sample that each image is nearest to, whether or not it is a copy; its weight is the likeness."""
        pairs = zip(self.copy_index.tolist(), self.cosine.tolist(), strict=True)
        return [named(self.explanation.samples, i, max(0.0, cosine)) for i, cosine in pairs]

    @property
    def rates(self) -> dict[str, Interval]:
        """Shares of the images: supported, abstained, near_copies."""
        yes = int(self.explanation.supported.sum())
        return {
            "supported": wilson(yes, len(self)),
            "abstained": wilson(len(self) - yes, len(self)),
            "near_copies": copy_rate(self.near_copy),
        }

    def sources(self, most: int | None = None) -> list[Source]:
        """Training samples behind the supported images, and those that were copied; the largest share first."""
        samples, found = self.explanation.samples, self.explanation
        weight, first, copies = np.zeros(len(samples)), *(np.zeros(len(samples), dtype=np.int64) for _ in range(2))
        named_rows = (found.index >= 0) & found.supported[:, None]
        np.add.at(weight, found.index[named_rows], found.weight[named_rows])
        np.add.at(first, found.index[found.supported, 0][found.index[found.supported, 0] >= 0], 1)
        np.add.at(copies, self.copy_index[self.near_copy], 1)
        used = np.flatnonzero((weight > 0) | (copies > 0))
        order = used[np.lexsort((used, -weight[used], -copies[used]))]
        whole = max(int(found.supported.sum()), 1)
        chosen = order if most is None else order[:most]
        return [
            Source(named(samples, i, float(weight[i]) / whole), int(first[i]), int(copies[i])) for i in chosen.tolist()
        ]

    def to_records(self, inputs: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """Plain dictionaries, one an image: exemplars, support, the near-copy and what it rests on, the control."""
        names = list(inputs) if inputs is not None else [str(row) for row in range(len(self))]
        if len(names) != len(self):
            raise UsageError(f"{len(names)} names for {len(self)} images; give one each")
        records = self.explanation.to_records(names)
        samples = self.explanation.samples
        for row, (record, nearest) in enumerate(zip(records, self.copies, strict=True)):
            record["near_copy"] = {
                "verdict": bool(self.near_copy[row]),
                "equal_pixels": bool(self.exact[row]),
                "of": {name: value for name, value in nearest.to_json().items() if name != "weight"},
                "ratio": float(self.ratio[row]),
                "p_value": float(self.p_value[row]),
                "cosine": float(self.cosine[row]),
            }
            record["control"] = {
                name: {
                    "sample_id": samples.sample_ids[int(one.index[row])],
                    "sha256": samples.hex(int(one.index[row])),
                    "index": int(one.index[row]),
                    "distance": float(one.distance[row]),
                    "next": float(one.following[row]) if np.isfinite(one.following[row]) else None,
                }
                for name, one in self.controls.items()
            }
        return records

    def to_json(self) -> dict[str, Any]:
        """Plain values of all images together."""
        return {
            "images": len(self),
            **{name: rate.to_json() for name, rate in self.rates.items()},
            "equal_pixels": int(self.exact.sum()),
            "copied_samples": len(np.unique(self.copy_index[self.near_copy])),
            "calibration": self.calibration.to_json(),
            "control": {
                name: {
                    "median": float(np.median(one.distance)),
                    "reference_median": float(np.median(one.reference)),
                    "reference_n": len(one.reference),
                }
                for name, one in self.controls.items()
            },
            "compared": self.compared,
            "missing": self.missing,
            "withheld": self.withheld,
            "heldout_trained": self.heldout_trained,
        }

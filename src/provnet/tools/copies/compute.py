"""Images of any generator traced to training samples: exemplars with weights, abstention, near-copies, a control.

Two questions are answered apart. Which training samples stand behind an image? The run says so, or that none supports
it. Is an image a near-copy of one training picture? The copy ratio says so, by a threshold that is calibrated on
pictures which are no copies. Distances to the nearest sample stand beside, as the control that misleads alone.

Letters: B images, N samples of the run, m pictures of the calibration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from provnet.answers.attributor import explain
from provnet.answers.explanation import Explanation
from provnet.answers.metrics import copy_rate
from provnet.base.batches import keyed_generator, pieces
from provnet.base.errors import DataError, NonFiniteError, UsageError
from provnet.base.options import CopyOptions, with_changes
from provnet.base.progress import progress_bar
from provnet.base.stats import Interval, wilson
from provnet.data.compare import DECODED, compare, decoding_advice
from provnet.data.dataset import ImageData, image_data
from provnet.heads.keys import first_not_finite, unit
from provnet.heads.retrieval import TopK, merge, top_k
from provnet.runs.inputs import Fitted, as_trained, checked_inputs, inputs_of, pixel_hashes, run_of
from provnet.runs.run import Run
from provnet.samples.identity import Exemplar, named
from provnet.tools.copies.near_copies import Calibration, calibrate_copies, copy_ratios
from provnet.tools.copies.photos import PhotoCopies, photo_copies
from provnet.tools.map.compute import index_features


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
        photos: copies of photographs by matched places, where they were asked for: a verdict by itself, whose `row` is
            a sample.
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
    photos: PhotoCopies | None = None

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
        matched = {} if self.photos is None else {"matched_copies": copy_rate(self.photos.near_copy)}
        return {
            "supported": wilson(yes, len(self)),
            "abstained": wilson(len(self) - yes, len(self)),
            "near_copies": copy_rate(self.near_copy),
            **matched,
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
            if self.photos is not None:
                original = named(samples, int(self.photos.row[row]), 0.0).to_json()
                record["matched_copy"] = {
                    "verdict": bool(self.photos.near_copy[row]),
                    "of": {name: value for name, value in original.items() if name != "weight"},
                    "agreement": float(self.photos.agreement[row]),
                    "threshold": self.photos.threshold,
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


QUERIES, NUMBERS = 1024, 2**23  # at a time: queries, and float64 numbers
BLOCK = 2**27  # numbers of keys that are held as fp32 at a time
CANDIDATES = 16  # keys of a query whose exact distance is taken
ROUNDING = 2**-22  # of an fp32 product, its two sides and a length, with some room
Floats = Callable[[Tensor], Tensor]  # raw rows -> numbers (B, D)


@dataclass(frozen=True, eq=False)
class Nearest:
    """(B,) the nearest row, its distance, and the distance of the next one, infinite where there is none."""

    row: np.ndarray
    distance: np.ndarray
    following: np.ndarray


def nearest_pixels(images: Tensor, training: Tensor, *, device: torch.device | str = "cpu") -> Nearest:
    """Compare raw images (B, ...) with raw training samples (N, ...), by the root of the mean squared difference.

    >>> found = nearest_pixels(torch.tensor([[1.0, 1.0]]), torch.tensor([[0.0, 1.0], [1.0, 1.0]]))
    >>> found.row.tolist(), found.distance.tolist(), found.following.round(3).tolist()
    ([1], [0.0], [0.707])
    """
    found = _nearest(images, training, _pixels, torch.device(device))
    root = training[0].numel() ** 0.5
    return Nearest(found.row, found.distance / root, found.following / root)


def _pixels(images: Tensor) -> Tensor:
    """Raw images as floats (B, D), bytes on a scale of 0 to 1."""
    values = images.flatten(1).float()
    return values.div_(255.0) if images.dtype == torch.uint8 else values


def nearest_features(features: np.ndarray, training: np.ndarray, *, device: torch.device | str = "cpu") -> Nearest:
    """Compare features (B, D) with those of training samples (N, D), all brought to length one."""
    sides = [unit(torch.from_numpy(values)) for values in (features, training)]
    return nearest(sides[0], sides[1].to(device))


def nearest(queries: Tensor, keys: Tensor) -> Nearest:
    """The nearest of the keys (N, D) to each query (B, D), exactly; of equally near ones the lower row.

    >>> nearest(torch.tensor([[4.0]]), torch.tensor([[0.0], [3.0]])).distance.tolist()
    [1.0]
    """
    return _nearest(queries, keys, lambda rows: rows, keys.device)


def _nearest(queries: Tensor, keys: Tensor, floats: Floats, device: torch.device) -> Nearest:
    """`nearest` for raw queries and keys (B, ...), (N, ...), which are brought to floats a few at a time."""
    if len(queries) == 0 or len(keys) == 0:
        raise UsageError(f"nothing to compare: {len(queries)} images and {len(keys)} training samples")
    for kind, values in (("image", queries), ("training sample", keys)):
        if values.is_floating_point() and (bad := first_not_finite(values.flatten(1))) is not None:
            raise NonFiniteError(f"{kind} {bad} holds NaN or infinity: no distance can be told; check the input")
    width = max(keys[0].numel(), 1)

    def read(rows: Tensor) -> Tensor:
        return floats(rows.to(device)).double()

    parts = torch.split(keys, max(NUMBERS // width, 1))
    centre = torch.stack([read(part).sum(0) for part in parts]).sum(0) / len(keys)
    step = min(QUERIES, max(NUMBERS // (CANDIDATES * width), 1))
    best, longest = _candidates(torch.split(queries, step), keys, read, centre)
    found: list[tuple[Tensor, Tensor, Tensor]] = []
    for rows in pieces(len(queries), step):
        some = read(queries[rows])
        near = TopK(best.score[rows], best.row[rows])
        row, distance, following, doubtful = _quick(some, keys, read, near, some - centre, longest)
        if bool(doubtful.any()):
            row[doubtful], distance[doubtful], following[doubtful] = _slow(some[doubtful], keys, read)
        found.append((row.cpu(), distance.cpu(), following.cpu()))
    return Nearest(*(np.asarray(torch.cat(part).numpy()) for part in zip(*found, strict=True)))


def _candidates(queries: Sequence[Tensor], keys: Tensor, read: Floats, centre: Tensor) -> tuple[TopK, float]:
    """The keys of each query with the smallest |q - x|² in fp32, block by block of the keys, and the largest |x|."""
    best: dict[int, TopK] = {}
    first, longest = 0, 0.0
    for block in torch.split(keys, max(BLOCK // max(len(centre), 1), 1)):
        wide, far = _centred(block, read, centre)
        longest = max(longest, far)
        for place, some in enumerate(queries):
            around = read(some) - centre
            # the smallest |q - x|² is the largest q·x - |x|²/2: one more number makes it an inner product
            here = top_k(torch.cat([around, torch.ones_like(around[:, :1])], 1).float(), wide, CANDIDATES)
            here = TopK(here.score, here.row + first)
            best[place] = merge([best[place], here], CANDIDATES) if place in best else here
        first += len(block)
    found = best.values()  # in the order of the queries
    return TopK(torch.cat([one.score for one in found]), torch.cat([one.row for one in found])), longest


def _centred(keys: Tensor, read: Floats, centre: Tensor) -> tuple[Tensor, float]:
    """(N, D + 1) fp32 keys around the centre with -|x|²/2, and the largest |x|: an offset costs all the digits."""
    wide = torch.empty((len(keys), len(centre) + 1), dtype=torch.float32, device=centre.device)
    start, longest = 0, 0.0
    for part in torch.split(keys, max(NUMBERS // max(len(centre), 1), 1)):
        around = read(part) - centre
        squares = around.square().sum(1)
        longest = max(longest, float(squares.max()) ** 0.5)
        wide[start : start + len(part)] = torch.cat([around, -0.5 * squares.unsqueeze(1)], 1)
        start += len(part)
    return wide, longest


def _quick(
    some: Tensor, keys: Tensor, read: Floats, best: TopK, around: Tensor, longest: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Row, distance, the next distance, and whether rounding could have kept a nearer key from the candidates."""
    candidates = best.row.sort(1).values  # so that of equal distances the lower row comes first
    near = read(keys[candidates.flatten().to(keys.device)]).view(*candidates.shape, -1)
    gaps = (some.unsqueeze(1) - near).square_().sum(2)
    gaps, order = gaps.sort(dim=1, stable=True)
    following = gaps[:, 1] if gaps.shape[1] > 1 else torch.full_like(gaps[:, 0], torch.inf)
    length = around.square().sum(1)
    # a key that is no candidate is at least this far away, half of the square
    beyond = length / 2 - best.score[:, -1] - ROUNDING * longest * (length.sqrt() + longest / 2)
    doubtful = (following / 2 >= beyond) & (gaps.shape[1] < len(keys))
    return candidates.gather(1, order)[:, 0], gaps[:, 0].sqrt(), following.sqrt(), doubtful


def _slow(some: Tensor, keys: Tensor, read: Floats) -> tuple[Tensor, Tensor, Tensor]:
    """Row, distance and the next distance by float64 differences with every key, a block of keys at a time."""
    near, following = (some.new_full((len(some),), torch.inf) for _ in range(2))
    rows, start = torch.zeros_like(near, dtype=torch.int64), 0
    for part in torch.split(keys, max(NUMBERS // max(some.shape[1], len(some)), 1)):
        gaps = torch.cdist(some, read(part), compute_mode="donot_use_mm_for_euclid_dist")
        place = gaps.argmin(1, keepdim=True)  # the first of equal ones
        first = gaps.gather(1, place)[:, 0]
        second = gaps.scatter_(1, place, torch.inf).amin(1)
        following = torch.minimum(torch.maximum(near, first), torch.minimum(following, second))
        rows = torch.where(first < near, place[:, 0] + start, rows)
        near, start = torch.minimum(near, first), start + len(part)
    return rows, near, following


REFERENCE = 1_000  # pictures of the calibration whose distances are measured for the control


def attribute_generated(
    images: Tensor | np.ndarray | ImageData,
    run: Run | Fitted,
    *,
    data: ImageData | None = None,
    heldout: ImageData | Tensor | None = None,
    options: CopyOptions | None = None,
    **changes: Any,
) -> Traced:
    """Trace raw images (B, ...) of the run's input shape, from whatever made them, to its training samples.

    `data` hold the training pictures; without them the run's own are opened again. `heldout` are real
    pictures that were never trained on, for the threshold; without them training pictures stand in. Withheld samples
    are neither named nor compared with. `changes` are options by name, such as `k=3`.

    >>> import provnet
    >>> from provnet.training.config import train_config
    >>> from provnet.training.fit import fit
    >>> data = provnet.open_data("embedded", limit=40)
    >>> run = fit(data, config=train_config(epochs=1))
    >>> found = attribute_generated(data.images[:2], run, data=data)
    >>> found.near_copy.tolist(), found.copies[1].sample_id == data.samples.sample_ids[1]
    ([True, True], True)
    """
    asked = with_changes(CopyOptions, options, changes)
    run = run_of(run)
    queries = checked_inputs(run, images, warn=asked.warn)
    _check_shape(queries, run)
    data = run.data(progress=asked.progress) if data is None else image_data("the training data", data)
    index, places = _found(run, data)
    pictures = data.images[torch.from_numpy(places)]
    device = next(run.network.parameters()).device
    fresh, dropped = _fresh(run, heldout)
    calibration = calibrate_copies(
        pictures, fresh, groups=run.samples.groups[index], false_alarms=asked.false_alarms, seed=asked.seed,
        device=device, progress=asked.progress,
    )  # fmt: skip
    with progress_bar("comparing", len(queries), asked.progress) as update:
        ratios = copy_ratios(queries, pictures, device=device, report=lambda done: update(done, ""))
    explanation = explain(run, queries, k=asked.k, warn=False)
    controls = _controls(run, queries, pictures, fresh, index, asked)
    exact = _exact(run, queries)
    photos = None
    if asked.photos:
        photos = photo_copies(
            queries, pictures, heldout=fresh, false_alarms=asked.false_alarms, seed=asked.seed, progress=asked.progress
        )
        photos = replace(photos, row=index[photos.row])
    score = calibration.score(ratios)
    near = (score <= calibration.threshold) | (exact >= 0)
    return Traced(
        explanation=explanation,
        ratio=ratios.ratio,
        p_value=np.where(exact >= 0, 1 / (1 + len(calibration.scores)), calibration.p_value(score)),
        copy_index=np.where(exact >= 0, exact, index[ratios.row]),
        cosine=ratios.cosine,
        exact=exact >= 0,
        near_copy=near,
        calibration=calibration,
        controls=controls,
        compared=len(index),
        missing=int((~run.samples.withheld).sum()) - len(index),
        withheld=int(run.samples.withheld.sum()),
        heldout_trained=dropped,
        photos=photos,
    )


def _check_shape(queries: Tensor, run: Run) -> None:
    shape = run.config.network.input_shape
    if tuple(queries.shape[1:]) != tuple(shape):
        raise UsageError(f"the run takes images of shape {shape}, one row each; got {tuple(queries.shape)}")


def _found(run: Run, data: ImageData) -> tuple[np.ndarray, np.ndarray]:
    """Samples that may be named and whose picture is among the data, and its place there; told by their pixels."""
    where = {row.tobytes(): place for place, row in enumerate(data.samples.pixel_sha256)}
    active = np.flatnonzero(~run.samples.withheld)
    places = np.array([where.get(run.samples.pixel_sha256[i].tobytes(), -1) for i in active.tolist()], dtype=np.int64)
    index = active[places >= 0]
    if len(index) < 2:
        way = "give the data that the run was trained on"
        if DECODED in compare(run.samples, data.samples).status:
            way = f"their files are decoded to other pictures; {decoding_advice(run.config.data, data.spec)}"
        raise DataError(
            f"{len(index)} of {len(active):,} training samples that may be named are among the data; two or more are "
            f"needed: {way}"
        )
    return index, places[places >= 0]


def _fresh(run: Run, heldout: ImageData | Tensor | None) -> tuple[Tensor | None, int]:
    """Held-out pictures without those that are training samples, and how many those were."""
    if heldout is None:
        return None, 0
    given = inputs_of(run.config, heldout)
    if given.numel() == 0:
        return None, 0
    images = as_trained(run.config.network, given)
    if isinstance(heldout, ImageData) and images.dtype == given.dtype:
        hashes = heldout.samples.pixel_sha256
    else:
        hashes = pixel_hashes(run, images)
    trained = {row.tobytes() for row in run.samples.pixel_sha256}
    rows = [place for place, row in enumerate(hashes) if row.tobytes() not in trained]
    return (images[torch.tensor(rows)] if rows else None), len(images) - len(rows)


def _exact(run: Run, queries: Tensor) -> np.ndarray:
    """(B,) the sample with exactly the same pixels, -1 where there is none."""
    active = np.flatnonzero(~run.samples.withheld).tolist()
    known = {run.samples.pixel_sha256[i].tobytes(): i for i in reversed(active)}
    found = [known.get(row.tobytes(), -1) for row in pixel_hashes(run, queries)]
    return np.array(found, dtype=np.int64)


def _controls(
    run: Run,
    queries: Tensor,
    pictures: Tensor,
    fresh: Tensor | None,
    index: np.ndarray,
    asked: CopyOptions,
) -> Mapping[str, Control]:
    """Distances to the nearest sample in two spaces, beside those of pictures that are no copies."""
    device = next(run.network.parameters()).device
    source = pictures if fresh is None else fresh
    rows = torch.randperm(len(source), generator=keyed_generator(asked.seed, 62))[:REFERENCE].sort().values
    others = source[rows]
    by_pixels = [nearest_pixels(_scaled(each, pictures), pictures, device=device) for each in (queries, others)]
    with progress_bar("features", len(pictures), asked.progress) as update:
        keys = index_features(run, pictures, report=update)
    by_features = [nearest_features(index_features(run, each), keys, device=device) for each in (queries, others)]
    return {
        name: Control(index[own.row], own.distance, own.following, _reference(other, fresh is None))
        for name, (own, other) in (("pixels", by_pixels), ("features", by_features))
    }


def _scaled(images: Tensor, pictures: Tensor) -> Tensor:
    """Floats beside bytes are on the scale of the bytes, which are compared on 0 to 1."""
    return images / 255.0 if pictures.dtype == torch.uint8 and images.is_floating_point() else images


def _reference(found: Nearest, themselves: bool) -> np.ndarray:
    """Distances of pictures that are no copies; a training picture is nearest to itself, so the next one counts."""
    return found.following if themselves else found.distance

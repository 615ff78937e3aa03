"""Images of any generator traced to training samples: exemplars with weights, abstention, near-copies, a control.

Two questions are answered apart. Which training samples stand behind an image? The run says so, or that none supports
it. Is an image a near-copy of one training picture? The copy ratio says so, by a threshold that is calibrated on
pictures which are no copies. Distances to the nearest sample stand beside, as the control that misleads alone.

Letters: B images, N samples of the run, m pictures of the calibration.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from provnet.applications.embedding import index_features
from provnet.applications.generated_records import Control, Traced
from provnet.applications.near_copies import copy_ratios
from provnet.applications.near_copy_threshold import FALSE_ALARMS, calibrate_copies
from provnet.applications.nearest_training import Nearest, nearest_features, nearest_pixels
from provnet.applications.queries import checked, pixel_hashes
from provnet.data.batches import keyed_generator
from provnet.data.compare import DECODED, compare, decoding_advice
from provnet.data.imagedata import ImageData, image_data
from provnet.data.sources import reopen
from provnet.errors import DataError, UsageError
from provnet.explanation import explain
from provnet.inputs import Fitted, as_trained, raw_tensor, run_of
from provnet.modelfile import Run
from provnet.training.progress import progress_bar

REFERENCE = 1_000  # pictures of the calibration whose distances are measured for the control


def attribute_generated(
    images: Tensor | np.ndarray | ImageData,
    run: Run | Fitted,
    *,
    data: ImageData | None = None,
    heldout: ImageData | Tensor | None = None,
    k: int = 5,
    false_alarms: float = FALSE_ALARMS,
    seed: int = 0,
    progress: bool = False,
    warn: bool = True,
) -> Traced:
    """Trace raw images (B, ...) of the run's input shape, from whatever made them, to its training samples.

    `data` hold the training pictures; without them they are opened where the run found them. `heldout` are real
    pictures that were never trained on, for the threshold; without them training pictures stand in. Withheld samples
    are neither named nor compared with. Images whose values cannot lie in the range trained on get a UserWarning,
    unless `warn` is False because they were looked at before.

    >>> import provnet
    >>> from provnet.training.config import train_config
    >>> from provnet.training.fit import fit
    >>> data = provnet.open_data("embedded", limit=40)
    >>> run = fit(data, config=train_config(epochs=1))
    >>> found = attribute_generated(data.images[:2], run, data=data)
    >>> found.near_copy.tolist(), found.copies[1].sample_id == data.samples.sample_ids[1]
    ([True, True], True)
    """
    run = run_of(run)
    queries = checked(run, images, warn=warn)
    _check_shape(queries, run)
    data = _opened(run) if data is None else image_data("the training data", data)
    index, places = _found(run, data)
    pictures = data.images[torch.from_numpy(places)]
    device = next(run.network.parameters()).device
    fresh, dropped = _fresh(run, heldout)
    calibration = calibrate_copies(
        pictures, fresh, groups=run.samples.groups[index], false_alarms=false_alarms, seed=seed,
        device=device, progress=progress,
    )  # fmt: skip
    with progress_bar("comparing", len(queries), progress) as update:
        ratios = copy_ratios(queries, pictures, device=device, report=lambda done: update(done, ""))
    explanation = explain(run, queries, k=k, warn=False)
    controls = _controls(run, queries, pictures, fresh, index, device, seed, progress)
    exact = _exact(run, queries)
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
    )


def _check_shape(queries: Tensor, run: Run) -> None:
    shape = run.config.network.input_shape
    if tuple(queries.shape[1:]) != tuple(shape):
        raise UsageError(f"the run takes images of shape {shape}, one row each; got {tuple(queries.shape)}")


def _opened(run: Run) -> ImageData:
    if run.config.data is None:
        raise UsageError("this run does not say where its training data are; give them as `data`")
    return reopen(run.config.data)


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
    given = raw_tensor(heldout)
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
    device: torch.device,
    seed: int,
    progress: bool,
) -> Mapping[str, Control]:
    """Distances to the nearest sample in two spaces, beside those of pictures that are no copies."""
    source = pictures if fresh is None else fresh
    rows = torch.randperm(len(source), generator=keyed_generator(seed, 62))[:REFERENCE].sort().values
    others = source[rows]
    by_pixels = [nearest_pixels(_scaled(each, pictures), pictures, device=device) for each in (queries, others)]
    with progress_bar("features", len(pictures), progress) as update:
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

"""From arrays as people give them to what a run's network receives: shape, type and value range checked.

Letters: N samples, C channels, H W height and width, F features.
"""

from __future__ import annotations

import math
import numbers
import operator
import warnings
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from provnet.base.batches import Fields, all_finite, is_column
from provnet.base.errors import DataError, IntegrityError, NonFiniteError, UsageError
from provnet.data.dataset import Dataset, hash_inputs, hash_items
from provnet.data.modalities.decode import BYTES, is_picture, picture_mode
from provnet.data.modalities.image import reshape_samples
from provnet.data.modalities.modality import Modality
from provnet.data.modalities.table import Table, is_frame
from provnet.data.modalities.text import Text
from provnet.data.rules import DecodeRule, make_options
from provnet.data.sources.arrays import check_array, to_numpy
from provnet.models.attached import OWN
from provnet.models.network import NetworkConfig
from provnet.models.text import TEXT
from provnet.runs.data import in_terms_of, modality_for
from provnet.runs.run import Run, RunConfig
from provnet.samples.identity import hash_pixels

DARK = 2.1  # mean + 3 std of zeros and ones is 2.09 at most: more than that, and larger values were among them
FAR = 16.0  # values so many times larger than those trained on have another unit: halfway from 1 to 255, as factors


class Fitted(Protocol):
    """A fitted classifier, as `provnet.load` gives it."""

    run_: Run


def run_of(model: Run | Fitted) -> Run:
    """The run itself, or that of a fitted classifier; anything else is refused.

    >>> run_of("runs/digits")  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    UsageError: expected a run or a fitted classifier, got str; provnet.load(folder) reads one
    """
    run = getattr(model, "run_", model)
    if not isinstance(run, Run):
        unfitted = "; fit it first" if hasattr(model, "fit") else "; provnet.load(folder) reads one"
        raise UsageError(f"expected a run or a fitted classifier, got {type(model).__name__}{unfitted}")
    return run


def to_input(run: Run | RunConfig | NetworkConfig, samples: Any, *, strict: bool = False) -> Tensor:
    """Raw samples for a run's network: (N, F), (N, H, W), (N, C, H, W), (N, H, W, C) or flattened pictures.

    Bytes stay uint8, everything else becomes float32. Pictures whose values lie far from those trained on (0..255 where
    0..1 was trained, or the other way round) get a UserWarning with both ranges, or are refused with `strict`.

    >>> network = NetworkConfig("single", "small", (3, 8, 8), classes=2, scale=255.0)
    >>> to_input(network, np.zeros((5, 8, 8, 3), np.uint8)).shape
    torch.Size([5, 3, 8, 8])
    """
    config = run.config if isinstance(run, Run) else run
    network = config.network if isinstance(config, RunConfig) else config
    rule = picture_rule(config) if isinstance(config, RunConfig) else None
    if isinstance(config, RunConfig) and (is_frame(samples) or isinstance(samples, Dataset)):
        samples = inputs_of(config, samples)
    raw = to_numpy(samples, rule)
    check_array(raw)
    values = reshape_samples(raw, network.input_shape, row_shape(config))
    typed = _typed(values, is_bytes=takes_bytes(network))
    problem = range_problem(network, typed if values.dtype.kind == "b" else values)
    if problem is not None and strict:
        raise DataError(problem)
    if problem is not None:
        warnings.warn(problem, UserWarning, stacklevel=2)
    return torch.from_numpy(typed)


def raw_tensor(values: Any) -> Any:
    """Numbers as people give them, as a tensor of the same numbers; complex ones, text and objects are refused.

    Of a Dataset its inputs are taken, and Fields as they are. Arrays that torch would not take as they are (read-only,
    of another byte order, read backwards) are copied.

    >>> raw_tensor(np.arange(3, dtype=">i8")[::-1]).tolist()
    [2, 1, 0]
    """
    values = values.inputs if isinstance(values, Dataset) else values
    if isinstance(values, Fields):
        return values
    given = values if isinstance(values, Tensor) else to_numpy(values)
    if isinstance(given, np.ndarray) and given.dtype.kind in "biuf":
        dtype = given.dtype.newbyteorder("=") if given.dtype.itemsize <= 8 else np.dtype(np.float64)
        plain = np.ascontiguousarray(given, dtype=dtype)
        given = torch.from_numpy(plain if plain.flags.writeable else plain.copy())
    if not isinstance(given, Tensor) or given.is_complex():
        raise DataError(f"the input must be whole or real numbers, got {given.dtype}; give uint8 pictures or floats")
    if given.dtype in (torch.uint16, torch.uint32, torch.uint64):  # for which torch has few operations
        given = given.float()  # as the network does anyway
    return given.reshape(1) if given.ndim == 0 else given


def inputs_of(config: RunConfig, given: Any, own: Modality | None = None) -> Any:
    """What a run's network receives of samples as people give them: data, frames of its columns, texts, numbers.

    `own` is the modality with what a run does not hold, such as a tokenizer.
    """
    if isinstance(given, Dataset):
        return in_terms_of(config, given).inputs
    own = own or modality_for(config)
    if isinstance(own, Text) and (isinstance(given, str) or _texts(given)):
        return own.batch([given] if isinstance(given, str) else list(given))
    if isinstance(given, Mapping):
        return Fields({name: torch.as_tensor(one) for name, one in given.items()})
    if is_frame(given) and isinstance(own, Table) and own.columns:
        return own.batch(own.rows(given))
    values = raw_tensor(given)
    about = config.network.attached
    if about is not None and isinstance(values, Tensor) and about.stored == "uint8" and values.dtype != torch.uint8:
        return Fields({OWN: values})  # not stored samples: what the model takes
    return values


def _texts(given: Any) -> bool:
    return isinstance(given, list | tuple) and bool(given) and all(isinstance(one, str) for one in given)


def content_hashes(run: Run, given: Any, queries: Any) -> np.ndarray:
    """(n, 32) hashes of samples as the run's own table has them: of their items, else of `queries`.

    `queries` are the inputs that were made of the samples `given`.
    """
    own = modality_for(run.config)
    if isinstance(given, Dataset) and (given.items is not None or given.originals is not None):
        return given.samples.pixel_sha256
    if is_frame(given) and isinstance(own, Table) and own.columns:
        return hash_items(own, own.rows(given))
    return hash_inputs(queries) if isinstance(queries, Fields) else pixel_hashes(run, queries)


def picture_rules(config: RunConfig) -> dict[str, Any]:
    """How picture files for a run are read: as its training data were, in the colour mode of its channels.

    A mode that was asked for in training is what made the channels. Samples that are no pictures have none.

    >>> from provnet.data.dataset import DataSpec
    >>> network = NetworkConfig("single", "small", (3, 8, 8), classes=2, scale=255.0)
    >>> picture_rules(RunConfig(network, DataSpec("pictures", "folder", options={"size": [8, 8], "limit": 100})))
    {'size': [8, 8], 'mode': 'rgb'}
    """
    given = config.data.options if config.data else {}
    kept = {name: given[name] for name in ("size", "fit", "background", "frame", "value_range") if name in given}
    return kept | picture_mode(config.network.input_shape)


def picture_rule(config: RunConfig) -> DecodeRule:
    """What pixels of PIL images mean to a run: the range and the background that its training data were read with."""
    given = config.data.options if config.data else {}
    return make_options({name: given[name] for name in ("background", "value_range") if name in given}).values


def takes_bytes(network: NetworkConfig) -> bool:
    """Whether a network was trained on pictures of bytes; what is hashed of a sample then are bytes, too."""
    return network.scale == BYTES and is_picture(network.input_shape)


def as_trained(network: NetworkConfig, values: Any) -> Any:
    """Raw samples in the type trained on, as `open_data` gives it: bytes where all values fit into them, else float32.

    The numbers stay the same, but for booleans: in pictures of bytes they stand for 0 and 255.

    >>> network = NetworkConfig("single", "small", (1, 1, 2), classes=2, scale=255.0)
    >>> [as_trained(network, torch.full((1, 1, 1, 2), value)).dtype for value in (255.0, 0.5)]
    [torch.uint8, torch.float32]
    """
    if isinstance(values, Fields):
        return values
    if network.backbone == TEXT:
        return values.to(torch.uint8)
    if not takes_bytes(network):
        return values.float()
    if values.dtype == torch.bool:
        return values.to(torch.uint8) * 255
    return values.to(torch.uint8) if bool(fit_bytes(values).all()) else values.float()


def fit_bytes(values: Tensor) -> Tensor:
    """(N,) bool, whether all values of a sample are whole numbers in 0..255.

    >>> fit_bytes(torch.tensor([[0.0, 255.0], [0.5, 1.0], [-1.0, 1.0]])).tolist()
    [True, False, False]
    """
    flat = values.reshape(len(values), -1)
    if values.dtype in (torch.uint8, torch.bool):
        return torch.ones(len(values), dtype=torch.bool, device=values.device)
    fits = ((flat >= 0) & (flat <= 255)).all(1)
    return fits & (flat == flat.round()).all(1) if values.is_floating_point() else fits


def whole_number(name: str, value: Any, least: int = 1) -> int:
    """A setting that must be a whole number, of any type that has them.

    >>> whole_number("k", np.int64(3))
    3
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise UsageError(f"{name} must be a whole number of {least} or more, got {value!r}") from None
    if number < least:
        raise UsageError(f"{name} must be {least} or more, got {number}")
    return number


def finite_number(name: str, value: Any) -> float:
    """A setting that must be a finite number.

    >>> finite_number("epsilon", np.float32(0.5))
    0.5
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real) or not math.isfinite(value):
        raise UsageError(f"{name} must be a finite number, got {value!r:.80}")
    return float(value)


def positions(index: Any, n: int) -> np.ndarray:
    """(m,) int64, which of n training samples are meant; None means all, in order. What names none is refused.

    >>> positions([2, 0], 3).tolist(), positions(None, 2).tolist()
    ([2, 0], [0, 1])
    """
    if index is None:
        return np.arange(n)
    own = np.asarray(index)
    if not is_column(own) or (own.size and own.dtype.kind not in "iu"):
        raise UsageError(f"index must be whole numbers, one per sample; got {own.dtype} of shape {own.shape}")
    if own.size and not 0 <= own.min() <= own.max() < n:
        raise UsageError(f"index must name training samples, 0..{n - 1}; got {own.min()}..{own.max()}")
    return own.astype(np.int64)


def row_shape(config: RunConfig | NetworkConfig) -> tuple[int, ...]:
    """The shape that a flattened row is given: as pictures were given at training time, else (C, H, W)."""
    network = config.network if isinstance(config, RunConfig) else config
    known = config.data.options.get("sample_shape") if isinstance(config, RunConfig) and config.data else None
    if known is None:
        return network.input_shape
    if not isinstance(known, list | tuple) or not all(type(side) is int and side > 0 for side in known):
        raise IntegrityError(f"config.json: data.options.sample_shape must be whole numbers, got {known!r}")
    if math.prod(known) != math.prod(network.input_shape):
        raise IntegrityError(f"config.json: sample_shape {list(known)} does not fit the input {network.input_shape}")
    return tuple(known)


def range_problem(network: NetworkConfig, values: Any) -> str | None:
    """What is wrong with the range of some pictures' raw values, or None; vectors may have any range.

    Dark pictures are no problem. Where the brightest value is 1 they are taken for zeros and ones; not so a single
    picture of bytes, which may be as dark as that.

    >>> network = NetworkConfig("single", "small", (1, 8, 8), classes=2, mean=(0.13,), std=(0.31,))
    >>> range_problem(network, np.full((1, 1, 8, 8), 255.0))
    'the values lie in 255..255, this run was trained on about -0.8..1.06; bring them to the range trained on'
    """
    if not is_picture(network.input_shape):
        return None
    if isinstance(values, Fields):
        return None
    low, high = float(values.min()), float(values.max())
    largest = max(-low, high)
    # mean and spread are known, not the ends: three standard deviations stand for them
    ends = [m + sign * 3 * s for m, s in zip(network.mean, network.std, strict=True) for sign in (-1, 1)]
    reach = max(map(abs, ends)) * network.scale
    if network.scale == BYTES:
        trained = "0..255"
        may_be_dark = len(values) == 1 and str(values.dtype).endswith("uint8")
        wrong = low < 0 or high > 255 or (0 < largest <= 1 and reach > DARK and not may_be_dark)
    else:
        trained = f"about {min(ends) * network.scale:.3g}..{max(ends) * network.scale:.3g}"
        wrong = largest > FAR * reach or (0 < largest <= 1 and reach > FAR)
    given = f"the values lie in {low:.4g}..{high:.4g}, this run was trained on {trained}"
    return f"{given}; bring them to the range trained on" if wrong else None


def _typed(values: np.ndarray, *, is_bytes: bool) -> np.ndarray:
    """Bytes where the network was trained on bytes and the values are whole, else float32; memory of its own."""
    if values.dtype.kind == "b" and is_bytes:
        return np.array(values, dtype=np.uint8, order="C") * np.uint8(255)
    whole = values.dtype.kind in "iu" and int(values.min()) >= 0 and int(values.max()) <= 255
    typed = np.ascontiguousarray(values, dtype=np.uint8 if is_bytes and whole else np.float32)
    return typed if typed.flags.writeable else typed.copy()


def checked_inputs(run: Run, images: Any, what: str = "the input", *, warn: bool = True) -> Any:
    """Numbers as people give them, as a tensor of the type trained on (`inputs.as_trained`).

    What is no number, empty or not finite is refused, named as `what`. Pictures whose values cannot lie in the range
    trained on get a UserWarning, unless `warn` is False because they were looked at before.

    >>> import provnet
    >>> from provnet.training.config import train_config
    >>> from provnet.training.fit import fit
    >>> data = provnet.open_data("embedded", limit=20)
    >>> checked_inputs(fit(data, config=train_config(epochs=1)), data.images[:3].numpy()).shape
    torch.Size([3, 1, 28, 28])
    """
    given = inputs_of(run.config, images)
    if 0 in given.shape:
        raise UsageError(f"{what}: no samples were given; give at least one")
    queries = as_trained(run.config.network, given)
    if not all_finite(queries):
        raise NonFiniteError(f"{what}: there are NaN or infinite values; remove these samples, or fill the values in")
    # a single picture of bytes may be dark, floats of 0 and 1 are of another range: told by what was given
    seen = queries if given.dtype == torch.bool else given
    problem = range_problem(run.config.network, seen) if warn else None
    if problem is not None:
        warnings.warn(f"{what}: {problem}", UserWarning, stacklevel=3)  # names whoever called the application
    return queries


def pixel_hashes(run: Run, queries: Tensor) -> np.ndarray:
    """(n, 32) hashes of raw samples as the run's own table has them, each as if it had been given alone.

    >>> import provnet
    >>> from provnet.training.config import train_config
    >>> from provnet.training.fit import fit
    >>> data = provnet.open_data("embedded", limit=20)
    >>> mixed = torch.cat([data.images[:1].float(), data.images[:1] / 2])
    >>> (pixel_hashes(fit(data, config=train_config(epochs=1)), mixed) == data.samples.pixel_sha256[0]).all(1).tolist()
    [True, False]
    """
    values = queries.detach().cpu()
    found = hash_pixels(values.numpy())
    if values.dtype == torch.uint8 or not takes_bytes(run.config.network):
        return found
    fits = fit_bytes(values)
    found = found.copy()
    found[fits.numpy()] = hash_pixels(values[fits].to(torch.uint8).numpy())
    return found

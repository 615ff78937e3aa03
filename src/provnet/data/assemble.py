"""From arrays and labels to images with a sample table; shared by every reader that has its samples in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from provnet.base.batches import Inputs, is_column
from provnet.base.errors import DataError, UsageError
from provnet.base.files import brief
from provnet.data.dataset import Originals, hash_items
from provnet.data.modalities.decode import are_pictures, fit
from provnet.data.modalities.image import channels_first, picture_of
from provnet.data.modalities.modality import Modality
from provnet.data.rules import CHOOSE, OpenOptions
from provnet.samples.identity import Groups, SampleTable, hash_pixels, hash_rows


class Opened(NamedTuple):
    """What a reader gives back: the fields of a Dataset, and the options that were settled while reading."""

    images: Inputs
    samples: SampleTable
    skipped: tuple[str, ...] = ()
    items: Sequence[Any] | None = None
    modality: Modality | None = None
    originals: Originals | None = None
    options: Mapping[str, Any] = MappingProxyType({})
    notes: tuple[str, ...] = ()


def evenly(labels: np.ndarray, limit: int | None) -> np.ndarray:
    """Positions of at most `limit` samples, taken evenly from the classes, in their old order.

    >>> evenly(np.array([0, 0, 0, 1, 1]), 4).tolist()
    [0, 1, 3, 4]
    """
    if limit is None or limit >= len(labels):
        return np.arange(len(labels), dtype=np.int64)
    order = np.argsort(labels, kind="stable")
    sizes = np.bincount(labels)
    local = np.empty(len(labels), dtype=np.int64)
    local[order] = np.arange(len(labels)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    first = np.lexsort((labels, local))[:limit]
    return np.sort(first).astype(np.int64)


def sample_ids(given: Any, split: str, count: int) -> list[str]:
    """The ids of samples, as given or else `split/position`: text or whole numbers, none empty, none twice.

    >>> sample_ids(None, "train", 2), sample_ids(["a", 7], "train", 2)
    (['train/0', 'train/1'], ['a', '7'])
    """
    if given is None:
        return [f"{split}/{i}" for i in range(count)]
    ids = [str(one) if type(one) is int else one for one in _listed("ids", given, count)]
    place: dict[str, int] = {}
    for i, text in enumerate(ids):
        if not isinstance(text, str) or not text.strip() or not _is_utf8(text):
            raise DataError(f"ids must be non-empty text or whole numbers; id {i} is {brief(repr(text))}")
        if place.setdefault(text, i) != i:
            raise DataError(
                f"ids must be unique: ids {place[text]} and {i} are both {brief(text)!r}; {count:,} samples have "
                f"{len(set(ids)):,} different ids. Give each sample an id of its own"
            )
    return ids


def sample_sources(given: Any, count: int) -> list[str | None]:
    """Who contributed each sample, text; None or an empty text where nobody is named.

    >>> sample_sources(["ann", ""], 2)
    ['ann', None]
    """
    if given is None:
        return [None] * count
    texts = _listed("sources", given, count)
    for i, text in enumerate(texts):
        if not (text is None or isinstance(text, str)) or not _is_utf8(text or ""):
            raise DataError(f"sources must be text, or None where a sample has none; source {i} is {brief(repr(text))}")
    return [text or None for text in texts]


def _listed(name: str, given: Any, count: int) -> list[Any]:
    """One value a sample, as Python has them."""
    values = np.asarray(given.cpu() if isinstance(given, Tensor) else given, dtype=object)
    if not is_column(values):
        raise UsageError(
            f"{name} must be a list with one entry per sample; got {type(given).__name__} of shape {values.shape}"
        )
    if len(values) != count:
        raise DataError(f"{count:,} samples but {len(values):,} {name}; give one per sample")
    return [one.item() if isinstance(one, np.generic) else one for one in values.tolist()]


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def assemble(
    raw: np.ndarray,
    labels: np.ndarray,
    class_names: Sequence[str],
    sample_ids: Sequence[str],
    *,
    options: OpenOptions,
    convert: Callable[[np.ndarray], np.ndarray] | None = None,
    sources: Sequence[str | None] | None = None,
) -> Opened:
    """Hash the samples' own bytes, convert them to what the network receives, hash that, and build the table.

    `raw` has one sample a row; `convert` makes uint8 (n, C, H, W), float32 (n, C, H, W) or (n, F) of some rows.
    """
    if len(raw) != len(labels):
        raise DataError(f"{len(raw)} images but {len(labels)} labels; give one label per picture")
    rows = evenly(labels, options.limit)
    taken = raw if len(rows) == len(raw) else raw[rows]
    images = np.array(taken) if convert is None else convert(taken)
    whole, chosen = images, "stretch" if options.fit == CHOOSE else options.fit
    if options.size is not None or options.mode is not None:
        images = refit(images, replace(options, fit=chosen))
    if not images.flags.writeable or not images.flags.c_contiguous or np.shares_memory(images, raw):
        images = images.copy()  # torch wants to own its memory
    count = len(rows)
    samples = SampleTable(
        sample_ids=tuple(sample_ids[i] for i in rows),
        sha256=hash_rows(taken),
        pixel_sha256=hash_pixels(images if chosen is None else whole),
        labels=labels[rows],
        class_names=tuple(class_names),
        paths=(None,) * count,
        sources=(None,) * count if sources is None else tuple(sources[i] for i in rows),
    )
    if chosen is None or (images.shape == whole.shape and np.array_equal(images, whole)):
        return Opened(torch.from_numpy(images), samples)
    originals = Originals(hash_pixels(images), tuple(partial(_picture, whole, i) for i in range(count)))
    return Opened(torch.from_numpy(images), samples, originals=originals, options={"fit": chosen})


def _picture(images: np.ndarray, place: int) -> np.ndarray:
    found = picture_of(images[place])
    assert found is not None, "size and mode are for pictures"
    return found


def assemble_items(
    items: Sequence[Any],
    labels: tuple[np.ndarray, tuple[str, ...]],
    modality: Modality,
    split: str,
    options: OpenOptions,
    ids: Any = None,
    sources: Any = None,
) -> Opened:
    """Samples that people see as something else than the network: hashed by their content, batched by their modality.

    `labels` are those of all items, encoded, with the names of the classes.
    """
    if len(items) != len(labels[0]):
        raise DataError(f"{len(items)} samples but {len(labels[0])} labels; give one label per sample")
    if options.size is not None or options.mode is not None:
        raise DataError(f"size and mode apply to pictures of bytes, these samples are of modality {modality.name}")
    named, givers = sample_ids(ids, split, len(items)), sample_sources(sources, len(items))
    rows = evenly(labels[0], options.limit).tolist()
    taken = [items[i] for i in rows]
    hashes = hash_items(modality, taken)
    samples = SampleTable(
        sample_ids=tuple(named[i] for i in rows),
        sha256=hashes,
        pixel_sha256=hashes,
        sources=tuple(givers[i] for i in rows),
        grouping=Groups(labels[1], labels[0][rows]),
    )
    return Opened(modality.batch(taken), samples, (), taken, modality)


def refit(images: np.ndarray, options: OpenOptions) -> np.ndarray:
    """Pictures (N, C, H, W) brought to the size and mode of the options.

    >>> refit(np.zeros((2, 3, 4, 6), np.uint8), OpenOptions(size=(2, 2), mode="grey")).shape
    (2, 1, 2, 2)
    """
    if images.dtype != np.uint8 or not are_pictures(images):
        raise DataError(
            f"size and mode apply to pictures of bytes, these samples are {images.dtype} of shape {images.shape[1:]}"
        )
    rule = options.rule
    pictures = images[:, 0] if images.shape[1] == 1 else images.transpose(0, 2, 3, 1)
    fitted = np.stack([fit(picture, rule) for picture in pictures])
    return np.ascontiguousarray(channels_first(fitted))

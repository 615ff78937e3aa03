"""The pictures behind an explanation: shown only if they are, to the pixel, those of training time.

A sample is looked up by hash, never by position. A file is read and hashed again at the moment it is shown, and so are
the pixels of the whole picture that it is decoded to; an array is hashed again. What does not match is not shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from provnet.base.errors import DataError, UsageError
from provnet.base.files import read_file
from provnet.data.dataset import AFTER_READING, Dataset, Read
from provnet.data.modalities.decode import decode_whole, fit
from provnet.data.modalities.image import picture_of, planes
from provnet.data.modalities.modality import Preview
from provnet.data.open import data_root
from provnet.data.rules import DecodeRule, make_options
from provnet.samples.identity import SampleTable, hash_bytes, hash_pixels


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a training sample looks like, or why it cannot be shown.

    Attributes:
        picture: the whole picture at its own size, uint8 (H, W) or (H, W, 3), or None.
        text: what is shown of a sample that is no picture, such as a text or the row of a table.
        note: empty where there is either; else `changed since training`, `decoded differently from training` or
            `picture not available`, and why.
        rule: how the network's view is made of the picture; None where it is the picture.
    """

    picture: np.ndarray | None
    note: str = ""
    text: str = ""
    rule: DecodeRule | None = None

    @property
    def view(self) -> np.ndarray | None:
        """What the network sees of the picture."""
        return self.picture if self.picture is None or self.rule is None else fit(self.picture, self.rule)

    @property
    def there(self) -> bool:
        """Whether there is something to look at."""
        return self.picture is not None or bool(self.text)

    @property
    def words(self) -> str:
        """What stands beside the picture, or in its place."""
        return "; ".join(part for part in (self.text, self.note) if part)


def evidence(
    samples: SampleTable, data: Dataset | Sequence[Dataset] | None, index: Iterable[int] | np.ndarray
) -> list[Evidence]:
    """The pictures of some training samples, out of data as they are now, of one source or of several.

    >>> import provnet
    >>> data = provnet.open_data("embedded", limit=20)
    >>> evidence(data.samples, data, [3])[0].picture.shape
    (28, 28)
    """
    wanted = [int(i) for i in np.asarray(index, dtype=np.int64).reshape(-1)]
    places = []
    for part in [data] if isinstance(data, Dataset) else data or ():
        try:
            places.append((part, data_root(part.spec)))
        except UsageError:  # a data set known by name whose folder is gone
            continue
    return [_first_shown([_show(samples, part, root, i) for part, root in places]) for i in wanted]


def _first_shown(found: list[Evidence]) -> Evidence:
    """The first with a picture, else the first that knows more than that there is none."""
    best = sorted(found, key=lambda item: (not item.there, item.note == MISSING))
    return best[0] if best else Evidence(None, MISSING)


def _show(samples: SampleTable, data: Dataset, root: Path | None, i: int) -> Evidence:
    found = Evidence(None, _why_missing(samples, data.samples, i))
    for place in _candidates(samples, data.samples, i):
        if root is not None and data.samples.paths[place] is not None:
            found = _from_file(samples, data, root / str(data.samples.paths[place]), i)
        else:
            found = _from_memory(samples, data, place, i)
        if found.there:
            break
    return found


def _candidates(samples: SampleTable, now: SampleTable, i: int) -> list[int]:
    """Places of now with the content of sample i, its own name first."""
    places = now.places.get(samples.sha256[i].tobytes(), ())
    return sorted(places, key=lambda j: (now.sample_ids[j] != samples.sample_ids[i], j))


def _why_missing(samples: SampleTable, now: SampleTable, i: int) -> str:
    here = now.id_places.get(samples.sample_ids[i])
    if here is None:
        return MISSING
    if bool((now.pixel_sha256[here] == samples.pixel_sha256[i]).all()):
        return f"{CHANGED} (the same picture to the pixel, in another file)"
    return CHANGED


def _is_unchanged(samples: SampleTable, i: int, image: np.ndarray) -> bool:
    """Whether a picture (C, H, W) is the one that names sample i."""
    return bool((hash_pixels(image[None])[0] == samples.pixel_sha256[i]).all())


def _is_same(samples: SampleTable, i: int, whole: np.ndarray, rule: DecodeRule) -> bool:
    """Whether pixels at full size are those of sample i; of runs written before there was a choice, by their view."""
    return _is_unchanged(samples, i, planes(fit(whole, rule) if rule.fit is None else whole))


def _from_file(samples: SampleTable, data: Dataset, path: Path, i: int) -> Evidence:
    rule = _rule(data)
    try:
        blob = read_file(path, rule.max_bytes)
    except DataError:
        return Evidence(None, MISSING)
    return _shown(samples, i, blob, rule)


def _shown(samples: SampleTable, i: int, blob: bytes, rule: DecodeRule) -> Evidence:
    if not bool((hash_bytes(blob) == samples.sha256[i]).all()):
        return Evidence(None, CHANGED)
    try:
        picture = decode_whole(blob, samples.sample_ids[i], rule).pixels
    except DataError as error:
        return Evidence(None, f"{MISSING} ({error})")
    return Evidence(picture, rule=rule) if _is_same(samples, i, picture, rule) else Evidence(None, DECODED)


def _read_again(samples: SampleTable, data: Dataset, read: Read, i: int) -> Evidence:
    """A picture that has no file of its own, read from where it came."""
    rule = _rule(data)
    try:
        found = read()
    except DataError:
        return Evidence(None, MISSING)
    if isinstance(found, bytes):
        return _shown(samples, i, found, rule)
    return Evidence(found, rule=rule) if _is_same(samples, i, found, rule) else Evidence(None, CHANGED)


def _from_memory(samples: SampleTable, data: Dataset, place: int, i: int) -> Evidence:
    read = None if data.originals is None else data.originals.read[place]
    if read is not None:
        return _read_again(samples, data, read, i)
    if data.items is not None or not isinstance(data.inputs, Tensor):
        same = bool((data.hashes(torch.tensor([place]))[0] == samples.pixel_sha256[i]).all())
        item = data.inputs[place : place + 1] if data.items is None else data.items[place]
        seen = data.modality.show(item) if same else Preview()
        found = Evidence(seen.picture, text=seen.text)
        return found if found.there else Evidence(None, NO_PICTURE if same else CHANGED)
    image = data.inputs[place].numpy()
    if not _is_unchanged(samples, i, image):
        is_decoded = _is_unchanged(data.samples, place, image)  # same bytes, read with other options
        return Evidence(None, DECODED if is_decoded else CHANGED)
    picture = picture_of(image)
    return Evidence(None, NO_PICTURE) if picture is None else Evidence(picture)


def _rule(data: Dataset) -> DecodeRule:
    return make_options({name: value for name, value in data.spec.options.items() if name not in AFTER_READING}).rule


CHANGED = "changed since training"
DECODED = "decoded differently from training (open the data with the options of the run)"
MISSING = "picture not available"
NO_PICTURE = f"{MISSING} (the samples are no pictures)"

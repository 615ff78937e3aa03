"""A run's own data, opened again: every sample is found by its hash, whatever became of names, order and places.

Nothing here prints: what is missing, and why, is in what comes back, for the command line to say; `Run.data` warns.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from provnet.base.errors import DataError, ProvnetError, UsageError
from provnet.base.files import DataWarning, shown
from provnet.base.options import SUBSET
from provnet.data.compare import compare, find_held
from provnet.data.dataset import DECODING, Dataset, DataSpec
from provnet.data.modalities.decode import BYTES, picture_mode
from provnet.data.modalities.known import modality_of
from provnet.data.modalities.modality import Modality
from provnet.data.modalities.text import Text
from provnet.data.open import has_split, relocate, reopen
from provnet.data.select import Combined, combine, with_classes
from provnet.runs.files import RunConfig
from provnet.samples.identity import SampleTable

Place = str | os.PathLike[str]  # a name or path of data
PICTURES = (
    "folder",
    "csv",
    "table",
    "tar",
)  # sources of picture files; arrays are taken as they are
NARROWING = ("limit", "holdout")  # options that choose among the samples of a source
NOWHERE = DataSpec("arrays", "arrays")
REST = "the other samples, which have no index,"


@dataclass(frozen=True, eq=False)
class Kept:
    """Training samples in the run's own order, under its ids and labels, whatever became of their files.

    Attributes:
        data: the samples that are still what they were; None where there are none.
        index: (n,) which training sample each of them is.
        facts: what changed, one line each; empty where nothing did.
        left_out: how many samples are edited or missing.
    """

    data: Dataset | None
    index: np.ndarray
    facts: tuple[str, ...]
    left_out: int

    @property
    def there(self) -> Dataset:
        """`data`, for whoever made sure that there are some."""
        assert self.data is not None, "none of the training samples is there"
        return self.data


@dataclass(frozen=True, eq=False)
class Found:
    """The training data of a run, opened again.

    Attributes:
        samples: the run's own table.
        data: as they are now, in their order of now; None where they cannot be opened. Of a run whose samples were
            added or erased those that it holds, in its order; of a run that indexes some samples those alone.
        why: why there are none, or not all; else empty.
        parts: the same by source; each says where its files are.
        rest: what changed among samples that were trained on without an index; else empty.
        unsure: why those cannot be compared; else empty.
        rows: which samples of the run can be looked for where `why` says that not all can; None means all.
        table: all samples of the training data as the run's settings choose them, those that it does not hold among
            them; None where they are not there, or where renamed files make the settings choose others.
    """

    samples: SampleTable
    data: Dataset | None
    why: str = ""
    parts: tuple[Dataset, ...] = ()
    rest: str = ""
    unsure: str = ""
    rows: np.ndarray | None = None
    table: SampleTable | None = None

    @cached_property
    def kept(self) -> Kept:
        """The samples that are what they were, in the run's order; what is edited or missing is counted."""
        samples, data = self.samples, self.data
        if data is None:
            return Kept(None, np.arange(0), (), len(samples))
        if data.samples.fingerprint == samples.fingerprint:
            return Kept(data, np.arange(len(samples)), (), 0)
        found = compare(samples, data.samples)
        index = np.flatnonzero(found.positions >= 0)
        places = found.positions[index]
        left_out, doubled = len(samples) - len(index), len(index) - len(np.unique(places))
        lines = found.lines()
        if doubled:  # of equal samples, which share a place: the table is the run's own, as ids must be unique
            words = "missing, but the same content is still there under another name and stands for it"
            lines.append(f"{doubled:,} {words}")
        if left_out:
            lines.append(f"{left_out:,} of {len(samples):,} training samples are left out of the figures")
        if len(index) == 0:
            return Kept(None, index, tuple(lines), left_out)
        in_place = np.array_equal(places, np.arange(len(data)))  # then they are not copied
        table = samples.select(index)
        there = replace(data, samples=table) if in_place else data.select(places, table)
        return Kept(there, index, tuple(lines), left_out)


def find_data(
    config: RunConfig,
    samples: SampleTable,
    source: Place | None = None,
    data_dir: Place | None = None,
    *,
    progress: bool = False,
) -> Found:
    """Open the training data of a run again, or those at `source`; only data that were asked for must be there."""
    try:
        if has_changed(config, samples):
            return _find_in_all(config, samples, source, data_dir, progress)
        return _find_in_one(config, samples, source, data_dir, progress)
    except ProvnetError as error:
        if source is not None:
            raise
        return Found(samples, None, str(error))


def own_data(
    config: RunConfig,
    samples: SampleTable,
    source: Place | Dataset | None = None,
    data_dir: Place | None = None,
    *,
    progress: bool = False,
) -> Dataset:
    """The training samples that are still what they were, in the run's order; see `Run.data`."""
    if isinstance(source, Dataset):
        given = in_terms_of(config, source)
        found = Found(samples, given, parts=(given,))
    else:
        found = find_data(config, samples, source, data_dir, progress=progress)
    kept = found.kept
    if found.data is None:
        raise DataError(f"the training data cannot be opened: {found.why}; {ELSEWHERE}")
    if kept.data is None:
        raise DataError(f"none of the training samples is among the data ({'; '.join(kept.facts)}); {ELSEWHERE}")
    why = [f"not all training data can be opened: {found.why}"] if found.why else []
    if why or kept.left_out:
        warnings.warn("; ".join([*why, *(f"training data: {line}" for line in kept.facts)]), DataWarning, stacklevel=3)
    return kept.data


def own_test(
    config: RunConfig,
    samples: SampleTable,
    source: Place | Dataset | None = None,
    data_dir: Place | None = None,
    *,
    progress: bool = False,
) -> Dataset | None:
    """The test split of a run, or that of the data at `source` (else all of those); see `Run.test`."""
    if isinstance(source, Dataset):
        data = in_terms_of(config, source)
    else:
        spec = config.test if source is None else other_spec(config.data, source, data_dir, "test")
        if spec is None:
            return None
        place = Path(spec.source)
        if source is None and place.is_absolute() and not place.exists():
            raise UsageError(
                f"the run's test split cannot be opened: {shown(spec.source)} no longer exists; put it back, or "
                "give test data or picture files instead"
            )
        data = open_spec(config, spec, data_dir, progress=progress)
    shape = config.network.input_shape
    if data.shape != shape:
        raise DataError(
            f"the data have samples of shape {data.shape}, the run takes {shape}; train with --size and --mode, "
            "or bring the data to that shape"
        )
    return with_classes(data, samples.class_names)


def modality_for(config: RunConfig) -> Modality:
    """The modality of a run's samples: as its data say, else told by the shape that its network takes."""
    return modality_of(config.network.input_shape, config.data.options if config.data else None)


def in_terms_of(config: RunConfig, data: Dataset) -> Dataset:
    """Data whose inputs are made of their items as a run's were: other columns would be taken for those trained on."""
    options = config.data.options if config.data else {}
    fits = [given.get("fit") for given in (options, data.spec.options)]
    if None not in fits and fits[0] != fits[1] and data.originals is not None:
        raise UsageError(
            f'the run takes pictures with fit "{fits[0]}", these data were opened with fit "{fits[1]}", which '
            f'shows the network something else; open them with fit="{fits[0]}"'
        )
    if data.items is None:
        return data
    same = data.modality.to_json()
    if json.loads(json.dumps(same)) == {name: _listed(options.get(name)) for name in same}:
        return data
    own = modality_for(config)
    if isinstance(own, Text) or own.name != data.modality.name or own.name != options.get("modality"):
        raise UsageError(
            f"the run takes samples of modality {options.get('modality', own.name)}, these data are of modality "
            f"{data.modality.name}, or were opened with other settings of it; open them as those that were trained on"
        )
    return replace(data, inputs=own.batch(data.items), modality=own)


def _listed(value: Any) -> Any:
    """As JSON has it: tuples are lists."""
    return json.loads(json.dumps(value))


def open_spec(config: RunConfig, spec: DataSpec, data_dir: Place | None, *, progress: bool) -> Dataset:
    """Open data for a run, in its colour mode."""
    return reopen(in_mode(spec, config.network.input_shape), None, data_dir, progress)


def other_spec(
    given: DataSpec | None,
    source: Place,
    data_dir: Place | None,
    split: str,
    *,
    classes: bool = True,
    skip_bad: bool | None = None,
) -> DataSpec:
    """How to open the data at `source` for a run, by the rules of its training data (`given`).

    Where they have no test split, all of them stand for it. Where `classes` do not matter, names that belong to the
    training data say nothing about these. `skip_bad` None: bad files are left out if they were in training.

    >>> data = DataSpec("mnist", "idx", options={"size": [8, 8], "limit": 100})
    >>> other_spec(data, "embedded", None, "test", classes=False).options
    {'size': [8, 8]}
    """
    given = given or NOWHERE
    kept = (*DECODING, "manifest_columns") if given.kind == "texts" else DECODING
    options = {name: value for name, value in given.options.items() if name in kept}
    if given.options.get("skip_bad", False) if skip_bad is None else skip_bad:
        options["skip_bad"] = True
    plain = replace(given, source=given.source if classes else "arrays", options=options)
    spec = relocate(plain, source, data_dir)
    return replace(spec, split=split if has_split(spec, split) else "all")


def in_mode(spec: DataSpec, shape: tuple[int, ...]) -> DataSpec:
    """The spec, by which picture files without a mode of their own come with the channels of samples of this shape."""
    return replace(spec, options={**picture_mode(shape), **spec.options}) if spec.kind in PICTURES else spec


def has_changed(config: RunConfig, samples: SampleTable) -> bool:
    """Whether the run no longer holds exactly the data that it was trained on."""
    return bool(config.added or config.erased or samples.added.any())


def rest_state(
    config: RunConfig, samples: SampleTable, table: SampleTable | None, rows: np.ndarray | None = None
) -> tuple[str, str]:
    """What became of samples that taught the class branch alone: what changed, and what cannot be compared; in words.

    `table` are the training data of now, `rows` the positions in it of the indexed samples, if they are known already.

    The run knows one hash of all their contents. Erased samples may still be among the data, and nothing says which
    they are: then nothing can be compared until they are removed from the data, too.
    """
    then, about = rest_content(config), _about(config)
    if then is None:
        return "", ""
    if table is None:
        return "", f"{REST} cannot be compared: the training data cannot be opened"
    if rows is None:
        rows = find_held(samples.select(~samples.added), table)
    rest = np.setdiff1d(np.arange(len(table)), rows)
    later = find_held(samples.select(samples.added), table) if samples.added.any() else rest[:0]
    # added ones had been trained on, or came from elsewhere
    if any(table.select(some).content_root == then for some in (rest, np.setdiff1d(rest, later))):
        return "", ""
    changed = f"{REST} are not those of training time: {len(rest):,} now"
    if not config.erased and not len(later):
        return changed, ""
    of, indexed = about.get("of"), about.get("indexed")
    if not isinstance(of, int) or not isinstance(indexed, int):
        return "", f"{REST} cannot be compared: the run does not say how many there were"
    extra = len(rest) - (of - indexed)
    if not 0 < extra <= config.erased + len(later):
        return changed, ""
    gone = "; remove what was erased from the data, too, and verify again" if config.erased else ""
    return "", f"{REST} cannot be compared: {extra:,} of {len(rest):,} were erased or added, unknown which{gone}"


def _about(config: RunConfig) -> Mapping[str, Any]:
    """What the run keeps of the choice of samples that are indexed."""
    kept = config.training.get(SUBSET)
    return kept if isinstance(kept, Mapping) else {}


def rest_content(config: RunConfig) -> Any:
    """The hash of the contents of samples that taught the class branch alone, or None where there were none."""
    return _about(config).get("rest_content")


def _find_in_one(
    config: RunConfig, samples: SampleTable, source: Place | None, data_dir: Place | None, progress: bool
) -> Found:
    """The data of a run that holds what it was trained on: they lie in one source."""
    spec = config.data or NOWHERE
    data = reopen(spec, source, data_dir, progress)
    table, rest = data.samples, ""
    if SUBSET in config.training:
        rows = find_held(samples, data.samples)
        rest, _ = rest_state(config, samples, data.samples, rows)
        data = data.select(rows) if len(rows) else data
    widened = _wide(spec)
    if widened == spec or data.samples.fingerprint == samples.fingerprint:
        return Found(samples, data, parts=(data,), rest=rest, table=table)
    # renamed or added files make `limit` and `holdout` choose others: look among all samples instead
    everything = reopen(widened, source, data_dir, progress)
    found = compare(samples, everything.samples).nearest
    named = [everything.samples.id_places.get(name, -1) for name in samples.sample_ids]
    rows = np.union1d(found, np.array(named, dtype=np.int64))
    rows = rows[rows >= 0]
    data = everything.select(rows) if len(rows) else data
    return Found(samples, data, parts=(data,), rest=rest)


def _find_in_all(
    config: RunConfig, samples: SampleTable, source: Place | None, data_dir: Place | None, progress: bool
) -> Found:
    """The data of a run that samples came to or were erased from; `source` stands for the training data.

    A source that cannot be opened matters only if samples are missing then. Samples of the sources that the run does
    not hold (erased, or never added) are left out.
    """
    specs = [config.data or NOWHERE, *config.added]
    parts, why = _open(specs, source, data_dir, progress)
    if source is not None and not _fits(config, parts[0]):  # asked for by name: compared as it is
        return _found(config, samples, Combined(parts[0], (parts[0],), len(samples)))
    good = {number: part for number, part in parts.items() if _fits(config, part)}
    why += [f"{part.spec.source} now holds samples of shape {part.shape}" for n, part in parts.items() if n not in good]
    if not good:
        return Found(samples, None, "; ".join(why))
    table = good[0].samples if 0 in good else None
    found = combine(samples, list(good.values()))
    widened = [_wide(spec) for spec in specs]
    if found.missing and widened != specs:
        # renamed or added files make `limit` and `holdout` choose others: look among all samples instead
        parts, _ = _open(widened, source, data_dir, progress)
        good = {number: part for number, part in parts.items() if _fits(config, part)}
        found = combine(samples, list(good.values()))
    if found.missing == 0:
        return _found(config, samples, found, table=table)
    rows = _expected(samples, found, list(good)) if len(good) < len(specs) else None
    if rows is not None and len(rows) < len(samples):
        found = combine(samples.select(rows), list(good.values()))
    else:
        why, rows = [], None
    first = next(iter(good.values()))
    there = found if len(found.data) else Combined(first, (first,), len(samples))
    return _found(config, samples, there, "; ".join(why), rows, table)


def _found(
    config: RunConfig,
    samples: SampleTable,
    found: Combined,
    why: str = "",
    rows: np.ndarray | None = None,
    table: SampleTable | None = None,
) -> Found:
    return Found(samples, found.data, why, found.parts, *rest_state(config, samples, table), rows, table)


def _expected(samples: SampleTable, found: Combined, numbers: list[int]) -> np.ndarray:
    """The rows that are there, or would be if nothing had changed: not those that may lie in a source that is not.

    Where an added sample came from is not kept. If its name now holds other content it was edited, but for names of
    the training data, which may have been there when the sample was added: then it was another of that name.
    """
    status = np.array(compare(samples, found.data.samples).status)
    added = {name for n, part in zip(numbers, found.parts, strict=True) if n > 0 for name in part.samples.sample_ids}
    edited = np.array([name in added for name in samples.sample_ids]) & (status == "edited")
    there = (status != "missing") & (status != "edited")
    return np.flatnonzero(there | np.where(samples.added, edited, 0 in numbers))


def _open(
    specs: list[DataSpec], source: Place | None, data_dir: Place | None, progress: bool
) -> tuple[dict[int, Dataset], list[str]]:
    """The sources that can be opened, by their number, and why others cannot."""
    parts: dict[int, Dataset] = {}
    why: list[str] = []
    for number, spec in enumerate(specs):
        place = source if number == 0 else None
        try:
            parts[number] = reopen(spec, place, data_dir, progress)
        except ProvnetError as error:
            if place is not None:
                raise
            why.append(str(error))
    return parts, why


def _wide(spec: DataSpec) -> DataSpec:
    """All samples of the source, whichever were chosen of them."""
    return replace(spec, options={name: value for name, value in spec.options.items() if name not in NARROWING})


def _fits(config: RunConfig, part: Dataset) -> bool:
    is_bytes = not part.inputs.dtype.is_floating_point
    return part.shape == config.network.input_shape and is_bytes == (config.network.scale == BYTES)


ELSEWHERE = "say where they are: run.data(source) takes a name, a path or the data themselves"

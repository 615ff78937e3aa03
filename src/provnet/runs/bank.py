"""The bank of a run: samples withheld, restored, erased and added without training again.

For runs with an exemplar head, where a sample is a key. Each function takes a run, or a fitted classifier, and gives
back a new run, or the same where there is nothing to change; `write_run` keeps it. The network stays as it was trained:
an added sample taught it nothing (unless it was trained on before, without an index or until it was erased), and what
it learned from an erased one stays in its weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import torch

from provnet.base.batches import all_finite, pieces
from provnet.base.errors import DataError, NonFiniteError, UsageError, did_you_mean
from provnet.base.files import brief, shown
from provnet.base.progress import progress_bar
from provnet.data.compare import decoding_advice
from provnet.data.dataset import Dataset, image_data, refuse_changed
from provnet.data.modalities.decode import BYTES
from provnet.data.select import concatenate_tables, data_name, free_ids, with_classes
from provnet.heads.keys import PackedKeys, pack, unit
from provnet.models.keys import concatenate_keys, exemplar_head, features_of, keys_of, with_keys
from provnet.models.network import features_at_once
from provnet.runs.files import SAMPLES
from provnet.runs.inputs import Fitted, range_problem, run_of
from provnet.runs.run import Run
from provnet.samples.identity import SampleTable


def newcomers(run: Run, data: Dataset, *, skip_known: bool = False) -> Dataset:
    """The samples of `data` that can be added to a run, with its class numbers; what does not fit it is refused.

    A sample whose pixels the run has is refused by name, or left out with `skip_known`; so is the second of two equal
    ones. Bytes that the run has, decoded to other pixels, are always refused: the data were opened by other rules.
    """
    _check_values(run, data)
    named = with_classes(data, run.samples.class_names)
    _refuse_untrained(run, named)
    _refuse_decoded(run, named)
    fresh = _unknown(run.samples, named, skip_known=skip_known)
    if len(run.samples) + len(fresh) > SAMPLES:
        raise UsageError(f"a run holds at most {SAMPLES:,} samples, these would be {len(run.samples) + len(fresh):,}")
    return fresh


def _check_values(run: Run, data: Dataset) -> None:
    network = run.config.network
    if len(image_data("the samples to add", data)) == 0:
        raise DataError("there are no samples to add")
    if data.shape != network.input_shape:
        raise DataError(
            f"the samples to add have shape {data.shape}, the run takes {network.input_shape}; "
            "bring them to that shape first"
        )
    given = "bytes" if data.inputs.dtype == torch.uint8 else "float values"
    taken = "bytes" if network.scale == BYTES else "float values"
    if given != taken:
        raise DataError(f"the samples to add are {given}, the run was trained on {taken}; convert them first")
    if not all_finite(data.inputs):
        raise NonFiniteError("the samples to add hold NaN or infinite values; clean them first")
    refuse_changed("the samples to add", data)
    problem = range_problem(network, data.inputs)
    if problem:
        raise DataError(f"the samples to add: {problem}")


def _refuse_untrained(run: Run, data: Dataset) -> None:
    """Refuse classes that had no samples in training; one whose samples were erased since still has its mean."""
    sizes = np.bincount(run.samples.labels, minlength=len(run.samples.class_names))
    never = (sizes == 0) & (run.network.support.mean == 0).all(1).cpu().numpy()
    found = np.flatnonzero(never[data.samples.labels])
    if len(found):
        name = brief(data.class_names[int(data.samples.labels[found[0]])])
        raise UsageError(f'class "{name}" had no samples in training: the run cannot tell it from others; train again')


def _refuse_decoded(run: Run, data: Dataset) -> None:
    """Refuse samples whose bytes the run has, but not their pixels: one file would be two samples."""
    pixels = {row.tobytes() for row in run.samples.pixel_sha256}
    owners = {row.tobytes(): name for name, row in zip(run.samples.sample_ids, run.samples.sha256, strict=True)}
    pairs = zip(data.samples.sha256, data.samples.pixel_sha256, strict=True)
    found = [i for i, (raw, seen) in enumerate(pairs) if raw.tobytes() in owners and seen.tobytes() not in pixels]
    if found:
        name, owner = data.samples.sample_ids[found[0]], owners[data.samples.sha256[found[0]].tobytes()]
        raise UsageError(
            f'"{shown(name)}" has the bytes of "{shown(owner)}", which is in the run, decoded to other pixels '
            f"({len(found):,} of {len(data):,} samples); {decoding_advice(run.config.data, data.spec)}"
        )


def _unknown(samples: SampleTable, data: Dataset, *, skip_known: bool) -> Dataset:
    owners = {row.tobytes(): name for name, row in zip(samples.sample_ids, samples.pixel_sha256, strict=True)}
    fresh, known = [], []
    for i, row in enumerate(data.samples.pixel_sha256):
        owner = owners.get(row.tobytes())
        if owner is None:
            owners[row.tobytes()] = data.samples.sample_ids[i]
            fresh.append(i)
        else:
            known.append((i, owner))
    if not known:
        return data
    if skip_known:
        return data.select(np.array(fresh, dtype=np.int64))
    first, owner = known[0]
    place = samples.id_places.get(owner, -1)
    where = "comes before it" if place < 0 else "is in the run"
    if place >= 0 and samples.withheld[place]:
        where = "is in the run, withheld (restore it instead)"
    raise UsageError(
        f'"{shown(data.samples.sample_ids[first])}" has the pixels of "{shown(owner)}", which {where}; '
        f"{len(known):,} of {len(data):,} samples are known: leave them out with --skip-known"
    )


NOT_TRAINED = -1.0  # the class loss of an added sample in every epoch: it was in none of them
HINTED = 20_000  # ids that an unknown one is compared with: that takes time


def withhold(run: Run | Fitted, ids: Iterable[str]) -> Run:
    """Withhold samples: explanations no longer name them. Their keys stay in the run, and `restore` undoes it.

    >>> from provnet.training.config import train_config
    >>> from provnet.training.fit import fit
    >>> import provnet
    >>> data = provnet.open_data("embedded").select(torch.arange(40))
    >>> run = withhold(fit(data, train_config(epochs=1, head="exemplar")), ["train/3"])
    >>> 3 in provnet.explain(run, data.images[3:4], k=40).index
    False
    """
    run = run_of(run)
    return _flagged(run, ids, withheld=True)


def restore(run: Run | Fitted, ids: Iterable[str]) -> Run:
    """Let explanations name these samples again."""
    run = run_of(run)
    return _flagged(run, ids, withheld=False)


def erase(run: Run | Fitted, ids: Iterable[str]) -> Run:
    """Remove samples: key, id, hashes, label, path, source and losses. What the weights learned stays.

    A class that loses its last sample keeps its position, but is never predicted.
    """
    run = run_of(run)
    head = exemplar_head(run.network)
    kept = np.setdiff1d(np.arange(len(run.samples)), _positions(run, ids))
    samples = run.samples.select(kept)
    _refuse_none_left(samples)
    config = replace(run.config, evaluation=None, erased=run.config.erased + len(run.samples) - len(kept))
    if not samples.added.any():  # where they came from is forgotten, too
        config = replace(config, added=())
    return replace(
        run,
        network=with_keys(run.network, torch.tensor(samples.labels), keys_of(head, torch.from_numpy(kept))),
        config=config,
        samples=samples,
        history=None if run.history is None else np.ascontiguousarray(run.history[:, kept]),
        influence=_of_rows(run, lambda one: one[torch.from_numpy(kept)].clone()),
    )


def add(run: Run | Fitted, data: Dataset, *, skip_known: bool = False, progress: bool = False) -> Run:
    """Add samples of the run's shape, range and classes, each with the key that the network computes for it.

    Samples whose pixels are in the run already are refused by name, or left out with `skip_known`; known bytes that
    were decoded to other pixels are refused. If an id is in use, the new sample gets the name of its data in front. The
    losses of an added sample are -1: it was in no epoch.

    >>> from provnet.training.config import train_config
    >>> from provnet.training.fit import fit
    >>> import provnet
    >>> data = provnet.open_data("embedded")
    >>> first, config = data.select(torch.arange(40)), train_config(epochs=1)
    >>> run = fit(first, config.using(network="single", head="exemplar"))
    >>> more = add(run, data.select(torch.arange(40, 42)))
    >>> provnet.explain(more, data.images[40:42], k=1).index.tolist()
    [[40], [41]]
    """
    run = run_of(run)
    head = exemplar_head(run.network)
    new = newcomers(run, data, skip_known=skip_known)
    if len(new) == 0:
        return run
    ids = free_ids(run.samples.sample_ids, new.samples.sample_ids, data_name(data.spec))
    samples = concatenate_tables(run.samples, new.samples, ids, added=True)
    keys = concatenate_keys([keys_of(head, torch.arange(len(run.samples))), *_keys(run, new, progress)])
    history = run.history
    if history is not None:
        nothing = np.full((len(history), len(new)), NOT_TRAINED, dtype=history.dtype)
        history = np.concatenate([history, nothing], axis=1)
    known = (run.config.data, *run.config.added)
    specs = run.config.added if data.spec in known else (*run.config.added, data.spec)
    return replace(
        run,
        network=with_keys(run.network, torch.tensor(samples.labels), keys),
        config=replace(run.config, evaluation=None, added=specs),
        samples=samples,
        history=history,
        influence=_of_rows(run, lambda one: torch.cat([one, one.new_zeros(len(new), *one.shape[1:])])),
    )


def _of_rows(run: Run, changed: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, torch.Tensor] | None:
    """What a run keeps for influence, where there is one row for each sample changed; an added one taught nothing."""
    if run.influence is None:
        return None
    return {name: changed(one) if name in ("keys", "course") else one for name, one in run.influence.items()}


def _flagged(run: Run, ids: Iterable[str], *, withheld: bool) -> Run:
    exemplar_head(run.network)
    flags = run.samples.withheld.copy()
    flags[_positions(run, ids)] = withheld
    if (flags == run.samples.withheld).all():
        return run
    samples = replace(run.samples, withheld=flags)
    _refuse_none_left(samples)
    return replace(run, samples=samples, config=replace(run.config, evaluation=None))


def _positions(run: Run, ids: Iterable[str]) -> np.ndarray:
    """The index of each id; an unknown one is refused with the nearest that is known."""
    places = run.samples.id_places
    given = [ids] if isinstance(ids, str) or not isinstance(ids, Iterable) else list(ids)
    strange = [name for name in given if not isinstance(name, str)]
    if strange:
        raise UsageError(f"samples are named by their ids, text such as run.samples.sample_ids; got {strange[0]!r:.80}")
    wanted = list(dict.fromkeys(given))
    if not wanted:
        raise UsageError("no sample was named; give the ids of some samples of the run")
    unknown = [name for name in wanted if name not in places]
    if unknown:
        near = [name for name in places if len(places) <= HINTED or abs(len(name) - len(unknown[0])) <= 1]
        hint = did_you_mean(shown(unknown[0]), map(shown, near[:HINTED]))
        more = f" ({len(unknown):,} such ids)" if len(unknown) > 1 else ""
        raise UsageError(f'the run has no sample "{shown(unknown[0])}"{more}; it has {len(places):,} others.{hint}')
    return np.array([places[name] for name in wanted], dtype=np.int64)


def _refuse_none_left(samples: SampleTable) -> None:
    if samples.withheld.all():
        raise UsageError("this would withhold every sample; a run needs at least one that is not withheld")


def _keys(run: Run, data: Dataset, progress: bool) -> list[PackedKeys]:
    """The keys of some samples, in the type that the run stores; one pass through the network."""
    net, head = run.network.eval(), exemplar_head(run.network)
    made = []
    with torch.inference_mode(), progress_bar("keys", len(data), progress) as update:
        step = features_at_once(data.inputs, head.keys.device)
        for rows in pieces(len(data), step):
            images = data.inputs[rows].to(head.keys.device)
            made.append(pack(unit(features_of(net, images)), head.stored))
            update(rows.stop, "")
    return made

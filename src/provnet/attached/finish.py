"""From a model and its samples to a run: every sample asked about once, keys set, support calibrated, hashes checked.

Letters: N samples.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from provnet.attached.bank import Bank
from provnet.attached.samples import refuse_others
from provnet.base import __version__
from provnet.base.batches import at_once
from provnet.base.errors import NonFiniteError, UsageError
from provnet.base.progress import progress_bar
from provnet.data.dataset import Dataset, DataSpec
from provnet.models.attached import AttachedNet, described
from provnet.models.keys import share_keys
from provnet.models.network import NetworkConfig
from provnet.runs.run import Run, RunConfig
from provnet.training.calibration import calibrate

HELD = 2**27  # numbers of features that are kept until their statistics are known
MEASURED = 16_384  # samples for these otherwise
PIECE = 1024  # samples whose keys are set at a time
HELD_KEYS = 262_144  # keys of training that samples look for themselves among
ASKED_TWICE = 4  # samples that transform is held against itself on


def make_run(
    net: AttachedNet,
    data: Dataset,
    bank: Bank | None = None,
    *,
    whiten: bool,
    how: Mapping[str, Any] | None = None,
    test: DataSpec | None = None,
) -> Run:
    """The run of a model; `bank` holds the keys of training, None where nothing was trained.

    Features are whitened where the index loss did not shape them: that makes more of what keeps samples apart.
    """
    _refuse_random(net, data)
    net.eval().to(next(net.tap.model.parameters()).device)
    sha256 = net.freeze()
    _set_keys(net, data, bank, whiten=whiten)
    support = calibrate(net, data.inputs, seed=0, modality=data.modality)
    config = RunConfig(
        _network(net, data, sha256),
        data=data.spec,
        test=test,
        training={
            "attached": dict(how or {}),
            "data": {"samples": len(data), "fingerprint": data.samples.fingerprint},
        },
        support=support,
        versions={"provnet": __version__, "torch": torch.__version__, "python": platform.python_version()},
    )
    return Run(net, config, data.samples, None if bank is None else bank.history())


def _set_keys(net: AttachedNet, data: Dataset, bank: Bank | None, *, whiten: bool) -> None:
    """Set every key to the features of its sample; and note how many samples the keys of training find."""
    head, n, features = net.index_head, len(data), int(net.support.mean.shape[1])
    few = n * features <= HELD
    looked = torch.arange(n) if few else torch.arange(0, n, -(-n // MEASURED))
    held = torch.cat([part for _, part in _asked(net, data, looked)])
    (net.space.whiten if whiten else net.space.standardise)(held)
    head.open_keys(trained=False)
    hits = 0
    known = zip(torch.split(looked, PIECE), torch.split(held, PIECE), strict=True)
    for rows, found in known if few else _asked(net, data, torch.arange(n)):
        there = rows.to(net.index_map.labels.device)
        head.set_keys(there, net.space(found))
        hits += 0 if bank is None else _found(bank, found, there)
    head.learned.copy_(torch.tensor([hits, 0 if bank is None else n]))
    share_keys(head, data.samples.groups)
    head.close_keys()


def _asked(net: AttachedNet, data: Dataset, looked: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """(rows, features) of some samples, each looked at before."""
    device = next(net.tap.model.parameters()).device
    with progress_bar("keys", len(looked), False) as update:
        for rows in torch.split(looked, at_once(data.shape, device.type)):
            refuse_others(data, rows)
            with torch.inference_mode():
                features = net.features(data.inputs[rows].to(device))
            if not bool(torch.isfinite(features).all()):
                raise NonFiniteError("the features of some training samples hold NaN or infinity; check the weights")
            yield rows, features.clone()
            update(len(rows), "")


def _found(bank: Bank, features: Tensor, index: Tensor) -> int:
    """How many of these samples their own key of training is the nearest to; of many keys, among a part of them."""
    bank.to(features)
    scores = bank.reduced(features) @ bank.keys[:HELD_KEYS].t()
    own = (bank.reduced(features) * bank.keys[bank.rows[index]]).sum(1)
    return int((scores.amax(1) <= own + 1e-6).sum())


def _refuse_random(net: AttachedNet, data: Dataset) -> None:
    """Ask transform twice about the same samples: keys must be those of the very same input later."""
    if net.prepare.transform is None:
        return
    some = data.inputs[torch.arange(min(ASKED_TWICE, len(data)))]
    once, again = (net.prepare(some) for _ in range(2))
    pairs = [(once[name], again[name]) for name in once] if isinstance(once, Mapping) else [(once, again)]
    if not all(torch.equal(one, other) for one, other in pairs):
        raise UsageError(
            "transform gives another input for the same sample each time; make it deterministic, and give what draws "
            "at random to prov.dataset(augment=)"
        )


def _network(net: AttachedNet, data: Dataset, sha256: str) -> NetworkConfig:
    return NetworkConfig(
        "class-conditional" if net.index_head.conditional else "class-independent",
        "custom",
        data.shape,
        len(data.class_names),
        scale=net.prepare.scale,
        conditional=False,
        head="exemplar",
        attached=described(net, sha256),
    )

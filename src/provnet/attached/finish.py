"""From a model and its samples to a run: every sample asked about once, keys set, support calibrated, hashes checked.

Letters: N samples.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any

import torch

import provnet
from provnet.attached.bank import Bank
from provnet.attached.samples import refuse_others
from provnet.base.batches import at_once
from provnet.base.errors import NonFiniteError, UsageError
from provnet.base.progress import progress_bar
from provnet.data.dataset import Dataset, DataSpec
from provnet.heads.keys import unit
from provnet.models.attached import AttachedNet, described
from provnet.models.keys import share_keys
from provnet.models.network import NetworkConfig
from provnet.runs.run import Run, RunConfig
from provnet.training.calibration import calibrate

ASKED_TWICE = 4  # samples that transform is held against itself on


def make_run(
    net: AttachedNet,
    data: Dataset,
    bank: Bank | None = None,
    *,
    how: Mapping[str, Any] | None = None,
    test: DataSpec | None = None,
) -> Run:
    """The run of a model; `bank` holds the keys of training, None where nothing was trained."""
    _refuse_random(net, data)
    net.eval().to(next(net.tap.model.parameters()).device)
    sha256 = net.freeze()
    _set_keys(net, data, bank)
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
        versions={"provnet": provnet.__version__, "torch": torch.__version__, "python": platform.python_version()},
    )
    return Run(net, config, data.samples, None if bank is None else bank.history())


def _set_keys(net: AttachedNet, data: Dataset, bank: Bank | None) -> None:
    """Set every key to the features of its sample; and note how many samples the keys of training find."""
    head, n, device = net.index_head, len(data), next(net.tap.model.parameters()).device
    head.open_keys(trained=False)
    if bank is not None:
        head.keys.copy_(bank.keys)
    made, hits = torch.zeros_like(head.keys), 0
    with torch.inference_mode(), progress_bar("keys", n, False) as update:
        for rows in torch.split(torch.arange(n), at_once(data.shape, device.type)):
            refuse_others(data, rows)
            there = rows.to(net.index_map.labels.device)
            features = net(data.inputs[rows].to(device)).index_features
            if not bool(torch.isfinite(features).all()):
                raise NonFiniteError("the features of some training samples hold NaN or infinity; check the weights")
            if bank is not None:
                found = head.best(features, net.index_map.labels[there], 1).index[:, 0]
                hits += int((found == there).sum())
            made[head.rows[there]] = unit(features)
            update(len(rows), "")
    head.keys.copy_(made)
    head.learned.copy_(torch.tensor([hits, 0 if bank is None else n]))
    share_keys(head, data.samples.groups)
    head.close_keys()


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

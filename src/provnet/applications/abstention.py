"""Abstention: whether a run says "no supporting sample" where there is none, and only there.

Own pictures are unseen ones of the kinds that were trained on; strangers are anything else. The false-support rate is
the share of strangers that are called supported; the AUROC says how well the support score tells the two apart,
whatever the threshold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from provnet.applications.queries import checked
from provnet.attribution import attribute
from provnet.chunks import at_once
from provnet.curves import auc
from provnet.errors import UsageError
from provnet.explanation import active_network
from provnet.inputs import Fitted, raw_tensor, run_of, whole
from provnet.modelfile import Run
from provnet.stats import Interval, wilson
from provnet.training.progress import progress_bar

TAKEN = ("own", "edges")  # names of the histogram that no kind of strangers may have


@dataclass(frozen=True)
class StrangerRate:
    """What becomes of one kind of strangers.

    Attributes:
        abstained: share that is called unsupported.
        false_support: the rest of them.
        auroc: of the support score, own pictures against these; None where there are no own pictures.
    """

    abstained: Interval
    false_support: Interval
    auroc: Interval | None

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "abstained": self.abstained.to_json(),
            "false_support": self.false_support.to_json(),
            "auroc": None if self.auroc is None else self.auroc.to_json(),
        }


@dataclass(frozen=True)
class Abstention:
    """How a run abstains.

    Attributes:
        own: share of own unseen pictures that are called unsupported; n is 0 where there were none.
        kinds: name of the strangers -> what becomes of them.
        threshold: the support below which a picture is unsupported.
        histogram: `edges`, and counts by kind, own pictures under `own`; the ends hold what lies beyond.
    """

    own: Interval
    kinds: Mapping[str, StrangerRate]
    threshold: float
    histogram: Mapping[str, tuple[float, ...]]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        kinds = {name: one.to_json() for name, one in self.kinds.items()}
        drawn = {name: list(values) for name, values in self.histogram.items()}
        return {"own": self.own.to_json(), "kinds": kinds, "threshold": self.threshold, "histogram": drawn}


def abstention(
    run: Run | Fitted,
    own: Tensor | None,
    strangers: Mapping[str, Tensor],
    *,
    batch_size: int | None = None,
    progress: bool = False,
    warn: bool = True,
) -> Abstention:
    """Measure raw own pictures (n, ...), unseen in training, and strangers by kind.

    Pictures whose values cannot lie in the range trained on get a UserWarning, unless `warn` is False. `batch_size` of
    them go through the network at a time; None chooses by their size (`provnet.chunks`).

    >>> import provnet
    >>> from provnet.applications.strangers import uniform_noise
    >>> from provnet.training.config import train_config
    >>> from provnet.training.fit import fit
    >>> data = provnet.open_data("embedded", limit=60)
    >>> run = fit(data, config=train_config(epochs=1))
    >>> abstention(run, None, {"noise": uniform_noise(data.images, 50)}).kinds["noise"].abstained.n
    50
    """
    run = run_of(run)
    if not isinstance(strangers, Mapping):
        raise UsageError(f"strangers must be pictures by kind, such as {{'noise': images}}; got {strangers!r:.80}")
    own = None if own is None else raw_tensor(own)
    strangers = {name: raw_tensor(images) for name, images in strangers.items()}
    taken = [name for name in strangers if name in TAKEN]
    if taken:
        raise UsageError(f'strangers must not be called "{taken[0]}", which is a name of the result; give another name')
    empty = [name for name, images in strangers.items() if len(images) == 0]
    if empty:
        raise UsageError(f'no pictures of "{empty[0]}" were given; leave that kind out')
    threshold = run.config.threshold
    sets = {**({} if own is None or len(own) == 0 else {"own": own}), **strangers}
    support: dict[str, np.ndarray] = {}
    with progress_bar("strangers", sum(map(len, sets.values())), progress) as update:
        done = 0
        for name, images in sets.items():
            support[name] = support_of(run, checked(run, images, f'pictures of "{name}"', warn=warn), batch_size)
            done += len(images)
            update(done, name)
    mine = support.get("own", np.empty(0))
    kinds = {}
    for name in strangers:
        away = support[name] < threshold
        truth = np.concatenate([np.ones(len(mine), dtype=np.bool_), np.zeros(len(away), dtype=np.bool_)])
        score = auc(truth, np.concatenate([mine, support[name]])) if len(mine) else None
        rates = wilson(int(away.sum()), len(away)), wilson(int((~away).sum()), len(away))
        kinds[name] = StrangerRate(*rates, score)
    return Abstention(
        wilson(int((mine < threshold).sum()), len(mine)), kinds, threshold, _histogram(support, threshold)
    )


def support_of(run: Run | Fitted, images: Tensor | np.ndarray, batch_size: int | None = None) -> np.ndarray:
    """(n,) support scores of raw pictures."""
    run = run_of(run)
    queries = checked(run, images, warn=False)
    net, _ = active_network(run)
    device = next(net.parameters()).device
    size = at_once(queries.shape[1:], device.type) if batch_size is None else whole("batch_size", batch_size)
    net.eval()
    with torch.inference_mode():
        parts = [attribute(net, net(batch.to(device)), 1).support.cpu() for batch in torch.split(queries, size)]
    return np.asarray(torch.cat(parts).double().numpy())


def _histogram(support: Mapping[str, np.ndarray], threshold: float, bins: int = 40) -> dict[str, tuple[float, ...]]:
    """Counts over -distance, from three times the threshold to 0: strangers far beyond are counted at the edge."""
    edges = np.linspace(3 * threshold if threshold < 0 else -1.0, 0.0, bins + 1)
    found = {"edges": tuple(edges.tolist())}
    for name, values in support.items():
        counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), edges)
        found[name] = tuple(counts.tolist())
    return found

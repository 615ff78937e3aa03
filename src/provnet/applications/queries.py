"""Raw inputs of the applications, looked at as `explain` looks at its own: type, values, range."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from torch import Tensor

from provnet.errors import NonFiniteError, UsageError
from provnet.inputs import range_problem, raw_tensor
from provnet.modelfile import Run


def checked(run: Run, images: Tensor | np.ndarray, what: str = "the input", *, warn: bool = True) -> Tensor:
    """Numbers as people give them, as a tensor; what is no number, empty or not finite is refused, named as `what`.

    Pictures whose values cannot lie in the range trained on get a UserWarning, unless `warn` is False because they were
    looked at before.

    >>> import provnet
    >>> from provnet.training.config import train_config
    >>> from provnet.training.fit import fit
    >>> data = provnet.open_data("embedded", limit=20)
    >>> checked(fit(data, config=train_config(epochs=1)), data.images[:3].numpy()).shape
    torch.Size([3, 1, 28, 28])
    """
    queries = raw_tensor(images)
    if queries.numel() == 0:
        raise UsageError(f"{what}: there is nothing to look at, no samples were given; give one or more")
    if queries.is_floating_point() and not bool(torch.isfinite(queries).all()):
        raise NonFiniteError(f"{what}: there are NaN or infinite values, of which nothing can be said")
    problem = range_problem(run.config.network, queries) if warn else None
    if problem is not None:
        warnings.warn(f"{what}: {problem}", UserWarning, stacklevel=3)  # names whoever called the application
    return queries

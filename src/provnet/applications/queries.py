"""Raw inputs of the applications, looked at as `explain` looks at its own: type, values, range."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from torch import Tensor

from provnet.data.hashing import hash_pixels
from provnet.data.imagedata import ImageData
from provnet.errors import NonFiniteError, UsageError
from provnet.inputs import as_trained, fit_bytes, range_problem, raw_tensor, takes_bytes
from provnet.modelfile import Run


def checked(run: Run, images: Tensor | np.ndarray | ImageData, what: str = "the input", *, warn: bool = True) -> Tensor:
    """Numbers as people give them, as a tensor of the type trained on (`inputs.as_trained`).

    What is no number, empty or not finite is refused, named as `what`. Pictures whose values cannot lie in the range
    trained on get a UserWarning, unless `warn` is False because they were looked at before.

    >>> import provnet
    >>> from provnet.training.config import train_config
    >>> from provnet.training.fit import fit
    >>> data = provnet.open_data("embedded", limit=20)
    >>> checked(fit(data, config=train_config(epochs=1)), data.images[:3].numpy()).shape
    torch.Size([3, 1, 28, 28])
    """
    given = raw_tensor(images)
    if given.numel() == 0:
        raise UsageError(f"{what}: there is nothing to look at, no samples were given; give one or more")
    queries = as_trained(run.config.network, given)
    if queries.is_floating_point() and not bool(torch.isfinite(queries).all()):
        raise NonFiniteError(f"{what}: there are NaN or infinite values, of which nothing can be said")
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

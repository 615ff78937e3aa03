"""provnet: models that name the training samples behind every output.

The public names are loaded when they are first used, so that `provnet --help` starts without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_EXPORTS = {
    "DataSpec": "provnet.data.imagedata",
    "Explanation": "provnet.explanation",
    "ImageData": "provnet.data.imagedata",
    "IndexMap": "provnet.indexing",
    "ProvenanceClassifier": "provnet.estimator",
    "ProvenanceNet": "provnet.models.provenance",
    "ProvenanceVAE": "provnet.models.vae",
    "SampleTable": "provnet.data.identity",
    "evaluate": "provnet.evaluation",
    "explain": "provnet.explanation",
    "load": "provnet.estimator",
    "open_data": "provnet.data.sources",
}

if TYPE_CHECKING:
    from provnet.data.identity import SampleTable
    from provnet.data.imagedata import DataSpec, ImageData
    from provnet.data.sources import open_data
    from provnet.estimator import ProvenanceClassifier, load
    from provnet.evaluation import evaluate
    from provnet.explanation import Explanation, explain
    from provnet.indexing import IndexMap
    from provnet.models.provenance import ProvenanceNet
    from provnet.models.vae import ProvenanceVAE

__all__ = [
    "DataSpec",
    "Explanation",
    "ImageData",
    "IndexMap",
    "ProvenanceClassifier",
    "ProvenanceNet",
    "ProvenanceVAE",
    "SampleTable",
    "__version__",
    "evaluate",
    "explain",
    "load",
    "open_data",
]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'provnet' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)

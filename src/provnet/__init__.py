"""provnet: models that name the training samples behind every output.

The public names are loaded when they are first used, so that `provnet --help` starts without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from provnet.base import __version__

_EXPORTS = {
    "DataSpec": "provnet.data.dataset",
    "Dataset": "provnet.data.dataset",
    "Explanation": "provnet.answers.explanation",
    "ImageData": "provnet.data.dataset",
    "IndexMap": "provnet.heads.index_map",
    "Provenance": "provnet.attached.provenance",
    "ProvenanceClassifier": "provnet.api.estimator",
    "ProvenanceNet": "provnet.models.network",
    "ProvenanceVAE": "provnet.models.network",
    "SampleTable": "provnet.samples.identity",
    "attach": "provnet.attached.provenance",
    "evaluate": "provnet.answers.evaluation",
    "explain": "provnet.answers.attributor",
    "index": "provnet.attached.provenance",
    "load": "provnet.api.estimator",
    "open_data": "provnet.data.open",
    "prepare_influence": "provnet.influence.of_run",
    "scores": "provnet.answers.attributor",
}

if TYPE_CHECKING:
    from provnet.answers.attributor import explain, scores
    from provnet.answers.evaluation import evaluate
    from provnet.answers.explanation import Explanation
    from provnet.api.estimator import ProvenanceClassifier, load
    from provnet.attached.provenance import Provenance, attach, index
    from provnet.data.dataset import Dataset, DataSpec, ImageData
    from provnet.data.open import open_data
    from provnet.heads.index_map import IndexMap
    from provnet.influence.of_run import prepare_influence
    from provnet.models.network import ProvenanceNet, ProvenanceVAE
    from provnet.samples.identity import SampleTable

__all__ = [
    "DataSpec",
    "Dataset",
    "Explanation",
    "ImageData",
    "IndexMap",
    "Provenance",
    "ProvenanceClassifier",
    "ProvenanceNet",
    "ProvenanceVAE",
    "SampleTable",
    "__version__",
    "attach",
    "evaluate",
    "explain",
    "index",
    "load",
    "open_data",
    "prepare_influence",
    "scores",
]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'provnet' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)

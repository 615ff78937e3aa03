"""A classifier that several tests only ask."""

from __future__ import annotations

import pytest

from provnet import ProvenanceClassifier
from tests.estimator.made import pictures, small


@pytest.fixture(scope="module")
def fitted() -> ProvenanceClassifier:
    return small().fit(*pictures())

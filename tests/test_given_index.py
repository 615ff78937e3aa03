"""Positions given to evaluate: those that name no training sample are refused."""

from __future__ import annotations

import numpy as np
import pytest

import provnet
from provnet.answers.evaluation import evaluate
from provnet.base.errors import UsageError
from provnet.training.config import train_config
from tests.fitting import fit


def made():
    x = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
    data = provnet.open_data(x, np.arange(12) % 4)
    return fit(data, config=train_config("fast", epochs=1, batch_size=8)), data


def test_negative_positions_are_refused() -> None:
    run, data = made()
    with pytest.raises(UsageError, match="-1"):
        evaluate(run, train=data.select(np.array([11])), index=np.array([-1]))


def test_positions_beyond_the_table_are_refused_in_words() -> None:
    run, data = made()
    with pytest.raises(UsageError):
        evaluate(run, train=data.select(np.array([0])), index=np.array([99]))

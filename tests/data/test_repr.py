"""What data and runs say of themselves at the end of a notebook cell: one line, not their pixels and ids."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

import provnet
from provnet.training.config import train_config
from provnet.training.fit import fit


def test_one_line_whatever_the_number_of_samples() -> None:
    data = provnet.open_data("embedded")
    assert repr(data) == "ImageData(4,000 samples of 1x28x28 uint8, 10 classes, from embedded, train)"
    assert repr(data.samples) == "SampleTable(4,000 samples, 10 classes)"
    hidden = np.zeros(4_000, dtype=np.bool_)
    hidden[:2] = True
    assert repr(replace(data.samples, withheld=hidden)) == "SampleTable(4,000 samples, 10 classes, 2 withheld)"


def test_a_run_says_what_it_is() -> None:
    run = fit(provnet.open_data("embedded").select(torch.arange(20)), config=train_config(epochs=1))
    assert repr(run).startswith("Run(class-conditional, backbone small, head plain; SampleTable(20 samples, ")
    assert "\n" not in repr(run)

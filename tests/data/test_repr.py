"""What data and runs say of themselves at the end of a notebook cell: one line, not their pixels and ids."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

import provnet
from provnet.tools.copies.compute import attribute_generated
from provnet.tools.credit.compute import credit
from provnet.tools.debug.compute import debug
from provnet.tools.generate.compute import fit_generator, generate, interpolate
from provnet.tools.map.compute import sample_map
from provnet.tools.membership.compute import audit
from provnet.tools.robustness.compute import measure
from provnet.tools.trust.compute import check
from provnet.training.config import train_config
from tests.fitting import fit


def test_one_line_whatever_the_number_of_samples() -> None:
    data = provnet.open_data("embedded")
    assert repr(data) == "Dataset(4,000 samples of 1x28x28 uint8, 10 classes, from embedded, train)"
    assert repr(data.samples) == "SampleTable(4,000 samples, 10 classes)"
    hidden = np.zeros(4_000, dtype=np.bool_)
    hidden[:2] = True
    assert repr(replace(data.samples, withheld=hidden)) == "SampleTable(4,000 samples, 10 classes, 2 withheld)"


def test_findings_do_not_fill_a_page_with_their_arrays() -> None:
    data = provnet.open_data("embedded", limit=40)
    test = provnet.open_data("embedded", split="test", limit=30)
    run = fit(data, head="exemplar", config=train_config("fast", epochs=1))
    painter = fit_generator(data, "modern", changes={"epochs": 1})
    found = {
        "Debugging(40 samples, ": debug(run, data),
        "Audit(40 members, 30 nonmembers, best score ": audit(run, data, test, distort=False),
        "SampleMap(40 training samples, ": sample_map(run, data, test),
        "Credit(2 contributors, ": credit(run, test, ["ann", "bob"] * 20),
        "Traced(30 images, ": attribute_generated(test, run, data=data),
        "Trust(": check(run, test, limit=20),
        "Measured(name='network', ": measure(run, test, conditions=["blur-1"]),
        "Generated(3 pictures of 1x28x28, 3 drawn)": generate(painter, 3),
        "Path(5 steps, Explanation(5 inputs, ": interpolate(painter, data.images[0], data.images[1], steps=5),
    }
    for start, one in found.items():
        assert repr(one).startswith(start)
        assert len(repr(one)) < 200 and "\n" not in repr(one)


def test_a_run_says_what_it_is() -> None:
    run = fit(provnet.open_data("embedded").select(torch.arange(20)), config=train_config("fast", epochs=1))
    assert repr(run).startswith("Run(class-conditional, backbone small, head plain; SampleTable(20 samples, ")
    assert "\n" not in repr(run)

"""Runs that a classifier fitted on arrays, asked by the command line with the same data given back as .npz."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from provnet import ProvenanceClassifier
from provnet.runs.run import read_run
from tests.cases import cases
from tests.cli.conftest import Call

COUNT, WIDTH, SIDE = 24, 16, 4
FORMS = ("array", "data frame", "pictures")


def values() -> tuple[np.ndarray, np.ndarray]:
    """(24, 16) vectors of three classes, each with a place of its own."""
    labels = np.arange(COUNT) % 3
    return np.random.default_rng(0).normal(size=(COUNT, WIDTH)) + 3 * np.eye(3, WIDTH)[labels], labels


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one run of each form and the data of each as .npz; made once."""
    root = tmp_path_factory.mktemp("given back")
    x, y = values()
    frame = pd.DataFrame(x, columns=[f"value {i}" for i in range(WIDTH)])
    given = {"array": (x, y), "data frame": (frame, pd.Series(y)), "pictures": (x.reshape(COUNT, SIDE, SIDE), y)}
    for form, (samples, labels) in given.items():
        ProvenanceClassifier(epochs=1, batch_size=12).fit(samples, labels).save(root / form)
        np.savez(root / f"{form}.npz", images=np.asarray(samples), labels=np.asarray(labels))
        np.save(root / f"{form}.npy", np.asarray(samples)[:2])
    return root


COMMANDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "verify": ("RUN --data DATA --strict", lambda told: told["data"]["status"] == {"same": COUNT}),
    "evaluate": ("RUN DATA --train-data DATA", lambda told: told["class_accuracy"]["n"] == COUNT),
    "debug": ("RUN --data DATA --out OUT", lambda told: told["samples"] == COUNT),
    "explain": ("RUN INPUT --data DATA --html OUT.html --strict", lambda told: len(told) == 2),
    "attribute": ("RUN INPUT --data DATA --out OUT", lambda told: told["compared"] == COUNT),
    "member": ("RUN INPUT --nonmembers DATA", lambda told: [one["verdict"] for one in told] == ["member"] * 2),
}


@cases("form", FORMS)
@cases("command", COMMANDS)
def test_a_command_takes_the_data_as_a_file(command: str, form: str, root: Path, tmp_path: Path, call: Call) -> None:
    words = {"RUN": root / form, "DATA": root / f"{form}.npz", "INPUT": root / f"{form}.npy"}
    words |= {"OUT": tmp_path / "out", "OUT.html": tmp_path / "out.html"}
    arguments, is_right = COMMANDS[command]
    found = call(command, *(words.get(word, word) for word in arguments.split()), "--json")
    assert found.code == 0, found.err
    assert is_right(found.json)


def test_the_runs_keep_what_only_arrays_have(root: Path) -> None:
    """Else the test above asks nothing."""
    specs = {form: read_run(root / form).config.data for form in FORMS}
    options = {form: set(spec.options) for form, spec in specs.items() if spec}
    assert options["array"] == {"labels"}
    assert options["data frame"] == {"labels", "feature_names"}
    assert options["pictures"] == {"labels", "sample_shape"}

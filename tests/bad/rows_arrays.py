"""Rows 35 and 36: arrays of every type and shape, and values of another range than those trained on."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import provnet
from provnet.api.estimator import ProvenanceClassifier
from provnet.runs.inputs import to_input
from provnet.runs.run import read_run

from .entry import Entry, Place, Said

VALUES = np.random.default_rng(9).random((12, 6, 6))
LABELS = np.arange(12) % 3
POISON = {"NaN": np.nan, "infinity": np.inf, "minus infinity": -np.inf, "a value past float32": 1e39}


def with_value(value: float) -> np.ndarray:
    values = VALUES.copy()
    values[3, 2, 1] = value
    return values


def read_only() -> np.ndarray:
    values = VALUES.astype(np.float32)
    values.flags.writeable = False
    return values


GOOD: dict[str, Callable[[], Any]] = {
    "float64": lambda: VALUES,
    "float32": lambda: VALUES.astype(np.float32),
    "float16": lambda: VALUES.astype(np.float16),
    "big-endian": lambda: VALUES.astype(">f8"),
    "non-contiguous": lambda: np.repeat(VALUES, 2, axis=0)[::2].transpose(0, 2, 1),
    "backwards": lambda: VALUES[::-1],
    "read-only": read_only,
    "list of lists": VALUES.tolist,
    "integers": lambda: (VALUES * 1000).astype(np.int32),
    "booleans": lambda: VALUES > 0.5,
}
# What is refused, and the word of scikit-learn that the message must hold.
BAD: dict[str, tuple[Callable[[], Any], str]] = {
    "complex": (lambda: VALUES.astype(complex), "Complex data not supported"),
    "text": (lambda: np.full((12, 36), "a"), ""),
    "0-d": (lambda: np.float64(3.0), "Expected 2D array"),
    "1-d": (lambda: np.zeros(12), "Expected 2D array"),
    "5-d": (lambda: np.zeros((12, 1, 1, 6, 6)), ""),
    "ragged": (lambda: [[1.0, 2.0], [3.0]] * 6, ""),
    "empty": (lambda: np.zeros((0, 36)), "0 sample(s)"),
    "without features": (lambda: np.zeros((12, 0)), "0 feature(s)"),
    "NaN": (lambda: with_value(np.nan), "NaN"),
    "infinity": (lambda: with_value(np.inf), "infinity"),
    "minus infinity": (lambda: with_value(-np.inf), "infinity"),
    "too large for float32": (lambda: with_value(1e39), "too large for"),
}


def classifier() -> ProvenanceClassifier:
    return ProvenanceClassifier(network="class-independent", backbone="mlp", epochs=1)


def opened(make: Callable[[], Any]) -> Callable[[Place], Callable[[], Any]]:
    return lambda _: lambda: provnet.open_data(make(), LABELS)


def fitted(make: Callable[[], Any]) -> Callable[[Place], Callable[[], Any]]:
    return lambda _: lambda: classifier().fit(make(), LABELS)


def predicted(make: Callable[[], Any]) -> Callable[[Place], Callable[[], Any]]:
    return lambda place: lambda: provnet.load(place.kit.floats).predict_proba(make())


def is_converted(make: Callable[[], Any]) -> Callable[[Place, Said], None]:
    """As float32 pictures (or bytes 0 and 255 of booleans), value for value."""

    def after(_: Place, said: Said) -> None:
        given = np.asarray(make())
        expected = given * np.uint8(255) if given.dtype == bool else given.astype(np.float32)
        assert np.array_equal(said.value.images[:, 0].numpy(), expected)

    return after


def is_fitted(_: Place, said: Said) -> None:
    assert said.value.run_.history.shape == (1, 12)
    assert said.value.classes_.tolist() == [0, 1, 2]


def is_the_same(make: Callable[[], Any]) -> Callable[[Place, Said], None]:
    """The answer for float32 values is the answer, whatever they were given as."""

    def after(place: Place, said: Said) -> None:
        plain = np.ascontiguousarray(np.asarray(make()), dtype=np.float32)
        assert np.array_equal(said.value, provnet.load(place.kit.floats).predict_proba(plain))

    return after


def objects(_: Place) -> Callable[[], Any]:
    """Numbers as objects: scikit-learn converts them, so does the classifier."""
    return lambda: classifier().fit(VALUES.reshape(12, 36).astype(object), LABELS)


def saved(values: Any) -> Callable[[Place], list[object]]:
    """`explain` of an array in a file, by the run on floats."""

    def given(place: Place) -> list[object]:
        np.save(place.tmp / "x.npy", values)
        return ["explain", place.kit.floats, place.tmp / "x.npy", "--json"]

    return given


def of_bytes(place: Place, *options: object) -> list[object]:
    """0..1 where 0..255 was trained."""
    np.save(place.tmp / "unit.npy", np.linspace(0, 1, 144, dtype=np.float32).reshape(12, 12))
    return ["explain", place.kit.run, place.tmp / "unit.npy", "--json", *options]


def of_floats(place: Place, *options: object) -> list[object]:
    """0..255 where 0..1 was trained."""
    np.save(place.tmp / "bytes.npy", np.arange(36, dtype=np.float32).reshape(6, 6) * 7)
    return ["explain", place.kit.floats, place.tmp / "bytes.npy", "--json", *options]


def evaluated(place: Place) -> list[object]:
    np.savez(place.tmp / "bytes.npz", images=VALUES * 255, labels=LABELS)
    return ["evaluate", place.run("floats", "out"), place.tmp / "bytes.npz", "--json"]


def strictly(place: Place) -> Callable[[], Any]:
    return lambda: to_input(read_run(place.kit.floats), VALUES * 255, strict=True)


def warned(place: Place) -> Callable[[], Any]:
    def call() -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            provnet.load(place.kit.floats).predict(VALUES * 255)
        return [str(warning.message) for warning in caught]

    return call


def both_ranges(_: Place, said: Said) -> None:
    assert len(said.value) == 1
    assert "255" in said.value[0].replace("254.", "255.")
    assert "trained on about" in said.value[0]


RANGES = ("the values lie in 0..245, this run was trained on about",)
ROWS = [
    *(Entry(35, f"open_data: {w}", opened(make), after=is_converted(make)) for w, make in GOOD.items()),
    *(Entry(35, f"fit: {w}", fitted(make), after=is_fitted) for w, make in GOOD.items()),
    *(
        Entry(35, f"predict: {w}", predicted(make), after=is_the_same(make))
        for w, make in GOOD.items()
        if w != "integers"
    ),
    *(Entry(35, f"open_data: {w}", opened(make), 3, (words,)) for w, (make, words) in BAD.items()),
    *(Entry(35, f"fit: {w}", fitted(make), 3, (words,)) for w, (make, words) in BAD.items()),
    *(Entry(35, f"predict: {w}", predicted(make), 3, (words,)) for w, (make, words) in BAD.items()),
    Entry(35, "fit: numbers as objects", objects, after=is_fitted),
    Entry(35, "open_data: objects", opened(lambda: VALUES.astype(object)), 3, ("Python objects not supported",)),
    *(Entry(35, f"explain: {w}", saved(with_value(value)[0:4]), 3, ("x.npy",)) for w, value in POISON.items()),
    Entry(35, "explain: complex", saved(VALUES.astype(complex)), 3, ("x.npy", "Complex")),
    Entry(35, "explain: objects", saved(VALUES.astype(object)), 7, ("x.npy", "objects", "plain numbers")),
    Entry(35, "explain: wrong shape", saved(np.zeros((2, 7, 5))), 3, ("x.npy", "(2, 7, 5)", "(1, 6, 6)")),
    Entry(35, "explain: big-endian", saved(VALUES.astype(">f8"))),
    Entry(36, "0..255 where 0..1 was trained", of_floats, 0, RANGES),
    Entry(36, "0..255 where 0..1 was trained, --strict", lambda p: of_floats(p, "--strict"), 3, RANGES),
    Entry(36, "0..1 where 0..255 was trained", of_bytes, 0, ("lie in 0..1, this run was trained on 0..255",)),
    Entry(36, "0..1 where 0..255 was trained, --strict", lambda p: of_bytes(p, "--strict"), 3, ("lie in 0..1",)),
    Entry(36, "0..255 in predict", warned, after=both_ranges),
    Entry(36, "0..255 in to_input, strict", strictly, 3, ("this run was trained on about",)),
    Entry(36, "0..255 evaluated", evaluated, 0, ("the test data: the values lie in", "trained on about"), None),
]

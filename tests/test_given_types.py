"""What people give by mistake: an error of provnet that says what to give, and never an answer to another question."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import provnet
from provnet import ImageData, IndexMap, ProvenanceClassifier
from provnet.answers.evaluation import trained_rows
from provnet.base.batches import fold
from provnet.base.errors import MemoryLimitError, ProvnetError, UsageError
from provnet.runs import bank
from provnet.runs.run import Run, read_run
from provnet.runs.verify import verify
from provnet.tools.copies.compute import attribute_generated
from provnet.tools.credit.compute import credit
from provnet.tools.debug.compute import debug
from provnet.tools.generate.compute import fit_generator, generate, interpolate, measure_generator, sources
from provnet.tools.map.compute import index_features, sample_map
from provnet.tools.membership.compute import audit
from provnet.tools.membership.member import memberships
from provnet.tools.robustness.compute import measure
from provnet.tools.subsets import index_subset
from provnet.tools.trust.compute import abstention, check, dependence
from provnet.training.config import train_config
from tests.cases import cases
from tests.fitting import fit

N = 40


@cache
def data() -> ImageData:
    return provnet.open_data("embedded", limit=N)


@cache
def run() -> Run:
    return fit(data(), head="exemplar", config=train_config("fast", epochs=1))


@cache
def painter() -> Run:
    return fit_generator(data(), "modern", changes={"epochs": 1})


def others() -> ImageData:
    """The same pictures in three classes of other names."""
    return provnet.open_data(data().images, np.array(["a", "b", "c"])[np.arange(N) % 3])


DATA: dict[str, Callable[[Any], Any]] = {
    "evaluate, test": lambda d: provnet.evaluate(run(), d),
    "evaluate, train": lambda d: provnet.evaluate(run(), train=d),
    "debug": lambda d: debug(run(), d),
    "audit, members": lambda d: audit(run(), d, data()),
    "audit, nonmembers": lambda d: audit(run(), data(), d),
    "map, train": lambda d: sample_map(run(), d),
    "map, test": lambda d: sample_map(run(), data(), d),
    "robustness": lambda d: measure(run(), d),
    "check, test": lambda d: check(run(), d),
    "check, training": lambda d: check(run(), None, d),
    "attribute": lambda d: attribute_generated(data().images, run(), data=d),
    "index_subset": lambda d: index_subset(d, "50%"),
    "add": lambda d: bank.add(run(), d),
    "fit": lambda d: fit(d, config=train_config("fast", epochs=1)),
    "generator, train": lambda d: measure_generator(painter(), d),
    "generator, test": lambda d: measure_generator(painter(), test=d),
}


@cases("call", DATA.values(), ids=DATA)
@cases("given", ["mnist", Path("data"), np.zeros((3, 1, 28, 28), np.uint8), (1, 2)], ids=str)
def test_data_that_were_not_opened(call: Callable[[Any], Any], given: Any) -> None:
    with pytest.raises(UsageError, match=r"must be a Dataset, got \w+; open them first: provnet\.open_data"):
        call(given)


def test_data_to_verify_and_their_folder(tmp_path: Path) -> None:
    fit(data(), config=train_config("fast", epochs=1), out=tmp_path)
    for given in (data().images, "mnist", run()):  # a run has samples, too, and was called the same data
        with pytest.raises(UsageError, match="the data must be a Dataset"):
            verify(tmp_path, given)  # type: ignore[arg-type]
    for call in (provnet.load, read_run, verify, ProvenanceClassifier(epochs=1).fit(data()).save):
        for wrong in (None, 3, run()):
            with pytest.raises(UsageError, match="the run's folder must be a path"):
                call(wrong)  # type: ignore[operator]
    for wrong in (3, run()):
        with pytest.raises(UsageError, match="the run's folder must be a path"):
            fit(data(), config=train_config("fast", epochs=1), out=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [3, "fgsm"], ids=str)
def test_conditions_and_attacks_are_lists_of_names(given: Any) -> None:
    for what in ("conditions", "attacks"):
        with pytest.raises(UsageError, match=f"{what} must be a list of names, got {given!r}; allowed: "):
            measure(run(), data(), **{what: given})


def test_changes_of_a_generator_are_settings_by_name() -> None:
    with pytest.raises(UsageError, match="changes must be settings by name"):
        fit_generator(data(), changes=["epochs", 1])
    with pytest.raises(UsageError, match="changes must be settings by name"):
        fit_generator(data(), changes={3: 1})


@pytest.mark.parametrize("given", [nn.Flatten, lambda: None, 3])
def test_a_backbone_is_a_name_or_a_module_that_was_made(given: Any) -> None:
    with pytest.raises(UsageError, match="a name or a module"):
        fit(provnet.open_data("embedded", limit=20), backbone=given)


def test_the_folder_of_data_sets_is_a_path() -> None:
    for given in (3, [Path("data")]):
        with pytest.raises(UsageError, match=r"data_dir \(--data-dir\) must be a folder, as text or as a Path"):
            provnet.open_data("mnist", data_dir=given)  # type: ignore[arg-type]


def test_held_out_pictures_are_scored_by_an_audit() -> None:
    with pytest.raises(UsageError, match="must be a Heldout, got Tensor; an audit gives one: found = audit"):
        memberships(run(), data().images[:1], heldout=data().images)  # type: ignore[arg-type]


INDEX: dict[str, Callable[[Any], Any]] = {
    "trained_rows": lambda i: trained_rows(run(), data(), i),
    "debug": lambda i: debug(run(), data(), index=i),
    "map": lambda i: sample_map(run(), data(), index=i),
    "check": lambda i: check(run(), None, data(), i),
    "dependence": lambda i: dependence(run(), data().images[:4], data().images, i),
}


@cases("call", INDEX.values(), ids=INDEX)
@cases(
    "given",
    [np.arange(N) + 0.5, np.arange(N, dtype=float), np.arange(N)[None], 3, "a", ["a"] * N, np.full(N, np.nan)],
    ids=["halves", "floats", "2-d", "one", "text", "texts", "nan"],
)
def test_an_index_is_whole_numbers(call: Callable[[Any], Any], given: Any) -> None:
    with pytest.raises(UsageError, match="index must be whole numbers, one per sample"):
        call(given)


@cases("call", INDEX.values(), ids=INDEX)
@cases("given", [np.arange(N) + 1, np.arange(N) - N], ids=["beyond", "negative"])
def test_an_index_names_samples(call: Callable[[Any], Any], given: np.ndarray) -> None:
    with pytest.raises(UsageError, match=rf"index must name training samples, 0\.\.{N - 1}"):
        call(given)


@pytest.mark.parametrize("name", ["map, test", "check, test", "generator, test", "evaluate, test"])
def test_labels_of_other_classes_are_not_compared_by_number(name: str) -> None:
    with pytest.raises(UsageError, match="the data have 3 classes that the run does not know"):
        DATA[name](others())


def test_no_sample_is_not_the_last_one() -> None:
    index = np.array([[3, -1]])  # as an explanation has it where a class has fewer samples
    for table in (data(), data().samples):
        with pytest.raises(UsageError, match=r"positions must lie in 0\.\.39, -1 stands for no sample; got -1\.\.3"):
            table.select(index[0])
        with pytest.raises(UsageError, match=r"got 99\.\.99"):
            table.select([99])


@cases("changes", [{"labels": [0] * N}, {"limit": 5}, {"split": "test"}, {"size": 8}, {"class_names": ["a"]}])
def test_what_open_data_would_pass_over(changes: dict[str, Any]) -> None:
    for given in (data(), data().spec):
        with pytest.raises(UsageError, match=f"already describes its data: leave {next(iter(changes))} out"):
            provnet.open_data(given, **changes)
    assert provnet.open_data(data()) is data()
    assert len(provnet.open_data(data().spec, progress=False)) == N


@cases("rows", ["a", 1.5, None, [[0]], np.zeros((1, 1), int), np.array([True])], ids=str)
def test_inputs_of_an_explanation_are_chosen_by_position_or_mask(rows: Any) -> None:
    found = provnet.explain(run(), data().images[:3])
    with pytest.raises(UsageError, match=r"chosen by position, a slice or a bool mask|one value per input, 3"):
        found[rows]
    assert found[torch.tensor([2, 0])].predicted.tolist() == found.predicted[[2, 0]].tolist()
    assert len(found[[]]) == 0
    with pytest.raises(IndexError, match=r"got 0\.\.3"):
        found[[0, 3]]


def test_names_and_data_of_an_explanation() -> None:
    found = provnet.explain(run(), data().images[:3])
    for names in ("abc", 3):
        with pytest.raises(UsageError, match="inputs must be names, one for each"):
            found.to_records(names)  # type: ignore[arg-type]
    for given in ("mnist", data().images, [data().images], 3):
        with pytest.raises(UsageError, match="the training data must be a Dataset"):
            found.show(given)  # type: ignore[arg-type]


ASKED: dict[str, Callable[[], Any]] = {
    "ids: numbers": lambda: bank.withhold(run(), [1, 2]),  # type: ignore[list-item]
    "ids: none": lambda: bank.restore(run(), None),  # type: ignore[arg-type]
    "ids: nested": lambda: bank.erase(run(), [["train/3"]]),  # type: ignore[list-item]
    "contributors: numbers": lambda: credit(run(), data().images, [1] * N),  # type: ignore[list-item]
    "contributors: nan": lambda: credit(run(), data().images, [float("nan")] * N),  # type: ignore[list-item]
    "contributors: text": lambda: credit(run(), data().images, "a" * N),
    "contributors: none": lambda: credit(run(), data().images, None),  # type: ignore[arg-type]
    "draws": lambda: credit(run(), data().images, ["a"] * N, draws="many"),  # type: ignore[arg-type]
    "seed of credit": lambda: credit(run(), data().images, ["a"] * N, seed=-1),
    "seed": lambda: fold(1.5),  # type: ignore[arg-type]
    "seed: numpy bool": lambda: generate(painter(), 2, seed=np.bool_(True)),  # type: ignore[arg-type]
    "seed of a subset": lambda: index_subset(data(), "50%", seed="a"),  # type: ignore[arg-type]
    "sha256: numbers": lambda: memberships(run(), data().images[:1], [1]),  # type: ignore[list-item]
    "sha256: one text": lambda: memberships(run(), data().images[:1], "a" * 64),
    "heldout": lambda: memberships(run(), data().images[:1], heldout="a"),  # type: ignore[arg-type]
    "limit 0": lambda: sample_map(run(), data(), limit=0),
    "limit -1": lambda: sample_map(run(), data(), limit=-1),
    "groups": lambda: sample_map(run(), data(), groups=1.5, engine="scikit-learn"),  # type: ignore[arg-type]
    "threads": lambda: sample_map(run(), data(), threads=0, engine="scikit-learn"),
    "perplexity": lambda: sample_map(run(), data(), perplexity="a"),  # type: ignore[arg-type]
    "conditions: text": lambda: measure(run(), data(), conditions="blur-1"),
    "epsilon": lambda: measure(run(), data(), conditions=[], attacks=["fgsm"], epsilon=None),  # type: ignore[arg-type]
    "attacked": lambda: measure(run(), data(), conditions=[], attacks=["fgsm"], attacked=1.5),  # type: ignore[arg-type]
    "limit of check": lambda: check(run(), data(), limit=None),  # type: ignore[arg-type]
    "others": lambda: check(run(), data(), others=[data().images]),  # type: ignore[arg-type]
    "heldout pictures": lambda: attribute_generated(data().images, run(), data=data(), heldout=3),  # type: ignore[arg-type]
    "false alarms": lambda: attribute_generated(data().images, run(), data=data(), false_alarms=None),  # type: ignore[arg-type]
    "how many": lambda: generate(painter(), 1.5),  # type: ignore[arg-type]
    "k of sources": lambda: sources(painter(), generate(painter(), 2), k=1.5),  # type: ignore[arg-type]
    "made": lambda: sources(painter(), data().images),  # type: ignore[arg-type]
    "steps": lambda: interpolate(painter(), data().images[0], data().images[1], steps="a"),  # type: ignore[arg-type]
    "one of two shapes": lambda: interpolate(painter(), data().images[0], data().images[:1]),
    "a path": lambda: interpolate(painter(), "a.png", data().images[0]),  # type: ignore[arg-type]
    "own pictures": lambda: abstention(run(), 3, {"noise": data().images}),  # type: ignore[arg-type]
    "strangers": lambda: abstention(run(), None, [data().images]),  # type: ignore[arg-type]
    "one stranger": lambda: abstention(run(), None, {"noise": 3}),  # type: ignore[dict-item]
    "features of a path": lambda: index_features(run(), "a.png"),  # type: ignore[arg-type]
    "features of nothing": lambda: index_features(run(), data().images[:0]),
    "features, batch": lambda: index_features(run(), data().images, batch_size=0),
    "queries": lambda: dependence(run(), np.zeros((4, 1, 8, 8)), data().images, np.arange(N)),  # type: ignore[arg-type]
    "config": lambda: fit(data(), config={"epochs": 1}),  # type: ignore[arg-type]
    "subset": lambda: fit(data(), index_subset=[1, 2]),  # type: ignore[arg-type]
    "test": lambda: fit(data(), test="mnist", config=train_config("fast", epochs=1)),  # type: ignore[arg-type]
    "conditional": lambda: ProvenanceClassifier(conditional="no", epochs=1).fit(data()),  # type: ignore[arg-type]
    "class_names": lambda: provnet.open_data("embedded", class_names=3),  # type: ignore[arg-type]
    "no class_names": lambda: provnet.open_data("embedded", class_names=[]),
    "labels of a map": lambda: IndexMap([[0, 1]]),  # type: ignore[list-item]
    "one label": lambda: IndexMap(3),  # type: ignore[arg-type]
    "classes of a map": lambda: IndexMap([0, 1], 2.5),  # type: ignore[arg-type]
    "pictures": lambda: ImageData(data().images.numpy(), data().samples, data().spec),  # type: ignore[arg-type]
}


@cases("call", ASKED.values(), ids=ASKED)
def test_what_cannot_be_is_refused_in_words(call: Callable[[], Any]) -> None:
    with pytest.raises(ProvnetError):
        call()


def test_too_many_pictures_are_refused_before_they_are_made() -> None:
    with pytest.raises(MemoryLimitError):
        generate(painter(), 10**12)


def test_test_data_may_be_given_opened(tmp_path: Path) -> None:
    test = provnet.open_data("embedded", split="test", limit=20)
    made = fit(data(), test=test, config=train_config("fast", epochs=1), out=tmp_path)  # it failed when all was trained
    assert made.config.test == read_run(tmp_path).config.test == test.spec


def test_a_bool_of_numpy_is_a_bool() -> None:
    made = ProvenanceClassifier(conditional=np.bool_(False), epochs=1).fit(data())  # type: ignore[arg-type]
    assert made.run_.config.network.conditional is False

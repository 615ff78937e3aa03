"""Pictures and their sources: the same seed gives the same ones, classes as asked for, clear refusals."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import provnet
from provnet import ImageData
from provnet.base.errors import DataError, NonFiniteError, UsageError
from provnet.cli.evaluate import generator_table
from provnet.runs.run import Run
from provnet.tools.generate import compute as sampling
from provnet.tools.generate.compute import (
    Generated,
    generate,
    index_hits,
    interpolate,
    mean_of,
    measure_generator,
    rebuild_pictures,
    rebuilding_error,
    sources,
)
from provnet.training.config import train_config
from tests.fitting import fit

from .made import CLASSES, NAMES, pictures, trained


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_pictures(runs: dict[str, Run], name: str) -> None:
    one, again, other = (generate(runs[name], 5, seed=seed) for seed in (3, 3, 4))
    assert one.images.shape == (5, 1, 8, 8)
    assert one.images.dtype == np.uint8
    assert one.images.tobytes() == again.images.tobytes()
    assert (one.labels == again.labels).all()
    assert one.images.tobytes() != other.images.tobytes()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("label", ["right", 1])
def test_pictures_of_a_class_and_their_sources(runs: dict[str, Run], name: str, label: str | int) -> None:
    made = generate(runs[name], 6, label=label, seed=1)
    assert made.labels.tolist() == [1] * 6
    found = sources(runs[name], made, k=3)
    assert found.index.shape == (6, 3)
    assert (found.label == 1).all()
    assert (np.diff(found.weight, axis=1) <= 0).all()
    if name == "modern":
        assert made.drawn == 6


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_label_is_answered_with_those_there_are(runs: dict[str, Run], name: str) -> None:
    with pytest.raises(
        UsageError, match=r'unknown label "rihgt"; this run has left, right, top\. Did you mean "right"'
    ):
        generate(runs[name], 2, label="rihgt")


def test_a_number_is_a_position_of_any_type_and_never_a_name() -> None:
    run = trained("modern", provnet.open_data(pictures(12).images, [1, 2, 3] * 4), epochs=1)
    asked: list[Any] = [1, np.int64(1), np.uint8(1), "2"]  # the position and the name of one class
    assert [generate(run, 2, label=label).labels.tolist() for label in asked] == [[1, 1]] * 4
    with pytest.raises(UsageError, match=r'label 3: no class .* of 0\.\.2; a name is given as text, such as "1"'):
        generate(run, 2, label=3)


def test_a_class_that_is_never_seen_ends_with_an_error(runs: dict[str, Run], monkeypatch: pytest.MonkeyPatch) -> None:
    run = runs["paper"]
    drawn = generate(run, 64, seed=0)
    assert drawn.drawn == 64
    monkeypatch.setattr(sampling, "answer_at", lambda net, z: answered(len(z)))
    monkeypatch.setattr(sampling, "LEAST_DRAWS", 300)
    monkeypatch.setattr(sampling, "DRAWS", 1)
    with pytest.raises(UsageError, match='0 of 300 pictures are seen as "top", 2 were asked for; ask for fewer'):
        generate(run, 2, label="top")


def answered(n: int) -> object:
    class Output:
        logits = torch.tensor([[1.0, 0.0, 0.0]]).repeat(n, 1)

    return Output()


def test_a_picture_of_a_class_that_was_asked_for_looks_like_it(runs: dict[str, Run]) -> None:
    run = trained("modern", pictures(48), epochs=16, batch_size=12)
    for kind, bright in enumerate((np.s_[:, :, :, :4], np.s_[:, :, :, 4:], np.s_[:, :, :4, :])):
        images = generate(run, 8, label=kind).images.astype(float)
        assert images[bright].mean() > 150
    hits = index_hits(run, pictures(48), np.arange(48))
    assert hits["index_at_mean"].mean() > 0.95
    assert hits["class_at_mean"].mean() > 0.95


def test_withheld_samples_are_never_named(runs: dict[str, Run]) -> None:
    run = runs["modern"]
    made = generate(run, 8, label="left")
    first = sources(run, made, k=1).index[:, 0]
    withheld = np.isin(np.arange(len(run.samples)), first)
    found = sources(replace(run, samples=replace(run.samples, withheld=withheld)), made, k=3)
    named = found.index[found.index >= 0]
    assert len(named) > 0
    assert not withheld[named].any()
    whole = sources(run, made, k=len(run.samples)).index  # the others follow in the order that they had
    for row, left in zip(found.index.tolist(), whole.tolist(), strict=True):
        assert [i for i in row if i >= 0] == [i for i in left if i >= 0 and not withheld[i]][:3]


@pytest.mark.parametrize("name", NAMES)
def test_a_path_begins_and_ends_with_the_rebuilt_pictures(runs: dict[str, Run], name: str) -> None:
    data = pictures()
    path = interpolate(runs[name], data.images[0], data.images[1], steps=5, k=2)
    ends = rebuild_pictures(runs[name], data.images[:2])
    assert path.shares.tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert np.abs(path.images[[0, -1]].astype(int) - ends).max() <= 1
    assert len(path.explanation) == 5


@pytest.mark.parametrize("steps", [1, 201])
def test_a_path_has_from_2_to_200_steps(runs: dict[str, Run], steps: int) -> None:
    data = pictures()
    with pytest.raises(UsageError, match=f"steps must lie in 2..200, got {steps}"):
        interpolate(runs["faces"], data.images[0], data.images[1], steps=steps)


def test_a_run_that_tells_classes_makes_no_pictures() -> None:
    run = fit(pictures(), backbone="small", config=train_config("fast", epochs=1))
    with pytest.raises(
        UsageError, match="this run does not generate pictures; train one that does: provnet train DATA --task"
    ):
        generate(run, 1)
    with pytest.raises(UsageError, match="does not generate pictures"):
        sources(run, Generated(np.zeros((1, 1, 8, 8), np.uint8), np.zeros(1, np.int64), np.zeros((1, 8)), 1))


def test_values_that_are_no_bytes_are_refused() -> None:
    data = pictures()
    with pytest.raises(DataError, match=r"a generator learns from pictures of bytes; these data are torch\.float32"):
        trained("faces", replace(data, images=data.images.float()))


def test_reconstruction_is_measured_by_its_definition(runs: dict[str, Run]) -> None:
    data = pictures()
    found, net = rebuilding_error(runs["faces"], data), runs["faces"].network
    x = data.images.double().numpy() / 255
    with torch.inference_mode():
        z = net.backbone.encode(net.normalise(data.images)).mean  # type: ignore[operator, union-attr]
        made = net.backbone.paint(net.backbone.hidden(z), data.labels).double().sigmoid().numpy()  # type: ignore[operator, union-attr]
    bce = -(x * np.log(made) + (1 - x) * np.log(1 - made)).sum((1, 2, 3))
    assert found["reconstruction_bce"]["value"] == pytest.approx(bce.mean(), rel=1e-4)
    assert found["reconstruction_mse"]["value"] == pytest.approx(((made - x) ** 2).mean(), rel=1e-4)
    assert found["reconstruction_bce"]["n"] == 23
    assert (
        found["reconstruction_bce"]["low"] < found["reconstruction_bce"]["value"] < found["reconstruction_bce"]["high"]
    )


def test_all_figures_of_a_generator(runs: dict[str, Run]) -> None:
    found = measure_generator(runs["modern"], pictures(), pictures(12, seed=5), made=12)
    assert set(found) == {"train", "test", "frechet"}
    assert found["frechet"]["counts"] == [12, 12]
    assert "own latents" in found["frechet"]["space"]
    rows = np.arange(3, 20)
    part = measure_generator(runs["modern"], pictures().select(rows), index=rows, made=2)
    assert part["train"]["index_accuracy"]["value"] == found["train"]["index_accuracy"]["value"] == 1.0
    turned = measure_generator(runs["modern"], pictures().select(np.arange(23)[::-1]), made=2)
    assert turned["train"]["index_accuracy"] == found["train"]["index_accuracy"]
    with pytest.raises(UsageError, match="not the ones this run was trained on"):
        measure_generator(runs["modern"], pictures(), index=np.arange(23)[::-1], made=2)


@pytest.mark.parametrize("name", ["paper", "faces", "modern"])
def test_equal_pictures_are_found_as_explanations_name_them(name: str) -> None:
    once = pictures(12)
    data = provnet.open_data(once.images.repeat(2, 1, 1, 1), np.array(CLASSES)[once.labels.repeat(2)])
    run, own = trained(name, data, epochs=12), np.arange(24)
    hits = index_hits(run, data, own)
    # whatever an output layer makes of two neurons for one picture: it is the first of them that is named
    assert hits["index_at_mean"].tolist() == (explain_classes(run, data) == own).tolist()
    assert not hits["index_at_mean"][12:].any()
    figures = measure_generator(run, data, made=2)["train"]
    assert figures["index_accuracy_group"]["value"] == 2 * figures["index_accuracy"]["value"] > 0
    assert figures["index_accuracy_drawn_group"]["value"] >= figures["index_accuracy_drawn"]["value"]
    assert any("duplicates count as one" in str(cell) for cell in generator_table({"train": figures}).columns[0].cells)
    assert not [key for key in measure_generator(trained(name, once), once, made=2)["train"] if key.endswith("_group")]


def explain_classes(run: Run, data: ImageData) -> np.ndarray:
    """The sample that `explain` names first within the given class."""
    return provnet.explain(run, data.images, k=1, classes=data.labels).index[:, 0]


def test_scores_that_are_not_finite_name_nobody(runs: dict[str, Run]) -> None:
    broken = copy.deepcopy(runs["paper"])
    with torch.no_grad():
        next(broken.network.index_head.parameters()).fill_(torch.nan)
    with pytest.raises(NonFiniteError, match="no sample can be named"):
        index_hits(broken, pictures(), np.arange(23))


def test_figures_of_a_generator_leave_withheld_samples_out(runs: dict[str, Run]) -> None:
    run = runs["modern"]
    hidden = replace(run, samples=replace(run.samples, withheld=np.arange(23) < 9))
    found = measure_generator(hidden, pictures(), made=2)["train"]
    assert {figure["n"] for figure in found.values()} == {14}
    assert found["index_accuracy"]["value"] == 1.0
    hits = index_hits(hidden, pictures(), np.arange(23))["index_at_mean"]
    assert hits.tolist() == [False] * 9 + [True] * 14
    everyone = replace(run, samples=replace(run.samples, withheld=np.ones(23, dtype=np.bool_)))
    assert "train" not in measure_generator(everyone, pictures(), made=2)


def test_a_mean_with_its_interval() -> None:
    found = mean_of(np.array([1.0, 2.0, 3.0, 4.0]))
    assert found.value == 2.5
    assert found.low == pytest.approx(2.5 - 3.182446 * 1.290994 / 2, abs=1e-4)
    one = mean_of(np.array([7.0]))
    assert (one.value, one.n, one.low, one.high) == (7.0, 1, None, None)
    assert one.why == "a single value has no interval"


def test_a_table_of_a_single_picture(runs: dict[str, Run]) -> None:
    rows = np.array([3])
    found = measure_generator(runs["modern"], pictures().select(rows), index=rows)
    table = generator_table(found)
    assert list(table.columns[2].cells)[1] == "-"
    assert list(table.columns[3].cells)[1] == "1"

"""Frames and a toy text: opened, trained on, explained, evaluated, debugged, written and read as pictures are."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, final

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import provnet
from provnet.answers.evaluation import evaluate, trained_rows
from provnet.base.batches import Fields, keyed_generator, split
from provnet.base.errors import DataError, NonFiniteError, UsageError
from provnet.base.files import DataWarning
from provnet.data.compare import compare
from provnet.data.dataset import Dataset, hash_inputs, refuse_changed
from provnet.data.evidence import evidence
from provnet.data.modalities.modality import Perturb
from provnet.models.network import ProvenanceNet, ProvenanceOutput
from provnet.runs.run import Run, read_run, write_run
from provnet.tools.credit.compute import credit
from provnet.tools.debug.compute import debug
from provnet.tools.membership.compute import audit
from provnet.tools.membership.member import memberships
from provnet.training.calibration import calibrate
from provnet.training.config import train_config
from provnet.training.fit import fit
from tests.data.toy_text import ToyText

WORDS = ("red", "green", "blue", "cold", "warm")


def frame(n: int = 60) -> pd.DataFrame:
    """Mixed columns with gaps; the label follows from the number."""
    dice = np.random.default_rng(0)
    age = dice.integers(17, 90, n).astype(float)
    work = dice.choice(["private", "state", "none"], n).astype(object)
    wage = dice.normal(3, 1, n)
    rows = {"who": [f"row {i}" for i in range(n)], "age": age, "work": work, "wage": wage}
    made = pd.DataFrame({**rows, "rich": np.where(age > 50, "yes", "no")})
    made.loc[3, "wage"] = np.nan
    made.loc[5, "work"] = None
    return made


def opened(made: pd.DataFrame) -> Dataset:
    return provnet.open_data(made, labels="rich", ids="who")


def texts(n: int = 60) -> list[str]:
    dice = random.Random(0)
    return [" ".join(dice.choices(WORDS, k=5)) + f" {i}" for i in range(n)]


def written(run: Run, folder: Path) -> Run:
    write_run(run, folder)
    return read_run(folder)


@pytest.fixture(scope="module")
def of_frame(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return written(fit(opened(frame()), train_config("fast", epochs=2)), tmp_path_factory.mktemp("runs") / "frame")


def test_columns_become_inputs() -> None:
    data = opened(frame())
    assert data.shape == (1 + 4 + 2,)  # age; three kinds of work and a mark; wage and a mark
    assert data.samples.sample_ids[:2] == ("row 0", "row 1")
    assert data.class_names == ("no", "yes")
    inputs = data.images
    assert inputs[3, 5] == inputs[torch.arange(60) != 3, 5].mean()  # the mean stands for a gap
    assert inputs[:, 6].nonzero().flatten().tolist() == [3]
    assert inputs[5, 1:5].tolist() == [0, 0, 0, 1]


def test_a_row_is_named_by_its_content() -> None:
    data = opened(frame())
    turned = opened(frame()[["rich", "wage", "work", "age", "who"]].iloc[::-1])
    assert compare(data.samples, turned.samples).verdict == "re-ordered"
    whole = frame()
    whole["age"] = whole["age"].astype(int)
    assert (opened(whole).samples.sha256 == data.samples.sha256).all()  # 39 and 39.0 are one number
    named = {row.tobytes() for row in data.samples.sha256}
    assert len(named) == 60


def test_a_run_of_a_frame_reads_new_rows(of_frame: Run) -> None:
    data, run = opened(frame()), of_frame
    assert run.samples.fingerprint == data.samples.fingerprint
    found = provnet.explain(run, frame(), k=1)
    assert np.array_equal(found.index, provnet.explain(run, data, k=1).index)
    few = frame().head(4)  # other categories than in training: the run's own are taken, not those of these rows
    assert np.array_equal(found.index[:4], provnet.explain(run, provnet.open_data(few, labels="rich"), k=1).index)
    strange = few.assign(work="never seen")
    with pytest.warns(DataWarning, match=r"4 values are categories or gaps .* \(work: 4\)"):
        provnet.explain(run, strange, k=1)
    with pytest.raises(DataError, match="lacks the columns wage; the columns are age, work, wage"):
        provnet.explain(run, frame().drop(columns="wage"))
    with pytest.raises(DataError, match="columns that were not trained on: more"):
        provnet.explain(run, frame().assign(more=1))
    with pytest.raises(DataError, match="column age must hold numbers"):
        provnet.explain(run, frame().assign(age="old"))


def test_a_run_of_a_frame_answers_every_question(of_frame: Run) -> None:
    data, run = opened(frame()), of_frame
    again = run.data(opened(frame().sample(frac=1, random_state=1)))
    assert again.samples.fingerprint == run.samples.fingerprint
    assert torch.equal(again.images, data.images)
    figures = evaluate(run, test=data, train=data)
    assert figures.index_accuracy.n == 60
    assert set(figures.index_accuracy_perturbed) == {"noise"}
    assert debug(run, data).mislabels.score.shape == (60,)
    seen = evidence(run.samples, data, [3])[0]
    assert seen.text.startswith("age: ") and seen.text.endswith("wage: –")
    assert memberships(run, data.select([3]))[0].agrees == "pixels"
    shown = provnet.explain(run, frame().head(2), k=1).show(data).html
    assert "age: " in shown


def test_a_changed_row_is_not_shown_and_not_trained_on() -> None:
    data = opened(frame())
    assert data.items is not None
    data.items[7]["age"] = 1.0
    assert evidence(opened(frame()).samples, data, [7])[0].note.startswith("changed since training")
    with pytest.raises(DataError, match='values of "row 7"'):
        refuse_changed("the data", data)
    other = opened(frame())
    other.images[9, 0] = 0
    with pytest.raises(DataError, match='values of "row 9"'):
        refuse_changed("the data", other)


def test_what_no_frame_can_be_is_refused() -> None:
    with pytest.raises(DataError, match="column when holds Timestamp"):
        opened(frame().assign(when=pd.Timestamp("2020-01-01")))
    with pytest.raises(DataError, match="column work must hold either numbers or text"):
        opened(frame().assign(work=[1, *["a"] * 59]))
    with pytest.raises(NonFiniteError, match="column wage holds inf"):
        opened(frame().assign(wage=np.inf))
    with pytest.raises(UsageError, match="labels names the column poor; the frame has who, age"):
        provnet.open_data(frame(), labels="poor")
    with pytest.raises(UsageError, match="a DataFrame needs labels"):
        provnet.open_data(frame())
    with pytest.raises(DataError, match="labels are missing in some rows"):
        opened(frame().assign(rich=None))


class PolarsColumn:
    """What polars has in common with pandas."""

    def __init__(self, values: list[Any], dtype: str) -> None:
        self.values, self.dtype = values, dtype

    def to_list(self) -> list[Any]:
        return self.values


class PolarsFrame:
    """The same of a whole frame: `columns` is a list, a gap is None."""

    def __init__(self, made: pd.DataFrame) -> None:
        self.columns, self.shape, self.made = list(made.columns), made.shape, made

    def __getitem__(self, name: str) -> PolarsColumn:
        column = self.made[name].astype(object)
        return PolarsColumn(column.where(column.notna(), None).to_list(), str(self.made[name].dtype))


def test_frames_are_told_by_what_they_can_do() -> None:
    one, other = opened(frame()), provnet.open_data(PolarsFrame(frame()), labels="rich", ids="who")
    assert one.samples.fingerprint == other.samples.fingerprint
    assert torch.equal(one.images, other.images)


def test_a_modality_is_one_file(tmp_path: Path) -> None:
    labels = [text.split()[0] for text in texts()]
    data = provnet.open_data(texts(), labels, modality=ToyText())
    run = written(fit(data, train_config("fast", epochs=3)), tmp_path / "run")
    assert run.config.support["calibrated_on"].startswith("distorted training samples (missing grams)")
    turned = provnet.open_data(texts()[::-1], labels[::-1], modality=ToyText())
    assert torch.equal(run.data(turned).images, data.images)
    figures = evaluate(run, test=turned, train=data)
    assert set(figures.index_accuracy_perturbed) == {"missing grams"}
    assert debug(run, data).mislabels.score.shape == (60,)
    assert evidence(run.samples, turned, [3])[0].text == texts()[3]
    assert texts()[provnet.explain(run, data, k=1).index[3, 0]] in provnet.explain(run, data, k=1).show(data).html
    with pytest.raises(UsageError, match="the run takes samples of modality toy text, these data"):
        provnet.explain(run, opened(frame()))


def pictures(seeds: list[int]) -> list[np.ndarray]:
    return [np.random.default_rng(seed).integers(0, 256, (8, 8), dtype=np.uint8) for seed in seeds]


def rows_of(seeds: list[int]) -> list[dict[str, Any]]:
    return [{"size": seed % 7, "name": f"n{seed}", "gap": None if seed % 3 else seed / 7} for seed in seeds]


OPEN: dict[str, Callable[[list[int], list[str]], Dataset]] = {
    "image": lambda seeds, ids: provnet.open_data(np.stack(pictures(seeds)), [s % 2 for s in seeds], ids=ids),
    "table": lambda seeds, ids: provnet.open_data(pd.DataFrame(rows_of(seeds)), [s % 2 for s in seeds], ids=ids),
    "text": lambda seeds, ids: provnet.open_data(
        [f"text {seed}" for seed in seeds], [s % 2 for s in seeds], ids=ids, modality=ToyText()
    ),
}


@pytest.mark.parametrize("kind", OPEN)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_changed_data_name_the_right_sample_or_none(kind: str, data: st.DataObject) -> None:
    """Any samples, re-ordered, renamed, dropped and edited: a sample is where its content is, or nowhere."""
    then = list(range(8))
    now = data.draw(st.lists(st.sampled_from(range(12)), min_size=2, max_size=10, unique=True))
    ids = data.draw(st.permutations([f"id {i}" for i in range(12)]))[: len(now)]
    before, after = OPEN[kind](then, [f"id {i}" for i in then]), OPEN[kind](now, ids)
    found = compare(before.samples, after.samples)
    assert found.positions.tolist() == [now.index(seed) if seed in now else -1 for seed in then]
    for seed, seen in zip(then, evidence(before.samples, after, then), strict=True):
        assert seen.there == (seed in now)
        wanted = {"image": "", "table": f"name: n{seed};", "text": f"text {seed}"}[kind]
        assert not seen.there or wanted in seen.text
        if seen.picture is not None:
            assert np.array_equal(seen.picture, pictures([seed])[0])


def test_fields_are_asked_as_a_tensor_is() -> None:
    ids = torch.arange(12).view(4, 3)
    fields = Fields({"input_ids": ids, "attention_mask": torch.ones(4, 3, dtype=torch.int64)})
    parts = split(fields, 3)
    assert [len(part) for part in parts] == [3, 1]
    assert torch.equal(parts[1]["input_ids"], ids[3:])
    assert dict(**fields).keys() == {"input_ids", "attention_mask"}
    turned = Fields({"input_ids": ids.flip(0), "attention_mask": fields["attention_mask"]})
    assert (hash_inputs(fields)[::-1] == hash_inputs(turned)).all()
    with pytest.raises(UsageError, match="one per sample"):
        Fields({"a": torch.zeros(2), "b": torch.zeros(3)})


def test_inputs_may_lie_in_a_file(tmp_path: Path) -> None:
    source = provnet.open_data("embedded", limit=40)
    np.save(tmp_path / "x.npy", source.images.numpy())
    mapped = torch.from_numpy(np.load(tmp_path / "x.npy", mmap_mode="r+"))
    data = Dataset(mapped, source.samples, source.spec)
    refuse_changed("the data", data)
    run = fit(data, train_config("fast", epochs=1))
    assert np.array_equal(provnet.explain(run, data, k=1).index, provnet.explain(run, source, k=1).index)
    batch = data.fetch(torch.tensor([4, 2]))
    assert batch.target is not None
    assert batch.target.tolist() == source.labels[[4, 2]].tolist()


@final
class Tokens(ToyText):
    """The same texts as two tensors."""

    name = "toy tokens"

    def batch(self, items: Sequence[Any]) -> Fields:  # type: ignore[override]
        """Counts, and a mask of ones."""
        counts = super().batch(items)
        return Fields({"input_ids": counts, "attention_mask": torch.ones_like(counts)})

    def perturbed(self, inputs: Any) -> Mapping[str, Perturb]:
        """One count in ten is masked."""

        def masked(fields: Fields, seed: int) -> Fields:
            kept = torch.rand(fields.shape, generator=keyed_generator(seed, 1)) > 0.1
            return Fields({"input_ids": fields["input_ids"], "attention_mask": fields["attention_mask"] * kept})

        return {"masked": masked}


class Reader(ProvenanceNet):
    """A network that takes several tensors."""

    def forward(self, images: Any, classes: torch.Tensor | None = None) -> ProvenanceOutput:
        """As that of one tensor."""
        return super().forward(images["input_ids"] * images["attention_mask"], classes)


def test_a_network_that_takes_fields_is_asked_by_every_tool() -> None:
    labels = [text.split()[0] for text in texts()]
    data = provnet.open_data(texts(), labels, modality=ToyText())
    other = provnet.open_data(texts(), labels, modality=Tokens())
    run = fit(data, train_config(epochs=2, head="exemplar"))
    spec = replace(data.spec, options={"modality": "toy tokens"})
    network = copy.deepcopy(run.network)
    network.__class__ = Reader
    kind = replace(run.config.network, backbone="custom")
    reader = replace(run, network=network, config=replace(run.config, data=spec, network=kind))
    assert np.array_equal(provnet.explain(reader, other, k=3).index, provnet.explain(run, data, k=3).index)
    assert np.array_equal(provnet.explain(reader, other.inputs, k=3).weight, provnet.explain(run, data, k=3).weight)
    figures = evaluate(reader, test=other, train=other)
    assert figures.index_accuracy == evaluate(run, test=data, train=data).index_accuracy
    assert set(figures.index_accuracy_perturbed) == {"masked"}
    assert np.array_equal(debug(reader, other).mislabels.score, debug(run, data).mislabels.score)
    assert calibrate(network, other.inputs, 0, modality=Tokens())["n"] > 0
    unseen = provnet.open_data([f"{text}?" for text in texts()], labels, modality=Tokens())
    counted = audit(reader, other, unseen, null=reader)  # one that saw neither cannot be made of a network of others
    assert (counted.members, counted.nonmembers) == (60, 60)
    assert memberships(reader, other.select([3]))[0].agrees == "pixels"
    assert credit(reader, other, labels).to_json()
    assert trained_rows(reader, other.select([5, 2])).tolist() == [5, 2]

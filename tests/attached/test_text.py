"""Texts: named by their characters, made ready by a tokenizer of the user's, and models that take several tensors."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import provnet
from provnet.answers.evaluation import evaluate
from provnet.attached.provenance import index
from provnet.base.errors import DataError, UsageError
from provnet.data.compare import compare
from provnet.data.dataset import Dataset
from provnet.data.evidence import evidence
from provnet.data.modalities.text import Text, trimmed
from provnet.tools.debug.compute import debug
from tests.attached.made import attach, loader

WORDS = ("red", "green", "blue", "cold", "warm", "dry", "wet", "new", "old")


def tokens(text: str) -> list[int]:
    return [1, *(2 + sum(word.encode()) % 60 for word in text.split()), 1]


def texts(n: int = 60) -> list[str]:
    dice = random.Random(0)
    return [" ".join(dice.choices(WORDS, k=dice.randrange(2, 9))) + f" {i}" for i in range(n)]


def opened(n: int = 60) -> Dataset:
    return provnet.open_data(texts(n), ["red" in text.split() for text in texts(n)], modality=Text(tokens, length=16))


class Output(dict[str, Any]):
    """As models of Hugging Face give it."""

    @property
    def logits(self) -> Tensor:
        found: Tensor = self["logits"]
        return found


class Encoder(nn.Module):
    """A model with the signature of those of Hugging Face."""

    def __init__(self, pool: str = "mean") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.mix, self.score = nn.Embedding(64, 16), nn.GRU(16, 16, batch_first=True), nn.Linear(16, 2)
        self.pool = pool
        self.widths: list[int] = []

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Output:
        self.widths.append(input_ids.shape[1])
        hidden, _ = self.mix(self.words(input_ids))
        assert attention_mask is not None
        there = attention_mask.unsqueeze(2).to(hidden.dtype)
        if self.pool == "late":  # scores of each token, then those of the last
            return Output(logits=self.score(hidden)[torch.arange(len(hidden)), attention_mask.sum(1) - 1])
        return Output(logits=self.score((hidden * there).sum(1) / there.sum(1)))


def taught(model: nn.Module, data: Dataset, **given: Any) -> provnet.Provenance:
    prov = attach(model, data, **given)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    torch.manual_seed(0)
    for _ in range(4):
        for x, y, rows in loader(prov):
            loss = F.cross_entropy(model(**x).logits, y) + prov.loss(rows)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return prov


def test_a_text_is_named_by_its_characters() -> None:
    one, other = ("caf\u00e9", "tea"), ("cafe\u0301", "tea")
    first, second = (provnet.open_data(list(given), [0, 1], modality=Text(tokens)) for given in (one, other))
    assert compare(first.samples, second.samples).verdict == "same"
    assert (first.inputs["input_ids"] == second.inputs["input_ids"]).all()  # type: ignore[call-overload, index]
    with pytest.raises(DataError, match="samples of text must be str, got bytes"):
        provnet.open_data([b"a", b"b"], [0, 1], modality=Text(tokens))
    with pytest.raises(DataError, match="half a character"):
        provnet.open_data(["a\ud800", "b"], [0, 1], modality=Text(tokens))
    with pytest.raises(DataError, match="not UTF-8"):
        Text(tokens).read(b"\xff", "a.txt")
    with pytest.raises(UsageError, match="texts need the tokenizer"):
        Text(named="split").batch(["a"])


def test_a_network_of_texts_answers_and_is_trimmed(tmp_path: Path) -> None:
    data, model = opened(), Encoder()
    prov = taught(model, data)
    assert prov.at == "the output of mix, pooled by mean"
    longest = max(len(tokens(text)) for text in texts())
    assert max(model.widths) <= longest < 16
    run = prov.finish()
    found = run.explain(data, k=3)
    assert found.index[:, 0].tolist() == list(range(60))
    said = run.explain(texts()[:5], k=3)
    assert np.array_equal(said.index, found.index[:5])
    own = run.explain(dict(data.inputs[:5].named()), k=3)  # type: ignore[union-attr]
    assert np.array_equal(own.index, found.index[:5])
    assert evaluate(run, test=data, train=data).index_accuracy.value == 1.0
    assert set(evaluate(run, test=data, train=data).index_accuracy_perturbed) == {"lost token", "swapped tokens"}
    assert debug(run, data).mislabels.score.shape == (60,)
    assert evidence(run.samples, data, [3])[0].text == texts()[3]
    run.save(tmp_path / "run")
    again = provnet.load(tmp_path / "run", model=model, modality=Text(tokens, length=16))
    assert np.array_equal(again.explain(texts()[:5], k=3).index, found.index[:5])
    assert again.data(data).samples.fingerprint == data.samples.fingerprint
    without = provnet.load(tmp_path / "run", model=model)
    assert np.array_equal(without.explain(data, k=3).index, found.index)
    with pytest.raises(UsageError, match=r"provnet\.load\(folder, model=model, modality=Text\(tokenizer\)\)"):
        without.explain(texts()[:5])


def test_data_of_another_tokenizer_are_refused() -> None:
    run = index(Encoder(), opened())
    other = provnet.open_data(texts(), [0, 1] * 30, modality=Text(lambda text: tokens(text)[::-1], length=16))
    with pytest.raises(UsageError, match="opened with other settings"):
        run.explain(other)


def test_a_changed_text_is_refused() -> None:
    data = opened()
    prov = attach(Encoder(), data)
    assert data.items is not None
    data.items[3] = "another"  # type: ignore[index]
    with pytest.raises(DataError, match='"train/3" has changed since it was opened'):
        list(loader(prov))
    tampered = opened()
    tampered.inputs["input_ids"][4, 1] = 9  # type: ignore[call-overload, index]
    with pytest.raises(DataError, match='"train/4"'):
        attach(Encoder(), tampered).dataset()[4]


def test_sequences_are_pooled_as_the_model_does_it_or_as_told() -> None:
    data = opened()
    assert attach(Encoder("late"), data).at == "the output of mix, pooled by mean"
    assert attach(Encoder("late"), data, pool="last").at == "the output of mix, pooled by last"
    for pool in ("mean", "cls", "last"):
        prov = taught(Encoder(), data, at="mix", pool=pool)
        assert prov.at == f"the output of mix, pooled by {pool}"
        first = prov.finish().explain(data, k=1).index[:, 0]
        if pool != "cls":  # all texts begin with the same token, and nothing flows back to it here
            assert first.tolist() == list(range(60))


def test_padding_does_not_count() -> None:
    data, model = opened(), Encoder()
    run = index(model, data, at="mix", pool="mean")
    alone = run.network.features(data.inputs[3:4])
    among = run.network.features(data.inputs[:20])[3:4]
    torch.testing.assert_close(alone, among)


def test_perturbed_texts() -> None:
    data = opened()
    before = trimmed(dict(data.inputs.named()))  # type: ignore[union-attr]
    for name, change in data.modality.perturbed(data.inputs).items():
        once, again = (change(data.inputs, 3) for _ in range(2))
        assert torch.equal(once["input_ids"], again["input_ids"])
        length = once["attention_mask"].sum(1) - data.inputs["attention_mask"].sum(1)  # type: ignore[call-overload, index]
        assert set(length.tolist()) == ({-1} if name == "lost token" else {0})
        after = trimmed(dict(once.named()))
        rows = range(len(data))
        kept = [sorted(after["input_ids"][i].tolist()) for i in rows]
        due = [sorted(before["input_ids"][i, : after["input_ids"].shape[1]].tolist()) for i in rows]
        if name == "swapped tokens":
            assert kept == due
        assert all(after["input_ids"][i, 0] == 1 for i in rows)
        assert all(after["input_ids"][i, n - 1] == 1 for i, n in enumerate(once["attention_mask"].sum(1).tolist()))


def test_what_texts_have_not() -> None:
    prov = attach(Encoder(), opened())
    with pytest.raises(UsageError, match="augment= is for one tensor per sample"):
        prov.dataset(augment=lambda x: x)[0]
    with pytest.raises(UsageError, match="transform= is for one tensor"):
        attach(Encoder(), opened(), transform=lambda x: x)

"""Texts from files: opened, trained on as bytes, explained, judged, and found again where passages were copied."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import provnet
from provnet.answers.evaluation import evaluate
from provnet.base.errors import ProvnetError
from provnet.base.options import RunOptions
from provnet.cli import main
from provnet.data.dataset import Dataset
from provnet.data.modalities.text import CHANGES, Text, overlap, spoken
from provnet.models.text import TextEncoder, grams
from provnet.runs.run import read_run
from provnet.tools.debug.compute import debug
from provnet.tools.spans import SpanIndex, copied_passages, edits
from provnet.training.config import train_config
from provnet.training.fit import fit
from tests.cases import cases

WORDS = {
    "warm": "the sun is bright and the beach is hot in summer while people swim in the sea",
    "cold": "snow falls on the frozen lake as winter winds blow over ice and grey clouds pass",
}


def sentences(n: int = 80, seed: int = 0) -> tuple[list[str], list[str]]:
    dice = random.Random(seed)
    labels = [("warm", "cold")[i % 2] for i in range(n)]
    return [" ".join(dice.choices(WORDS[label].split(), k=8)) + f" {i}" for i, label in enumerate(labels)], labels


def lines(*rows: Any) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def row(text: Any = "some words", label: Any = "a", **more: Any) -> dict[str, Any]:
    return {"text": text, "label": label, **more}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a file of texts, with a file to test on beside it."""
    root = tmp_path_factory.mktemp("texts")
    for name, seed in (("train", 0), ("test", 1)):
        rows = [
            row(text, label, id=f"{name}-{i}")
            for i, (text, label) in enumerate(zip(*sentences(seed=seed), strict=True))
        ]
        (root / f"{name}.jsonl").write_bytes(lines(*rows))
    fit(
        provnet.open_data(root),
        train_config(seed=0),
        RunOptions(out=root / "run"),
        test=provnet.open_data(root, split="test"),
    )
    return root


def test_one_set_of_texts_opens_alike_from_every_form(tmp_path: Path) -> None:
    texts, labels = ["a “fine”, long\nday", "caf\u00e9 again", "no, not now"], ["x", "y", "x"]
    (tmp_path / "a.jsonl").write_bytes(lines(*(row(*pair) for pair in zip(texts, labels, strict=True))))
    quoted = "".join(
        '"{}",{}\n'.format(text.replace('"', '""'), label) for text, label in zip(texts, labels, strict=True)
    )
    (tmp_path / "a.csv").write_text("review,stars\n" + quoted, "utf-8")
    for text, label, name in zip(texts, labels, ("1", "2", "3"), strict=True):
        (tmp_path / "folders" / label).mkdir(parents=True, exist_ok=True)
        (tmp_path / "folders" / label / f"{name}.txt").write_text(text, "utf-8")
    listed = provnet.open_data(texts, labels)
    assert provnet.open_data(tmp_path / "a.jsonl").samples.fingerprint == listed.samples.fingerprint
    csv = provnet.open_data(tmp_path / "a.csv", columns="text=review,label=stars")
    assert csv.samples.fingerprint == listed.samples.fingerprint
    folders = provnet.open_data(tmp_path / "folders")
    assert folders.samples.sample_ids == ("x/1.txt", "x/3.txt", "y/2.txt")
    assert {folders.samples.hex(i) for i in range(3)} == {listed.samples.hex(i) for i in range(3)}
    for data in (csv, folders):
        assert data.modality == Text() or data.spec.options["modality"] == "text"
        assert provnet.data.open.reopen(data.spec).samples.fingerprint == data.samples.fingerprint


def test_bytes_are_what_was_written_without_capitals() -> None:
    texts = Text(length=12).batch(["Stra\u00dfe", "cafe\u0301 au lait"])
    assert spoken(texts) == ["strasse", "caf\u00e9 au lai"]
    for change in CHANGES.values():
        assert change("alone", random.Random(0)) != "" and change("one two", random.Random(1)).strip()
    words, pieces = grams(Text().batch(["to be or not", "not or be to"]))
    for one in (words, words * pieces):  # the same words and pieces in another order; only pairs of words differ
        sets = [set(r[r > 0].tolist()) for r in (one if one is not words else words * pieces)]
        assert sets[0] == sets[1]
    assert set(words[0][~pieces[0]].tolist()) != set(words[1][~pieces[1]].tolist())


def test_rare_grams_weigh_more_and_unknown_ones_count_in_the_length() -> None:
    texts, _ = sentences()
    encoder = TextEncoder(known=4000, classes=2)
    encoder.learn(Text().batch(texts), torch.tensor([0, 1] * 40))
    _, place, weight = encoder.weighted(Text().batch(["the snow", "zzzz qqqq"]))
    known = place < len(encoder.known)
    assert torch.allclose(weight.square().sum(1).sqrt(), torch.ones(2), atol=0.3)
    assert bool(known[0].any()) and not bool((known[1] & (weight[1] > 0)).any())
    assert (encoder.sparse(Text().batch(texts)).sum(1) > 0).all()


def test_a_run_on_texts_answers_names_and_is_read_again(folder: Path) -> None:
    run = read_run(folder / "run")
    data, test = run.data(), run.test()
    assert isinstance(test, Dataset)
    found = evaluate(run, test=test, train=data)
    assert found.class_accuracy is not None and found.class_accuracy.value == 1.0
    assert found.index_accuracy.value == 1.0
    assert set(found.index_accuracy_perturbed) == set(CHANGES)
    assert min(one.value for one in found.index_accuracy_perturbed.values()) > 0.9
    said = provnet.explain(run, ["SNOW falls on the lake", "quarterly dividend of the bank"], k=2)
    assert said[0].predicted == "cold" and said[0].supported and not said[1].supported
    page = said.show(data).html
    assert "<mark>snow</mark>" in page and "<mark>the</mark>" not in page
    again = provnet.explain(run, test.select([3, 5]), k=1)
    assert np.array_equal(again.index, provnet.explain(run, [test.items[3], test.items[5]], k=1).index)  # type: ignore[index]


def test_a_wrong_label_and_a_near_copy_are_found() -> None:
    texts, labels = sentences()
    labels[6] = "cold"
    texts.append(texts[2] + " indeed")
    labels.append(labels[2])
    data = provnet.open_data(texts, labels)
    found = debug(fit(data, train_config()), data)
    assert found.ranking()[0] == 6
    assert found.duplicates.group[2] == found.duplicates.group[80] >= 0
    assert (found.duplicates.group >= 0).sum() == 2
    assert overlap(*(Text().batch([texts[i]]) for i in (2, 80)))[0] > 0.7


def test_passages_are_found_where_they_were_copied() -> None:
    dice = random.Random(3)
    letters = "abcdefghijklmnop \u00e9\u4e2d"
    documents = ["".join(dice.choices(letters, k=400)) for _ in range(50)]
    index = SpanIndex(documents)
    for _ in range(50):
        number, at, length = dice.randrange(50), dice.randrange(200), dice.randint(20, 200)
        copied, before = documents[number][at : at + length], "".join(dice.choices("uvwxyz", k=dice.randrange(40)))
        spans = index.exact(f"{before}X{copied}Y")
        assert [(s.start, s.end, s.document, s.at) for s in spans] == [
            (len(before) + 1, len(before) + 1 + length, number, at)
        ]
        broken = copied[:8] + "Q" + copied[8:]
        near = index.near(broken)[0]
        assert near.document == number and near.score == 1 - 1 / len(broken.encode())
    assert edits(b"kitten", b"the sitting hen")[0] == sum(a != b for a, b in zip(b"kitten", b"sittin", strict=True))
    data = provnet.open_data(documents, ["a", "b"] * 25)
    fresh = ["".join(dice.choices("qrstuvwxyz ", k=240)) for _ in range(1100)]
    asked = documents[4][50:90] + "#" + documents[4][90:130].replace("a", "b", 1)
    one = copied_passages(
        data, fresh, [documents[7][10:60], asked.replace("c", "d"), "nothing of the kind is in there"]
    )
    assert [(c.sample_id, c.at, c.text) for c in one[0]] == [("train/7", 10, documents[7][10:60])]
    assert one[1] and {c.sample_id for c in one[1]} == {"train/4"} and one[2] == []


BAD: list[tuple[str, bytes | Callable[[Path], Any], str]] = [
    ("broken UTF-8", b'{"text": "caf\xff", "label": "a"}\n', "not UTF-8 .* at byte"),
    ("UTF-16", '{"text": "a", "label": "b"}'.encode("utf-16"), "not UTF-8|cannot be read as JSON"),
    ("empty file", b"", "holds no text"),
    ("blank lines", b"\n\n \n", "holds no text"),
    ("empty text", lines(row(), row("")), "row 2: a text is empty"),
    ("blank text", lines(row(" \t ")), "row 1: a text is empty"),
    ("NUL", lines(row("a\0b")), "NUL character"),
    ("half a character", b'{"text": "a\\ud800", "label": "b"}\n', "half a character"),
    ("too long", lines(row("x" * (2**20 + 1))), "1,048,577 characters, at most 1,048,576"),
    ("number as text", lines(row(7)), "the text is int"),
    ("list as text", lines(row(["a", "b"])), "the text is list"),
    ("no label", lines(row(label=None)), "there is no label"),
    ("blank label", lines(row(label=" ")), "there is no label"),
    ("label of fractions", lines(row(label=0.5)), "the label is float"),
    ("true as label", lines(row(label=True)), "the label is bool"),
    ("mixed labels", lines(row(label="a"), row(label=1)), "all text or all whole numbers"),
    ("duplicate ids", lines(row(id="q"), row(id="q")), "ids must be unique"),
    ("some without id", lines(row(id="q"), row()), "text 2 has no id"),
    ("no JSON", b"to be, or not to be\n", "row 1: cannot be read as JSON"),
    ("cut JSON", lines(row()) + b'{"text": "a", "la', "row 2: cannot be read as JSON"),
    ("deep JSON", b"[" * 100_000, "cannot be read as JSON|row 1"),
    ("a list of rows", b'[{"text": "a", "label": "b"}]\n', "a row is an object .* got list"),
    ("other columns", lines({"words": "a", "kind": "b"}), "which column holds the texts"),
    ("labels missing", lines({"text": "a"}), "which column holds the labels"),
    ("a row of other columns", lines(row(), {"words": "a"}), "row 2: has no text and label"),
    ("CSV: open quote", b'text,label\n"a,b\n', "cannot be parsed as CSV"),
    ("CSV: too many cells", b"text,label\na, b,c\n", "row 2: 3 cells, the header has 2; quote commas"),
    ("CSV: semicolons", b"text;label\na;b\n", "commas between the cells"),
    ("CSV: a column twice", b"text,label,text\na,b,c\n", "each once"),
    ("CSV: broken UTF-8", b"text,label\ncaf\xe9,a\n", "not UTF-8"),
    (
        "asked for no such column",
        lambda path: provnet.open_data(path, columns="text=words,label=label"),
        "no column words",
    ),
    (
        "a tokenizer that is none",
        lambda _: provnet.open_data(["a", "b"], [0, 1], modality=Text("bert")),
        "tokenizer must be",
    ),  # type: ignore[arg-type]
    ("a length of 0", lambda _: provnet.open_data(["a", "b"], [0, 1], length=0), "length must be a whole number"),
    ("pictures' size", lambda path: provnet.open_data(path, size=32), "size and mode apply to pictures"),
    (
        "augmentation",
        lambda path: fit(provnet.open_data(path), train_config(augment="digits")),
        "augment .* is for pictures",
    ),
]


@cases("name,given,said", BAD, ids=[one[0] for one in BAD])
def test_bad_texts_are_refused_in_a_line(
    name: str, given: bytes | Callable[[Path], Any], said: str, tmp_path: Path
) -> None:
    path = tmp_path / ("a.csv" if name.startswith("CSV") else "a.jsonl")
    path.write_bytes(given if isinstance(given, bytes) else lines(row(), row("other words", "b")))
    with pytest.raises(ProvnetError, match=said) as caught:
        provnet.open_data(path) if isinstance(given, bytes) else given(path)
    assert "\n" not in str(caught.value)
    if isinstance(given, bytes):
        before = sorted(tmp_path.rglob("*"))
        assert main(["train", str(path), "--out", str(tmp_path / "run")]) != 0
        assert sorted(tmp_path.rglob("*")) == before, "nothing is half-written"


def test_commands_take_words(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(folder / "run")
    known = json.loads((folder / "train.jsonl").read_text("utf-8").splitlines()[4])["text"]
    assert main(["explain", run, "hot summer sun", "test:1", "-k", "2", "--html", str(folder / "a.html")]) == 0
    out = capsys.readouterr().out
    assert "hot summer sun" in out and "warm" in out and "test:1" in out
    page = (folder / "a.html").read_text("utf-8")
    assert "<mark>summer</mark>" in page and "input not shown" not in page
    assert main(["member", run, known, known[:30] + " is what they wrote", "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)
    assert first["verdict"] == "member" and first["passages"][0]["sample_id"] == "train-4"
    assert second["verdict"] != "member" and second["passages"][0]["text"].startswith(known[:30])
    for command in ("audit", "map", "check"):
        more = ["--engine", "scikit-learn"] if command == "map" else []
        assert main([command, run, "--out", str(folder / command), *more]) == 0, command
    assert main(["robustness", run, "--out", str(folder / "robustness")]) != 0
    assert "distortions are for pictures" in capsys.readouterr().err

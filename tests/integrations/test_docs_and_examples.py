"""The pages and examples of other frameworks are true: their blocks run as they stand there."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import provnet
from tests.attached.made import cnn
from tests.integrations.test_huggingface import bert, text_data, texts, tokenizer
from tests.integrations.test_lightning import Classifier

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(ROOT.glob("examples/integrations/*.py"))


def run_page(name: str, names: dict[str, Any]) -> dict[str, Any]:
    text = (ROOT / "docs" / name).read_text("utf-8")
    blocks = [part.split("```")[0] for part in text.split("```py\n")[1:]]
    assert blocks, f"{name} has no block to run"
    for block in blocks:
        exec(compile(block, name, "exec"), names)
    return names


def test_the_page_on_the_trainer(tmp_path: Path) -> None:
    found, labels = texts()
    names = {"texts": found, "labels": labels, "tokenizer": tokenizer(), "model": bert(), "folder": str(tmp_path)}
    assert len(run_page("huggingface.md", names)["run"].samples) == len(text_data())


def test_the_page_on_lightning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module: nn.Module = Classifier(cnn())
    assert len(run_page("lightning.md", {"module": module})["run"].samples) == 80


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    run = module.main(epochs=1, limit=100)
    data = provnet.open_data("embedded", limit=100)
    assert run.explain(data, k=1).index[:, 0].tolist() == list(range(100))

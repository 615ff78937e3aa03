"""Weights and sample tables from strangers that contradict the rest of the run are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from provnet.runs.run import write_run
from tests.cases import cases
from tests.modelfile.hostile import change_config, change_tensors, refused

from .made import make_run, remake_manifest

WEIGHTS: dict[str, tuple[Callable[[dict[str, torch.Tensor]], Any], str]] = {
    "NaN": (lambda t: t["index_head.linear.weight"].view(-1)[-1:].fill_(torch.nan), "NaN or infinity"),
    "infinity": (lambda t: t["index_head.linear.bias"][:1].fill_(torch.inf), "NaN or infinity"),
    "another shape": (lambda t: t.update({"index_head.linear.bias": torch.zeros(2)}), "expected F32"),
    "another type": (
        lambda t: t.update({"index_head.linear.bias": t["index_head.linear.bias"].double()}), "expected F32",
    ),
    "a tensor too many": (lambda t: t.update({"evil.weight": torch.zeros(1)}), "evil.weight"),
    "a tensor too few": (lambda t: t.pop("index_head.linear.bias"), "missing"),
    "fewer rows in the index head": (
        lambda t: t.update({k: t[k][:-1].contiguous() for k in t if k.startswith("index_head")}),
        "samples.safetensors has 13 samples",
    ),
    "more rows in the index head": (
        lambda t: t.update({k: torch.cat([t[k], t[k][:1]]) for k in t if k.startswith("index_head")}),
        "samples.safetensors has 13 samples",
    ),
}  # fmt: skip


@cases("case", WEIGHTS)
def test_weights_that_contradict_the_config_are_refused(run: Path, case: str) -> None:
    change, words = WEIGHTS[case]
    change_tensors(run / "model.safetensors", change)
    remake_manifest(run)
    refused(run, 6, "model.safetensors", words)


def drop_sample(tensors: dict[str, torch.Tensor]) -> None:
    for name in tensors:
        if name in ("labels", "sha256", "pixel_sha256") or name.endswith(".given"):
            tensors[name] = tensors[name][:-1].clone()
        elif name.endswith(".offsets") and not name.startswith("class_names"):
            owner = name.removesuffix(".offsets")
            tensors[name] = tensors[name][:-1].clone()
            tensors[f"{owner}.text"] = tensors[f"{owner}.text"][: int(tensors[name][-1])].clone()


@pytest.mark.parametrize("network", ["single", "class-independent", "class-conditional-heads"])
def test_fewer_samples_than_rows_are_refused_with_both_numbers(tmp_path: Path, network: str) -> None:
    write_run(make_run(network), tmp_path)
    change_tensors(tmp_path / "samples.safetensors", drop_sample)
    remake_manifest(tmp_path)
    refused(tmp_path, 6, "samples.safetensors has 12 samples", "has 13")


SAMPLES: dict[str, tuple[Callable[[dict[str, torch.Tensor]], Any], str]] = {
    "label out of range": (lambda t: t["labels"][:1].fill_(99), "labels must lie in"),
    "negative label": (lambda t: t["labels"][:1].fill_(-1), "labels must lie in"),
    "offsets backwards": (lambda t: t["paths.offsets"][1:2].fill_(1 << 40), "offsets of paths"),
    "offsets beyond the text": (lambda t: t["paths.offsets"][-1:].fill_(1 << 40), "offsets of paths"),
    "negative offset": (lambda t: t["sample_ids.offsets"][:1].fill_(-5), "offsets of sample_ids"),
    "not UTF-8": (lambda t: t["sample_ids.text"].fill_(255), "not UTF-8"),
    "equal ids": (lambda t: t["sample_ids.offsets"][1:-1].fill_(0), "unique"),
    "offsets whose differences overflow": (
        lambda t: t["paths.offsets"][1:3].copy_(torch.tensor([2**63 - 1, -(2**63)])), "offsets of paths",
    ),
    "hashes of 31 bytes": (lambda t: t.update({"sha256": t["sha256"][:, :31].contiguous()}), "expected U8"),
    "float labels": (lambda t: t.update({"labels": t["labels"].double()}), "expected I64"),
    "no labels": (lambda t: t.pop("labels"), "labels"),
    "scalar labels": (lambda t: t.update({"labels": torch.tensor(1)}), "labels"),
    "one class more": (
        lambda t: t.update({"class_names.offsets": t["class_names.offsets"][[0, 1, 2, 3, 4, 4]]}), "classes",
    ),
    "no classes": (lambda t: t.update({"class_names.offsets": t["class_names.offsets"][:0]}), "class_names"),
}  # fmt: skip


@cases("case", SAMPLES)
def test_a_hostile_sample_table_is_refused(run: Path, case: str) -> None:
    change, words = SAMPLES[case]
    change_tensors(run / "samples.safetensors", change)
    remake_manifest(run)
    refused(run, 6, "samples.safetensors", words)


def test_a_small_file_that_asks_for_a_huge_table_is_refused(run: Path) -> None:
    """20,000 classes and 20,000 samples in one of them would need a table of 3 GB."""
    n, classes = 20_000, 20_000

    def grow(tensors: dict[str, torch.Tensor]) -> None:
        for name in ("sha256", "pixel_sha256"):
            tensors[name] = torch.zeros(n, 32, dtype=torch.uint8)
        ids = "".join(f"{i:05d}" for i in range(n)).encode()
        tensors["labels"] = torch.zeros(n, dtype=torch.int64)
        tensors["sample_ids.text"] = torch.from_numpy(np.frombuffer(ids, np.uint8).copy())
        tensors["sample_ids.offsets"] = torch.arange(0, 5 * n + 1, 5)
        tensors["class_names.text"] = torch.zeros(0, dtype=torch.uint8)
        tensors["class_names.offsets"] = torch.zeros(classes + 1, dtype=torch.int64)
        for name in ("paths", "sources"):
            tensors[f"{name}.text"] = torch.zeros(0, dtype=torch.uint8)
            tensors[f"{name}.offsets"] = torch.zeros(n + 1, dtype=torch.int64)
            tensors[f"{name}.given"] = torch.zeros(n, dtype=torch.uint8)

    change_tensors(run / "samples.safetensors", grow)
    change_config(run, lambda c: c["network"].update(classes=classes))
    refused(run, 7, "past the limit")

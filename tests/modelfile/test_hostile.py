"""Files made to do harm, with a manifest that fits them: all refused, by content, with the right exit code."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from provnet.errors import ProvnetError
from provnet.modelfile import read_run, write_run
from tests.counts import count, grows

from .made import make_run, remake_manifest


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    write_run(make_run(), folder)
    return folder


@pytest.fixture
def run(good: Path, tmp_path: Path) -> Iterator[Path]:
    shutil.copytree(good, tmp_path / "run")
    yield tmp_path / "run"
    assert not (tmp_path / "ran").exists(), "the file ran code"


def refused(folder: Path, code: int | tuple[int, ...], *words: str) -> None:
    with pytest.raises(ProvnetError) as caught:
        read_run(folder)
    codes = code if isinstance(code, tuple) else (code,)
    message = str(caught.value)
    assert caught.value.exit_code in codes, message
    assert all(word in message for word in words), message
    assert message.isprintable(), message


def container(header: bytes | dict[str, Any], data: bytes = b"") -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + data


def entry(dtype: str = "F32", shape: Any = (1,), offsets: Any = (0, 4)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


class Touch:
    """Runs code when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("name", ["model.safetensors", "samples.safetensors", "history.safetensors", "config.json"])
def test_a_renamed_pickle_is_refused_by_content(run: Path, tmp_path: Path, protocol: int, name: str) -> None:
    (run / name).write_bytes(pickle.dumps({"weight": Touch(tmp_path / "ran")}, protocol))
    refused(run, 7, name, "pickle")
    remake_manifest(run)
    refused(run, 7, name, "pickle")


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_in_place_of_the_manifest_is_refused(run: Path, tmp_path: Path, protocol: int) -> None:
    (run / "manifest.json").write_bytes(pickle.dumps([Touch(tmp_path / "ran")], protocol))
    refused(run, 7, "manifest.json", "pickle")


FOREIGN = {
    "zip": b"PK\x03\x04" + b"\0" * 100,
    "7z": b"7z\xbc\xaf\x27\x1c" + b"\0" * 100,
    "elf": b"\x7fELF\x02\x01\x01" + b"\0" * 100,
    "html": b"<!DOCTYPE html><html><body>Not found</body></html>",
    "html with space": b"\n  <html><body>login</body></html>",
    "gzip": b"\x1f\x8b\x08" + b"\0" * 100,
    "hdf5": b"\x89HDF\r\n\x1a\n" + b"\0" * 100,
    "script": b"#!/bin/sh\ntouch ran\n",
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_other_foreign_files_are_refused_by_content(run: Path, kind: str) -> None:
    (run / "model.safetensors").write_bytes(FOREIGN[kind])
    remake_manifest(run)
    refused(run, 7, "model.safetensors", "never opens")


@pytest.mark.parametrize("name", ["model.pt", "model.pth", "weights.bin", "anything"])
def test_torch_files_get_advice(tmp_path: Path, name: str) -> None:
    new, old = tmp_path / name, tmp_path / f"old-{name}"
    torch.save({"weight": torch.zeros(2)}, new)
    torch.save({"weight": torch.zeros(2)}, old, _use_new_zipfile_serialization=False)
    for path in (new, old):
        refused(path, 7, name, "safetensors")


def test_a_folder_of_torch_files_gets_advice(tmp_path: Path) -> None:
    torch.save({}, tmp_path / "pytorch_model.bin")
    refused(tmp_path, 7, "pytorch_model.bin", "safetensors")


def test_what_is_no_run_is_a_wrong_argument(tmp_path: Path) -> None:
    refused(tmp_path, 2, "not a provnet run")
    refused(tmp_path / "nowhere", 2, "no such folder")
    (tmp_path / "notes.txt").write_text("hello")
    refused(tmp_path / "notes.txt", 2, "is a file")


MANY = ",".join(f'"t{i}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}' for i in range(3_000))
ONE = '"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
CONTAINERS: dict[str, tuple[bytes, int | tuple[int, ...], str]] = {
    "empty": (b"", 6, "too few"),
    "seven bytes": (b"\0" * 7, 6, "too few"),
    "header of 2^63 bytes": (struct.pack("<Q", 1 << 63) + b"{}", 7, "at most"),
    "header past the end": (struct.pack("<Q", 500) + b"{}", 6, "cut short"),
    "header of 2 MB": (container(b"{" + b" " * 2_000_000 + b"}"), 7, "at most"),
    "3,000 tensors": (container(f"{{{MANY}}}".encode()), 7, "3,000 tensors"),
    "duplicate key": (container(f"{{{ONE},{ONE}}}".encode(), b"\0" * 4), 7, "twice"),
    "deep header": (container(b'{"a":' + b"[" * 10_000 + b"]" * 10_000 + b"}"), 7, "deep"),
    "not JSON": (container(b"{]"), 6, "JSON"),
    "a list": (container(b"[]   "), 6, "object"),
    "not UTF-8": (container(b'{"\xff": 1}'), 6, "JSON"),
    "unknown type": (container({"a": entry("F128")}, b"\0" * 4), 6, "F128"),
    "type of another type": (container({"a": entry(["F32"])}, b"\0" * 4), 6, "type"),  # type: ignore[arg-type]
    "negative shape": (container({"a": entry(shape=[-1])}, b"\0" * 4), 6, "shape"),
    "float shape": (container({"a": entry(shape=[1.0])}, b"\0" * 4), 6, "shape"),
    "true as shape": (container({"a": entry(shape=[True])}, b"\0" * 4), 6, "shape"),
    "overflowing shape": (container({"a": entry(shape=[1 << 40, 1 << 40])}, b"\0" * 4), 6, "contradict"),
    "shape that wraps to the right size": (
        container({"a": entry(shape=[1 << 62, 4])}, b"\0" * 4), 6, "shape",
    ),
    "offsets backwards": (container({"a": entry(offsets=[4, 0])}, b"\0" * 4), 6, "contradict"),
    "offsets past the end": (container({"a": entry(offsets=[0, 8], shape=[2])}, b"\0" * 4), 6, "accounts for"),
    "overlap": (container({"a": entry(), "b": entry()}, b"\0" * 4), 7, "overlap"),
    "hole": (container({"a": entry(), "b": entry(offsets=[8, 12])}, b"\0" * 12), 7, "hole"),
    "trailing bytes": (container({"a": entry()}, b"\0" * 5), 6, "accounts for"),
    "missing field": (container({"a": {"dtype": "F32", "shape": [1]}}, b"\0" * 4), 6, "nothing else"),
    "extra field": (container({"a": {**entry(), "code": "x"}}, b"\0" * 4), 6, "nothing else"),
    "metadata of numbers": (container({"__metadata__": {"a": 1}}), 6, "metadata"),
    "escape codes in a name": (container({"\x1b[2J\n": entry("X")}, b"\0" * 4), 6, "\\x1b[2J\\n"),
    "NaN in the header": (container(b'{"a": NaN}'), 7, "NaN"),
    "huge number": (container(b'{"a": 1e999}'), 7, "finite"),
    "10,000 digits": (container(b'{"a": ' + b"9" * 10_000 + b"}"), 6, "JSON"),
    "nothing in it": (container({}), 6, "missing"),
}  # fmt: skip


@pytest.mark.parametrize("case", CONTAINERS)
@pytest.mark.parametrize("name", ["model.safetensors", "samples.safetensors", "history.safetensors"])
def test_a_hostile_container_is_refused(run: Path, case: str, name: str) -> None:
    raw, code, words = CONTAINERS[case]
    (run / name).write_bytes(raw)
    remake_manifest(run)
    if case == "nothing in it" and name == "history.safetensors":
        words = "class_loss"
    refused(run, code, name, words)


def change_tensors(path: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    tensors = {key: value.clone() for key, value in safetensors.torch.load_file(path).items()}
    change(tensors)
    safetensors.torch.save_file(tensors, path)


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


@pytest.mark.parametrize("case", WEIGHTS)
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


@pytest.mark.parametrize("case", SAMPLES)
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


def change_config(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))
    remake_manifest(folder)


CONFIGS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "unknown network": (lambda c: c["network"].update(network="transformer"), "unknown network 'transformer'"),
    "unknown backbone": (lambda c: c["network"].update(backbone="resnet50"), "unknown backbone 'resnet50'"),
    "a module path": (lambda c: c["network"].update(backbone="os.system"), "unknown backbone"),
    "a list as backbone": (lambda c: c["network"].update(backbone=["mlp"]), "unknown backbone"),
    "a backbone of its own": (lambda c: c["network"].update(backbone="custom"), "backbone=module"),
    "another backbone": (lambda c: c["network"].update(backbone="small"), "takes pictures"),
    "unknown setting": (lambda c: c["network"].update(code="import os"), "unknown settings: 'code'"),
    "missing setting": (lambda c: c["network"].pop("alpha"), "lacks alpha"),
    "unknown part": (lambda c: c.update(auto_map={"AutoModel": "x.y"}), "unknown settings"),
    "missing part": (lambda c: c.pop("training"), "lacks training"),
    "more classes": (lambda c: c["network"].update(classes=5), "classes"),
    "a billion classes": (lambda c: c["network"].update(classes=10**9), "classes"),
    "classes as text": (lambda c: c["network"].update(classes="4"), "whole number"),
    "huge input": (lambda c: c["network"].update(input_shape=[3, 10**9, 10**9]), "input_shape"),
    "no input": (lambda c: c["network"].update(input_shape=[]), "input_shape"),
    "negative input": (lambda c: c["network"].update(input_shape=[-4]), "input_shape"),
    "another input": (lambda c: c["network"].update(input_shape=[5]), "expected"),
    "alpha as text": (lambda c: c["network"].update(alpha="0"), "alpha"),
    "alpha of 2": (lambda c: c["network"].update(alpha=2), "alpha"),
    "std of 0": (lambda c: c["network"].update(std=[0.0]), "std"),
    "level of 9": (lambda c: c["network"].update(backbone="sharing-small", level=9), "cannot be built"),
    "conditional as text": (lambda c: c["network"].update(conditional="yes"), "conditional"),
    "network as list": (lambda c: c.update(network=[]), "network must be a mapping"),
    "data as list": (lambda c: c.update(data=[1]), "data must be a mapping"),
    "data with a number": (lambda c: c["data"].update(source=5), "data.source"),
    "versions of numbers": (lambda c: c.update(versions={"torch": 2}), "versions"),
    "evaluation as text": (lambda c: c.update(evaluation="good"), "evaluation"),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_a_config_outside_the_closed_tables_is_refused(run: Path, case: str) -> None:
    change, words = CONFIGS[case]
    change_config(run, change)
    refused(run, (2, 6) if case == "a backbone of its own" else 6, words)


TEXTS: dict[str, tuple[bytes, int, str]] = {
    "10,000 deep": (b'{"network":' + b"[" * 10_000 + b"]" * 10_000 + b"}", 7, "deep"),
    "deep, never closed": (b'{"network":' + b"[" * 900_000, 7, "deep"),
    "quotes, never closed": (b'{"' + b'\\"' * 400_000, 6, "JSON"),
    "a string of 900 kB": (b'{"network":"' + b"x" * 900_000 + b'"}', 7, "at most"),
    "two networks": (b'{"network": {}, "network": {}}', 7, "twice"),
    "NaN": (b'{"network": NaN}', 7, "NaN"),
    "Infinity": (b'{"network": -Infinity}', 7, "Infinity"),
    "a number past float": (b'{"network": 1e400}', 7, "finite"),
    "no object": (b'"network"', 6, "object"),
    "nothing": (b"", 6, "JSON"),
    "not UTF-8": (b'{"network": "\xff"}', 6, "JSON"),
}


@pytest.mark.parametrize("case", TEXTS)
@pytest.mark.parametrize("name", ["config.json", "manifest.json"])
def test_hostile_json_is_refused(run: Path, case: str, name: str) -> None:
    raw, code, words = TEXTS[case]
    (run / name).write_bytes(raw)
    if name != "manifest.json":
        remake_manifest(run)
    refused(run, code, name, words)


@pytest.mark.parametrize("name", ["config.json", "manifest.json", "README.md"])
def test_a_gigabyte_of_json_is_refused_unread(run: Path, name: str) -> None:
    os.truncate(run / name, 1 << 30)  # takes no room: a hole
    if name != "manifest.json":
        size = {"sha256": "0" * 64, "bytes": 1 << 30}
        os.truncate(run / name, 10)
        remake_manifest(run, lambda content: content["files"].update({name: size}))
        os.truncate(run / name, 1 << 30)
    refused(run, 7, name, "at most 1,000,000 are read")


MANIFESTS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "newer format": (lambda m: m.update(format_version=2), "format 2, this provnet reads up to format 1"),
    "format as text": (lambda m: m.update(format_version="1"), "format_version"),
    "format 0": (lambda m: m.update(format_version=0), "format_version"),
    "format true": (lambda m: m.update(format_version=True), "format_version"),
    "unknown file": (lambda m: m["files"].update({"code.py": {"sha256": "0" * 64, "bytes": 1}}), "'code.py'"),
    "path upwards": (
        lambda m: m["files"].update({"../../etc/passwd": {"sha256": "0" * 64, "bytes": 1}}), "'../../etc/passwd'",
    ),
    "absolute path": (lambda m: m["files"].update({"/etc/passwd": {"sha256": "0" * 64, "bytes": 1}}), "/etc/passwd"),
    "lacks a file": (lambda m: m["files"].pop("samples.safetensors"), "does not list samples.safetensors"),
    "no files": (lambda m: m.update(files={}), "does not list"),
    "files as list": (lambda m: m.update(files=[]), "must list files"),
    "negative size": (lambda m: m["files"]["config.json"].update(bytes=-1), "config.json"),
    "hash as number": (lambda m: m["files"]["config.json"].update(sha256=1), "config.json"),
    "extra field": (lambda m: m["files"]["config.json"].update(url="http://x"), "nothing else"),
    "extra part": (lambda m: m.update(run="rm -rf /"), "SHA-256"),
}  # fmt: skip


@pytest.mark.parametrize("case", MANIFESTS)
def test_a_hostile_manifest_is_refused(run: Path, case: str) -> None:
    change, words = MANIFESTS[case]
    remake_manifest(run, change)
    refused(run, 6, "manifest.json", words)


def test_a_staged_set_of_a_stranger_is_checked_like_any_other(run: Path, tmp_path: Path) -> None:
    (run / ".next").mkdir()
    (run / ".next" / "manifest.json").write_bytes(pickle.dumps(Touch(tmp_path / "ran")))
    refused(run, 7, "manifest.json", "pickle")


@grows
@pytest.mark.parametrize("seed", range(count(10, 200)))
def test_random_changes_with_a_fitting_manifest_raise_nothing_but_our_errors(run: Path, seed: int) -> None:
    rng = random.Random(seed)
    names = ["config.json", "samples.safetensors", "model.safetensors", "history.safetensors"]
    originals = {name: (run / name).read_bytes() for name in names}
    for _ in range(20):
        name = rng.choice(names)
        raw = bytearray(originals[name])
        for _ in range(rng.randrange(1, 4)):
            place = rng.randrange(min(len(raw), 1500))
            kind = rng.randrange(4)
            if kind == 0:
                raw[place] ^= 1 << rng.randrange(8)
            elif kind == 1:
                raw[place : place + rng.randrange(1, 9)] = b""
            elif kind == 2:
                raw[place:place] = rng.choice([b"9", b"-", b'"', b"[", b"]", b"1e9", b"null", b"{", b"\xff", b"0"])
            else:
                raw[place] = rng.choice(b'0123456789-[]{}",:ntf')
        (run / name).write_bytes(bytes(raw))
        remake_manifest(run)
        try:
            read_run(run)
        except ProvnetError as error:
            assert error.exit_code in (2, 6, 7)
            assert str(error).isprintable()
        (run / name).write_bytes(originals[name])

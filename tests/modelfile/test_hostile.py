"""Files made to do harm, with a manifest that fits them: all refused, by content, with the right exit code."""

from __future__ import annotations

import pickle
import struct
from pathlib import Path

import pytest
import torch

from tests.cases import cases
from tests.modelfile.hostile import Touch, container, entry, refused

from .made import remake_manifest


@cases("protocol", range(6))
@cases("name", ["model.safetensors", "samples.safetensors", "history.safetensors", "config.json"])
def test_a_renamed_pickle_is_refused_by_content(run: Path, tmp_path: Path, protocol: int, name: str) -> None:
    (run / name).write_bytes(pickle.dumps({"weight": Touch(tmp_path / "ran")}, protocol))
    refused(run, 7, name, "pickle")
    remake_manifest(run)
    refused(run, 7, name, "pickle")


@cases("protocol", range(6))
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


@cases("kind", FOREIGN)
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


@cases("case", CONTAINERS)
@cases("name", ["model.safetensors", "samples.safetensors", "history.safetensors"])
def test_a_hostile_container_is_refused(run: Path, case: str, name: str) -> None:
    raw, code, words = CONTAINERS[case]
    (run / name).write_bytes(raw)
    remake_manifest(run)
    if case == "nothing in it" and name == "history.safetensors":
        words = "class_loss"
    refused(run, code, name, words)

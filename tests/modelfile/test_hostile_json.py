"""Configs and manifests from strangers: closed tables, limits, and nothing but our own errors."""

from __future__ import annotations

import os
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from provnet.base.errors import ProvnetError, UnsafeFileError
from provnet.runs.run import read_run
from provnet.runs.safe import read_json
from tests.cases import cases
from tests.counts import count, grows
from tests.modelfile.hostile import Touch, change_config, refused

from .made import remake_manifest

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


@cases("case", CONFIGS)
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


@cases("case", TEXTS)
@cases("name", ["config.json", "manifest.json"])
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


def test_json_of_too_many_bytes_is_refused_unparsed() -> None:
    with pytest.raises(UnsafeFileError, match="1,000,001 bytes of JSON, at most 1,000,000 are read"):
        read_json(b"{" + b" " * 999_999 + b"}", "config.json")
    assert read_json(b"{" + b" " * 999_998 + b"}", "config.json") == {}


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


@cases("case", MANIFESTS)
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

"""A run that somebody made, with a manifest that fits: each command refuses it in words, or does what it does."""

from __future__ import annotations

import copy
import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from provnet.base.errors import ProvnetError
from provnet.cli.app_command import gather
from provnet.runs.files import RunConfig
from provnet.runs.safe import read_json
from tests.counts import count, grows
from tests.modelfile.hostile import change_config, change_tensors
from tests.modelfile.made import remake_manifest

from .conftest import Call

HALF, BYTE, DEEP = "\ud800", "\udcff", [[[[[["x"]]]]]]
VALUES: list[Any] = [
    *(None, True, -1, 0, 1.5, 1e308, 10**30, 2**63, "x", "", HALF, BYTE, "a\0b", "\x1b[2J", "x" * 5_000),
    *([], {}, [1], ["x", None], {"a": 1}, {"value": 1, "n": "x"}, DEEP),
]
COMMANDS: dict[str, Callable[[Path, Path], list[object]]] = {
    "info": lambda run, data: [],
    "verify": lambda run, data: [],
    "explain": lambda run, data: ["test:0"],
    "evaluate": lambda run, data: [],
    "debug": lambda run, data: ["--out", run.parent / "out"],
    "map": lambda run, data: ["--out", run.parent / "out"],
    "member": lambda run, data: [data / "test/digit-0/0.png"],
    "attribute": lambda run, data: [data / "test/digit-0", "--out", run.parent / "out"],
    "robustness": lambda run, data: ["--out", run.parent / "out", "--conditions", "blur-1"],
    "audit": lambda run, data: ["--out", run.parent / "out"],
    "check": lambda run, data: ["--out", run.parent / "out"],
    "withhold": lambda run, data: ["--id", "train/digit-0/0.png"],
    "add": lambda run, data: [data / "test"],
}


def asked(name: str, run: Path, data: Path) -> list[object]:
    if name == "train":
        return [name, data, "--out", run, "--resume", "--epochs", 14, "--batch-size", 8]
    return [name, run, *COMMANDS[name](run, data)]


def nodes(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The place of every setting and of every group of settings."""
    if path:
        yield path
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from nodes(value[key], (*path, key))


def put(config: dict[str, Any], path: tuple[Any, ...], value: Any) -> None:
    *groups, last = path
    place: Any = config
    for key in groups:
        place = place[key]
    place[last] = value


def rich(config: dict[str, Any]) -> dict[str, Any]:
    """The same with everything in it that a run may record."""
    figure = {"value": 0.5, "n": 4, "low": 0.1, "high": 0.9}
    config["data"]["options"] |= {"size": [28, 28], "holdout": [[0.2, "train"]], "value_range": [0, 255], "limit": 20}
    config["training"]["subset"] = {"of": 9, "indexed": 4, "rest_content": None, "select": "diverse"}
    config["evaluation"] = {"class_accuracy": figure, "index_ceiling": 0.9, "supported": {"test": figure}}
    config["checks"] = {"samples": "0", "outcomes": [{"words": "w", "figure": figure, "passed": True}]}
    config["audit"] = {"samples": "0", "figures": {"AUC": figure}}
    config["added"] = [copy.deepcopy(config["data"])]
    return config


def test_every_setting_of_another_type_is_read_or_refused(run: Path) -> None:
    """A setting that is accepted is one that can be written again, and shown."""
    given = rich(json.loads((run / "config.json").read_text()))
    RunConfig.from_json(read_json(json.dumps(given).encode(), "config.json"))
    for path in nodes(given):
        for value in VALUES:
            config = copy.deepcopy(given)
            put(config, path, value)
            try:
                accepted = RunConfig.from_json(read_json(json.dumps(config).encode(), "config.json"))
            except ProvnetError as error:
                assert str(error).isprintable()
                continue
            kept = {name: part for name, part in accepted.to_json().items() if name not in ("data", "test", "added")}
            str(kept).encode()


CASES: dict[str, tuple[tuple[Any, ...], Any]] = {
    "half a character": (("training", "training", "preset"), HALF),
    "half a character in a name": (("data", "source"), HALF),
    "a byte that is no text": (("training", "machine", "device"), BYTE),
    "a reader that is not there": (("data", "kind"), "nan"),
    "the reader of another set": (("data", "kind"), "embedded"),
    "a split that is not there": (("test", "split"), "x"),
    "NUL in a path": (("data", "source"), "/a\0b"),
    "a hold-out of numbers": (("data", "options"), {"holdout": 0}),
    "a share that is none": (("test", "options"), {"holdout": [[1e308, "train"]]}),
    "no size": (("data", "options"), {"size": None}),
    "a size of one side": (("test", "options"), {"size": [8]}),
    "a threshold in words": (("support", "threshold"), "low"),
    "figures in words": (("evaluation",), {"class_accuracy": {"value": "good", "n": 4, "low": 0, "high": 1}}),
    "a ceiling in words": (("evaluation",), {"index_ceiling": "high"}),
    "samples in words": (("training", "data", "samples"), "many"),
    "a number without end": (("training", "data", "samples"), 10**30),
}


@pytest.mark.parametrize("case", CASES)
def test_every_command_refuses_a_config_that_cannot_be(case: str, own_run: Path, data: Path, call: Call) -> None:
    change_config(own_run, lambda config: put(config, *CASES[case]))
    for name in (*COMMANDS, "train"):
        said = call(*asked(name, own_run, data))
        assert said.code in (6, 7), (name, said)
        assert "Traceback" not in said.err
    with pytest.raises(ProvnetError) as caught:
        gather(own_run, None, None, None, "cpu")
    assert caught.value.exit_code in (6, 7)


@grows
@pytest.mark.parametrize("seed", range(count(4, 200)))
def test_no_config_makes_an_internal_error(seed: int, own_run: Path, data: Path, call: Call) -> None:
    rng = random.Random(seed)
    original = rich(json.loads((own_run / "config.json").read_text()))
    places = list(nodes(original))
    for _ in range(6):
        shutil.rmtree(own_run.parent / "out", ignore_errors=True)
        config = copy.deepcopy(original)
        put(config, rng.choice(places), rng.choice(VALUES))
        (own_run / "config.json").write_text(json.dumps(config))
        remake_manifest(own_run)
        for name in ("info", "verify", rng.choice([*COMMANDS, "train"])):
            said = call(*asked(name, own_run, data))
            assert said.code in (0, 2, 3, 6, 7), (name, config, said)
            assert "internal error" not in said.err


def scaled(tensors: dict[str, torch.Tensor]) -> None:
    for value in tensors.values():
        if value.is_floating_point():
            value.mul_(1e30).clamp_(-3e38, 3e38)


def scrambled(tensors: dict[str, torch.Tensor]) -> None:
    order = torch.Generator().manual_seed(0)
    for value in tensors.values():
        value.view(-1).copy_(value.view(-1)[torch.randperm(value.numel(), generator=order)].clone())


def not_finite(tensors: dict[str, torch.Tensor]) -> None:
    next(value for value in tensors.values() if value.is_floating_point()).view(-1)[0] = torch.nan


def swapped(tensors: dict[str, torch.Tensor]) -> None:
    names = [name for name in tensors if name.endswith("weight")]
    tensors[names[0]], tensors[names[-1]] = tensors[names[-1]], tensors[names[0]]


@pytest.mark.parametrize(("change", "found"), [(scaled, 6), (not_finite, 6), (swapped, 6), (scrambled, 0)])
def test_weights_that_cannot_answer_are_not_verified(
    change: Callable[[dict[str, torch.Tensor]], None], found: int, own_run: Path, data: Path, call: Call
) -> None:
    """Weights in another order are as good as any to a hash that their author made: docs/reliability.md says so."""
    change_tensors(own_run / "model.safetensors", change)
    remake_manifest(own_run)
    assert call("verify", own_run).code == found
    for name in (*COMMANDS, "train"):
        said = call(*asked(name, own_run, data))
        assert said.code in (0, 2, 3, 6, 7), (name, said)
        assert "internal error" not in said.err

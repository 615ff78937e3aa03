"""The bank of a run: what its files may hold, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import provnet
from provnet.answers.attributor import explain
from provnet.base.errors import DataError, IntegrityError, NonFiniteError, UsageError
from provnet.data.dataset import DataSpec, ImageData
from provnet.runs import bank
from provnet.runs.run import RunConfig, read_run, write_run
from tests.banked import BASE, LAST, MORE, RUNS, banked_run, ids, pieces
from tests.cases import cases
from tests.golden.make import HERE as GOLDEN
from tests.golden.make import NETWORKS as GOLDEN_NETWORKS
from tests.modelfile.made import make_run, remake_manifest


def test_a_run_that_was_never_changed_is_written_as_before(tmp_path: Path) -> None:
    write_run(RUNS["single", "fp32"], tmp_path)
    assert not {"withheld", "added"} & set(load_file(tmp_path / "samples.safetensors"))
    assert not {"erased", "added"} & set(json.loads((tmp_path / "config.json").read_text()))
    for name in GOLDEN_NETWORKS:
        written = write_run(read_run(GOLDEN / name), tmp_path / name)
        assert (written / "samples.safetensors").read_bytes() == (GOLDEN / name / "samples.safetensors").read_bytes()


def test_flags_and_sources_come_back_from_the_files(tmp_path: Path) -> None:
    run = bank.withhold(bank.add(RUNS["single", "bf16"], LAST), ids(5))
    run = replace(
        run, config=replace(run.config, added=(DataSpec("/data/x", "folder", options={"limit": 3}),), erased=2)
    )
    again = read_run(write_run(run, tmp_path))
    assert again.samples.withheld.tolist() == run.samples.withheld.tolist()
    assert again.samples.added.tolist() == [False] * 12 + [True] * 4
    assert again.config == run.config
    assert again.samples.fingerprint == replace(run.samples, withheld=None, added=None).fingerprint
    assert np.array_equal(explain(run, BASE.images, k=9).index, explain(again, BASE.images, k=9).index)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (torch.zeros(11, dtype=torch.uint8), "expected U8"),
        (torch.zeros(12, dtype=torch.bool), "expected U8"),
        (torch.zeros(12, 1, dtype=torch.uint8), "expected U8"),
        (torch.full((12,), 2, dtype=torch.uint8), "neither 0 nor 1"),
    ],
)
def test_flags_that_cannot_be_are_refused(tmp_path: Path, value: Tensor, words: str) -> None:
    write_run(RUNS["single", "fp32"], tmp_path)
    tensors = load_file(tmp_path / "samples.safetensors")
    save_file({**tensors, "withheld": value}, tmp_path / "samples.safetensors")
    remake_manifest(tmp_path)
    with pytest.raises(IntegrityError, match=words):
        read_run(tmp_path)


@cases(
    ("change", "words"),
    [
        ({"added": {}}, "added must be a list"),
        ({"added": [None]}, "found null"),
        ({"added": [{"source": 1}]}, "added lacks"),
        ({"erased": -1}, "erased must be a whole number"),
        ({"erased": True}, "erased must be a whole number"),
    ],
)
def test_a_config_that_cannot_be_is_refused(change: dict[str, Any], words: str) -> None:
    plain = RUNS["single", "fp32"].config.to_json()
    with pytest.raises(IntegrityError, match=words):
        RunConfig.from_json({**plain, **change})


@pytest.mark.parametrize("name", ["withhold", "restore", "erase", "add"])
def test_a_network_with_an_output_layer_is_refused(name: str) -> None:
    given: Any = BASE if name == "add" else ["plain0"]
    with pytest.raises(UsageError, match=r"neuron for each training sample.*--head exemplar"):
        getattr(bank, name)(make_run(), given)


def test_flags_of_a_network_with_an_output_layer_are_an_error_not_a_name() -> None:
    run = make_run()
    flags = np.zeros(len(run.samples), dtype=bool)
    flags[0] = True
    with pytest.raises(UsageError, match="neuron for each training sample"):
        explain(replace(run, samples=replace(run.samples, withheld=flags)), torch.zeros(1, 4))


@pytest.mark.parametrize("name", ["withhold", "restore", "erase"])
def test_an_unknown_id_is_refused_with_the_nearest(name: str) -> None:
    with pytest.raises(UsageError, match=r'no sample "trian/3" \(2 such ids\).*Did you mean "train/3"\?'):
        getattr(bank, name)(RUNS["single", "fp32"], ["train/1", "trian/3", "x"])
    with pytest.raises(UsageError, match="no sample was named"):
        getattr(bank, name)(RUNS["single", "fp32"], [])


def test_the_last_sample_that_may_be_named_stays() -> None:
    run = RUNS["single", "fp32"]
    with pytest.raises(UsageError, match="at least one"):
        bank.erase(run, run.samples.sample_ids)
    rest = bank.withhold(run, ids(*range(11)))
    for action in (bank.withhold, bank.erase):
        with pytest.raises(UsageError, match="at least one"):
            action(rest, ids(11))
    assert explain(rest, BASE.images, k=5).index.tolist() == [[11]] * 12
    nobody = replace(rest, samples=replace(rest.samples, withheld=np.ones(12, dtype=bool)))
    with pytest.raises(UsageError, match="every sample of this run is withheld"):
        explain(nobody, BASE.images)


def images_of(values: Any, labels: Any = (0,), names: Any = None) -> ImageData:
    return provnet.open_data(np.asarray(values), np.asarray(labels), class_names=names)


@cases(
    ("data", "error", "words"),
    [
        (lambda: images_of(np.zeros((1, 5), np.float32)), DataError, r"shape \(5,\), the run takes \(6,\)"),
        (
            lambda: images_of(np.zeros((1, 6), np.float32), names=["unheard of"]),
            UsageError,
            "does not know.*unheard of",
        ),
        (
            lambda: BASE.select(np.arange(2, 5)),
            UsageError,
            '"train/2" has the pixels of "train/2", which is in the run',
        ),
        (lambda: MORE.select(np.array([], dtype=np.int64)), DataError, "no samples to add"),
        (lambda: replace(MORE, images=MORE.images * np.nan), NonFiniteError, "NaN"),
        (lambda: replace(MORE, images=torch.zeros(5, 6, dtype=torch.uint8)), DataError, "bytes.*trained on float"),
    ],
)
def test_data_that_do_not_fit_are_refused(data: Callable[[], ImageData], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        bank.add(RUNS["single", "fp32"], data())


def test_a_picture_of_another_range_is_refused() -> None:
    pixels = np.random.default_rng(0).random((6, 1, 8, 8)).astype(np.float32)
    small = provnet.open_data(pixels, np.arange(6) % 2)
    run = banked_run(small, mean=(0.5,), std=(0.3,))
    with pytest.raises(DataError, match=r"the values lie in .*this run was trained on"):
        bank.add(run, provnet.open_data(pixels * 1000, np.arange(6) % 2))


def test_known_contents_are_left_out_on_demand() -> None:
    run = RUNS["single", "fp32"]
    assert bank.add(run, BASE, skip_known=True) is run
    twice = LAST.select(np.array([1, 2]))
    twice = replace(
        twice,
        images=twice.images[[0, 0]],
        samples=replace(twice.samples, pixel_sha256=twice.samples.pixel_sha256[[0, 0]]),
    )
    with pytest.raises(UsageError, match=r'"train/2" has the pixels of "train/1", which .*1 of 2 samples are known'):
        bank.add(run, twice)
    assert len(bank.add(run, twice, skip_known=True).samples) == 13
    with pytest.raises(UsageError, match=r"withheld \(restore it instead"):
        bank.add(bank.withhold(run, ids(7)), BASE.select(np.array([7])))


def test_classes_are_matched_by_name() -> None:
    other = images_of(LAST.images.numpy()[:2], [0, 1], ["class 3", "class 1"])
    assert bank.add(RUNS["single", "fp32"], other).samples.labels[12:].tolist() == [3, 1]


def test_a_source_is_kept_once_and_forgotten_with_its_last_sample() -> None:
    spec = replace(LAST.spec, source="/data/last")
    parts = [replace(piece, spec=spec) for piece in pieces(LAST)]
    run = bank.add(bank.add(RUNS["single", "fp32"], parts[0]), parts[1])
    assert run.config.added == (spec,)
    assert run.samples.sample_ids[12:] == ("last/train/0", "last/train/1")
    assert bank.erase(run, ["last/train/1"]).config.added == (spec,)
    assert bank.erase(run, ["last/train/0", "last/train/1"]).config.added == ()

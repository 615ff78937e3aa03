"""A generator's run: interrupted it ends with the same bits, written and read it makes the same pictures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from provnet.base.errors import IntegrityError, ProvnetError
from provnet.runs.run import read_run, write_run
from provnet.runs.verify import verify
from provnet.tools.generate.compute import generate
from provnet.training.session import LOG
from tests.fitting import fit
from tests.training.made import interrupt, same_bits

from .made import NAMES, pictures, wishes

FIGURES = {"class_at_mean", "index_at_mean", "class_at_sample", "index_at_sample", "reconstruction", "divergence"}


@pytest.mark.parametrize("name", NAMES)
def test_interrupted_it_goes_on_to_the_same_bits_and_pictures(name: str, tmp_path: Path) -> None:
    data = pictures()
    whole = fit(data, **wishes(name), out=tmp_path / "whole")
    interrupt(data, tmp_path / "again", 5, **wishes(name))  # within the second epoch
    run = fit(data, **wishes(name), out=tmp_path / "again", resume=True)
    same_bits(run, whole)
    assert generate(run, 4).images.tobytes() == generate(whole, 4).images.tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_written_and_read_it_makes_the_same_pictures(name: str, tmp_path: Path) -> None:
    run = fit(pictures(), **wishes(name), out=tmp_path / "run")
    read = read_run(tmp_path / "run")
    same_bits(read, run)
    assert generate(read, 4, seed=7).images.tobytes() == generate(run, 4, seed=7).images.tobytes()
    assert verify(tmp_path / "run", pictures()).ok
    rows = [json.loads(line) for line in (tmp_path / "run" / LOG).read_text().splitlines()]
    assert len(rows) == 3
    assert all(set(row) >= FIGURES for row in rows)
    assert all(0 <= row["index_at_sample"] <= 1 for row in rows)


def test_weights_of_another_generator_are_refused(tmp_path: Path) -> None:
    fit(pictures(), **wishes("faces"), out=tmp_path / "run")
    path = tmp_path / "run" / "config.json"
    path.write_text(path.read_text().replace("vae-faces", "vae-paper"))
    with pytest.raises(IntegrityError):
        read_run(tmp_path / "run")


def test_weights_that_do_not_fit_the_config_are_refused_at_writing(tmp_path: Path) -> None:
    from dataclasses import replace

    run = fit(pictures(), **wishes("faces"))
    other = replace(run.config, network=replace(run.config.network, backbone="vae-paper"))
    with pytest.raises(ProvnetError):
        write_run(replace(run, config=other), tmp_path / "run")

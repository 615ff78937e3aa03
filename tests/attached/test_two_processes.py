"""Two processes of a foreign loop (gloo, DistributedDataParallel) do what one does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.attached.two_processes import STEPS, main

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    rendezvous = ["--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1"]
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", *rendezvous]
    command += ["-m", "tests.attached.two_processes", str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 0, ended.stderr
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    main(folder, "alone")
    torch.set_num_threads(threads)
    return folder


def test_two_processes_of_a_foreign_loop_do_what_one_does(done: Path) -> None:
    one, two = (load_file(done / f"{name}.safetensors") for name in ("alone", "0"))
    assert len(one["losses"]) == STEPS
    assert float((one["losses"] - two["losses"]).abs().max()) < 1e-6
    assert float(one["losses"][-1]) != float(one["losses"][0])
    torch.testing.assert_close(one["keys"], two["keys"], rtol=0, atol=1e-6)
    torch.testing.assert_close(one["history"], two["history"], rtol=0, atol=2e-3)
    for name in ("index", "count"):
        assert torch.equal(one[name], two[name]), name


def test_both_hold_the_same(done: Path) -> None:
    first, second = (load_file(done / f"{name}.safetensors") for name in ("0", "1"))
    assert all(torch.equal(first[name], second[name]) for name in first)

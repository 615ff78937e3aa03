"""Nothing that provnet did not write is deleted or replaced, whatever it is called."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from provnet.base.errors import IntegrityError, UsageError
from provnet.cli.demo import refuse_foreign, run_demo
from provnet.runs.run import read_run
from provnet.training import session as run_folder
from provnet.training.checkpoint import save_checkpoint
from provnet.training.loop import fresh_state
from tests.cases import cases
from tests.fitting import fit

from .made import interrupt, names, pictures, recipe, same_bits

FLAGS: list[dict[str, bool]] = [{}, {"resume": True}, {"overwrite": True}]
LIKE_OTHERS = {
    "checkpoints alone": ["checkpoints/best.ckpt"],
    "checkpoints and a readme": ["checkpoints/best.ckpt", "README.md"],
    "many": ["checkpoints/epoch-3/model.pt", "report.html", "README.md", "config.json", "model.safetensors"],
    "steps": ["checkpoints/step-500/model.safetensors"],
    "steps of ten digits": ["checkpoints/step-0000000500/model.safetensors"],
    "steps with a manifest": ["checkpoints/step-0000000500/manifest.json", "checkpoints/step-0000000500/weights.bin"],
    "a manifest": ["manifest.json"],
    "a staged manifest": [".next/manifest.json", "README.md"],
    "a table of samples": ["samples.safetensors", "README.md"],
    "a log": ["log.jsonl"],
    "a lock": [".lock"],
}


def put(folder: Path, files: list[str]) -> dict[str, bytes]:
    """Files of somebody else."""
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps({"epoch": 1, "step": 1, "loss": 1.5, "files": {}}))
    return held(folder)


def held(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in names(folder) if (folder / name).is_file()}


def refused(out: Path, **wishes: Any) -> str:
    with pytest.raises(UsageError) as error:
        fit(pictures(), config=recipe(), out=out, on_epoch=lambda row: pytest.fail("it trained"), **wishes)
    assert error.value.exit_code == 2
    assert "\n" not in str(error.value)
    return str(error.value)


@cases("kind", LIKE_OTHERS)
def test_a_folder_that_only_looks_like_a_run_is_refused_before_training(tmp_path: Path, kind: str) -> None:
    before = put(tmp_path, LIKE_OTHERS[kind])
    for wishes in FLAGS:
        said = refused(tmp_path, **wishes)
        assert "that provnet did not write; choose another folder" in said
        assert all(f'"{name.split("/")[0]}"' in said for name in before)
    with pytest.raises(UsageError, match="that provnet did not write"):
        run_demo(tmp_path, epochs=1, limit=20)
    assert held(tmp_path) == before


def test_a_run_that_was_interrupted_does_not_vouch_for_files_put_beside_it(tmp_path: Path) -> None:
    interrupt(pictures(), tmp_path, at=2)
    before = put(tmp_path, ["README.md", "config.json", "notes.txt"])
    for wishes in FLAGS[1:]:
        assert 'beside its run it holds "README.md", "config.json" that provnet' in refused(tmp_path, **wishes)
        assert held(tmp_path) == before


@pytest.mark.parametrize("wishes", FLAGS[1:])
@pytest.mark.parametrize("whole", [True, False])
def test_what_lies_beside_a_run_and_its_checkpoints_stays(tmp_path: Path, wishes: dict[str, bool], whole: bool) -> None:
    if whole:
        fit(pictures(), config=recipe(), out=tmp_path)
    else:
        interrupt(pictures(), tmp_path, at=2)
    own = ["notes.txt", "checkpoints/best.ckpt", "checkpoints/epoch-3/model.pt"]
    put(tmp_path, own)
    run = fit(pictures(), config=recipe(), out=tmp_path, checkpoint_seconds=0, **wishes)
    same_bits(read_run(tmp_path), run)
    assert set(own) <= set(names(tmp_path))
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == ["best.ckpt", "epoch-3"]


@pytest.mark.parametrize("wishes", FLAGS[1:])
def test_checkpoints_of_others_that_training_would_drop_are_refused(tmp_path: Path, wishes: dict[str, bool]) -> None:
    interrupt(pictures(), tmp_path, at=2)
    before = put(tmp_path, ["checkpoints/step-500/model.pt"])
    assert 'beside its run it holds "checkpoints"' in refused(tmp_path, **wishes)
    assert held(tmp_path) == before


@pytest.mark.parametrize("name", ["step-0000000099", "step-500", "step-best"])
def test_checkpoints_of_others_that_come_while_training_are_not_dropped(tmp_path: Path, name: str) -> None:
    own = f"checkpoints/{name}/weights.bin"

    fit(pictures(), config=recipe(), out=tmp_path, on_epoch=lambda _: put(tmp_path, [own]), checkpoint_seconds=0)
    assert (tmp_path / own).read_text().startswith("{")
    assert names(tmp_path / "checkpoints") == [name, f"{name}/weights.bin"]


def test_a_checkpoint_is_not_written_over_something_else(tmp_path: Path) -> None:
    before = put(tmp_path, ["checkpoints/step-0000000000/weights.bin"])
    net = nn.Linear(2, 2)
    with pytest.raises(UsageError, match="step-0000000000 has the name of a checkpoint, but provnet did not write it"):
        save_checkpoint(tmp_path, net, torch.optim.SGD(net.parameters()), fresh_state(4, torch.device("cpu")), {})
    assert held(tmp_path) == before


def test_a_next_folder_of_others_beside_a_run_is_refused_before_training(tmp_path: Path) -> None:
    fit(pictures(), config=recipe(), out=tmp_path)
    before = put(tmp_path, [".next/build.js"])
    assert '".next"' in refused(tmp_path, overwrite=True)
    assert held(tmp_path) == before


def test_a_lock_of_another_program_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("4711\n/var/lib/other\n")
    before = held(tmp_path)
    for wishes in FLAGS:
        assert 'it holds ".lock"' in refused(tmp_path, **wishes)
    assert held(tmp_path) == before


def test_a_folder_with_the_name_of_a_file_is_not_removed(tmp_path: Path) -> None:
    fit(pictures(), config=recipe(), out=tmp_path)
    before = put(tmp_path, ["report.html/mine.txt"])
    assert '"report.html"' in refused(tmp_path, overwrite=True)
    assert held(tmp_path) == before


def test_a_folder_of_checkpoints_behind_a_link_is_used_and_the_link_stays(tmp_path: Path) -> None:
    out, disk = tmp_path / "run", tmp_path / "disk"
    interrupt(pictures(), out, at=2)
    (out / "checkpoints").rename(disk)
    (out / "checkpoints").symlink_to(disk)
    put(disk, ["mine.txt"])
    same_bits(fit(pictures(), config=recipe(), out=out, resume=True), fit(pictures(), config=recipe()))
    assert (out / "checkpoints").is_symlink()
    assert names(disk) == ["mine.txt"]


@pytest.mark.parametrize("wishes", FLAGS)
def test_what_a_kill_before_the_first_checkpoint_leaves_is_ours(tmp_path: Path, wishes: dict[str, bool]) -> None:
    temporary = tmp_path / "checkpoints" / ".tmp-999999999-0a1b2c3d-step-0000000001"
    temporary.mkdir(parents=True)
    fit(pictures(), config=recipe(), out=tmp_path, **wishes)
    assert not (tmp_path / "checkpoints").exists()


def test_a_run_with_a_damaged_manifest_can_be_replaced_but_not_resumed(tmp_path: Path) -> None:
    fit(pictures(), config=recipe(), out=tmp_path)
    (tmp_path / "manifest.json").write_bytes(b"{}")
    with pytest.raises(IntegrityError, match="manifest"):
        fit(pictures(), config=recipe(), out=tmp_path, resume=True)
    assert "already holds a run" in refused(tmp_path)
    fit(pictures(), config=recipe(), out=tmp_path, overwrite=True)


@pytest.mark.parametrize("gone", range(1, len(run_folder.OURS) + 1))
def test_an_overwrite_killed_anywhere_can_be_given_again(tmp_path: Path, gone: int) -> None:
    """Also beside files of others, as the demo has them."""
    out = tmp_path / "run"
    fit(pictures(), config=recipe(epochs=1), out=out)
    put(out, ["report.html", "evaluation.json", "notes.txt"])
    for name in run_folder.OURS[:gone]:
        run_folder.remove(out / name)
    if (out / "samples.safetensors").exists():
        for wishes in FLAGS[:2]:
            assert "was being replaced; replace it with --overwrite" in refused(out, **wishes)
    run_folder.check_before(out, resume=False, overwrite=True)
    assert names(out) == [".lock", "notes.txt"]


def test_a_demo_goes_over_its_own_interrupted_output_alone(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    out.mkdir()
    (out / ".lock").write_text(f"{os.getpid()}\n")
    interrupt(pictures(), out / "planted", at=1)
    refuse_foreign(out)
    for mine, name in (("planted/README.md", "README.md"), ("debug/report.html", "report.html")):
        before = put(out, [mine])
        with pytest.raises(UsageError, match=name):
            run_demo(out, epochs=1, limit=20)
        assert held(out) == before
        (out / mine).unlink()
    shutil.rmtree(out / "planted")
    put(out, ["audit/audit.json"])
    with pytest.raises(UsageError, match=r"audit\.json"):
        run_demo(out, epochs=1, limit=20)

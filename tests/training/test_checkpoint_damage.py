"""Damaged checkpoints are named and the one before is taken; what a kill leaves is tidied up."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from provnet.base.errors import IntegrityError
from provnet.runs.run import verify_files
from provnet.training.checkpoint import load_checkpoint
from provnet.training.session import LOG
from tests.counts import count, grows
from tests.fitting import fit
from tests.modelfile.faults import KilledError

from .made import interrupt, names, pictures, recipe, same_bits, step_of
from .refused import refusal


def damage(path: Path, how: str) -> None:
    raw = bytearray(path.read_bytes())
    if how == "flipped":
        raw[len(raw) // 2] ^= 4
        path.write_bytes(raw)
    elif how == "cut":
        path.write_bytes(raw[: len(raw) * 2 // 3])
    elif how == "emptied":
        path.write_bytes(b"")
    else:
        path.unlink()


FILES = (
    "manifest.json", "state.json", "model.safetensors", "progress.safetensors", "optimizer-step.safetensors",
    "optimizer-exp_avg.safetensors", "optimizer-exp_avg_sq.safetensors", "snapshot-1.safetensors",
)  # fmt: skip


@pytest.mark.parametrize("how", ["flipped", "cut", "emptied", "gone"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_taken(
    tmp_path: Path, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupt(pictures(), tmp_path / "run", at=5, saved=[3, 5])
    for number, file in enumerate(FILES):
        out = tmp_path / str(number)
        shutil.copytree(tmp_path / "run", out)
        newest = out / "checkpoints" / "step-0000000005"
        assert sorted(p.name for p in newest.iterdir()) == sorted(FILES)
        damage(newest / file, how)
        assert step_of(out) == 3
        said = capsys.readouterr().err
        assert "checkpoint step-0000000005 is damaged and is left out" in said
        assert file.removesuffix(".json") in said
    same_bits(fit(pictures(), config=recipe(), out=out, resume=True), fit(pictures(), config=recipe()))
    assert "is damaged and is left out" in capsys.readouterr().err


def test_damaged_checkpoints_alone_do_not_resume(tmp_path: Path) -> None:
    interrupt(pictures(), tmp_path / "run", at=5, saved=[3, 5])
    for folder in (tmp_path / "run" / "checkpoints").iterdir():
        damage(folder / "model.safetensors", "flipped")
    assert "none of the 2 checkpoints" in refusal(tmp_path / "run")


@grows
def test_no_flipped_bit_of_a_checkpoint_goes_unnoticed(tmp_path: Path) -> None:
    interrupt(pictures(), tmp_path / "run", at=1, backbone="mlp")
    files = sorted((tmp_path / "run" / "checkpoints" / "step-0000000001").iterdir())
    chance = torch.Generator().manual_seed(0)

    def draw(below: int) -> int:
        return int(torch.randint(below, (), generator=chance))

    accepted = []
    for _ in range(count(40, 1000)):
        path = files[draw(len(files))]
        raw = path.read_bytes()
        changed = bytearray(raw)
        place = draw(len(raw))
        changed[place] ^= 1 << draw(8)
        path.write_bytes(changed)
        with suppress(IntegrityError):
            found = load_checkpoint(tmp_path / "run")
            accepted.append((path.name, place, found))
        path.write_bytes(raw)
    assert step_of(tmp_path / "run") == 1
    assert accepted == []


def test_a_good_checkpoint_is_not_dropped_for_damaged_later_ones(tmp_path: Path) -> None:
    """After a fall back the next checkpoints have lower steps than the damaged ones that are still there."""
    out = tmp_path / "run"
    interrupt(pictures(), out, at=2, saved=[2])
    good = out / "checkpoints" / "step-0000000002"
    for step in (8, 9):
        (good.with_name(f"step-{step:010d}")).mkdir()
        (good.with_name(f"step-{step:010d}") / "manifest.json").write_text("{}")
    interrupt(pictures(), out, at=4, saved=[3, 4])
    assert sorted(p.name for p in good.parent.iterdir()) == ["step-0000000003", "step-0000000004"]
    assert step_of(out) == 4
    same_bits(fit(pictures(), config=recipe(), out=out, resume=True), fit(pictures(), config=recipe()))


def test_killed_while_an_old_checkpoint_is_removed_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(folder: Path, **_: object) -> None:
        for path in folder.iterdir():
            if path.name != "progress.safetensors":
                path.unlink()
        raise KilledError

    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", killed)
        with pytest.raises(KilledError):
            fit(pictures(), config=recipe(), out=out, checkpoint_seconds=0)
    assert step_of(out) == 3
    same_bits(fit(pictures(), config=recipe(), out=out, resume=True), fit(pictures(), config=recipe()))
    assert not (out / "checkpoints").exists()


def test_what_a_kill_leaves_after_the_run_was_whole_is_tidied_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the last write and the removal of the checkpoints, or while files get their plain names."""
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("provnet.training.session.clear_checkpoints", lambda folder: None)
        run = fit(pictures(), config=recipe(), out=out, checkpoint_seconds=0)
    (out / ".next").mkdir()
    for name in ("manifest.json", "config.json"):
        (out / name).rename(out / ".next" / name)
    assert (out / "checkpoints").is_dir()
    same_bits(fit(pictures(), config=recipe(), out=out, resume=True), run)
    left = ["README.md", "config.json", "history.safetensors", LOG, "manifest.json", "model.safetensors"]
    assert names(out) == sorted([".lock", *left, "samples.safetensors", "snapshots.safetensors"])
    assert [check.why for check in verify_files(out)] == ["ok"] * 7

"""Which folder a run may begin or go on in: locks, changed settings, what lies there already, damaged checkpoints."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from provnet.errors import IntegrityError, UsageError
from provnet.modelfile import read_run, verify_files
from provnet.training.checkpoint import load_checkpoint
from provnet.training.config import TrainConfig
from provnet.training.fit import fit
from provnet.training.folder import LOG
from tests.counts import count, grows

from .made import interrupt, names, pictures, recipe, same_bits, step_of, tensor_hashes

HOLDER = """
import sys
from pathlib import Path
from provnet.training.lock import run_lock
with run_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock of a folder."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-c", HOLDER, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        try:
            yield child
        finally:
            child.kill()


@pytest.mark.parametrize("wishes", [{}, {"resume": True}, {"overwrite": True}])
def test_a_second_run_in_a_folder_is_refused_and_the_process_named(tmp_path: Path, wishes: dict[str, bool]) -> None:
    out = tmp_path / "run"
    with held(out) as child:
        before = names(out)
        with pytest.raises(UsageError, match=rf"in use by another provnet run \(process {child.pid}\)"):
            fit(pictures(), config=recipe(), out=out, **wishes)
        assert names(out) == before


def test_a_running_run_keeps_others_out_of_its_checkpoints(tmp_path: Path) -> None:
    """The same from the inside: a second fit while the first is at work."""
    out, said = tmp_path / "run", []

    def second(row: object) -> None:
        with pytest.raises(UsageError) as error:
            fit(pictures(), config=recipe(), out=out, overwrite=True)
        said.append(str(error.value))

    run = fit(pictures(), config=recipe(), out=out, checkpoint_seconds=0, on_epoch=second)
    assert len(said) == 3
    assert all(f"process {os.getpid()}" in text for text in said)
    same_bits(run, fit(pictures(), config=recipe()))


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with held(out) as child:
        child.kill()
        child.wait()
        assert (out / ".lock").read_text().strip() == str(child.pid)
        fit(pictures(), config=recipe(), out=out)
    assert (out / ".lock").read_text().strip() == str(os.getpid())


def test_a_lock_file_that_names_a_living_process_without_holding_it_does_not_count(tmp_path: Path) -> None:
    """Process numbers come round again; only the kernel's lock counts."""
    out = tmp_path / "run"
    out.mkdir()
    (out / ".lock").write_text(f"{os.getppid()}\n")
    fit(pictures(), config=recipe(), out=out)


CHANGED: dict[str, Any] = {
    "preset": "paper", "epochs": 4, "batch_size": 9, "lr": 3e-3, "weight_decay": 0.1, "betas": (0.8, 0.99),
    "schedule": "step", "warmup": 2.0, "step_every": 9, "step_factor": 0.5, "smoothing": 0.1, "task_weight": 0.9,
    "index_weight": 0.8, "precision": "bf16-mixed", "augment": "tiny", "negatives": 9, "seed": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def halfway(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was interrupted after its fourth step."""
    out = tmp_path_factory.mktemp("halfway") / "run"
    interrupt(pictures(), out, at=4, backbone="small")
    return out


def refusal(out: Path, data: Any = None, **wishes: Any) -> str:
    """What resuming says, and that it changed nothing."""
    before = {name: (out / name).read_bytes() for name in names(out) if (out / name).is_file()}
    with pytest.raises(IntegrityError) as error:
        fit(
            pictures() if data is None else data,
            **{"config": recipe(), "backbone": "small", **wishes},
            out=out,
            resume=True,
        )
    assert {name: (out / name).read_bytes() for name in names(out) if (out / name).is_file()} == before
    assert error.value.exit_code == 6
    assert "\n" not in str(error.value)
    return str(error.value)


def test_every_setting_has_a_change_here() -> None:
    assert {field.name for field in fields(TrainConfig)} == set(CHANGED)


@pytest.mark.parametrize("name", CHANGED)
def test_another_setting_does_not_resume(halfway: Path, name: str) -> None:
    settings = {"preset": "fast", "weight_decay": 5e-2, "betas": (0.9, 0.99), "schedule": "one-cycle"}
    config = TrainConfig(**{"epochs": 3, "batch_size": 8, **settings, name: CHANGED[name]})
    text = refusal(halfway, config=config)
    before = getattr(recipe(), name)
    shown = list(before) if isinstance(before, tuple) else before
    assert f"training.{name}: {shown} -> " in text
    also = {"precision": 2}  # its effect on this machine is a setting of its own
    assert f"{also.get(name, 1)} settings differ" in text


@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        ({"network": "class-conditional-heads"}, ["network.network: class-conditional -> class-conditional-heads"]),
        ({"backbone": "mlp"}, ["network.backbone: small -> mlp"]),
        ({"conditional": False}, ["network.conditional: True -> False"]),
        ({"alpha": 0.25}, ["network.alpha: 0.0 -> 0.25"]),
        ({"level": 2}, ["network.level: 3 -> 2"]),
        ({"data": pictures(seed=1)}, ["data.fingerprint: "]),
        ({"data": pictures(24)}, ["data.fingerprint: ", "data.samples: 23 -> 24"]),
        ({"data": pictures(shape=(1, 8, 9))}, ["network.input_shape: [1, 8, 8] -> [1, 8, 9]"]),
        (
            {"config": recipe(seed=1, lr=1e-3, batch_size=4), "alpha": 0.5},
            ["training.seed: 0 -> 1", "training.lr: 0.002 -> 0.001", "training.batch_size: 8 -> 4", "network.alpha: "],
        ),
    ],
)
def test_another_network_or_data_set_does_not_resume(halfway: Path, wishes: dict[str, Any], words: list[str]) -> None:
    text = refusal(halfway, **wishes)
    assert [word for word in words if word not in text] == []


def test_another_order_of_the_same_samples_does_not_resume(halfway: Path) -> None:
    text = refusal(halfway, pictures().select(torch.arange(22, -1, -1)))
    assert "data.fingerprint" in text


def test_another_number_of_threads_does_not_resume(halfway: Path) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        text = refusal(halfway)
    finally:
        torch.set_num_threads(threads)
    assert f"1 settings differ: machine.threads: {threads} -> {threads + 1}" in text


def test_a_finished_run_is_compared_too(tmp_path: Path) -> None:
    fit(pictures(), config=recipe(), out=tmp_path / "run")
    text = refusal(tmp_path / "run", config=recipe(seed=2, epochs=4))
    assert "training.epochs: 3 -> 4; training.seed: 0 -> 2" in text


def test_another_backbone_of_ones_own_does_not_resume(tmp_path: Path) -> None:
    def flat(width: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, width))

    interrupt(pictures(), tmp_path / "run", at=2, backbone=flat(8))
    assert "another backbone" in refusal(tmp_path / "run", backbone=flat(9))


def test_a_folder_that_holds_a_run_is_refused_unless_told(tmp_path: Path) -> None:
    done, begun = tmp_path / "done", tmp_path / "begun"
    first = fit(pictures(), config=recipe(), out=done)
    interrupt(pictures(), begun, at=2)
    for out in (done, begun):
        before = names(out)
        with pytest.raises(UsageError, match=r"already holds a run.*--resume.*--overwrite"):
            fit(pictures(), config=recipe(), out=out)
        assert names(out) == before
        other = fit(pictures(), config=recipe(seed=1), out=out, overwrite=True)
        assert tensor_hashes(read_run(out)) == tensor_hashes(other) != tensor_hashes(first)
        assert not (out / "checkpoints").exists()


@pytest.mark.parametrize("wishes", [{}, {"resume": True}, {"overwrite": True}])
@pytest.mark.parametrize("thing", ["thesis.tex", "README.md", "config.json", "model.safetensors", ".git"])
def test_a_folder_of_something_else_is_refused_and_left_alone(
    tmp_path: Path, thing: str, wishes: dict[str, bool]
) -> None:
    out = tmp_path / "run"
    out.mkdir()
    (out / thing).write_text("years of work")
    with pytest.raises(UsageError, match=rf'is not a run folder: it holds "{thing}"'):
        fit(pictures(), config=recipe(), out=out, **wishes)
    assert names(out) == [thing]
    assert (out / thing).read_text() == "years of work"


@pytest.mark.parametrize("what", ["is a file", "lies under a file", "is read-only"])
def test_a_folder_that_cannot_be_written_is_refused_before_training(what: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "file").write_text("x")
        (folder / "locked").mkdir(mode=0o555)
        goal = {"is a file": "file", "lies under a file": "file/run", "is read-only": "locked"}[what]
        with unprivileged(), pytest.raises(UsageError) as error:
            fit(pictures(), config=recipe(), out=folder / goal, on_epoch=lambda row: pytest.fail("it trained"))
        assert str(folder / goal) in str(error.value)
        assert error.value.exit_code == 2
        assert names(folder) == ["file", "locked"]


@contextmanager
def unprivileged() -> Iterator[None]:
    """As somebody whom permissions bind, where the tests run as root."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


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
    "optimizer-exp_avg.safetensors", "optimizer-exp_avg_sq.safetensors",
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


def test_what_a_kill_leaves_after_the_run_was_whole_is_tidied_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the last write and the removal of the checkpoints, or while files get their plain names."""
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("provnet.training.folder.clear_checkpoints", lambda folder: None)
        run = fit(pictures(), config=recipe(), out=out, checkpoint_seconds=0)
    (out / ".next").mkdir()
    for name in ("manifest.json", "config.json"):
        (out / name).rename(out / ".next" / name)
    assert (out / "checkpoints").is_dir()
    same_bits(fit(pictures(), config=recipe(), out=out, resume=True), run)
    left = ["README.md", "config.json", "history.safetensors", LOG, "manifest.json", "model.safetensors"]
    assert names(out) == sorted([".lock", *left, "samples.safetensors"])
    assert [check.why for check in verify_files(out)] == ["ok"] * 6

"""Any flipped bit, any lost or added byte of any file of a run is refused, and the file is named."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from provnet.base.errors import IntegrityError, ProvnetError, UnsafeFileError
from provnet.runs.run import read_run, verify_files, write_run
from tests.cases import cases
from tests.counts import count, grows

from .made import make_run

FILES = (
    "README.md", "config.json", "history.safetensors", "manifest.json", "model.safetensors", "samples.safetensors",
)  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("whole")
    write_run(make_run(), folder)
    assert sorted(p.name for p in folder.iterdir()) == list(FILES)
    yield folder
    read_run(folder)  # the tests put back what they damaged


def refused(folder: Path, name: str, raw: bytes, original: bytes) -> None:
    try:
        (folder / name).write_bytes(raw)
        with pytest.raises((IntegrityError, UnsafeFileError)) as caught:
            read_run(folder)
        assert name in str(caught.value)
        assert "\n" not in str(caught.value)
        assert caught.value.exit_code in (6, 7)
        bad = [check for check in verify_files(folder) if check.why != "ok"]
        assert [check.name for check in bad] == [name]
        assert bad[0].exit_code in (6, 7)
    finally:
        (folder / name).write_bytes(original)


@grows
@pytest.mark.parametrize("seed", range(count(60, 500)))
def test_a_flipped_bit_is_refused(whole: Path, seed: int) -> None:
    rng = random.Random(seed)
    name = rng.choice(FILES)
    original = (whole / name).read_bytes()
    # Half of the flips hit the first kilobyte, where headers are: in large files they would be rare otherwise.
    position = rng.randrange(min(1024, len(original)) if rng.random() < 0.5 else len(original))
    raw = bytearray(original)
    raw[position] ^= 1 << rng.randrange(8)
    refused(whole, name, bytes(raw), original)


@grows
@pytest.mark.parametrize("seed", range(count(15, 100)))
def test_a_truncated_file_is_refused(whole: Path, seed: int) -> None:
    rng = random.Random(seed)
    name = FILES[seed % len(FILES)]
    original = (whole / name).read_bytes()
    kept = (0, 1, 7, 8, len(original) - 1)[seed // len(FILES)] if seed < 30 else rng.randrange(len(original))
    refused(whole, name, original[:kept], original)


@cases("name", FILES)
def test_trailing_bytes_are_refused(whole: Path, name: str) -> None:
    original = (whole / name).read_bytes()
    for extra in (b"\0", b"\n", original):
        refused(whole, name, original + extra, original)


@cases("name", FILES)
def test_a_missing_file_is_refused_by_name(whole: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "run"
    shutil.copytree(whole, folder)
    (folder / name).unlink()
    with pytest.raises(IntegrityError, match=name.replace(".", r"\.")):
        read_run(folder)


def test_files_of_two_runs_do_not_mix(tmp_path: Path) -> None:
    for seed in (1, 2):
        write_run(make_run(seed=seed), tmp_path / str(seed))
    shutil.copy(tmp_path / "1" / "model.safetensors", tmp_path / "2" / "model.safetensors")
    with pytest.raises(IntegrityError, match=r"model\.safetensors is damaged or was changed"):
        read_run(tmp_path / "2")


def test_a_pipe_in_place_of_a_file_is_refused_without_waiting(tmp_path: Path) -> None:
    import os

    write_run(make_run(), tmp_path)
    (tmp_path / "config.json").unlink()
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(UnsafeFileError, match=r"config\.json is not a plain file"):
        read_run(tmp_path)


def test_extra_files_beside_a_run_do_no_harm(tmp_path: Path) -> None:
    write_run(make_run(), tmp_path)
    (tmp_path / ".gitattributes").write_text("*.safetensors filter=lfs\n")
    (tmp_path / "evil.pkl").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    assert read_run(tmp_path).folder == tmp_path


def test_every_error_is_of_ours(whole: Path, tmp_path: Path) -> None:
    """A folder of nothing but noise under the right names."""
    folder = tmp_path / "run"
    folder.mkdir()
    rng = random.Random(0)
    for _ in range(50):
        for name in FILES:
            (folder / name).write_bytes(rng.randbytes(rng.randrange(200)))
        with pytest.raises(ProvnetError):
            read_run(folder)

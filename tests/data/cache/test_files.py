"""The files of the picture cache: joined, swept, written by two processes at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from provnet.data import cache as hashcache
from provnet.data.cache import read_part
from provnet.data.rules import DecodeRule
from tests.data.cache.made import aged, assert_equal, files, opened
from tests.data.made import noise, write_folder


@pytest.mark.usefixtures("old_enough")
def test_many_small_files_are_joined_and_dead_rows_go(root: Path, kept: Path, decoded: list[str]) -> None:
    for seed in range(3 * hashcache.PARTS):
        write_folder(root, {f"b/n{seed}.png": noise((6, 5), 100 + seed)})
        if seed == 2:
            (root / "a/1.png").unlink()
        aged(root)
        assert_equal(opened(root, kept), opened(root, None))
        assert len(files(kept)) <= hashcache.PARTS
    decoded.clear()
    opened(root, kept)
    assert decoded == []
    key = hashcache._key(root, DecodeRule())
    known = [path for file in files(kept) for path in read_part(file, key).paths]  # type: ignore[union-attr]
    assert "a/1.png" not in known
    assert len(known) == len(set(known)) == 4 + 3 * hashcache.PARTS


@pytest.mark.usefixtures("old_enough")
def test_a_folder_that_keeps_changing_does_not_fill_the_disk(root: Path, kept: Path) -> None:
    for _ in range(4):
        for path in root.rglob("*.png"):
            path.touch()
        aged(root)
        opened(root, kept)
        rows = sum(len(safetensors.numpy.load_file(file)["rows"]) for file in files(kept))
        assert rows <= 10


@pytest.mark.usefixtures("old_enough")
def test_what_a_killed_process_left_is_swept(root: Path, kept: Path) -> None:
    kept.mkdir()
    (kept / ".tmp-999999999-0a1b2c3d-x.safetensors").write_bytes(b"half")
    opened(root, kept)
    assert [file.name[:1] == "." for file in files(kept)] == [False]


@pytest.mark.usefixtures("old_enough")
def test_two_writers_between_each_others_steps(root: Path, kept: Path, decoded: list[str]) -> None:
    """Both read the cache before either writes; what they add does not collide, and joining twice loses nothing."""
    plain, entries = opened(root, None), sorted(root.rglob("*.png"))

    def one() -> hashcache.PictureCache:
        cache = hashcache.open_cache(str(kept), root, DecodeRule())
        assert cache is not None
        return cache

    def add(cache: hashcache.PictureCache, path: Path) -> None:
        _, stamp = hashcache.read_stamped(path, 10**6, "x")
        i = plain.samples.paths.index(path.relative_to(root).as_posix())
        pixels = plain.samples.pixel_sha256[i]
        shape = tuple(plain.images.shape[1:])
        picture = hashcache.Picture(np.empty(0), plain.samples.sha256[i], pixels, pixels, shape, 1, stamp)
        cache.save([(i, str(plain.samples.paths[i]), picture)], plain.images.numpy())

    for number in range(2 * hashcache.PARTS):
        first, second = one(), one()
        add(first, entries[number % 5])
        add(second, entries[(number + 1) % 5])
        assert_equal(opened(root, kept), plain)
    decoded.clear()
    assert_equal(opened(root, kept), plain)
    assert decoded == []


WRITER = """
import sys, time
from pathlib import Path
from provnet.data import cache as hashcache
from provnet.data.sources.folder import open_folder
from provnet.data.rules import make_options
hashcache.YOUNG = 0
root, kept, go = map(Path, sys.argv[1:])
print("ready", flush=True)
while not go.exists():
    time.sleep(0.001)
print(open_folder(root, "train", make_options({"cache": kept})).samples.fingerprint)
"""


def test_two_processes_at_once(root: Path, kept: Path, tmp_path: Path, decoded: list[str]) -> None:
    command = [sys.executable, "-c", WRITER, str(root), str(kept), str(tmp_path / "go")]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for process in both:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    (tmp_path / "go").touch()
    said = [process.communicate(timeout=60) for process in both]
    plain = opened(root, None)
    assert said == [(plain.samples.fingerprint + "\n", "")] * 2
    decoded.clear()
    assert_equal(opened(root, kept), plain)
    assert decoded == []

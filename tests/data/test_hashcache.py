"""The picture cache: whatever happens to the files or to the cache, the sample table is the one without a cache."""

from __future__ import annotations

import io
import os
import pickle
import random
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from PIL import Image

from provnet.data import hashcache
from provnet.data import pictures as picture_files
from provnet.data.assemble import Opened
from provnet.data.cachefile import read_part
from provnet.data.evidence import CHANGED, evidence
from provnet.data.files import DataWarning
from provnet.data.folder import open_folder
from provnet.data.imagedata import DataSpec, ImageData
from provnet.data.manifest import open_manifest
from provnet.data.rules import DecodeRule, make_options
from provnet.errors import DataError, UsageError
from tests.counts import count, grows
from tests.data.changing import CHANGES, ChangingFolder
from tests.data.made import encode, noise, pictures, write_folder

TICK = 25_000_000  # ns; longer than the steps of any file system's clock here


@pytest.fixture
def old_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that are a blink old count as old, so that the tests need not wait two seconds."""
    monkeypatch.setattr(hashcache, "YOUNG", TICK)


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that were decoded, rather than found in the cache."""
    names: list[str] = []
    real = picture_files.decode_frame
    monkeypatch.setattr(
        picture_files, "decode_frame", lambda blob, name, rule: (names.append(name), real(blob, name, rule))[1]
    )
    return names


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return aged(write_folder(tmp_path / "data", pictures("a/1.png", "a/2.png", "a/deep/3.png", "b/4.png", "b/5.png")))


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def aged(place: Path) -> Path:
    time.sleep(1.2 * TICK / 1e9)
    return place


def opened(root: Path, cache: Path | None, **options: object) -> Opened:
    return open_folder(root, "train", make_options({**options, "cache": False if cache is None else cache}))


def assert_equal(one: Opened, two: Opened) -> None:
    for name in ("sample_ids", "class_names", "paths", "sources"):
        assert getattr(one.samples, name) == getattr(two.samples, name)
    for name in ("sha256", "pixel_sha256", "labels"):
        assert np.array_equal(getattr(one.samples, name), getattr(two.samples, name)), name
    assert np.array_equal(one.images.numpy(), two.images.numpy())
    assert one.skipped == two.skipped


def files(kept: Path) -> list[Path]:
    return sorted(kept.iterdir()) if kept.exists() else []


def sneak(path: Path) -> None:
    """Other pixels in as many bytes, and the old time of modification."""
    before = path.stat()
    with Image.open(path) as image:
        pixels = np.array(image)
    path.write_bytes(encode(pixels ^ 1, compress_level=0)[: before.st_size].ljust(before.st_size, b"\0"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert path.stat().st_mtime_ns == before.st_mtime_ns


@pytest.mark.usefixtures("old_enough")
def test_a_second_opening_decodes_nothing(root: Path, kept: Path, decoded: list[str]) -> None:
    plain = opened(root, None)
    assert_equal(opened(root, kept), plain)
    (file,) = files(kept)
    assert set(safetensors.numpy.load_file(file)) == {"rows", "paths", "pixels"}  # the library agrees with our writing
    decoded.clear()
    for _ in range(2):
        assert_equal(opened(root, kept), plain)
    assert decoded == []
    assert files(kept) == [file]
    again = opened(root, kept)
    again.images.zero_()  # the pixels are the caller's own
    assert_equal(opened(root, kept), plain)


@pytest.mark.usefixtures("old_enough")
def test_only_new_files_are_decoded(root: Path, kept: Path, decoded: list[str]) -> None:
    opened(root, kept)
    write_folder(root, {"b/0.png": noise((6, 5), 77)})
    aged(root)
    decoded.clear()
    found = opened(root, kept)
    assert decoded == ["b/0.png"]
    assert_equal(found, opened(root, None))
    decoded.clear()
    assert len(opened(root, kept, limit=2).samples) == 2  # part of it, or another split, shares the cache
    assert decoded == []


def test_young_files_are_not_kept(root: Path, kept: Path) -> None:
    for _ in range(2):
        assert_equal(opened(root, kept), opened(root, None))
    assert files(kept) == []


@pytest.mark.usefixtures("old_enough")
def test_a_file_that_changes_while_it_is_read_is_not_kept(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = root / "a/1.png"
    assert hashcache.read_stamped(path, 10**6, "x") == (path.read_bytes(), hashcache.stamp_of(path.stat()))
    real, calls = hashcache.stamp_of, []
    monkeypatch.setattr(hashcache, "stamp_of", lambda found: (calls.append(1), (*real(found)[:2], len(calls), 0, 0))[1])
    assert hashcache.read_stamped(path, 10**6, "x") == (path.read_bytes(), None)


def restore(path: Path, before: os.stat_result) -> None:
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def swap(root: Path) -> None:
    one, two = root / "a/1.png", root / "b/4.png"
    one.rename(root / "x")
    two.rename(one)
    (root / "x").rename(two)


def replace_file(root: Path) -> None:
    path, before = root / "a/1.png", (root / "a/1.png").stat()
    path.unlink()
    path.write_bytes(encode(noise((6, 5), 99)))
    restore(path, before)


def edit_in_place(root: Path) -> None:
    path, before = root / "a/1.png", (root / "a/1.png").stat()
    path.write_bytes(encode(noise((6, 5), 98)))
    restore(path, before)


def point_elsewhere(root: Path) -> None:
    (root / "a/1.png").unlink()
    (root / "a/1.png").symlink_to(root / "b/4.png")


EDITS: dict[str, Callable[[Path], object]] = {
    "same size and time": lambda root: sneak(root / "a/1.png"),
    "another file under the name": replace_file,
    "edited, time restored": edit_in_place,
    "two swapped": swap,
    "renamed": lambda root: (root / "a/1.png").rename(root / "b/9.png"),
    "deleted": lambda root: (root / "a/1.png").unlink(),
    "a link instead": point_elsewhere,
    "touched": lambda root: os.utime(root / "a/1.png", (1, 1)),
}


@pytest.mark.usefixtures("old_enough")
@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS.keys())
def test_every_edit_is_noticed(edit: Callable[[Path], object], root: Path, kept: Path) -> None:
    (root / "a/1.png").write_bytes(encode(noise((6, 5), 50), compress_level=0))  # stored, so that it can keep its size
    aged(root)
    before = opened(root, kept)
    edit(root)
    aged(root)
    now = opened(root, None)
    for _ in range(2):  # once from files, once from what the first time kept
        assert_equal(opened(root, kept), now)
    same = before.samples.fingerprint == now.samples.fingerprint
    assert same is (edit is EDITS["touched"])


@pytest.mark.usefixtures("old_enough")
def test_without_the_time_of_change_an_edit_would_go_unnoticed(
    root: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above can fail, and even then no wrong picture is shown as evidence."""
    real = hashcache.stamp_of
    monkeypatch.setattr(hashcache, "stamp_of", lambda found: (*real(found)[:2], 0, *real(found)[3:]))
    path = root / "a/1.png"
    path.write_bytes(encode(noise((6, 5), 50), compress_level=0))
    aged(root)
    then = opened(root, kept).samples
    sneak(path)
    aged(root)
    stale = opened(root, kept)
    assert stale.samples.fingerprint == then.fingerprint != opened(root, None).samples.fingerprint
    data = ImageData(stale.images, stale.samples, DataSpec(str(root), "folder"))
    shown = evidence(then, data, range(len(then)))
    assert [found.note for found in shown] == [CHANGED, "", "", "", ""]


@pytest.mark.usefixtures("old_enough")
@pytest.mark.parametrize("options", [{"size": 4}, {"mode": "rgb"}, {"background": "black", "mode": "rgb"}])
def test_another_rule_has_a_cache_of_its_own(options: dict[str, object], root: Path, kept: Path) -> None:
    (root / "a/1.png").write_bytes(encode(Image.fromarray(noise((6, 5, 4), 3), "RGBA").convert("LA")))
    aged(root)
    opened(root, kept)
    for _ in range(2):
        assert_equal(opened(root, kept, **options), opened(root, None, **options))
    assert len(files(kept)) == 2


def test_another_decoder_or_root_has_a_cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = hashcache._key(tmp_path, DecodeRule())
    assert key == hashcache._key(tmp_path, DecodeRule())
    assert key != hashcache._key(tmp_path / "a", DecodeRule())
    monkeypatch.setattr(hashcache, "_decoder", lambda: ("another Pillow",))
    assert key != hashcache._key(tmp_path, DecodeRule())


def flip(blob: bytes, at: int) -> bytes:
    return blob[:at] + bytes([blob[at] ^ 0x10]) + blob[at + 1 :]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda blob: b"",
    "cut short": lambda blob: blob[:-1],
    "cut in its header": lambda blob: blob[:20],
    "longer": lambda blob: blob + b"\0",
    "text": lambda blob: b"hello" * 100,
    "a pickle": lambda blob: pickle.dumps({"a": 1}),
    "other tensors": lambda blob: safetensors.numpy.save({"a": np.zeros(3, np.float32)}),
    "a header that promises more": lambda blob: (2**40).to_bytes(8, "little") + blob[8:],
    "a flipped bit in a stamp": lambda blob: flip(blob, 8 + int.from_bytes(blob[:8], "little") + 3),
    "a flipped bit in a pixel": lambda blob: flip(blob, len(blob) - 7),
}


@pytest.mark.usefixtures("old_enough")
@pytest.mark.parametrize("harm", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_cache_is_a_warning_and_mended(harm: Callable[[bytes], bytes], root: Path, kept: Path) -> None:
    plain = opened(root, None)
    opened(root, kept)
    (file,) = files(kept)
    file.write_bytes(harm(file.read_bytes()))
    with pytest.warns(DataWarning, match="damaged and read anew|no picture cache that can be used"):
        assert_equal(opened(root, kept), plain)
    assert_equal(opened(root, kept), plain)  # without a warning


@pytest.mark.usefixtures("old_enough")
def test_a_cache_of_other_pictures_is_not_taken(root: Path, kept: Path) -> None:
    opened(root, kept)
    (file,) = files(kept)
    opened(root, kept, size=4)
    (other,) = set(files(kept)) - {file}
    other.write_bytes(file.read_bytes())  # the right name, the wrong content
    with pytest.warns(DataWarning, match="SHA-256 is another"):
        assert_equal(opened(root, kept, size=4), opened(root, None, size=4))


@grows
@pytest.mark.usefixtures("old_enough")
def test_any_flipped_bits_leave_the_table_as_it_is(root: Path, kept: Path) -> None:
    plain = opened(root, None)
    opened(root, kept)
    (file,) = files(kept)
    blob = file.read_bytes()
    dice = random.Random(0)
    for _ in range(count(60, 5_000)):
        for path in files(kept):
            path.unlink()
        file.write_bytes(flip(blob, dice.randrange(len(blob))))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)
            assert_equal(opened(root, kept), plain)


@pytest.mark.usefixtures("old_enough")
def test_a_cache_that_cannot_be_written_is_a_warning(root: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.warns(DataWarning, match="cache was not written"):
        assert_equal(opened(root, tmp_path / "file"), opened(root, None))


@pytest.mark.usefixtures("old_enough")
def test_bad_pictures_are_never_kept_and_cost_nothing_of_the_rest(root: Path, kept: Path, decoded: list[str]) -> None:
    write_folder(root, {"b/bad.png": b"\x89PNG\r\n\x1a\n"})
    aged(root)
    with pytest.raises(DataError, match=r"bad\.png: the file is truncated"):
        opened(root, kept)
    decoded.clear()
    for _ in range(2):
        assert_equal(opened(root, kept, skip_bad=True), opened(root, None, skip_bad=True))
    counts = {name: decoded.count(name) for name in decoded}
    assert counts.pop("b/bad.png") == 4
    assert set(counts.values()) == {2}  # by the two openings without a cache


@pytest.mark.usefixtures("old_enough")
def test_frames_are_part_of_the_sample_id(tmp_path: Path, kept: Path) -> None:
    frames = [Image.fromarray(noise((6, 5), seed)) for seed in range(3)]
    blob = io.BytesIO()
    frames[0].save(blob, "GIF", save_all=True, append_images=frames[1:])
    root = aged(write_folder(tmp_path / "data", {"a/1.gif": blob.getvalue(), "a/2.png": noise((6, 5), 9)}))
    for _ in range(2):
        found = opened(root, kept, frame=1, mode="grey")
        assert_equal(found, opened(root, None, frame=1, mode="grey"))
        assert found.samples.sample_ids == ("a/1.gif#1", "a/2.png")


@pytest.mark.usefixtures("old_enough")
def test_manifests_and_odd_names(tmp_path: Path, kept: Path, decoded: list[str]) -> None:
    odd = os.fsdecode(b"a/\xff\n.png")
    root = aged(write_folder(tmp_path / "data", {odd: noise((6, 5), 1), "a/2.png": noise((6, 5), 2)}))
    (tmp_path / "data/list.csv").write_text("path,label,id,source\na/2.png,x,first,me\n")
    plain = open_manifest(root / "list.csv", "train", make_options({}))
    assert_equal(opened(root, kept), opened(root, None))
    decoded.clear()
    assert_equal(opened(root, kept), opened(root, kept))
    assert_equal(open_manifest(root / "list.csv", "train", make_options({"cache": kept})), plain)
    assert decoded == []  # a manifest beside the class folders knows the same files


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
        picture = hashcache.Picture(np.empty(0), plain.samples.sha256[i], plain.samples.pixel_sha256[i], 1, stamp)
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
from provnet.data import hashcache
from provnet.data.folder import open_folder
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


class Changes(RuleBasedStateMachine):
    """Any sequence of changes; after each, an opening with the cache equals one without."""

    total = hits = 0

    def __init__(self) -> None:
        super().__init__()
        self.place = tempfile.TemporaryDirectory()
        self.folder = ChangingFolder(Path(self.place.name))
        self.cache = Path(self.place.name) / "cache"

    @rule(kind=st.sampled_from((*CHANGES, "sneak", "exchange")), seed=st.integers(0, 2**32))
    def change(self, kind: str, seed: int) -> None:
        Changes.total += 1
        paths = self.folder.files()
        if kind == "sneak" and paths:
            path = random.Random(seed).choice(paths)
            before = path.stat()
            path.write_bytes(encode(noise((5, 4), seed)))
            restore(path, before)
        elif kind == "exchange" and len(paths) > 1:
            one, two = random.Random(seed).sample(paths, 2)
            one.rename(self.folder.place / "x")
            two.rename(one)
            (self.folder.place / "x").rename(two)
        else:
            self.folder.change(kind if kind in CHANGES else "add", random.Random(seed))

    @invariant()
    def the_cache_changes_nothing(self) -> None:
        aged(self.folder.root)
        for _ in range(2):
            cache = hashcache.open_cache(str(self.cache), self.folder.root, DecodeRule())
            assert cache is not None
            known = [(path.relative_to(self.folder.root).as_posix(), path) for path in self.folder.files()]
            Changes.hits += sum(found is not None for found in cache.find(known))
            assert_equal(opened(self.folder.root, self.cache), opened(self.folder.root, None))

    def teardown(self) -> None:
        self.place.cleanup()


@pytest.fixture
def empty_classes_are_fine() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*classes without pictures", category=DataWarning)
        yield


@grows
@pytest.mark.usefixtures("old_enough", "empty_classes_are_fine")
def test_no_change_makes_the_cache_lie() -> None:
    wanted = count(60, 5_000)
    Changes.total = Changes.hits = 0
    while Changes.total < wanted:
        run_state_machine_as_test(
            Changes,
            settings=settings(
                max_examples=max(1, (wanted - Changes.total) // 20),
                stateful_step_count=20,
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
    assert Changes.hits > 5 * wanted  # most pictures did come out of the cache


def test_the_option(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROVNET_CACHE", raising=False)
    assert make_options({"cache": None}).cache is None
    monkeypatch.setenv("PROVNET_CACHE", "some/where")
    assert make_options({"cache": None}).cache == str(Path("some/where").absolute())
    assert make_options({"cache": False}).cache is None
    assert make_options({}).cache is None  # who does not ask for one gets none, whatever the environment says
    assert make_options({"cache": "other"}).to_json() == {}
    for bad in (True, 3, ""):
        with pytest.raises(UsageError, match="cache must be a folder"):
            make_options({"cache": bad})
    with pytest.raises(UsageError, match="lies in the data folder"):
        opened(root, root / "cache")
    assert len(opened(root, root / ".cache").samples) == 5  # hidden: never listed


def test_listing_counts_on_stderr(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(picture_files, "_REDRAW", 0)
    opened(root, None, progress=True)
    assert capsys.readouterr() == ("", "")  # not a terminal: nothing
    monkeypatch.setenv("FORCE_COLOR", "1")
    opened(root, None, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "listing pictures" in err
    assert "5 found" in err

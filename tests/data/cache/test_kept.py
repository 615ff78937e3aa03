"""What the picture cache keeps: unchanged files are not decoded again, others are."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
import safetensors.numpy
from PIL import Image

from provnet.base.errors import DataError, UsageError
from provnet.data import cache as hashcache
from provnet.data import pictures as picture_files
from provnet.data.rules import DecodeRule, make_options
from provnet.data.sources.manifest import open_manifest
from tests.data.cache.made import aged, assert_equal, files, opened
from tests.data.made import encode, noise, write_folder


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


@pytest.mark.filterwarnings("ignore:1 left out, not pictures")
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

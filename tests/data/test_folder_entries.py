"""What lies in an image folder besides plain pictures: odd names, links, pipes, files that vanish."""

from __future__ import annotations

import errno
import json
import os
import socket
from pathlib import Path

import numpy as np
import pytest

from provnet import open_data
from provnet.base import files
from provnet.base.errors import DataError
from provnet.base.files import DataWarning
from tests.cases import cases
from tests.data.made import encode, noise, pictures, write_folder

ODD = [
    "😀.png",
    "caf\u00e9.png",
    "cafe\u0301.png",
    "\u05e9\u05dc\u05d5\u05dd\u202e.png",
    "new\nline.png",
    "n" * 251 + ".png",
    "-dash.png",
    "con.png",
    "dot.png.",
    "sp ace .png",
    "back\\xff.png",
    "=cmd|.png",
    "<script>.png",
    "\x1b[2J.png",
    "noextension",
]


def test_odd_names_are_all_taken(tmp_path: Path) -> None:
    (tmp_path / "odd").mkdir()
    raw = [os.fsencode(name) for name in ODD] + [b"back\xff.png", b"\xc3\x28.png"]
    for seed, name in enumerate(raw):
        (tmp_path / "odd" / os.fsdecode(name)).write_bytes(encode(noise((4, 4), seed)))
    data = open_data(tmp_path)
    assert len(data) == len(raw) == 17
    ids = data.samples.sample_ids
    assert json.loads(json.dumps(ids, ensure_ascii=False).encode("utf-8")) == list(ids)
    assert {f"odd/{name}" for name in ODD} <= set(ids)
    assert "odd/\\xc3(.png" in ids
    assert sum(name.startswith("odd/back\\xff.png") for name in ids) == 2  # told apart, though both look the same
    for seed, name in enumerate(raw):
        place = data.samples.paths.index(os.fsdecode(b"odd/" + name))
        assert (data.images[place, 0].numpy() == noise((4, 4), seed)).all()


def test_hidden_files_are_ignored_and_others_named(tmp_path: Path) -> None:
    made = pictures("a/1.png") | {"a/.hidden.png": b"x", ".git/c/x.png": b"x", "a/notes.txt": b"hello", "a/t": b""}
    write_folder(tmp_path, made)
    with pytest.warns(DataWarning) as told:
        assert open_data(tmp_path).samples.sample_ids == ("a/1.png",)
    assert [str(one.message) for one in told] == [
        "1 left out, hidden, as their names begin with a dot: a/.hidden.png",
        "2 left out, not pictures: a/notes.txt, a/t",
    ]


def test_links_inside_are_followed(tmp_path: Path) -> None:
    write_folder(tmp_path, pictures("a/1.png", "b/2.png"))
    (tmp_path / "b/link.png").symlink_to(tmp_path / "a/1.png")
    (tmp_path / "c").symlink_to("a")
    data = open_data(tmp_path)
    assert data.samples.sample_ids == ("a/1.png", "b/2.png", "b/link.png", "c/1.png")
    assert len(np.unique(data.samples.groups)) == 2


@cases("what", ["file", "folder", "dangling", "circle", "itself"])
def test_bad_links_are_refused_by_name_or_counted(tmp_path: Path, what: str) -> None:
    root = write_folder(tmp_path / "root", pictures("a/1.png"))
    outside = write_folder(tmp_path / "outside", pictures("x.png"))
    target = {
        "file": outside / "x.png",
        "folder": outside,
        "dangling": root / "nothing.png",
        "circle": root / "a",
        "itself": root / "a/bad.png",
    }
    (root / "a/bad.png").symlink_to(target[what])
    with pytest.raises(DataError, match=r"a/bad\.png"):
        open_data(root)
    data = open_data(root, skip_bad=True)
    assert len(data) == 1
    assert len(data.skipped) == 1
    assert "bad.png" in data.skipped[0]


def test_pipes_and_sockets_are_never_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path, pictures("a/1.png"))
    os.mkfifo(tmp_path / "a/pipe.png")
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("a/s.png")
        with pytest.warns(DataWarning, match="2 left out, not regular files"):
            assert len(open_data(tmp_path)) == 1


def test_a_pipe_put_in_the_place_of_a_picture_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.png")
    with pytest.raises(DataError, match="not a regular file"):
        files.read_file(tmp_path / "x.png")


def test_a_file_that_vanishes_or_is_unreadable_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path, pictures("a/1.png", "a/2.png"))
    really = os.open
    for number, words in (
        (errno.ENOENT, "was just removed"),
        (errno.EACCES, "permission denied"),
        (errno.ESTALE, "network"),
    ):

        def broken(path: object, *rest: int, number: int = number) -> int:
            if str(path).endswith("2.png"):
                raise OSError(number, "x")
            return really(path, *rest)  # type: ignore[arg-type]

        monkeypatch.setattr(files.os, "open", broken)
        with pytest.raises(DataError, match=rf"a/2\.png: cannot be read .*{words}"):
            open_data(tmp_path)


def test_names_that_differ_in_case_only_are_kept(tmp_path: Path) -> None:
    write_folder(tmp_path, pictures("a/A.png", "a/a.png"))
    with pytest.warns(DataWarning, match="differ in case only"):
        assert len(open_data(tmp_path)) == 2

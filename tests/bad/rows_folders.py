"""Rows 19, 20 and 22 to 31: what lies in a folder of pictures, and how much of it."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from provnet.data import pictures
from provnet.runs.run import read_config, read_samples
from tests.data.made import encode, noise

from .entry import Entry, Place, Said
from .made import SIDE, folder, has_pixels, has_samples, plain_user, train

PICTURE = noise((SIDE, SIDE), 7)


def mixed(place: Place, *options: object) -> list[object]:
    """Eight pictures, two of another size."""
    odd = {"a/wide.png": noise((9, 20)), "b/small.png": noise((5, 5))}
    return train(place, folder(place, odd), *options)


def is_stretched(place: Place, _: Said) -> None:
    has_samples(place, 8)
    assert read_config(place.out).network.input_shape == (1, 64, 64)


def colours(place: Place, *options: object) -> list[object]:
    """Six grey pictures and one in colour."""
    return train(place, folder(place, {"a/red.png": np.full((SIDE, SIDE, 3), (255, 0, 0), np.uint8)}), *options)


def red_is_grey(place: Place, _: Said) -> None:
    has_pixels(place, "a/red.png", np.full((1, SIDE, SIDE), 76, np.uint8))


def red_is_red(place: Place, _: Said) -> None:
    has_pixels(place, "a/red.png", np.broadcast_to(np.array([255, 0, 0], np.uint8)[:, None, None], (3, SIDE, SIDE)))


def linked(target: str, name: str = "link.png") -> Callable[[Place], list[object]]:
    """A link in class a; `outside.png` lies beside the data folder."""

    def given(place: Place) -> list[object]:
        data = folder(place, {})
        place.write("outside/x.png", encode(PICTURE))
        (data / "a" / name).symlink_to(target)
        return train(place, data)

    return given


def link_is_followed(place: Place, _: Said) -> None:
    samples = read_samples(place.out)[1]
    places = samples.id_places
    assert samples.hex(places["a/link.png"]) == samples.hex(places["b/0.png"])


def linked_folder(place: Place) -> list[object]:
    data = folder(place, {})
    (data / "c").symlink_to("a", target_is_directory=True)
    return train(place, data)


def pipe(place: Place) -> list[object]:
    data = folder(place, {})
    os.mkfifo(data / "a" / "pipe.png")
    return train(place, data)


def doorway(place: Place) -> list[object]:
    """A socket; its path must be short."""
    data = folder(place, {})
    place.patch.chdir(data / "a")
    place.stack.enter_context(socket.socket(socket.AF_UNIX)).bind("door.png")
    return train(place, data)


def asked_pipe(place: Place) -> list[object]:
    os.mkfifo(place.tmp / "pipe.png")
    return ["explain", place.kit.run, place.tmp / "pipe.png"]


def locked(place: Place) -> list[object]:
    data = folder(place, {"a/locked.png": PICTURE})
    (data / "a" / "locked.png").chmod(0)
    place.stack.enter_context(plain_user())
    return train(place, data)


def locked_folder(place: Place) -> list[object]:
    data = folder(place, {})
    (data / "c").mkdir(mode=0)
    place.stack.enter_context(plain_user())
    return train(place, data)


def open_again(place: Place, _: Said) -> None:
    (place.tmp / "data" / "c").chmod(0o700)


def failing(place: Place, happen: Callable[[Path], None]) -> list[object]:
    """Something happens to a/late.png between the listing and the reading."""
    data = folder(place, {"a/late.png": PICTURE})
    real = pictures.read_file

    def read(path: Path, *rest: Any) -> bytes:
        if path.name == "late.png" and path.exists():
            happen(path)
        return real(path, *rest)

    place.patch.setattr(pictures, "read_file", read)
    return train(place, data)


def vanished(place: Place) -> list[object]:
    """Only moved away, so that the inputs stay as they were."""

    def hide(path: Path) -> None:
        place.kept["path"] = path.rename(path.with_name(".hidden"))
        place.stack.callback(lambda: place.kept["path"].rename(path))

    return failing(place, hide)


def stale(place: Place) -> list[object]:
    real = os.open

    def lost(path: Any, *rest: Any, **more: Any) -> int:
        if str(path).endswith("late.png"):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))
        return real(path, *rest, **more)

    return failing(place, lambda path: place.patch.setattr(os, "open", lost))


def case(place: Place) -> list[object]:
    return train(place, folder(place, {"a/X.png": noise((SIDE, SIDE), 50), "a/x.png": noise((SIDE, SIDE), 51)}))


def both_cases(place: Place, _: Said) -> None:
    assert {"a/X.png", "a/x.png"} <= set(read_samples(place.out)[1].sample_ids)


def twins(place: Place, *names: str) -> list[object]:
    """Copies of one picture."""
    return train(place, folder(place, dict.fromkeys(names, PICTURE)), "--json")


def grouped(place: Place, said: Said) -> None:
    assert said.json["index_ceiling"] == 7 / 9
    groups = read_samples(place.out)[1].groups
    assert sorted(np.bincount(groups).tolist()) == [1] * 6 + [3]


def contradicted(place: Place, said: Said) -> None:
    assert said.json["label_conflicts"] == 1
    assert said.json["index_ceiling"] == 7 / 8


def only(place: Place, *names: str) -> list[object]:
    """A data set of these pictures alone."""
    for number, name in enumerate(names):
        place.write(f"data/{name}", encode(noise((SIDE, SIDE), number)))
    (place.tmp / "data").mkdir(exist_ok=True)
    return train(place, place.tmp / "data", "--json")


def empty_class(place: Place) -> list[object]:
    (folder(place, {}) / "nobody").mkdir()
    return train(place, place.tmp / "data", "--json")


def never_predicted(place: Place, said: Said) -> None:
    assert said.json["classes"] == 3
    found = place.call("explain", place.out, *sorted((place.tmp / "data").rglob("*.png")), "--json")
    assert {record["predicted"] for record in found.json} <= {"a", "b"}
    figures = place.call("evaluate", place.out, "--json").json  # no test split: nothing measured is no NaN
    assert figures["class_accuracy"] == {"value": None, "n": 0, "low": None, "high": None}


def named_alone(place: Place, said: Said) -> None:
    """What is taken for the class of one sample names that sample, with all weight."""
    assert said.json["samples"] == 3
    for record in place.call("explain", place.out, *sorted((place.tmp / "data").rglob("*.png")), "--json").json:
        names = {item["sample_id"] for item in record["exemplars"]}
        assert names == ({"b/0.png"} if record["predicted"] == "b" else {"a/0.png", "a/1.png"})
    assert place.call("verify", place.out).code == 0


def works_after(count: int) -> Callable[[Place, Said], None]:
    """The run names its samples."""

    def after(place: Place, said: Said) -> None:
        assert said.json["samples"] == count
        picture = next((place.tmp / "data").rglob("*.png"))
        found = place.call("explain", place.out, picture, "--json", "-k", 9).json[0]["exemplars"]
        assert len(found) == count
        assert sum(item["weight"] for item in found) > 0.999
        assert place.call("verify", place.out).code == 0

    return after


ROWS = [
    Entry(19, "different sizes", mixed, 0, ("pictures of 3 sizes", "64 x 64", "nothing is cut"), is_stretched),
    Entry(
        19, "different sizes, --size", lambda place: mixed(place, "--size", "8x6"), after=lambda p, _: has_samples(p, 8)
    ),
    Entry(20, "grey and colour mixed", colours, 0, ("6 grey pictures brought to rgb, of 7",), red_is_red),
    Entry(20, "grey and colour mixed, --mode grey", lambda p: colours(p, "--mode", "grey"), after=red_is_grey),
    Entry(20, "grey and colour mixed, --mode rgb", lambda p: colours(p, "--mode", "rgb"), after=red_is_red),
    Entry(22, "link to a picture inside", linked("../b/0.png"), after=link_is_followed),
    Entry(22, "link to a class folder inside", linked_folder, after=lambda p, _: has_samples(p, 9)),
    Entry(22, "link to a picture outside", linked("../../outside/x.png"), 3, ("a/link.png", "leads out", "copy")),
    Entry(22, "link to a folder outside", linked("../../outside"), 3, ("a/link.png", "leads out")),
    Entry(22, "link to /etc/passwd", linked("/etc/passwd"), 3, ("a/link.png", "leads out")),
    Entry(22, "link to the folder above", linked("..", "loop"), 3, ("a/loop", "circle", "remove the link")),
    Entry(22, "link to itself", linked("link.png"), 3, ("a/link.png",)),
    Entry(22, "link to nothing", linked("gone.png"), 3, ("a/link.png", "No such file")),
    Entry(23, "pipe", pipe, 0, ("1 left out, not regular files", "a/pipe.png"), lambda p, _: has_samples(p, 6)),
    Entry(23, "socket", doorway, 0, ("1 left out, not regular files", "a/door.png"), lambda p, _: has_samples(p, 6)),
    Entry(23, "pipe to be explained", asked_pipe, 3, ("pipe.png", "not a regular file")),
    Entry(23, "device to be explained", lambda p: ["explain", p.kit.run, "/dev/zero"], 3, ("not a regular file",)),
    Entry(24, "unreadable picture", locked, 3, ("a/locked.png", "permission denied")),
    Entry(24, "unreadable class folder", locked_folder, 3, ("data/c", "Permission denied"), open_again),
    Entry(24, "picture that vanishes meanwhile", vanished, 3, ("a/late.png", "just removed")),
    Entry(24, "picture on a lost network disk", stale, 3, ("a/late.png", "network file system")),
    Entry(25, "names that differ in case only", case, 0, ("differ in case only", "a/X.png and a/x.png"), both_cases),
    Entry(
        26,
        "exact duplicates",
        lambda place: twins(place, "a/8.png", "a/9.png", "a/sub/7.png"),
        0,
        ("1 group of exact duplicates, 3 of 9 samples", "at most 0.7778"),
        grouped,
    ),
    Entry(
        26,
        "duplicates with different labels",
        lambda place: twins(place, "a/8.png", "b/9.png"),
        0,
        ("1 group of equal pictures carries different labels", "a/8.png (a), b/9.png (b)"),
        contradicted,
    ),
    Entry(
        27,
        "class with one sample",
        lambda place: [*only(place, "a/0.png", "a/1.png", "b/0.png"), "--network", "class-conditional"],
        0,
        ("1 class has one sample", ": b"),
        named_alone,
    ),
    Entry(28, "empty class folder", empty_class, 0, ("1 of 3 classes has no sample", "nobody"), never_predicted),
    Entry(
        29,
        "single class",
        lambda place: only(place, "a/0.png", "a/1.png", "a/2.png"),
        0,
        ("single class: class accuracy is meaningless",),
        works_after(3),
    ),
    Entry(30, "no samples at all", only, 2, ("no pictures found under", "looked for .png, .jpg")),
    Entry(30, "pictures in no class folder", lambda p: only(p, "0.png"), 2, ("no class folder", "such as cat/1.png")),
    Entry(30, "no such folder", lambda p: train(p, p.tmp / "nowhere"), 2, ("nowhere: no such file or folder",)),
    Entry(
        31, "one sample in all", lambda p: only(p, "a/0.png"), 0, ("one sample in all", "meaningless"), works_after(1)
    ),
]

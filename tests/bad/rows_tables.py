"""Rows 32 and 34: manifests, and more samples than memory holds."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from provnet.answers.attributor import attribute
from provnet.heads.index_map import IndexMap
from provnet.models.network import NetworkConfig, build
from provnet.runs.run import read_samples
from tests.data.made import encode, noise

from .entry import Entry, Place, Said
from .made import NETWORK, SIDE, folder, train

GOOD = "path,label\n0.png,a\n1.png,b\n2.png,a\n"


def manifest(content: str | bytes, *options: object) -> Callable[[Place], list[object]]:
    """A manifest beside three pictures, 0.png to 2.png, and one with a comma in its name."""

    def given(place: Place) -> list[object]:
        for number, name in enumerate(("0.png", "1.png", "2.png", "a,b.png")):
            place.write(name, encode(noise((SIDE, SIDE), number)))
        file = place.write("list.csv", content)
        return ["train", file, "--out", place.out, *NETWORK, "--epochs", 1, *options]

    return given


def holds(labels: dict[str, str]) -> Callable[[Place, Said], None]:
    """The run has exactly these samples, in this order, with these labels."""

    def after(place: Place, _: Said) -> None:
        samples = read_samples(place.out)[1]
        assert dict(zip(samples.sample_ids, [samples.class_names[i] for i in samples.labels], strict=True)) == labels
        assert list(samples.sample_ids) == list(labels)

    return after


ABA = holds({"0.png": "a", "1.png": "b", "2.png": "a"})


def good(words: str, content: str | bytes, after: Callable[[Place, Said], None] = ABA, *options: object) -> Entry:
    return Entry(32, f"CSV: {words}", manifest(content, *options), after=after)


def bad(words: str, content: str | bytes, *says: str) -> Entry:
    return Entry(32, f"CSV: {words}", manifest(content), 3, ("list.csv row ", *says))


def no_room(place: Place) -> list[object]:
    """The estimate of the network against a megabyte."""
    place.patch.setattr("provnet.training.setup.available_memory", lambda *_: 2**20)
    return train(place, folder(place, {}))


def no_room_for_pictures(place: Place) -> list[object]:
    place.patch.setattr("provnet.base.files.free_memory", lambda: 500)
    place.patch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=100))
    return train(place, folder(place, {}))


def promising(count: int, extra: bytes = b"") -> bytes:
    """The .npy file of an array that says it has that many values, and holds none."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "|u1", "fortran_order": False, "shape": (count, SIDE, SIDE)})
    return buffer.getvalue() + extra


def archive(place: Place, name: str) -> Any:
    """A small .npz whose `images` would have a thousand million million pixels."""
    path = place.tmp / name
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("images.npy", promising(10**13))
        file.writestr("labels.npy", promising(10**13))
    return path


def unpacking(place: Place) -> Any:
    """A .npz of a few kilobytes that unpacks to 64 MiB, where half a megabyte is free."""
    np.savez_compressed(place.tmp / "packed.npz", images=np.zeros((2**26 // SIDE**2, SIDE, SIDE), np.uint8), labels=[0])
    place.patch.setattr("provnet.base.files.free_memory", lambda: 2**19)
    return place.tmp / "packed.npz"


LARGE = (2**24 + 1, 2**31, 2**53 - 1)


def large_indices(place: Place) -> Callable[[], Any]:
    """A class-conditional head over three samples whose indices no float32 can hold."""
    index_map = IndexMap([0, 0, 0], 1)
    index_map.table = torch.tensor([LARGE])
    net = build(NetworkConfig("class-conditional", "mlp", (4,), classes=1), index_map).eval()
    return lambda: attribute(net, net(torch.randn(5, 4)), k=3)


def are_exact(_: Place, said: Said) -> None:
    for row in said.value.index.tolist():
        assert sorted(row) == sorted(LARGE)
        assert sorted(json.loads(json.dumps(row))) == sorted(LARGE)


ROWS = [
    good("plain", GOOD),
    good("byte order mark", "\ufeff" + GOOD),
    good("CRLF", GOOD.replace("\n", "\r\n")),
    good("CR alone at no end", GOOD.rstrip("\n")),
    good("blank lines", GOOD.replace("\n", "\n\n")),
    good("capitals and spaces in the header", GOOD.replace("path,label", "Path, LABEL")),
    good("columns in another order", "label,path\na,0.png\nb,1.png\na,2.png\n"),
    good("quoted commas", 'path,label\n"a,b.png","x, y"\n0.png,z\n', holds({"a,b.png": "x, y", "0.png": "z"})),
    good(
        'label "1" and 1',
        'path,label\n0.png,"1"\n1.png,1\n2.png,01\n',
        holds({"0.png": "1", "1.png": "1", "2.png": "01"}),
    ),
    good("own ids", "path,label,id\n0.png,a,x/1\n1.png,b,16777217\n", holds({"x/1": "a", "16777217": "b"})),
    good("unknown file, --skip-bad", GOOD + "gone.png,a\n", ABA, "--skip-bad"),
    bad(
        "label nan",
        GOOD.replace("2.png,a", "2.png,nan"),
        "list.csv row 4",
        '"nan" stands for a missing value',
        "leave the row out",
    ),
    bad("label NaN", "path,label\n0.png,NaN\n1.png,b\n", "list.csv row 2", '"NaN" stands for a missing value'),
    bad("missing header", "0.png,a\n1.png,b\n", "list.csv row 1", "path,label[,id,source]"),
    bad("empty file", "", "list.csv row 1", "header"),
    bad("one row twice", GOOD + "1.png,b\n", "list.csv row 5", "1.png stands in row 3 already"),
    bad("one file with two labels", GOOD + "./1.png,a\n", "list.csv row 5", "1.png stands in row 3 already"),
    bad("one id twice", "path,label,id\n0.png,a,x\n1.png,b,x\n", "list.csv row 3", "id x stands in row 2"),
    bad("unknown file", GOOD + "gone.png,a\n", "list.csv row 5", "gone.png", "is not a file in", "--root DIR"),
    bad("path that leads out", GOOD + "../x.png,a\n", "list.csv row 5", "leads out"),
    bad("absolute path", GOOD + "/etc/passwd,a\n", "list.csv row 5", "absolute"),
    bad("too many cells", GOOD + "1.png,b,c\n", "list.csv row 5", "3 cells", "quote commas"),
    bad("too few cells", GOOD + "1.png\n", "list.csv row 5", "1 cells"),
    bad("empty label", GOOD + "1.png,\n", "list.csv row 5", "must not be empty"),
    bad("quote that never ends", GOOD + '"1.png,b\n', "list.csv row 5"),
    bad("cell of 10 MB", f"{GOOD}1.png,{'x' * 10_000_000}\n", "list.csv row 5", "field limit"),
    bad("NUL byte", GOOD + "1.png,\0\n", "list.csv row 5", "NUL"),
    bad("not UTF-8", GOOD.encode() + b"1.png,\xe9\n", "list.csv row 5", "not UTF-8"),
    bad("UTF-16", ("\ufeff" + GOOD).encode("utf-16"), "list.csv row 1", "not UTF-8"),
    Entry(32, "CSV: header alone", manifest("path,label\n"), 3, ("list.csv", "no pictures")),
    Entry(34, "network over the memory there is", no_room, 5, ("training needs about", "GiB", "samples", "smaller")),
    Entry(34, "pictures over the memory there is", no_room_for_pictures, 5, ("take 864 B", "100 B left")),
    Entry(34, "array over any memory", lambda p: train(p, archive(p, "x.npz")), 5, ("x.npz", "memory")),
    Entry(34, "array that unpacks to too much", lambda p: train(p, unpacking(p)), 5, ("packed.npz", "0.1 GiB")),
    Entry(
        34,
        "array over any memory, to be explained",
        lambda p: ["explain", p.kit.run, archive(p, "x.npz")],
        5,
        ("x.npz",),
    ),
    Entry(
        34,
        "plain array over any memory, to be explained",
        lambda place: ["explain", place.kit.run, place.write("x.npy", promising(10**13))],
        5,
        ("x.npy", "memory"),
    ),
    Entry(
        34,
        "array that unpacks to too much, to be explained",
        lambda p: ["explain", p.kit.run, unpacking(p)],
        5,
        ("0.1 GiB",),
    ),
    Entry(34, "indices past 2^24, 2^31 and up to 2^53", large_indices, after=are_exact),
]

"""Webdataset tar files, manifests with columns of any name, and lists of pictures of several sizes."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from provnet import open_data
from provnet.base.errors import DataError, UsageError
from provnet.data.evidence import evidence
from provnet.data.open import reopen
from tests.data.made import encode, noise, write_folder

PICTURES = [noise(shape, i) for i, shape in enumerate([(12, 9, 3), (8, 8), (20, 30, 3), (7, 16, 3)])]


def write_tar(path: Path, files: dict[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def shown(data: object, samples: object) -> list[np.ndarray | None]:
    return [one.picture for one in evidence(samples, data, range(len(samples)))]  # type: ignore[arg-type]


def test_keys_classes_and_whole_pictures_of_a_tar_file(tmp_path: Path) -> None:
    files = {}
    for i, picture in enumerate(PICTURES):
        files |= {f"{i:04}.png": encode(picture), f"{i:04}.cls": str(i % 2).encode(), f"{i:04}.txt": b"a caption"}
    data = open_data(write_tar(tmp_path / "a.tar", files))
    assert data.samples.sample_ids == ("0000", "0001", "0002", "0003")
    assert data.class_names == ("0", "1")
    assert data.shape[0] == 3
    for found, picture in zip(shown(data, data.samples), PICTURES, strict=True):
        assert found is not None
        assert np.array_equal(found, picture)
    assert reopen(data.spec).samples.fingerprint == data.samples.fingerprint
    (tmp_path / "classnames.txt").write_text("cat\ndog\n")
    assert open_data(tmp_path / "a.tar").class_names == ("cat", "dog")


def test_labels_in_json_in_folders_and_splits_by_name(tmp_path: Path) -> None:
    one, two = encode(PICTURES[0]), encode(PICTURES[1])
    train = {"x.png": one, "x.json": json.dumps({"kind": "cat"}).encode(), "y.png": two}
    train["y.json"] = json.dumps({"kind": "dog"}).encode()
    write_tar(tmp_path / "set" / "train-000.tar", train)
    write_tar(tmp_path / "set" / "test-000.tar", {"z.png": one, "z.json": b'{"kind": "dog"}'})
    data = open_data(tmp_path / "set", columns="label=kind")
    assert (data.class_names, len(data)) == (("cat", "dog"), 2)
    assert len(open_data(tmp_path / "set", columns="label=kind", split="test")) == 1
    with pytest.raises(UsageError, match="x has no label"):
        open_data(tmp_path / "set")
    data = open_data(write_tar(tmp_path / "b.tar", {"cat/1.png": one, "dog/1.png": two}))
    assert (data.class_names, data.samples.sample_ids) == (("cat", "dog"), ("cat/1", "dog/1"))


def test_damaged_tar_files_are_refused(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", {"cat/1.png": encode(PICTURES[0]), "dog/1.png": encode(PICTURES[1])})
    path.write_bytes(path.read_bytes()[:900])
    with pytest.raises(DataError, match=r"a\.tar"):
        open_data(path)
    with pytest.raises(UsageError, match="no pictures in it"):
        open_data(write_tar(tmp_path / "b.tar", {"notes.txt": b"x"}))


def test_columns_of_a_manifest_may_have_any_name(tmp_path: Path) -> None:
    write_folder(tmp_path, {f"{i}.png": one for i, one in enumerate(PICTURES)})
    path = tmp_path / "list.csv"
    path.write_text("Image,breed,path\n0.png,cat,u\n1.png,dog,v\n")
    data = open_data(path, columns="path=Image,label=breed,id=path")
    assert (data.class_names, data.samples.sample_ids) == (("cat", "dog"), ("u", "v"))
    assert reopen(data.spec).samples.fingerprint == data.samples.fingerprint
    with pytest.raises(DataError, match=r"other names: --columns path=Image,label=breed"):
        open_data(path)
    with pytest.raises(DataError, match='no column "picture" for path'):
        open_data(path, columns="path=picture,label=breed")
    with pytest.raises(UsageError, match="of path, text, label, id, source"):
        open_data(path, columns="image=path")


def test_lists_of_pictures_of_several_sizes() -> None:
    labels = ["a", "b", "a", "b"]
    data = open_data([Image.fromarray(one) for one in PICTURES], labels, size=16, fit="pad", ids=list("wxyz"))
    assert (data.shape, data.samples.sample_ids) == ((3, 16, 16), ("w", "x", "y", "z"))
    assert data.notes[0] == "grey and colour are mixed: 1 grey pictures brought to rgb, of 4"
    for found, picture in zip(shown(data, data.samples), PICTURES, strict=True):
        assert found is not None
        assert np.array_equal(found, picture)
    arrays = open_data(PICTURES, labels, size=16, fit="pad", ids=list("wxyz"))
    assert arrays.samples.fingerprint == data.samples.fingerprint


def test_fits_keep_or_cut_the_picture() -> None:
    wide = np.zeros((10, 40), np.uint8)
    wide[:, :10] = 200  # left of the centre
    seen = {fit: open_data([Image.fromarray(wide)], ["a"], size=10, fit=fit) for fit in ("stretch", "pad", "crop")}
    views = {fit: data.images[0, 0].numpy() for fit, data in seen.items()}
    assert (views["stretch"][:, :2] == 200).all()
    assert (views["stretch"][:, 3:] == 0).all()
    assert (views["pad"][0] == views["pad"][-1, -1]).all()  # a margin of one colour
    assert views["pad"][5, 0] == 200
    assert (views["crop"] == 0).all()
    assert len({bytes(data.samples.pixel_sha256[0]) for data in seen.values()}) == 1
    assert seen["crop"].notes[1] == "the network does not see 75 % of the average picture: crop cuts it away"

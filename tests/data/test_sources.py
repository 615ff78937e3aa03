"""open_data: names, paths, specs that open again, and the data sets that need no download."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import provnet
from provnet import DataSpec, open_data
from provnet.base.errors import IntegrityError, UnsafeFileError, UsageError
from provnet.data.open import data_root, has_split, reopen
from provnet.data.sources import known as embedded
from provnet.data.sources.known import NAMES
from tests.cases import cases
from tests.data.made import encode, noise, pictures, write_cifar10, write_folder, write_idx


def test_embedded() -> None:
    train, test = open_data("embedded"), open_data("embedded", split="test")
    assert (len(train), len(test)) == (4000, 1000)
    assert np.bincount(train.labels).tolist() == [400] * 10
    assert np.bincount(test.labels).tolist() == [100] * 10
    assert train.samples.index_ceiling == test.samples.index_ceiling == 1.0
    assert not set(train.samples.places) & set(test.samples.places)
    assert train.samples.fingerprint == "9735b1eeff26f6e6c4562f62196fd1883ceb824b48961b7e9ff469586eaebed8"
    assert len(open_data("embedded", split="all")) == 5000
    assert train.labels[:12].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]
    size = (Path(provnet.__file__).parent / "data/sources/embedded/mnist5k.xz").stat().st_size
    assert size < 1_100_000


def test_a_damaged_embedded_file_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    import lzma

    for blob in (b"", lzma.compress(bytes(99))):
        embedded._content.cache_clear()
        monkeypatch.setattr(embedded, "read_file", lambda path, blob=blob: blob)
        with pytest.raises(IntegrityError, match="damaged"):
            open_data("embedded")


def test_digits() -> None:
    train, test = open_data("digits"), open_data("digits", split="test")
    assert len(train) + len(test) == 1797
    assert 300 < len(test) < 420
    assert train.shape == (1, 8, 8)
    assert int(train.images.max()) == 255
    assert not set(train.samples.places) & set(test.samples.places)


@cases("name", [name for name in NAMES if NAMES[name].places])
def test_missing_files_are_told_with_folder_files_and_origin(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_data(name, data_dir=tmp_path)
    message = str(caught.value)
    for part in (str(tmp_path), NAMES[name].files, NAMES[name].where, "http", "PROVNET_DATA"):
        assert part in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("source", "words"),
    [("mnits", 'Did you mean "mnist"'), ("./nowhere", "no such file or folder"), ("", "no data set")],
)
def test_unknown_names_and_paths(source: str, words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=words):
        open_data(source)


def test_files_that_are_no_data_set(tmp_path: Path) -> None:
    write_folder(tmp_path, {"x.png": noise((3, 3)), "x.npy": b"\x93NUMPY", "x.pt": b"PK\x03\x04", "x.pkl": b"\x80\x04"})
    (tmp_path / "csv.bin").write_bytes(b"\x80\x04K\x01.")
    for name in ("x.pt", "x.pkl", "csv.bin"):
        with pytest.raises(UnsafeFileError, match="never opened"):
            open_data(tmp_path / name)
    with pytest.raises(UsageError, match="a single picture is not a data set"):
        open_data(tmp_path / "x.png")
    with pytest.raises(UsageError, match="not a data set"):
        open_data(tmp_path / "x.npy")


def test_wrong_split_and_labels() -> None:
    with pytest.raises(UsageError, match="unknown split"):
        open_data("embedded", split="valid")
    with pytest.raises(UsageError, match="only for arrays"):
        open_data("embedded", [1])


def test_image_data_comes_back_as_it_is() -> None:
    data = open_data("embedded", limit=10)
    assert open_data(data) is data
    assert has_split(data, "test")


@cases("kind", ["embedded", "digits", "idx", "cifar10", "folder", "csv", "npz"])
def test_a_spec_opens_the_same_data_again(tmp_path: Path, kind: str) -> None:
    options: dict[str, object] = {"limit": 7, "size": (6, 9), "mode": "rgb", "background": "black"}
    source: object = kind
    if kind == "idx":
        source = "mnist"
        write_idx(tmp_path / "mnist")
    elif kind == "cifar10":
        write_cifar10(tmp_path / "cifar10")
    elif kind == "folder":
        source = write_folder(tmp_path / "f", pictures(*(f"{c}/{i}.png" for c in "ab" for i in range(5))))
        options |= {"class_names": ["b", "a"], "skip_bad": True}
    elif kind == "csv":
        write_folder(tmp_path, pictures("1.png", "2.png"))
        source = tmp_path / "list.csv"
        source.write_text("path,label\n1.png,a\n2.png,b\n")  # type: ignore[attr-defined]
    elif kind == "npz":
        source = tmp_path / "x.npz"
        np.savez(source, images=noise((9, 8, 8)), labels=np.arange(9) % 2)  # type: ignore[arg-type]
    data = open_data(source, data_dir=tmp_path, **options)  # type: ignore[arg-type]
    assert data.spec.kind == kind
    spec = DataSpec.from_json(json.loads(json.dumps(data.spec.to_json())))
    again = open_data(spec)
    assert again.spec == data.spec == spec
    assert again.samples.fingerprint == data.samples.fingerprint
    assert again.samples.sample_ids == data.samples.sample_ids
    assert (again.images == data.images).all()


def test_relative_paths_are_kept_as_absolute_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path / "f", pictures("a/1.png"))
    write_idx(tmp_path / "data/mnist")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PROVNET_DATA", raising=False)
    folder, mnist = open_data("f"), open_data("mnist")
    monkeypatch.chdir("/")
    assert open_data(folder.spec).samples.fingerprint == folder.samples.fingerprint
    assert open_data(mnist.spec).samples.fingerprint == mnist.samples.fingerprint
    assert data_root(folder.spec) == tmp_path / "f"
    assert data_root(mnist.spec) is None


def test_reopen_at_another_place(tmp_path: Path) -> None:
    root = write_folder(tmp_path / "old", pictures(*(f"a/{i}.png" for i in range(9))))
    data = open_data(root, size=4, limit=5)
    root.rename(tmp_path / "new")
    with pytest.raises(UsageError, match="no such file"):
        open_data(data.spec)
    moved = reopen(data.spec, tmp_path / "new")
    assert moved.samples.fingerprint == data.samples.fingerprint
    assert moved.spec == replace(data.spec, source=str(tmp_path / "new"))
    write_idx(tmp_path / "one/mnist")
    mnist = open_data("mnist", data_dir=tmp_path / "one")
    (tmp_path / "one").rename(tmp_path / "two")
    fashion = open_data("fashion-mnist", data_dir=tmp_path / "two/mnist")
    by_path = reopen(fashion.spec, tmp_path / "two/mnist")
    assert by_path.class_names == fashion.class_names
    assert by_path.samples.fingerprint == fashion.samples.fingerprint
    assert open_data(mnist.spec, data_dir=tmp_path / "two").samples.fingerprint == mnist.samples.fingerprint


def test_data_given_as_arrays_open_from_a_file(tmp_path: Path) -> None:
    options = {"labels": "int64", "sample_shape": [4, 3], "feature_names": ["a"], "limit": 4}
    np.savez(tmp_path / "x.npz", images=noise((6, 4, 3)), labels=np.arange(6) % 2)
    data = reopen(DataSpec("arrays", "arrays", options=options), tmp_path / "x.npz")
    assert data.spec == DataSpec(str(tmp_path / "x.npz"), "npz", options={"limit": 4})
    assert len(data) == 4
    with pytest.raises(UsageError, match="pass them again"):
        reopen(DataSpec("arrays", "arrays", options=options))


def test_a_name_wins_over_a_folder_of_that_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path / "embedded", {"a/1.png": encode(noise((3, 3)))})
    monkeypatch.chdir(tmp_path)
    assert len(open_data("embedded")) == 4000
    assert len(open_data("./embedded")) == 1

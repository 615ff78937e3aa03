"""idx, CIFAR and .npz files, as the tests make them."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from provnet import open_data
from provnet.base.errors import DataError, MemoryLimitError, UnsafeFileError, UsageError
from provnet.base.files import DataWarning
from provnet.data.open import has_split
from provnet.data.sources.binary import FASHION_NAMES
from tests.cases import cases
from tests.data.made import idx_bytes, noise, write_cifar10, write_cifar100, write_idx


@cases("packed", [False, True], ids=["plain", "gz"])
@cases("place", ["MNIST/raw", "mnist", "."])
def test_idx_by_name(tmp_path: Path, packed: bool, place: str) -> None:
    made = write_idx(tmp_path / place, packed=packed)
    data = open_data("mnist", data_dir=tmp_path)
    assert data.images.dtype == torch.uint8
    assert (data.images[:, 0].numpy() == made["train-images-idx3-ubyte"]).all()
    assert (data.labels.numpy() == made["train-labels-idx1-ubyte"]).all()
    assert data.class_names == tuple("0123456789")
    assert data.samples.sample_ids[3] == "train/3"
    assert data.samples.hex(3) == hashlib.sha256(made["train-images-idx3-ubyte"][3].tobytes()).hexdigest()
    test = open_data("mnist", data_dir=tmp_path, split="test")
    assert len(test) == 10
    both = open_data("mnist", data_dir=tmp_path, split="all")
    assert both.samples.sample_ids == data.samples.sample_ids + test.samples.sample_ids


def test_plain_and_packed_have_one_fingerprint(tmp_path: Path) -> None:
    write_idx(tmp_path / "a")
    write_idx(tmp_path / "b", packed=True)
    assert open_data(tmp_path / "a").samples.fingerprint == open_data(tmp_path / "b").samples.fingerprint


def test_fashion_by_name_and_idx_by_path(tmp_path: Path) -> None:
    write_idx(tmp_path / "FashionMNIST" / "raw")
    assert open_data("fashion-mnist", data_dir=tmp_path).class_names == FASHION_NAMES
    for path in ("FashionMNIST", "FashionMNIST/raw", "FashionMNIST/raw/train-images-idx3-ubyte"):
        data = open_data(tmp_path / path)
        assert (data.spec.kind, len(data), data.class_names) == ("idx", 20, FASHION_NAMES)


@pytest.mark.parametrize("place", ["MNIST/raw", "."])
def test_only_the_sets_own_folder_tells_clothes_from_digits(tmp_path: Path, place: str) -> None:
    folder = tmp_path / "old-fashioned"
    write_idx(folder / place)
    assert open_data("mnist", data_dir=folder).class_names == tuple("0123456789")
    write_idx(folder / "letters" / "raw")
    assert open_data(folder / "letters").class_names == tuple("0123456789")


@pytest.mark.parametrize("place", ["FashionMNIST", "FashionMNIST/raw", "fashion"])
def test_clothes_do_not_pass_for_digits(tmp_path: Path, place: str) -> None:
    write_idx(tmp_path / place)
    with pytest.raises(UsageError, match="fashion-mnist"):
        open_data("mnist", data_dir=tmp_path / place)
    assert open_data("fashion-mnist", data_dir=tmp_path / place).class_names == FASHION_NAMES


def test_environment_names_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_idx(tmp_path / "mnist")
    monkeypatch.setenv("PROVNET_DATA", str(tmp_path))
    assert len(open_data("mnist")) == 20
    monkeypatch.delenv("PROVNET_DATA")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=f"{tmp_path}/data"):
        open_data("mnist")


IDX_DAMAGE: dict[str, tuple[Any, str]] = {
    "cut short": (lambda blob: blob[:-5], r"promises \(20, 28, 28\).*there are 15,675"),
    "too long": (lambda blob: blob + b"x", "promises"),
    "cut in the header": (lambda blob: blob[:9], "cut short within its header"),
    "empty": (lambda blob: b"", "not an idx file"),
    "magic": (lambda blob: b"\x00\x00\x0d" + blob[3:], "not an idx file of bytes"),
    "huge header": (lambda blob: blob[:4] + b"\xff" * 12 + blob[16:], "promises"),
    "huge header in gzip": (lambda blob: gzip.compress(blob[:4] + b"\xff" * 12 + blob[16:]), "promises"),
    "gzip too long": (lambda blob: gzip.compress(blob + bytes(10**8)), "there are more"),
    "broken gzip": (lambda blob: gzip.compress(blob)[:-9], "gzip file is damaged"),
    "gzip noise": (lambda blob: b"\x1f\x8b" + noise((99,)).tobytes(), "gzip file is damaged"),
}


@cases(("damage", "words"), IDX_DAMAGE.values(), ids=IDX_DAMAGE)
def test_damaged_idx_is_refused_by_name(tmp_path: Path, damage: Any, words: str) -> None:
    write_idx(tmp_path)
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=f"train-images-idx3-ubyte: .*{words}"):
        open_data(tmp_path)


def test_idx_parts_that_do_not_match(tmp_path: Path) -> None:
    write_idx(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx_bytes(np.zeros(19, np.uint8)))
    with pytest.raises(DataError, match="do not match"):
        open_data(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte").unlink()
    with pytest.raises(UsageError, match="no train-labels-idx1-ubyte"):
        open_data(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    assert not has_split(tmp_path, "test")


def test_cifar10(tmp_path: Path) -> None:
    records = write_cifar10(tmp_path / "cifar-10-batches-bin")
    data = open_data("cifar10", data_dir=tmp_path)
    assert data.shape == (3, 32, 32)
    assert (data.images.numpy().reshape(20, -1) == records[:20, 1:]).all()
    assert (data.labels.numpy() == records[:20, 0]).all()
    assert data.class_names[:2] == ("airplane", "automobile")
    assert len(open_data("cifar10", data_dir=tmp_path, split="test")) == 4
    assert open_data(tmp_path / "cifar-10-batches-bin").samples.fingerprint == data.samples.fingerprint


def test_cifar100_takes_the_fine_labels(tmp_path: Path) -> None:
    records = write_cifar100(tmp_path / "cifar-100-binary")
    data = open_data("cifar100", data_dir=tmp_path)
    assert data.labels.tolist() == records[:6, 1].tolist()
    assert (data.images.numpy().reshape(6, -1) == records[:6, 2:]).all()
    assert data.class_names[7] == "fine7"
    assert len(data.class_names) == 100
    assert open_data(tmp_path / "cifar-100-binary").spec.kind == "cifar100"


def test_damaged_cifar_is_refused_by_name(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    path = tmp_path / "data_batch_3.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"data_batch_3\.bin: 12,291 bytes are not a whole number"):
        open_data(tmp_path)
    path.write_bytes(bytes([77]) + bytes(3072))
    with pytest.raises(DataError, match="label 77 found"):
        open_data(tmp_path)
    path.unlink()
    with pytest.raises(UsageError, match=r"no data_batch_3\.bin"):
        open_data(tmp_path)


def test_npz(tmp_path: Path) -> None:
    images, labels = noise((6, 8, 7, 3)), np.array([2, 0, 2, 0, 2, 0])
    np.savez(tmp_path / "x.npz", images=images, labels=labels)
    data = open_data(tmp_path / "x.npz")
    assert data.shape == (3, 8, 7)
    assert data.class_names == ("0", "2")
    assert data.samples.hex(1) == hashlib.sha256(images[1].tobytes()).hexdigest()
    assert not has_split(tmp_path / "x.npz", "test")
    with pytest.raises(UsageError, match="no test split"):
        open_data(tmp_path / "x.npz", split="test")


def test_npz_with_a_test_split_and_names(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez_compressed(
        path,
        images=noise((4, 8, 8)),
        labels=["b", "b", "c", "c"],
        test_images=noise((2, 8, 8), 1),
        test_labels=["a", "c"],
    )
    assert has_split(path, "test")
    train, test = open_data(path), open_data(path, split="test")
    assert train.class_names == test.class_names == ("a", "b", "c")
    assert train.labels.tolist() == [1, 1, 2, 2]
    assert test.labels.tolist() == [0, 2]
    assert open_data(path, split="all").samples.sample_ids[-1] == "test/1"
    np.savez(path, images=noise((2, 8, 8)), labels=[0, 1], class_names=["cat", "dog"])
    assert open_data(path).class_names == ("cat", "dog")


NPZ_REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no labels": ({"images": noise((2, 3, 3))}, "needs the arrays `images` and `labels`, found images"),
    "other names": (
        {"x_train": noise((2, 3)), "y_train": [0, 1]},
        "found x_train, y_train; save them under these names",
    ),
    "lengths": ({"images": noise((2, 3, 3)), "labels": [0]}, "2 images but 1 labels"),
    "NaN": ({"images": np.full((2, 3), np.nan), "labels": [0, 1]}, "contains NaN"),
    "names": (
        {"images": noise((2, 3, 3)), "labels": [0, 1], "class_names": [1, 2]},
        "class_names must be a list of text",
    ),
}


@cases(("arrays", "words"), NPZ_REFUSED.values(), ids=NPZ_REFUSED)
def test_npz_refused(tmp_path: Path, arrays: dict[str, Any], words: str) -> None:
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(DataError, match=rf"x\.npz: .*{words}"):
        open_data(tmp_path / "x.npz")


def test_npz_names_the_arrays_that_it_does_not_use(tmp_path: Path) -> None:
    path, arrays = tmp_path / "x.npz", {"images": noise((2, 3, 3)), "labels": [0, 1]}
    np.savez(path, **arrays, who=np.array([{}, {}], dtype=object), test_ids=[7, 8], test_images=noise((2, 3, 3)))  # type: ignore[arg-type]
    with pytest.warns(DataWarning, match=r"x\.npz: arrays not used: test_ids, test_images, who$"):
        assert len(open_data(path)) == 2
    np.savez(path, **arrays, test_images=noise((2, 3, 3)), test_labels=[0, 1], **{"a\nb": [1]})  # type: ignore[arg-type]
    with pytest.warns(DataWarning, match=r"arrays not used: a\\nb$"):
        assert len(open_data(path, split="all")) == 4


def test_npz_with_objects_is_never_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", images=noise((2, 3, 3)), labels=np.array([{}, {}], dtype=object))
    with pytest.raises(UnsafeFileError, match="can run code"):
        open_data(tmp_path / "x.npz")


def test_damaged_npz_and_bombs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, images=noise((20, 30, 30)), labels=np.arange(20))
    blob = path.read_bytes()
    for damaged in (blob[:-30], blob[:400], blob[:1000] + bytes([blob[1000] ^ 1]) + blob[1001:]):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"x\.npz"):
            open_data(path)
    np.savez_compressed(path, images=np.zeros((100, 100, 100), np.uint8), labels=np.zeros(100, int))
    monkeypatch.setattr("provnet.base.files.free_memory", lambda: 500_000)
    with pytest.raises(MemoryLimitError, match="GiB of memory"):
        open_data(path)

"""The two data sets that need no download: 5,000 MNIST digits inside provnet, and scikit-learn's digits."""

from __future__ import annotations

import hashlib
import lzma
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from provnet.base.errors import IntegrityError, UsageError
from provnet.base.files import read_file
from provnet.data.assemble import Opened, assemble
from provnet.data.rules import OpenOptions, check_names
from provnet.data.sources.binary import FASHION_NAMES, find_idx, is_cifar10, is_cifar100


def open_embedded(split: str, options: OpenOptions) -> Opened:
    """5,000 real MNIST digits, 500 a class: 4,000 for training, 1,000 for testing."""
    values = np.frombuffer(_content(), np.uint8)
    raw, labels = values[: N * SIDE * SIDE].reshape(N, SIDE, SIDE), values[N * SIDE * SIDE :].astype(np.int64)
    rows = {"train": slice(0, TRAIN), "test": slice(TRAIN, N), "all": slice(0, N)}[split]
    ids = [f"train/{i}" for i in range(TRAIN)] + [f"test/{i}" for i in range(N - TRAIN)]
    names = check_names(options.class_names or DIGITS)
    return assemble(raw[rows], labels[rows], names, ids[rows], options=options, convert=lambda pixels: pixels[:, None])


@cache
def _content() -> bytes:
    """What mnist5k.xz holds, 4 MB: kept, as unpacking takes longer than everything else."""
    blob = read_file(Path(__file__).parent / "embedded" / "mnist5k.xz")
    try:
        content = lzma.decompress(blob)
    except lzma.LZMAError:
        content = b""
    if hashlib.sha256(content).hexdigest() != CONTENT_SHA256:
        raise IntegrityError("the embedded data set mnist5k.xz is damaged; install provnet again")
    return content


def open_digits(split: str, options: OpenOptions) -> Opened:
    """scikit-learn's 1,797 digits of 8 x 8 pixels; 0..16 becomes 0..255. A fifth, chosen by hash, is for testing."""
    from sklearn.datasets import load_digits

    found = load_digits()
    raw = found.images.astype(np.uint8)
    labels = found.target.astype(np.int64)
    held = np.array([hashlib.sha256(picture.tobytes()).digest()[0] < 51 for picture in raw])  # 51/256: a fifth
    keep = {"train": ~held, "test": held, "all": np.ones(len(raw), dtype=bool)}[split]
    ids = [f"digits/{i}" for i in np.flatnonzero(keep)]
    names = check_names(options.class_names or DIGITS)
    return assemble(raw[keep], labels[keep], names, ids, options=options, convert=_to_bytes)


def _to_bytes(pixels: np.ndarray) -> np.ndarray:
    return ((pixels.astype(np.uint16) * 255 + 8) // 16).astype(np.uint8)[:, None]


N, TRAIN, SIDE = 5000, 4000, 28
DIGITS = tuple(str(digit) for digit in range(10))
CONTENT_SHA256 = "06b69b713aaf414129f7ba158b56a0e5f2d4d970d46113e5405ad59e5f9095df"


@dataclass(frozen=True)
class Named:
    """One known data set.

    Attributes:
        kind: the reader; `embedded` and `digits` need no files.
        places: folders to look in, below the data folder.
        files: what is expected there, in words.
        where: where to get it, in words.
        class_names: names that the files themselves do not hold.
    """

    kind: str
    places: tuple[str, ...] = ()
    files: str = ""
    where: str = ""
    class_names: tuple[str, ...] | None = None


def data_folder(data_dir: str | os.PathLike[str] | None) -> Path:
    """The folder that names resolve under: the one given, else PROVNET_DATA, else ./data; as an absolute path."""
    if not isinstance(data_dir, str | os.PathLike | None):
        raise UsageError(f"data_dir (--data-dir) must be a folder, as text or as a Path; got {data_dir!r:.80}")
    return Path(data_dir or os.environ.get("PROVNET_DATA") or "data").absolute()


def locate(name: str, folder: Path) -> Path:
    """The folder that holds a known data set; where it is missing, say what is expected and where to get it."""
    known = NAMES[name]
    for place in known.places:
        found = _find_files(known.kind, folder / place)
        if found is not None:
            if (
                name == "mnist"
                and place == "."
                and _folder_name(found) in map(str.lower, NAMES["fashion-mnist"].places)
            ):
                raise UsageError(f'{folder} is a folder of "fashion-mnist", whose files have the names of "mnist"')
            return found
    looked = ", ".join(place for place in known.places if place != ".")
    raise UsageError(
        f'data set "{name}" not found under {folder} (looked in {looked}). Expected: {known.files}. '
        f"Get it from {known.where}; another folder is given by --data-dir or PROVNET_DATA"
    )


def _folder_name(place: Path) -> str:
    return (place.parent if place.name == "raw" else place).name.lower()


def _find_files(kind: str, place: Path) -> Path | None:
    if kind == "idx":
        return find_idx(place)
    if kind == "cifar10":
        return place if is_cifar10(place) else None
    if kind == "cifar100":
        return place if is_cifar100(place) else None
    return place if place.is_dir() else None


NAMES = {
    "embedded": Named("embedded"),
    "digits": Named("digits"),
    "mnist": Named(
        "idx",
        ("MNIST/raw", "MNIST", "mnist", "."),
        "{train,t10k}-images-idx3-ubyte and {train,t10k}-labels-idx1-ubyte (plain or .gz)",
        "https://ossci-datasets.s3.amazonaws.com/mnist/ (or torchvision.datasets.MNIST with download=True)",
        tuple("0123456789"),
    ),
    "fashion-mnist": Named(
        "idx",
        ("FashionMNIST/raw", "FashionMNIST", "fashion-mnist", "fashion", "."),
        "{train,t10k}-images-idx3-ubyte and {train,t10k}-labels-idx1-ubyte (plain or .gz)",
        "https://github.com/zalandoresearch/fashion-mnist (data/fashion)",
        FASHION_NAMES,
    ),
    "cifar10": Named(
        "cifar10",
        ("cifar-10-batches-bin", "cifar10", "."),
        "data_batch_1.bin to data_batch_5.bin, test_batch.bin, batches.meta.txt",
        "https://www.cs.toronto.edu/~kriz/cifar.html, the binary version (cifar-10-binary.tar.gz), unpacked",
    ),
    "cifar100": Named(
        "cifar100",
        ("cifar-100-binary", "cifar100", "."),
        "train.bin, test.bin, fine_label_names.txt",
        "https://www.cs.toronto.edu/~kriz/cifar.html, the binary version (cifar-100-binary.tar.gz), unpacked",
    ),
    "lfw": Named(
        "folder",
        ("lfw", "lfw-deepfunneled", "lfw_funneled"),
        "one folder per person with .jpg files, such as lfw/Aaron_Eckhart/Aaron_Eckhart_0001.jpg",
        "https://vis-www.cs.umass.edu/lfw/ (lfw.tgz), unpacked",
    ),
    "stanford-dogs": Named(
        "folder",
        ("stanford-dogs/Images", "stanford-dogs", "StanfordDogs/Images", "StanfordDogs"),
        "one folder per breed with .jpg files, such as stanford-dogs/train/n02085620-Chihuahua/n02085620_7.jpg",
        "http://vision.stanford.edu/aditya86/ImageNetDogs/ (images.tar), unpacked",
    ),
}

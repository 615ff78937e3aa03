"""Folders of segmentation and detection sets, which have no class folders: recognised and refused by name."""

from __future__ import annotations

import itertools
import os
from contextlib import suppress
from pathlib import Path

from provnet.base.errors import UsageError
from provnet.base.files import shown


def refuse_layout(root: Path) -> None:
    """Refuse a folder in the layout of CamVid, Pascal VOC, COCO or YOLO, or with masks beside the pictures.

    Its folders would be taken for classes, and a network would be trained to tell pictures from masks.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("train", "trainannot"):
    ...         Path(folder, name).mkdir()
    ...     refuse_layout(Path(folder))  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    UsageError: ...: a segmentation set in the CamVid layout (trainannot/ beside train/); ...
    """
    for place in (root, *sorted(_names(root, None)[1])):
        found = _camvid(place) or _voc(place) or _coco(place) or _beside(place)
        if found is not None:
            where = "" if place == root else f" in {shown(place.name)}/"
            raise UsageError(
                f"{shown(str(root))}: {found}{where}; provnet trains classifiers, on pictures with one label "
                "each: sort them into one folder a class, or list them with their labels in a CSV file (path,label); "
                "where boxes mark the objects, cut those out first"
            )


def _camvid(place: Path) -> str | None:
    """Masks in a folder beside each split, as in CamVid's usual copies."""
    for split in _SPLITS:
        for masks in (f"{split}{end}" for end in ("annot", "_annot", "_labels", "_masks")):
            if _is_folder(place / split) and _is_folder(place / masks):
                return f"a segmentation set in the CamVid layout ({masks}/ beside {split}/)"
    return None


def _voc(place: Path) -> str | None:
    """Pascal VOC; SegmentationClass holds masks."""
    if not (_is_folder(place / "JPEGImages") and any(_is_folder(place / name) for name in _VOC)):
        return None
    kind = "segmentation" if _is_folder(place / "SegmentationClass") else "detection"
    found = ", ".join(f"{name}/" for name in ("JPEGImages", *_VOC) if _is_folder(place / name))
    return f"a {kind} set in the Pascal VOC layout ({found})"


def _coco(place: Path) -> str | None:
    """COCO: annotations as JSON beside folders of pictures, or among the pictures as Roboflow writes them."""
    if os.path.isfile(place / _ROBOFLOW):  # noqa: PTH113 - as in _is_folder
        return f"a detection or segmentation set in the COCO layout ({_ROBOFLOW})"
    pictures = next((name for name in _PICTURES if _is_folder(place / name)), None)
    if pictures is None or not _holds(place / "annotations", ".json"):
        return None
    return f"a detection or segmentation set in the COCO layout (annotations/*.json beside {pictures}/)"


def _beside(place: Path) -> str | None:
    """A folder images with labels of its pictures beside it: boxes as text (YOLO), or masks."""
    if not _is_folder(place / "images"):
        return None
    if _holds(place / "labels", ".txt"):
        return "a detection or segmentation set in the YOLO layout (labels/*.txt beside images/)"
    masks = next((name for name in _MASKS if _holds(place / name, ".png")), None)
    return None if masks is None else f"a segmentation set ({masks}/*.png beside images/)"


def _is_folder(path: Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 - Path's own raises where the folder around it may not be read


def _holds(folder: Path, ending: str) -> bool:
    """Whether a folder, or one in it, holds a file with that ending; of each folder MOST names are looked at."""
    files, folders = _names(folder, MOST)
    within = itertools.chain(files, *(_names(one, MOST)[0] for one in folders))
    return any(name.lower().endswith(ending) for name in within)


def _names(folder: Path, most: int | None) -> tuple[list[str], list[Path]]:
    """Names of files in a folder, and the folders in it; none where it is not there."""
    files: list[str] = []
    folders: list[Path] = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in itertools.islice(entries, most):
            with suppress(OSError):  # a link to itself
                if entry.is_dir():
                    folders.append(Path(entry.path))
                else:
                    files.append(entry.name)
    return files, folders


MOST = 1000
_SPLITS = ("train", "val", "valid", "validation", "test")
_VOC = ("Annotations", "ImageSets", "SegmentationClass")
_PICTURES = ("images", *_SPLITS, *(f"{split}{year}" for split in ("train", "val", "test") for year in (2014, 2017)))
_MASKS = ("masks", "labels", "annotations")
_ROBOFLOW = "_annotations.coco.json"

"""Folders of segmentation and detection sets, which have no class folders: recognised and refused by name."""

from __future__ import annotations

import os
from pathlib import Path

from provnet.data.files import shown
from provnet.errors import UsageError


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
    try:
        below = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    except OSError:  # open_folder says so
        return
    for place in (root, *(root / name for name in below)):
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
            if (place / split).is_dir() and (place / masks).is_dir():
                return f"a segmentation set in the CamVid layout ({masks}/ beside {split}/)"
    return None


def _voc(place: Path) -> str | None:
    """Pascal VOC; SegmentationClass holds masks."""
    if not ((place / "JPEGImages").is_dir() and any((place / name).is_dir() for name in _VOC)):
        return None
    kind = "segmentation" if (place / "SegmentationClass").is_dir() else "detection"
    found = ", ".join(f"{name}/" for name in ("JPEGImages", *_VOC) if (place / name).is_dir())
    return f"a {kind} set in the Pascal VOC layout ({found})"


def _coco(place: Path) -> str | None:
    """COCO: annotations as JSON beside folders of pictures, or among the pictures as Roboflow writes them."""
    if (place / _ROBOFLOW).is_file():
        return f"a detection or segmentation set in the COCO layout ({_ROBOFLOW})"
    pictures = next((name for name in _PICTURES if (place / name).is_dir()), None)
    if pictures is None or not _holds(place / "annotations", ".json"):
        return None
    return f"a detection or segmentation set in the COCO layout (annotations/*.json beside {pictures}/)"


def _beside(place: Path) -> str | None:
    """A folder images with labels of its pictures beside it: boxes as text (YOLO), or masks."""
    if not (place / "images").is_dir():
        return None
    if _holds(place / "labels", ".txt"):
        return "a detection or segmentation set in the YOLO layout (labels/*.txt beside images/)"
    masks = next((name for name in _MASKS if _holds(place / name, ".png")), None)
    return None if masks is None else f"a segmentation set ({masks}/*.png beside images/)"


def _holds(folder: Path, ending: str) -> bool:
    """Whether a folder, or one in it, holds a file with that ending; of each folder MOST names are looked at."""
    found, inside = _names(folder)
    return any(name.lower().endswith(ending) for each in (found, *(_names(one)[0] for one in inside)) for name in each)


def _names(folder: Path) -> tuple[list[str], list[Path]]:
    """Names of files in a folder, and the folders in it; none where it is not there."""
    files: list[str] = []
    folders: list[Path] = []
    try:
        with os.scandir(folder) as entries:
            for _, entry in zip(range(MOST), entries, strict=False):
                if entry.is_dir():
                    folders.append(Path(entry.path))
                else:
                    files.append(entry.name)
    except OSError:
        pass
    return files, folders


MOST = 1000
_SPLITS = ("train", "val", "valid", "validation", "test")
_VOC = ("Annotations", "ImageSets", "SegmentationClass")
_PICTURES = ("images", *_SPLITS, *(f"{split}{year}" for split in ("train", "val", "test") for year in (2014, 2017)))
_MASKS = ("masks", "labels", "annotations")
_ROBOFLOW = "_annotations.coco.json"

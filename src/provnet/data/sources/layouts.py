"""Segmentation and detection sets, which have no class folders: recognised by their structure and refused by name."""

from __future__ import annotations

import itertools
import math
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from provnet.base.errors import DataError, UsageError
from provnet.base.files import read_start, shown


def refuse_layout(root: Path) -> None:
    """Refuse a folder in the layout of CamVid, Pascal VOC, COCO or YOLO, or with masks or boxes beside the pictures.

    Its folders would be taken for classes, and a network would be trained to tell pictures from masks.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("train", "trainannot"):
    ...         Path(folder, name).mkdir()
    ...     refuse_layout(Path(folder))  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    UsageError: ...: a segmentation set in the CamVid layout (trainannot/ beside train/); ...
    """
    for place in _places(root):
        found = next((found for look in _LOOKS if (found := look(place))), None)
        if found is not None:
            inside = place.path.relative_to(root).as_posix()
            raise _refused(root, found if inside == "." else f"{found} in {shown(inside)}/")


def refuse_part(root: Path) -> None:
    """Refuse the pictures of such a set where the folder beside them, not they themselves, tells what they are."""
    above = _look_into(root.absolute().parent)
    found = next((found for look in _LOOKS if (found := look(above))), None) if _means_pictures(root.name) else None
    if found is not None:
        raise _refused(root, f"pictures of {found}")


def refuse_coco(path: Path, start: bytes) -> None:
    """Refuse a JSON file that begins like the annotations of COCO."""
    longer = read_start(path, _READ) if start.lstrip()[:1] == b"{" else b""
    if sum(name in longer for name in _COCO_KEYS) > 1:
        raise _refused(path, "annotations of a detection or segmentation set in the COCO layout")


def _refused(path: Path, what: str) -> UsageError:
    return UsageError(
        f"{shown(str(path))}: {what}; provnet trains classifiers, on pictures with one label "
        "each: sort them into one folder per class, or list them with their labels in a CSV file (path,label); "
        "where boxes mark the objects, cut those out first"
    )


@dataclass(frozen=True)
class _Place:
    """A folder, the names of its files and, by their names in lower case, its folders."""

    path: Path
    files: list[str]
    folders: dict[str, Path]


def _places(root: Path) -> Iterator[_Place]:
    """The folder, those in it, and those in its VOCdevkit/."""
    top = _look_into(root, None)
    yield top
    for name, path in sorted(top.folders.items()):
        place = _look_into(path)
        yield place
        if name == "vocdevkit":
            yield from (_look_into(each) for _, each in sorted(place.folders.items()))


def _camvid(place: _Place) -> str | None:
    """Masks in a folder beside each split, as in CamVid's usual copies."""
    for split in _SPLITS:
        for masks in (f"{split}{end}" for end in ("annot", "_annot", "_labels", "_masks")):
            if split in place.folders and masks in place.folders:
                return f"a segmentation set in the CamVid layout ({_named(place, masks)} beside {_named(place, split)})"
    return None


def _voc(place: _Place) -> str | None:
    """Pascal VOC; SegmentationClass holds masks."""
    there = [name for name in ("jpegimages", *_VOC) if name in place.folders]
    if len(there) < 2 or there[0] != "jpegimages":
        return None
    kind = "segmentation" if "segmentationclass" in there else "detection"
    return f"a {kind} set in the Pascal VOC layout ({', '.join(_named(place, name) for name in there)})"


def _coco(place: _Place) -> str | None:
    """COCO: annotations as JSON beside folders of pictures, or among the pictures as Roboflow writes them."""
    if _ROBOFLOW in place.files:
        return f"a detection or segmentation set in the COCO layout ({_ROBOFLOW})"
    pictures = next((name for name in _PICTURES if name in place.folders), None)
    if pictures is None or not _holds(place.folders.get("annotations"), ".json"):
        return None
    beside = f"{_named(place, 'annotations')}*.json beside {_named(place, pictures)}"
    return f"a detection or segmentation set in the COCO layout ({beside})"


def _images(place: _Place) -> str | None:
    """A folder images with labels of its pictures beside it: boxes as text (YOLO), or masks, under whatever names."""
    if "images" not in place.folders:
        return None
    images = _named(place, "images")
    if _holds(place.folders.get("labels"), ".txt"):
        return f"a detection or segmentation set in the YOLO layout ({_named(place, 'labels')}*.txt beside {images})"
    masks = next((name for name in _MASKS if _holds(place.folders.get(name), ".png")), None)
    return None if masks is None else f"a segmentation set ({_named(place, masks)}*.png beside {images})"


def _beside(place: _Place) -> str | None:
    """A folder of pictures, and one whose name means masks or labels with a file for each of them."""
    masks = sorted(name for name in place.folders if _means_masks(name))
    pictures = sorted(name for name in place.folders if _means_pictures(name) and not _means_masks(name))
    for name, other in itertools.product(pictures, masks):
        found = _annotations_in(place.folders[name], place.folders[other])
        if found is not None:
            return f"{found[0]} ({_named(place, other)}*{found[1]} beside {_named(place, name)})"
    return None


def _annotations_beside(place: _Place) -> str | None:
    """Pictures with their boxes in files of the same stem; in a class folder these are no reason to refuse it."""
    if place.folders or not _means_pictures(place.path.absolute().name):
        return None
    found = _boxes(place.path, _pictures_of(place), place.path)
    return None if found is None else f"{found[0]} (*{found[1]} beside the pictures)"


def _annotations_in(pictures: Path, labels: Path) -> tuple[str, str] | None:
    """What the files of `labels` are, where a handful of pictures have theirs there, at the same place below."""
    for inside in _first_with_pictures(pictures):
        below = labels / inside.path.relative_to(pictures)
        some = _pictures_of(inside)
        found = _boxes(inside.path, some, below) or (_SEGMENTATION if _have_masks(some, below) else None)
        if found is not None:
            return found
    return None


def _first_with_pictures(folder: Path, depth: int = 2) -> list[_Place]:
    """The first folder with pictures, the one given or one below it (split, city)."""
    place = _look_into(folder)
    if _pictures_of(place):
        return [place]
    below = itertools.islice(sorted(place.folders.items()), _HANDFUL if depth else 0)
    return next((found for _, path in below if (found := _first_with_pictures(path, depth - 1))), [])


def _pictures_of(place: _Place) -> list[str]:
    """The stems of a handful of pictures."""
    names = (Path(name) for name in place.files)
    return sorted(name.stem for name in names if name.suffix.lower() in _ENDINGS)[:_HANDFUL]


def _have_masks(stems: list[str], folder: Path) -> bool:
    """Whether each picture has a PNG of its stem, or of its stem and some more (`1_mask.png`), in a folder."""
    masks = sorted(name[:-4].lower() for name in _names(folder, MOST)[0] if name.lower().endswith(".png"))
    wanted = [re.sub(r"_leftimg8bit$", "", stem.lower()) for stem in stems]
    return bool(stems) and all(
        os.path.isfile(folder / f"{stem}.png")  # noqa: PTH113 - no error where it may not look
        or any(mask == short or mask.startswith((f"{short}_", f"{short}-", f"{short}.")) for mask in masks)
        for stem, short in zip(stems, wanted, strict=True)
    )


def _boxes(pictures: Path, stems: list[str], folder: Path) -> tuple[str, str] | None:
    """What the boxes of a handful of pictures are written as in a folder; None where there are none, or other text."""
    for kind, ending, test in _BOXES:
        texts = [text for stem in stems if (text := _text(folder / f"{stem}{ending}"))]
        if texts and all(test(text) for text in texts):
            return kind, ending
    return None


def _is_object(text: str) -> bool:
    return "<annotation" in text and "<object" in text


def _is_yolo(text: str) -> bool:
    """Whether each line is a class and a box: five numbers, the last four shares of the picture."""
    rows = [line.split() for line in text.splitlines() if line.strip()]
    return bool(rows) and all(len(row) == 5 and row[0].isdecimal() and all(map(_is_share, row[1:])) for row in rows)


def _is_share(word: str) -> bool:
    try:
        number = float(word)
    except ValueError:
        return False
    return math.isfinite(number) and 0 <= number <= 1


def _text(path: Path) -> str:
    """The start of a file, whole lines of it; empty where it cannot be read."""
    try:
        start = read_start(path, _READ)
    except DataError:
        return ""
    whole = start if len(start) < _READ else start[: start.rfind(b"\n") + 1]
    return whole.decode("utf-8", "replace").strip()


def _means_masks(name: str) -> bool:
    return _MASK_NAME.fullmatch(name.lower()) is not None


def _means_pictures(name: str) -> bool:
    return _PICTURE_NAME.search(name.lower()) is not None


def _named(place: _Place, name: str) -> str:
    return f"{shown(place.folders[name].name)}/"


def _holds(folder: Path | None, ending: str) -> bool:
    """Whether a folder, or one in it, holds a file with that ending; of each folder MOST names are looked at."""
    if folder is None:
        return False
    files, folders = _names(folder, MOST)
    within = itertools.chain(files, *(_names(one, MOST)[0] for one in folders))
    return any(name.lower().endswith(ending) for name in within)


def _look_into(folder: Path, most: int | None = 1000) -> _Place:
    files, folders = _names(folder, most)
    return _Place(folder, files, {path.name.lower(): path for path in folders})


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
_HANDFUL = 5  # pictures whose labels are looked for
_READ = 4096  # bytes of a file of labels
_SPLITS = ("train", "val", "valid", "validation", "test")
_VOC = ("annotations", "imagesets", "segmentationclass")
_PICTURES = ("images", *_SPLITS, *(f"{split}{year}" for split in ("train", "val", "test") for year in (2014, 2017)))
_MASKS = ("masks", "labels", "annotations")
_ROBOFLOW = "_annotations.coco.json"
_COCO_KEYS = tuple(
    f'"{name}"'.encode() for name in ("info", "licenses", "images", "annotations", "categories", "file_name", "bbox")
)
_ENDINGS = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff", ".gif", ".ppm")
_MASK_NAME = re.compile(
    r"(.*[_-])?(masks?|labels?|gt|gtfine|gtcoarse|ground_?truths?|segmentations?|annots?|annotations?)|.*annot"
    r"|segmentation_?(masks?|class|object)|labeledapproved.*"
)
_PICTURE_NAME = re.compile(
    r"ima?ge?s?($|[_\d-])|images|img8bit|pictures?|photos?|frames?|stills|^(train|val|valid|validation|test)($|[_\d-])"
    r"|_train_|^(x|rgb|raw|inputs?|data)$"
)
_SEGMENTATION = ("a segmentation set", ".png")
_BOXES: tuple[tuple[str, str, Callable[[str], bool]], ...] = (
    ("a detection set with boxes as XML", ".xml", _is_object),
    ("a detection set in the YOLO layout", ".txt", _is_yolo),
)
_LOOKS = (_camvid, _voc, _coco, _images, _beside, _annotations_beside)

"""Image folders, one folder a class: order, names, splits, sizes, limits."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from provnet import open_data
from provnet.base import files
from provnet.base.errors import DataError, MemoryLimitError, UsageError
from provnet.base.files import DataWarning
from provnet.data import pictures as picture_files
from provnet.data.open import has_split, reopen
from tests.cases import cases
from tests.data.made import encode, noise, pictures, write_folder


def test_class_per_folder_in_byte_order(tmp_path: Path) -> None:
    made = pictures("b/2.png", "b/10.png", "a/z.png", "a/deep/er/k.png", "C/x.png")
    data = open_data(write_folder(tmp_path, made))
    assert data.samples.sample_ids == ("C/x.png", "a/deep/er/k.png", "a/z.png", "b/10.png", "b/2.png")
    assert data.samples.paths == data.samples.sample_ids
    assert data.class_names == ("C", "a", "b")
    assert data.labels.tolist() == [0, 1, 1, 2, 2]
    assert data.shape == (1, 6, 5)
    for name, image in zip(data.samples.sample_ids, data.images, strict=True):
        assert (image[0].numpy() == made[name]).all()
    assert not has_split(tmp_path, "test")


def test_hash_is_that_of_the_file(tmp_path: Path) -> None:
    import hashlib

    data = open_data(write_folder(tmp_path, pictures("a/1.png", "b/2.png")))
    for i, name in enumerate(data.samples.sample_ids):
        assert data.samples.hex(i) == hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()


def test_numbered_classes_are_in_order_of_value(tmp_path: Path) -> None:
    data = open_data(write_folder(tmp_path, pictures("10/a.png", "9/a.png", "0/a.png")))
    assert data.class_names == ("0", "9", "10")
    assert data.samples.sample_ids == ("0/a.png", "10/a.png", "9/a.png")
    assert data.labels.tolist() == [0, 2, 1]


@pytest.mark.parametrize("test", ["test", "val"])
def test_train_and_test_folders(tmp_path: Path, test: str) -> None:
    made = pictures("train/a/1.png", "train/b/2.png", f"{test}/a/3.png", f"{test}/b/4.png", f"{test}/b/5.png")
    write_folder(tmp_path, made)
    assert has_split(tmp_path, "test")
    assert open_data(tmp_path).samples.sample_ids == ("train/a/1.png", "train/b/2.png")
    assert len(open_data(tmp_path, split="test")) == 3
    everything = open_data(tmp_path, split="all")
    assert len(everything) == 5
    assert everything.class_names == ("a", "b")


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    data = open_data(write_folder(tmp_path, pictures("train/1.png", "plane/1.png")))
    assert data.class_names == ("plane", "train")


def test_both_splits_number_the_classes_alike(tmp_path: Path) -> None:
    write_folder(tmp_path, pictures("train/b/1.png", "train/c/2.png", "test/a/3.png", "test/c/4.png"))
    with pytest.warns(DataWarning, match="1 classes without pictures in split train"):
        train = open_data(tmp_path)
    with pytest.warns(DataWarning, match="without pictures in split test"):
        test = open_data(tmp_path, split="test")
    assert train.class_names == test.class_names == ("a", "b", "c")
    assert train.labels.tolist() == [1, 2]
    assert test.labels.tolist() == [0, 2]


def test_a_missing_test_split_is_a_usage_error(tmp_path: Path) -> None:
    write_folder(tmp_path, pictures("a/1.png"))
    with pytest.raises(UsageError, match="no test split"):
        open_data(tmp_path, split="test")


def test_an_empty_class_stays_a_class(tmp_path: Path) -> None:
    write_folder(tmp_path, pictures("a/1.png", "c/1.png"))
    (tmp_path / "b").mkdir()
    with pytest.warns(DataWarning, match="1 classes without pictures"):
        data = open_data(tmp_path)
    assert data.class_names == ("a", "b", "c")
    assert data.labels.tolist() == [0, 2]


def test_one_sample_one_class(tmp_path: Path) -> None:
    data = open_data(write_folder(tmp_path, {"a/1.png": noise((1, 1))}))
    assert len(data) == 1
    assert data.shape == (1, 1, 1)


def test_no_pictures_at_all(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no pictures found under .*; looked for \.png"):
        open_data(tmp_path)
    (tmp_path / "a").mkdir()
    with pytest.raises(UsageError, match="no pictures found under"):
        open_data(tmp_path)


def test_pictures_without_class_folders(tmp_path: Path) -> None:
    write_folder(tmp_path, pictures("1.png"))
    with pytest.raises(UsageError, match="in no class folder"):
        open_data(tmp_path)


def test_bad_files_are_refused_or_counted(tmp_path: Path) -> None:
    whole = encode(noise((6, 5), 9))
    write_folder(tmp_path, pictures("a/1.png", "b/2.png") | {"a/bad.png": whole[:-20], "b/empty.png": b""})
    with pytest.raises(DataError, match=r"^a/bad\.png: the file is truncated"):
        open_data(tmp_path)
    data = open_data(tmp_path, skip_bad=True)
    assert data.samples.sample_ids == ("a/1.png", "b/2.png")
    assert [line.split(":")[0] for line in data.skipped] == ["a/bad.png", "b/empty.png"]
    assert (data.images[1, 0].numpy() == noise((6, 5), 1)).all()


def test_nothing_but_bad_files(tmp_path: Path) -> None:
    write_folder(tmp_path, {"a/bad.png": b"", "a/worse.png": b"x"})
    with pytest.raises(DataError, match="all 2 pictures are bad"):
        open_data(tmp_path, skip_bad=True)


def test_mixed_sizes_are_brought_to_one(tmp_path: Path) -> None:
    made = pictures("a/1.png", "a/2.png", "b/1.png") | {"b/2.png": noise((9, 8))}
    write_folder(tmp_path, made)
    data = open_data(tmp_path)
    assert data.shape == (1, 64, 64)
    assert data.notes == ("pictures of 2 sizes: the network sees each at 64 x 64 (stretched, nothing is cut)",)
    assert data.spec.options == {"fit": "stretch", "size": [64, 64]}
    assert reopen(data.spec).samples.fingerprint == data.samples.fingerprint
    before = replace(data.spec, options={})  # a run of pictures of one size, as runs were written before
    with pytest.raises(DataError, match=r"\(6 x 5: 3, 9 x 8: 1; the rarest: b/2\.png\); pass size \(train --size\)"):
        reopen(before)
    assert open_data(tmp_path, size=7).shape == (1, 7, 7)
    assert open_data(tmp_path, size=(4, 8)).shape == (1, 4, 8)


def test_grey_and_colour_are_brought_to_rgb_and_counted(tmp_path: Path) -> None:
    made = pictures("a/1.png", "a/2.png") | {"b/1.png": noise((6, 5, 3))}
    write_folder(tmp_path, made)
    data = open_data(tmp_path)
    assert data.shape == (3, 6, 5)
    assert data.notes == ("grey and colour are mixed: 2 grey pictures brought to rgb, of 3",)
    assert data.spec.options == {"fit": "stretch", "mode": "rgb"}
    grey = open_data(tmp_path, limit=1)
    assert (grey.samples.pixel_sha256[0] == data.samples.pixel_sha256[0]).all()  # named as it was found
    assert open_data(tmp_path, mode="rgb").shape == (3, 6, 5)
    assert open_data(tmp_path, mode="grey").shape == (1, 6, 5)


def test_the_frame_is_part_of_the_name(tmp_path: Path) -> None:
    frames = [noise((6, 5), seed) for seed in range(3)]
    import io

    from PIL import Image

    buffer = io.BytesIO()
    images = [Image.fromarray(frame) for frame in frames]
    images[0].save(buffer, "TIFF", save_all=True, append_images=images[1:])
    write_folder(tmp_path, {"a/pages.tif": buffer.getvalue(), "a/one.png": noise((6, 5), 7)})
    with pytest.raises(DataError, match=r"a/pages\.tif: holds 3 frames"):
        open_data(tmp_path)
    data = open_data(tmp_path, frame=0)
    assert data.samples.sample_ids == ("a/one.png", "a/pages.tif#0")
    assert data.samples.paths == ("a/one.png", "a/pages.tif")


def test_limit_takes_evenly_from_the_classes(tmp_path: Path) -> None:
    write_folder(tmp_path, pictures(*(f"{c}/{i}.png" for c in "ab" for i in range(5))))
    assert open_data(tmp_path, limit=4).samples.sample_ids == ("a/0.png", "a/1.png", "b/0.png", "b/1.png")


def test_class_names_given_fix_the_order(tmp_path: Path) -> None:
    write_folder(tmp_path, pictures("a/1.png", "b/1.png"))
    with pytest.warns(DataWarning, match="without pictures"):
        data = open_data(tmp_path, class_names=["c", "b", "a"])
    assert data.labels.tolist() == [2, 1]
    with pytest.raises(DataError, match="class folder b is not among"):
        open_data(tmp_path, class_names=["a"])


def test_the_memory_needed_is_told_before_it_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path, pictures("a/1.png", "b/1.png"))
    monkeypatch.setattr(files, "free_memory", lambda: 50)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=10))
    with pytest.raises(MemoryLimitError, match=r"take 60 B, more than memory holds, and .* has 10 B left"):
        open_data(tmp_path)


def test_what_does_not_fit_into_memory_lies_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path / "data", pictures(*(f"a/{i}.png" for i in range(20))))
    inside = open_data(tmp_path / "data")
    monkeypatch.setenv("PROVNET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(files, "free_memory", lambda: 50)
    mapped = open_data(tmp_path / "data", cache=False)
    assert "it lies in a file" in mapped.notes[0]
    assert torch.equal(mapped.images, inside.images)
    assert mapped.samples.fingerprint == inside.samples.fingerprint
    rows = np.arange(20)[::-1]
    assert torch.equal(mapped.select(rows).images, inside.images.flip(0))
    assert not list((tmp_path / "cache").iterdir())  # nothing is left of it


def test_order_does_not_depend_on_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path, pictures(*(f"a/{i}.png" for i in range(40))))
    many = open_data(tmp_path)
    monkeypatch.setattr(picture_files, "WORKERS", 1)
    monkeypatch.setattr(picture_files, "WINDOW", 7)
    one = open_data(tmp_path)
    assert many.samples.fingerprint == one.samples.fingerprint
    assert (many.images == one.images).all()


def test_progress_goes_to_stderr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_folder(tmp_path, pictures("a/1.png", "b/1.png"))
    monkeypatch.setattr(picture_files, "_LONG", 1)
    open_data(tmp_path, progress=True)
    assert capsys.readouterr() == ("", "")  # not a terminal: nothing
    monkeypatch.setenv("FORCE_COLOR", "1")
    open_data(tmp_path, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "reading pictures" in err


LAYOUTS = {
    "segmentation set in the CamVid layout": ("train/1.png", "trainannot/1.png", "val/2.png", "valannot/2.png"),
    "detection set in the Pascal VOC layout": ("JPEGImages/1.png", "Annotations/1.xml", "ImageSets/Main/train.txt"),
    "segmentation set in the Pascal VOC layout": (
        "VOC2012/JPEGImages/1.png",
        "VOC2012/Annotations/1.xml",
        "VOC2012/SegmentationClass/1.png",
    ),
    "COCO layout": ("images/train2017/1.png", "images/val2017/2.png", "annotations/instances_train2017.json"),
    "COCO layout without images/": ("train2017/1.png", "val2017/2.png", "annotations/instances_train2017.json"),
    "COCO layout (_annotations": ("train/1.png", "train/_annotations.coco.json", "valid/2.png"),
    "YOLO layout": ("images/train/1.png", "labels/train/1.txt", "data.yaml"),
    "YOLO layout by split": ("train/images/1.png", "train/labels/1.txt", "valid/images/2.png", "valid/labels/2.txt"),
    "segmentation set (masks": ("images/1.png", "masks/1.png"),
    "detection set in the Pascal VOC layout (JPEGImages/, Annotations/) in VOCdevkit/VOC2007/": (
        "VOCdevkit/VOC2007/JPEGImages/1.png",
        "VOCdevkit/VOC2007/Annotations/1.xml",
    ),
    "boxes as XML (*.xml beside the pictures) in test/": ("train/1.png", "train/1.xml", "test/2.png", "test/2.xml"),
    "YOLO layout (*.txt beside the pictures) in test/": ("train/1.png", "test/2.png", "test/2.txt"),
    "boxes as XML (annotations/*.xml beside images/)": ("images/1.png", "annotations/1.xml"),
    "YOLO layout (Labels/*.txt beside Images/)": ("Images/1.png", "Labels/1.txt"),
    "YOLO layout (label/*.txt beside image/)": ("image/train/1.png", "label/train/1.txt"),
    "segmentation set (Masks/*.png beside Images/)": ("Images/1.png", "Masks/1.png"),
    "CamVid layout (TRAINANNOT/ beside TRAIN/)": ("TRAIN/1.png", "TRAINANNOT/1.png"),
    **{
        f"segmentation set ({masks}/*.png beside {images}/)": (f"{images}/{a}.png", f"{masks}/{b}.png")
        for images, masks, a, b in (
            ("img", "mask", "1", "1"),
            ("image", "label", "1", "1"),
            ("imgs", "gt", "1", "1"),
            ("pictures", "segmentation", "1", "1_mask"),
            ("leftImg8bit", "gtFine", "train/ulm/1_leftImg8bit", "train/ulm/1_gtFine_labelIds"),
            ("701_StillsRaw_full", "LabeledApproved_full", "01TP_1", "01TP_1_L"),
        )
    },
}
BOXES = {"xml": b"<annotation><object><name>a</name></object></annotation>", "txt": b"0 0.5 0.5 0.25 1\n3 0 0 1 1e-2\n"}


@cases("name", LAYOUTS)
def test_sets_of_masks_and_boxes_are_refused_by_name(name: str, tmp_path: Path) -> None:
    """Their folders would become classes: pictures would be told from masks."""
    given = enumerate(LAYOUTS[name])
    files = {each: noise((6, 5), i) if each.endswith("png") else BOXES.get(each[-3:], b"{}") for i, each in given}
    root = write_folder(tmp_path, files)
    words = re.escape(name.split(" without", maxsplit=1)[0].split(" by split", maxsplit=1)[0])
    with pytest.raises(UsageError, match=f"{words}.*; provnet trains classifiers, on pictures with one label each"):
        open_data(root)


CLASSES = {
    "names of pictures and labels": ("images/1.png", "labels/2.jpg"),
    "images and masks as classes": ("images/1.png", "masks/2.jpg"),
    "worn or not": ("mask/1.png", "no_mask/1.png"),
    "numbered alike": ("gt/1.png", "suv/1.png"),
    "a bus and a train": ("train/1.png", "bus/1.png"),
    "formats": ("JPEGImages/1.jpg", "PNGImages/1.png"),
    "photographs and drawings": ("photo/1.jpg", "sketch/1.png"),
    "a list beside": ("cat/1.png", "dog/2.png", "train.csv"),
    "captions": ("train/a.png", "train/a.txt", "bus/b.png"),
    "boxes of classes": ("cat/1.png", "cat/1.xml", "dog/2.png", "dog/2.xml"),
}


@pytest.mark.filterwarnings("ignore:.*left out, not pictures")
@pytest.mark.parametrize("name", CLASSES)
def test_classes_are_not_taken_for_masks_and_boxes(name: str, tmp_path: Path) -> None:
    words = {"txt": b"a red bus", "csv": b"path,label\ncat/1.png,cat\n"}
    files = {each: words.get(each[-3:], BOXES["xml"]) for each in CLASSES[name]}
    shown = {each: noise((6, 5), i) for i, each in enumerate(files) if each.endswith(("png", "jpg"))}
    data = open_data(write_folder(tmp_path, files | shown))
    assert data.class_names == tuple(sorted({each.split("/")[0] for each in files if "/" in each}))


def test_pictures_of_a_set_of_masks_or_boxes_are_refused_alone(tmp_path: Path) -> None:
    """One folder around them would not make them classes."""
    write_folder(tmp_path, pictures("a/train/1.png", "a/trainannot/1.png", "b/JPEGImages/1.png"))
    write_folder(tmp_path, {"b/Annotations/1.xml": BOXES["xml"], "c/train/1.png": noise((6, 5)), "c/labels/1": b""})
    for part, words in (("a/train", "CamVid"), ("b/JPEGImages", "Pascal VOC")):
        with pytest.raises(UsageError, match=rf"pictures of a \w+ set in the {words} layout .* cut those out first"):
            open_data(tmp_path / part)
    with pytest.raises(UsageError, match="needs no labels takes them within one folder of any name"):
        open_data(tmp_path / "c/train")


def test_annotations_of_coco_are_named_where_they_are_given_as_data(tmp_path: Path) -> None:
    place = tmp_path / "instances_train.json"
    place.write_text('{"images": [{"file_name": "a.jpg", "id": 1}], "annotations": []}')
    with pytest.raises(UsageError, match=r"instances_train\.json: annotations of .* in the COCO layout; .*CSV"):
        open_data(place)
    place.write_text('{"runs": 1}')
    with pytest.raises(UsageError, match="not a data set"):
        open_data(place)


def test_class_folders_with_boxes_beside_them_are_no_set_of_boxes(tmp_path: Path) -> None:
    files = {"train/cat/images/1.png": noise((6, 5), 1), "train/dog/images/2.png": noise((6, 5), 2)}
    beside = {"heads_train.json": b"{}", "train/cat/boxes.txt": b"1 2 3 4", "test/dog/images/3.png": noise((6, 5), 3)}
    with pytest.warns(DataWarning, match="not pictures"):
        data = open_data(write_folder(tmp_path, files | beside))
    assert data.class_names == ("cat", "dog")

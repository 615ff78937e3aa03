"""PIL images are read as picture files are, alone or in a list; masked samples and mixed labels are refused."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import provnet
from provnet import ProvenanceClassifier
from provnet.base.errors import DataError
from provnet.data.modalities.decode import decode
from provnet.data.rules import DecodeRule
from tests.estimator.made import pictures, same, small


@pytest.fixture(scope="module")
def asked() -> tuple[ProvenanceClassifier, np.ndarray]:
    x, y = pictures(dtype="uint8")
    return small().fit(x, y), x


@pytest.mark.parametrize("kind", [Image.fromarray, np.asarray, torch.from_numpy])
def test_three_grey_pictures_are_not_one_of_three_channels(
    kind: Callable[[np.ndarray], Any], asked: tuple[ProvenanceClassifier, np.ndarray]
) -> None:
    model, x = asked
    for wrap in (list, tuple):
        with pytest.raises(DataError, match=r"one or many, \(N, \.\.\.\); got an array of shape \(3, 6, 7\)"):
            model.explain(wrap(kind(one) for one in x[0]))
    same(model.explain(x[0]), model.explain(x[:1]))  # an array of this shape is one picture


def test_a_list_of_palettes_is_its_colours(asked: tuple[ProvenanceClassifier, np.ndarray]) -> None:
    model, x = asked
    colours = [Image.fromarray(one.transpose(1, 2, 0)) for one in x[:5]]
    palettes = [one.convert("P") for one in colours]
    assert np.asarray(palettes[0]).ndim == 2
    same(model.explain(palettes), model.explain([one.convert("RGB") for one in palettes]))
    given = provnet.open_data([*palettes, colours[0]], [0, 1, 0, 1, 0, 1])  # kinds of image may be mixed
    assert given.shape == (3, 6, 7)
    expected = np.stack([np.asarray(one.convert("RGB")) for one in (*palettes, colours[0])]).transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(given.images.numpy(), expected)


def test_a_photo_opened_with_pil_is_upright(asked: tuple[ProvenanceClassifier, np.ndarray]) -> None:
    model, x = asked
    exif, buffer = Image.Exif(), io.BytesIO()
    exif[0x0112] = 6
    Image.fromarray(np.rot90(x[0].transpose(1, 2, 0)).copy()).save(buffer, "PNG", exif=exif)
    upright = decode(buffer.getvalue(), "photo.png", rule=DecodeRule())
    np.testing.assert_array_equal(upright, x[0].transpose(1, 2, 0))
    for given in (Image.open(buffer), [Image.open(buffer)]):
        same(model.explain(given), model.explain(x[:1]))


def test_masked_values_are_missing(asked: tuple[ProvenanceClassifier, np.ndarray]) -> None:
    model, x = asked
    _, y = pictures()
    for shape in ((36, 126), x.shape):
        masked = np.ma.masked_greater(x.reshape(shape), 250)
        count = f"{int(masked.mask.sum())} values are masked"
        for call in (model.predict, model.explain, lambda given: small().fit(given, y)):
            with pytest.raises(DataError, match=count):
                call(masked)
    with pytest.raises(DataError, match="12 values are masked"):
        small().fit(x, np.ma.masked_equal(y, 2))
    plain = np.ma.masked_array(x)  # nothing is masked
    np.testing.assert_array_equal(model.predict(plain), model.predict(x))


@pytest.mark.parametrize("labels", [[1, "1", "2"], ("b", 1, 2)])
def test_text_and_numbers_are_not_mixed(labels: Any) -> None:
    x, _ = pictures(3)
    with pytest.raises(DataError, match="labels must be all text or all whole numbers, got int, str"):
        small(epochs=1).fit(x, labels)


def test_pil_images_are_read_by_the_range_and_background_of_the_run(tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(0, 4096, (6, 8, 8)).astype(np.uint16)  # 12 bits in files of 16
    for i, one in enumerate(values):
        (tmp_path / str(i % 2)).mkdir(exist_ok=True)
        Image.fromarray(one).save(tmp_path / str(i % 2) / f"{i}.png")
    data = provnet.open_data(tmp_path, value_range=(0, 4095))
    model = small().fit(data)
    files = [Image.open(tmp_path / name) for name in data.samples.sample_ids]
    same(model.explain(files), model.explain(data.images))
    same(model.explain(files[2]), model.explain(data.images[2:3]))
    opened = provnet.open_data([*map(Image.fromarray, values)], np.arange(6) % 2, value_range=(0, 4095))
    assert int(opened.images.max()) == round(255 * int(values.max()) / 4095)
    floats = [Image.fromarray(one.astype(np.float32)) for one in values]
    assert torch.equal(provnet.open_data(floats, np.arange(6) % 2, value_range=(0, 4095)).images, opened.images)
    clear = [Image.new("RGBA", (8, 8), (9, 9, 9, 0)) for _ in range(2)]
    assert provnet.open_data(clear, [0, 1], background="black").images.unique().tolist() == [0]


def test_a_photo_with_damaged_exif_is_taken_as_it_lies(asked: tuple[ProvenanceClassifier, np.ndarray]) -> None:
    model, x = asked
    buffer = io.BytesIO()
    Image.fromarray(x[0].transpose(1, 2, 0)).save(buffer, "JPEG", exif=b"Exif\0\0garbage!")
    photo = Image.open(buffer).convert("RGB")  # as loaders give it
    pixels = np.asarray(photo).transpose(2, 0, 1)[None]
    same(model.explain([photo]), model.explain(pixels))
    assert provnet.open_data([photo, photo], [0, 1]).images[0].tolist() == pixels[0].tolist()

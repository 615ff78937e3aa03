"""A damaged picture cache is a warning and mended; it never changes the sample table."""

from __future__ import annotations

import pickle
import random
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from provnet.base.files import DataWarning
from tests.counts import count, grows
from tests.data.cache.made import assert_equal, files, opened


def flip(blob: bytes, at: int) -> bytes:
    return blob[:at] + bytes([blob[at] ^ 0x10]) + blob[at + 1 :]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda blob: b"",
    "cut short": lambda blob: blob[:-1],
    "cut in its header": lambda blob: blob[:20],
    "longer": lambda blob: blob + b"\0",
    "text": lambda blob: b"hello" * 100,
    "a pickle": lambda blob: pickle.dumps({"a": 1}),
    "other tensors": lambda blob: safetensors.numpy.save({"a": np.zeros(3, np.float32)}),
    "a header that promises more": lambda blob: (2**40).to_bytes(8, "little") + blob[8:],
    "a flipped bit in a stamp": lambda blob: flip(blob, 8 + int.from_bytes(blob[:8], "little") + 3),
    "a flipped bit in a pixel": lambda blob: flip(blob, len(blob) - 7),
}


@pytest.mark.usefixtures("old_enough")
@pytest.mark.parametrize("harm", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_cache_is_a_warning_and_mended(harm: Callable[[bytes], bytes], root: Path, kept: Path) -> None:
    plain = opened(root, None)
    opened(root, kept)
    (file,) = files(kept)
    file.write_bytes(harm(file.read_bytes()))
    with pytest.warns(DataWarning, match="damaged and read anew|no picture cache that can be used"):
        assert_equal(opened(root, kept), plain)
    assert_equal(opened(root, kept), plain)  # without a warning


@pytest.mark.usefixtures("old_enough")
def test_a_cache_of_other_pictures_is_not_taken(root: Path, kept: Path) -> None:
    opened(root, kept)
    (file,) = files(kept)
    opened(root, kept, size=4)
    (other,) = set(files(kept)) - {file}
    other.write_bytes(file.read_bytes())  # the right name, the wrong content
    with pytest.warns(DataWarning, match="SHA-256 is another"):
        assert_equal(opened(root, kept, size=4), opened(root, None, size=4))


@grows
@pytest.mark.usefixtures("old_enough")
def test_any_flipped_bits_leave_the_table_as_it_is(root: Path, kept: Path) -> None:
    plain = opened(root, None)
    opened(root, kept)
    (file,) = files(kept)
    blob = file.read_bytes()
    dice = random.Random(0)
    for _ in range(count(60, 5_000)):
        for path in files(kept):
            path.unlink()
        file.write_bytes(flip(blob, dice.randrange(len(blob))))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DataWarning)
            assert_equal(opened(root, kept), plain)


@pytest.mark.usefixtures("old_enough")
def test_a_cache_that_cannot_be_written_is_a_warning(root: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.warns(DataWarning, match="cache was not written"):
        assert_equal(opened(root, tmp_path / "file"), opened(root, None))

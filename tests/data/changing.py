"""A folder data set that changes at random, with its own record of what training saw."""

from __future__ import annotations

import itertools
import os
import random
import shutil
from pathlib import Path

import numpy as np
from PIL import Image

from provnet import ImageData, open_data
from provnet.data.compare import compare
from provnet.data.evidence import evidence
from tests.data.made import encode, noise


class ChangingFolder:
    """Pictures in two class folders; `change` alters them, `check` holds what is shown against the record."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.root = place / "root0"
        self.fresh = itertools.count(1)
        for seed in range(7):  # the last two are byte-equal
            path = self.root / "ab"[seed % 2] / f"{seed}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(encode(noise((5, 4), min(seed, 5))))
        self.then = open_data(self.root).samples
        self.trained = [(self.root / str(path)).read_bytes() for path in self.then.paths]
        self.pixels = [np.asarray(Image.open(self.root / str(path))) for path in self.then.paths]
        self.stale: ImageData | None = None

    def files(self) -> list[Path]:
        return sorted(path for path in self.root.rglob("*") if path.is_file())

    def change(self, kind: str, dice: random.Random) -> None:
        """One change; where nothing is left to change, a picture is added."""
        self.stale = open_data(self.root)
        files = self.files()
        getattr(self, f"_{kind}" if len(files) > 1 else "_add")(files, dice)

    def check(self) -> None:
        """What is shown has the bytes of training time; whatever still has them is shown and found."""
        now = open_data(self.root)
        on_disk = {path.read_bytes() for path in self.files()}
        for data in (now, self.stale):
            for i, found in enumerate(evidence(self.then, data, range(len(self.then)))):
                if found.picture is None:
                    assert found.note, f"sample {i}: neither a picture nor a reason"
                    assert data is self.stale or self.trained[i] not in on_disk, f"sample {i} is there, but not shown"
                else:
                    assert self.trained[i] in on_disk, f"sample {i}: its bytes are gone, yet a picture is shown"
                    assert np.array_equal(found.picture, self.pixels[i]), f"sample {i}: the picture of another is shown"
        found = compare(self.then, now.samples)
        for i, (position, status) in enumerate(zip(found.positions, found.status, strict=True)):
            if status in ("same", "moved", "relabelled"):
                path = self.root / str(now.samples.paths[position])
                assert path.read_bytes() == self.trained[i], f"sample {i}: matched to another sample"
            elif status == "re-encoded":
                path = self.root / str(now.samples.paths[position])
                assert np.array_equal(np.asarray(Image.open(path)), self.pixels[i]), f"sample {i}: not the same picture"
            else:
                assert position == -1
                assert self.trained[i] not in on_disk, f"sample {i} is there, but counts as {status}"

    def _reorder(self, files: list[Path], dice: random.Random) -> None:
        for path in files:  # new names in random order, so that the listing comes out differently
            path.rename(path.with_name(f"{dice.randrange(10**6):06}-{next(self.fresh)}.png"))

    def _rename(self, files: list[Path], dice: random.Random) -> None:
        path = dice.choice(files)
        path.rename(path.with_name(f"{dice.choice('0az')}{next(self.fresh)}.png"))

    def _move_root(self, files: list[Path], dice: random.Random) -> None:
        self.root = self.root.rename(self.place / f"root{next(self.fresh)}")

    def _edit(self, files: list[Path], dice: random.Random) -> None:
        path = dice.choice(files)
        pixels = np.array(Image.open(path))
        pixels[dice.randrange(5), dice.randrange(4)] ^= 1 << dice.randrange(8)
        path.write_bytes(encode(pixels))

    def _swap(self, files: list[Path], dice: random.Random) -> None:
        one, two = dice.sample(files, 2)
        first, second = one.read_bytes(), two.read_bytes()
        one.write_bytes(second)
        two.write_bytes(first)

    def _delete(self, files: list[Path], dice: random.Random) -> None:
        dice.choice(files).unlink()

    def _add(self, files: list[Path], dice: random.Random) -> None:
        path = self.root / dice.choice("ab") / f"{dice.choice('0az')}{next(self.fresh)}.png"
        path.parent.mkdir(exist_ok=True)
        if files and dice.random() < 0.3:
            shutil.copy(dice.choice(files), path)
        elif dice.random() < 0.3:
            path.write_bytes(dice.choice(self.trained))  # one that went comes back under another name
        else:
            path.write_bytes(encode(noise((5, 4), dice.randrange(10**9) + 10)))

    def _relabel(self, files: list[Path], dice: random.Random) -> None:
        path = dice.choice(files)
        target = self.root / ("b" if path.parent.name == "a" else "a")
        target.mkdir(exist_ok=True)
        path.rename(target / f"{next(self.fresh)}-{path.name[-40:]}")

    def _reencode(self, files: list[Path], dice: random.Random) -> None:
        path = dice.choice(files)
        path.write_bytes(encode(np.array(Image.open(path)), compress_level=dice.randrange(10)))

    def _touch(self, files: list[Path], dice: random.Random) -> None:
        os.utime(dice.choice(files), (dice.randrange(10**9), dice.randrange(10**9)))


CHANGES = ("reorder", "rename", "move_root", "edit", "swap", "delete", "add", "relabel", "reencode", "touch")

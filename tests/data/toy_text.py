"""A modality in one file: texts as counts of hashed character pairs and triples."""

from __future__ import annotations

import unicodedata
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from provnet.base.batches import keyed_generator
from provnet.data.modalities.modality import Modality, Perturb, Preview

WIDTH = 64


class ToyText(Modality):
    """Texts in Unicode: named by their bytes in NFC, perturbed by grams that go missing."""

    name = "toy text"

    def read(self, raw: bytes, name: str) -> str:
        """UTF-8."""
        return raw.decode("utf-8")

    def batch(self, items: Sequence[Any]) -> Tensor:
        """(B, WIDTH) counts."""
        out = torch.zeros(len(items), WIDTH)
        for row, text in enumerate(items):
            for gram in (text[i : i + n] for n in (2, 3) for i in range(len(text) - n + 1)):
                out[row, zlib.crc32(gram.encode()) % WIDTH] += 1
        return out

    def content(self, item: Any) -> bytes:
        """The text in NFC."""
        return unicodedata.normalize("NFC", item).encode()

    def show(self, item: Any) -> Preview:
        """The text."""
        return Preview(text=item)

    def perturbed(self, inputs: Any) -> Mapping[str, Perturb]:
        """Each gram goes missing one time in ten."""

        def dropped(values: Tensor, seed: int) -> Tensor:
            return values * (torch.rand(values.shape, generator=keyed_generator(seed, 1)) > 0.1)

        return {"missing grams": dropped}

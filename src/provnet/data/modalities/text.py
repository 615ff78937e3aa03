"""Texts, made ready for a network by the tokenizer of its user.

A text is named by its Unicode characters in NFC: two ways to write one letter are one text. Token ids and mask are
padded to one length; a model is given them trimmed to the longest text of its batch.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from provnet.base.batches import Fields, keyed_generator
from provnet.base.errors import DataError, UsageError
from provnet.base.files import shown
from provnet.data.modalities.modality import Modality, Perturb, Preview

IDS, MASK = "input_ids", "attention_mask"


@final
@dataclass(frozen=True)
class Text(Modality):
    """Texts as token ids.

    Attributes:
        tokenizer: one of Hugging Face, or a function from a text to a list of whole numbers above 0; None reads a
            run's settings, and tokenises nothing.
        length: most tokens; longer texts are cut.

    >>> words = Text(lambda text: [len(word) for word in text.split()], length=4)
    >>> words.batch(["to be or", "not"])["input_ids"].tolist()
    [[2, 2, 2, 0], [3, 0, 0, 0]]
    """

    tokenizer: Callable[..., Any] | None = None
    length: int = 128
    named: str = ""  # what `to_json` gave of the tokenizer, of a run that is read
    name = "text"

    def __post_init__(self) -> None:
        if isinstance(self.length, bool) or not isinstance(self.length, int) or self.length < 1:
            raise UsageError(f"length must be a whole number of tokens, 1 or more; got {self.length!r}")
        if self.tokenizer is not None and not callable(self.tokenizer):
            raise UsageError(
                f"tokenizer must be one of Hugging Face or a function of a text, got {self.tokenizer!r:.80}"
            )

    def read(self, raw: bytes, name: str) -> str:
        """UTF-8."""
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{shown(name)}: not UTF-8 ({error.reason} at byte {error.start}); convert it first"
            ) from None

    def batch(self, items: Sequence[Any]) -> Fields:
        """(B, length) token ids and mask."""
        if self.tokenizer is None:
            raise UsageError(
                "texts need the tokenizer of the model: open_data(texts, labels, modality=Text(tokenizer)), or of a "
                "run provnet.load(folder, model=model, modality=Text(tokenizer))"
            )
        wrong = next((item for item in items if not isinstance(item, str)), None)
        if wrong is not None:
            raise DataError(f"samples of text must be str, got {type(wrong).__name__}: {wrong!r:.40}")
        rows = self._tokens([unicodedata.normalize("NFC", item) for item in items])
        ids, mask = (np.zeros((len(rows), self.length), dtype=np.int32) for _ in range(2))
        ids[:] = getattr(self.tokenizer, "pad_token_id", None) or 0
        for row, tokens in enumerate(rows):
            ids[row, : len(tokens)], mask[row, : len(tokens)] = tokens, 1
        return Fields({IDS: torch.from_numpy(ids), MASK: torch.from_numpy(mask)})

    def _tokens(self, texts: list[str]) -> list[list[int]]:
        """Token ids of each text, none empty."""
        assert self.tokenizer is not None
        if _of_hugging_face(self.tokenizer):
            found = self.tokenizer(texts, truncation=True, max_length=self.length)[IDS] if texts else []
        else:
            found = [self.tokenizer(text) for text in texts]
        rows = [[int(token) for token in tokens][: self.length] for tokens in found]
        return [tokens or [getattr(self.tokenizer, "pad_token_id", None) or 0] for tokens in rows]

    def content(self, item: Any) -> bytes:
        """The text in NFC."""
        if not isinstance(item, str):
            raise DataError(f"samples of text must be str, got {type(item).__name__}: {item!r:.40}")
        try:
            return unicodedata.normalize("NFC", item).encode()
        except UnicodeEncodeError:
            raise DataError(f"a text holds half a character (a lone surrogate): {item!a:.80}") from None

    def show(self, item: Any) -> Preview:
        """The text."""
        return Preview(text=item)

    def perturbed(self, inputs: Any) -> Mapping[str, Perturb]:
        """One token lost, two neighbours swapped; the first and the last token, which may be signs, stay."""
        if not isinstance(inputs, Fields) or {IDS, MASK} - set(inputs.keys()):
            return {}
        return {"lost token": _lose, "swapped tokens": _swap}

    def to_json(self) -> dict[str, Any]:
        """The length, and what tells one tokenizer from another."""
        return {"modality": self.name, "length": self.length, "tokenizer": self.named or fingerprint(self.tokenizer)}

    @classmethod
    def from_json(cls, options: Mapping[str, Any]) -> Text:
        """As a run names it; without the tokenizer itself."""
        length, named = options.get("length", 128), options.get("tokenizer", "")
        if type(length) is not int or length < 1 or not isinstance(named, str):
            raise DataError("config.json: data.options of texts need a length above 0 and the tokenizer's name")
        return cls(None, length, named)


def _of_hugging_face(tokenizer: Any) -> bool:
    return hasattr(tokenizer, "get_vocab") and hasattr(tokenizer, "model_max_length")


def fingerprint(tokenizer: Any) -> str:
    """What tells one tokenizer from another: its kind, and the SHA-256 of its vocabulary.

    >>> fingerprint(str.split)
    'split'
    """
    if tokenizer is None:
        return ""
    if not _of_hugging_face(tokenizer):
        return str(getattr(tokenizer, "__qualname__", type(tokenizer).__qualname__)).split(".")[-1]
    words = sorted(tokenizer.get_vocab().items())
    return f"{type(tokenizer).__name__} {hashlib.sha256(repr(words).encode()).hexdigest()}"


def trimmed(fields: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Token ids and mask as int64, without the columns that are padding in every text of the batch.

    >>> ids = torch.tensor([[5, 6, 0, 0], [7, 0, 0, 0]])
    >>> trimmed({"input_ids": ids, "attention_mask": (ids > 0).int()})["input_ids"].tolist()
    [[5, 6], [7, 0]]
    """
    width = max(1, int(fields[MASK].sum(1).amax())) if MASK in fields else None
    return {name: (one[:, :width] if one.ndim == 2 else one).long() for name, one in fields.items()}


def _lose(inputs: Any, seed: int) -> Fields:
    """Without one token, the others moved up."""
    ids, mask, place, there = _chosen(inputs, seed)
    column = torch.arange(ids.shape[1])
    later = (column + (column >= place.unsqueeze(1)).long() * there.unsqueeze(1).long()).clamp(max=ids.shape[1] - 1)
    shorter = mask.clone()
    last = mask.sum(1).long() - 1
    shorter[torch.arange(len(ids))[there], last[there]] = 0
    pad = ids.new_zeros(()) if bool(mask.all()) else ids[mask == 0][0]
    return Fields({IDS: ids.gather(1, later).where(shorter > 0, pad), MASK: shorter})


def _swap(inputs: Any, seed: int) -> Fields:
    """With one token and the next in the other order."""
    ids, mask, place, there = _chosen(inputs, seed, room=1)
    rows = torch.arange(len(ids))[there]
    out = ids.clone()
    out[rows, place[there]], out[rows, place[there] + 1] = ids[rows, place[there] + 1], ids[rows, place[there]]
    return Fields({IDS: out, MASK: mask})


def _chosen(inputs: Fields, seed: int, room: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Ids, mask, a place within each text, and whether the text is long enough to have one."""
    ids, mask = inputs[IDS].cpu(), inputs[MASK].cpu()
    count = mask.sum(1).long()
    inner = count - 2 - room
    drawn = torch.rand(len(ids), generator=keyed_generator(seed, 8), dtype=torch.float64)
    place = 1 + (drawn * inner.clamp(min=1)).long()
    return ids, mask, place, inner > 0

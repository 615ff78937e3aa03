"""Texts: as their bytes, which the backbone `text` reads, or made ready for a model by the tokenizer of its user.

A text is named by its Unicode characters in NFC: two ways to write one letter are one text. Without a tokenizer a
network receives its UTF-8 bytes without capitals, 0 behind the end. Token ids and mask are padded to one length; a
model is given them trimmed to the longest text of its batch.
"""

from __future__ import annotations

import hashlib
import random
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from provnet.base.batches import Fields, Inputs, fold, keyed_generator
from provnet.base.errors import DataError, UsageError
from provnet.base.files import brief, shown
from provnet.data.modalities.modality import Modality, Perturb, Preview

IDS, MASK = "input_ids", "attention_mask"
TOKENS, BYTES = 128, 2048  # of a text, unless another length is asked for


@final
@dataclass(frozen=True)
class Text(Modality):
    """Texts as bytes, or as token ids.

    Attributes:
        tokenizer: one of Hugging Face, or a function from a text to a list of whole numbers above 0; None for bytes,
            and for the settings of a run whose tokenizer is somewhere else.
        length: most tokens, or bytes; longer texts are cut. None: TOKENS or BYTES.

    >>> words = Text(lambda text: [len(word) for word in text.split()], length=4)
    >>> words.batch(["to be or", "not"])["input_ids"].tolist()
    [[2, 2, 2, 0], [3, 0, 0, 0]]
    >>> Text(length=4).batch(["Be", "not to"]).tolist()
    [[98, 101, 0, 0], [110, 111, 116, 32]]
    """

    tokenizer: Callable[..., Any] | None = None
    length: int | None = None
    named: str = ""  # what `to_json` gave of the tokenizer, of a run that is read
    name = "text"

    def __post_init__(self) -> None:
        if self.length is not None and (type(self.length) is not int or self.length < 1):
            raise UsageError(f"length must be a whole number of tokens or bytes, 1 or more; got {self.length!r}")
        if self.tokenizer is not None and not callable(self.tokenizer):
            raise UsageError(
                f"tokenizer must be one of Hugging Face or a function of a text, got {self.tokenizer!r:.80}"
            )

    @property
    def as_bytes(self) -> bool:
        """Whether a network receives bytes."""
        return self.tokenizer is None and not self.named

    @property
    def most(self) -> int:
        """The tokens or bytes of the longest text that is not cut."""
        return self.length or (BYTES if self.as_bytes else TOKENS)

    def read(self, raw: bytes, name: str) -> str:
        """UTF-8."""
        try:
            return raw.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{shown(name)}: not UTF-8 ({error.reason} at byte {error.start}); convert it first"
            ) from None

    def batch(self, items: Sequence[Any]) -> Inputs:
        """(B, length) bytes, or token ids and mask of that shape."""
        wrong = next((item for item in items if not isinstance(item, str)), None)
        if wrong is not None:
            raise DataError(f"samples of text must be str, got {type(wrong).__name__}: {wrong!r:.40}")
        texts = [unicodedata.normalize("NFC", item) for item in items]
        if self.as_bytes:
            return _padded([_encoded(text.casefold()) for text in texts], self.most)
        if self.tokenizer is None:
            raise UsageError(
                "texts need the tokenizer of the model: open_data(texts, labels, modality=Text(tokenizer)), or of a "
                "run provnet.load(folder, model=model, modality=Text(tokenizer))"
            )
        rows = self._tokens(texts)
        ids, mask = (np.zeros((len(rows), self.most), dtype=np.int32) for _ in range(2))
        ids[:] = getattr(self.tokenizer, "pad_token_id", None) or 0
        for row, tokens in enumerate(rows):
            ids[row, : len(tokens)], mask[row, : len(tokens)] = tokens, 1
        return Fields({IDS: torch.from_numpy(ids), MASK: torch.from_numpy(mask)})

    def _tokens(self, texts: list[str]) -> list[list[int]]:
        """Token ids of each text, none empty."""
        assert self.tokenizer is not None
        if _of_hugging_face(self.tokenizer):
            found = self.tokenizer(texts, truncation=True, max_length=self.most)[IDS] if texts else []
        else:
            found = [self.tokenizer(text) for text in texts]
        rows = [[int(token) for token in tokens][: self.most] for tokens in found]
        return [tokens or [getattr(self.tokenizer, "pad_token_id", None) or 0] for tokens in rows]

    def content(self, item: Any) -> bytes:
        """The text in NFC; one without a character, or with a NUL, is none."""
        if not isinstance(item, str):
            raise DataError(f"samples of text must be str, got {type(item).__name__}: {item!r:.40}")
        if "\0" in item:
            raise DataError(f"a text holds a NUL character, which ends a text elsewhere; remove it: {brief(item)!r}")
        if not item.strip():
            raise DataError("a text is empty; leave it out, or give it some words")
        return _encoded(unicodedata.normalize("NFC", item))

    def show(self, item: Any) -> Preview:
        """The text."""
        return Preview(text=item)

    def perturbed(self, inputs: Any) -> Mapping[str, Perturb]:
        """Of bytes a word lost, two neighbours swapped, and typos in 5 % of the letters; capitals are not seen anyway.

        Of tokens one lost and two neighbours swapped; the first and the last, which may be signs, stay.
        """
        if is_text(inputs):
            return {name: partial(_rewritten, change) for name, change in CHANGES.items()}
        if not isinstance(inputs, Fields) or {IDS, MASK} - set(inputs.keys()):
            return {}
        return {"lost token": _lose, "swapped tokens": _swap}

    def cut(self, items: Sequence[str]) -> int:
        """How many texts are longer than what a network receives of them, where that are bytes."""
        return sum(len(item) > self.most // 4 and len(_encoded(item)) > self.most for item in items)

    def to_json(self) -> dict[str, Any]:
        """The length, and what tells one tokenizer from another."""
        return {"modality": self.name, "length": self.most, "tokenizer": self.named or fingerprint(self.tokenizer)}

    @classmethod
    def from_json(cls, options: Mapping[str, Any]) -> Text:
        """As a run names it; without the tokenizer itself."""
        length, named = options.get("length"), options.get("tokenizer", "")
        if (length is not None and (type(length) is not int or length < 1)) or not isinstance(named, str):
            raise DataError("config.json: data.options of texts need a length above 0 and the tokenizer's name")
        return cls(None, length, named)


def is_text(inputs: Any) -> bool:
    """Whether inputs (N, L) are the bytes of texts; numbers of a table are floats.

    >>> is_text(torch.zeros(2, 4)), is_text(Text(length=4).batch(["a"]))
    (False, True)
    """
    return isinstance(inputs, Tensor) and inputs.dtype == torch.uint8 and inputs.ndim == 2


def spoken(inputs: Tensor) -> list[str]:
    """The texts that rows of bytes hold; what was cut within a letter loses it.

    >>> spoken(Text(length=5).batch(["Word", "caf\u00e9 au lait"]))
    ['word', 'caf\u00e9']
    """
    rows = inputs.cpu().numpy().astype(np.uint8)
    return [row.tobytes().rstrip(b"\0").decode("utf-8", "ignore") for row in rows]


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise DataError(f"a text holds half a character (a lone surrogate): {text!a:.80}") from None


def _padded(rows: Sequence[bytes], length: int) -> Tensor:
    out = np.zeros((len(rows), length), dtype=np.uint8)
    for place, row in enumerate(rows):
        out[place, : len(row)] = np.frombuffer(row[:length], dtype=np.uint8)
    return torch.from_numpy(out)


def _rewritten(change: Callable[[str, random.Random], str], inputs: Tensor, seed: int) -> Tensor:
    """Each text changed by draws of its own."""
    texts = [change(text, random.Random(fold(seed, row))) for row, text in enumerate(spoken(inputs))]
    return _padded([text.encode() for text in texts], inputs.shape[1])


def thinned(inputs: Tensor, seed: int) -> Tensor:
    """Each text with half of its words: as far from its own as an unseen one is, or nearly."""
    return _rewritten(thin_out, inputs, seed)


def drop_word(text: str, dice: random.Random) -> str:
    """Without one word, where there are two.

    >>> drop_word("to be", random.Random(0))
    'to'
    """
    words = text.split()
    if len(words) > 1:
        del words[dice.randrange(len(words))]
    return " ".join(words)


def swap_words(text: str, dice: random.Random) -> str:
    """With two neighbours in the other order.

    >>> swap_words("to be", random.Random(0))
    'be to'
    """
    words = text.split()
    if len(words) > 1:
        place = dice.randrange(len(words) - 1)
        words[place : place + 2] = reversed(words[place : place + 2])
    return " ".join(words)


def thin_out(text: str, dice: random.Random) -> str:
    """With half of its words, the first among them where none is left."""
    words = text.split()
    return " ".join([word for word in words if dice.random() < 0.5] or words[:1])


def mistype(text: str, dice: random.Random) -> str:
    """With another letter in place of one in twenty."""
    return "".join(dice.choice(LETTERS) if letter.isalpha() and dice.random() < TYPOS else letter for letter in text)


LETTERS, TYPOS = "abcdefghijklmnopqrstuvwxyz", 0.05
CHANGES = {"dropped word": drop_word, "swapped words": swap_words, "typos": mistype}
SHINGLE = 5  # bytes


def overlap(one: Tensor, other: Tensor) -> np.ndarray:
    """(P,) share of the runs of SHINGLE bytes that two texts have in common, of those that either has.

    >>> overlap(*(Text(length=40).batch([text]) for text in ("to be or not to be", "to be or not to")))
    array([0.84615385])
    """
    found = np.zeros(len(one))
    for row, texts in enumerate(zip(one.cpu().numpy(), other.cpu().numpy(), strict=True)):
        words = (re.sub(rb"\s+", b" ", text.tobytes().rstrip(b"\0")) for text in texts)
        left, right = ({raw[i : i + SHINGLE] for i in range(max(1, len(raw) - SHINGLE + 1))} for raw in words)
        found[row] = len(left & right) / len(left | right)
    return found


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

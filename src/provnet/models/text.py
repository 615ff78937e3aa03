"""The backbone of texts: words, pairs of words and pieces of words, weighted by how rare they are (TF-IDF).

A network receives a text as its bytes, 0 behind the end. A *gram* is a word, two words in a row, or 3 to 5 bytes of a
word and the blanks around it, each known by a hash. How rare each is, is learned from the training texts. The class
branch is linear in the grams, which no small network beats on a few thousand texts. The index branch compares the
grams themselves, folded into `KEY` numbers: its keys are not learned, and the class branch does not feel them.

Letters: B texts, L bytes, G grams of a text, V grams that are known, C classes.
"""

from __future__ import annotations

import json
import math
from typing import final

import numpy as np
import torch
import torch.nn.functional as F
from scipy import sparse
from torch import Tensor, nn

from provnet.base.errors import IntegrityError
from provnet.heads.heads import ExemplarHead, IndexHead
from provnet.heads.keys import unit
from provnet.heads.retrieval import top_k_within
from provnet.heads.support import Support, odds_of

TEXT = "text"
SIZES = (3, 4, 5)  # bytes of a piece of a word
KEY = 512  # numbers that grams are folded into
FOLDS = 4  # of them take part for each gram
SCALE = 10.0  # of class scores: grams of a text have length one
BLANK = 32
MOST_GRAMS, MOST_WEIGHTS = 2**17, 2**24  # that are known; those times the classes
LOOKED_AT = 200_000  # texts, evenly spaced, that say how rare grams are
AT_ONCE = 512
UNKNOWN = 2**63 - 1  # no gram has this hash


def mixed(x: Tensor) -> Tensor:
    """Hashes spread evenly over the whole numbers of 63 bits; 0 stays 0."""
    x = (x ^ (x >> 31)) * 0x2545F4914F6CDD1D
    x = (x ^ (x >> 29)) * 0x1B03738712FAD5C9
    return (x ^ (x >> 32)) & UNKNOWN


def grams(texts: Tensor) -> tuple[Tensor, Tensor]:
    """(B, L) bytes -> (B, G) hashes of grams, 0 where there is none, and (B, G) bool, which are pieces of words.

    >>> found, pieces = grams(torch.tensor([list(b"to be")]))
    >>> int(((found > 0) & ~pieces).sum())  # "to", "be" and "to be"
    3
    >>> int(((found > 0) & pieces).sum())  # " to", "to ", " to " and the same of "be"
    6
    """
    b = texts.long()
    b = b[:, : max(1, int((b > 0).sum(1).amax()))]
    b = torch.where((b > 0) & (b <= BLANK), BLANK, b)
    letter = (b >= 128) | ((b >= 48) & (b <= 57)) | ((b >= 97) & (b <= 122))
    word = letter | (b > BLANK)  # a sign is a word of one byte
    starts = word & ~(letter & F.pad(letter, (1, 0))[:, :-1])
    number = starts.cumsum(1)
    place = torch.arange(b.shape[1], device=b.device).expand_as(b)
    first = torch.where(starts, place, 0).cummax(1).values
    power = torch.full((b.shape[1],), 0x100000001B3, device=b.device).cumprod(0)
    values = (b + 1) * power[place - first] * word
    words = torch.zeros(len(b), int(number.amax()) + 1, dtype=torch.int64, device=b.device)
    words = mixed(words.scatter_add_(1, number * word, values)[:, 1:])
    both = (words[:, :-1] != 0) & (words[:, 1:] != 0)
    found = [words, mixed(words[:, :-1] * 31 + words[:, 1:] + 7) * both]
    whole = found[0].shape[1] + found[1].shape[1]
    padded, inner = F.pad(b, (1, 1)), F.pad(word, (1, 1))
    padded = torch.where(padded == 0, BLANK, padded)
    for size in SIZES:
        if padded.shape[1] >= size:
            hashed = mixed((padded.unfold(1, size, 1) * power[:size]).sum(2) + size)
            found.append(hashed * inner.unfold(1, size, 1)[:, :, 1:-1].all(2))
    hashes = torch.cat(found, 1)
    return hashes, (torch.arange(hashes.shape[1], device=b.device) >= whole).expand_as(hashes)


@final
class TextEncoder(nn.Module):
    """(B, L) bytes -> (B, width + C) features: the folded grams, at length one, and the class scores.

    >>> encoder = TextEncoder(known=8, classes=2)
    >>> texts = torch.tensor([list(b"to be"), list(b"or so")])
    >>> encoder.learn(texts, torch.tensor([0, 1]))
    >>> encoder(texts).shape, round(encoder(texts)[0, :KEY].norm().item(), 1)
    (torch.Size([2, 514]), 1.0)
    """

    known: Tensor
    rarity: Tensor

    def __init__(self, known: int, classes: int, width: int = KEY) -> None:
        super().__init__()
        self.width, self.classes = width, classes
        self.register_buffer("known", torch.full((known,), UNKNOWN))
        self.register_buffer("rarity", torch.ones(known + 1))  # the last: of grams that no training text has
        self.bag = nn.EmbeddingBag(known + 1, classes, mode="sum", padding_idx=known)
        self.bias = nn.Parameter(torch.zeros(classes))
        nn.init.zeros_(self.bag.weight)

    @torch.no_grad()
    def learn(self, texts: Tensor, labels: Tensor) -> None:
        """Which grams there are, how rare each is, and where the mean text of each class lies: there scores begin."""
        self._know(texts[:: -(-len(texts) // LOOKED_AT)])
        sums = torch.zeros(self.bag.weight.numel())
        for part, own in zip(torch.split(texts, AT_ONCE), torch.split(labels, AT_ONCE), strict=True):
            _, place, weight = self.weighted(part)
            sums.index_add_(0, (place * self.classes + own.unsqueeze(1)).flatten(), weight.flatten())
        means = sums.view(-1, self.classes) / torch.bincount(labels, minlength=self.classes).clamp_min(1)
        away = means - means.mean(1, keepdim=True)
        away[-1] = 0
        self.bag.weight.copy_(F.normalize(away, dim=0))

    def _know(self, some: Tensor) -> None:
        """Learn grams and how rare each is; the most frequent where they are too many."""
        hashes = counts = torch.zeros(0, dtype=torch.int64)
        for part in torch.split(some, 16 * AT_ONCE):
            sorted_grams = [grams(texts)[0].sort(1).values for texts in torch.split(part, AT_ONCE)]
            new, seen = torch.unique(
                torch.cat([each[_first_of_kind(each)] for each in sorted_grams]), return_counts=True
            )
            hashes, place = torch.unique(torch.cat([hashes, new]), return_inverse=True)
            counts = torch.zeros_like(hashes).index_add_(0, place, torch.cat([counts, seen]))
        if len(hashes) > len(self.known):
            kept = counts.argsort(descending=True, stable=True)[: len(self.known)].sort().values
            hashes, counts = hashes[kept], counts[kept]
        self.known.fill_(UNKNOWN)
        self.known[: len(hashes)] = hashes
        self.rarity.fill_(math.log(1 + len(some)) + 1)
        self.rarity[: len(hashes)] = math.log(1 + len(some)) - (1 + counts).log() + 1

    def weighted(self, texts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(B, G) hashes of different grams, which known ones they are, and their weights, at length one together."""
        hashes, pieces = grams(texts)
        hashes, order = hashes.sort(1)
        pieces, new = pieces.gather(1, order), _first_of_kind(hashes)
        end = torch.arange(hashes.shape[1], device=hashes.device).expand_as(hashes)
        following = torch.where(new | (hashes == 0), end, hashes.shape[1])  # of the next kind; the last ends the text
        following = F.pad(following[:, 1:], (0, 1), value=hashes.shape[1]).flip(1).cummin(1).values.flip(1)
        place = torch.searchsorted(self.known, hashes).clamp(max=len(self.known) - 1)
        place = torch.where(self.known[place] == hashes, place, len(self.known))
        weight = (1 + (following - end).clamp_min(1).log()) * self.rarity[place] * new
        halves = [weight * pieces, weight * ~pieces]  # words and their pieces count alike
        weight = torch.stack([half / half.norm(dim=1, keepdim=True).clamp_min(1e-6) for half in halves]).sum(0)
        return hashes, place, weight * 2**-0.5

    @torch.no_grad()
    def sparse(self, texts: Tensor) -> sparse.csr_array:
        """(N, L) bytes -> (N, V) weights of the known grams."""
        data, columns, counts = [], [], [0]
        for part in torch.split(texts, AT_ONCE):
            _, place, weight = self.weighted(part.to(self.known.device))
            there = (weight > 0) & (place < len(self.known))
            data.append(weight[there].cpu())
            columns.append(place[there].int().cpu())
            counts += there.sum(1).tolist()
        made = torch.cat(data).numpy(), torch.cat(columns).numpy(), np.cumsum(counts, dtype=np.int32)
        return sparse.csr_array(made, shape=(len(texts), len(self.known)))

    def forward(self, x: Tensor) -> Tensor:
        """(B, L) -> (B, width + C)."""
        with torch.autocast(x.device.type, enabled=False):
            hashes, place, weight = self.weighted(x)
            scores = SCALE * self.bag(place, per_sample_weights=weight) + self.bias
            folded = weight.new_zeros(len(x), self.width)
            for number in range(FOLDS):
                drawn = mixed(hashes + number + 1)
                signed = torch.where((drawn >> 40) & 1 == 1, weight, -weight)
                folded.scatter_add_(1, (drawn & UNKNOWN) % self.width, signed)
            return torch.cat([F.normalize(folded, dim=1), scores], 1)


def _first_of_kind(hashes: Tensor) -> Tensor:
    """(B, G) sorted hashes -> (B, G) bool, the first of each kind; 0 is none."""
    return (hashes > 0) & F.pad(hashes[:, 1:] != hashes[:, :-1], (1, 0), value=True)


def architecture_of(texts: Tensor, classes: int) -> str:
    """The size of the encoder for these texts, as a run keeps it."""
    grams_at_most = len(SIZES) * int((texts > 0).sum()) + 2 * len(texts)
    return json.dumps({"grams": max(1, min(MOST_GRAMS, MOST_WEIGHTS // classes, grams_at_most))})


def make_encoder(architecture: str, classes: int, width: int) -> TextEncoder:
    """The encoder of a run."""
    try:
        count = json.loads(architecture)["grams"]
    except (ValueError, KeyError, TypeError):
        count = 0
    if type(count) is not int or not 1 <= count <= MOST_GRAMS:
        raise IntegrityError(f"config.json: the architecture of a text network needs grams, 1 to {MOST_GRAMS:,}")
    return TextEncoder(count, classes, width)


@final
class Columns(nn.Module):
    """Some of the features: (B, D) -> (B, end - start)."""

    def __init__(self, start: int, end: int) -> None:
        super().__init__()
        self.start, self.end = start, end

    def forward(self, features: Tensor) -> Tensor:
        """(B, D) -> (B, end - start)."""
        return features[:, self.start : self.end]


NEAREST, NEARNESS = 5, 10.0  # samples that tell how familiar a text is, and what it counts beside log-odds


@final
class TextSupport(Support):
    """How sure the class is, and how near the nearest training texts of that class are.

    Distances from a class mean say little of texts: two requests for one thing may share no word. The two parts were
    weighed on the validation texts of CLINC150.
    """

    def __init__(self, classes: int, width: int, start: int) -> None:
        super().__init__(classes, width)
        self.start = start

    def forward(self, features: Tensor, classes: Tensor, looks: Tensor | None = None) -> Tensor:
        """(B, D), the claimed classes (B,) -> (B,) log-odds of the class, plus nearness (B, 1) where it is known."""
        shares = torch.softmax(features[:, self.start :].float(), 1)
        odds = odds_of(shares.gather(1, classes.unsqueeze(1))[:, 0])
        return odds if looks is None else odds + NEARNESS * looks[:, 0]


@torch.no_grad()
def nearness(head: IndexHead, features: Tensor, classes: Tensor, but: Tensor | None = None) -> Tensor | None:
    """(B, 1) mean cosine with the nearest keys of the class, without those of samples `but` (B,); None without keys."""
    if not isinstance(head, ExemplarHead):
        return None
    given = head.index_map
    found = top_k_within(unit(features), head.bank, head.starts, given.sizes, classes, NEAREST + 1)
    score = found.score.clone()
    if but is not None:
        score[found.row == head.rows[but].unsqueeze(1)] = -torch.inf
    best = score.sort(1, descending=True).values[:, :NEAREST]
    there = best.isfinite()
    return torch.where(there, best, 0.0).sum(1, keepdim=True) / there.sum(1, keepdim=True).clamp_min(1)

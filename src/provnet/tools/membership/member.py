"""Was this picture trained on? A verdict for each, with the sample that it matches and what agrees.

Equal bytes or equal pixels settle it. Else the score that holds best under distortion is compared with those of
held-out pictures: the p-value is the share of them, this picture counted in, that score as high. Whether it may be said
that a picture is *not* a member depends on what distorted members score, which an audit measures and keeps; and it is
never said where some samples that were trained on cannot be compared: those without an index, and erased ones.

What a score takes for a copy is then looked at: whole pictures are compared with the samples that come nearest (the one
that the network names, and those whose views agree with the picture, or with its mirror image, in most of 64 cells),
block by block, at the size of the original (256 pixels at most). Blocks without structure agree by chance, such as
those of a white background, and count for nothing. A part of a picture is searched for in all places, by correlation,
and then compared in the same way.

Letters: n pictures.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from provnet.base.batches import keyed_generator, pieces
from provnet.base.errors import DataError, IntegrityError, UnsafeFileError, UsageError
from provnet.base.files import DataWarning, read_file
from provnet.base.words import path_word
from provnet.data.dataset import Dataset, ImageData, views_only
from provnet.data.evidence import evidence
from provnet.runs.card import maybe_trained
from provnet.runs.inputs import Fitted, checked_inputs, content_hashes, run_of
from provnet.runs.run import Run
from provnet.runs.safe import read_json, write_json
from provnet.samples.identity import SampleTable
from provnet.tools.membership.compute import decides, member_scores

LONGEST = 256  # of the original, in pixels, as it is compared
BLOCK = 8
SMALLEST = 64  # pixels of the shorter side of an original; blocks of smaller ones, as of digits, agree by chance
STRUCTURE = 8.0  # grey levels of standard deviation, below which a block is plain
CLOSE, NEAR = 0.5, 4.0  # a block agrees within so much of its own spread, or so many grey levels
LEAST, SHARE = 16, 0.15  # blocks with structure, and the share of them that agree in a picture made of another
CHANGED, WHOLE = 12.0, 0.98  # grey levels by which a block is another, and the share of others in an unchanged picture
SEARCHED = 128  # longest side of the original where a part of it is searched
SCALES = tuple(1.02**step for step in range(-20, 36))  # pixels of the part for each pixel of the original
FOUND, AGREED = 0.8, 0.5  # correlation of a part that is looked at closely, and the share of its blocks that agree


@dataclass(frozen=True)
class Likeness:
    """What was done to a picture.

    Attributes:
        kind: `re-encoded`, `resized`, `mirrored`, `cropped` or `painted`.
        share: how much of the original it shows unchanged, 0..1.
    """

    kind: str
    share: float

    @property
    def words(self) -> str:
        """What is said of it, as the end of a sentence.

        >>> Likeness("painted", 0.35).words
        'that picture with about 65 % of it changed'
        """
        gone = f"about {100 * (1 - self.share):.0f} %"
        return {
            "re-encoded": "that picture, saved again with small changes of its values",
            "resized": "that picture in another size",
            "mirrored": "that picture, mirrored" + (f", with {gone} of it changed" if self.share < WHOLE else ""),
            "cropped": f"a part of that picture, {gone} of which is cut away",
            "painted": f"that picture with {gone} of it changed",
        }[self.kind]


def likeness(picture: np.ndarray, original: np.ndarray) -> Likeness | None:
    """What a picture (H, W) or (H, W, 3) is of an original; None where their pixels do not tell that it was made of it.

    >>> original = np.random.default_rng(0).integers(0, 256, (32, 40)).repeat(4, 0).repeat(4, 1).astype(np.uint8)
    >>> likeness(original[:, ::-1], original).kind, likeness(original[::2, ::2], original).kind
    ('mirrored', 'resized')
    """
    if min(original.shape[:2]) < SMALLEST:
        return None
    wanted = _reduced(original, LONGEST)
    straight, turned = (_fit(each, wanted) for each in (picture, picture[:, ::-1]))
    agreeing, mirrored = _agreeing(straight, wanted), _agreeing(turned, wanted)
    if max(agreeing, mirrored) < SHARE:
        return _part(picture, original)
    if mirrored > agreeing:
        return Likeness("mirrored", _kept(turned, wanted))
    same_size, kept = picture.shape[:2] == original.shape[:2], _kept(straight, wanted)
    if kept >= WHOLE:
        return Likeness("re-encoded" if same_size else "resized", kept)
    part = _part(picture, original)
    return part if part is not None and part.kind == "cropped" else Likeness("painted", kept)


def can_tell(original: np.ndarray) -> bool:
    """Whether a picture has enough structure for copies of it to be known by their pixels; a digit of 28 x 28 has not.

    >>> can_tell(np.zeros((64, 64), np.uint8)), can_tell(np.random.default_rng(0).integers(0, 256, (64, 64), np.uint8))
    (False, True)
    """
    if min(original.shape[:2]) < SMALLEST:
        return False
    spread = _blocks(_reduced(original, LONGEST)).std(1)
    return int((spread > STRUCTURE).sum()) >= min(LEAST, len(spread))


def _grey(picture: np.ndarray) -> Image.Image:
    image = Image.fromarray(np.ascontiguousarray(picture))
    return image if image.mode == "L" else image.convert("L")


def _reduced(picture: np.ndarray, longest: int) -> np.ndarray:
    """Grey values, no side above `longest`."""
    image = _grey(picture)
    scale = min(1.0, longest / max(image.size))
    size = tuple(max(1, round(side * scale)) for side in image.size)
    return np.asarray(image.resize((size[0], size[1]), Image.Resampling.BOX), dtype=np.float32)


def _fit(picture: np.ndarray, like: np.ndarray) -> np.ndarray:
    return np.asarray(_grey(picture).resize(like.shape[::-1], Image.Resampling.BOX), dtype=np.float32)


def _agreeing(picture: np.ndarray, original: np.ndarray) -> float:
    """The share of the blocks with structure that agree, 0..1; 0 where there are too few to tell."""
    one, other = _blocks(picture), _blocks(original)
    spread = np.maximum(one.std(1), other.std(1))
    told = spread > STRUCTURE
    if int(told.sum()) < min(LEAST, len(told)):
        return 0.0
    close = np.abs(one - other).mean(1) < np.maximum(NEAR, CLOSE * np.minimum(one.std(1), other.std(1)))
    return float(close[told].mean())


def _kept(picture: np.ndarray, original: np.ndarray) -> float:
    """The share of all blocks that are not clearly others, 0..1."""
    one, other = _blocks(picture), _blocks(original)
    return float((np.abs(one - other).mean(1) < np.maximum(CHANGED, other.std(1))).mean())


def _blocks(values: np.ndarray) -> np.ndarray:
    """(n, 64) blocks of 8 x 8, those at the lower and right edge left out."""
    rows, columns = (max(1, side // BLOCK) for side in values.shape)
    size = [min(BLOCK, side) for side in values.shape]
    part = values[: rows * size[0], : columns * size[1]]
    return part.reshape(rows, size[0], columns, size[1]).transpose(0, 2, 1, 3).reshape(rows * columns, -1)


def _part(picture: np.ndarray, original: np.ndarray) -> Likeness | None:
    """The part of an original that a picture is, as it is or enlarged; None where it is none."""
    height, width = original.shape[:2]
    coarse = _reduced(original, SEARCHED)
    own = coarse.shape[0] / height
    best, at, scale = 0.0, (0, 0), 1.0
    search = _Search(coarse)
    for each in SCALES:
        rows, columns = (round(side / each * own) for side in picture.shape[:2])
        if rows > coarse.shape[0] or columns > coarse.shape[1] or min(rows, columns) < 2 * BLOCK:
            continue
        value, place = search.place_of(_resized(picture, rows, columns))
        if value > best:
            best, at, scale = value, place, each
    if best < FOUND:
        return None
    share, agreeing = 0.0, 0.0
    for each in (scale * step for step in (0.985, 0.99, 0.995, 1.0, 1.005, 1.01, 1.015)):
        rows, columns = round(picture.shape[0] / each), round(picture.shape[1] / each)
        for top, left in _near(at, own, (height - rows, width - columns)):
            there = original[top : top + rows, left : left + columns]
            wanted = _reduced(there, LONGEST)
            found = _agreeing(_fit(picture, wanted), wanted)
            if found > agreeing:
                share, agreeing = rows * columns / (height * width), found
    if agreeing < AGREED:
        return None
    return Likeness("cropped" if share < WHOLE else "resized", share)


def _near(at: tuple[int, int], own: float, room: tuple[int, int]) -> list[tuple[int, int]]:
    """Places around the one that was found, in pixels of the original."""
    reach = max(1, round(1 / own))
    if min(room) < 0:
        return []
    steps = range(-reach, reach + 1)
    tops, lefts = (
        sorted({min(max(round(place / own) + step, 0), most) for step in steps})
        for place, most in zip(at, room, strict=True)
    )
    return [(top, left) for top in tops for left in lefts]


def _resized(picture: np.ndarray, rows: int, columns: int) -> np.ndarray:
    return np.asarray(_grey(picture).resize((columns, rows), Image.Resampling.BOX), dtype=np.float32)


class _Search:
    """Places of a picture that look like a part."""

    def __init__(self, whole: np.ndarray) -> None:
        self.shape = whole.shape
        self.spectrum = np.fft.rfft2(whole)
        values = whole.astype(np.float64)
        self.sums, self.squares = (np.pad(each.cumsum(0).cumsum(1), ((1, 0), (1, 0))) for each in (values, values**2))

    def place_of(self, part: np.ndarray) -> tuple[float, tuple[int, int]]:
        """The highest correlation of a part with a place, and that place."""
        rows, columns = part.shape
        centred = part - part.mean()
        norm = float(np.sqrt((centred**2).sum()))
        if norm == 0:
            return 0.0, (0, 0)
        product = np.fft.irfft2(self.spectrum * np.conj(np.fft.rfft2(centred, self.shape)), self.shape)
        sums, squares = (_windows(each, rows, columns) for each in (self.sums, self.squares))
        spread = np.sqrt(np.maximum(squares - sums**2 / (rows * columns), 1.0))
        values = product[: sums.shape[0], : sums.shape[1]] / (norm * spread)
        place = np.unravel_index(int(values.argmax()), values.shape)
        return float(values[place]), (int(place[0]), int(place[1]))


def _windows(total: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """The sum over a window at each place, of sums from the corner."""
    below, above = total[rows:], total[:-rows]
    return np.asarray(below[:, columns:] - above[:, columns:] - below[:, :-columns] + above[:, :-columns])


ALPHA = 0.01  # a copy is claimed where so few held-out pictures score as high
MISSED = 0.05  # and denied where so few distorted members score as low
MEMBER, COPY, STRANGER, UNKNOWN = "member", "distorted copy of a member", "not a member", "cannot say"
ADDED = "added after training"  # it is in the index, and the network was not trained on it
SEEN = "what the network sees of it is exactly what it saw of"
UNNAMED = "no sample may be named: all of the class that it is taken for are withheld"


@dataclass(frozen=True, eq=False)
class Heldout:
    """What pictures are compared with.

    Attributes:
        score: the name of the score.
        others: (m,) rising, of pictures that were not trained on.
        copies: (k,) rising, of distorted copies of members; empty where none were measured.
        about: where they come from.
    """

    score: str
    others: np.ndarray
    copies: np.ndarray = field(default_factory=lambda: np.empty(0))
    about: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"score": self.score, "others": _rounded(self.others), "copies": _rounded(self.copies)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any], about: str = "") -> Heldout:
        """The inverse of `to_json`; whatever is no list of finite numbers is refused.

        >>> Heldout.from_json({"score": "contrast", "others": [0.5, 0.25], "copies": []}).others.tolist()
        [0.25, 0.5]
        """
        lists = [value.get("others"), value.get("copies")]
        for given in lists:
            fits = isinstance(given, list) and all(type(x) in (int, float) and math.isfinite(x) for x in given)
            if not fits or not isinstance(value.get("score"), str):
                raise IntegrityError("held-out scores must be lists of finite numbers; run provnet audit again")
        others, copies = (np.sort(np.array(given, dtype=np.float64)) for given in lists)
        return cls(value["score"], others, copies, about)


@dataclass(frozen=True)
class Matched:
    """The training sample behind a verdict; `equal` counts the samples with the same pixels, itself among them."""

    sample_id: str
    sha256: str
    index: int
    label: str
    path: str | None
    equal: int = 1


@dataclass(frozen=True)
class Membership:
    """The verdict on one picture.

    Attributes:
        verdict: `member`, `distorted copy of a member`, `added after training`, `not a member` or `cannot say`.
        agrees: what agrees with the match: `bytes`, `pixels`, `view` (of runs that know no more), `picture` (part of
            it, or changed), `content`, or `nothing`.
        match: the training sample; a candidate only where the verdict is `cannot say`, None where it is no member.
        score, value: the score that was compared; None where no sample may be named, all of its class are withheld.
        p_value: how rarely held-out pictures score as high, of how many (`heldout`); None without any.
        missed: the share of distorted members that score as low or lower; None where none were measured.
        why: the reason in a sentence.
    """

    verdict: str
    agrees: str
    match: Matched | None
    score: str
    value: float | None
    p_value: float | None
    heldout: int
    missed: float | None
    why: str

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def memberships(
    run: Run | Fitted,
    images: Tensor | np.ndarray | ImageData,
    sha256: Sequence[str] | None = None,
    *,
    pixel_sha256: Sequence[str] | None = None,
    heldout: Heldout | None = None,
    warn: bool = True,
) -> list[Membership]:
    """A verdict on each of n raw pictures; `sha256` are the hashes of their raw content, 64 digits each, if known.

    `pixel_sha256` are those of the whole pictures, where `images` are what the network sees of them.

    Withheld samples are never named, and their hashes count as unknown; where all samples of a class are withheld, a
    picture that is taken for it gets `cannot say`. Pictures whose values cannot lie in the range trained on get a
    UserWarning, unless `warn` is False because they were looked at before.

    >>> import provnet
    >>> from provnet.training.config import train_config
    >>> from provnet.training.fit import fit
    >>> data = provnet.open_data("embedded", limit=40)
    >>> found = memberships(fit(data, config=train_config(epochs=1)), data.images[3:4])
    >>> found[0].verdict, found[0].agrees, found[0].match.sample_id == data.samples.sample_ids[3]
    ('member', 'pixels', True)
    """
    run = run_of(run)
    pictures = checked_inputs(run, images, warn=warn)
    hashes = _hashes(sha256, len(pictures))
    chosen = decides(run.network)
    _check_heldout(heldout, chosen)
    found = member_scores(run, pictures, warn=False)
    by_bytes, by_pixels = _places(run.samples, "sha256"), _places(run.samples, "pixel_sha256")
    content = content_hashes(run, images, pictures)
    given = _hashes(pixel_sha256, len(pictures))
    pixels = [one or content[row].tobytes() for row, one in enumerate(given)]
    agreed = "view" if views_only(run.config.data) else "pixels"
    unseen = maybe_trained(run.config.training, run.config.erased)
    verdicts = []
    for row, (value, match) in enumerate(zip(found.values[chosen].tolist(), found.match.tolist(), strict=True)):
        same_bytes = by_bytes.get(hashes[row], [])
        same_pixels = by_pixels.get(pixels[row], [])
        p_value, missed = _compared(value, heldout) if match >= 0 else (None, None)
        verdict, agrees, why = _verdict(bool(same_bytes), agreed if same_pixels else "", p_value, missed, heldout)
        why = UNNAMED if match < 0 and verdict == UNKNOWN else why
        if verdict == STRANGER and unseen:
            verdict, why = UNKNOWN, f"{why}, but not all that were trained on can be compared: {unseen}"
        same = same_bytes or same_pixels or ([match] if match >= 0 and verdict != STRANGER else [])
        place = _behind(run.samples, same, match)
        if place is not None and verdict != UNKNOWN and run.samples.added[place]:
            verdict, why = ADDED, _added(agrees, unseen)
        matched = None if place is None else matched_at(run.samples, place)
        count = 0 if heldout is None else len(heldout.others)
        said = value if match >= 0 else None
        verdicts.append(Membership(verdict, agrees, matched, chosen, said, p_value, count, missed, why))
    return verdicts


def _hashes(sha256: Sequence[str] | None, n: int) -> list[bytes]:
    """The hash of each picture, empty where it is not known."""
    if sha256 is None:
        return [b""] * n
    if isinstance(sha256, str) or not isinstance(sha256, Sequence | np.ndarray):
        raise UsageError(f"sha256 must be a list of hashes, one a picture; got {sha256!r:.80}")
    if len(sha256) != n:
        raise UsageError(f"{len(sha256)} hashes for {n} pictures; give one each")
    for text in sha256:
        if not isinstance(text, str) or not re.fullmatch("([0-9a-fA-F]{64})?", text):
            raise UsageError(f"a SHA-256 has 64 digits of 0-9 and a-f, got {text!r:.80}")
    return [bytes.fromhex(text) for text in sha256]


def _check_heldout(heldout: Heldout | None, score: str) -> None:
    if not isinstance(heldout, Heldout | None):
        raise UsageError(
            f"heldout must be a Heldout, got {type(heldout).__name__}; an audit gives one: found = audit(run, members, "
            "nonmembers), then Heldout(found.decides, found.heldout, found.copies)"
        )
    if heldout is not None and heldout.score != score:
        raise UsageError(f'held-out scores are "{heldout.score}", this network is judged by "{score}"; audit it again')


def _behind(samples: SampleTable, same: list[int], match: int) -> int | None:
    """Of the samples that agree the one to name: one that was trained on settles it, the match where it is one."""
    settling = [i for i in same if not samples.added[i]] or same
    return match if match in settling else next(iter(settling), None)


def _verdict(
    same_bytes: bool, same_pixels: str, p_value: float | None, missed: float | None, heldout: Heldout | None
) -> tuple[str, str, str]:
    """Verdict, what agrees, and why."""
    if same_bytes:
        return MEMBER, "bytes", "its bytes are those of a training sample"
    if same_pixels == "view":
        return COPY, "view", f"{SEEN} a training sample; the rest of the picture may differ"
    if same_pixels:
        return MEMBER, "pixels", "its pixels are those of a training sample, in another file"
    if p_value is None or heldout is None:
        return UNKNOWN, "nothing", "no training sample has its pixels, and there are no held-out scores to compare with"
    of = f"{len(heldout.others):,} held-out pictures"
    if p_value <= ALPHA:
        return COPY, "content", f"{_percent(p_value)} or less of {of} match a training sample so closely"
    if 1 / (len(heldout.others) + 1) > ALPHA:
        return UNKNOWN, "nothing", f"{of} are too few to tell a distorted copy, {math.ceil(1 / ALPHA) - 1} are needed"
    if missed is None:
        return (
            UNKNOWN,
            "nothing",
            "it is no copy to the pixel; what distorted members score is not known, audit the run",
        )
    if missed <= MISSED:
        return STRANGER, "nothing", f"only {_percent(missed)} of distorted members match so loosely"
    return (
        UNKNOWN,
        "nothing",
        f"{_percent(p_value)} of {of} score as high, {_percent(missed)} of distorted members as low",
    )


def _added(agrees: str, unseen: str) -> str:
    """What is said of a picture that agrees with a sample which was added to the index."""
    words = {"bytes": "its bytes are those", "pixels": "its pixels are those", "content": "its content is that"}
    words |= {"view": SEEN.removesuffix(" of")}
    if unseen:
        return f"{words[agrees]} of a sample that was added; nobody can tell whether it was trained on before: {unseen}"
    return f"{words[agrees]} of a sample that was added after training; the network was not trained on it"


def _compared(value: float, heldout: Heldout | None) -> tuple[float | None, float | None]:
    if heldout is None or len(heldout.others) == 0:
        return None, None
    above = len(heldout.others) - int(np.searchsorted(heldout.others, value, "left"))
    below = int(np.searchsorted(heldout.copies, value, "right"))
    p_value = (1 + above) / (1 + len(heldout.others))
    return p_value, (1 + below) / (1 + len(heldout.copies)) if len(heldout.copies) else None


def _places(samples: SampleTable, name: str) -> dict[bytes, list[int]]:
    """Samples that may be named, by hash."""
    found: dict[bytes, list[int]] = {}
    for i in np.flatnonzero(~samples.withheld).tolist():
        found.setdefault(getattr(samples, name)[i].tobytes(), []).append(i)
    return found


def matched_at(samples: SampleTable, index: int) -> Matched:
    """The sample at a position, as the one behind a verdict."""
    equal = sum(not samples.withheld[i] for i in samples.equal(index))
    label = samples.class_names[int(samples.labels[index])]
    return Matched(samples.sample_ids[index], samples.hex(index), index, label, samples.paths[index], equal)


def _percent(share: float) -> str:
    return f"{share * 100:.2g} %"


def _rounded(values: np.ndarray) -> list[float]:
    return [float(f"{value:.8g}") for value in values.tolist()]


HELDOUT = "membership.json"


def draw_samples(data: ImageData, limit: int, seed: int) -> ImageData:
    """At most so many samples, drawn by the seed; the first ones of a file are often of one kind.

    >>> import provnet
    >>> len(draw_samples(provnet.open_data("embedded", limit=40), 7, seed=0))
    7
    """
    if len(data) <= limit:
        return data
    return data.select(torch.randperm(len(data), generator=keyed_generator(seed, 42))[:limit].sort().values)


def heldout_file(heldout: Heldout, state: Mapping[str, str]) -> bytes:
    """Held-out scores as they are kept beside the run, with the state of it that they belong to."""
    return write_json({**heldout.to_json(), "about": {"made_from": heldout.about, "run": dict(state)}}, HELDOUT)


def read_heldout(folder: Path, state: Mapping[str, str]) -> Heldout | None:
    """What an audit kept, or None; scores of another state of the run than this are not used, and that is said."""
    if not (folder / HELDOUT).exists():
        return None
    try:
        value = read_json(read_file(folder / HELDOUT, 1_000_000), HELDOUT)
        about = value.get("about")
        if not isinstance(about, dict) or about.get("run") != state:
            way = f"provnet audit {path_word(folder)}"
            words = f"{HELDOUT} tells of this run before it was changed and is not used: {way}"
            warnings.warn(words, DataWarning, stacklevel=2)
            return None
        return Heldout.from_json(value, str(about.get("made_from", "")))
    except (IntegrityError, UnsafeFileError, DataError) as error:
        warnings.warn(f"{HELDOUT} is not used: {error}", DataWarning, stacklevel=2)
        return None


CELLS = 8  # in a row
ALIKE = 16.0  # grey levels within which two cells agree
CANDIDATES = 5  # of each kind that are looked at
PIECE = 1024  # samples that are reduced at a time


def compared(
    run: Run | Fitted,
    parts: Sequence[Dataset],
    views: np.ndarray,
    pictures: Sequence[np.ndarray | None],
    found: Sequence[Membership],
) -> list[Membership]:
    """The verdicts after the whole pictures were compared; those that bytes or pixels settle stay as they are.

    `views` (n, C, H, W) are what the network sees of the `pictures`; `parts` are the training data as they are now.
    """
    run = run_of(run)
    open_rows = [i for i, one in enumerate(found) if pictures[i] is not None and one.agrees not in ("bytes", "pixels")]
    parts = [part for part in parts if len(part)]
    if not open_rows or not parts:
        return list(found)
    cells = [_cells(part.images) for part in parts]
    places = [_rows_of_run(run, part) for part in parts]
    said = list(found)
    for i in open_rows:
        picture = pictures[i]
        assert picture is not None, "they were chosen"
        match = found[i].match
        rows = [] if match is None else [match.index]
        for own, place in zip(cells, places, strict=True):
            rows += [int(place[at]) for at in _candidates(torch.from_numpy(views[i : i + 1].copy()), own)]
        best = _best(run, parts, picture, [row for row in dict.fromkeys(rows) if row >= 0])
        said[i] = _said(run, parts, found[i], best)
    return said


def _said(run: Run, parts: Sequence[Dataset], one: Membership, best: tuple[int, Likeness] | None) -> Membership:
    if best is None:
        if one.verdict != COPY or one.agrees != "content" or not _can_be_told(run, parts, one):
            return one
        why = f"{one.why}, but none of the pictures that come nearest, looked at whole, is its original"
        return replace(one, verdict=UNKNOWN, agrees="nothing", why=why)
    row, found = best
    is_added = bool(run.samples.added[row])
    more = "; it was added after training, and the network was not trained on it" if is_added else ""
    verdict = ADDED if is_added else COPY
    return replace(
        one, verdict=verdict, agrees="picture", match=matched_at(run.samples, row), why=f"it is {found.words}{more}"
    )


def _can_be_told(run: Run, parts: Sequence[Dataset], one: Membership) -> bool:
    """Whether the sample that the network names has a picture whose copies are known by their pixels."""
    rows = [] if one.match is None else [one.match.index]
    pictures = [seen.picture for seen in evidence(run.samples, list(parts), rows)]
    return any(picture is not None and can_tell(picture) for picture in pictures)


def _best(run: Run, parts: Sequence[Dataset], picture: np.ndarray, rows: Sequence[int]) -> tuple[int, Likeness] | None:
    """The sample that the picture was made of, with the most of it unchanged; None where there is none."""
    found: list[tuple[int, Likeness]] = []
    for row, seen in zip(rows, evidence(run.samples, list(parts), rows), strict=True):
        if seen.picture is not None and (alike := likeness(picture, seen.picture)) is not None:
            found.append((row, alike))
    return max(found, key=lambda pair: pair[1].share, default=None)


def _rows_of_run(run: Run, part: Dataset) -> np.ndarray:
    """Which sample of the run each row of some data is; -1 for none, and for those that may not be named."""
    known = {run.samples.pixel_sha256[i].tobytes(): i for i in np.flatnonzero(~run.samples.withheld).tolist()}
    return np.array([known.get(row.tobytes(), -1) for row in part.samples.pixel_sha256], dtype=np.int64)


def _cells(images: Tensor) -> Tensor:
    """(N, C, 8, 8) mean values."""
    parts = [F.adaptive_avg_pool2d(images[rows].float(), CELLS) for rows in pieces(len(images), PIECE)]
    return torch.cat(parts)


def _candidates(view: Tensor, cells: Tensor) -> list[int]:
    """Rows of the data that look like a view or its mirror image, in most cells or on the whole."""
    rows: list[int] = []
    for own in (_cells(view), _cells(view.flip(3))):
        agreeing = ((cells - own).abs().amax(1) < ALIKE).flatten(1).sum(1).float()
        flat, other = _unit(cells), _unit(own)
        for score in (agreeing, flat @ other[0]):
            rows += score.topk(min(CANDIDATES, len(score))).indices.tolist()
    return list(dict.fromkeys(rows))


def _unit(cells: Tensor) -> Tensor:
    flat = cells.flatten(1)
    return F.normalize(flat - flat.mean(1, keepdim=True), dim=1)

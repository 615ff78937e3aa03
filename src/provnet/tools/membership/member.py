"""Was this picture trained on? A verdict for each, with the sample that it matches and what agrees.

Equal bytes or equal pixels settle it. Else the score that holds best under distortion is compared with those of
held-out pictures: the p-value is the share of them, this picture counted in, that score as high. Whether it may be said
that a picture is *not* a member depends on what distorted members score, which an audit measures and keeps; and it is
never said where some samples that were trained on cannot be compared: those without an index, and erased ones.

Letters: n pictures.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from provnet.base.batches import keyed_generator
from provnet.base.errors import DataError, IntegrityError, UnsafeFileError, UsageError
from provnet.base.files import DataWarning, read_file
from provnet.base.words import path_word
from provnet.data.dataset import ImageData, views_only
from provnet.runs.card import maybe_trained
from provnet.runs.inputs import Fitted, checked_inputs, content_hashes, run_of
from provnet.runs.run import Run
from provnet.runs.safe import read_json, write_json
from provnet.samples.identity import SampleTable
from provnet.tools.membership.compute import decides, member_scores

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

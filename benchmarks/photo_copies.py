"""Copies of photographs, 40 each of five kinds: what `member` says of each, and what `verify` says of a folder of them.

    python benchmarks/photo_copies.py DATA --out benchmarks/results/photo_copies.json

DATA is an image folder with train/ and test/. A small network is trained on its training pictures. Of 200 of them one
copy each is made: painted (65 % of the picture, outside the centre), cropped, saved again as JPEG, mirrored, resized.
`member` speaks of each copy and of 40 test pictures; `verify` of the training data with copies in their places. A
statement is false where it says of a copy that its bytes or pixels are those of a sample, names another sample as its
origin or another kind of copy, or denies that it is one; and of a test picture where it calls it a member or a copy.
"""

from __future__ import annotations

import argparse
import io
import json
import shutil
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import provnet
from provnet.answers.queries import read_queries
from provnet.base.options import RunOptions
from provnet.base.stats import clopper_pearson
from provnet.data.open import open_data
from provnet.runs.data import find_data
from provnet.runs.verify import verify
from provnet.tools.membership.member import COPY, MEMBER, compared, memberships
from provnet.training.config import train_config
from provnet.training.fit import fit

KINDS = ("painted", "cropped", "re-encoded", "mirrored", "resized")
EACH, STRANGERS = 40, 40


def copy_of(picture: np.ndarray, kind: str, rng: np.random.Generator) -> bytes:
    """A copy of a picture (H, W, 3), as a file."""
    height, width = picture.shape[:2]
    quality, made = 85, picture
    if kind == "painted":
        made, side = picture.copy(), round(0.325 * width)
        made[:, :side] = made[:, width - side :] = rng.integers(0, 256, 3)
        buffer = io.BytesIO()
        Image.fromarray(made).save(buffer, "PNG")  # what is not painted is the same to the pixel
        return buffer.getvalue()
    if kind == "cropped":
        rows, columns = (round(side * rng.uniform(0.8, 0.95)) for side in (height, width))
        top, left = rng.integers(0, height - rows + 1), rng.integers(0, width - columns + 1)
        made = picture[top : top + rows, left : left + columns]
    elif kind == "re-encoded":
        quality = 50
    elif kind == "mirrored":
        made = picture[:, ::-1]
    elif kind == "resized":
        scale = rng.choice([rng.uniform(0.4, 0.9), rng.uniform(1.1, 1.6)])
        size = round(width * scale), round(height * scale)
        made = np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.BICUBIC))
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(made)).save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


def ask(run: Any, files: list[str]) -> list[Any]:
    """What `provnet member` finds."""
    queries = read_queries(run, files, None, strict=False)
    images = np.stack([query.image for query in queries])
    hashes, pixels = [query.sha256 for query in queries], [query.pixel_sha256 for query in queries]
    found = memberships(run, images, hashes, pixel_sha256=pixels, warn=False)
    data = find_data(run.config, run.samples)
    return compared(run, data.parts, images, [query.picture for query in queries], found)


def main() -> None:
    """Train, make copies, ask, and count."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--fit", default=None)
    asked = parser.parse_args()
    rng, start = np.random.default_rng(0), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        shutil.copytree(asked.data, place / "data")
        data = open_data(place / "data", size=64, fit=asked.fit)
        config = train_config(epochs=2, backbone="small")
        run = fit(data, config, RunOptions(out=str(place / "run")))
        chosen = rng.permutation(len(data))[: EACH * len(KINDS)]
        files, kinds = [], []
        for number, row in enumerate(chosen.tolist()):
            kind = KINDS[number % len(KINDS)]
            path = place / f"{number:03}.img"
            original = np.asarray(Image.open(place / "data" / str(data.samples.paths[row])).convert("RGB"))
            path.write_bytes(copy_of(original, kind, rng))
            files.append(str(path))
            kinds.append(kind)
        test = open_data(place / "data", split="test", size=64)
        others = rng.permutation(len(test))[:STRANGERS]
        strangers = [str(place / "data" / str(test.samples.paths[i])) for i in others.tolist()]
        said = ask(run, files)
        false: list[dict[str, Any]] = []
        words: Counter[str] = Counter()
        for row, kind, one in zip(chosen.tolist(), kinds, said, strict=True):
            own = one.match is not None and one.match.sample_id == data.samples.sample_ids[row]
            named = one.agrees == "picture" and _kind(one.why) == kind
            words[f"{kind}: {_kind(one.why) if one.agrees == 'picture' else one.verdict}"] += 1
            true = (one.verdict == COPY and own and named) or (one.verdict == "cannot say" and one.agrees == "nothing")
            if not true:
                false.append({"kind": kind, "id": data.samples.sample_ids[row], **_plain(one)})
        for path, one in zip(strangers, ask(run, strangers), strict=True):
            words[f"stranger: {one.verdict}"] += 1
            if one.verdict in (MEMBER, COPY):
                false.append({"kind": "stranger", "id": path.removeprefix(folder), **_plain(one)})
        wrong_verified = _verified(place, data, chosen, files, kinds)
    named_all = sum(count for name, count in words.items() if name.split(": ")[0] == name.split(": ")[1])
    n = len(chosen)
    shares = clopper_pearson(named_all, n)
    result = {
        "command": f"benchmarks/photo_copies.py DATA --fit {asked.fit}",
        "n": n,
        "strangers": STRANGERS,
        "member_false": len(false),
        "member_named_truly": named_all,
        "member_named_truly_interval": [round(end, 4) for end in (shares.low, shares.high)],
        "member_said": dict(sorted(words.items())),
        "member_false_statements": false,
        "verify_false": len(wrong_verified),
        "verify_false_statements": wrong_verified,
        "seconds": round(time.perf_counter() - start, 1),
        "provnet": provnet.__version__,
    }
    asked.out.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    print(json.dumps({k: v for k, v in result.items() if not k.endswith("statements")}, indent=1))


def _verified(place: Path, data: Any, chosen: np.ndarray, files: list[str], kinds: list[str]) -> list[dict[str, str]]:
    """False statements of `verify` where each copy takes the place of its original: all of them are other pictures."""
    for row, file in zip(chosen.tolist(), files, strict=True):
        shutil.copyfile(file, place / "data" / str(data.samples.paths[row]))
    found = verify(place / "run", open_data(replace(data.spec)))
    assert found.comparison is not None
    status = found.comparison.status
    wrong = [
        {"kind": kind, "id": data.samples.sample_ids[row], "said": status[row]}
        for row, kind in zip(chosen.tolist(), kinds, strict=True)
        if status[row] != "edited"
    ]
    rest = set(range(len(data))) - set(chosen.tolist())
    wrong += [
        {"kind": "unchanged", "id": data.samples.sample_ids[i], "said": status[i]} for i in rest if status[i] != "same"
    ]
    return wrong


def _kind(why: str) -> str:
    """Which kind of copy a sentence names."""
    for kind, words in (
        ("mirrored", "mirrored"),
        ("cropped", "a part of that picture"),
        ("resized", "in another size"),
        ("re-encoded", "saved again"),
        ("painted", "of it changed"),
    ):
        if words in why:
            return kind
    return "none"


def _plain(one: Any) -> dict[str, Any]:
    return {"verdict": one.verdict, "agrees": one.agrees, "named": one.match and one.match.sample_id, "why": one.why}


if __name__ == "__main__":
    main()

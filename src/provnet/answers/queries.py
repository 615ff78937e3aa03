"""What is asked of a run: picture files, positions in its test split, arrays; and cards that show the answers.

A file is decoded strictly, by the rules that the run's training data were read with. `test:12` and `test:0..9` are
positions in the run's own test split. An .npy or .npz file (`images`) holds one sample or many, raw as in training, and
is brought to the size and mode that the training data were brought to.
"""

from __future__ import annotations

import io
import os
import re
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from provnet.answers.explanation import Explanation, exemplar_card
from provnet.base.errors import DataError, MemoryLimitError, NonFiniteError, UnsafeFileError, UsageError
from provnet.base.files import DataWarning, check_memory, read_file, shown
from provnet.data.assemble import refit
from provnet.data.dataset import ImageData
from provnet.data.evidence import Evidence, evidence
from provnet.data.modalities.decode import are_pictures, decode_whole, fit, is_picture
from provnet.data.modalities.image import converter, picture_of, planes
from provnet.data.modalities.modality import Modality
from provnet.data.rules import make_options
from provnet.data.sources.arrays import check_array
from provnet.models.text import TEXT
from provnet.report.pictures import no_larger, pictures_of
from provnet.report.records import ExplanationCard, Passage, Picture, passage
from provnet.runs.data import modality_for
from provnet.runs.inputs import Fitted, as_trained, picture_rules, range_problem, raw_tensor, run_of
from provnet.runs.run import Run
from provnet.samples.identity import hash_bytes, hash_pixels, hash_rows

NAMED = 3  # inputs out of range that are named one by one


class Query(NamedTuple):
    """One input.

    Attributes:
        name: what it is called.
        image: raw, of the run's input shape.
        sha256: of its content.
        truth: the name of its class where it is known.
        pixel_sha256: of the pixels that name it, those of the whole picture; empty where they are those of `image`.
        picture: the whole picture, uint8 (H, W) or (H, W, 3); None where that is `image`.
        text: what people read, where samples are texts.
    """

    name: str
    image: np.ndarray
    sha256: str
    truth: str | None = None
    pixel_sha256: str = ""
    picture: np.ndarray | None = None
    text: str = ""

    @property
    def shown(self) -> np.ndarray | None:
        """What people look at."""
        return picture_of(self.image) if self.picture is None else self.picture


def read_queries(run: Run | Fitted, given: Sequence[str], data_dir: str | None, *, strict: bool) -> list[Query]:
    """All inputs, in the order given, in the type trained on; whatever cannot be explained is refused by name."""
    run = run_of(run)
    positions = [_positions(text) for text in given]
    test = _test_queries(run, data_dir) if any(found is not None for found in positions) else None
    reads, own = run.config.network.backbone == TEXT, modality_for(run.config)
    queries: list[Query] = []
    for text, found in zip(given, positions, strict=True):
        if found is not None and test is not None:
            queries += [test(position) for position in found]
        elif reads and not text.lower().endswith((".npy", ".npz")):
            queries.append(_from_text(own, text))
        elif os.path.isdir(text):  # noqa: PTH112 - a name too long to be one is no error yet
            name = shown(text).rstrip("/")
            raise UsageError(
                f"{name} is a folder; give picture files (those in it as {name}/*.png), test:0..9, .npy or .npz files"
            )
        elif text.lower().endswith((".npy", ".npz")):
            queries += _from_arrays(run, text)
        else:
            queries.append(_from_picture(run, text))
    found_wrong = 0
    for query in queries:
        problem = range_problem(run.config.network, query.image[None])
        if problem and strict:
            raise DataError(f"{shown(query.name)}: {problem}")
        found_wrong += problem is not None
        if problem and found_wrong <= NAMED:
            _warn(f"{shown(query.name)}: {problem}")
    if found_wrong > NAMED:
        _warn(f"{found_wrong - NAMED:,} more inputs of {len(queries):,} are out of range, too")
    return [query._replace(image=_typed(run, query.image)) for query in queries]


def _warn(words: str) -> None:
    warnings.warn(words, DataWarning, stacklevel=3)


def _typed(run: Run, image: np.ndarray) -> np.ndarray:
    """Each input alone: one that holds fractions changes no other."""
    return np.asarray(as_trained(run.config.network, raw_tensor(image[None]))[0].numpy())


def _positions(text: str) -> range | None:
    found = re.fullmatch(r"test:(\d{1,18})(?:\.\.(\d{1,18}))?", text, re.ASCII)
    if found is None:
        if (text == "test" or text.startswith("test:")) and not Path(text).exists():
            raise UsageError(f'"{text}" is no position in the test split; give test:12 or test:0..9')
        return None
    first, last = int(found[1]), int(found[2] or found[1])
    if last < first or last - first >= MOST:
        raise UsageError(f'"{text}": give the lower position first, and at most {MOST:,} at once')
    return range(first, last + 1)


def _test_queries(run: Run, data_dir: str | None) -> Any:
    test = run.test(data_dir=data_dir, progress=True)
    if test is None:
        raise UsageError("test:N names a sample of the run's own test split, and this run has none; give picture files")

    def one(position: int) -> Query:
        if position >= len(test):
            raise UsageError(f"test:{position} is not there: the test split has {len(test):,} samples, counted from 0")
        truth = test.class_names[int(test.samples.labels[position])]
        found = Query(f"test:{position}", test.images[position].numpy(), test.samples.hex(position), truth)
        if test.items is not None:
            return found._replace(text=test.modality.show(test.items[position]).text)
        if test.originals is None:
            return found
        pixels = bytes(test.samples.pixel_sha256[position].tobytes()).hex()
        return found._replace(pixel_sha256=pixels, picture=evidence(test.samples, test, [position])[0].picture)

    return one


def _from_text(own: Modality, given: str) -> Query:
    """A file of text, or the words themselves."""
    is_file = given.lower().endswith(".txt")
    said = own.read(read_file(Path(given), 2**20), given) if is_file else given
    inputs = own.batch([said])
    assert isinstance(inputs, Tensor), "texts of this network are bytes"
    name = given if is_file else "text"
    return Query(name, inputs[0].numpy(), bytes(hash_bytes(own.content(said))).hex(), text=said)


def _from_picture(run: Run, text: str) -> Query:

    shape = run.config.network.input_shape
    if not is_picture(shape) or shape[0] not in (1, 3):
        raise UsageError(f"this run takes samples of shape {shape}, no pictures; give them in an .npy or .npz file")
    rule = make_options(picture_rules(run.config)).rule
    name = shown(text)
    blob = read_file(Path(text), rule.max_bytes, name)
    whole = decode_whole(blob, name, rule).pixels
    image = planes(fit(whole, rule))
    if image.shape != shape:
        raise DataError(
            f"{name}: the picture is {image.shape[1]} x {image.shape[2]}, the run takes {shape[1]} x {shape[2]} "
            "(height x width); resize it first, or train with --size, which then holds for every picture"
        )
    pixels = bytes(hash_pixels((image if rule.fit is None else planes(whole))[None])[0]).hex()
    return Query(text, image, bytes(hash_bytes(blob)).hex(), None, pixels, whole)


def _from_arrays(run: Run, text: str) -> list[Query]:

    values = _load(Path(text))
    given = run.config.data.options if run.config.data else {}
    rules = {name: given[name] for name in ("size", "fit", "mode") if name in given}
    raw, batch = as_batch(values, run.config.network.input_shape, shown(text), rules)
    hashes = hash_rows(raw)
    names = [text] if len(batch) == 1 else [f"{text}:{row}" for row in range(len(batch))]
    found = [Query(names[row], batch[row], bytes(hashes[row]).hex()) for row in range(len(batch))]
    if raw.shape == batch.shape or "fit" not in rules:
        return found
    pixels = hash_pixels(raw)
    return [
        query._replace(pixel_sha256=bytes(pixels[row]).hex(), picture=picture_of(raw[row]))
        for row, query in enumerate(found)
    ]


def as_batch(
    values: np.ndarray, shape: tuple[int, ...], name: str, rules: Mapping[str, Any] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """An array of one sample or of many as (n, ...): as given, and of the run's shape.

    `rules` are size and mode that the training data were brought to; samples of another shape are brought there, too.

    >>> import numpy as np
    >>> as_batch(np.zeros((28, 28), np.uint8), (1, 28, 28), "a.npy")[1].shape
    (1, 1, 28, 28)
    >>> as_batch(np.zeros((5, 9, 9, 3), np.uint8), (1, 8, 8), "a.npy", {"size": 8, "mode": "grey"})[1].shape
    (5, 1, 8, 8)
    """
    read = []
    for batch in _readings(values, name):
        if batch.shape[1:] == shape:
            return batch, batch
        read.append(batch)
    pictures = [batch for batch in read if are_pictures(batch) and batch.dtype.kind == "u"] if rules else []
    if len(pictures) == 2 and values.shape[-1] in (1, 3):
        pictures = pictures[1:]  # one picture, channels last, rather than many that are as narrow
    fitted = [(batch, refit(batch, make_options(rules or {}))) for batch in pictures]
    fitted = [(batch, brought) for batch, brought in fitted if brought.shape[1:] == shape]
    if len(fitted) > 1 and len(values) > 1:
        words = f"may be {len(values)} grey pictures or one in colour; give (n, channels, height, width)"
        raise DataError(f"{name}: an array of shape {values.shape} {words}")
    if fitted:
        return fitted[0]
    same = ", ".join(f"--{option}" for option in rules or ())
    why = f"; {same} of its training holds for bytes alone, whole numbers 0..255" if same and not pictures else ""
    raise DataError(
        f"{name}: an array of shape {values.shape}; the run takes samples of shape {shape}, one or many (n, ...){why}"
    )


def _readings(values: np.ndarray, name: str) -> Iterator[np.ndarray]:
    """What the array may be, in the form that networks take: many samples, then one."""
    for candidate in (values, values[None]):
        if candidate.ndim not in (2, 3, 4):
            continue
        try:
            check_array(candidate)
            batch = converter(candidate)(candidate)
        except NonFiniteError as error:
            raise NonFiniteError(f"{name}: {error}") from error
        except DataError as error:
            if candidate.dtype.kind not in "biuf" or 0 in candidate.shape:
                raise DataError(f"{name}: {error}") from error
            continue
        yield batch


def _load(path: Path) -> np.ndarray:

    name = shown(str(path))
    blob = read_file(path, LARGEST)
    try:
        if path.suffix.lower() == ".npy":
            return np.asarray(np.load(io.BytesIO(blob), allow_pickle=False))
        with zipfile.ZipFile(io.BytesIO(blob)) as archive:
            check_memory(sum(entry.file_size for entry in archive.infolist()), f"the arrays of {name}")
        with np.load(io.BytesIO(blob), allow_pickle=False) as file:
            chosen = "images" if "images" in file.files else file.files[0] if len(file.files) == 1 else None
            if chosen is None:
                raise DataError(f"{name}: needs the array `images`, found {', '.join(map(shown, file.files))}")
            return np.asarray(file[chosen])
    except (DataError, MemoryLimitError):
        raise
    except MemoryError as error:
        raise MemoryLimitError(f"{name}: the array does not fit into memory ({error}); give a smaller one") from error
    except ValueError as error:
        if "pickle" in str(error).lower() or "object" in str(error).lower():
            raise UnsafeFileError(f"{name}: holds objects, which can run code; save plain numbers") from error
        raise DataError(f"{name}: cannot be read as an array ({error})") from error
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error, KeyError, SyntaxError) as error:
        raise DataError(f"{name}: cannot be read as an array ({error}); it may be damaged or cut short") from error


MOST = 10_000


LARGEST = 2 * 2**30  # bytes of an array file


def exemplar_evidence(explanation: Explanation, data: ImageData | Sequence[ImageData] | None) -> dict[int, Evidence]:
    """The picture of every exemplar, or why there is none, by index; each is read and hashed once."""
    index = explanation.index
    if explanation.recognised_index is not None:
        index = np.concatenate([index, explanation.recognised_index], 1)
    wanted = np.unique(index[index >= 0])
    return dict(zip(wanted.tolist(), pictures_of(explanation.samples, data, wanted), strict=True))


def explanation_cards(
    explanation: Explanation, queries: Sequence[Query], pictures: dict[int, Evidence]
) -> list[ExplanationCard]:
    """One card an input."""
    cards = []
    for query, one in zip(queries, explanation, strict=True):
        exemplars = tuple(exemplar_card(item, pictures[item.index], query.text) for item in one.recognised)
        largest = one.depends_on[0].weight if one.depends_on else 0.0
        depends_on = tuple(exemplar_card(item, pictures[item.index], query.text, largest) for item in one.depends_on)
        seen: Picture | Passage | None = None if query.shown is None else no_larger(query.shown)
        if query.text:
            seen = passage(query.text, [pictures[item.index].text for item in one.exemplars])
        cards.append(
            ExplanationCard(
                query=seen,
                name=query.name,
                predicted=one.predicted,
                confidence=one.confidence,
                supported=one.supported,
                exemplars=exemplars,
                truth=query.truth,
                depends_on=None if explanation.low is None else depends_on,
                in_log_odds=explanation.in_log_odds,
            )
        )
    return cards

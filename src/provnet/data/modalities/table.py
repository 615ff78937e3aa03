"""Tables: vectors of numbers, and rows of named columns as pandas and polars have them, with gaps and categories.

A frame is recognised by what it can do, not by its type: it has `columns`, and `frame[name]` gives a column with
`to_list()` and `dtype`. That holds for DataFrames of pandas and of polars; neither is imported.
"""

from __future__ import annotations

import json
import math
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from provnet.base.batches import Inputs
from provnet.base.errors import DataError, IntegrityError, NonFiniteError, UsageError
from provnet.base.files import DataWarning, brief
from provnet.data.modalities.augment import copies_of, perturbations
from provnet.data.modalities.modality import Modality, Perturb, Preview

Row = dict[str, Any]  # column -> number, text, or None where the value is missing


@dataclass(frozen=True)
class Column:
    """How one column becomes inputs, as learned from the frame that was trained on.

    Attributes:
        name: of the column.
        kind: `number` or `category`.
        values: the categories, one input each; a value that is none of them is zero in all.
        fill: what stands for a missing number, the mean.
        gaps: whether an input of its own marks missing values.
    """

    name: str
    kind: str
    values: tuple[str, ...] = ()
    fill: float = 0.0
    gaps: bool = False

    @property
    def width(self) -> int:
        """How many inputs it becomes."""
        return (1 if self.kind == "number" else len(self.values)) + self.gaps

    def encode(self, given: Sequence[Any]) -> np.ndarray:
        """(N, width) float32."""
        out = np.zeros((len(given), self.width), dtype=np.float32)
        missing = np.array([value is None for value in given], dtype=np.bool_)
        if self.kind == "number":
            out[:, 0] = [self.fill if value is None else value for value in given]
        else:
            place = {value: number for number, value in enumerate(self.values)}
            found = np.array([place.get(value, -1) for value in given], dtype=np.int64)
            out[np.flatnonzero(found >= 0), found[found >= 0]] = 1
        if self.gaps:
            out[:, -1] = missing
        return out

    def unknown(self, given: Sequence[Any]) -> int:
        """How many values training did not have: other categories, and gaps where there were none."""
        known = set(self.values)
        strange = (value is not None and self.kind == "category" and value not in known for value in given)
        return sum(strange) + (0 if self.gaps else sum(value is None for value in given))


@final
@dataclass(frozen=True)
class Table(Modality):
    """Rows of a table. Without columns the inputs, vectors of numbers, are the samples.

    Attributes:
        columns: how columns become inputs.
        beside: columns of the frame that are no inputs: labels and ids.
    """

    columns: tuple[Column, ...] = ()
    beside: tuple[str, ...] = ()
    name = "table"

    def read(self, raw: bytes, name: str) -> Row:
        """A row as JSON, column -> value."""
        try:
            row = json.loads(raw)
        except ValueError as error:
            raise DataError(f"{name}: cannot be read as a row of JSON ({error})") from None
        if not isinstance(row, dict):
            raise DataError(f"{name}: a row must be a JSON object, column -> value; got {type(row).__name__}")
        return {key: _plain(value, key) for key, value in row.items()}

    def rows(self, frame: Any) -> list[Row]:
        """The rows of a frame that has the columns of this table; those that are no inputs may be there or not."""
        names, there = [column.name for column in self.columns], [str(name) for name in frame.columns]
        lacks = [name for name in names if name not in there]
        more = [name for name in there if name not in {*names, *self.beside}]
        for found, words in ((lacks, "lacks the columns"), (more, "has columns that were not trained on:")):
            if found:
                raise DataError(f"the frame {words} {', '.join(map(brief, found[:5]))}; the columns are {some(names)}")
        return _rows(frame, names, {column.name: column.kind for column in self.columns})

    def batch(self, items: Sequence[Any]) -> Inputs:
        """Rows as vectors. Categories that training did not have are counted in a warning."""
        if not self.columns:
            return torch.from_numpy(np.stack(items))
        given = [[row.get(column.name) for row in items] for column in self.columns]
        strange = {c.name: n for c, values in zip(self.columns, given, strict=True) if (n := c.unknown(values))}
        if strange:
            listed = ", ".join(f"{brief(name)}: {n:,}" for name, n in strange.items())
            warnings.warn(
                f"{sum(strange.values()):,} values are categories or gaps that did not occur in training ({listed}); "
                "they count as no known category",
                DataWarning,
                stacklevel=2,
            )
        parts = [column.encode(values) for column, values in zip(self.columns, given, strict=True)]
        return torch.from_numpy(np.concatenate(parts, axis=1))

    def content(self, item: Any) -> bytes:
        """Names, types and values of a row, whatever the order of its columns; of a vector its numbers."""
        if isinstance(item, np.ndarray):
            return np.ascontiguousarray(item).tobytes()
        cells = [[name, *_cell(value)] for name, value in sorted(item.items())]
        return json.dumps(cells, ensure_ascii=True, separators=(",", ":")).encode("ascii")

    def show(self, item: Any) -> Preview:
        """A row as `column: value`; vectors without names show nothing."""
        if not isinstance(item, dict):
            return Preview()
        return Preview(text="; ".join(f"{name}: {_shown(value)}" for name, value in item.items()))

    def perturbed(self, inputs: Any) -> Mapping[str, Perturb]:
        """Noise, in units of the spread of each feature."""
        return perturbations(inputs)

    def copies(self, inputs: Any) -> Mapping[str, Perturb]:
        """Noise of two strengths; of pictures also a shift, a crop and JPEG."""
        return copies_of(inputs)

    def numeric(self) -> Tensor | None:
        """(F,) bool, the inputs that are numbers, to be standardised; None where all are."""
        if not self.columns:
            return None
        marks = [[column.kind == "number"] + [False] * (column.width - 1) for column in self.columns if column.width]
        return torch.tensor([mark for some_marks in marks for mark in some_marks])

    def to_json(self) -> dict[str, Any]:
        """The columns; nothing for vectors, whose shape says what they are."""
        if not self.columns:
            return {}
        kept = [{**asdict(column), "values": list(column.values)} for column in self.columns]
        return {"modality": self.name, "columns": kept, "beside": list(self.beside)}

    @classmethod
    def from_json(cls, options: Mapping[str, Any]) -> Table:
        """The inverse, out of the options of a run's data.

        >>> given = Table((Column("age", "number"), Column("work", "category", ("a", "b"))), ("income",))
        >>> Table.from_json(given.to_json()) == given
        True
        """
        columns = options.get("columns", ())
        try:
            found = tuple(Column(**{**one, "values": tuple(one["values"])}) for one in columns)
            good = all(
                isinstance(one.name, str)
                and one.kind in ("number", "category")
                and all(isinstance(value, str) for value in one.values)
                and type(one.fill) in (int, float)
                and math.isfinite(one.fill)
                and isinstance(one.gaps, bool)
                for one in found
            )
            beside = tuple(str(name) for name in options.get("beside", ()))
        except (TypeError, KeyError) as error:
            raise IntegrityError(f"config.json: data.options.columns cannot be read ({error})") from None
        if not good:
            raise IntegrityError("config.json: data.options.columns must have name, kind, values, fill and gaps each")
        return cls(found, beside)


def is_frame(given: Any) -> bool:
    """Whether something is a table of named columns.

    >>> is_frame(np.zeros((2, 2))), is_frame([[1, 2]])
    (False, False)
    """
    return hasattr(given, "columns") and hasattr(given, "shape") and hasattr(given, "__getitem__")


def learn(frame: Any, beside: Iterable[str] = ()) -> tuple[Table, list[Row]]:
    """How a frame becomes inputs, and its rows; columns `beside` the inputs are left out.

    Numbers stay numbers, with the mean where one is missing; text and categories are one input per value. A column with
    gaps gets an input that marks them.
    """
    left_out = tuple(beside)
    names = [str(name) for name in frame.columns]
    twice = [name for name, n in Counter(names).items() if n > 1]
    if twice:
        raise DataError(f"the columns of a frame must have different names; {brief(twice[0])} occurs twice")
    names = [name for name in names if name not in left_out]
    if not names or frame.shape[0] == 0:
        raise DataError(f"a frame needs at least one row, and one column beside {some(left_out)}; got {frame.shape}")
    rows = _rows(frame, names, {})
    return Table(tuple(_learn_column(name, [row[name] for row in rows]) for name in names), left_out), rows


def take(frame: Any, name: str, what: str) -> list[Any]:
    """One column of a frame as Python values; missing ones are None."""
    names = [str(one) for one in frame.columns]
    if name not in names:
        raise UsageError(f"{what} names the column {brief(name)}; the frame has {some(names)}")
    return [None if _missing(value) else value for value in _column(frame, name).to_list()]


def _column(frame: Any, name: str) -> Any:
    return frame[next(one for one in frame.columns if str(one) == name)]


def _rows(frame: Any, names: Sequence[str], kinds: Mapping[str, str]) -> list[Row]:
    """Rows of plain values; a column is of `kinds`, else as its type and values say."""
    columns = []
    for name in names:
        column = _column(frame, name)
        as_text = str(column.dtype).lower().startswith(("categor", "enum"))
        values = [_plain(value, name, as_text=as_text) for value in column.to_list()]
        found = {isinstance(value, str) for value in values if value is not None}
        if len(found) > 1 or (found and name in kinds and found != {kinds[name] == "category"}):
            wanted = {"number": "numbers", "category": "text"}.get(kinds.get(name, ""), "either numbers or text")
            raise DataError(f"column {brief(name)} must hold {wanted}; convert it, or leave it out")
        columns.append(values)
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _learn_column(name: str, values: Sequence[Any]) -> Column:
    there = [value for value in values if value is not None]
    gaps = len(there) < len(values)
    if there and isinstance(there[0], str):
        return Column(name, "category", tuple(sorted(set(there))), gaps=gaps)
    return Column(name, "number", fill=math.fsum(there) / len(there) if there else 0.0, gaps=gaps)


def _missing(value: Any) -> bool:
    """None, NaN, and the signs that pandas has for missing values."""
    is_nan = isinstance(value, float) and math.isnan(value)
    return value is None or is_nan or type(value).__name__ in ("NAType", "NaTType")


def _plain(value: Any, column: str, *, as_text: bool = False) -> Any:
    """A value as a number, a text or None."""
    if _missing(value):
        return None
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, str) or as_text:
        return str(value)
    if not isinstance(value, bool | int | float):
        raise DataError(
            f"column {brief(column)} holds {type(value).__name__}; columns hold numbers, text or categories: convert "
            "it, or leave it out"
        )
    if not abs(value) <= float(np.finfo(np.float32).max):
        raise NonFiniteError(f"column {brief(column)} holds {value!r:.40}, infinity or too large for float32")
    return value


def _cell(value: Any) -> tuple[str, str]:
    """Type and value in one way: 39 and 39.0 are one number, as a gap makes the one of the other."""
    if value is None:
        return "missing", ""
    if isinstance(value, str):
        return "text", value
    return "number", repr(float(value)) if float(value) == value else repr(value)


def _shown(value: Any) -> str:
    return "–" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def some(names: Sequence[str]) -> str:
    """The first names of several."""
    return ", ".join(map(brief, names[:8])) + (", ..." if len(names) > 8 else "")

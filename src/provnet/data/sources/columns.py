"""Data sets of named, typed columns, as `datasets` of Hugging Face has them: texts or pictures, labels, class names.

Such a data set is recognised by what it can do: it has `features` and `column_names`, and gives a column by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from provnet.base.errors import DataError, UsageError
from provnet.base.files import brief
from provnet.data.assemble import Opened, assemble_items
from provnet.data.modalities.modality import Modality
from provnet.data.rules import OpenOptions, encode_labels
from provnet.data.sources.arrays import open_dataset

TEXTS, LABELS = ("text", "sentence", "content"), ("label", "labels")  # the usual names, where types leave a choice


def is_columns(source: Any) -> bool:
    """Whether something is a data set of typed columns, or several under the names of their splits."""
    return _typed(source) or (isinstance(source, Mapping) and bool(source) and all(map(_typed, source.values())))


def _typed(source: Any) -> bool:
    return hasattr(source, "features") and hasattr(source, "column_names") and hasattr(source, "__getitem__")


def open_columns(
    source: Any, labels: Any, modality: Modality | None, split: str, options: OpenOptions, ids: Any, sources: Any
) -> Opened:
    """Pictures, or with a modality texts; `labels`, `ids` and `sources` may name columns. Class names are kept."""
    if isinstance(source, Mapping):
        raise UsageError(f"this holds {', '.join(map(str, source))}; open one of them, such as source[{min(source)!r}]")
    features: Mapping[str, Any] = source.features or {}
    kind = "string" if modality is not None else "Image"
    column = _choose(features, kind, TEXTS if modality is not None else ())
    given = _values(source, labels) if labels is not None else None
    if given is None:
        named = _choose(features, "ClassLabel", LABELS) if _of(features, "ClassLabel") else _by_name(features)
        given, known = _values(source, named), getattr(features[named], "names", None)
        if known is not None and options.class_names is None:
            options = replace(options, class_names=tuple(map(str, known)))
    ids, sources = (_values(source, one) if isinstance(one, str) else one for one in (ids, sources))
    if modality is None:
        return open_dataset(_Pairs(source, column, given), split, options, ids, sources)
    if any(isinstance(label, int) and label < 0 for label in given):
        raise DataError("some labels are below 0, which stands for none; leave these samples out: source.filter(...)")
    return assemble_items(
        _values(source, column), encode_labels(given, options.class_names), modality, split, options, ids, sources
    )


class _Pairs:
    """(picture, label) by position."""

    def __init__(self, source: Any, column: str, labels: Sequence[Any]) -> None:
        self.source, self.column, self.labels = source, column, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, i: int) -> tuple[Any, Any]:
        return self.source[i][self.column], self.labels[i]


def _values(source: Any, column: Any) -> list[Any]:
    """One column as Python values, or what was given instead of its name."""
    if not isinstance(column, str):
        return list(column)
    if column not in source.column_names:
        raise UsageError(f"there is no column {brief(column)}; there are {', '.join(map(brief, source.column_names))}")
    return list(source[column])


def _of(features: Mapping[str, Any], kind: str) -> list[str]:
    """The columns of a type: by the name of its class, or of the values."""
    return [name for name, one in features.items() if kind in (type(one).__name__, getattr(one, "dtype", None))]


def _choose(features: Mapping[str, Any], kind: str, usual: Sequence[str]) -> str:
    found = _of(features, kind)
    known = [name for name in usual if name in found]
    if len(found) != 1 and not known:
        listed = ", ".join(f"{brief(name)}: {type(one).__name__}" for name, one in features.items())
        way = "open texts with modality=Text(tokenizer)" if kind == "Image" else f"name it {usual[0]}"
        raise UsageError(f"{len(found)} columns of type {kind} ({listed}); one is needed: select_columns, or {way}")
    return known[0] if len(found) != 1 else found[0]


def _by_name(features: Mapping[str, Any]) -> str:
    found = next((name for name in LABELS if name in features), None)
    if found is None:
        raise UsageError(f"no column of labels among {', '.join(map(brief, features))}; name it: labels='column'")
    return found

"""Texts out of a Dataset of Hugging Face: the columns of texts and labels are found by type and name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from provnet.base.errors import DataError, UsageError
from provnet.base.files import brief
from provnet.data.assemble import Opened, assemble_items
from provnet.data.modalities.modality import Modality
from provnet.data.rules import OpenOptions, encode_labels

TEXTS, LABELS = ("text", "sentence", "content"), ("label", "labels")  # the usual names, where types leave a choice


def open_texts(
    source: Any, labels: Any, modality: Modality, split: str, options: OpenOptions, ids: Any, sources: Any
) -> Opened:
    """Texts by their modality; `labels`, `ids` and `sources` may name columns. Class names are kept."""
    if isinstance(source, Mapping):
        raise UsageError(f"this holds {', '.join(map(str, source))}; open one of them, such as source[{min(source)!r}]")
    features: Mapping[str, Any] = source.features or {}
    column = _choose(features, "string", TEXTS)
    given = _values(source, labels) if labels is not None else None
    if given is None:
        named = _choose(features, "ClassLabel", LABELS) if _of(features, "ClassLabel") else _by_name(features)
        given, known = _values(source, named), getattr(features[named], "names", None)
        if known is not None and options.class_names is None:
            options = replace(options, class_names=tuple(map(str, known)))
    ids, sources = (_values(source, one) if isinstance(one, str) else one for one in (ids, sources))
    if any(isinstance(label, int) and label < 0 for label in given):
        raise DataError("some labels are below 0, which stands for none; leave these samples out: source.filter(...)")
    return assemble_items(
        _values(source, column), encode_labels(given, options.class_names), modality, split, options, ids, sources
    )


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
        raise UsageError(
            f"{len(found)} columns of type {kind} ({listed}); one is needed: select_columns, or name it {usual[0]}"
        )
    return known[0] if len(found) != 1 else found[0]


def _by_name(features: Mapping[str, Any]) -> str:
    found = next((name for name in LABELS if name in features), None)
    if found is None:
        raise UsageError(f"no column of labels among {', '.join(map(brief, features))}; name it: labels='column'")
    return found

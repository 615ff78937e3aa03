"""open_data: one way into every data source, by name, path, array, Dataset or an earlier DataSpec."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from provnet.base.errors import UnsafeFileError, UsageError, did_you_mean, one_of
from provnet.base.files import read_start, shown
from provnet.base.options import DataOptions, parse_size, with_changes
from provnet.base.processes import is_installed
from provnet.data.apply import apply_recorded
from provnet.data.assemble import Opened
from provnet.data.dataset import AFTER_READING, Dataset, DataSpec
from provnet.data.modalities.decode import sniff
from provnet.data.modalities.known import modality_of
from provnet.data.modalities.modality import Modality
from provnet.data.modalities.table import is_frame
from provnet.data.modalities.text import Text
from provnet.data.rules import CHOOSE, OpenOptions, make_options
from provnet.data.select import apply_holdout
from provnet.data.sources.arrays import npz_has_test, open_arrays, open_dataset, open_frame, open_items, open_npz
from provnet.data.sources.binary import (
    cifar_has_test,
    find_idx,
    idx_has_test,
    is_cifar10,
    is_cifar100,
    open_cifar10,
    open_cifar100,
    open_idx,
)
from provnet.data.sources.folder import folder_has_test, open_folder
from provnet.data.sources.known import NAMES, data_folder, locate, open_digits, open_embedded
from provnet.data.sources.layouts import refuse_coco
from provnet.data.sources.manifest import open_manifest
from provnet.data.sources.rows import is_hugging_face, is_table, open_hugging_face, open_table, table_has_test
from provnet.data.sources.shards import find_tars, open_tars, tar_has_test
from provnet.data.sources.texts import holds_texts, is_text_dataset, open_text_files, open_texts, texts_have_test

ARRAYS_ONLY = (
    "labels",
    "sample_shape",
    "feature_names",
    "modality",
    "columns",
    "beside",
)  # options that `provnet.api.estimator` keeps for the classifier
_NO_CHOICE = ("data_dir", "progress", "cache")  # options that say where and how, not which data


def open_data(
    source: Any,
    labels: Any = None,
    *,
    split: str = "train",
    ids: Any = None,
    sources: Any = None,
    modality: Modality | None = None,
    options: DataOptions | None = None,
    **changes: Any,
) -> Dataset:
    """Open a data set, with the identity of every sample.

    Args:
        source: a name (`embedded`, `digits`, `mnist`, `fashion-mnist`, `cifar10`, `cifar100`, `lfw`, `stanford-dogs`),
            a path (image folder, CSV manifest, parquet, webdataset tar, Dataset saved by Hugging Face, .npz, folder of
            idx or CIFAR files; texts as JSON lines, CSV, parquet or .txt files in class folders), an array, tensor,
            list of pictures or list of texts with `labels`, a Dataset or DatasetDict of Hugging Face, a map-style torch
            Dataset, a DataSpec (opened as it says), or a Dataset (returned as it is).
        labels: one per sample if `source` is an array or a list; None if the samples have none.
        split: `train`, `test` or `all`; a source without a test split is all `train`.
        ids: for arrays and Datasets, the name of each sample: text or whole numbers, unique; default `split/position`.
        sources: for arrays and Datasets, who contributed each sample: text or None.
        modality: what the samples of a list are, if they are neither pictures nor rows of a table.
        options: how the data are read, and which of them.
        changes: single options by name, such as `size=32`. They are the fields of DataOptions (`provnet.base.options`):
            `data_dir`, the folder in which names are looked up; `size` of the network's view of a picture; `fit`,
            `stretch`, `pad` or `crop`; `mode`, `grey` or `rgb`; `columns` of a table of files; `background`; `frame`;
            `value_range`; `skip_bad`; `limit`; `class_names`; `root`; `cache`; `length`, bytes of a text.

    For a DataFrame (pandas, polars), `labels`, `ids` and `sources` may name columns.

    >>> data = open_data("embedded")
    >>> len(data), data.shape, data.samples.sample_ids[0]
    (4000, (1, 28, 28), 'train/0')
    """
    asked = with_changes(DataOptions, options, changes)
    if isinstance(source, Dataset | DataSpec | str | os.PathLike) and not (ids is None and sources is None):
        raise UsageError(
            "ids and sources are for arrays and Datasets; a manifest has them in its columns id and source, an .npz in "
            "arrays of these names"
        )
    if isinstance(source, Dataset | DataSpec):
        _refuse_choices(source, labels, split, asked)
    if isinstance(source, Dataset):
        return source
    if isinstance(source, DataSpec):
        return reopen(source, data_dir=asked.data_dir, progress=asked.progress, cache=asked.cache)
    one_of("split", split, ("train", "test", "all"))
    given = {one.name: getattr(asked, one.name) for one in fields(asked) if one.name != "data_dir"}
    given |= {"size": parse_size(asked.size, "size")} if isinstance(asked.size, str) else {}
    given["fit"] = asked.fit or CHOOSE
    given["manifest_columns"] = given.pop("columns")  # a table keeps how its columns become inputs under that name
    checked = make_options(given)
    if isinstance(source, str | os.PathLike):
        if labels is not None:
            raise UsageError("labels are only for arrays; a data set by name or path has its own")
        return _open_spec(_spec(source, split, asked.data_dir, checked.to_json()), checked)
    spec = DataSpec("arrays", "arrays", split, None, checked.to_json())
    if modality is None and (is_text_dataset(source) or _are_texts(source)):
        modality = Text(length=checked.length)
    if modality is not None and is_hugging_face(source):
        return _wrap(open_texts(source, labels, modality, split, checked, ids, sources), spec)
    if modality is not None:
        return _wrap(open_items(source, labels, modality, split, checked, ids, sources), spec)
    if is_hugging_face(source):
        if labels is not None:
            raise UsageError("labels are only for arrays; of a Dataset give their column: columns='label=NAME'")
        return _wrap(open_hugging_face(source, split, checked), spec)
    if is_frame(source):
        return _wrap(open_frame(source, labels, split, checked, ids, sources), spec)
    if isinstance(source, torch.Tensor | list | tuple) or hasattr(source, "__array__"):
        return _wrap(open_arrays(source, labels, split, checked, ids, sources), spec)
    if hasattr(source, "__getitem__") and hasattr(source, "__len__") and not isinstance(source, Mapping):
        if labels is not None:
            raise UsageError("labels are only for arrays; a Dataset gives (image, label) pairs")
        return _wrap(open_dataset(source, split, checked, ids, sources), spec)
    raise UsageError(
        f"cannot open {type(source).__name__} as data; give a name, a path, an array with labels or a map-style torch "
        "Dataset (of a DataLoader its .dataset)"
    )


def _are_texts(source: Any) -> bool:
    return isinstance(source, list | tuple) and bool(source) and all(isinstance(one, str) for one in source)


def _refuse_choices(source: Dataset | DataSpec, labels: Any, split: str, asked: DataOptions) -> None:
    """Data that were opened before say all of themselves: what would choose among them is refused."""
    given = {one.name: getattr(asked, one.name) for one in fields(asked) if one.name not in _NO_CHOICE}
    given |= {"labels": labels, "split": None if split == "train" else split}
    given |= {"background": None if asked.background == "white" else asked.background}
    ignored = [name for name, value in given.items() if value is not None and value is not False]
    if ignored:
        way = "select from them" if isinstance(source, Dataset) else "change its options"
        raise UsageError(f"{type(source).__name__} already describes its data: leave {ignored[0]} out, or {way}")


def reopen(
    spec: DataSpec,
    source: str | os.PathLike[str] | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    progress: bool = False,
    cache: str | os.PathLike[str] | bool | None = False,
) -> Dataset:
    """Open what a DataSpec describes, at its old place or at another (`source`), by the same rules.

    Without `cache` every file is read and hashed anew: who reopens data asks whether they are still the same.
    Data that were given as arrays open from a file; what is remembered of their form (ARRAYS_ONLY) is no rule for it.

    >>> len(reopen(open_data("embedded", limit=20).spec))
    20
    """
    spec = relocate(spec, source, data_dir)
    if spec.kind == "arrays":
        raise UsageError(
            "the data were given as arrays or objects, which cannot be opened again from disk; pass them again, on the "
            "command line as an .npz file"
        )
    left_out = (*AFTER_READING, *(("modality", "tokenizer") if spec.kind == "texts" else ()))
    plain = {name: value for name, value in spec.options.items() if name not in left_out}
    return _open_spec(spec, make_options({**plain, "progress": progress, "cache": cache}))


def relocate(
    spec: DataSpec,
    source: str | os.PathLike[str] | None = None,
    data_dir: str | os.PathLike[str] | None = None,
) -> DataSpec:
    """The same rules for data at another place, with the reader that those need; without a place the spec as it is.

    >>> relocate(DataSpec("arrays", "arrays", options={"size": [8, 8]}), "embedded")
    DataSpec(source='embedded', kind='embedded', split='train', data_dir=None, options={'size': [8, 8]})
    """
    if source is not None:
        names = NAMES[spec.source].class_names if spec.source in NAMES else None
        options = {name: value for name, value in spec.options.items() if name not in ARRAYS_ONLY}
        options = options if names is None else {"class_names": list(names), **options}
        return _spec(source, spec.split, data_dir or spec.data_dir, options)
    if data_dir is not None and spec.source in NAMES:
        return replace(spec, data_dir=str(data_folder(data_dir)))
    return spec


def has_split(source: Any, split: str, data_dir: str | os.PathLike[str] | None = None) -> bool:
    """Whether a source has that split of its own.

    >>> has_split("embedded", "test"), has_split(torch.zeros(2, 4), "test")
    (True, False)
    """
    one_of("split", split, ("train", "test", "all"))
    if split != "test":
        return True
    if isinstance(source, Dataset):
        source = source.spec
    if isinstance(source, str | os.PathLike):
        source = _spec(source, "train", data_dir, {})
    if not isinstance(source, DataSpec) or source.kind == "arrays":
        return False
    place = _place(source)
    return place is None or _HAS_TEST[source.kind](place)


def detect(path: Path, columns: Mapping[str, str] = MappingProxyType({})) -> tuple[str, Path]:
    """The reader for a path, told by what lies there, and the path that it takes; `columns` are those asked for."""
    name = shown(str(path))
    if path.is_dir():
        if holds_texts(path, b"", columns):
            return "texts", path
        idx = find_idx(path)
        if idx is not None:
            return "idx", idx
        if is_cifar10(path) or is_cifar100(path):
            return "cifar10" if is_cifar10(path) else "cifar100", path
        return "table" if is_table(path) else "tar" if find_tars(path) else "folder", path
    if not path.exists():
        raise UsageError(f"{name}: no such file or folder")
    start = read_start(path)
    if path.suffix.lower() in (".pt", ".pth", ".pkl", ".pickle", ".joblib") or start[:1] == b"\x80":
        raise UnsafeFileError(f"{name}: a pickle can run code and is never opened; save the arrays with numpy.savez")
    if start[:4] == b"PK\x03\x04":
        return "npz", path
    if start[:3] == b"\x00\x00\x08" or start[:2] == b"\x1f\x8b":
        folder = find_idx(path.parent)
        if folder is not None:
            return "idx", folder
    if holds_texts(path, start, columns):
        return "texts", path
    if start[:4] == b"PAR1":
        return "table", path
    if start[257:262] == b"ustar":
        return "tar", path
    refuse_coco(path, start)
    is_text = b"\x00" not in start and sniff(start) is None
    if path.suffix.lower() == ".csv" or (is_text and path.suffix.lower() in (".txt", "")):
        return "csv", path
    what = "a single picture is not a data set" if sniff(start) else "not a data set that can be opened"
    raise UsageError(
        f"{name}: {what}; give an image folder, a CSV manifest, parquet or tar "
        "files, an .npz, a folder of idx or CIFAR files, or texts as .jsonl or .csv"
    )


def _spec(
    source: str | os.PathLike[str], split: str, data_dir: str | os.PathLike[str] | None, options: Mapping[str, Any]
) -> DataSpec:
    name = os.fspath(source)
    if name in NAMES:
        needs_files = NAMES[name].places != ()
        return DataSpec(name, NAMES[name].kind, split, str(data_folder(data_dir)) if needs_files else None, options)
    path = Path(name).absolute()
    if not name or (not path.exists() and os.sep not in name):
        raise UsageError(
            f'no data set and no path "{shown(name)}"; names: {", ".join(NAMES)}.{did_you_mean(name, NAMES)}'
        )
    kind, _ = detect(path, dict(options.get("manifest_columns", ())))
    return DataSpec(str(path), kind, split, None, options)


def data_root(spec: DataSpec) -> Path | None:
    """The folder that the samples' paths are relative to, or None where samples have no files of their own."""
    if spec.kind not in ("folder", "csv"):
        return None
    place = _place(spec) if spec.source in NAMES else Path(spec.source)  # a path may be gone by now
    if place is None or spec.kind != "csv":
        return place
    return Path(spec.options["root"]) if "root" in spec.options else place.parent


def _place(spec: DataSpec) -> Path | None:
    if spec.source in NAMES:
        return locate(spec.source, data_folder(spec.data_dir)) if NAMES[spec.source].places else None
    return Path(spec.source) if spec.kind == "texts" else detect(Path(spec.source))[1]


def _open_spec(spec: DataSpec, options: OpenOptions) -> Dataset:
    place = _place(spec)
    if place is None:
        opened = {"embedded": open_embedded, "digits": open_digits}[spec.kind](spec.split, options)
    else:
        if spec.split == "test" and not _HAS_TEST[spec.kind](place):
            raise UsageError(
                f"{shown(spec.source)}: no test split found under {shown(str(place))}; "
                "give data that have one, or use split train or all"
            )
        split = "train" if spec.split == "all" and not _HAS_TEST[spec.kind](place) else spec.split
        named = NAMES[spec.source].class_names if spec.source in NAMES else None
        if named is not None and options.class_names is None:
            options = replace(options, class_names=named)
        opened = READERS[spec.kind](place, split, options)
    return apply_holdout(apply_recorded(_wrap(opened, spec)))


def _wrap(opened: Opened, spec: DataSpec) -> Dataset:
    own = opened.modality or modality_of(opened.images.shape[1:])
    spec = replace(spec, options={**spec.options, **opened.options, **own.to_json()})
    found = opened.items, own, opened.originals, opened.notes
    return Dataset(opened.images, opened.samples, spec, opened.skipped, *found)


def _open_table(path: Path, split: str, options: OpenOptions) -> Opened:
    if not is_installed("pyarrow"):
        raise UsageError(f"{shown(str(path))}: parquet and Arrow files need pyarrow: pip install 'provnet[formats]'")
    return open_table(path, split, options)


READERS: dict[str, Callable[[Path, str, OpenOptions], Opened]] = {
    "idx": open_idx,
    "cifar10": open_cifar10,
    "cifar100": open_cifar100,
    "npz": open_npz,
    "folder": open_folder,
    "csv": open_manifest,
    "table": _open_table,
    "tar": open_tars,
    "texts": open_text_files,
}
_HAS_TEST: dict[str, Callable[[Path], bool]] = {
    "idx": idx_has_test,
    "cifar10": cifar_has_test,
    "cifar100": cifar_has_test,
    "npz": npz_has_test,
    "folder": folder_has_test,
    "csv": lambda _: False,
    "table": table_has_test,
    "tar": tar_has_test,
    "texts": texts_have_test,
}

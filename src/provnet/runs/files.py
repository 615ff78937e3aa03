"""RunConfig: what config.json holds, with every type checked on the way in."""

from __future__ import annotations

import copy
import io
import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from provnet.base.errors import DataError, IntegrityError, UnsafeFileError, UsageError
from provnet.base.options import HEADS, KEY_TYPES
from provnet.data.dataset import DataSpec
from provnet.data.open import READERS
from provnet.data.rules import OpenOptions, make_options
from provnet.data.sources.known import NAMES
from provnet.heads.index_map import IndexMap
from provnet.heads.support import LOOKS, Evidence, Support
from provnet.models.attached import STORED, Given, build_attached
from provnet.models.backbones import BACKBONES, SHARING, StandIn
from provnet.models.network import (
    NETWORKS,
    WIDEST_KEY,
    AttachedModel,
    NetworkConfig,
    Normalise,
    ProvenanceNet,
    build,
)
from provnet.models.pretrained import FOLDER
from provnet.models.tap import POOLS, SIDES
from provnet.models.text import TEXT
from provnet.models.vae import GENERATORS
from provnet.runs.safe import (
    Layout,
    all_finite,
    compare_layouts,
    layouts_of,
    printable,
    read_layouts,
    read_tensors,
)
from provnet.samples.identity import FLAGS, Groups, SampleTable

CUSTOM = "custom"
PIXELS = 1 << 28  # values of one input
FIGURE = ("value", "n", "low", "high")
SHARES = ("index_ceiling", "test_in_training")  # figures without an interval that are compared or counted
_HALVES = re.compile("[\ud800-\udfff]")
SPLITS = ("train", "test", "all")


@dataclass(frozen=True)
class RunConfig:
    """Everything of a run but weights and samples.

    Attributes:
        network: what to build.
        data, test: how to open the training and the test data again, or None.
        training: settings and outcome of the training.
        support: `statistic`, `threshold`, `level`, `calibrated_on`, `n` of the supported/unsupported decision.
        versions: of provnet, torch and Python that wrote the run.
        evaluation: measures with intervals, or None.
        added: how to open the data again whose samples were added after training (`provnet.runs.bank`).
        erased: how many samples were erased since training.
        checks: what trust checks found (`provnet check`), or None.
        audit: what a membership audit measured (`card.audit_figures`), or None.
    """

    network: NetworkConfig
    data: DataSpec | None = None
    test: DataSpec | None = None
    training: Mapping[str, Any] = field(default_factory=dict)
    support: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    evaluation: Mapping[str, Any] | None = None
    added: tuple[DataSpec, ...] = ()
    erased: int = 0
    checks: Mapping[str, Any] | None = None
    audit: Mapping[str, Any] | None = None

    @property
    def threshold(self) -> float:
        """The support below which an input has no supporting sample."""
        if "threshold" not in self.support:
            raise UsageError(
                "this run has no support threshold; set one: support=provnet.training.calibration.calibrate(...)"
            )
        return float(self.support["threshold"])

    def to_json(self) -> dict[str, Any]:
        """A plain dictionary for config.json; what became of the bank is left out where nothing did."""
        added = [spec.to_json() for spec in self.added]
        return {
            "network": self.network.to_json(),
            "data": self.data.to_json() if self.data else None,
            "test": self.test.to_json() if self.test else None,
            "training": dict(self.training),
            "support": dict(self.support),
            "versions": dict(self.versions),
            "evaluation": dict(self.evaluation) if self.evaluation is not None else None,
            **({"added": added} if added else {}),
            **({"erased": self.erased} if self.erased else {}),
            **({"checks": dict(self.checks)} if self.checks is not None else {}),
            **({"audit": dict(self.audit)} if self.audit is not None else {}),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> RunConfig:
        """The inverse of `to_json`; unknown keys, names and types are refused.

        >>> config = RunConfig(NetworkConfig("single", "mlp", (4,), classes=2), training={"epochs": 3})
        >>> RunConfig.from_json(config.to_json()) == config
        True
        """
        _want(isinstance(value, Mapping), "the config must be a mapping")
        value = {"added": [], "erased": 0, "checks": None, "audit": None, **value}
        _keys(value, set(cls.__dataclass_fields__), "the config")
        for name in ("training", "support", "versions"):
            _want(isinstance(value[name], Mapping), f"{name} must be a mapping")
        _want(all(isinstance(v, str) for v in value["versions"].values()), "versions must be text")
        for name in ("evaluation", "checks", "audit"):
            _want(value[name] is None or isinstance(value[name], Mapping), f"{name} must be a mapping")
        _want(_is_count(value["erased"]), "erased must be a whole number")
        _training(value["training"])
        threshold = value["support"].get("threshold", 0.0)
        _want(_is_number(threshold), f"support.threshold must be a number, got {printable(threshold)}")
        for name in ("evaluation", "checks", "audit"):
            check_figures(value[name] or {}, name)
        for name in set(value) - {"data", "test", "added"}:  # those hold file names, whose bytes may be no UTF-8
            for text in _texts(value[name]):
                _want(
                    not _HALVES.search(text),
                    f"{name} holds half a character (a lone surrogate): {printable(text)}",
                )
        return cls(
            network=_network(value["network"]),
            data=_spec(value["data"], "data"),
            test=_spec(value["test"], "test"),
            training=value["training"],
            support=value["support"],
            versions=value["versions"],
            evaluation=value["evaluation"],
            added=_added(value["added"]),
            erased=value["erased"],
            checks=value["checks"],
            audit=value["audit"],
        )


def _network(value: Any) -> NetworkConfig:
    _want(isinstance(value, Mapping), "network must be a mapping")
    value = {**LATER, **value}
    if isinstance(value["attached"], Mapping):
        value["attached"] = {"scores": True, **value["attached"]}
    _keys(value, set(NetworkConfig.__dataclass_fields__), "network")
    _known("network", value["network"], NETWORKS)
    _known("backbone", value["backbone"], (*BACKBONES, *SHARING, *GENERATORS, TEXT, FOLDER, CUSTOM))
    _known("head", value["head"], HEADS)
    _known("key type", value["key_type"], KEY_TYPES)
    for name in ("classes", "level", "key_width"):
        _want(type(value[name]) is int, f"{name} must be a whole number")
    for name in ("scale", "alpha", "key_scale"):
        _want(_is_number(value[name]), f"{name} must be a number")
    for name, fits in (("mean", _is_number), ("std", _is_number), ("input_shape", _is_int)):
        seq = value[name]
        _want(isinstance(seq, list | tuple) and len(seq) > 0 and all(map(fits, seq)), f"{name} must be numbers")
    _want(isinstance(value["conditional"], bool), "conditional must be true or false")
    _attached(value["attached"], value["backbone"])
    layers = value["architecture"]
    has_layers = value["backbone"] in (FOLDER, TEXT)
    _want(isinstance(layers, str) and bool(layers) == has_layers, f"architecture goes with {FOLDER} and {TEXT}")
    shape = value["input_shape"]
    _want(min(shape) > 0 and math.prod(shape) <= PIXELS, f"input_shape may have {PIXELS:,} values in all")
    return NetworkConfig.from_json(value)


def _attached(value: Any, backbone: Any) -> None:
    """What is kept of a model of somebody else."""
    if value is None:
        return
    _keys(value, set(AttachedModel.__dataclass_fields__), "network.attached")
    kinds: dict[str, tuple[Callable[[Any], bool], str]] = dict.fromkeys(
        ("features", "width"), (_is_count, "a whole number")
    )
    kinds["scores"] = (lambda one: isinstance(one, bool)), "true or false"
    for name in value:
        fits, words = kinds.get(name, (_is_text, "text"))
        _want(fits(value[name]), f"network.attached.{name} must be {words}, got {printable(value[name])}")
    _want(backbone == CUSTOM, f'network.attached needs the backbone "{CUSTOM}", got {printable(backbone)}')
    most = min(value["features"], WIDEST_KEY)
    _want(0 < value["features"] <= PIXELS, f"network.attached.features may be 1 to {PIXELS:,}")
    _want(0 < value["width"] <= most, f"network.attached.width may be 1 to {most:,}")
    _known("side", value["side"], SIDES)
    _known("stored type", value["stored"], STORED)
    _known("pool", value["pool"], ("", "function", *POOLS))


# Settings that the first runs did not have, with the values that those runs were made with.
LATER = {
    "head": "plain",
    "key_width": 0,
    "key_scale": 0.0,
    "key_type": "fp32",
    "attached": None,
    "architecture": "",
}


def _spec(value: Any, name: str) -> DataSpec | None:
    if value is None:
        return None
    _keys(value, set(DataSpec.__dataclass_fields__), name)
    source, kind, folder, options = (value[key] for key in ("source", "kind", "data_dir", "options"))
    for key in ("source", "kind", "split"):
        _want(isinstance(value[key], str), f"{name}.{key} must be text")
    _want(folder is None or isinstance(folder, str), f"{name}.data_dir must be text")
    kinds = (NAMES[source].kind,) if source in NAMES else ("arrays", *READERS)
    _known(f"{name}.kind", kind, kinds)
    _known(f"{name}.split", value["split"], SPLITS)
    _want(isinstance(options, Mapping), f"{name}.options must be a mapping")
    _want(not any("\0" in text for text in _texts(value)), f"{name} holds a NUL, which no path may have")
    _options(options, f"{name}.options")
    return DataSpec.from_json(value)


def _options(value: Mapping[str, Any], name: str) -> None:
    """How the data were opened: as `open_data` takes it, and of the types that it was written in."""
    _want(None not in value.values(), f"{name} lists what was chosen, found null")
    for key, fits, words in LISTS:
        found = value.get(key, ())
        listed = isinstance(found, list | tuple) and all(map(fits, found))
        _want(listed, f"{name}.{key} must be a list of {words}, got {printable(found)}")
    try:
        make_options({key: value[key] for key in (one.name for one in fields(OpenOptions)) if key in value})
    except UsageError as error:
        raise IntegrityError(f"{name}: {error}") from None


def _training(value: Mapping[str, Any]) -> None:
    """What commands read of the settings; all else is only shown, and compared when a run is resumed."""
    for part, numbers in (("data", ("samples",)), ("machine", ("processes",)), ("subset", ("of", "indexed"))):
        about = value.get(part)
        _want(about is None or isinstance(about, Mapping), f"training.{part} must be a mapping")
        for name in numbers:
            count = (about or {}).get(name, 0)
            _want(_is_count(count), f"training.{part}.{name} must be a whole number, got {printable(count)}")


def check_figures(value: Any, name: str) -> None:
    """Refuse figures that are no numbers, wherever they stand in a record.

    >>> check_figures({"a": {"value": 0.5, "n": 4, "low": None, "high": None}}, "evaluation")
    >>> check_figures({"a": {"value": "good", "n": 4}}, "evaluation")
    Traceback (most recent call last):
    provnet.base.errors.IntegrityError: evaluation.a.value must be a number or null, got 'good'
    """
    for key, part in value.items() if isinstance(value, Mapping) else enumerate(value):
        here = f"{name}.{printable(key)[1:-1]}"
        if key in FIGURE or key in SHARES:
            what, fits = ("a whole number", _is_count) if key == "n" else ("a number", _is_number)
            _want(part is None or fits(part), f"{here} must be {what} or null, got {printable(part)}")
        elif isinstance(part, Mapping | list | tuple):
            check_figures(part, here)


def _added(value: Any) -> tuple[DataSpec, ...]:
    _want(isinstance(value, list | tuple), "added must be a list")
    specs = [_spec(each, "added") for each in value]
    _want(None not in specs, "added must list data, found null")
    return tuple(spec for spec in specs if spec is not None)


def _texts(value: Any) -> Iterator[str]:
    """Every text in a record, names of settings among them."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for part in (*value, *value.values()) if isinstance(value, Mapping) else value:
            yield from _texts(part)


def _keys(value: Any, allowed: set[str], what: str) -> None:
    _want(isinstance(value, Mapping), f"{what} must be a mapping")
    unknown, missing = set(value) - allowed, allowed - set(value)
    _want(not unknown, f"{what} has unknown settings: {', '.join(map(printable, sorted(unknown)))}")
    _want(not missing, f"{what} lacks {', '.join(sorted(missing))}")


def _known(kind: str, name: Any, allowed: Mapping[str, Any] | tuple[str, ...]) -> None:
    if not isinstance(name, str) or name not in allowed:
        raise UsageError(
            f"unknown {kind} {printable(name)}; model files may name {', '.join(allowed)} and nothing else"
        )


def _want(fits: bool, otherwise: str) -> None:
    if not fits:
        raise IntegrityError(otherwise)


def _is_int(value: Any) -> bool:
    return type(value) is int


def _is_count(value: Any) -> bool:
    return _is_int(value) and value >= 0


def _is_side(value: Any) -> bool:
    """A share that was held out, and which side of it is meant."""
    if not isinstance(value, list | tuple) or len(value) != 2:
        return False
    return _is_number(value[0]) and 0 < value[0] < 1 and value[1] in ("train", "test")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


LISTS = (
    ("size", _is_int, "two whole numbers"),
    ("value_range", _is_number, "two numbers"),
    ("class_names", _is_text, "names"),
    ("holdout", _is_side, 'pairs such as [0.1, "train"]'),
)


SAMPLES = 20_000_000  # the most samples that are read


def samples_to_tensors(samples: SampleTable) -> dict[str, Tensor]:
    """What samples.safetensors holds.

    >>> from provnet.samples.identity import SampleTable
    >>> none = np.zeros((1, 32), np.uint8)
    >>> table = SampleTable(("a",), none, none, np.zeros(1, np.int64), ("x",), (None,), ("",))
    >>> tensors = samples_to_tensors(table)
    >>> tensors["paths.given"].tolist(), tensors["sources.given"].tolist()
    ([0], [1])
    """
    grouped = {} if samples.grouping is None else {"labels": torch.tensor(samples.labels)}
    tensors = grouped | {
        "sha256": torch.tensor(samples.sha256),
        "pixel_sha256": torch.tensor(samples.pixel_sha256),
    }
    for name in FLAGS:
        flags: np.ndarray = getattr(samples, name)
        if flags.any():  # left out otherwise, as in runs that were never changed
            tensors[name] = torch.tensor(flags, dtype=torch.uint8)
    for name in _texts_of(labelled=samples.grouping is not None):
        texts: Sequence[str | None] = getattr(samples, name)
        raw = [(text or "").encode("utf-8", "surrogatepass") for text in texts]
        offsets = np.zeros(len(raw) + 1, dtype=np.int64)
        np.cumsum([len(r) for r in raw], out=offsets[1:])
        tensors[f"{name}.text"] = torch.from_numpy(np.frombuffer(b"".join(raw), dtype=np.uint8).copy())
        tensors[f"{name}.offsets"] = torch.from_numpy(offsets)
        if name in _OPTIONAL:
            tensors[f"{name}.given"] = torch.tensor([text is not None for text in texts], dtype=torch.uint8)
    return tensors


def read_samples_file(file: io.BufferedReader) -> SampleTable:
    """The inverse, from an open file whose SHA-256 was checked; everything is compared before it is used."""
    found = read_layouts(file)
    labelled = any(name in found for name in ("labels", "class_names.text", "class_names.offsets"))
    if labelled:
        n = _length(found, "labels", file.name)
        classes = _length(found, "class_names.offsets", file.name) - 1
    else:
        n, classes = _length(found, "sample_ids.offsets", file.name) - 1, 0
    if labelled and classes < 1:
        raise IntegrityError(f"{file.name}: class_names is empty, a run has at least one class")
    if n > SAMPLES:
        raise IntegrityError(f"{file.name}: {n:,} samples, at most {SAMPLES:,} are read")
    texts = {name: _length(found, f"{name}.text", file.name) for name in _texts_of(labelled=labelled)}
    flagged = [name for name in FLAGS if name in found]
    compare_layouts(found, _layouts(n, classes, texts, flagged), file.name)
    tensors = read_tensors(file)
    try:
        names = _whole(_samplefile_texts(tensors, "class_names", file.name)) if labelled else ()
        return SampleTable(
            sample_ids=_whole(_samplefile_texts(tensors, "sample_ids", file.name)),
            sha256=tensors["sha256"].numpy(),
            pixel_sha256=tensors["pixel_sha256"].numpy(),
            grouping=Groups(names, tensors["labels"].numpy()) if labelled else None,
            paths=_samplefile_texts(tensors, "paths", file.name),
            sources=_samplefile_texts(tensors, "sources", file.name),
            withheld=_flags(tensors, "withheld", file.name),
            added=_flags(tensors, "added", file.name),
        )
    except DataError as error:
        raise IntegrityError(f"{file.name} is damaged: {error}") from None


def _length(found: dict[str, Layout], name: str, path: str) -> int:
    if name not in found or len(found[name].shape) != 1:
        raise IntegrityError(f"{path}: tensor '{name}' is missing or has the wrong shape")
    return found[name].shape[0]


def _layouts(n: int, classes: int, texts: dict[str, int], flagged: Sequence[str]) -> dict[str, Layout]:
    layouts = {
        **({"labels": Layout("I64", (n,))} if classes else {}),
        "sha256": Layout("U8", (n, 32)),
        "pixel_sha256": Layout("U8", (n, 32)),
        **{name: Layout("U8", (n,)) for name in flagged},
    }
    for name, size in texts.items():
        layouts[f"{name}.text"] = Layout("U8", (size,))
        layouts[f"{name}.offsets"] = Layout("I64", ((classes if name == "class_names" else n) + 1,))
        if name in _OPTIONAL:
            layouts[f"{name}.given"] = Layout("U8", (n,))
    return layouts


def _samplefile_texts(tensors: dict[str, Tensor], name: str, path: str) -> tuple[str | None, ...]:
    blob = tensors[f"{name}.text"].numpy().tobytes()
    offsets = tensors[f"{name}.offsets"].numpy()
    if offsets[0] != 0 or offsets[-1] != len(blob) or bool((offsets[1:] < offsets[:-1]).any()):
        raise IntegrityError(f"{path} is damaged: the offsets of {name} do not cover its text")
    edges = offsets.tolist()
    try:
        texts = [blob[a:b].decode("utf-8", "surrogatepass") for a, b in itertools.pairwise(edges)]
    except UnicodeDecodeError as error:
        raise IntegrityError(f"{path} is damaged: {name} is not UTF-8 ({error.reason})") from None
    if name not in _OPTIONAL:
        return tuple(texts)
    given = tensors[f"{name}.given"].tolist()
    return tuple(text if there else None for text, there in zip(texts, given, strict=True))


def _flags(tensors: dict[str, Tensor], name: str, path: str) -> np.ndarray | None:
    tensor = tensors.get(name)
    if tensor is None:
        return None
    if tensor.numel() and int(tensor.max()) > 1:
        raise IntegrityError(f"{path} is damaged: {name} holds bytes that are neither 0 nor 1")
    return tensor.bool().numpy()


def _whole(texts: tuple[str | None, ...]) -> tuple[str, ...]:
    return tuple(text or "" for text in texts)


_OPTIONAL = ("paths", "sources")
_TEXTS = ("sample_ids", "class_names", *_OPTIONAL)


def _texts_of(*, labelled: bool) -> tuple[str, ...]:
    """The columns of text in a sample table; classes have names where samples have labels."""
    return tuple(name for name in _TEXTS if labelled or name != "class_names")


STEPS = "index_head.steps"
_EVIDENCE = "support.evidence."  # of runs with frozen features
_LOOKS = "support.looks."  # runs of pictures had none at first
_HEAD = "index_head."  # as large as there are samples
TABLE = 1 << 27  # entries of the index map's table, or of the single branch's class table


def rebuild(
    config: NetworkConfig, samples: SampleTable, file: io.BufferedReader, backbone: nn.Module | Given | None = None
) -> ProvenanceNet:
    """Build the network that the config names and load its weights; in evaluation mode, on the CPU.

    A backbone given as object is copied: two networks never share its weights. A model that the run is attached to is
    not: it stays its owner's, where it lies.
    """
    if config.attached is not None:
        return _attach_again(config, samples, file, backbone)
    backbone = backbone.model if isinstance(backbone, Given) else backbone
    if config.backbone == CUSTOM and backbone is None:
        raise UsageError(
            "this run was trained with a backbone given as object; give it again, in Python: provnet.load(folder, "
            'backbone=module), or for any command provnet.cli.main(["explain", ...], backbone=module)'
        )
    if backbone is not None and not isinstance(backbone, nn.Module):
        raise UsageError(f"backbone must be an nn.Module, the one that the run was trained with; got {backbone!r:.80}")
    if config.backbone != CUSTOM and backbone is not None:
        raise UsageError(f'this run has the backbone "{config.backbone}" of provnet; leave the backbone argument out')
    network = _build(config, samples, None if backbone is None else own_copy(backbone))
    found = read_layouts(file)
    _open_looks(network, found)
    expected = layouts_of(network.state_dict())
    if backbone is not None:
        _compare_backbone(found, expected)
    _compare_head(found, expected, len(samples), file.name)
    plain = config.key_type == "bf16" and STEPS not in found  # bf16 keys had no factors at first
    weights = read_tensors(file, {name: one for name, one in expected.items() if not (plain and name == STEPS)})
    if plain:
        weights[STEPS] = 1 / torch.linalg.vector_norm(weights["index_head.keys"].float(), dim=1).clamp(min=1e-12)
    network.load_state_dict(weights, strict=True, assign=backbone is None)
    if backbone is None:
        _check_answer(network.eval(), config, file.name)
    return network.eval()


def _attach_again(
    config: NetworkConfig, samples: SampleTable, file: io.BufferedReader, given: nn.Module | Given | None
) -> ProvenanceNet:
    """The network of a run around the model that is given again."""
    assert config.attached is not None
    if given is None:
        raise UsageError(
            f"this run is attached to a {config.attached.name}, whose weights are not part of it; give the model "
            'again: provnet.load(folder, model=model), or for any command provnet.cli.main(["explain", ...], '
            "backbone=model)"
        )
    given = given if isinstance(given, Given) else Given(given)
    network = build_attached(config, _index_map(config, samples), given)
    found = read_layouts(file)
    _open_looks(network, found)
    expected = layouts_of(network.state_dict())
    _compare_head(found, expected, len(samples), file.name)
    network.load_state_dict(read_tensors(file, expected), strict=False, assign=True)
    network.to(next(network.tap.model.parameters()).device).freeze(config.attached.sha256)
    return network.eval()


def _check_answer(network: ProvenanceNet, config: NetworkConfig, name: str) -> None:
    """Refuse weights that are finite, but by which the answer to a usual input is not."""
    mean, std = network.normalise.mean, network.normalise.std
    usual = [((mean + steps * std) * config.scale).expand(1, *config.input_shape) for steps in (0, 1)]
    with torch.inference_mode():
        output = network(torch.cat(usual))
        support = network.support(output.support_features, output.classes)
    best = [] if output.index_scores is None else [output.index_scores.amax(1)]  # slots without a sample have -inf
    if not all(map(all_finite, (output.features, output.logits, output.index_features, support, *best))):
        raise IntegrityError(
            f"{name}: with these weights the answer to an ordinary input is not finite; restore the run"
        )


def own_copy(backbone: nn.Module) -> nn.Module:
    """A copy of a module that somebody gave, with its hooks and on its device; the original is left as it is.

    >>> given = nn.Linear(2, 3)
    >>> torch.equal(own_copy(given).weight, given.weight)
    True
    """
    known: dict[int, Any] = {}
    for part in backbone.modules():  # torch does not copy what a module keeps of its last pass; values are enough
        kept = [value for value in vars(part).values() if isinstance(value, Tensor) and not value.is_leaf]
        known |= {id(value): value.detach().clone() for value in kept}
    try:
        with torch.inference_mode(False):  # a copy made in that mode could not be trained
            copied = copy.deepcopy(backbone, known)
        return copied.float() if torch.get_default_dtype() == torch.float64 else copied  # it may be of that default
    except (RuntimeError, TypeError) as error:
        raise UsageError(
            f"the backbone cannot be copied ({error}); a run keeps a copy of its own, so give a module that "
            "copy.deepcopy can copy"
        ) from None


@contextmanager
def float32_default() -> Iterator[None]:
    """Networks are made of float32 whatever torch's default is; the caller's own is put back.

    >>> with float32_default():
    ...     nn.Linear(2, 3).weight.dtype
    torch.float32
    """
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(usual)


def check_state(config: NetworkConfig, samples: SampleTable, state: Mapping[str, Tensor], backbone: nn.Module) -> None:
    """See that a network can be read back from what will be written of it; `backbone` is its own."""
    found, given = layouts_of(state), None
    if config.backbone == CUSTOM and config.attached is None:  # reading gives the same module again
        given = StandIn(backbone, config.input_shape)
        found = {name: one for name, one in found.items() if not name.startswith("backbone.")}
    network = _build(config, samples, given)
    _open_looks(network, found)
    expected = layouts_of(network.state_dict())
    _compare_head(found, expected, len(samples), "network")
    try:
        compare_layouts(found, expected, "the network")
    except IntegrityError as error:
        raise UsageError(
            f"this network cannot be saved as a run, since nothing could read it again: {error}; save one that "
            "provnet.training.fit.fit or provnet.models.network.build made, or keep the weights of this one "
            "yourself (safetensors.torch.save_model)"
        ) from None


def check_table(config: RunConfig, samples: SampleTable, name: str) -> None:
    """See that the table is that of the samples that were trained on: one of another run would name wrong ones.

    The run keeps their fingerprint. It says nothing of what is left once some were erased, nor of a table that holds
    the indexed samples alone.
    """
    data, subset = config.training.get("data"), config.training.get("subset")
    data = data if isinstance(data, Mapping) else {}
    then = data.get("fingerprint")
    more = isinstance(subset, Mapping) and subset.get("rest_content") is not None
    if then is None or more or config.erased:
        return
    own = samples.select(~samples.added) if samples.added.any() else samples
    if own.fingerprint != then:
        raise IntegrityError(
            f"{name} is not the sample table of this run: it has {len(own):,} samples with the fingerprint "
            f"{own.fingerprint[:12]}, the training data {data.get('samples')} with {str(then)[:12]}; take the files "
            "from one and the same run"
        )


def _build(config: NetworkConfig, samples: SampleTable, backbone: nn.Module | None) -> ProvenanceNet:
    """Named networks are built without memory for weights; one with a given backbone for real, but reproducibly."""
    if config.attached is not None:
        return build_attached(config, _index_map(config, samples), None)
    try:
        index_map = _index_map(config, samples)
        if backbone is not None:
            with torch.random.fork_rng(devices=[]), float32_default():
                return build(config, index_map, backbone.to("cpu")).to("cpu")
        # what a model of a folder computes when it is made is not among its weights: it is made for real
        where = torch.device("cpu" if config.backbone == FOLDER else "meta")
        with torch.random.fork_rng(devices=[]), where, float32_default():
            network = build(config, index_map)
    except (UsageError, RuntimeError) as error:
        if backbone is not None:
            raise UsageError(f"the backbone given is not the one that this run was trained with: {error}") from None
        raise IntegrityError(f"config.json describes a network that cannot be built: {error}") from None
    network.normalise = Normalise(config)  # small, and not among the weights: real values
    return network


def _index_map(config: NetworkConfig, samples: SampleTable) -> IndexMap:
    """The map of a run's samples, which no table larger than TABLE is made for."""
    one_group = samples.grouping is None and config.attached is not None and not config.attached.scores
    classes = 1 if one_group else len(samples.class_names)
    if config.classes != classes:
        raise IntegrityError(f"config.json has {config.classes:,} classes, samples.safetensors {classes:,}")
    labels = np.zeros(len(samples), np.int64) if one_group else samples.labels
    largest = int(torch.bincount(torch.tensor(labels)).max()) if len(samples) else 0
    by_class = config.network == "single" and config.head == "plain"
    wide = max(classes * largest, classes * len(samples) if by_class else 0)
    if wide > TABLE:
        raise UnsafeFileError(f"{len(samples):,} samples in {classes:,} classes need a table past the limit {TABLE:,}")
    return IndexMap(labels, classes)


def _open_looks(network: ProvenanceNet, found: Mapping[str, Layout]) -> None:
    """Make room for the spread of the pictures' looks and for evidence, where the run has them."""
    if any(name.startswith(_LOOKS) for name in found):
        with float32_default():
            network.support.looks = Support(1, LOOKS)
    if any(name.startswith(_EVIDENCE) for name in found):
        classes, width = network.support.mean.shape
        with float32_default():
            network.support.evidence = Evidence(width, classes)


def _compare_backbone(found: Mapping[str, Layout], expected: Mapping[str, Layout]) -> None:
    """Weights that do not fit the module that was given tell of another module, not of damage."""
    wanted, there = ({name: one for name, one in of.items() if not name.startswith(_HEAD)} for of in (expected, found))
    try:
        compare_layouts(there, wanted, "the run")
    except IntegrityError as error:
        raise UsageError(f"the backbone given is not the one that this run was trained with: {error}") from None


def _compare_head(found: Mapping[str, Layout], expected: Mapping[str, Layout], n: int, path: Any) -> None:
    """The one contradiction that deserves its own words: who stands behind an index."""
    for name in ("index_head.linear.weight", "index_head.keys"):
        if name in found and name in expected and found[name].shape[:1] != expected[name].shape[:1]:
            rows = f"{expected[name].shape[0]:,} rows"
            raise IntegrityError(
                f"samples.safetensors has {n:,} samples, for which the index head needs {rows}; "
                f"{path} has {', '.join(map(str, found[name].shape[:1]))}"
            )

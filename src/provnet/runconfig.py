"""RunConfig: what config.json holds, with every type checked on the way in."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from provnet.data.imagedata import DataSpec
from provnet.data.names import NAMES
from provnet.data.rules import OpenOptions, make_options
from provnet.data.sources import READERS
from provnet.errors import IntegrityError, UsageError
from provnet.models.backbones import BACKBONES
from provnet.models.config import HEADS, KEY_TYPES, NetworkConfig
from provnet.models.made import GENERATORS
from provnet.models.provenance import NETWORKS
from provnet.models.sharing import SHARING
from provnet.safejson import shown

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
        added: how to open the data again whose samples were added after training (`provnet.bank`).
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
            raise UsageError("this run has no support threshold; set one: support=provnet.support.calibrate(...)")
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
        _want(_is_number(threshold), f"support.threshold must be a number, got {shown(threshold)}")
        for name in ("evaluation", "checks", "audit"):
            check_figures(value[name] or {}, name)
        for name in set(value) - {"data", "test", "added"}:  # those hold file names, whose bytes may be no UTF-8
            for text in _texts(value[name]):
                _want(not _HALVES.search(text), f"{name} holds half a character (a lone surrogate): {shown(text)}")
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
    _keys(value, set(NetworkConfig.__dataclass_fields__), "network")
    _known("network", value["network"], NETWORKS)
    _known("backbone", value["backbone"], (*BACKBONES, *SHARING, *GENERATORS, CUSTOM))
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
    shape = value["input_shape"]
    _want(min(shape) > 0 and math.prod(shape) <= PIXELS, f"input_shape may have {PIXELS:,} values in all")
    return NetworkConfig.from_json(value)


# Settings that the first runs did not have, with the values that those runs were made with.
LATER = {"head": "plain", "key_width": 0, "key_scale": 0.0, "key_type": "fp32"}


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
        _want(listed, f"{name}.{key} must be a list of {words}, got {shown(found)}")
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
            _want(_is_count(count), f"training.{part}.{name} must be a whole number, got {shown(count)}")


def check_figures(value: Any, name: str) -> None:
    """Refuse figures that are no numbers, wherever they stand in a record.

    >>> check_figures({"a": {"value": 0.5, "n": 4, "low": None, "high": None}}, "evaluation")
    >>> check_figures({"a": {"value": "good", "n": 4}}, "evaluation")
    Traceback (most recent call last):
    provnet.errors.IntegrityError: evaluation.a.value must be a number or null, got 'good'
    """
    for key, part in value.items() if isinstance(value, Mapping) else enumerate(value):
        here = f"{name}.{shown(key)[1:-1]}"
        if key in FIGURE or key in SHARES:
            what, fits = ("a whole number", _is_count) if key == "n" else ("a number", _is_number)
            _want(part is None or fits(part), f"{here} must be {what} or null, got {shown(part)}")
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
    _want(not unknown, f"{what} has unknown settings: {', '.join(map(shown, sorted(unknown)))}")
    _want(not missing, f"{what} lacks {', '.join(sorted(missing))}")


def _known(kind: str, name: Any, allowed: Mapping[str, Any] | tuple[str, ...]) -> None:
    if not isinstance(name, str) or name not in allowed:
        raise UsageError(f"unknown {kind} {shown(name)}; model files may name {', '.join(allowed)} and nothing else")


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

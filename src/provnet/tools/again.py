"""The options of `provnet train` that open a run's data again as they were, for commands that are suggested."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from provnet.base.options import (
    SUBSET,
    DataOptions,
    NetworkOptions,
    RecipeOptions,
    RunOptions,
    SplitOptions,
    SubsetOptions,
)
from provnet.base.words import shell_words, to_argv
from provnet.data.dataset import DataSpec
from provnet.data.modalities.decode import is_picture
from provnet.models.backbones import auto_backbone
from provnet.models.network import NetworkConfig
from provnet.models.pretrained import FOLDER
from provnet.models.pretrained import NAMES as PRETRAINED
from provnet.runs.files import CUSTOM, RunConfig
from provnet.tools.generate.compute import RECIPES
from provnet.tools.subsets import QUICK_WORDS
from provnet.training.config import PRESETS, for_pretrained, for_samples
from provnet.training.setup import auto_head


def data_options(spec: DataSpec, *, samples: bool = True) -> str:
    """What follows DATA, with a blank in front; without `samples` only how pictures are read, not which.

    >>> from provnet.data.dataset import DataSpec
    >>> spec = DataSpec("pictures", "folder", options={"size": [64, 48], "limit": 100, "holdout": [[0.1, "train"]]})
    >>> data_options(spec), data_options(spec, samples=False)
    (' --size 64x48 --limit 100 --holdout 0.1', ' --size 64x48')
    >>> data_options(DataSpec("pictures", "folder", options={"size": [8, 8], "fit": "crop"}))
    ' --size 8x8 --fit crop'
    """
    given = spec.options
    background = given.get("background", "white")
    asked = DataOptions(
        size=tuple(given["size"]) if given.get("size") else None,
        fit=None if given.get("fit") == "stretch" else given.get("fit"),
        mode=given.get("mode") or None,
        background=None if background == "white" else background,
        frame=given.get("frame"),
        value_range=tuple(given["value_range"]) if given.get("value_range") else None,
    )
    if not samples:
        return shell_words(to_argv(asked))
    asked = replace(
        asked,
        data_dir=spec.data_dir,
        columns=",".join(f"{what}={name}" for what, name in given.get("manifest_columns") or ()) or None,
        root=given.get("root") or None,
        skip_bad=bool(given.get("skip_bad")),
        limit=given.get("limit") or None,
    )
    shares = [SplitOptions(holdout=share) for share, side in given.get("holdout", ()) if side == "train"]
    return shell_words([word for part in (asked, *shares) for word in to_argv(part)])


def recipe_options(config: RunConfig) -> str:
    """The network and recipe of a run as `provnet train` takes them, with a blank in front; defaults are left out.

    Which samples get an index is said by `subset_options`.

    >>> from provnet.models.network import NetworkConfig
    >>> from provnet.runs.files import RunConfig
    >>> from provnet.training.config import for_samples, train_config
    >>> network = NetworkConfig("class-independent", "small", (1, 8, 8), classes=2)
    >>> recipe = for_samples(train_config("fast", epochs=7), 500, (1, 8, 8)).to_json()
    >>> recipe_options(RunConfig(network, training={"training": recipe, "data": {"samples": 500}}))
    ' --network class-independent --preset fast --epochs 7'
    """
    network, settings, about = config.network, config.training.get("training"), config.training.get("data")
    if not isinstance(settings, Mapping) or not isinstance(about, Mapping):
        return ""
    preset, n = str(settings.get("preset")), int(about.get("samples", 1))
    generators = {recipe.preset: name for name, recipe in RECIPES.items()}
    words: list[str] = []
    if preset in generators:
        usual = RECIPES[generators[preset]]
        asked = RecipeOptions(task="generate", generator=generators[preset])
    elif preset in PRESETS:
        words, usual = _network_words(network, preset, n), PRESETS[preset]
        asked = RecipeOptions(preset=None if preset == "default" else preset, finetune=bool(settings.get("finetune")))
    else:
        return ""
    usual = for_samples(usual, n, network.input_shape)
    if network.backbone in PRETRAINED:
        usual = for_pretrained(replace(usual, finetune=asked.finetune))
    plain = usual.to_json()
    changed = ("epochs", "batch_size", "lr", "augment", "seed")
    asked = replace(asked, **{k: settings[k] for k in changed if k in settings and settings[k] != plain[k]})
    machine = config.training.get("machine")
    processes = machine.get("processes", 1) if isinstance(machine, Mapping) else 1
    where = RunOptions(devices=processes)  # each normalises its own share of a batch
    return shell_words([*words, *to_argv(asked), *to_argv(where)])


def _network_words(network: NetworkConfig, preset: str, n: int) -> list[str]:
    """The network itself, always named, with what is not what the preset takes for n samples."""
    own = [CUSTOM, FOLDER]  # which cannot be named
    if preset != "default" or not is_picture(network.input_shape) or network.input_shape[0] == 1:
        own.append(auto_backbone(network.input_shape, network.network, preset, n))  # the same on every machine
    given = {name: getattr(network, name) for name in ("key_type", "key_width", "alpha", "conditional", "level")}
    backbone = "auto" if network.backbone in own else network.backbone
    head = "auto" if network.head == auto_head(preset, network.backbone) else network.head
    return ["--network", network.network, *to_argv(NetworkOptions(backbone=backbone, head=head, **given))]


def subset_options(config: RunConfig) -> str:
    """Options of `provnet train` for the index over some samples that a run has, with a blank in front; else nothing.

    Of samples that were given by their positions the number is repeated, as no option names them. A run whose features
    they were selected by is not remembered: FEATURES_RUN stands for it.

    >>> from provnet.models.network import NetworkConfig
    >>> from provnet.runs.files import RunConfig
    >>> network = NetworkConfig("class-independent", "small", (1, 8, 8), classes=2)
    >>> about = {"asked": "30%", "select": "diverse", "classes_on": "subset", "indexed": 150, "of": 500}
    >>> subset_options(RunConfig(network, training={"subset": about}))
    ' --index-subset 30% --select diverse --subset-classes-on subset'
    """
    about = config.training.get(SUBSET)
    if not isinstance(about, Mapping):
        return ""
    select, usual = str(about.get("select", "stratified")), "subset" if config.network.network == "single" else "all"
    classes_on = str(about.get("classes_on", usual))
    asked = SubsetOptions(
        index_subset=str(about.get("asked", about.get("indexed"))),
        select=None if select == "stratified" else select,
        select_from=None if about.get("features", QUICK_WORDS) == QUICK_WORDS else Path("FEATURES_RUN"),
        subset_classes_on=None if classes_on == usual else classes_on,
    )
    return shell_words(to_argv(asked))


def unseen_options(config: RunConfig, files: DataSpec | None = None) -> str:
    """`--test` for a run that has test data of their own, with a blank in front; else nothing.

    With `files` not the data themselves are trained on but a list of their files, which are there now: such a list has
    no test split, and that of the data is named, too.

    >>> from provnet.data.dataset import DataSpec
    >>> from provnet.models.network import NetworkConfig
    >>> from provnet.runs.files import RunConfig
    >>> data, test = DataSpec("/pictures", "folder"), DataSpec("/pictures", "folder", "test")
    >>> config = RunConfig(NetworkConfig("single", "small", (1, 8, 8), classes=2), data, test)
    >>> unseen_options(config), unseen_options(config, data)
    ('', ' --test /pictures')
    """
    test, data = config.test, config.data
    if test is None or test.kind == "arrays" or "holdout" in test.options:  # the last has an option of its own
        return ""
    own = data is not None and (test.source, test.split) == (data.source, "test")
    if own and files is None:
        return ""
    place = files if own and files is not None else test
    named = files is None and data is not None and data.data_dir is not None  # by the options of the data
    data_dir = DataOptions(data_dir=None if named else place.data_dir)
    return shell_words([*to_argv(SplitOptions(test=place.source)), *to_argv(data_dir)])

"""The options of `provnet train` that open a run's data again as they were, for commands that are suggested."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

from provnet.base.options import SUBSET, Train
from provnet.cli.flags import to_argv
from provnet.data.dataset import DataSpec
from provnet.models.backbones import auto_backbone
from provnet.models.network import NetworkConfig
from provnet.runs.files import CUSTOM, RunConfig
from provnet.tools.generate.recipes import RECIPES
from provnet.tools.subsets import QUICK_WORDS
from provnet.training.config import PRESETS, for_samples
from provnet.training.setup import auto_head


def path_word(path: os.PathLike[str] | str) -> str:
    """A path as a word of a command that can be pasted into a shell.

    >>> path_word("my runs/a"), path_word("-dash"), path_word("runs/a")
    ("'my runs/a'", './-dash', 'runs/a')
    """
    text = os.fspath(path)
    return shell_word(f"./{text}" if text.startswith("-") else text)


def shell_word(text: str) -> str:
    """One word for a shell. What a terminal does not show is written as bash and zsh take it, in $'...'.

    >>> shell_word("a b"), shell_word("it's\\n")
    ("'a b'", "$'it\\\\'s\\\\x0a'")
    """
    return shlex.quote(text) if text.isprintable() else f"$'{''.join(map(_escaped, text))}'"


def _escaped(sign: str) -> str:
    if sign.isprintable():
        return f"\\{sign}" if sign in "\\'" else sign
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(sign))


def resumed(asked: Train) -> str:
    """The command that goes on with what a command has begun.

    >>> from pathlib import Path
    >>> resumed(Train(data="my data", out=Path("runs/a"), where=RunOptions(overwrite=True)))
    "provnet train 'my data' --out runs/a --resume"
    """
    again = replace(asked, where=replace(asked.where, overwrite=False, resume=True))
    return "provnet train" + _words(to_argv(again))


def data_options(spec: DataSpec, *, samples: bool = True) -> str:
    """What follows DATA, with a blank in front; without `samples` only how pictures are read, not which.

    >>> from provnet.data.dataset import DataSpec
    >>> spec = DataSpec("pictures", "folder", options={"size": [64, 48], "limit": 100, "holdout": [[0.1, "train"]]})
    >>> data_options(spec), data_options(spec, samples=False)
    (' --size 64x48 --limit 100 --holdout 0.1', ' --size 64x48')
    """
    given = spec.options
    words: list[str] = []
    if given.get("size"):
        words += ["--size", "x".join(str(side) for side in given["size"])]
    if given.get("mode"):
        words += ["--mode", given["mode"]]
    if given.get("background", "white") != "white":
        words += ["--background", given["background"]]
    if given.get("frame") is not None:
        words += ["--frame", str(given["frame"])]
    if given.get("value_range"):
        words += ["--value-range", *(f"{value:g}" for value in given["value_range"])]
    if samples:
        if spec.data_dir is not None:
            words += ["--data-dir", spec.data_dir]
        if given.get("root"):
            words += ["--root", given["root"]]
        if given.get("skip_bad"):
            words.append("--skip-bad")
        if given.get("limit"):
            words += ["--limit", str(given["limit"])]
        for share, side in given.get("holdout", ()):
            words += ["--holdout", f"{share:g}"] if side == "train" else []
    return _words(words)


def recipe_options(config: RunConfig) -> str:
    """The network and recipe of a run as `provnet train` takes them, with a blank in front; defaults are left out.

    Which samples get an index is said by `subset_options`.

    >>> from provnet.models.network import NetworkConfig
    >>> from provnet.runs.files import RunConfig
    >>> from provnet.training.config import for_samples, train_config
    >>> network = NetworkConfig("class-independent", "small", (1, 8, 8), classes=2)
    >>> recipe = for_samples(train_config("fast", epochs=7), 500, (1, 8, 8)).to_json()
    >>> recipe_options(RunConfig(network, training={"training": recipe, "data": {"samples": 500}}))
    ' --network class-independent --epochs 7'
    """
    network, settings, about = config.network, config.training.get("training"), config.training.get("data")
    if not isinstance(settings, Mapping) or not isinstance(about, Mapping):
        return ""
    preset, n = str(settings.get("preset")), int(about.get("samples", 1))
    generators = {recipe.config.preset: name for name, recipe in RECIPES.items()}
    if preset in generators:
        words = ["--task", "generate", "--generator", generators[preset]]
        usual = RECIPES[generators[preset]].config
    elif preset in PRESETS:
        words, usual = _network_words(network, preset, n), PRESETS[preset]
    else:
        return ""
    plain = for_samples(usual, n, network.input_shape).to_json()
    for name in ("epochs", "batch_size", "lr", "augment", "seed"):
        if name in settings and settings[name] != plain[name]:
            words += [f"--{name.replace('_', '-')}", str(settings[name])]
    machine = config.training.get("machine")
    processes = machine.get("processes", 1) if isinstance(machine, Mapping) else 1
    words += ["--devices", str(processes)] if processes != 1 else []  # each normalises its own share of a batch
    return _words(words)


def _network_words(network: NetworkConfig, preset: str, n: int) -> list[str]:
    """The network itself, where it is not what the preset takes for n samples."""
    own = (CUSTOM, auto_backbone(network.input_shape, network.network, preset, n))  # the first cannot be named
    words = ["--network", network.network]
    words += [] if network.backbone in own else ["--backbone", network.backbone]
    words += [] if network.head == auto_head(preset) else ["--head", network.head]
    words += [] if network.key_type == "fp32" else ["--keys", network.key_type]
    words += ["--key-width", str(network.key_width)] if network.key_width else []
    words += ["--alpha", str(network.alpha)] if network.alpha else []
    words += [] if network.conditional else ["--no-conditional"]
    words += [] if network.level == 3 else ["--level", str(network.level)]
    return words + ([] if preset == "fast" else ["--preset", preset])


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
    words = ["--index-subset", str(about.get("asked", about.get("indexed")))]
    select, usual = str(about.get("select", "stratified")), "subset" if config.network.network == "single" else "all"
    words += [] if select == "stratified" else ["--select", select]
    words += [] if about.get("features", QUICK_WORDS) == QUICK_WORDS else ["--select-from", "FEATURES_RUN"]
    words += [] if about.get("classes_on", usual) == usual else ["--subset-classes-on", str(about["classes_on"])]
    return _words(words)


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
    return _words(["--test", place.source, *(["--data-dir", place.data_dir] if place.data_dir and not named else [])])


def _words(words: Sequence[str]) -> str:
    return "".join(f" {shell_word(word)}" for word in words)

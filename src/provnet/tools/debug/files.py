"""The files of `provnet debug`: every sample, a corrected manifest, decisions, the page; and what to do next."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from provnet.base.files import clean_text
from provnet.base.options import (
    SUBSET,
    DataOptions,
    Debug,
    NetworkOptions,
    RecipeOptions,
    RunOptions,
    SplitOptions,
    SubsetOptions,
)
from provnet.base.words import path_word, shell_words, to_argv
from provnet.data.apply import MOST
from provnet.data.compare import compare
from provnet.data.dataset import DataSpec, ImageData
from provnet.data.modalities.decode import is_picture
from provnet.data.open import data_root
from provnet.data.select import data_name, free_ids
from provnet.models.backbones import auto_backbone
from provnet.models.network import NetworkConfig
from provnet.models.pretrained import FOLDER
from provnet.models.pretrained import NAMES as PRETRAINED
from provnet.runs.data import Found, has_changed
from provnet.runs.files import CUSTOM, RunConfig
from provnet.runs.run import Run
from provnet.samples.csvfile import csv_text, quoted
from provnet.samples.decisions import Decision, decisions_csv
from provnet.samples.identity import SampleTable
from provnet.tools.debug.compute import DROP, Debugging
from provnet.tools.debug.page import Advice, debug_page
from provnet.tools.generate.compute import RECIPES
from provnet.tools.subsets import QUICK_WORDS
from provnet.training.config import PRESETS, for_pretrained, for_samples
from provnet.training.setup import auto_head

STRANGE = "not in the run, where erased ones could be among them"


@dataclass(frozen=True, eq=False)
class Held:
    """The samples of a table (n) as a run (N) knows them.

    Attributes:
        table: the data of now.
        places: (N,) where each sample of the run is, by content; -1 where it is gone.
        owner: (n,) which sample of the run each is; -1 where it is none.
        withheld: (n,) bool, those that the run withholds.
        strange: (n,) bool, after erasing those whose content the run does not hold: they may be erased ones.
    """

    table: SampleTable
    places: np.ndarray
    owner: np.ndarray
    withheld: np.ndarray
    strange: np.ndarray

    @property
    def used(self) -> np.ndarray:
        """Rising positions of those that may be trained on again."""
        return np.flatnonzero(~self.withheld & ~self.strange)


def held_rows(run: Run, table: SampleTable) -> Held:
    """Look for a run's samples in a table that may hold more, fewer or others under their names.

    Equal content comes before an equal name, and both together before either. Of several samples that are one in the
    table a withheld one is there, else the first. After erasing a name alone proves nothing: an erased sample may have
    come under the name of another, as names of array samples are positions.
    """
    known = run.samples
    places = compare(known, table).positions
    named = np.array([table.id_places.get(name, -1) for name in known.sample_ids], dtype=np.int64)
    alone = np.where((places < 0) & (run.config.erased == 0), named, -1)
    owner = np.full(len(table), -1, dtype=np.int64)
    for where in (alone, places, np.where(known.withheld, places, -1), np.where(places == named, places, -1)):
        there = np.flatnonzero(where >= 0)[::-1]
        owner[where[there]] = there
    withheld = (owner >= 0) & known.withheld[owner]
    return Held(table, places, owner, withheld, (owner < 0) & (run.config.erased > 0))


class Excluded(NamedTuple):
    """What must not be trained on again, for decisions that are applied to the data.

    Attributes:
        drops: a decision for each of these samples.
        reasons: of each, in a word or two.
        left_out: how many of each kind, in words.
        why: why it cannot be told which they are; else empty.
        held_alone: what is left of the data are samples of the run alone.
        lacking: samples that were added to the run and are not among the data.
    """

    drops: tuple[Decision, ...] = ()
    reasons: tuple[str, ...] = ()
    left_out: tuple[tuple[int, str], ...] = ()
    why: str = ""
    held_alone: bool = False
    lacking: int = 0


def excluded_samples(run: Run, found: Found) -> Excluded:
    """The samples of the training data that a run withholds and, after erasing, all that it does not hold.

    An erased sample is known to nobody, so every sample that the run does not hold may be one.
    """
    known = run.samples
    added = known.added & ~known.withheld
    if found.table is None:
        mine = np.flatnonzero(known.withheld & ~known.added).tolist()
        drops = tuple(Decision(known.sample_ids[i], known.hex(i), "drop") for i in mine)
        kinds = ((len(drops), "withheld"),) if drops else ()
        sure = not run.config.erased and not known.withheld.any()
        closed = has_changed(run.config, known)
        reason = "they cannot be opened" if closed else "files that changed make --limit and --holdout choose others"
        why = "" if sure else f"withheld or erased samples may be among the data, and cannot be told: {reason}"
        return Excluded(drops, ("withheld",) * len(drops), kinds, why, lacking=int(added.sum()))
    held = held_rows(run, found.table)
    table, hidden, strange = found.table, np.flatnonzero(held.withheld), np.flatnonzero(held.strange)
    drops = tuple(Decision(table.sample_ids[p], table.hex(p), "drop") for p in (*hidden.tolist(), *strange.tolist()))
    reasons = ("withheld",) * len(hidden) + ("not in the run",) * len(strange)
    counts = tuple((len(rows), words) for rows, words in ((hidden, "withheld"), (strange, STRANGE)) if len(rows))
    alone = not (held.owner[held.used] < 0).any()
    return Excluded(drops, reasons, counts, held_alone=alone, lacking=int((added & (held.places < 0)).sum()))


def samples_csv(result: Debugging, threshold: float) -> bytes:
    """One row a sample, all findings; numbers with six decimals."""
    columns = result.columns(threshold)
    texts = []
    for values in columns.values():
        if isinstance(values, np.ndarray) and values.dtype.kind == "f":
            texts.append([f"{value:z.6f}" for value in values.tolist()])
        else:
            texts.append(
                [quoted(str(value)) for value in (values.tolist() if isinstance(values, np.ndarray) else values)]
            )
    return _csv([list(columns), *zip(*texts, strict=True)])


class Corrected(NamedTuple):
    """corrected.csv, and how to use it.

    Attributes:
        content: of the file.
        command: that uses it, or none.
        left_out: how many samples of each kind are not in it, or are dropped by it, in words.
        indexed_alone: it leaves indexed samples alone, without the others that the network was trained on.
        is_manifest: it lists files; else it holds decisions, for the data as they are.
        why: there is no command although labels change; else empty.
    """

    content: bytes
    command: str
    left_out: tuple[tuple[int, str], ...] = ()
    indexed_alone: bool = False
    is_manifest: bool = False
    why: str = ""


def corrected_csv(run: Run, result: Debugging, found: Found, bar: Excluded, asked: Debug) -> Corrected:
    """Labels replaced where a suggestion is sure: a manifest of all files, else decisions; and how to use it.

    A manifest names pictures below its own folder. Where the data lie elsewhere, `--root` says where.
    """
    place = asked.out / CORRECTED
    source = run.config.data
    part = found.parts[0] if len(found.parts) == 1 else None
    root = data_root(part.spec) if part is not None else None
    if root is None or part is None or any(path is None for path in result.samples.paths):
        return _corrections(run, result, found, bar, place, asked)
    below, option = _relative_to(root, asked.out)
    lines, left_out, others = _manifest(run, result, found, part, asked)
    if any(clean_text(line[0]) != line[0] for line in lines):  # a manifest is UTF-8, which cannot name such a file
        return _corrections(run, result, found, bar, place, asked)
    rows_out = [[_harmless(f"{below}{line[0]}"), *map(quoted, line[1:])] for line in lines]
    option += "" if source is None else data_options(source, samples=False)
    command = f"provnet train {path_word(place)}{option} --out RUN"
    return Corrected(_csv([["path", "label", "id", "source"], *rows_out]), command, left_out, not others, True)


def _corrections(run: Run, result: Debugging, found: Found, bar: Excluded, place: Path, asked: Debug) -> Corrected:
    """corrected.csv as decisions: sure labels, and a drop for all that must not be trained on again.

    There is no command where decisions had changed the data before: on the first data these would change right labels.
    """
    source = run.config.data
    dropped = {one.sample_id for one in bar.drops}
    rows = [
        one
        for one in decisions_for_flags(result, asked.threshold, asked.certainty)
        if one.kind == "relabel" and one.sample_id not in dropped
    ]
    rows += bar.drops
    name, options = "DATA", "" if source is None else data_options(source)
    if found.table is not None:  # of the training data, which are the first part then
        now = found.parts[0].spec
        name, options = now.source, data_options(now if source is None else replace(source, data_dir=now.data_dir))
    elif source is not None and source.kind != "arrays":
        name = source.source
    why = bar.why
    if source is not None and "decisions" in source.options:
        why = f"decisions changed the data before; put the rows of {place.name} among those, and apply them together"
    elif len(rows) > MOST:
        why = f"{len(rows):,} samples would have to be relabelled or dropped, a run remembers at most {MOST:,}"
    command = f"provnet train {path_word(name)}{options} --apply {path_word(place)} --out RUN"
    return Corrected(decisions_csv(rows), "" if why else command, bar.left_out, bar.held_alone, why=why)


def _manifest(
    run: Run, result: Debugging, found: Found, part: ImageData, asked: Debug
) -> tuple[list[tuple[str, str, str, str]], tuple[tuple[int, str], ...], int]:
    """Path, label, id and source of all samples of the data as they are now, what is left out of them, and how many of
    them the run does not hold.

    A label is replaced where the sample is what it was and still carries the label that the run knows. Withheld samples
    are named nowhere; after erasing, samples that the run does not hold may be erased ones, which must not come back.
    """
    known, names = run.samples, run.samples.class_names
    held = held_rows(run, part.samples if found.table is None else found.table)
    table, places, owner, used = held.table, held.places, held.owner, held.used
    given, better = result.samples.labels, _corrected(result, asked)
    new = {int(result.index[i]): names[int(better[i])] for i in np.flatnonzero(better != given)}
    own_ids = [known.sample_ids[i] for i in owner[used].tolist() if i >= 0]
    more = iter(free_ids(own_ids, [table.sample_ids[p] for p in used[owner[used] < 0]], data_name(part.spec)))
    lines = []
    for p in used.tolist():
        i, label = int(owner[p]), table.class_names[int(table.labels[p])]
        if i >= 0 and places[i] == p and label == names[int(known.labels[i])]:
            label = new.get(i, label)
        name = known.sample_ids[i] if i >= 0 else next(more)
        lines.append((str(table.paths[p]), label, name, table.sources[p] or ""))
    about = run.config.training.get(SUBSET) if found.table is None else None
    of, indexed = (about.get("of"), about.get("indexed")) if isinstance(about, Mapping) else (None, None)
    unlisted = of - indexed if isinstance(of, int) and isinstance(indexed, int) else 0
    kinds = (
        (int(known.withheld.sum()), "withheld"),
        (len(known) - int(known.withheld.sum()) - len(own_ids), "not among the data any more"),
        (int(held.strange.sum()), STRANGE),
        (unlisted, "without an index, as files that were renamed or edited change what --limit and --holdout choose"),
    )
    return lines, tuple(kind for kind in kinds if kind[0]), len(used) - len(own_ids)


def decisions_for_flags(result: Debugging, threshold: float, certainty: float) -> list[Decision]:
    """A decision for every flagged sample, see `_decisions`; a label is replaced where that is certain."""
    return list(_decisions(result, threshold, _trained_suspects(result, threshold), certainty).values())


def _decisions(result: Debugging, threshold: float, rows: Iterable[int], certainty: float = 0.0) -> dict[int, Decision]:
    """What is suggested for rows: the label that is advised, drop where none is right, else keep."""
    names, samples = result.samples.class_names, result.samples
    advised = result.advised(threshold, certainty)
    found = {}
    for row in rows:
        better = int(advised[row])
        kind = "drop" if better == DROP else "keep" if better == samples.labels[row] else "relabel"
        label = names[better] if kind == "relabel" else ""
        found[row] = Decision(samples.sample_ids[row], samples.hex(row), kind, label)
    return found


def decisions_for(result: Debugging, threshold: float, bar: Excluded) -> bytes:
    """decisions.csv: pictures under several labels first, then flagged labels, then odd samples to decide about.

    Last what must not be trained on again: of these samples nothing but id and hash is written.
    """
    samples, names, twice = result.samples, result.samples.class_names, result.duplicates
    same = np.flatnonzero(twice.conflict)
    same = same[np.lexsort((-result.mislabels.score[same], twice.group[same], ~twice.certain[same]))]
    odd = np.flatnonzero(result.anomalies.score >= 0.5)
    odd = odd[np.argsort(-result.anomalies.score[odd], kind="stable")]
    why: dict[int, str] = {}
    for reason, more in (("conflict", same), ("label", result.suspects(threshold)), ("anomaly", odd)):
        why |= {row: reason for row in more.tolist() if row not in why and not samples.added[row]}
    chosen = _decisions(result, threshold, why)
    dropped = {one.sample_id for one in bar.drops}  # such a name stands for other content now
    rows = [row for row, one in chosen.items() if one.sample_id not in dropped]
    columns: dict[str, list[str]] = {
        "label": [names[int(samples.labels[row])] for row in rows],
        "best_other_label": [names[int(result.mislabels.suggested[row])] for row in rows],
        "mislabel": [f"{result.mislabels.score[row]:.6f}" for row in rows],
        "anomaly": [f"{result.anomalies.score[row]:.6f}" for row in rows],
        "certainty": [f"{result.mislabels.certainty[row]:.6f}" for row in rows],
    }
    more_columns = {name: [*values, *("" for _ in bar.drops)] for name, values in columns.items()}
    reasons = [*(why[row] for row in rows), *bar.reasons]
    return decisions_csv([*(chosen[row] for row in rows), *bar.drops], {"reason": reasons, **more_columns})


def _trained_suspects(result: Debugging, threshold: float) -> list[int]:
    """Suspects that were trained on: samples added later are not among the data that are trained on again."""
    return [row for row in result.suspects(threshold).tolist() if not result.samples.added[row]]


def _corrected(result: Debugging, asked: Debug) -> np.ndarray:
    """(N,) labels, the advised one where there is one that is certain."""
    advised = result.advised(asked.threshold, asked.certainty)
    return np.where(advised == DROP, result.samples.labels, advised)


def _relative_to(root: Path, out: Path) -> tuple[str, str]:
    """What stands before the paths, and the option that is needed where the data are not below the folder."""
    up = os.path.relpath(root.absolute(), out.absolute())
    if up == os.curdir:
        return "", ""
    if up == os.pardir or up.startswith(os.pardir + os.sep) or Path(up).is_absolute():
        return "", f" --root {path_word(root)}"
    return Path(up).as_posix() + "/", ""


def _harmless(path: str) -> str:
    """A path that no spreadsheet takes for a formula and that still leads there."""
    return path if quoted(path) == path else f"./{path}"


def _csv(rows: Iterable[Iterable[object]]) -> bytes:
    return csv_text(rows).encode("utf-8", "surrogateescape")


SAMPLES, REPORT, CORRECTED = "samples.csv", "report.html", "corrected.csv"
DECISIONS, RELABEL = "decisions.csv", "relabel.csv"
OBJECT = (
    "the backbone was given as an object, which no command can name; in Python train again with {file} and "
    "fit(data, train_config(backbone=module)), see docs/debugging.md"
)
AMONG = (
    "the data were decided about before, or are not what was trained on; apply the edited decisions.csv to "
    "corrected.csv (--root says where its files are), or put its rows among the earlier decisions"
)
_OUT = " --out RUN"


class Next(NamedTuple):
    """A command, or none, and why there is none although labels change.

    `applies` says whether it applies decisions to the data as they are, so that their test split stays.
    """

    command: str = ""
    applies: bool = False
    why: str = ""


def next_command(
    run: Run,
    found: Found,
    corrected: Corrected,
    bar: Excluded,
    changes: Sequence[Decision],
    rows: int,
    asked: Debug,
) -> Next:
    """What to do with labels that are sure to be better (`changes`), or with `rows` of decisions that somebody edits.

    A manifest has the training samples alone. Where the run has samples to test on, or somebody is to decide,
    decisions are applied to the data themselves, if that gives what the manifest holds: decisions to edit drop what
    `bar` names, too. The device that was asked for is repeated.
    """
    if not corrected.command or not (changes or rows):
        return Next(why=corrected.why if changes else "")
    whole = _lacks_none(run, corrected) or (rows > 0 and _drops_all(found, bar, rows))
    step = _command(run, found, corrected, changes, asked, whole)
    if not changes and not step.applies:  # a manifest with the labels that there are
        return Next(why=AMONG if rows else "")
    if run.config.network.backbone != CUSTOM:
        where = "" if asked.device is None else f" --device {asked.device}"
        return step._replace(command=f"{step.command.removesuffix(_OUT)}{where}{_OUT}")
    file = (DECISIONS if asked.review else RELABEL) if step.applies else CORRECTED
    return Next("", step.applies, OBJECT.format(file=asked.out / file))


def memorised_words(run: Run, result: Debugging, threshold: float) -> str:
    """Why wrong labels may hide among the odd samples of a run where no label is flagged; nothing where some are."""
    odd, settings = int((result.anomalies.score >= 0.5).sum()), run.config.training.get("training")
    preset = settings.get("preset") if isinstance(settings, Mapping) else None
    if result.flagged(threshold).any() or not odd or preset == "robust":
        return ""
    what = "1 sample is odd" if odd == 1 else f"{odd:,} samples are odd"
    way = "one that was trained with --network class-independent --preset robust --epochs 12"
    if run.config.network.attached is not None:
        way = "one of the model as it was after fewer epochs"
    return f"{what}, and a network can memorise wrong labels: look at the odd ones, or debug a run, {way}"


def _command(
    run: Run, found: Found, corrected: Corrected, changes: Sequence[Decision], asked: Debug, whole: bool
) -> Next:
    decisions = asked.out / (DECISIONS if asked.review else RELABEL)
    recipe, subset, test = recipe_options(run.config), subset_options(run.config), unseen_options(run.config)
    alone = "" if corrected.indexed_alone else subset  # all that is left had an index: none is to lose it
    usual = f"{corrected.command.removesuffix(_OUT)}{recipe}{alone}{test}{_OUT}"
    spec = run.config.data
    if not corrected.is_manifest and asked.review:  # they hold all of corrected.csv, and what is edited
        was, now_applied = path_word(asked.out / CORRECTED), path_word(decisions)
        return Next(usual.replace(f" --apply {was}", f" --apply {now_applied}"), True)
    if spec is None or not corrected.is_manifest:
        return Next(usual)
    if not whole or not _same_data(run, found, changes):  # other samples are held out then, of those that are left
        held = DataSpec("", "csv", options={"holdout": spec.options.get("holdout", [])})
        test = unseen_options(run.config, found.parts[0].spec)
        return Next(f"{corrected.command.removesuffix(_OUT)}{data_options(held)}{recipe}{alone}{test}{_OUT}")
    if run.config.test is None and not asked.review:
        return Next(usual)
    now = found.parts[0].spec
    options = data_options(replace(spec, data_dir=now.data_dir))
    applied = f" --apply {path_word(decisions)}"
    return Next(f"provnet train {path_word(now.source)}{options}{recipe}{subset}{test}{applied}{_OUT}", True)


def _lacks_none(run: Run, corrected: Corrected) -> bool:
    """Whether the data may be trained on as they are: nothing withheld or erased, nothing left out of the manifest."""
    return not corrected.left_out and not run.config.erased and not run.samples.withheld.any()


def _drops_all(found: Found, bar: Excluded, rows: int) -> bool:
    """Whether decisions name all that must not be trained on again, and are not more than a run remembers."""
    return found.table is not None and not bar.why and rows <= MOST


def _same_data(run: Run, found: Found, changes: Sequence[Decision]) -> bool:
    """Whether the data with the changes are what the manifest holds: no other sources, none renamed."""
    spec = run.config.data
    if spec is None or "decisions" in spec.options or len(found.parts) != 1 or run.config.added:
        return False
    now = found.parts[0].samples
    places = [now.id_places.get(one.sample_id) for one in changes]
    return all(place is not None and now.hex(place) == one.sha256 for place, one in zip(places, changes, strict=True))


@dataclass(frozen=True, eq=False)
class DebugFiles:
    """What `provnet debug` leaves, and what is to be said of it.

    Attributes:
        contents: by name, in the order in which they are written.
        corrected: corrected.csv, and how it is used.
        bar: what must not be trained on again.
        next: the command to train again.
        memorised: why wrong labels may hide; empty where they do not.
    """

    contents: dict[str, bytes]
    corrected: Corrected
    bar: Excluded
    next: Next
    memorised: str


def debug_files(run: Run, result: Debugging, found: Found, asked: Debug) -> DebugFiles:
    """All files of a run that was debugged on the data that were found, made in memory."""
    bar = excluded_samples(run, found)
    corrected = corrected_csv(run, result, found, bar, asked)
    changes = [one for one in decisions_for_flags(result, asked.threshold, asked.certainty) if one.kind == "relabel"]
    to_edit = {DECISIONS: decisions_for(result, asked.threshold, bar)} if asked.review else {}
    rows = to_edit[DECISIONS].count(b"\n") - 1 if asked.review else 0
    step = next_command(run, found, corrected, bar, changes, rows, asked)
    doubt = memorised_words(run, result, asked.threshold)
    advice = Advice(
        command=step.command,
        why=step.why,
        review="" if asked.review or (asked.out / DECISIONS).exists() else _reviewed(asked),
        memorised=doubt,
        barred=bool(bar.drops or bar.why),
    )
    contents = {
        SAMPLES: samples_csv(result, asked.threshold),
        CORRECTED: corrected.content,
        **({RELABEL: decisions_csv(changes)} if step.applies and not asked.review else {}),
        REPORT: debug_page(run, result, found, asked, advice),
        **to_edit,  # last: once it is there the command is not repeated, as it may hold edits
    }
    return DebugFiles(contents, corrected, bar, step, doubt)


def _reviewed(asked: Debug) -> str:
    """The same command once more, with decisions to edit."""
    again = Debug(
        run=asked.run,
        out=asked.out,
        data=asked.data,
        data_dir=asked.data_dir,
        threshold=asked.threshold,
        certainty=asked.certainty,
        review=True,
        device=asked.device,
    )
    return "provnet debug" + shell_words(to_argv(again))


# the options of `provnet train` that open a run's data again as they were, for commands that are suggested


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

"""`provnet add` and `provnet withhold`: samples come to a run, are no longer named, named again, or erased."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from provnet.base.errors import DataError, UsageError, one_of
from provnet.base.files import read_file, shown
from provnet.base.options import Add, Withhold
from provnet.base.words import path_word
from provnet.cli.output import emit_json, is_first_process, note, say
from provnet.cli.rundata import open_run
from provnet.data.dataset import ImageData
from provnet.models.keys import exemplar_head
from provnet.runs import bank
from provnet.runs.bank import add as add_to_bank
from provnet.runs.card import maybe_trained
from provnet.runs.data import open_spec, other_spec
from provnet.runs.fileset import REPORTS
from provnet.runs.run import Run, RunConfig, has_run, read_samples, write_run
from provnet.samples.identity import SampleTable
from provnet.training.session import LOCK, OURS, run_lock, tidy
from provnet.training.setup import pick_device


@dataclass(frozen=True, eq=False)
class Change:
    """A run before and after, the same where nothing changed, and files that told of the one before and are gone."""

    before: Run
    after: Run
    removed: tuple[str, ...] = ()


def change_run(folder: Path, change: Callable[[Run], Run]) -> Change:
    """Replace the run of a folder by a changed one; killed at any moment, the folder holds one of the two.

    What was made of the run before (figures, report) goes with it, once the new one holds: it may name samples that are
    erased, and it is still right where the change fails.
    """
    if not has_run(folder):
        read_samples(folder)  # says what is wrong, before a lock is put there
    with run_lock(folder) as held:
        before = open_run(folder)
        tidy(before, folder)  # what a killed change left may name what it erased
        after = change(before)
        if after is before:
            return Change(before, after)
        told = [name for name in REPORTS if (folder / name).exists()]
        write_run(after, held.check())
        return Change(before, after, tuple(name for name in told if not (folder / name).exists()))


def bank_counts(config: RunConfig, samples: SampleTable) -> dict[str, int]:
    """How many samples a run has, and what became of them since training."""
    return {
        "samples": len(samples),
        "added_samples": int(samples.added.sum()),
        "withheld_samples": int(samples.withheld.sum()),
        "erased_samples": config.erased,
    }


def count_words(counts: Mapping[str, int]) -> str:
    """The counts in a line; what is zero is left out.

    >>> count_words({"samples": 40, "added_samples": 2, "withheld_samples": 0, "erased_samples": 1})
    '40, of them 2 added since training; 1 erased since training'
    """
    names = {"added_samples": "added since training", "withheld_samples": "withheld"}
    parts = [f"{counts[name]:,} {words}" for name, words in names.items() if counts[name]]
    erased = f"; {counts['erased_samples']:,} erased since training" if counts["erased_samples"] else ""
    return f"{counts['samples']:,}" + (f", of them {' and '.join(parts)}" if parts else "") + erased


def say_change(folder: Path, found: Change, words: str) -> None:
    """What was done, what the run holds now, and what went with the run before."""
    say(words)
    say(f"samples in {folder}: {count_words(bank_counts(found.after.config, found.after.samples))}", "bold")
    note_removed(folder, found)


def note_removed(folder: Path, found: Change) -> None:
    """Name the removed files, which described the run before a change, each with the command that makes it."""
    if found.removed:
        gone = f"{', '.join(found.removed[:-1])} and {found.removed[-1]}".removeprefix(" and ")
        again = "; ".join(f"{name}: {REPORTS[name].replace('RUN', path_word(folder))}" for name in found.removed)
        note(f"removed {gone}, made for the run before this change. To make again: {again}")


def note_strangers(folder: Path) -> None:
    """Files beside the run that are not provnet's to change may still name what was erased."""
    others = sorted(path.name for path in folder.iterdir() if path.name not in (*OURS, LOCK))
    if others:
        names = ", ".join(shown(name) for name in others[:5]) + (", ..." if len(others) > 5 else "")
        note(f"files beside the run are left as they are and may name what was erased: {names}", "warning")


WEIGHTS = (
    "The trained weights still carry what they learned from it, and copies of the run and the data themselves are not "
    "touched; only training again without it removes what was learned"
)


MAYBE = (
    "The trained weights may carry what they learned from it, although it was added after training: {why}. Copies of "
    "the run and the data themselves are not touched; only training again without it removes what was learned"
)


def withhold(asked: Withhold) -> None:
    """Withhold samples of a run with an exemplar head: explanations no longer name them."""
    wanted = [*(asked.ids or ()), *([] if asked.file is None else read_ids(asked.file))]
    if not wanted:
        raise UsageError("no sample was named; give --id ID, more than once for several, or --list FILE")

    action = "erase" if asked.erase else "restore" if asked.restore else "withhold"
    act = {"erase": bank.erase, "restore": bank.restore, "withhold": bank.withhold}[action]
    found = change_run(asked.run, lambda loaded: act(loaded, wanted))
    before, after = found.before.samples, found.after.samples
    left = [] if asked.restore else equal_ids(before, wanted, asked.erase)
    changed = len(before) - len(after) if asked.erase else int((before.withheld != after.withheld).sum())
    if asked.json:
        counts = bank_counts(found.after.config, after)
        emit_json({"run": str(asked.run), "action": action, "changed": changed, **counts, "equal_left": left})
        note_removed(asked.run, found)
    elif changed:
        say_change(asked.run, found, f"{DONE[action]} {changed:,} {'sample' if changed == 1 else 'samples'}")
    else:
        say(f"nothing to change: {'none of them is' if asked.restore else 'all of them are'} withheld")
    if left:
        more = ", ..." if len(left) > FEW else ""
        names = ", ".join(shown(name) for name in left[:FEW]) + more
        note(f"the same picture stays in the run under other ids; give them, too: {names}", "warning")
    if asked.erase:
        were_added = int(before.added.sum()) - int(after.added.sum())
        why = maybe_trained(found.before.config.training, found.before.config.erased)
        if changed > were_added:  # else all were added, which taught the network nothing if it did not know them
            note(WEIGHTS)
        elif changed and why:
            note(MAYBE.format(why=why))
        note_strangers(asked.run)


def equal_ids(samples: SampleTable, ids: Iterable[str], erased: bool) -> list[str]:
    """The ids of other samples with the pictures of these, which are still named or, after erasing, in the files."""
    given = {samples.id_places[name] for name in ids}
    equal = {other for place in given for other in samples.equal(place)} - given
    return [samples.sample_ids[place] for place in sorted(equal) if erased or not samples.withheld[place]]


def read_ids(path: Path) -> list[str]:
    """The lines of a file, without empty ones.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "ids.txt").write_text("train/1\\n\\ntrain/2\\r\\n")
    ...     read_ids(Path(folder, "ids.txt"))
    ['train/1', 'train/2']
    """
    try:
        text = read_file(path, LARGEST).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{shown(str(path))}: not UTF-8 ({error.reason}); give one id a line") from None
    return [line for line in text.replace("\r\n", "\n").split("\n") if line]


DONE = {"erase": "erased", "restore": "restored", "withhold": "withheld"}


FEW = 5  # ids in a message


LARGEST = 2**30  # bytes of a list


def add(asked: Add) -> None:
    """Add samples to a run with an exemplar head, each with the key that the network gives it; nothing is trained."""
    one_of("split", asked.split, ("train", "test", "all"))
    where = pick_device(asked.device)
    opened: list[ImageData] = []

    def change(loaded: Run) -> Run:

        exemplar_head(loaded.network)  # refused before hours of reading pictures
        opened.append(_open_new(loaded, asked.data, asked.data_dir, asked.split, asked.limit, asked.skip_bad))
        loaded.network.to(where)
        return add_to_bank(loaded, opened[0], skip_known=asked.skip_known, progress=is_first_process())

    found = change_run(asked.run, change)
    added = len(found.after.samples) - len(found.before.samples)
    left_out = len(opened[0]) - added
    if opened[0].skipped:
        bad = opened[0].skipped
        note(f"{len(bad):,} bad {'file' if len(bad) == 1 else 'files'} left out; the first: {bad[0]}", "warning")
    why = maybe_trained(found.before.config.training, found.before.config.erased)
    if asked.json:
        counts = bank_counts(found.after.config, found.after.samples)
        unsure = {"may_have_been_trained_on": why} if why and added else {}
        emit_json({"run": str(asked.run), "added": added, "known": left_out, **counts, **unsure})
        note_removed(asked.run, found)
        return
    known = f"; {left_out:,} known ones left out" if left_out else ""
    if added:
        many = "sample" if added == 1 else "samples"
        say_change(asked.run, found, f"added {added:,} {many}{known}. {_training_words(why)}")
    else:
        say(f"nothing to add{known}")


def _training_words(why: str) -> str:
    """Whether the network knows what was added."""
    if not why:
        return "The network was not trained on what was added"
    return f"The network may have been trained on what was added, which it cannot tell: {why}"


def _open_new(run: Run, source: str, data_dir: str | None, split: str, limit: int | None, skip_bad: bool) -> ImageData:
    """The data, read by the rules of the training data; a split that is not there is refused."""
    spec = other_spec(run.config.data, source, data_dir, "train", skip_bad=skip_bad)
    options = dict(spec.options) if limit is None else {**spec.options, "limit": limit}
    spec = replace(spec, split=split, options=options)
    return open_spec(run.config, spec, data_dir, progress=is_first_process())

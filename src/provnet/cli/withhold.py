"""`provnet withhold`: samples of a run are no longer named, named again, or erased from its files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from provnet.cli.banked import bank_counts, change_run, note_removed, note_strangers, say_change
from provnet.cli.options import AsJson, RunFolder
from provnet.cli.output import emit_json, note, say
from provnet.data.files import shown
from provnet.errors import DataError, UsageError

if TYPE_CHECKING:
    from provnet.data.identity import SampleTable

EXAMPLE = "Example: [bold]provnet withhold runs/mnist --id train/12 --id train/40 --erase[/bold]"
WEIGHTS = (
    "The trained weights still carry what they learned from it, and copies of the run and the data themselves are not "
    "touched; only training again without it removes what was learned"
)

MAYBE = (
    "The trained weights may carry what they learned from it, although it was added after training: {why}. Copies of "
    "the run and the data themselves are not touched; only training again without it removes what was learned"
)


def withhold(
    run: RunFolder,
    ids: Annotated[
        list[str] | None, typer.Option("--id", metavar="ID", help="A sample id; may be given again and again.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--list", metavar="FILE", help="A text file (UTF-8) with one sample id a line.")
    ] = None,
    erase: Annotated[
        bool,
        typer.Option("--erase", help="Take key, id, hashes, label, path, source and losses out of all files."),
    ] = False,
    restore: Annotated[bool, typer.Option("--restore", help="Name these samples again.")] = False,
    json: AsJson = False,
) -> None:
    """Withhold samples of a run with an exemplar head: explanations no longer name them, and others take their share.

    They stay in the files and can be restored, unless erased. What the network learned from them stays in its weights.
    """
    if erase and restore:
        raise UsageError("--erase takes samples out for good, --restore names them again; give one of them")
    wanted = [*(ids or ()), *([] if file is None else read_ids(file))]
    if not wanted:
        raise UsageError("no sample was named; give --id ID, more than once for several, or --list FILE")

    from provnet import bank
    from provnet.card import maybe_trained

    action = "erase" if erase else "restore" if restore else "withhold"
    act = {"erase": bank.erase, "restore": bank.restore, "withhold": bank.withhold}[action]
    found = change_run(run, lambda loaded: act(loaded, wanted))
    before, after = found.before.samples, found.after.samples
    left = [] if restore else still_there(before, wanted, erase)
    changed = len(before) - len(after) if erase else int((before.withheld != after.withheld).sum())
    if json:
        counts = bank_counts(found.after.config, after)
        emit_json({"run": str(run), "action": action, "changed": changed, **counts, "equal_left": left})
        note_removed(run, found)
    elif changed:
        say_change(run, found, f"{DONE[action]} {changed:,} {'sample' if changed == 1 else 'samples'}")
    else:
        say(f"nothing to change: {'none of them is' if restore else 'all of them are'} withheld")
    if left:
        more = ", ..." if len(left) > FEW else ""
        names = ", ".join(shown(name) for name in left[:FEW]) + more
        note(f"the same picture stays in the run under other ids; give them, too: {names}", "warning")
    if erase:
        were_added = int(before.added.sum()) - int(after.added.sum())
        why = maybe_trained(found.before.config.training, found.before.config.erased)
        if changed > were_added:  # else all were added, which taught the network nothing if it did not know them
            note(WEIGHTS)
        elif changed and why:
            note(MAYBE.format(why=why))
        note_strangers(run)


def still_there(samples: SampleTable, ids: Iterable[str], erased: bool) -> list[str]:
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
    from provnet.data.files import read_file

    try:
        text = read_file(path, LARGEST).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{shown(str(path))}: not UTF-8 ({error.reason}); give one id a line") from None
    return [line for line in text.replace("\r\n", "\n").split("\n") if line]


DONE = {"erase": "erased", "restore": "restored", "withhold": "withheld"}
FEW = 5  # ids in a message
LARGEST = 2**30  # bytes of a list

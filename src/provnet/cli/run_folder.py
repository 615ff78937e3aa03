"""What train says of the run's folder: before hours of reading pictures, and when training ends too early."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from provnet.atomic import refuse_unwritable
from provnet.cli.options import refuse_file
from provnet.cli.output import is_first_process, note


def check_folder(out: Path, *, resume: bool, overwrite: bool) -> None:
    """Refuse a folder that training would refuse; `--resume` where nothing was begun is said.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     check_folder(Path(folder, "new"), resume=False, overwrite=False)
    """
    from provnet.training import folder

    if not is_first_process():
        return
    refuse_file(out)
    refuse_unwritable(out / "manifest.json")
    if resume and not folder.has_begun(out):
        note(f"there is nothing to go on with in {out}: training starts from the beginning")
    if out.is_dir() and not resume and not overwrite:
        folder.check_before(out, resume=False, overwrite=False)


@contextmanager
def kept_is_told(out: Path, again: str) -> Iterator[None]:
    """Say what is kept where training stops or fails: a checkpoint, with the command `again`, and a replaced run."""
    from provnet.training import checkpoint, replaced

    try:
        yield
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and (out / checkpoint.FOLDER).is_dir():
            note(f"stopped; a checkpoint is kept in {out}; to go on: {again}")
        if replaced.is_there(out):
            note(f"the run that was there before is whole in {out / replaced.NAME}; it goes when the new one is whole")
        raise

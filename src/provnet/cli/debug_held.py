"""Which samples of the data of now a run holds, and which must not be trained on again: withheld and erased ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np

    from provnet.cli.rundata import Found
    from provnet.data.decisions_file import Decision
    from provnet.data.identity import SampleTable
    from provnet.modelfile import Run

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
        import numpy as np

        return np.flatnonzero(~self.withheld & ~self.strange)


def held_rows(run: Run, table: SampleTable) -> Held:
    """Look for a run's samples in a table that may hold more, fewer or others under their names.

    Equal content comes before an equal name, and both together before either. Of several samples that are one in the
    table a withheld one is there, else the first. After erasing a name alone proves nothing: an erased sample may have
    come under the name of another, as names of array samples are positions.
    """
    import numpy as np

    from provnet.data.compare import compare

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


class Barred(NamedTuple):
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


def barred(run: Run, found: Found) -> Barred:
    """The samples of the training data that a run withholds and, after erasing, all that it does not hold.

    An erased sample is known to nobody, so every sample that the run does not hold may be one.
    """
    import numpy as np

    from provnet.data.decisions_file import Decision
    from provnet.verify import has_changed

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
        return Barred(drops, ("withheld",) * len(drops), kinds, why, lacking=int(added.sum()))
    held = held_rows(run, found.table)
    table, hidden, strange = found.table, np.flatnonzero(held.withheld), np.flatnonzero(held.strange)
    drops = tuple(Decision(table.sample_ids[p], table.hex(p), "drop") for p in (*hidden.tolist(), *strange.tolist()))
    reasons = ("withheld",) * len(hidden) + ("not in the run",) * len(strange)
    counts = tuple((len(rows), words) for rows, words in ((hidden, "withheld"), (strange, STRANGE)) if len(rows))
    alone = not (held.owner[held.used] < 0).any()
    return Barred(drops, reasons, counts, held_alone=alone, lacking=int((added & (held.places < 0)).sum()))

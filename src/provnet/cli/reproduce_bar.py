"""The progress bar of `provnet reproduce`."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from provnet.experiments.frame import Event, Todo


@final
class CellBar:
    """A progress bar over all that is left, with the time that it will take; each finished cell is a line."""

    def __init__(self, left: list[Todo], *, enabled: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        self.work = {(one.cell.name, one.seed): one.seconds for one in left}
        self.done = dict.fromkeys(self.work, 0.0)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[finished]}/{task.fields[cells]} cells"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        console = Console(stderr=True, highlight=False)
        self.progress = Progress(*columns, console=console, disable=not (enabled and left), speed_estimate_period=3600)
        total = sum(self.work.values()) or 1.0
        self.task = self.progress.add_task("", total=total, finished=0, cells=len(self.work))
        self.finished, self.enabled = 0, enabled

    def __enter__(self) -> CellBar:
        self.progress.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.progress.__exit__(None, None, None)

    def __call__(self, event: Event) -> None:
        """Move the bar."""
        key = (event.cell, event.seed)
        what = f"{event.cell}, seed {event.seed}"
        self.done[key] = self.work[key] * (0.0 if event.what in ("stopped", "no time") else event.share)
        self.finished += event.what == "done"
        if event.what != "doing" and self.enabled:
            words = {
                "done": f"{event.took:.1f} s",
                "stopped": "stopped, the time is over",
                "no time": f"left for later, it takes about {event.took:.0f} s",
            }
            self.progress.console.print(f"{what}: {words[event.what]}", markup=False, soft_wrap=True)
        completed, shown = sum(self.done.values()), "" if event.what != "doing" else what
        self.progress.update(self.task, completed=completed, finished=self.finished, description=shown)

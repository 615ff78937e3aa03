"""Rows 70 to 72: disks that are full or closed, and clocks that are set back."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from typing import Any

from .entry import Entry, Place, Said
from .made import plain_user, small_files
from .rows_runs import is_as_if_nothing_happened, steps, still_resumes


def full_disk(place: Place, *options: object) -> list[object]:
    place.stack.enter_context(small_files(50_000))
    return steps(place, place.out, *options)


def full_later(place: Place) -> list[object]:
    """The disk fills up when a run goes on that had a checkpoint."""
    place.run("stopped", "out")
    return full_disk(place, "--resume")


def no_room_at_all(place: Place) -> list[object]:
    usage = shutil.disk_usage(place.tmp)._replace(free=1000)
    place.patch.setattr(shutil, "disk_usage", lambda _: usage)
    return steps(place, place.out)


def full_for(*options: object) -> Callable[[Place], list[object]]:
    """`explain` with something to write."""

    def given(place: Place) -> list[object]:
        place.stack.enter_context(small_files(200))
        return [
            "explain",
            place.kit.run,
            place.kit.data / "test/digit-0/0.png",
            *options[:1],
            place.tmp / str(options[1]),
        ]

    return given


def no_decision(place: Place, _: Said) -> None:
    assert not (place.tmp / "out.jsonl").exists()


def full_evaluation(place: Place) -> list[object]:
    run = place.run()
    place.stack.enter_context(small_files(200))
    return ["evaluate", run]


def read_only(place: Place, below: str = "") -> list[object]:
    (place.tmp / "closed").mkdir()
    (place.tmp / "closed").chmod(0o555)
    place.stack.enter_context(plain_user())
    place.patch.setattr("provnet.training.fit._run", _too_late)
    return steps(place, place.tmp / "closed" / below)


def _too_late(*_: Any, **__: Any) -> None:
    raise AssertionError("training began")


def read_only_page(place: Place) -> list[object]:
    (place.tmp / "closed").mkdir()
    (place.tmp / "closed").chmod(0o555)
    place.stack.enter_context(plain_user())
    return ["explain", place.kit.run, place.kit.data / "test/digit-0/0.png", "--html", place.tmp / "closed" / "x.html"]


def file_in_the_way(place: Place) -> list[object]:
    place.patch.setattr("provnet.training.fit._run", _too_late)
    return steps(place, place.write("taken", "x") / "run")


def set_back(place: Place) -> list[object]:
    """A clock that goes backwards, and checkpoints whose times say the opposite of their steps."""
    run = place.run("stopped", "out")
    for number, path in enumerate(sorted(run.rglob("*"), reverse=True)):
        os.utime(path, (number * 10**8, number * 10**8))
    now = time.time()
    ticks = iter(range(10**9))
    place.patch.setattr(time, "time", lambda: now - 3600.0 * next(ticks))
    return steps(place, run, "--resume")


def old_files(place: Place) -> list[object]:
    run, data = place.run(), place.data()
    for number, path in enumerate(sorted([*run.rglob("*"), *data.rglob("*")])):
        os.utime(path, (4 * 10**9 * (number % 2), 4 * 10**9 * (number % 2)))
    return ["verify", run, "--data", data, "--strict"]


ROWS = [
    Entry(
        70,
        "disk full at the first checkpoint",
        full_disk,
        4,
        ("disk full writing", "B free", "make room"),
        leaves=True,
    ),
    Entry(70, "disk full later", full_later, 4, ("disk full writing", "B free"), still_resumes, leaves=True),
    Entry(70, "disk full before training", no_room_at_all, 4, ("needs about", "B free")),
    Entry(70, "disk full, page", full_for("--html", "page.html"), 4, ("page.html", "disk full")),
    Entry(70, "disk full, sheet", full_for("--png", "sheet.png"), 4, ("sheet.png", "disk full")),
    Entry(70, "disk full, decision log", full_for("--log", "out.jsonl"), 4, ("out.jsonl",), no_decision),
    Entry(70, "disk full, evaluation", full_evaluation, 4, ("evaluation.json", "disk full")),
    Entry(71, "read-only output folder", read_only, 4, ("closed", "ermission denied", "choose")),
    Entry(71, "output below a read-only folder", lambda p: read_only(p, "run"), 4, ("closed/run", "ermission denied")),
    Entry(71, "output below a file", file_in_the_way, 2, ("taken/run", "choose another")),
    Entry(71, "page into a read-only folder", read_only_page, 4, ("x.html", "ermission denied")),
    Entry(72, "clock set back, resumed", set_back, after=is_as_if_nothing_happened),
    Entry(72, "files of the past and of the future", old_files, 0, ("the same data", "verified")),
]

"""`provnet verify`: whether the run is what it was, and the data still those it was trained on."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import typer
from rich.text import Text

from provnet.base.errors import IntegrityError
from provnet.base.files import shown
from provnet.base.options import Verify
from provnet.cli.output import console, emit_json, is_first_process
from provnet.cli.rundata import backbone_for
from provnet.data.compare import compare, decoding_advice
from provnet.runs.data import find_data
from provnet.runs.log import verify_chain
from provnet.runs.run import read_samples
from provnet.runs.verify import Verification
from provnet.runs.verify import verify as check


def verify(asked: Verify) -> None:
    """Check every hash of a run, and whether its training data are the same, re-ordered, moved, decoded differently,
    edited or others.
    """
    if asked.run.suffix == ".jsonl" and asked.run.is_file():
        _log(asked)
        return
    result = check(asked.run)
    module = None if result.exit_code else backbone_for(asked.run)
    if module is not None:
        result = check(asked.run, backbone=module)
    why = "--no-data was given" if asked.no_data else "the files are not whole"
    left: str | None = why
    if not result.exit_code and not asked.no_data:
        config, samples = read_samples(asked.run)
        found = find_data(config, samples, asked.data, asked.data_dir, progress=True)
        then = samples if found.rows is None else samples.select(found.rows)
        if found.data is not None and len(then):
            advice = decoding_advice(config.data, found.data.spec)
            compared = replace(compare(then, found.data.samples), erased=config.erased, advice=advice)
            result = replace(result, comparison=compared)
        result = replace(result, rest=found.rest, unsure=found.unsure)
        missed = len(samples) - len(then)
        why = found.why
        left = f"{missed:,} of {len(samples):,} samples: {why}" if missed else why or None
    code = result.exit_code
    if asked.strict and (result.verdict != "same" or why or result.unsure):
        code = code or IntegrityError.exit_code
    if asked.json:
        emit_json(_record(result, left, code))
    elif is_first_process():
        _show(result, None if asked.no_data else left, code)
    if code:
        raise typer.Exit(code)


def _log(asked: Verify) -> None:
    """Check the chain of a log of decisions; a broken one is refused with its line."""
    count = verify_chain(asked.run)
    if asked.json:
        emit_json({"log": str(asked.run), "ok": True, "decisions": count})
    else:
        console().print(Text(f"{count:,} decisions, each with the hash of the one before: verified", "bold green"))


def _record(result: Verification, left: str | None, code: int) -> dict[str, Any]:
    compared = result.comparison
    about = None
    if compared is not None:
        about = {
            "verdict": compared.verdict,
            "samples_then": len(compared.then),
            "samples_now": len(compared.now),
            "status": dict(sorted(Counter(compared.status).items())),
            "added": compared.added,
            "facts": compared.lines(),
        }
    return {
        "run": str(result.folder),
        "ok": code == 0,
        "exit_code": code,
        "files": [{"name": check.name, "ok": not check.exit_code, "why": check.why} for check in result.files],
        "data": about,
        "data_not_compared": left,
        **({"rest": result.rest} if result.rest else {}),
        **({"rest_not_compared": result.unsure} if result.unsure else {}),
    }


def _show(result: Verification, left: str | None, code: int) -> None:

    out = console()
    for one in result.files:
        mark = Text("failed  ", "bold red") if one.exit_code else Text("ok      ", "green")
        why = "" if one.why == "ok" else f"  {shown(one.why).removeprefix('ok ')}"
        out.print(mark, Text(f"{shown(one.name)}{why}"), sep="", soft_wrap=True)
    if result.comparison is not None:
        good = result.comparison.holds
        for line in result.comparison.lines():
            out.print(Text("data    ", "green" if good else "bold red"), Text(shown(line)), sep="", soft_wrap=True)
    if result.rest:
        out.print(Text("data    ", "bold red"), Text(shown(result.rest)), sep="", soft_wrap=True)
    for words in ([] if left is None else [f"not compared: {left}"]) + ([result.unsure] if result.unsure else []):
        out.print(Text("data    ", "yellow"), Text(shown(words)), sep="", soft_wrap=True)
    if code:
        out.print(Text(f"not verified (exit code {code})", "bold red"))
    elif left is not None or result.unsure:
        out.print(Text("the files are whole; the data are not verified, or not all of them", "bold yellow"))
    else:
        out.print(Text("verified", "bold green"))

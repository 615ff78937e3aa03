"""Sections of the page of results: what is measured on a CPU."""

from __future__ import annotations

import re
from dataclasses import replace

from limits import Limit, cpu_rate, large, multiplying, product_words, reading, seconds
from records import Result, Row, Section

WIDTH = 128  # features of the keys in benchmarks/retrieval.py
EXACT = (
    "Search for the best 10 keys of 128 features. Each library runs in its own process, with one thread, then with "
    "all cores, and the processes take turns. A time is the median over the turns of the fastest call: processor time "
    "with one thread, wall-clock time with several (longer if others use the machine). The ratio compares each "
    "library's best number of threads, with quartiles; beside it are the ratio with one thread each and that of the "
    "fastest calls of all turns."
)
ENGINE = "provnet's faiss engine beside its own exact scan: one thread each, processor time, medians over turns."
PLAIN_COPIES = 3  # (B, N) tensors of plain cross-entropy: scores, their log-softmax, the gradient


def retrieval(found: dict[str, Result], _: dict[str, Result]) -> list[Section]:
    """Exact search, class slice and engine beside faiss."""
    sections = []
    for stem, result in found.items():
        parts = {"lists" in row for row in result["rows"]}
        rows = [_engine(row, result) if "lists" in row else _exact(row, result) for row in result["rows"]]
        words = " ".join(text for text, part in ((EXACT, False), (ENGINE, True)) if part in parts)
        only = "" if len(parts) > 1 else " --part engine" if True in parts else " --part exact"
        command = f"python benchmarks/retrieval.py{only} --turns {result['turns']} --out benchmarks/results/{stem}.json"
        title = "Retrieval on a CPU" + (": a million keys through faiss" if parts == {True} else "")
        sections.append(Section(title, words, result, command, rows))
    return sections


def _times(times: Result) -> str:
    return " / ".join(seconds(each["ms"] / 1e3) for each in times.values())


def _row(row: Result, other: str, limit: Limit, best: str) -> Row:
    bar = "" if row["bar"] is None else f"at most {row['bar']:.3g}"
    low, middle, high = row["ratio"]
    one = f"one thread each {row['ratio_one_thread'][1]:.3g}; " if len(row["ours_ms"]) > 1 else ""
    ratio = f"{middle:.3g} ({low:.3g} to {high:.3g}; {one}quickest calls {row['ratio_of_the_quickest']:.3g})"
    cells = (row["what"], _times(row["ours_ms"]), f"{other} {_times(row['other_ms'])}", ratio)
    return Row(*cells, bar, row["met"], limit, row["ours_ms"][best]["ms"] / 1e3)


def _exact(row: Result, about: Result) -> Row:
    """Few queries are bound by reading the keys, many by the products."""
    keys = int(re.findall(r"[\d,]+", row["what"])[0].replace(",", ""))
    batch = int(row["what"].rsplit(" ", 1)[1])
    best = row["best_threads"][0]
    if batch == 1:
        limit = reading(cpu_rate(about, best, "cached_gb_s"), keys, WIDTH, 4)
    else:
        limit = multiplying(cpu_rate(about, best, "product_gflop_s"), 2, keys, WIDTH, batch)
    return _row(row, row["other"], limit, str(best))


def _engine(row: Result, about: Result) -> Row:
    """The engine multiplies all queries with the centres of its lists and reads the lists it probes."""
    keys, batch = int(row["what"].split(" ")[0].replace(",", "")), int(row["what"].rsplit(" ", 1)[1])
    centres = multiplying(cpu_rate(about, 1, "product_gflop_s"), 2, batch, row["lists"], WIDTH)
    read = batch * row["probes"] * keys / row["lists"] * WIDTH * 4
    rate = cpu_rate(about, 1, "memory_gb_s")
    scan = multiplying(cpu_rate(about, 1, "product_gflop_s"), 2, keys, WIDTH, batch)
    lists = f"{batch} x {row['probes']} of {row['lists']:,} lists x {keys / row['lists']:.3g} keys x {WIDTH * 4} bytes"
    words = f"centres: {centres.words}; {lists} = {large(read, 'B')}"
    value = None
    if rate is not None and centres.value is not None:
        value = centres.value + read / rate / 1e9
        words += f" at {large(rate * 1e9, 'B')}/s: {seconds(read / rate / 1e9)}"
    shown = _row(row, row["other"], Limit(f"{words}; the scan: {scan.words}", value), "1")
    bar = f"{shown.bar} at recall@10 of 0.99" if shown.bar else ""
    return replace(shown, what=f"{shown.what}; recall@10 {row['recall']:.4f}", bar=bar)


def kept_memory(found: dict[str, Result], _: dict[str, Result]) -> list[Section]:
    """Training with the memory of a step kept for the next one, beside glibc's own way."""
    words = (
        "Training on the 4,000 embedded digits, seed 0. A step frees all memory that it used; by default glibc returns "
        "much of it to the system, which must clear every page again for the next step. Keeping the memory does not "
        "change the losses by a bit. Figures are processor times of whole trainings, each in its own process, medians "
        "over turns, and the ratio with its lowest and highest turn. Pages are those that were cleared."
    )
    sections = []
    for stem, result in found.items():
        command = f"python benchmarks/kept_memory.py --turns {result['turns']} --out benchmarks/results/{stem}.json"
        rows = [_kept_row(row) for row in result["rows"]]
        sections.append(Section("Training on a CPU: memory that is kept", words, result, command, rows))
    return sections


def _kept_row(row: Result) -> Row:
    low, middle, high = row["ratio"]
    cells = [
        f"{seconds(one['seconds'])}; {int(one['pages']):,} pages, peak {one['peak_mb']:.0f} MB"
        for one in (row["kept"], row["given back"])
    ]
    ratio = f"{middle:.3g} ({low:.3g} to {high:.3g})"
    return Row(f"preset `{row['preset']}`, {row['epochs']} epochs", cells[0], f"given back {cells[1]}", ratio)


def loss_memory(found: dict[str, Result], _: dict[str, Result]) -> list[Section]:
    """Peak memory and time of the chunked loss beside plain cross-entropy."""
    words = (
        "Forward and backward pass of the index loss: peak resident memory above that before the pass, each in "
        "its own process. Plain cross-entropy holds (batch x keys) tensors; the chunked loss holds the scores of "
        "one chunk and, where keys are trained, their gradient."
    )
    command = "python benchmarks/loss_memory.py --out benchmarks/results/loss_memory.json"
    return [Section("Memory of the index loss", words, r, command, _loss_rows(r)) for r in found.values()]


def _loss_rows(result: Result) -> list[Row]:
    sizes = result["sizes"]
    keys, width, batch, chunk = (sizes[name] for name in ("keys", "features", "batch", "chunk"))
    runs = {(row["loss"], row["keys"]): row for row in result["results"]}
    rows = []
    for kind, words, gradient, products in (
        ("buffer", "keys without gradient", 0, 3),
        ("parameter", "keys with gradient", 4 * keys * width, 4),
    ):
        plain, ours, ratio = runs["plain", kind], runs["chunked", kind], result["ratios"][kind]
        held = 4 * batch * chunk + gradient
        more = f" + gradient {product_words((keys, width, 4))} = {large(gradient, 'B')}" if gradient else ""
        scores = f"plain: {PLAIN_COPIES} x {product_words((batch, keys, 4))} = {large(12 * batch * keys, 'B')}"
        limit = Limit(
            f"chunk {product_words((batch, chunk, 4))} = {large(4 * batch * chunk, 'B')}{more}; {scores}", held / 1e6
        )
        cells = (f"peak memory, {words}", f"{ours['peak_mb']:,} MB", f"plain {plain['peak_mb']:,} MB")
        bar = f"at most {result['bar']:g}"
        rows.append(Row(*cells, f"{ratio['memory']:.3g}", bar, ratio["met"], limit, ours["peak_mb"]))
        work = multiplying(cpu_rate(result, result["threads"], "product_gflop_s"), products, 2, batch, keys, width)
        work = replace(work, words=f"{products} products (the scores twice): {work.words}")
        cells = (f"time, {words}", seconds(ours["seconds"]), f"plain {seconds(plain['seconds'])}")
        rows.append(Row(*cells, f"{ratio['seconds']:.3g}", limit=work, value=ours["seconds"]))
    return rows


def folders(found: dict[str, Result], _: dict[str, Result]) -> list[Section]:
    """Opening image folders with and without the picture cache."""
    words = (
        "Opening an image folder: every file is listed, read, hashed and decoded; with the picture cache, unchanged "
        "files are only looked up. The files are in the system's page cache. The parts behind the limits are measured "
        "one by one, with one thread."
    )
    command = "python benchmarks/folders.py > benchmarks/results/folders.json"
    sections = []
    for result in found.values():
        rows = [row for each in result["results"] for row in _folder_rows(each, result["machine"])]
        sections.append(Section("Image folders", words, result["machine"], command, rows))
    return sections


def _folder_rows(row: Result, about: Result) -> list[Row]:
    name, count, times, parts = f"{row['pictures']:,} pictures", row["pictures"], row["seconds"], row["parts"]
    part = count / parts["files"]
    steps = ("read", "sha256_of_bytes", "decode", "sha256_of_pixels")
    work = part * sum(parts[step] for step in steps)
    cores = about["cores"]
    whole = " + ".join(seconds(part * parts[step]) for step in steps)
    first = Limit(f"read, hash, decode, hash: {whole} through {cores} cores: {seconds(work / cores)}", work / cores)
    rate = about.get("rates", {}).get("sha256_gb_s")
    hashed = None if rate is None else row["cache_mb"] / 1e3 / rate
    look = part * parts["stat"]
    again = Limit(f"looking {count:,} files up {seconds(look)}; SHA-256 of the cache's {row['cache_mb']} MB", None)
    if hashed is not None:
        words = f"{again.words} at {rate:.3g} GB/s: {seconds(hashed)}"
        again = Limit(f"{words}; together {seconds(look + hashed)}", look + hashed)
    plain = f"without cache {seconds(times['without_cache'])}"
    return [
        Row(f"{name}, without cache", seconds(times["without_cache"]), limit=first, value=times["without_cache"]),
        Row(
            f"{name}, first time with cache",
            seconds(times["first_with_cache"]),
            plain,
            f"{times['first_with_cache'] / times['without_cache']:.3g}",
        ),
        Row(
            f"{name}, again with cache",
            seconds(times["again_with_cache"]),
            plain,
            f"{times['again_with_cache'] / times['without_cache']:.3g}",
            limit=again,
            value=times["again_with_cache"],
        ),
    ]

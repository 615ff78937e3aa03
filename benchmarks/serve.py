"""How fast `provnet app` explains, what it does under too much load, and whether stopping it loses anything.

    python benchmarks/serve.py [--run RUN] [--data-dir DIR] [--out FILE]

Without --run a run is made first: class-conditional, preset `fast`, one epoch on the 60,000 digits of MNIST (weights
matter neither for the speed nor for the size). Server and client share the machine. Pictures are sent as PNG files, one
a request, and every answer holds a prediction and five exemplars. Bars: c = 8 at least 100 explanations a second with
p99 at most 200 ms; c = 200 answers with 200 or 503 alone and is back within 2 s; SIGTERM loses nothing that was sent.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from machine import machine
from PIL import Image
from serve_client import Flight, load, stop_in_flight

import provnet
from provnet_app.server import read_assets

ROOT = Path(__file__).parents[1]


class Running:
    """A server of its own process."""

    def __init__(self, run: Path, data_dir: str | None) -> None:
        command = [sys.executable, "-m", "provnet", "app", str(run), "--no-browser", "--port", "0", "--device", "cpu"]
        command += ["--data-dir", data_dir] if data_dir else []
        begin = time.perf_counter()
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        assert self.process.stdout is not None
        line = next((line for line in self.process.stdout if "#t=" in line), "")
        self.start_seconds = time.perf_counter() - begin
        address = line.split()[-1]
        self.port = int(address.split(":")[2].split("/")[0])
        self.token = address.split("#t=")[1]

    def stop(self) -> int:
        """End it; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=30)

    def processor_seconds(self) -> float:
        """Processor time that it has used: what others do on the machine does not count."""
        with suppress(OSError):
            fields = Path(f"/proc/{self.process.pid}/stat").read_text("utf-8").rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return 0.0

    def memory(self) -> float:
        """Resident megabytes."""
        with suppress(OSError):
            lines = Path(f"/proc/{self.process.pid}/status").read_text("utf-8").splitlines()
            return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))
        return 0.0


def make_run(folder: Path, data_dir: str | None, limit: int | None) -> Path:
    """A run of the size that is asked for."""
    command = [sys.executable, "-m", "provnet", "train", "mnist", "--out", str(folder), "--epochs", "1"]
    command += ["--network", "class-conditional", "--preset", "fast"]
    command += ["--data-dir", data_dir] if data_dir else []
    command += ["--limit", str(limit)] if limit else []
    subprocess.run(command, check=True, cwd=ROOT)
    return folder


def pictures(count: int = 200) -> list[bytes]:
    """Digits that are not among those of MNIST's training set, as PNG files."""
    found = []
    for image in provnet.open_data("embedded", split="test").images[:count, 0].numpy():
        buffer = io.BytesIO()
        Image.fromarray(image).save(buffer, "PNG")
        found.append(buffer.getvalue())
    return found


async def loads(server: Running, pngs: list[bytes], seconds: float) -> dict[str, Any]:
    """One client, eight, two hundred, and eight again two seconds later."""
    found: dict[str, Any] = {}
    port, token = server.port, server.token
    await load(port, token, pngs, 4, 2.0)  # warm
    for clients in (1, 8):
        before_server, before_client = server.processor_seconds(), time.process_time()
        tally = await load(port, token, pngs, clients, seconds)
        count = max(1, len(tally.seconds))
        used = {
            "server_processor_ms": round((server.processor_seconds() - before_server) / count * 1000, 2),
            "client_processor_ms": round((time.process_time() - before_client) / count * 1000, 2),
        }
        found[f"c={clients}"] = tally.to_json() | used
    before = server.memory()
    found["c=200"] = (await load(port, token, pngs, 200, seconds, pause=0.1)).to_json()
    found["c=200"]["grown_mb"] = round(server.memory() - before, 1)
    await asyncio.sleep(2.0)
    found["c=8, 2 s after c=200"] = (await load(port, token, pngs, 8, max(2.0, seconds / 4))).to_json()
    return found


async def stopped(server: Running, pngs: list[bytes], clients: int) -> Flight:
    """SIGTERM while so many requests are in flight."""
    stop, told = asyncio.Event(), asyncio.Event()
    work = asyncio.create_task(stop_in_flight(server.port, server.token, pngs, clients, stop, told))
    await asyncio.sleep(1.0)
    server.process.send_signal(signal.SIGTERM)
    told.set()
    try:
        return await asyncio.wait_for(work, 20)
    finally:
        stop.set()


def page() -> dict[str, Any]:
    """What the page weighs without pictures, and when a browser first paints it, where one is there."""
    assets = {name: one for name, one in read_assets().items() if not one.kind.startswith("image/")}
    return {
        "files": len(assets),
        "kilobytes": round(sum(len(one.content) for one in assets.values()) / 1000, 1),
        "kilobytes_gzip": round(sum(len(gzip.compress(one.content)) for one in assets.values()) / 1000, 1),
    }


def first_paint(server: Running) -> dict[str, Any]:
    """Milliseconds until the browser paints, and how many requests went elsewhere."""
    try:
        from playwright.sync_api import Error, sync_playwright
    except ModuleNotFoundError:
        return {"why": "playwright is not installed"}
    times, elsewhere = [], 0
    browser_path = next((p for p in ("/usr/bin/chromium", "/usr/bin/chromium-browser") if Path(p).exists()), None)
    try:
        with sync_playwright() as play:
            browser = play.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
            for _ in range(5):
                view = browser.new_context().new_page()
                hosts: list[str] = []
                view.on("request", lambda one, hosts=hosts: hosts.append(one.url))
                view.goto(f"http://127.0.0.1:{server.port}/#t={server.token}", wait_until="load")
                view.wait_for_timeout(500)
                paint = view.evaluate("performance.getEntriesByName('first-contentful-paint').map(e => e.startTime)[0]")
                times.append(paint)
                elsewhere += sum(
                    not url.startswith((f"http://127.0.0.1:{server.port}", "data:", "blob:")) for url in hosts
                )
            browser.close()
    except Error as error:
        return {"why": str(error).splitlines()[0]}
    good = sorted(value for value in times if value is not None)
    return {"first_paint_ms": round(good[len(good) // 2], 1) if good else None, "requests_elsewhere": elsewhere}


def measure(run: Path, data_dir: str | None, seconds: float, trials: int) -> dict[str, Any]:
    """Everything, one after another."""
    pngs = pictures()
    server = Running(run, data_dir)
    found: dict[str, Any] = {"start_seconds": round(server.start_seconds, 2), "memory_mb": round(server.memory(), 1)}
    found["load"] = asyncio.run(loads(server, pngs, seconds))
    found["page"] = {**page(), **first_paint(server)}
    found["exit_code"] = server.stop()
    flights = []
    for _ in range(trials):
        server = Running(run, data_dir)
        flights.append(asyncio.run(stopped(server, pngs, 32)))
        found["exit_code"] = found["exit_code"] or server.stop()
    found["sigterm"] = {
        "trials": trials,
        "in_flight": sum(one.sent for one in flights),
        "lost": sum(one.lost for one in flights),
    }
    eight, many = found["load"]["c=8"], found["load"]["c=200"]
    after = found["load"]["c=8, 2 s after c=200"]
    found["met"] = {
        "c=8: 100 explanations a second": eight["explanations_per_second"] >= 100,
        "c=8: p99 at most 200 ms": eight["p99_ms"] <= 200,
        "c=200: 200 or 503 alone": set(many["statuses"]) <= {"200", "503"} and many["lost"] == 0,
        "2 s later: as before": after["explanations_per_second"] >= 100 and after["p99_ms"] <= 200,
        "SIGTERM loses nothing": found["sigterm"]["lost"] == 0 and found["exit_code"] == 0,
        "page under 300 KB": found["page"]["kilobytes"] < 300,
    }
    return found


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, default=None)
    parser.add_argument("--data-dir", default=None)
    parser.add_argument("--limit", type=int, default=None, help="samples of the run that is made")
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--out", type=Path, default=None)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = given.run or make_run(Path(folder, "run"), given.data_dir, given.limit)
        from provnet.runs.run import read_samples

        config, samples = read_samples(run)
        about = {"network": config.network.network, "samples": len(samples), "cores": os.cpu_count()}
        found = {"about": about, "machine": machine(rates=False)}
        found |= measure(run, given.data_dir, given.seconds, given.trials)
    print(json.dumps(found, indent=1))
    if given.out is not None:
        given.out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()

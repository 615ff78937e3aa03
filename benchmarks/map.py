"""Frame times of a page that `provnet map` made, in Chromium: panning, zooming, hovering; and its size.

    provnet map RUN --out DIR --json > DIR/map.json
    python benchmarks/map.py DIR [--chromium /usr/bin/chromium] [--width 1280] [--height 900] [--ratio 1]
        [--out benchmarks/results/map.json]

Needs Playwright (pip install playwright) and a Chromium. Drawing is in software where the machine has no GPU, which is
the worst case. `draw_ms` is the time that the page's own drawing takes, `frame_ms` the time between frames while the
mouse drags, turns its wheel or hovers. The seconds of the embedding come from DIR/map.json.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from machine import machine

RECORD = """() => {
  const canvas = document.getElementById("map"), seen = { frames: [], draws: [], last: 0, on: true };
  window.seen = seen;
  const tick = (now) => {
    if (!seen.on) return;
    if (seen.last) seen.frames.push(now - seen.last);
    seen.last = now;
    seen.draws.push(parseFloat(canvas.dataset.ms));
    requestAnimationFrame(tick);
  };
  requestAnimationFrame(tick);
}"""
STOP = "() => { window.seen.on = false; return { frames: window.seen.frames, draws: window.seen.draws }; }"


def spread(values: list[float]) -> dict[str, float]:
    """Median, 95 % and worst, in milliseconds."""
    kept = np.array([value for value in values if np.isfinite(value)])
    found = {"median": np.median(kept), "p95": np.quantile(kept, 0.95), "worst": kept.max()}
    return {name: round(float(value), 2) for name, value in found.items()} | {"n": len(kept)}


def watch(page: Any, does: Any) -> dict[str, Any]:
    """What frames and drawing take while something is done."""
    page.evaluate(RECORD)
    does()
    found = page.evaluate(STOP)
    return {"frame_ms": spread(found["frames"]), "draw_ms": spread(found["draws"])}


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Open the page and use it as a hand would."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=given.chromium, args=["--no-sandbox"])
        size = {"width": given.width, "height": given.height}
        page = browser.new_page(viewport=size, device_scale_factor=given.ratio)
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
        page.goto((given.folder / "report.html").resolve().as_uri())
        page.wait_for_selector("#map[data-ms]")
        opened = page.evaluate("() => performance.getEntriesByType('navigation')[0].loadEventEnd")
        page.locator("#map").scroll_into_view_if_needed()
        box = page.locator("#map").bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

        def drag() -> None:
            page.mouse.move(x, y)
            page.mouse.down()
            for step in range(120):
                page.mouse.move(x + 150 * np.sin(step / 10), y + 100 * np.cos(step / 13))
            page.mouse.up()

        def wheel() -> None:
            for step in range(60):
                page.mouse.wheel(0, -60 if step < 30 else 60)

        def hover() -> None:
            for step in range(120):
                page.mouse.move(x + 180 * np.sin(step / 17), y + 140 * np.cos(step / 11))

        found = {name: watch(page, does) for name, does in (("pan", drag), ("zoom", wheel), ("hover", hover))}
        version = browser.version
        browser.close()
    return {"chromium": version, "opened_ms": round(opened, 1), "problems": problems, **found}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--height", type=int, default=900)
    parser.add_argument("--ratio", type=float, default=1.0)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    made = given.folder / "map.json"
    result = {
        "machine": machine(),
        "window": [given.width, given.height, given.ratio],
        "html_bytes": (given.folder / "report.html").stat().st_size,
        "map": json.loads(made.read_text("utf-8")) if made.exists() else None,
        "browser": measure(given),
    }
    print(json.dumps(result, indent=1))
    if given.out:
        given.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()

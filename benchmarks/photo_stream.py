"""Opening many photographs: memory, and throughput beside plain decoding in a loop with the same number of threads.

    python benchmarks/photo_stream.py DATA --photos 5000 --out benchmarks/results/photo_stream.json

DATA is an image folder. Photographs of 500 x 375 are made of its pictures: enlarged, shifted and changed in brightness,
saved as JPEG of quality 90. They are opened in a process of its own that takes its memory for full (what the network
sees lies in a file, as it would with a million of them), then decoded and resized in a plain loop by as many threads;
files are in the memory of the system both times. Both are done alternately, `--rounds` times; medians are kept.
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image

import provnet
from provnet.data.pictures import WORKERS

OPEN = """
import json, sys, time
from pathlib import Path
from provnet.base import files
import numpy, torch, PIL.Image  # noqa
import provnet, provnet.data.pictures
def peak(name):
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024
before = peak("VmRSS")
if sys.argv[3] == "file":
    files.free_memory = lambda: 1
start, busy = time.perf_counter(), time.process_time()
data = provnet.open_data(sys.argv[1], size=int(sys.argv[2]), progress=True)
seconds, busy = time.perf_counter() - start, time.process_time() - busy
opened = peak("VmHWM")
for rows in torch.arange(len(data)).split(256):
    data.fetch(rows)
figures = {"seconds": seconds, "busy": busy, "n": len(data), "rss_before": before}
figures |= {"peak_opening": opened, "peak_all": peak("VmHWM")}
print(json.dumps({**figures, "anonymous_after": peak("RssAnon"), "of_file_after": peak("RssFile")}))
"""


def photographs(data: Path, to: Path, count: int) -> None:
    """Photographs of 500 x 375 made of the pictures of a folder."""
    sources = sorted(path for path in data.rglob("*.jpg"))
    kept = [Image.open(path).convert("RGB") for path in sources[:400]]
    rng = np.random.default_rng(0)
    for number in range(count):
        image = kept[number % len(kept)]
        scale = max(500 / image.width, 375 / image.height) * rng.uniform(1.05, 1.3)
        large = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BICUBIC)
        left, top = (int(rng.integers(0, have - want + 1)) for have, want in zip(large.size, (500, 375), strict=True))
        values = np.asarray(large.crop((left, top, left + 500, top + 375))) * rng.uniform(0.8, 1.2)
        path = to / f"class{number % 10}" / f"{number:06}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(values.clip(0, 255).astype(np.uint8)).save(path, "JPEG", quality=90)


def plain(folder: Path, size: int) -> tuple[float, float]:
    """Seconds, and those of the processor, that decoding and resizing take without anything else."""
    paths = sorted(folder.rglob("*.jpg"))

    def one(path: Path) -> np.ndarray:
        with Image.open(io.BytesIO(path.read_bytes())) as image:
            return np.asarray(image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR))

    start, busy = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(WORKERS) as pool:
        for first in range(0, len(paths), 256):
            list(pool.map(one, paths[first : first + 256]))
    return time.perf_counter() - start, time.process_time() - busy


def main() -> None:
    """Make the photographs, open them and decode them, in turns."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--photos", type=int, default=5000)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "photos"
        photographs(asked.data, folder, asked.photos)
        command = [sys.executable, "-c", OPEN, str(folder), str(asked.size), "file"]
        ours, loops, works, found = [], [], [], {}
        for _ in range(asked.rounds):
            seconds, busy = plain(folder, asked.size)
            loops.append(seconds)
            said = subprocess.run(command, capture_output=True, text=True, check=True)
            found = json.loads(said.stdout)
            ours.append(found["seconds"])
            works.append(busy / found["busy"])
    rates = {what: asked.photos / statistics.median(times) for what, times in (("open_data", ours), ("loop", loops))}
    paired = sorted(loop / own for loop, own in zip(loops, ours, strict=True))
    result = {
        "command": f"benchmarks/photo_stream.py DATA --photos {asked.photos} --size {asked.size}",
        "n": asked.photos,
        "threads": WORKERS,
        "rounds": asked.rounds,
        "pictures_per_second": {what: round(rate, 1) for what, rate in rates.items()},
        "share_of_plain_decoding": {
            "median": round(statistics.median(paired), 3),
            "each": [round(x, 3) for x in paired],
        },
        "share_by_processor_time": [round(x, 3) for x in works],
        "megabytes": {
            name: round(value / 1e6, 1) for name, value in found.items() if name not in ("seconds", "busy", "n")
        },
        "megabytes_of_views": round(asked.photos * 3 * asked.size**2 / 1e6, 1),
        "said": said.stderr.strip().splitlines()[-6:],
        "provnet": provnet.__version__,
    }
    asked.out.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()

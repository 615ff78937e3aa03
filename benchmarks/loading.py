"""How long it takes to load and hash a data set; prints JSON.

Usage: python benchmarks/loading.py [--data-dir DIR] [--repeats N] [NAME ...]
The files are read once before the clock starts, so that the disk does not count. `seconds` is the best of the repeats.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time

from provnet import open_data


def measure(name: str, data_dir: str | None, repeats: int) -> dict[str, object]:
    """Open one data set several times."""
    times = []
    data = open_data(name, data_dir=data_dir)
    for _ in range(repeats):
        start = time.perf_counter()
        data = open_data(name, data_dir=data_dir)
        times.append(time.perf_counter() - start)
    return {
        "data": name,
        "samples": len(data),
        "shape": data.shape,
        "seconds": round(min(times), 3),
        "all_seconds": [round(t, 3) for t in times],
        "index_ceiling": data.samples.index_ceiling,
        "fingerprint": data.samples.fingerprint,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=["mnist"])
    parser.add_argument("--data-dir", default=None)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    machine = {"cores": os.cpu_count(), "load": os.getloadavg()[0], "python": platform.python_version()}
    results = [measure(name, given.data_dir, given.repeats) for name in given.names]
    print(json.dumps({"machine": machine, "results": results}, indent=1))


if __name__ == "__main__":
    main()

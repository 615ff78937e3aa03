"""Peak memory of the index loss on a CPU, forward and backward: plain F.cross_entropy against index_cross_entropy.

    python benchmarks/loss_memory.py [--out FILE] [--keys 200000] [--features 128] [--batch 512] [--chunk 8192]
        [--threads 1] [--repeats 5]

Every variant runs in a process of its own: peak resident memory (ru_maxrss) less what was resident before the first
pass, with features, keys and libraries loaded; `slack_mb` is how much of it an earlier peak could explain. `seconds` is
the best of the repeats; with one thread a busy neighbour core does not decide it. Keys are a buffer without gradient or
a parameter whose (N, D) gradient counts. The bar: ours at most 1/8 of plain; where it is missed the exit status is 1.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

BAR = 1 / 8
KINDS = {"buffer": "keys without gradient", "parameter": "keys with gradient"}


def measure(name: str, kind: str, given: argparse.Namespace) -> dict[str, object]:
    """One variant, in a process that has done nothing else."""
    import torch
    import torch.nn.functional as F

    from provnet.heads.losses import index_cross_entropy

    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    features, keys = torch.randn(given.batch, given.features), torch.randn(given.keys, given.features)
    for x in (features, keys):  # in place: a copy that is freed again would leave a peak behind
        x.div_(torch.linalg.vector_norm(x, dim=1, keepdim=True))
    target = torch.randint(given.keys, (given.batch,))

    def once(keys: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Forward and backward."""
        if name == "plain":
            loss = F.cross_entropy(16 * features @ keys.T, target)
        else:
            loss = index_cross_entropy(16 * features, keys, target, chunk=given.chunk).loss.mean()
        loss.backward()
        return loss.detach()

    features.requires_grad_()
    once(keys[:8].clone().requires_grad_(), target % 8)  # libraries and threads start here, outside the figure
    keys.requires_grad_(kind == "parameter")
    before, slack = resident(), peak() - resident()
    seconds = []
    for _ in range(given.repeats):
        features.grad = keys.grad = None
        start = time.perf_counter()
        loss = once(keys, target)
        seconds.append(time.perf_counter() - start)
    highest = peak()
    assert features.grad is not None
    return {
        "loss": name,
        "keys": kind,
        "peak_mb": round((highest - before) / 1e6, 1),
        "slack_mb": round(slack / 1e6, 1),
        "before_mb": round(before / 1e6, 1),
        "seconds": round(min(seconds), 3),
        "all_seconds": [round(t, 3) for t in seconds],
        "value": float(loss),
        "gradient_norm": float(features.grad.norm()),
    }


def resident() -> int:
    """Bytes of this process that are in memory now."""
    return int(Path("/proc/self/statm").read_text("utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak() -> int:
    """The most bytes of this process that ever were in memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts in KiB


def fresh(name: str, kind: str) -> dict[str, object]:
    """Measure one variant in a new process; this one stays small, as a child inherits the peak of its parent."""
    command = [sys.executable, __file__, *sys.argv[1:], "--only", name, kind]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{name}, {kind}: the measurement failed\n{done.stderr}")
    result: dict[str, object] = json.loads(done.stdout)
    return result


def main() -> None:
    """Measure, print a table, write JSON; ends with 1 where the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--chunk", type=int, default=8192)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs=2, help=argparse.SUPPRESS)  # one variant, in this process
    given = parser.parse_args()
    if given.only:
        print(json.dumps(measure(*given.only, given)))
        return
    load = os.getloadavg()[0]
    results = {(name, kind): fresh(name, kind) for kind in KINDS for name in ("plain", "chunked")}
    ratios = {}
    print(f"N={given.keys:,} D={given.features} B={given.batch} chunk={given.chunk} fp32, threads: {given.threads}")
    print(f"{'':24}{'plain':>20}{'chunked':>20}{'memory':>10}{'time':>8}")
    for kind, words in KINDS.items():
        plain, ours = results["plain", kind], results["chunked", kind]
        for figure in ("value", "gradient_norm"):  # the memory of a wrong loss would say nothing
            x, y = float(str(plain[figure])), float(str(ours[figure]))
            assert abs(x - y) <= 1e-5 * abs(x), f"{figure} differs: plain {x}, chunked {y}"
        memory, seconds = (float(str(ours[f])) / float(str(plain[f])) for f in ("peak_mb", "seconds"))
        ratios[kind] = {"memory": round(memory, 4), "seconds": round(seconds, 3), "met": memory <= BAR}
        cells = [f"{r['peak_mb']} MB {r['seconds']} s" for r in (plain, ours)]
        print(f"{words:24}{cells[0]:>20}{cells[1]:>20}{'1/' + format(1 / memory, '.1f'):>10}{seconds:>8.2f}")
    met = all(ratio["met"] for ratio in ratios.values())
    print(f"bar: memory at most 1/{1 / BAR:.0f} of plain: {'met' if met else 'MISSED'}")
    if given.out is not None:
        sizes = {"keys": given.keys, "features": given.features, "batch": given.batch, "chunk": given.chunk}
        from machine import machine  # only now: its torch would have made this process large

        about = machine() | {"device": "cpu", "threads": given.threads, "load": round(load, 2)}
        report = {**about, "sizes": sizes, "bar": BAR, "met": met, "ratios": ratios, "results": list(results.values())}
        given.out.write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()

"""What becomes of queries when networks are trained on random halves: kept in `truth/`, so that it is computed once.

    PYTHONPATH=benchmarks python benchmarks/influence/truth.py --data-dir DIR [--only small-mnist gpt] [--device cuda]

Each file holds `classes` (Q,), the class each query is asked about (that which the first network on all samples
predicts, or the true label), `mean` (Q,) and `margins` (T, Q, S) less that mean in float16; `again` (Q, S') are further
trainings on the first halves. Halves are drawn from the seed by `halves`. A margin is the logit of the class minus the
log-sum-exp of the others; of a text minus the mean loss.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch
from own import OWN, Objective, balanced, pace
from peers_lds import halves
from subjects import SUBJECTS, Data, Subject
from together import Plain, amp, measured, train_many, train_one
from torch import Tensor
from torch.func import functional_call

HERE = Path(__file__).resolve().parent
ALL = SUBJECTS | {OWN.name: OWN}
REFERENCE = 1  # seed of the network that names the classes, the first that is attributed


def members(subject: Subject, y: np.ndarray, seed: int = 1) -> np.ndarray:
    """(S, n) the samples of each half."""
    if subject is OWN:
        return balanced(y, subject.halves, seed)
    return np.stack([np.flatnonzero(each) for each in halves(len(y), subject.halves, seed)])


def asked(subject: Subject, data: Data) -> Tensor:
    """The class that each query is asked about, or the characters of a text."""
    if subject.true_label or data.y.ndim > 1:
        return data.query_y
    every = torch.arange(len(data.x), device=data.x.device)
    net, _ = train_one(subject.net, data.x, data.y, every, subject.recipe, REFERENCE)
    with torch.no_grad(), amp(subject.recipe, str(data.x.device)):
        return torch.cat([net(part).argmax(1) for part in torch.split(data.query_x, 500)])


def retrained(subject: Subject, data: Data, rows: Tensor, seeds: list[int], classes: Tensor) -> Tensor:
    """(E, Q) margins after training on each row of samples (E, n), from the initial weights of each seed."""
    x, y, found = data.x, data.y, []
    if subject.many == 1:
        for part, seed in zip(rows, seeds, strict=True):
            net, _ = train_one(subject.net, x, y, part, subject.recipe, seed)
            found.append(measured(net, data.query_x, classes, subject.recipe))
        return torch.stack(found)
    for part, start in zip(torch.split(rows, subject.many), range(0, len(rows), subject.many), strict=True):
        nets = []
        for seed in seeds[start : start + len(part)]:
            torch.manual_seed(seed)
            nets.append(subject.net().to(x.device).train())
        if subject is OWN:  # the place of a sample in its half is what the index branch learns
            y = torch.zeros(len(part), len(x), dtype=torch.int64, device=x.device)
            y.scatter_(1, part, torch.arange(part.shape[1], device=x.device).expand_as(part).contiguous())
        made = [Objective(net) if subject is OWN else Plain(net, subject.recipe) for net in nets]
        weights, held = train_many(made, x, y, part, subject.recipe, pace if subject is OWN else None)
        states = {name.split(".", 1)[1]: each for name, each in (weights | held).items()}
        net = nets[0].eval()
        for number in range(len(part)):
            own = {name: each[number] for name, each in states.items()}
            scores = partial(functional_call, net, own)
            found.append(measured(scores, data.query_x, classes, subject.recipe))
    return torch.stack(found)


def make(subject: Subject, folder: Path, device: str, seed: int, out: Path) -> None:
    """Train on halves and write the file."""
    began = time.perf_counter()
    data = subject.data(folder).on(device)
    classes = asked(subject, data)
    rows = torch.from_numpy(members(subject, data.y.cpu().numpy(), seed)).to(device)
    print(f"{subject.name}: {len(data.x):,} samples, {time.perf_counter() - began:.0f} s to prepare", flush=True)
    found, again = [], torch.zeros(0)
    for turn in range(subject.times):
        seeds = [seed + 1000 * (turn + 1) + number for number in range(len(rows))]
        done: list[Tensor] = []
        for start in range(0, len(rows), max(subject.many, 10)):
            now = slice(start, start + max(subject.many, 10))
            done.append(retrained(subject, data, rows[now], seeds[now], classes))
            if turn == 0:
                save(out, classes, torch.cat(done)[None], again)
        found.append(torch.cat(done))
        print(f"{subject.name}: {turn + 1} of {subject.times}, {time.perf_counter() - began:.0f} s", flush=True)
        save(out, classes, torch.stack(found), again)
    if subject.again:
        seeds = [seed + 50_000 + number for number in range(subject.again)]
        again = retrained(subject, data, rows[: subject.again], seeds, classes)
        save(out, classes, torch.stack(found), again)
    print(f"{subject.name}: written, {time.perf_counter() - began:.0f} s", flush=True)


def save(out: Path, classes: Tensor, margins: Tensor, again: Tensor) -> None:
    """(T, E, Q) margins and (E', Q) more of them, small."""
    margins, again = margins.float().cpu(), again.float().cpu()
    if not bool(torch.isfinite(margins).all()):
        raise FloatingPointError(f"{out}: some margins are not finite; nothing is written")
    mean = margins.mean((0, 1))
    kept = {"mean": mean.numpy(), "margins": (margins - mean).transpose(1, 2).half().numpy()}
    if len(again):
        kept["again"] = (again - mean).T.half().numpy()
    if classes.ndim == 1:
        kept["classes"] = classes.cpu().numpy().astype(np.uint8)
    np.savez_compressed(out, **kept)  # type: ignore[arg-type]


def main() -> None:
    """One file for each subject."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=list(ALL), choices=list(ALL))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=HERE / "truth")
    given = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    for name in given.only:
        make(ALL[name], given.data_dir, given.device, given.seed, given.out / f"{name}.npz")


if __name__ == "__main__":
    main()

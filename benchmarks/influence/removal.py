"""Do answers depend on the samples that are named? Take the top 1 % away, train again, count answers that change.

    PYTHONPATH=benchmarks python benchmarks/influence/removal.py --data-dir DIR [--subject small-cifar10] [--queries 50]
        [--seeds 3] [--device cuda] [--groups] [--out benchmarks/results/influence-removal.json]

Each query that the first network answers rightly loses the samples that influence weights (compact keys, snapshots),
TRAK x5 or chance (among those of its class) name for its answer; networks are trained again without them from several
seeds. TRAK's width and ridge are those that are best on the queries of `lds.py` that are not reported.

With `--groups` foretold and found changes of margins are compared instead: 20 random groups of 5 %, and 20 chosen ones
(top for a query, half a class, a cluster of pixels as a source), 10 trainings without each and 10 with all. The unit is
calibrated on the halves in `truth/`, on other queries. The ceiling of a rank correlation is the root of the reliability
of the changes found, from two halves of the trainings.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lds import Truth, by_queries, correlation, model, references, unsure
from machine import machine
from rivals import Trak
from subjects import Data, Subject
from together import Plain, measured, train_many
from torch import Tensor
from torch.func import functional_call
from truth import ALL, HERE

from provnet.base.stats import wilson
from provnet.influence.keys import course_of, influence_of
from provnet.influence.of_run import epochs_kept

ROOT = HERE.parents[1]
AT_ONCE, TURNS = 100, 10
Say = Callable[[str], None]


def without(subject: Subject, data: Data, gone: Tensor, seeds: list[int], ask: Callable[[Any], Tensor]) -> Tensor:
    """(E, ...) what `ask` says of networks trained without the samples in each row of `gone` (E, k); k may be 0."""
    found = []
    for start in range(0, len(gone), AT_ONCE):
        rows = []
        for each in gone[start : start + AT_ONCE]:
            kept = torch.ones(len(data.x), dtype=torch.bool, device=data.x.device)
            kept[each] = False
            rows.append(kept.nonzero()[:, 0])
        made = []
        for seed in seeds[start : start + AT_ONCE]:
            torch.manual_seed(seed)
            made.append(Plain(subject.net().to(data.x.device).train(), subject.recipe))
        weights, held = train_many(made, data.x, data.y, torch.stack(rows), subject.recipe)
        net = made[0].net.eval()
        for number in range(len(rows)):
            own = {name.split(".", 1)[1]: each[number] for name, each in (weights | held).items()}
            found.append(ask(partial(functional_call, net, own)))
    return torch.stack(found)


@torch.no_grad()
def lead(x: Tensor, classes: Tensor, net: Callable[[Tensor], Tensor]) -> Tensor:
    """(Q,) by how much the logit of a class is above all others; below nought the answer is another one."""
    scores = net(x)
    own = scores.gather(1, classes[:, None])[:, 0]
    return own - scores.scatter(1, classes[:, None], -torch.inf).amax(1)


def influence_scores(subject: Subject, data: Data, asked: Tensor) -> tuple[np.ndarray, list[Any]]:
    """(Q, N) of influence weights by compact keys, and the networks."""
    nets, states, course = references(subject, data, 5, None)
    snapshots = [states[epoch - 1] for epoch in epochs_kept(subject.recipe.epochs)]
    found = influence_of(model(subject, nets[0]), data.x, data.y, snapshots=snapshots, course=course_of(course))
    return by_queries(found, data.query_x, asked, False), nets


def trak_scores(subject: Subject, data: Data, nets: list[Any], asked: Tensor, truth: Truth) -> np.ndarray:
    """(Q, N) of TRAK over all networks, with the setting that foretells the even queries best."""
    device = data.x.device
    trak = Trak(data, subject.recipe, asked, 2048, 250)
    weight = torch.stack([unsure(net, data, subject.recipe) for net in nets]).mean(0)
    sums: dict[str, Tensor] = {}
    for number, net in enumerate(nets):
        for key, (each,) in trak.foretold(net, number, [torch.diag(weight)]).items():
            sums[key] = sums[key] + each if key in sums else each
    inside = torch.from_numpy(truth.inside.T).to(device)
    even = {k: correlation((v[::2] @ inside).cpu().numpy(), truth.margins[::2]).mean() for k, v in sums.items()}
    return sums[max(even, key=lambda key: even[key])].cpu().numpy()


def flips(subject: Subject, data: Data, truth: Truth, given: argparse.Namespace, say: Say) -> dict[str, Any]:
    """The share of answers that change, by method."""
    device = data.x.device
    assert truth.classes is not None
    asked = truth.classes.to(device)
    scores, nets = influence_scores(subject, data, asked)
    traks = trak_scores(subject, data, nets, asked, truth)
    right = (asked == data.query_y).cpu().numpy() & (np.arange(len(asked)) % 2 == 1)
    chance = np.random.default_rng(5)
    queries = chance.permutation(np.flatnonzero(right))[: given.queries]
    count = round(given.share * len(data.x))
    labels, classes = data.y.cpu().numpy(), asked.cpu().numpy()
    named = {
        "influence, snapshots, compact": np.argsort(-scores[queries], 1)[:, :count],
        "TRAK x5": np.argsort(-traks[queries], 1)[:, :count],
        "random of its class": np.stack(
            [chance.permutation(np.flatnonzero(labels == classes[query]))[:count] for query in queries]
        ),
    }
    found: dict[str, Any] = {}
    for name, gone in named.items():
        turns = torch.from_numpy(np.repeat(gone, given.seeds, 0)).to(device)
        seeds = [70_000 + number for number in range(len(turns))]
        ahead = without(subject, data, turns, seeds, partial(lead, data.query_x[queries], asked[queries]))
        own = ahead.view(len(queries), given.seeds, -1)[np.arange(len(queries)), :, np.arange(len(queries))]
        flipped = own.cpu().numpy() < 0
        means = flipped.mean(1)
        again = means[chance.integers(0, len(means), (2000, len(means)))].mean(1)
        low, high = np.quantile(again, [0.025, 0.975])
        found[name] = {
            "flipped": {"value": float(means.mean()), "low": float(low), "high": float(high), "n": len(means)},
            "of_trainings": wilson(int(flipped.sum()), flipped.size).to_json(),
            "lead": float(own.mean()),
        }
        say(f"{name}: {found[name]['flipped']}")
    return found


def chosen_groups(scores: np.ndarray, data: Data, queries: np.ndarray, size: int) -> np.ndarray:
    """10 groups that are the top for a query, 5 parts of classes, 5 clusters of pixels."""
    chance = np.random.default_rng(9)
    labels = data.y.cpu().numpy()
    tops = [np.argsort(-scores[query])[:size] for query in queries[:10]]
    parts = [chance.permutation(np.flatnonzero(labels == each))[:size] for each in range(5)]
    pixels = data.x.flatten(1).cpu().numpy()
    starts = pixels[chance.choice(len(pixels), 5, replace=False)]
    near = [np.argsort(((pixels - start) ** 2).sum(1))[:size] for start in starts]
    return np.stack([*tops, *parts, *near])


def groups(subject: Subject, data: Data, truth: Truth, given: argparse.Namespace, say: Say) -> dict[str, Any]:
    """Foretold and found changes of margins."""
    device = data.x.device
    assert truth.classes is not None
    asked = truth.classes.to(device)
    scores, _ = influence_scores(subject, data, asked)
    chance = np.random.default_rng(6)
    odd = np.arange(1, len(asked), 2)
    queries = chance.permutation(odd)[: given.queries]
    size = round(0.05 * len(data.x))
    chosen = chosen_groups(scores, data, queries, size)
    randoms = np.stack([chance.permutation(len(data.x))[:size] for _ in range(20)])
    gone = torch.from_numpy(np.repeat(np.concatenate([randoms, chosen]), TURNS, 0)).to(device)
    ask = lambda net: measured(net, data.query_x[queries], asked[queries], subject.recipe)  # noqa: E731
    left = without(subject, data, gone, [80_000 + n for n in range(len(gone))], ask).view(40, TURNS, -1)
    none = torch.zeros(2 * TURNS, 0, dtype=torch.int64, device=device)
    base = without(subject, data, none, [90_000 + n for n in range(2 * TURNS)], ask).mean(0)
    change = (left - base).cpu().numpy()  # (G, T, Q)
    say("groups trained")
    unit = calibrated(scores[::2], truth)
    foretold = -unit * np.stack([scores[queries][:, each].sum(1) for each in (*randoms, *chosen)])  # (G, Q)
    found: dict[str, Any] = {"unit": unit, "groups": 40, "trainings": TURNS, "queries": len(queries)}
    parts = {"random": slice(0, 20), "chosen": slice(20, 40)}
    for name, rows in parts.items():
        one, two = (change[rows, part].mean(1).T for part in (slice(0, TURNS // 2), slice(TURNS // 2, TURNS)))
        alike = max(float(correlation(one, two).mean()), 0.0)
        each = correlation(foretold[rows].T, change[rows].mean(1).T)
        draws = each[chance.integers(0, len(each), (2000, len(each)))].mean(1)
        x, y = foretold[rows], change[rows].mean(1)
        slopes = [slope(x[:, pick], y[:, pick]) for pick in chance.integers(0, len(each), (500, len(each)))]
        found[name] = {
            "rank_correlation": {"value": float(each.mean()), **ends(draws)},
            "ceiling": float(np.sqrt(2 * alike / (1 + alike))),
            "slope": {"value": slope(x, y), **ends(np.array(slopes))},
        }
        say(f"{name}: {found[name]}")
    tops = np.arange(10)
    found["top_for_its_query"] = [
        {"foretold": float(foretold[20 + n, n]), "found": float(change[20 + n, :, n].mean())} for n in tops
    ]
    return found


def slope(foretold: np.ndarray, found: np.ndarray) -> float:
    """Of what was found on what was foretold, through nought."""
    return float((foretold * found).sum() / (foretold**2).sum())


def ends(values: np.ndarray) -> dict[str, float]:
    """A 95 % interval."""
    low, high = np.quantile(values, [0.025, 0.975])
    return {"low": float(low), "high": float(high)}


def calibrated(scores: np.ndarray, truth: Truth) -> float:
    """Change of a margin for each unit of the summed scores, over the halves and the even queries."""
    foretold = scores @ truth.inside.T
    foretold -= foretold.mean(1, keepdims=True)
    found = truth.margins[::2] - truth.margins[::2].mean(1, keepdims=True)
    return slope(foretold, found)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument(
        "--subject", default="small-cifar10", choices=[name for name in ALL if name.startswith("small")]
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--queries", type=int, default=50)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--share", type=float, default=0.01)
    parser.add_argument("--groups", action="store_true")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/influence-removal.json")
    given = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    began = time.perf_counter()
    subject = ALL[given.subject]
    data = subject.data(given.data_dir).on(given.device)
    say = lambda words: print(f"{time.perf_counter() - began:6.0f} s  {words}", flush=True)  # noqa: E731
    found = (groups if given.groups else flips)(subject, data, Truth(subject, data), given, say)
    result = json.loads(given.out.read_text("utf-8")) if given.out.is_file() else {}
    key = f"{subject.name}, {'groups' if given.groups else 'flips'}"
    result[key] = {"machine": machine(rates=False), "seconds": time.perf_counter() - began, **found}
    given.out.write_text(json.dumps(result, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()

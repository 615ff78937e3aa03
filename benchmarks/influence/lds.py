"""The linear datamodeling score of influence weights and their rivals, against the retrainings in `truth/`.

    PYTHONPATH=benchmarks python benchmarks/influence/lds.py --data-dir DIR [--only small-mnist gpt] [--device cuda]
        [--networks 10] [--keep DIR] [--libraries] [--out benchmarks/results/influence-lds.json]

A method foretells how a query's margin changes from one random half of the training samples to another by the sum of
its scores over the half; the score is the rank correlation with what came out, averaged over queries. Networks are
trained on all samples; ours attributes one of them, with snapshots along that training. Settings are chosen on every
second query and figures are those of the others. Intervals: bootstrap over queries and halves, both drawn at once.

`--keep` holds the trained networks, so that `--libraries` (TRAK's own, kronfluence, dattri, Captum; small CNNs, CPU)
attributes the same ones later.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import peers_cnn
import torch
from machine import machine
from own import OWN
from peers_lds import ranks
from peers_methods import PEERS
from rivals import Trak, bm25, four, neighbours
from safetensors.torch import load_file, save_file
from subjects import Data, Subject
from together import Plain, losses, train_many, train_one
from torch import Tensor, nn
from truth import ALL, HERE, REFERENCE, members

from provnet import open_data
from provnet.base.options import InfluenceOptions, RunOptions
from provnet.influence.keys import Influence, course_of, influence_of
from provnet.influence.keys import Subject as Model
from provnet.influence.of_run import epochs_kept, influence, prepare_influence
from provnet.training.config import train_config
from provnet.training.fit import fit

ROOT = HERE.parents[1]
DRAWS = 1000
NETWORKS = {"resnet9": 5, "gpt": 3, "dattri-cifar2": 10}  # of TRAK; ten elsewhere
WIDTH = 2048  # of the widest projection of TRAK
Rows = dict[str, dict[str, np.ndarray]]  # method -> setting -> (Q, S) foretold sums


class Truth:
    """What came out, and how well it can be foretold.

    Attributes:
        margins: (Q, S) means over the trainings on each half.
        inside: (S, N) 1.0 where a sample is in a half.
        alike: mean rank correlation of two single trainings on the same halves; None where only one was done.
    """

    def __init__(self, subject: Subject, data: Data, folder: Path = HERE / "truth") -> None:
        kept = np.load(folder / f"{subject.name}.npz")
        each = kept["margins"].astype(np.float64)  # (T, Q, S)
        self.margins, self.times = each.mean(0), len(each)
        self.classes = torch.from_numpy(kept["classes"].astype(np.int64)) if "classes" in kept else None
        pairs = [(each[i], each[j]) for i in range(len(each)) for j in range(i)]
        if "again" in kept:
            again = kept["again"].astype(np.float64)
            pairs.append((each[0][:, : again.shape[1]], again))
        self.alike = float(np.mean([correlation(*pair) for pair in pairs])) if pairs else None
        rows = members(subject, data.y.cpu().numpy())[: self.margins.shape[1]]
        self.inside = np.zeros((len(rows), len(data.x)), np.float32)
        np.put_along_axis(self.inside, rows, 1.0, 1)

    def ceiling(self) -> float | None:
        """What a perfect foreteller reaches: the root of the reliability of the mean of the trainings."""
        if self.alike is None:
            return None
        return float(np.sqrt(self.times * self.alike / (1 + (self.times - 1) * self.alike)))


def centred(values: np.ndarray) -> np.ndarray:
    """(Q, S) ranks less their mean."""
    found = ranks(values)
    return np.asarray(found - found.mean(1, keepdims=True))


def correlation(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """(Q,) rank correlations."""
    a, b = centred(one), centred(other)
    size = np.sqrt((a**2).sum(1) * (b**2).sum(1))
    return np.asarray(np.divide((a * b).sum(1), size, out=np.zeros(len(a)), where=size > 0))


def drawn(foretold: np.ndarray, margins: np.ndarray, seed: int = 0) -> np.ndarray:
    """(DRAWS,) mean correlations when queries and halves are drawn again; the ranks are those of all halves."""
    chance = np.random.default_rng(seed)
    a, b = centred(foretold), centred(margins)
    count, size = a.shape
    weight = chance.multinomial(size, np.full(size, 1 / size), DRAWS).T / size  # (S, DRAWS)
    ma, mb, maa, mbb, mab = (each @ weight for each in (a, b, a * a, b * b, a * b))
    each = (mab - ma * mb) / np.sqrt(np.maximum((maa - ma**2) * (mbb - mb**2), 1e-12))
    queries = chance.multinomial(count, np.full(count, 1 / count), DRAWS) / count
    return np.asarray((queries * each.T).sum(1))


def figure(values: np.ndarray) -> dict[str, float]:
    """The ends of a 95 % interval."""
    low, high = np.quantile(values, [0.025, 0.975])
    return {"low": float(low), "high": float(high)}


def table(rows: Rows, truth: Truth, first: str) -> dict[str, Any]:
    """Each method: the setting that is best on the even queries, its figure on the odd ones, and `first` minus it."""
    chosen = {}
    for name, settings in rows.items():
        scores = {key: correlation(each[::2], truth.margins[::2]).mean() for key, each in settings.items()}
        chosen[name] = max(scores, key=lambda key: scores[key])
    odd = truth.margins[1::2]
    best = drawn(rows[first][chosen[first]][1::2], odd) if first in rows else None
    found = {}
    for name, key in chosen.items():
        foretold = rows[name][key][1::2]
        again = drawn(foretold, odd)
        found[name] = {"value": float(correlation(foretold, odd).mean()), **figure(again), "setting": key}
        found[name]["queries"] = len(foretold)
        if best is not None and name != first:
            found[name]["ours_minus"] = figure(best - again)
    return found


def references(
    subject: Subject, data: Data, count: int, keep: Path | None
) -> tuple[list[nn.Module], list[Any], Tensor]:
    """Networks trained on all samples; states after every epoch and (E, N) losses of the first."""
    place = keep / f"{subject.name}.safetensors" if keep else None
    device = data.x.device
    if place is not None and place.is_file():
        kept = load_file(place, str(device))
        states = []
        for number in range(subject.recipe.epochs):
            prefix = f"epoch{number}/"
            states.append({k.removeprefix(prefix): v for k, v in kept.items() if k.startswith(prefix)})
        nets = []
        for number in range(count):
            net = subject.net().to(device)
            net.load_state_dict(
                {k.removeprefix(f"{number}/"): v for k, v in kept.items() if k.startswith(f"{number}/")}
            )
            nets.append(net.eval())
        return nets, states, kept["course"]
    every = torch.arange(len(data.x), device=device)
    states = []

    def watch(_: int, net: nn.Module) -> None:
        states.append({name: each.detach().clone() for name, each in net.state_dict().items()})

    first, course = train_one(subject.net, data.x, data.y, every, subject.recipe, REFERENCE, watch)
    nets = [first]
    seeds = [REFERENCE + number for number in range(1, count)]
    if subject.many == 1 or device.type == "cpu":
        nets += [train_one(subject.net, data.x, data.y, every, subject.recipe, seed)[0] for seed in seeds]
    elif seeds:
        made = []
        for seed in seeds:
            torch.manual_seed(seed)
            made.append(Plain(subject.net().to(device).train(), subject.recipe))
        weights, held = train_many(made, data.x, data.y, every.expand(len(seeds), -1), subject.recipe)
        for number in range(len(seeds)):
            net = subject.net().to(device)
            net.load_state_dict({name.split(".", 1)[1]: each[number] for name, each in (weights | held).items()})
            nets.append(net.eval())
    if place is not None:
        kept = {f"epoch{number}/{k}": v for number, state in enumerate(states) for k, v in state.items()}
        kept |= {
            f"{number}/{k}": v.contiguous() for number, net in enumerate(nets) for k, v in net.state_dict().items()
        }
        save_file({k: v.contiguous() for k, v in kept.items()} | {"course": course}, place)
    return nets, states, course


def model(subject: Subject, net: nn.Module) -> Model:
    """What the library is given; where training mirrors pictures, a picture counts with its mirror image."""
    if subject.recipe.augment:
        return Model(net, answer=lambda x: (net(x) + net(x.flip(3))) / 2)
    if subject.name == "gpt":
        return Model(net, loss=lambda output, targets: losses(output.float(), targets))
    return Model(net)


def ours(subject: Subject, data: Data, net: nn.Module, states: list[Any], course: Tensor, asked: Tensor) -> Rows:
    """One network, and snapshots of its training, by whole and by compact keys."""
    text = data.y.ndim > 1
    weight = None if text else course_of(course)
    when = [epoch - 1 for epoch in epochs_kept(subject.recipe.epochs)]
    options = InfluenceOptions(whole=True)
    rows: Rows = {}
    for name, snapshots in (("one network", []), ("snapshots", [states[epoch] for epoch in when])):
        found = influence_of(model(subject, net), data.x, data.y, snapshots=snapshots, course=weight, options=options)
        for kind in ("whole", "compact"):
            rows[f"influence, {name}, {kind}"] = {"": by_queries(found, data.query_x, asked, kind == "whole")}
    return rows


def by_queries(found: Influence, x: Tensor, asked: Tensor, whole: bool) -> np.ndarray:
    """(Q, N) scores, some queries at a time."""
    parts = zip(torch.split(x, 100), torch.split(asked, 100), strict=True)
    return torch.cat([found.scores(a, b, whole=whole).float().cpu() for a, b in parts]).numpy()


def measure(subject: Subject, given: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    """All methods on one subject."""
    data = subject.data(given.data_dir).on(given.device)
    truth = Truth(subject, data)
    asked = data.query_y if truth.classes is None else truth.classes.to(given.device)
    count = given.networks or NETWORKS.get(subject.name, 10)
    nets, states, course = references(subject, data, count, given.keep)
    say(f"{subject.name}: {count} networks")
    if given.libraries:
        return table(libraries(subject, data, nets, states, asked, truth, say), truth, "")
    rows: Rows = {}
    began = time.perf_counter()
    for name, settings in ours(subject, data, nets[0], states, course, asked).items():
        rows[name] = {key: each @ truth.inside.T for key, each in settings.items()}
    seconds = {"ours, both with queries": time.perf_counter() - began}
    say(f"{subject.name}: ours")
    rows["kNN on features"] = {"": neighbours(nets[0], data, subject.recipe).cpu().numpy() @ truth.inside.T}
    if data.text is not None:
        rows["BM25, words"] = {"": bm25(data.text, str.split) @ truth.inside.T}
        rows["BM25, runs of four characters"] = {"": bm25(data.text, four) @ truth.inside.T}
    began = time.perf_counter()
    rows |= traks(subject, data, nets, asked, truth)
    seconds[f"TRAK x{count}"] = time.perf_counter() - began
    say(f"{subject.name}: TRAK")
    methods = table(rows, truth, "influence, snapshots, whole")
    return about(truth, len(data.x)) | {"seconds": seconds, "methods": methods}


def measure_own(given: argparse.Namespace, say: Callable[[str], None]) -> dict[str, Any]:
    """Our own class-conditional network as `fit` trains and `prepare_influence` prepares it."""
    data = OWN.data(given.data_dir).on(given.device)
    truth = Truth(OWN, data)
    digits = open_data("mnist", data_dir=given.data_dir, limit=len(data.x))
    images = open_data("mnist", split="test", data_dir=given.data_dir, limit=len(data.query_x)).images
    asked = data.query_y
    nets, rows = [], {}
    for number in range(given.networks or 5):
        config = train_config("fast", seed=REFERENCE + number).using(network="class-conditional")
        run = fit(digits, config, RunOptions(device=given.device))
        nets.append(nn.Sequential(run.network.backbone, run.network.task_head).to(given.device).eval())
        if number == 0:
            found = influence(prepare_influence(run, digits, InfluenceOptions()))
            parts = zip(torch.split(images, 100), torch.split(asked, 100), strict=True)
            ours = torch.cat([found.scores(a.to(found.device), b).float().cpu() for a, b in parts]).numpy()
            rows["influence, snapshots, compact"] = {"": ours @ truth.inside.T}
            for weights in ("plain", "joint"):
                rows[f"{weights} weights"] = {"": run.scores(images, weights=weights) @ truth.inside.T}
            say("own: ours")
    rows["kNN on features"] = {"": neighbours(nets[0], data, OWN.recipe).cpu().numpy() @ truth.inside.T}
    rows |= traks(OWN, data, nets, asked, truth)
    return about(truth, len(data.x)) | {"methods": table(rows, truth, "influence, snapshots, compact")}


def about(truth: Truth, samples: int) -> dict[str, Any]:
    """What the figures are measured against."""
    return {
        "samples": samples,
        "halves": truth.margins.shape[1],
        "trainings_each": truth.times,
        "two_trainings_agree": truth.alike,
        "ceiling": truth.ceiling(),
    }


@torch.no_grad()
def unsure(net: nn.Module, data: Data, recipe: Any) -> Tensor:
    """(N,) 1 - p of the training samples; 1 for texts, whose loss has it in its gradient."""
    if data.y.ndim > 1:
        return torch.ones(len(data.x), device=data.x.device)
    found = [losses(net(a).float(), b) for a, b in zip(torch.split(data.x, 500), torch.split(data.y, 500), strict=True)]
    return 1 - torch.exp(-torch.cat(found))


def traks(subject: Subject, data: Data, nets: list[nn.Module], asked: Tensor, truth: Truth) -> Rows:
    """TRAK with one network and with more; widths and ridges are settings."""
    inside = torch.from_numpy(truth.inside.T).to(data.x.device)
    trak = Trak(data, subject.recipe, asked, WIDTH, 250 if data.y.ndim == 1 else 64)
    counts = [count for count in (1, 3, 5, 10) if count <= len(nets)]
    each = torch.stack([unsure(net, data, subject.recipe) for net in nets])
    counted = [each[:count].mean(0)[:, None] * inside for count in counts]
    rows: Rows = {}
    for number, net in enumerate(nets):
        for key, found in trak.foretold(net, number, counted).items():
            for count, sums in zip(counts, found, strict=True):
                if number < count:
                    settings = rows.setdefault(f"TRAK x{count}", {})
                    settings[key] = settings.get(key, 0) + sums.cpu().numpy()
    return rows


def libraries(
    subject: Subject,
    data: Data,
    nets: list[nn.Module],
    states: list[Any],
    asked: Tensor,
    truth: Truth,
    say: Callable[[str], None],
) -> Rows:
    """The libraries of `peers_methods.py`, asked about the same classes; what is not installed is left out.

    TracIn is given the weights after each quarter of the training, which count alike.
    """
    quarters = [(states[round(len(states) * part / 4) - 1], 1.0) for part in (1, 2, 3, 4)]
    rows: Rows = {}
    for name, (package, _, count, method) in PEERS.items():
        trained = [peers_cnn.Trained(net, quarters, np.zeros((0, len(data.x))), 0.0) for net in nets[:count]]  # type: ignore[arg-type]
        taken = Fixed(data.x, data.y, trained, lambda x: x, 1, asked)
        try:
            with tempfile.TemporaryDirectory() as folder:
                scores = method(taken, Path(folder)).scores(data.query_x)
        except ImportError as error:
            say(f"{name}: left out, {package}: {error!r}")
            continue
        rows[name] = {"": scores @ truth.inside.T}
        say(f"{name}: {correlation(rows[name][''][1::2], truth.margins[1::2]).mean():.3f}")
    return rows


class Fixed(peers_cnn.Subject):
    """Queries that are asked about given classes."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given[:-1])
        object.__setattr__(self, "asked", given[-1])

    def queries(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """As they are."""
        return images, self.asked[: len(images)]  # type: ignore[attr-defined]


def main() -> None:
    """Measure, print, write: what the file has of other subjects stays."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=list(ALL), choices=list(ALL))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--networks", type=int, default=0, help="of TRAK; 0: as many as the subject has")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--libraries", action="store_true")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/influence-lds.json")
    given = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    began = time.perf_counter()
    for name in given.only:
        say = lambda words: print(f"{time.perf_counter() - began:6.0f} s  {words}", flush=True)  # noqa: E731
        found = measure_own(given, say) if name == OWN.name else measure(ALL[name], given, say)
        result = json.loads(given.out.read_text("utf-8")) if given.out.is_file() else {}
        if given.libraries:
            result[name]["methods"] |= found
        else:
            result[name] = {"machine": machine(rates=False), **found}
        given.out.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
        for method, row in sorted(result[name]["methods"].items(), key=lambda item: -item[1]["value"]):
            print(f"  {method:42s} {row['value']:.3f} ({row['low']:.3f} to {row['high']:.3f})  {row['setting']}")


if __name__ == "__main__":
    main()

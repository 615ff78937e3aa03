"""Texts on SST-2, AG News and CLINC150: classes, identity, wrong labels, strangers and membership, baselines beside.

    python benchmarks/text.py --data data [--sets sst2 clinc150 ag_news] [--seeds 0 1 2] [--jobs 1] [--device auto]

Every set is trained on with the usual settings, with the index head and without its loss. CLINC150's `oos` requests are
never trained on. A tenth of the labels is drawn anew for the rows of wrong labels; cleanlab's scores are those of its
`get_label_quality_scores` (self-confidence, normalised margin) on out-of-fold probabilities of the same encoder, five
folds. Differences are paired: the mean over seeds and samples, with a 95 % bootstrap interval over samples. Writes
benchmarks/results/text.json; the settings were chosen on the validation texts of SST-2 and CLINC150.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import machine
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, roc_auc_score

from provnet import open_data
from provnet.answers.attributor import Attributor
from provnet.answers.out_of_fold import fold_of
from provnet.base.options import RunOptions
from provnet.base.stats import wilson
from provnet.data.dataset import Dataset
from provnet.data.modalities.text import CHANGES
from provnet.runs.run import Run
from provnet.tools.debug.compute import debug
from provnet.tools.membership.compute import audit
from provnet.training.config import train_config
from provnet.training.fit import fit

ASKED, DRAWS, FOLDS, SIDE = 2_000, 1_000, 5, 5_000


def rows(path: Path, *, strangers: bool = False) -> list[dict[str, Any]]:
    """The texts of a file: those in scope, or those out of it."""
    found = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [one for one in found if (one["label"] == "oos") == strangers]


def opened(given: list[dict[str, Any]], names: tuple[str, ...] | None = None) -> Dataset:
    """Texts as data; the classes are those of training."""
    labels = [str(one["label"]) for one in given]
    return open_data([one["text"] for one in given], labels, class_names=names)


def trained(data: Dataset, seed: int, device: str, **changes: Any) -> Run:
    """A network of the usual settings."""
    return fit(data, train_config(seed=seed, **changes), RunOptions(device=device))


def asked(run: Run, data: Any) -> dict[str, np.ndarray]:
    """Probabilities, support and the first sample named."""
    found = Attributor(run).each(
        data.inputs if isinstance(data, Dataset) else data,
        lambda one: {
            "p": torch.softmax(one.logits.float(), 1).cpu(),
            "support": one.best(1).support.cpu(),
            "first": one.best(1).index[:, 0].cpu(),
        },
    )
    return {name: value.numpy() for name, value in found.items()}


def bm25(documents: list[str]) -> Any:
    """A function from queries to their best document: BM25 with k1 = 1.2 and b = 0.75, over words and signs."""
    counter = CountVectorizer(token_pattern=r"\w+|[^\w\s]")
    count = sparse.csr_array(counter.fit_transform(documents), dtype=np.float32)
    length = np.asarray(count.sum(1)).ravel()
    there = np.asarray((count > 0).sum(0)).ravel()
    rarity = np.log(1 + (len(documents) - there + 0.5) / (there + 0.5))
    each = np.repeat(0.25 + 0.75 * length / length.mean(), np.diff(count.indptr))
    count.data = count.data * 2.2 / (count.data + 1.2 * each)
    weight = sparse.csc_array(count * rarity[None]).T.tocsr()
    return lambda texts: best_of(sparse.csr_array(counter.transform(texts) > 0, dtype=np.float32), weight)


def nearest(documents: list[str]) -> Any:
    """The same by the cosine of TF-IDF."""
    vectors = TfidfVectorizer(sublinear_tf=True)
    weight = sparse.csr_array(vectors.fit_transform(documents)).T.tocsr()
    return lambda texts: best_of(sparse.csr_array(vectors.transform(texts)), weight)


def best_of(queries: Any, weight: Any) -> np.ndarray:
    """The best document of each query, a few at a time."""
    parts = range(0, queries.shape[0], 250)
    return np.concatenate([np.asarray((queries[at : at + 250] @ weight).todense()).argmax(1) for at in parts])


def identity(run: Run, data: Dataset) -> dict[str, Any]:
    """Which training text is named first for changed copies of ASKED of them; equal texts count as one."""
    assert data.items is not None
    chosen, groups = np.arange(min(ASKED, len(data))), data.samples.groups
    others = {"BM25": bm25(list(data.items)), "TF-IDF, nearest": nearest(list(data.items))}
    found: dict[str, Any] = {}
    for name, change in {"as they are": None, **CHANGES}.items():
        texts = [data.items[i] for i in chosen]
        if change is not None:
            texts = [change(text, random.Random(row)) for row, text in enumerate(texts)]
        first = {"provnet": asked(run, data.modality.batch(texts))["first"]}
        first |= {other: ask(texts) for other, ask in others.items()}
        found[name] = {
            method: wilson(int((groups[at] == groups[chosen]).sum()), len(chosen)).to_json()
            for method, at in first.items()
        }
    return found


def wrong_labels(data: Dataset, seed: int, device: str) -> dict[str, Any]:
    """Scores of all samples by every way, after a tenth of the labels was drawn anew."""
    dice, classes = np.random.default_rng(seed), len(data.class_names)
    right = data.samples.labels
    flipped = dice.random(len(data)) < 0.1
    given = np.where(flipped, (right + dice.integers(1, classes, len(data))) % classes, right)
    noisy = open_data(list(data.items or ()), given, class_names=data.class_names)
    run = trained(noisy, seed, device)
    began = time.perf_counter()
    found = debug(run, noisy)
    seconds = time.perf_counter() - began
    assert run.history is not None
    fold, p = fold_of(torch.from_numpy(given), FOLDS, seed).numpy(), np.zeros((len(data), classes))
    for number in range(FOLDS):
        part = trained(noisy.select(np.flatnonzero(fold != number)), seed, device, index_weight=0.0)
        p[fold == number] = asked(part, noisy.select(np.flatnonzero(fold == number)))["p"]
    own = p[np.arange(len(p)), given]
    p[np.arange(len(p)), given] = -1
    scores = {
        "provnet debug": found.mislabels.odds,
        "cleanlab, self-confidence": -own,
        "cleanlab, normalised margin": p.max(1) - own,
        "mean loss": run.history.astype(np.float64).mean(0),
    }
    return {"flipped": flipped, "scores": scores, "seconds": seconds}


def one_job(folder: Path, name: str, seed: int, device: str) -> dict[str, Any]:
    """All that is measured of one set with one seed; arrays per sample are kept for paired intervals."""
    torch.set_num_threads(1)
    train = opened(rows(folder / name / "train.jsonl"))
    held = rows(folder / name / "test.jsonl")
    test = opened(held, train.class_names)
    began = time.perf_counter()
    run = trained(train, seed, device)
    result: dict[str, Any] = {"set": name, "seed": seed, "train_seconds": time.perf_counter() - began, "n": len(train)}
    plain = trained(train, seed, device, index_weight=0.0)
    truth, said = test.samples.labels, {"with": asked(run, test), "without": asked(plain, test)}
    result["right"] = {which: (each["p"].argmax(1) == truth).astype(int).tolist() for which, each in said.items()}
    supported = said["with"]["support"] >= run.config.support["threshold"]
    result["supported"] = float(supported.mean())
    if seed == 0:
        result["right"]["TF-IDF"] = baseline(train, test).astype(int).tolist()
        result["identity"] = identity(run, train)
    strange = rows(folder / name / "test.jsonl", strangers=True)
    if strange:
        odd = {
            w: asked(r, train.modality.batch([one["text"] for one in strange]))
            for w, r in (("with", run), ("without", plain))
        }
        result["strangers"] = {
            "supported": float((odd["with"]["support"] >= run.config.support["threshold"]).mean()),
            "scores": {which: [each.tolist() for each in pair] for which, pair in stranger_scores(said, odd).items()},
        }
    wrong = wrong_labels(train, seed, device)
    result["debug_seconds"] = wrong["seconds"]
    result["wrong"] = {
        "flipped": wrong["flipped"].astype(int).tolist(),
        "scores": {way: np.asarray(score).tolist() for way, score in wrong["scores"].items()},
    }
    if name == "ag_news":
        mixed = np.random.default_rng(seed).permutation(len(train))
        members, others = (train.select(np.sort(part)) for part in (mixed[:SIDE], mixed[SIDE : 2 * SIDE]))
        seen = audit(trained(members, seed, device), members, others)
        result["membership"] = {
            "clean": {score: one.auc.to_json() for score, one in seen.scores.items()},
            **{kind: {s: one.auc.to_json() for s, one in of.items()} for kind, of in seen.distorted.items()},
        }
    return result


def stranger_scores(said: dict[str, Any], odd: dict[str, Any]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Way -> scores of texts in scope and out of it; higher is more familiar."""
    found = {"provnet support": (said["with"]["support"], odd["with"]["support"])}
    for which in ("with", "without"):
        p = said[which]["p"], odd[which]["p"]
        found[f"max-softmax, {which} the index head"] = tuple(each.max(1) for each in p)  # type: ignore[assignment]
        found[f"entropy, {which} the index head"] = tuple((each * np.log(each + 1e-12)).sum(1) for each in p)  # type: ignore[assignment]
    return found


def baseline(train: Dataset, test: Dataset) -> np.ndarray:
    """(N,) whether TF-IDF of words with logistic regression (scikit-learn, C = 10) is right."""
    vectors = TfidfVectorizer()
    model = LogisticRegression(C=10, max_iter=300).fit(vectors.fit_transform(train.items), train.samples.labels)
    return np.asarray(model.predict(vectors.transform(test.items)) == test.samples.labels)


def paired(one: np.ndarray, other: np.ndarray) -> dict[str, float]:
    """(S, N) values of two ways -> their mean difference with a bootstrap interval over the N samples."""
    each, dice = (one - other).mean(0), np.random.default_rng(0)
    drawn = each[dice.integers(0, len(each), (DRAWS, len(each)))].mean(1)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return {"difference": float(each.mean()), "low": float(low), "high": float(high)}


def ordered(
    jobs: list[dict[str, Any]], measure: Any, truths: list[np.ndarray], ours: str, draws: int = 200
) -> dict[str, Any]:
    """Way -> its mean measure over seeds, and ours less it with a paired bootstrap interval over samples."""
    dice, ways = np.random.default_rng(0), list(jobs[0])
    values = {way: [measure(t, np.asarray(job[way])) for t, job in zip(truths, jobs, strict=True)] for way in ways}
    gaps: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(draws):
        rows_ = [dice.integers(0, len(t), len(t)) for t in truths]
        drawn = {
            way: np.mean(
                [measure(t[r], np.asarray(job[way])[r]) for t, job, r in zip(truths, jobs, rows_, strict=True)]
            )
            for way in ways
        }
        for way in ways:
            gaps[way].append(float(drawn[ours] - drawn[way]))
    return {
        way: {
            "mean": float(np.mean(values[way])),
            "each": [float(value) for value in values[way]],
            "ours_less_this": [float(np.quantile(gaps[way], q)) for q in (0.025, 0.5, 0.975)],
        }
        for way in ways
    }


def summary(jobs: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of one set over its seeds."""
    right = {which: np.array([job["right"][which] for job in jobs]) for which in ("with", "without")}
    found: dict[str, Any] = {"seeds": [job["seed"] for job in jobs], "n_test": right["with"].shape[1]}
    found["accuracy"] = {which: float(each.mean()) for which, each in right.items()}
    found["with_less_without"] = paired(right["with"], right["without"])
    for job in jobs:
        if "TF-IDF" in job["right"]:
            known = np.array([job["right"]["TF-IDF"]])
            found["accuracy"]["TF-IDF, logistic regression"] = float(known.mean())
            found["with_less_tfidf"] = paired(right["with"].mean(0, keepdims=True), known)
            found["identity"] = job["identity"]
    found["supported"] = float(np.mean([job["supported"] for job in jobs]))
    found["seconds"] = {
        "train": float(np.mean([j["train_seconds"] for j in jobs])),
        "debug": float(np.mean([j["debug_seconds"] for j in jobs])),
    }
    flipped = [np.array(job["wrong"]["flipped"]) for job in jobs]
    found["wrong_labels_ap"] = ordered(
        [job["wrong"]["scores"] for job in jobs], average_precision_score, flipped, "provnet debug"
    )
    odd = [job["strangers"]["scores"] for job in jobs if "strangers" in job]
    if odd:
        truths = [
            np.r_[np.ones(len(one["provnet support"][0])), np.zeros(len(one["provnet support"][1]))] for one in odd
        ]
        flat = [{way: np.concatenate(pair) for way, pair in one.items()} for one in odd]
        found["strangers_auroc"] = ordered(flat, roc_auc_score, truths, "provnet support")
        found["strangers_supported"] = float(np.mean([job["strangers"]["supported"] for job in jobs]))
    seen = [job["membership"] for job in jobs if "membership" in job]
    if seen:
        found["membership_auc"] = {
            k: {s: float(np.mean([one[k][s]["value"] for one in seen])) for s in seen[0][k]} for k in seen[0]
        }
    return found


def main() -> None:
    """Run the jobs, in processes, and write after each set what is known."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--sets", nargs="+", default=["sst2", "clinc150", "ag_news"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "text.json")
    given = parser.parse_args()
    begun, done = time.perf_counter(), []
    with ProcessPoolExecutor(given.jobs, get_context("spawn")) as pool:
        order = [(name, seed) for name in reversed(given.sets) for seed in given.seeds]
        jobs = [pool.submit(one_job, given.data, name, seed, given.device) for name, seed in order]
        for job in as_completed(jobs):
            done.append(job.result())
            print(f"{time.perf_counter() - begun:.0f} s", done[-1]["set"], done[-1]["seed"], flush=True)
            by_set = {
                name: sorted((j for j in done if j["set"] == name), key=lambda j: int(j["seed"])) for name in given.sets
            }
            result = {"machine": machine(rates=False), "device": given.device}
            result |= {name: summary(each) for name, each in by_set.items() if len(each) == len(given.seeds)}
            given.out.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()

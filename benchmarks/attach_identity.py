"""Training with `attach` beside the same training without: accuracy, and how many samples find themselves.

    python benchmarks/attach_identity.py OUT --data cifar10 --data-dir DIR [--seeds 3] [--weights 0,0.03] [--limit N]
        [--epochs 10] [--augment robust] [--processes 1] [--tiny]
    python benchmarks/attach_identity.py OUT --data DIR/sst2

Pictures: a residual network whose owner crops and mirrors. Texts, a folder with train.jsonl and test.jsonl: a BERT of
two layers, words as tokens. Weight 0 is the owner's own training, bit for bit; its rows say what nearest neighbours by
cosine find in its features, at the place that `attach` reads (`knn`) and at the input of the last layer (`knn_last`),
and what `provnet.index` finds. Accuracy is a difference between trainings of one seed, with a t interval over seeds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader

import provnet
from provnet.base.stats import t_quantile
from provnet.data.dataset import Dataset
from provnet.data.modalities.text import Text
from provnet.models.attached import moved
from provnet.models.tap import Place, Tap
from provnet.runs.run import Run

WORDS, LENGTH = 8000, 64
ASKED = 500  # samples at a time


@dataclass(frozen=True)
class Job:
    """What is trained on; everything but the weight of the index loss and the seed."""

    data: str
    data_dir: str | None
    limit: int | None
    epochs: int
    augment: str | None
    tiny: bool
    device: str


@cache
def opened(job: Job) -> tuple[Dataset, Dataset]:
    """Training and test samples."""
    folder = Path(job.data)
    if not (folder / "train.jsonl").is_file():
        train, test = (
            provnet.open_data(job.data, split=split, data_dir=job.data_dir, limit=job.limit)
            for split in ("train", "test")
        )
        return train, test
    train_rows, test_rows = (lines(folder / f"{split}.jsonl", job.limit) for split in ("train", "test"))
    often = Counter(word for text, _ in train_rows for word in text.split())
    known = {word: 4 + place for place, (word, count) in enumerate(often.most_common(WORDS)) if count > 1}
    names = sorted({label for _, label in train_rows})
    modality = Text(partial(tokens, known), length=LENGTH)
    train, test = (
        provnet.open_data(*zip(*rows, strict=True), split=split, modality=modality, class_names=names)
        for split, rows in (("train", train_rows), ("test", test_rows))
    )
    return train, test


def lines(path: Path, limit: int | None) -> list[tuple[str, str]]:
    """(text, class) of each line, in lower case; of CLINC150 domains are the classes, but for what is out of scope."""
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    found = [(row["text"].lower(), str(row.get("domain", row["label"]))) for row in rows if row["label"] != "oos"]
    order = np.random.default_rng(0).permutation(len(found))[:limit]
    return [found[i] for i in order]


def tokens(known: dict[str, int], text: str) -> list[int]:
    """A number for each word, between a first and a last sign; 1 for words that are not known."""
    return [2, *(known.get(word, 1) for word in text.split()[: LENGTH - 2]), 3]


class Residual(nn.Module):
    """Two convolutions beside the way past them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(*conv(width, width), *conv(width, width))

    def forward(self, x: Tensor) -> Tensor:
        """(B, width, H, W) -> the same."""
        out: Tensor = x + self.layers(x)
        return out


def conv(inputs: int, outputs: int) -> list[nn.Module]:
    """A convolution, its BatchNorm and ReLU."""
    return [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]


def network(data: Dataset, tiny: bool) -> nn.Module:
    """A residual network for pictures, with 256 features; a BERT of two layers for texts."""
    classes = len(data.class_names)
    if data.items is None:
        a, b, c = (8, 16, 32) if tiny else (64, 128, 256)
        down = nn.MaxPool2d(2)
        layers = [*conv(data.shape[0], a), *conv(a, b), down, Residual(b), *conv(b, c), down, *conv(c, c), down]
        return nn.Sequential(*layers, Residual(c), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c, classes))
    from transformers import BertConfig, BertForSequenceClassification

    sizes = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 256}
    config = BertConfig(vocab_size=4 + WORDS, num_labels=classes, max_position_embeddings=LENGTH, **sizes)
    return BertForSequenceClassification(config)  # type: ignore[no-any-return]


def trained(job: Job, data: Dataset, weight: float, seed: int) -> tuple[nn.Module, provnet.Provenance]:
    """The owner's training, with the two lines in it."""
    torch.manual_seed(seed)
    model = network(data, job.tiny).to(job.device)
    prov = provnet.attach(model, data, weight=weight)
    torch.manual_seed(seed)
    (train_on_texts if data.items is not None else train_on_pictures)(job, model, data, prov)
    return model, prov


def train_on_pictures(job: Job, model: nn.Module, data: Dataset, prov: provnet.Provenance) -> None:
    """SGD, one cycle; pictures lie on the device, where their owner crops and mirrors them."""
    pictures, labels = data.inputs.to(job.device), data.labels.to(job.device)
    batch, steps = (64, -(-len(data) // 64)) if len(data) <= 5000 else (256, -(-len(data) // 256))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=steps * job.epochs)
    model.to(memory_format=torch.channels_last).train()  # type: ignore[call-overload]
    samples = prov.dataset(job.augment) if job.augment else None
    for _ in range(job.epochs):
        for index in torch.randperm(len(data)).split(batch):
            there = index.to(job.device)
            x = pictures[there].float() / 255 if samples is None else samples.batch(index).to(job.device)
            x = cropped(x).contiguous(memory_format=torch.channels_last)
            with torch.autocast(job.device, dtype=torch.bfloat16, enabled=job.device == "cuda"):
                loss = F.cross_entropy(model(x), labels[there]) + prov.loss(index)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()


def cropped(x: Tensor) -> Tensor:
    """Up to four pixels aside, and every other one mirrored."""
    b, _, height, width = x.shape
    room = F.pad(x, (4, 4, 4, 4))
    down, across = (torch.randint(9, (b, 1), device=x.device) for _ in range(2))
    rows, columns = down + torch.arange(height, device=x.device), across + torch.arange(width, device=x.device)
    columns = torch.where(torch.rand(b, 1, device=x.device) < 0.5, columns.flip(1), columns)
    each = torch.arange(b, device=x.device)[:, None, None]
    return room[each, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def train_on_texts(job: Job, model: nn.Module, data: Dataset, prov: provnet.Provenance) -> None:
    """AdamW; settings were chosen on CLINC150."""
    optimizer = torch.optim.AdamW(model.parameters(), 5e-4)
    model.train()
    for _ in range(job.epochs):
        for x, y, index in DataLoader(prov.dataset(), batch_size=32, shuffle=True):
            inputs = {name: one.to(job.device) for name, one in x.items()}
            loss = F.cross_entropy(model(**inputs).logits, y.to(job.device)) + prov.loss(index)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()


def asked(make: Callable[[Any], Tensor], inputs: Any) -> Tensor:
    """What is made of inputs, some at a time."""
    with torch.inference_mode():
        return torch.cat([make(inputs[rows]) for rows in torch.arange(len(inputs)).split(ASKED)])


def nearest(queries: Tensor, keys: Tensor) -> np.ndarray:
    """(Q,) the key of the largest cosine."""
    queries, keys = F.normalize(queries.float(), dim=1), F.normalize(keys.float(), dim=1)
    return torch.cat([(part @ keys.t()).argmax(1) for part in queries.split(ASKED)]).cpu().numpy()


def figures(job: Job, weight: float, seed: int) -> dict[str, Any]:
    """One training: its accuracy on unseen samples, and the share of training samples that find themselves."""
    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = True
    data, test = opened(job)
    began = time.perf_counter()
    model, prov = trained(job, data, weight, seed)
    run, seconds = prov.finish(), time.perf_counter() - began
    said = provnet.explain(run, test, k=1, warn=False)
    copies = {name: copied(data.inputs, 7) for name, copied in data.modality.perturbed(data.inputs).items()}
    if data.items is None:
        noise = torch.randn(data.inputs.shape, generator=torch.Generator().manual_seed(8))
        copies["noise .1"] = (data.inputs + 25.5 * noise).round().clamp(0, 255).to(torch.uint8)
    ways: dict[str, Callable[[Any], np.ndarray]] = {
        "ours": lambda x: provnet.explain(run, x, k=1, warn=False).index[:, 0]
    }
    if weight == 0:
        ways |= {"knn": knn(run, data, None)} | ({"knn_last": knn(run, data, model)} if data.items is not None else {})
    groups = data.samples.groups
    return {
        "weight": weight,
        "seed": seed,
        "at": prov.at,
        "accuracy": float((said.predicted == test.samples.labels).mean()),
        "class_of_first": float((said.label[:, 0] == test.samples.labels).mean()),
        "finds_itself": {
            way: {name: float((groups[find(x)] == groups).mean()) for name, x in copies.items()}
            for way, find in ways.items()
        },
        "seconds": seconds,
    }


def knn(run: Run, data: Dataset, model: nn.Module | None) -> Callable[[Any], np.ndarray]:
    """The nearest training sample by the cosine of what a run reads, or of what a model's last layer is given."""
    make: Callable[[Any], Tensor] = run.network.features
    if model is not None:
        last = [name for name, part in model.eval().named_modules() if isinstance(part, nn.Linear)][-1]
        tap, device = Tap(model, Place(last, "input")), next(model.parameters()).device

        def make(x: Any) -> Tensor:
            return tap.read(moved(run.network.normalise(x), device)).features

    keys = asked(make, data.inputs)
    return lambda x: nearest(asked(make, x), keys)


def compared(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """By weight: accuracy without the index loss, the difference with it, and means over seeds of everything else."""
    plain = {row["seed"]: row["accuracy"] for row in rows if row["weight"] == 0}
    found = {}
    for weight in sorted({row["weight"] for row in rows}):
        mine = [row for row in rows if row["weight"] == weight]
        pairs = [row["accuracy"] - plain[row["seed"]] for row in mine if row["seed"] in plain]
        ways = mine[0]["finds_itself"]
        found[f"{weight:g}"] = {
            "seeds": len(mine),
            "accuracy": statistics.mean(row["accuracy"] for row in mine),
            "difference": None if weight == 0 else interval(pairs),
            "class_of_first": statistics.mean(row["class_of_first"] for row in mine),
            "finds_itself": {
                way: {name: statistics.mean(row["finds_itself"][way][name] for row in mine) for name in ways[way]}
                for way in ways
            },
        }
    return found


def interval(pairs: list[float]) -> dict[str, Any]:
    """The mean of paired differences with its 95 % interval by t; without one where there are fewer than two."""
    if len(pairs) < 2:
        return {"value": pairs[0] if pairs else None, "n": len(pairs), "low": None, "high": None}
    mean, wide = statistics.mean(pairs), statistics.stdev(pairs) / len(pairs) ** 0.5 * t_quantile(len(pairs) - 1)
    return {"value": mean, "n": len(pairs), "low": mean - wide, "high": mean + wide}


def main() -> None:
    """Train, compare, and write after each training."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", required=True)
    parser.add_argument("--data-dir")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--augment")
    parser.add_argument("--weights", default="0,0.03")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--once", default="", help="weights of which one seed is enough")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--tiny", action="store_true")
    asked_for = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    names = ("data", "data_dir", "limit", "epochs", "augment", "tiny")
    job = Job(**{name: getattr(asked_for, name) for name in names}, device=device)
    weights = [float(one) for one in asked_for.weights.split(",")]
    todo = [(weight, seed) for seed in range(asked_for.seeds) for weight in weights]
    todo += [(float(one), 0) for one in asked_for.once.split(",") if one]
    train, test = opened(job)
    about = {
        **asdict(replace(job, data=Path(job.data).stem, data_dir=None)),
        "train": len(train),
        "test": len(test),
        "device": torch.cuda.get_device_name() if device == "cuda" else "CPU",
        "torch": torch.__version__,
    }
    asked_for.out.mkdir(parents=True, exist_ok=True)
    path = asked_for.out / f"attach-identity-{Path(job.data).stem}{'-robust' if job.augment else ''}.json"
    rows: list[dict[str, Any]] = []
    with ProcessPoolExecutor(asked_for.processes, get_context("spawn")) as pool:
        for one in as_completed([pool.submit(figures, job, *which) for which in todo]):
            rows.append(one.result())
            print(json.dumps(rows[-1]), flush=True)
            text = json.dumps({"about": about, "by_weight": compared(rows), "rows": rows}, indent=1)
            path.write_text(text + "\n")
    print(json.dumps(compared(rows), indent=1))


if __name__ == "__main__":
    main()

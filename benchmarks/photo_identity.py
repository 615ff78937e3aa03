"""Does a photograph find itself after JPEG, a crop, mirroring or noise? A frozen backbone's keys, plain kNN beside.

    python benchmarks/photo_identity.py DATA [--limit N] [--seed 0] [--out results.json]

DATA is an image folder with train/. Copies are made of the network's view (224 pixels, stretched): JPEG of quality 50,
5 % of each side cut off at a place drawn for each picture, the mirror image, noise of .1. kNN takes cosines of the same
features without whitening. Rates carry Wilson's 95 % interval.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import provnet
from provnet.answers.attributor import Attributor
from provnet.base.stats import wilson
from provnet.data.modalities.augment import add_noise, cut, jpeg
from provnet.models.pretrained import LITE0, features_of_all
from provnet.training.config import train_config
from provnet.training.fit import fit

COPIES = {
    "none": lambda images, seed: images,
    "JPEG 50": lambda images, seed: jpeg(images, 50),
    "crop of 5 %": cut,
    "mirrored": lambda images, seed: images.flip(3),
    "noise .1": add_noise,
}


def unit(features: Tensor) -> Tensor:
    """At length one."""
    return torch.nn.functional.normalize(features, dim=1)


def main() -> None:
    """Train on the photographs, ask about copies of them, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("data")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--network", default="class-independent")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    data = provnet.open_data(asked.data, size=224, mode="rgb", limit=asked.limit)
    began, cpu = time.perf_counter(), time.process_time()
    run = fit(data, train_config(backbone=LITE0, network=asked.network, seed=asked.seed))
    seconds = {"wall": round(time.perf_counter() - began, 1), "cpu": round(time.process_time() - cpu, 1)}
    net, truth = run.network, np.arange(len(data))
    plain = unit(features_of_all(net.backbone, net.normalise, data.images, progress=False))
    found = {}
    for name, copied in COPIES.items():
        copies = copied(data.images, asked.seed)
        own = Attributor(run)(copies, 1).index[:, 0] == truth
        queries = unit(features_of_all(net.backbone, net.normalise, copies, progress=False))
        near = (queries @ plain.t()).argmax(1).numpy() == truth
        rows = {"provnet": wilson(int(own.sum()), len(own)), "kNN": wilson(int(near.sum()), len(near))}
        print(f"{name:12s} " + "   ".join(f"{way}: {rate}" for way, rate in rows.items()), flush=True)
        found[name] = {way: rate.to_json() for way, rate in rows.items()}
    about = {"data": Path(asked.data).name, "n": len(data), "seed": asked.seed, "network": run.config.network.network}
    print(f"trained in {seconds['wall']} s ({seconds['cpu']} s of CPU time)")
    if asked.out is not None:
        asked.out.write_text(json.dumps({**about, "seconds": seconds, "found": found}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
